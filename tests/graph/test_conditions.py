"""Conditions are known exactly: value, statement, line, the operations that serve them, the way they went."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl

needs_columns = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="Python 3.10 does not record the columns of instructions"
)


class Model(nn.Module):
    """Runs a function as a model."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def log_of(function: Callable[[Tensor], Tensor]) -> tl.ModelLog:
    return tl.log_forward_pass(Model(function), torch.tensor([1.0, 2.0, 3.0]))


def an_if(x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = x * 2
    return x


def an_elif(x: Tensor) -> Tensor:
    if x.sum() < 0:
        x = x * 2
    elif x.max() > 2:
        x = x * 3
    return x


def a_while(x: Tensor) -> Tensor:
    while x.sum() < 20:
        x = x * 2
    return x


def an_assert(x: Tensor) -> Tensor:
    assert (x > 0).all()
    return x * 2


def a_ternary(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 100 else x * 3


def a_negation(x: Tensor) -> Tensor:
    if not x.sum() > 100:
        x = x * 2
    return x


def both_of_two(x: Tensor) -> Tensor:
    if x.sum() > 0 and x.min() > 100:
        x = x * 2
    return x


def either_of_two(x: Tensor) -> Tensor:
    if x.sum() > 0 or x.min() > 100:
        x = x * 2
    return x


def an_item(x: Tensor) -> Tensor:
    if x.sum().item() > 100:
        x = x * 2
    return x * 3


def equal_tensors(x: Tensor) -> Tensor:
    if torch.equal(x, x.clone()):
        x = x * 2
    return x


def a_comprehension(x: Tensor) -> Tensor:
    return torch.stack([row for row in x if row > 1.5])


def a_bare_tensor(x: Tensor) -> Tensor:
    if x.sum():
        x = x * 2
    return x


def a_stored_bool(x: Tensor) -> Tensor:
    large = bool(x.sum() > 100)
    return x * 2 if large else x * 3


EXPECTED: list[tuple[Callable[[Tensor], Tensor], list[tuple[str, object, bool | None, str]]]] = [
    (an_if, [("if", True, True, "gt_1_2")]),
    (an_elif, [("if", False, False, "lt_1_2"), ("elif", True, True, "gt_1_4")]),
    (
        a_while,
        [("while", True, True, "lt_1_2:1"), ("while", True, True, "lt_1_2:2"), ("while", False, False, "lt_1_2:3")],
    ),
    (an_assert, [("assert", True, True, "all_1_2")]),
    (a_ternary, [("ternary", False, False, "gt_1_2")]),
    (a_negation, [("if", False, True, "gt_1_2")]),
    (both_of_two, [("if", True, None, "gt_1_2"), ("if", False, False, "gt_2_4")]),
    (either_of_two, [("if", True, True, "gt_1_2")]),
    (an_item, [("if", 6.0, None, "sum_1_1")]),
    (equal_tensors, [("if", True, True, "input_1_0")]),
    (a_bare_tensor, [("if", True, True, "sum_1_1")]),
    (a_stored_bool, [("call", False, False, "gt_1_2")]),
]


@needs_columns
@pytest.mark.parametrize(("function", "expected"), EXPECTED, ids=lambda argument: getattr(argument, "__name__", ""))
def test_conditions(function: Callable[[Tensor], Tensor], expected: list[tuple[str, object, bool | None, str]]) -> None:
    found = log_of(function).conditionals
    assert [(c.kind, c.value, c.outcome, c.layer) for c in found] == expected


@needs_columns
def test_a_comprehension() -> None:
    found = log_of(a_comprehension).conditionals
    assert [(c.kind, c.value, c.source) for c in found] == [
        ("comprehension", False, "row > 1.5"),
        ("comprehension", True, "row > 1.5"),
        ("comprehension", True, "row > 1.5"),
    ]


def test_file_line_and_source() -> None:
    (condition,) = log_of(an_if).conditionals
    assert (Path(condition.file).name, condition.source) == ("test_conditions.py", "x.sum() > 0")
    assert linecache.getline(condition.file, condition.line).strip() == "if x.sum() > 0:"


@pytest.mark.parametrize("function", [function for function, _ in EXPECTED])
def test_only_branches_count_as_branching(function: Callable[[Tensor], Tensor]) -> None:
    branching = log_of(function).has_conditional_branching
    assert branching is (function not in (an_assert, a_stored_bool))


def test_operations_of_a_condition() -> None:
    log = log_of(an_if)
    assert [op.label for op in log if op.in_cond_branch] == ["sum_1_1", "gt_1_2"]
    assert log.internally_terminated_bool_layers == ["gt_1_2"]
    assert log["gt_1_2"].is_terminal_bool_layer and not log["sum_1_1"].is_terminal_bool_layer
    assert {op.label: op.cond_branch_children for op in log if op.cond_branch_children} == {"input_1_0": ["sum_1_1"]}


def test_a_condition_on_a_value_that_is_used_has_no_branch_of_its_own() -> None:
    def used_and_asked(x: Tensor) -> Tensor:
        total = x.sum()
        if total > 0:
            x = x / total
        return x

    log = log_of(used_and_asked)
    assert [op.label for op in log if op.in_cond_branch] == ["gt_1_2"]
    assert not log["sum_1_1"].is_terminal_bool_layer


def test_a_condition_that_has_nothing_to_do_with_input_or_output_stays() -> None:
    class Flagged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("flag", torch.ones(2))

        def forward(self, x: Tensor) -> Tensor:
            torch.ones(3).exp()
            return x * 2 if self.flag.sum() > 1 else x

    log = tl.log_forward_pass(Flagged(), torch.ones(2))
    assert log.layer_labels == ["input_1_0", "buffer_1_1", "sum_1_2", "gt_1_3", "mul_1_4", "output_1_5"]
    assert [op.label for op in log if op.in_cond_branch] == ["buffer_1_1", "sum_1_2", "gt_1_3"]


def test_a_bool_that_nothing_asked_is_no_condition() -> None:
    def unused(x: Tensor) -> Tensor:
        _ = x.sum() > 0
        return x * 2

    log = log_of(unused)
    assert log.conditionals == [] and not log.has_conditional_branching
    assert not any(op.in_cond_branch or op.cond_branch_children for op in log)
    assert log.internally_terminated_bool_layers == ["gt_1_2"], "it ends there all the same"


def test_a_bool_that_numpy_was_asked_for() -> None:
    def through_numpy(x: Tensor) -> Tensor:
        flag = x.sum() > 0
        if flag.to(torch.uint8).numpy() == 1:
            return x * 2
        return x

    assert log_of(through_numpy).has_conditional_branching


def test_questions_that_torch_asks_itself_are_not_the_models() -> None:
    def distribution(x: Tensor) -> Tensor:
        return torch.distributions.Normal(x, x).rsample()

    log = log_of(distribution)
    assert log.conditionals == [] and not log.has_conditional_branching


def test_a_loop_whose_length_depends_on_the_data() -> None:
    log = log_of(a_while)
    assert log["mul_1_3"].num_passes == 2
    assert [log["sum_1_1"].num_passes, log["lt_1_2"].num_passes] == [3, 3]
