"""Every documented field answers under both its names, and says the right thing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from tests.test_documented import DemoNetwork, RecurrentNetwork
from torch import Tensor, nn

import torchlens as tl
from torchlens import aliases

MODEL_FIELDS = """
model_name random_seed_used is_recurrent max_recurrent_loops is_branching has_conditional_branching layer_list
layer_labels input_layers output_layers buffer_layers internally_initialized_layers internally_terminated_bool_layers
layers_with_params num_tensors_total total_activation_memory total_activation_memory_str saved_activation_memory
num_tensors_saved total_param_tensors total_param_layers total_params total_params_trainable total_params_frozen
total_params_memory module_addresses modules module_types module_num_passes module_pass_children top_level_module_passes
pass_start_time pass_end_time time_total time_function_calls time_logging
""".split()

LAYER_FIELDS = """
layer_label layer_label_w_pass operation_num layer_type layer_type_num layer_total_num pass_num num_passes lookup_keys
activation tensor_shape tensor_dtype tensor_memory tensor_memory_str captured_args captured_kwargs func_applied
func_name func_time func_rng_states func_positional_args_non_tensor func_kwargs_non_tensor func_is_inplace grad_fn_name
is_part_of_iterable_output iterable_output_index uses_params num_param_tensors parent_param_shapes num_params_total
params_memory recurrent_group parent_layers root_ancestors child_layers sibling_layers co_parent_layers is_input_layer
has_input_ancestor min_distance_from_input max_distance_from_input is_output_layer is_output_ancestor output_descendants
min_distance_from_output max_distance_from_output is_buffer_layer buffer_address is_internally_initialized
internally_initialized_parents internally_initialized_ancestors is_internally_terminated is_terminal_bool_layer
in_cond_branch is_computed_inside_submodule containing_module containing_modules modules_entered is_submodule_output
modules_exited is_leaf_module_output
""".split()


@pytest.fixture(scope="module")
def log() -> tl.ModelLog:
    return tl.log_forward_pass(DemoNetwork(), torch.rand(5, 5), random_seed=7)


@pytest.mark.parametrize("name", MODEL_FIELDS)
def test_model_fields_answer(log: tl.ModelLog, name: str) -> None:
    getattr(log, name)


@pytest.mark.parametrize("name", LAYER_FIELDS)
def test_layer_fields_answer_for_every_kind_of_entry(log: tl.ModelLog, name: str) -> None:
    for layer in log:
        getattr(layer, name)


@pytest.mark.parametrize(("old", "new"), aliases.MODEL_ATTRIBUTES.items())
def test_older_model_names(log: tl.ModelLog, old: str, new: str) -> None:
    assert getattr(log, old) == getattr(log, new)


@pytest.mark.filterwarnings("ignore:the gradient is None:torchlens.errors.FidelityWarning")
@pytest.mark.parametrize(("old", "new"), aliases.LAYER_ATTRIBUTES.items())
def test_older_layer_names(log: tl.ModelLog, old: str, new: str) -> None:
    a, b = getattr(log[3], old), getattr(log[3], new)
    assert a is b if isinstance(a, Tensor) else str(a) == str(b)


@pytest.mark.parametrize(("old", "new"), (aliases.FUNCTIONS | aliases.CLASSES).items())
def test_older_functions_and_classes(old: str, new: str) -> None:
    assert getattr(tl, old) is getattr(tl, new)


class Everything(nn.Module):
    """Two inputs, a split, noise, a buffer, an in-place write, a condition, an orphan, a dead end, two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.inner[0].bias.requires_grad_(False)  # type: ignore[union-attr]
        self.register_buffer("scale", torch.full((4,), 2.0))

    def forward(self, x: Tensor, *, bias: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        torch.ones(3) * 2
        left, right = self.inner(x).chunk(2, dim=-1)
        noise = torch.rand(left.shape) * 0.1
        both = torch.cat([left + noise, right], dim=-1)
        both.mul_(self.scale)
        if both.sum() > 1e9:
            both = both * 3
        both.exp()
        return both, {"shifted": torch.add(both, bias, alpha=2)}


@pytest.fixture(scope="module")
def everything() -> tl.ModelLog:
    return tl.log_forward_pass(Everything(), torch.rand(3, 4), {"bias": torch.rand(4)})


def test_labels_and_orphans(everything: tl.ModelLog) -> None:
    assert (
        everything.layer_labels
        == (
            "input_1_0 input_2_1 linear_1_2 tanh_1_3 chunk_1_4 chunk_2_5 rand_1_6 mul_1_7 add_1_8 cat_1_9 "
            "buffer_1_10 mul_2_11 sum_1_12 gt_1_13 exp_1_14 add_2_15 output_1_16 output_2_17"
        ).split()
    )
    assert everything.input_layers == ["input_1_0", "input_2_1"]
    assert [everything[i].io_path for i in (0, 1, 16, 17)] == ["[0]", "bias", "[0]", "[1]['shifted']"]


def test_graph_facts(everything: tl.ModelLog) -> None:
    log = everything
    assert log["cat_1_9"].parent_layers == ["add_1_8", "chunk_2_5"]
    assert log["add_1_8"].sibling_layers == []
    assert log["chunk_1_4"].sibling_layers == ["chunk_2_5"]
    assert log["chunk_1_4"].co_parent_layers == ["mul_1_7"]
    assert log["mul_2_11"].parent_layers == ["cat_1_9", "buffer_1_10"]
    assert log["mul_2_11"].child_layers == ["sum_1_12", "exp_1_14", "add_2_15", "output_1_16"]
    assert log["mul_2_11"].root_ancestors == ["input_1_0", "rand_1_6", "buffer_1_10"]
    assert log["mul_2_11"].internally_initialized_ancestors == ["rand_1_6"]
    assert log["add_1_8"].internally_initialized_parents == []
    assert log["mul_1_7"].internally_initialized_parents == ["rand_1_6"]
    assert log["chunk_1_4"].output_descendants == ["output_1_16", "output_2_17"]
    assert log["input_2_1"].output_descendants == ["output_2_17"]
    assert log["add_2_15"].parent_layer_arg_locs == {"mul_2_11": [0], "input_2_1": [1]}


def test_distances(everything: tl.ModelLog) -> None:
    log = everything
    distances = {
        label: (
            log[label].min_distance_from_input,
            log[label].max_distance_from_input,
            log[label].min_distance_from_output,
            log[label].max_distance_from_output,
        )
        for label in ("input_1_0", "input_2_1", "rand_1_6", "cat_1_9", "add_2_15", "gt_1_13", "output_2_17")
    }
    assert distances == {
        "input_1_0": (0, 0, 6, 8),
        "input_2_1": (0, 0, 2, 2),
        "rand_1_6": (None, None, 5, 6),
        "cat_1_9": (4, 5, 2, 3),
        "add_2_15": (1, 7, 1, 1),
        "gt_1_13": (7, 8, None, None),
        "output_2_17": (2, 8, 0, 0),
    }


def test_kinds_of_entries(everything: tl.ModelLog) -> None:
    log = everything
    assert log.internally_initialized_layers == ["rand_1_6"]
    assert log.internally_terminated_bool_layers == ["gt_1_13"]
    assert [op.label for op in log if op.is_internally_terminated] == ["gt_1_13", "exp_1_14"]
    assert [op.label for op in log if op.in_cond_branch] == ["sum_1_12", "gt_1_13"]
    assert [op.label for op in log if not op.has_input_ancestor] == ["rand_1_6", "mul_1_7", "buffer_1_10"]
    assert log.buffer_layers == ["buffer_1_10"]
    assert log["mul_2_11"].func_is_inplace and not log["mul_1_7"].func_is_inplace
    chunk = log["chunk_2_5"]
    assert (chunk.is_part_of_iterable_output, chunk.iterable_output_index) == (True, 1)


def test_function_facts(everything: tl.ModelLog) -> None:
    add = everything["add_2_15"]
    assert (add.func_name, add.func_applied) == ("add", torch.add)
    assert add.func_kwargs_non_tensor == {"alpha": 2}
    assert everything["chunk_1_4"].func_positional_args_non_tensor == [2]
    assert everything["add_1_8"].func_name == "__add__"
    assert everything["mul_2_11"].func_name == "mul_"
    assert torch.equal(add.captured_args[0], everything["mul_2_11"].activation)
    assert everything["rand_1_6"].func_rng_states is not None
    assert everything["add_2_15"].func_rng_states is None
    assert add.grad_fn_name == "AddBackward0"
    where = everything["tanh_1_3"].func_call_stack[0]
    assert (Path(where.file).name, where.function) == ("test_fields.py", "forward")
    assert "self.inner(x).chunk" in where.code


def test_the_call_stack_of_a_model_without_code_of_its_own_is_the_caller() -> None:
    log = tl.log_forward_pass(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.rand(3, 4))
    stack = log["relu_1"].func_call_stack
    assert stack[0].function == "test_the_call_stack_of_a_model_without_code_of_its_own_is_the_caller"
    assert not any(Path(where.file).name == "contextlib.py" for where in stack)


def test_param_facts(everything: tl.ModelLog) -> None:
    linear = everything["linear_1_2"]
    assert (linear.num_param_tensors, linear.parent_param_shapes, linear.num_params_total) == (2, [(4, 4), (4,)], 20)
    assert linear.param_addresses == ["inner.0.weight", "inner.0.bias"]
    assert (everything.total_params_trainable, everything.total_params_frozen) == (16, 4)
    assert everything.layers_with_params == ["linear_1_2"]


def test_module_facts(everything: tl.ModelLog) -> None:
    tanh = everything["tanh_1_3"]
    assert tanh.containing_modules == ["inner", "inner.1"]
    assert tanh.modules_exited == ["inner.1", "inner"]
    assert (tanh.is_leaf_module_output, tanh.leaf_module) == (True, "inner.1")
    assert everything["linear_1_2"].modules_entered == ["inner.1"]
    assert everything["input_1_0"].modules_entered == ["inner", "inner.0"]
    assert everything["chunk_1_4"].containing_module is None


def test_a_layer_outlives_its_log() -> None:
    layer = tl.log_forward_pass(DemoNetwork(), torch.rand(5, 5))["fc"]
    assert layer.activation is not None and layer.parent_layers == ["relu_1_2"]


def test_saved_values_carry_no_history(log: tl.ModelLog) -> None:
    assert [op.label for op in log if op.activation is None or op.activation.requires_grad] == []


def test_metadata_only() -> None:
    log = tl.get_model_metadata(DemoNetwork(), torch.rand(5, 5))
    full = tl.log_forward_pass(DemoNetwork(), torch.rand(5, 5))
    assert log.layer_labels == full.layer_labels
    assert [op.activation for op in log] == [None] * 12
    assert (log.num_tensors_saved, log.saved_activation_memory, log.num_tensors_total) == (0, 0, 12)
    assert "(not saved)" in str(log["fc"])
    assert log["fc"].tensor_shape == (5, 5)
    assert tl.log_forward_pass(DemoNetwork(), torch.rand(5, 5), layers_to_save="none").num_tensors_saved == 0


# ---- randomness ---------------------------------------------------------------------------------------------------


def outputs(log: tl.ModelLog) -> Any:
    return log[-1].activation


def test_a_seed_is_that_of_manual_seed() -> None:
    model, x = DemoNetwork(), torch.rand(5, 5)
    torch.manual_seed(5)
    expected = model(x)
    after = torch.get_rng_state()
    log = tl.log_forward_pass(model, x, random_seed=5)
    assert log.random_seed_used == 5
    assert torch.equal(outputs(log), expected)
    assert torch.equal(torch.get_rng_state(), after)


def test_the_seed_used_reproduces_a_run_that_began_anywhere() -> None:
    class Draws(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.rand(3) + float(numpy.random.rand())

    torch.rand(17)
    numpy.random.rand(3)
    first = tl.log_forward_pass(Draws(), torch.zeros(3))
    torch.rand(5)
    again = tl.log_forward_pass(Draws(), torch.zeros(3), random_seed=first.random_seed_used)
    assert torch.equal(outputs(first), outputs(again))
    assert f"{first.random_seed_used:d}" in str(first)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"layers_to_save": 2.5}, "layers_to_save"),
        ({"random_seed": "x"}, "random_seed must be an int or None"),
        ({"random_seed": True}, "random_seed must be an int or None"),
        ({"input_kwargs": [1]}, "input_kwargs must be a dict"),
        ({"model": DemoNetwork}, "the first argument must be the model.*a class \\(DemoNetwork\\)"),
        ({"model": lambda x: x}, "the first argument must be the model"),
    ],
)
def test_arguments_are_checked_at_the_door(kwargs: dict[str, Any], message: str) -> None:
    arguments = {"model": DemoNetwork(), "input_args": torch.rand(5, 5)} | kwargs
    with pytest.raises(tl.ArgumentError, match=message):
        tl.log_forward_pass(**arguments)


def test_the_spec_of_fields_is_covered() -> None:
    """Both tables name each field once."""
    assert len(set(MODEL_FIELDS)) == len(MODEL_FIELDS) and len(set(LAYER_FIELDS)) == len(LAYER_FIELDS)
    assert all(re.fullmatch(r"[a-z_]+", name) for name in MODEL_FIELDS + LAYER_FIELDS)


def test_recurrent_fields() -> None:
    log = tl.log_forward_pass(RecurrentNetwork(), torch.rand(5, 5))
    assert (log.is_recurrent, log.max_recurrent_loops) == (True, 3)
    op = log["add_1_2:2"]
    assert (op.layer_label, op.layer_label_w_pass, op.label, op.pass_num, op.num_passes) == (
        "add_1_2", "add_1_2:2", "add_1_2:2", 2, 3,
    )  # fmt: skip
    assert op.recurrent_group == ["add_1_2:1", "add_1_2:3"]
    assert log["output_1_4"].layer_total_num == 4
    assert log.op_labels[1:4] == ["linear_1_1:1", "add_1_2:1", "mul_1_3:1"]


def test_arguments_that_are_no_tensors_hold_none_and_nothing_internal() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            index = torch.zeros(1, dtype=torch.long)
            y = torch.cat([x, x], 1) + torch.cat(tensors=(x, x), dim=1)
            z = y[index, 1:3]
            return torch.einsum("ij,ij->i", z, z)

    log = tl.log_forward_pass(Model(), torch.rand(2, 3))
    assert (log["cat_1"].func_positional_args_non_tensor, log["cat_1"].func_kwargs_non_tensor) == ([1], {})
    assert (log["cat_2"].func_positional_args_non_tensor, log["cat_2"].func_kwargs_non_tensor) == ([], {"dim": 1})
    assert log["getitem"].func_positional_args_non_tensor == [(slice(1, 3),)]
    assert log["einsum"].func_positional_args_non_tensor == ["ij,ij->i"]
