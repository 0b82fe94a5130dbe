"""Validation says yes to right logs and no to wrong ones."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models import CASES, Case
from tests.test_documented import DemoNetwork, RecurrentNetwork
from tests.torchvision_models import torchvision_models
from torch import Tensor, nn

import torchlens as tl
from torchlens.replay.same import difference, same


@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_model_validates_unless_its_log_warns(case: Case, train: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log = tl.log_forward_pass(case.build().train(train), case.inputs(), case.kwargs())
    report = log.validate()
    assert bool(report) is (not log.warnings), str(report)
    verified = {*report.replayed, *report.given, *report.unstable, *(label for label, _ in report.unverified)}
    assert {op.label for op in log if not op.is_output_layer} == verified


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "vit_b_16"])
def test_known_models_validate(name: str) -> None:
    model = getattr(torchvision_models(), name)()
    report = tl.validate_model_activations(model, torch.rand(2, 3, 224, 224), perturb=False)
    assert report, str(report)


def test_the_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.ReLU(inplace=True))
    x = torch.rand(4, 3)
    state, before, rng = copy.deepcopy(model.state_dict()), x.clone(), torch.get_rng_state()
    report = tl.validate_model_activations(model, x, random_seed=3)
    assert report and "Valid" in str(report)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert torch.equal(x, before) and torch.equal(torch.get_rng_state(), rng)
    assert model.training and all(p.grad is None for p in model.parameters())


def test_verbose_prints(capsys: pytest.CaptureFixture[str]) -> None:
    tl.validate_saved_activations(DemoNetwork(), torch.rand(5, 5), verbose=True)
    assert capsys.readouterr().out.startswith("Valid: 9 operations replayed, 11 parents perturbed")


def test_a_model_that_is_not_reproducible_is_not_valid() -> None:
    class Counting(nn.Module):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            Counting.calls += 1
            return x * Counting.calls

    report = tl.validate_forward_pass(Counting(), torch.ones(2))
    assert not report
    assert "outputs: output_1_2: differs from a plain run: 2 of 2 values, by at most 1" in str(report)


def test_a_log_without_values_can_not_be_validated() -> None:
    with pytest.raises(tl.ArgumentError, match="only a log with values"):
        tl.get_model_metadata(DemoNetwork(), torch.rand(5, 5)).validate()


def test_a_default_type_that_the_model_sets() -> None:
    class Sets(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            torch.set_default_dtype(torch.float64)
            try:
                return x + torch.zeros(3) + torch.arange(3) / 2 + torch.full((3,), 0.1) + torch.polar(x, x).real
            finally:
                torch.set_default_dtype(torch.float32)

    log = tl.log_forward_pass(Sets(), torch.rand(3))
    assert log["zeros"].tensor_dtype is torch.float64
    assert log.validate(), log.validate()
    assert torch.equal(log.replay(), log[-1].activation)
    assert torch.get_default_dtype() is torch.float32


def test_parents_without_influence_are_told_apart() -> None:
    class Masked(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x * torch.zeros(3) + torch.where(torch.ones(3) > 0, x, y) + y.expand_as(x)

    log = tl.log_forward_pass(Masked(), [torch.rand(3), torch.rand(3)])
    report = log.validate()
    assert report
    assert ("mul_1_3", "input_1_0") in report.without_influence
    assert ("where_1_6", "input_2_1") in report.without_influence
    assert ("expandas_1_8", "input_1_0") in report.without_influence
    assert ("expandas_1_8", "input_2_1") not in report.without_influence


# ---- the validator itself, by mutation --------------------------------------------------------------------------


class Tricky(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6).double()

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.tanh(self.fc(x))
        left, right = x.chunk(2, dim=1)
        y = left - 2 * right
        y.mul_(3)
        return y.exp().sum(dim=1)


Mutation = Callable[[tl.ModelLog], None]


def alter(log: tl.ModelLog, place: int, **fields: Any) -> None:
    recorded = log.graph.trace.calls
    recorded[place] = recorded[place]._replace(**fields)


def calls(log: tl.ModelLog, name: str) -> list[int]:
    return [n for n, call in enumerate(log.graph.trace.calls) if call.function.name == name]


def swap_parents(log: tl.ModelLog) -> None:
    place = calls(log, "sub")[0]
    alter(log, place, args=log.graph.trace.calls[place].args[::-1])


def stale_value(log: tl.ModelLog) -> None:
    log.graph.entries[2].saved = log.graph.entries[4].saved


def off_by_one_pass(log: tl.ModelLog) -> None:
    first, second = calls(log, "tanh")[:2]
    alter(log, second, args=log.graph.trace.calls[first].args)


def dropped_operation(log: tl.ModelLog) -> None:
    """The product with 2 is skipped: its child takes the parent."""
    recorded, place = log.graph.trace.calls, calls(log, "sub")[0]
    product = recorded[calls(log, "mul")[0]]
    alter(log, place, args=(recorded[place].args[0], product.args[0]))


def wrong_view(log: tl.ModelLog) -> None:
    left, right = (op for op in log if op.layer_type == "chunk")
    left._value.saved = right._value.saved


def shuffled_outputs(log: tl.ModelLog) -> None:
    place = calls(log, "chunk")[0]
    alter(log, place, outputs=log.graph.trace.calls[place].outputs[::-1])


def tiny_error(log: tl.ModelLog) -> None:
    value = log["exp"]._value
    assert value.saved is not None
    value.saved = value.saved * (1 + 1e-6)


def saved_after_the_write(log: tl.ModelLog) -> None:
    log["sub"]._value.saved = log["mul_2"]._value.saved


def another_function(log: tl.ModelLog) -> None:
    alter(log, calls(log, "exp")[0], function=log.graph.trace.calls[calls(log, "tanh")[0]].function)


def another_argument(log: tl.ModelLog) -> None:
    place = calls(log, "mul_")[0]
    alter(log, place, args=(log.graph.trace.calls[place].args[0], 3.5))


MUTATIONS: list[Mutation] = [
    swap_parents, stale_value, off_by_one_pass, dropped_operation, wrong_view, shuffled_outputs, tiny_error,
    saved_after_the_write, another_function, another_argument,
]  # fmt: skip


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_every_injected_fault_is_found(mutate: Mutation) -> None:
    log = tl.log_forward_pass(Tricky(), torch.rand(2, 6, dtype=torch.float64))
    assert log.validate(), str(log.validate())
    mutate(log)
    report = log.validate(perturb=False)
    assert not report
    assert any(problem.check in ("replay", "outputs", "lint") for problem in report.problems)


def test_validation_needs_no_perturbation_to_find_a_wrong_value_but_proves_sensitivity_with_it() -> None:
    log = tl.log_forward_pass(RecurrentNetwork(), torch.rand(5, 5))
    report = log.validate()
    assert report.perturbed == 9 and report.without_influence == []
    assert log.validate(perturb=False).perturbed == 0


# ---- comparison -------------------------------------------------------------------------------------------------


def test_sameness_is_exact() -> None:
    one = torch.tensor([1.0, float("nan"), float("inf")])
    assert same(one, one.clone())
    assert not same(one, one.double())
    assert not same(one, one[:2])
    assert not same(torch.zeros(2), torch.tensor([0.0, 1e-45]))
    assert same(torch.eye(2).to_sparse(), torch.eye(2).to_sparse())
    assert not same(torch.eye(2).to_sparse(), torch.eye(2))


def test_differences_in_words() -> None:
    assert difference(torch.zeros(3), torch.tensor([0.0, 0.5, 0.0])) == "1 of 3 values, by at most 0.5"
    assert difference(torch.zeros(3), torch.zeros(2)) == "shape (3,) against (2,)"
    assert "float64" in difference(torch.zeros(2), torch.zeros(2).double())


def test_what_could_not_be_checked_is_said_once_for_each_reason(tmp_path: Path) -> None:
    class Cells(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            state = torch.zeros(2, 4)
            for _ in range(7):
                state = self.cell(x, state)
            return state * 2

    tl.save(tl.log_forward_pass(Cells(), torch.rand(2, 4)), tmp_path / "log")
    report = tl.load(tmp_path / "log").validate()
    text = str(report)
    assert report and len(report.unverified) == 7
    assert text.startswith("Valid as far as checked: 2 of 9 operations replayed"), text
    assert text.count("Not verified") == 1 and " and 2 more: " in text
    assert str(tl.load(tmp_path / "log", trust=True).validate()).startswith("Valid: 9 operations replayed")
