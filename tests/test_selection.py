"""`layers_to_save`: one language for choosing; what is chosen is the same value as in a full log; one single run."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import pytest
import torch
from tests.models import Case
from tests.test_memory import peak
from tests.test_oracle import content, every_run, prepared, surroundings
from tests.torchvision_models import torchvision_models
from torch import Tensor, nn

import torchlens as tl


class Counting(nn.Module):
    """Its side effects can be counted: a counter in forward, running statistics, a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.act = nn.ReLU(inplace=True)
        self.runs = 0
        self.cache: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        x = self.act(self.norm(self.fc(x)))
        self.cache.append(x)
        noise = torch.rand(3)
        return torch.tanh(x + noise)


@pytest.fixture(scope="module")
def alexnet() -> tuple[nn.Module, Tensor]:
    return torchvision_models().alexnet().eval(), torch.rand(1, 3, 224, 224)


def saved(model: nn.Module, x: Any, wanted: Any, **options: Any) -> list[str]:
    return tl.log_forward_pass(model, x, layers_to_save=wanted, **options).layer_labels


# ---- the language ---------------------------------------------------------------------------------------------

EXAMPLES: list[tuple[Any, list[str]]] = [
    (
        ["conv2d_3_7", "features", -5, "linear"],
        ["conv2d_3_7", "maxpool2d_3_13", "linear_1_17", "dropout_2_19", "linear_2_20", "linear_3_22"],
    ),
    ("conv", ["conv2d_1_1", "conv2d_2_4", "conv2d_3_7", "conv2d_4_9", "conv2d_5_11"]),
    ("conv2d_3_7:1", ["conv2d_3_7"]),
    ("conv2d_3", ["conv2d_3_7"]),
    ("linear_", ["linear_1_17", "linear_2_20", "linear_3_22"]),
    ("_17", ["linear_1_17"]),
    ({0}, ["input_1_0"]),
    (["input", "output"], ["input_1_0", "output_1_23"]),
    ("self", ["linear_3_22"]),
    (["features.6:1", 1], ["conv2d_1_1", "conv2d_3_7"]),
    (lambda op: op.layer_type == "relu" and op.tensor_shape[1] > 1000, ["relu_6_18", "relu_7_21"]),
    (lambda op: op.containing_module == "avgpool", ["adaptiveavgpool2d_1_14"]),
    (lambda op: op.module_address.startswith("classifier") and op.kind == "op" and op.uses_params,
     ["linear_1_17", "linear_2_20", "linear_3_22"]),
    (lambda op: op.num_params_total > 4_000_000, ["linear_1_17", "linear_2_20", "linear_3_22"]),
    (lambda op: op.layer_label == "conv2d_3_7" or op.func_name == "flatten", ["conv2d_3_7", "flatten_1_15"]),
]  # fmt: skip


@pytest.mark.parametrize(("wanted", "labels"), EXAMPLES, ids=lambda thing: str(thing).split(" at 0x")[0][:40])
def test_selectors_on_alexnet(alexnet: tuple[nn.Module, Tensor], wanted: Any, labels: list[str]) -> None:
    log = tl.log_forward_pass(*alexnet, layers_to_save=wanted)
    assert log.layer_labels == labels
    assert [op.label for op in log.all_ops if op.has_saved_activation] == labels
    full = tl.log_forward_pass(*alexnet)
    for op in log:
        assert torch.equal(op.activation, full[op.layer_label].activation)
    assert tl.lint(log) == []


def test_what_a_log_lists_is_what_it_numbers(alexnet: tuple[nn.Module, Tensor]) -> None:
    log = tl.log_forward_pass(*alexnet, layers_to_save=["conv", 20])
    assert len(log) == 6 == log.num_tensors_saved
    assert log.num_tensors_total == 24 == len(log.all_ops)
    assert log[0].layer_label == "conv2d_1_1"
    assert log[-1].layer_label == "linear_2_20"
    assert log["relu_1"].tensor_shape == (1, 64, 55, 55), "what is not listed keeps its metadata"
    assert log["relu_1"].activation is None
    assert log["conv2d_3_7"].lookup_keys[:2] == [-4, 2]
    with pytest.raises(tl.LayerNotFoundError, match="has 6"):
        log[6]


def test_all_passes_and_one_pass_of_a_recurrent_layer() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(3):
                x = torch.relu(self.fc(x))
            return x

    model, x = Recurrent(), torch.rand(2, 3)
    every = tl.log_forward_pass(model, x)
    for wanted, labels in {
        "fc": ["linear_1_1:1", "linear_1_1:2", "linear_1_1:3"],
        "fc:2": ["linear_1_1:2"],
        "linear_1_1": ["linear_1_1:1", "linear_1_1:2", "linear_1_1:3"],
        "linear_1:3": ["linear_1_1:3"],
    }.items():
        log = tl.log_forward_pass(model, x, layers_to_save=wanted)
        assert log.op_labels == labels
        assert all(torch.equal(op.activation, every[op.label].activation) for op in log)


@pytest.mark.parametrize(
    ("wanted", "error", "words"),
    [
        ("convv", tl.LayerNotFoundError, "'convv'; did you mean 'conv2d"),
        ("features.33", tl.LayerNotFoundError, "'features.33'; did you mean 'features.3'"),
        (["conv", 99], tl.LayerNotFoundError, "no operation 99"),
        ("22", tl.LayerNotFoundError, "no layer or module '22'; a number is written without quotes: 22"),
        ("fc:7", tl.LayerNotFoundError, "no layer or module 'fc:7'"),
        ("conv2d_1:7", tl.LayerNotFoundError, "conv2d_1 has 1"),
        (lambda op: False, tl.LayerNotFoundError, r"nothing is chosen by <lambda> \(.*test_selection.py"),
        (
            lambda op: op.layer_tipe == "relu",
            tl.ArgumentError,
            "OpLog has no attribute 'layer_tipe'; did you",
        ),
        (lambda op: 1 / 0, tl.ArgumentError, "raised ZeroDivisionError for input_1_0"),
    ],
)
def test_a_selector_that_chooses_nothing_is_an_error_and_nothing_is_lost(
    alexnet: tuple[nn.Module, Tensor], wanted: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as raised:
        tl.log_forward_pass(*alexnet, layers_to_save=wanted)
    assert raised.value.partial_log.num_tensors_total == 24  # type: ignore[attr-defined]


@pytest.mark.parametrize("wanted", [2.5, [True], ["conv", None], [""]])
def test_what_can_choose_nothing_is_refused_before_the_model_runs(wanted: Any) -> None:
    model = Counting()
    with pytest.raises(tl.ArgumentError, match="layers_to_save"):
        tl.log_forward_pass(model, torch.rand(2, 3), layers_to_save=wanted)
    assert model.runs == 0


def test_an_empty_list_saves_nothing() -> None:
    assert tl.log_forward_pass(Counting(), torch.rand(2, 3), layers_to_save=[]).num_tensors_saved == 0


# ---- the promises ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [["tanh"], ["fc"], [-1, "relu_1_7"], [lambda op: op.is_output_layer]])
def test_side_effects_happen_once(wanted: Any) -> None:
    model = Counting()
    torch.manual_seed(0)
    log = tl.log_forward_pass(model, torch.rand(4, 3), layers_to_save=wanted)
    assert (model.runs, int(model.norm.num_batches_tracked), len(model.cache)) == (1, 1, 1)
    assert 0 < log.num_tensors_saved < log.num_tensors_total


@every_run
def test_each_chosen_value_is_that_of_a_full_log(case: Case, mode: str) -> None:
    """By a predicate that is decided while the model runs, and by the module that returned it."""
    full = _log(case, mode, "all")
    if not len(full) or not case.repeatable:
        return  # there is nothing to choose, or to compare
    chosen = _log(case, mode, [lambda op: True])
    assert chosen.op_labels == full.op_labels
    for one, other in zip(full, chosen, strict=True):
        assert content(one.activation) == content(other.activation), one.label
    outputs = _log(case, mode, ["output"]) if full.output_layers else []
    modules = [module.address for module in full.modules if module.output_layers]
    returned = _log(case, mode, modules) if modules else chosen
    for one, other in zip(full.output_layers, outputs, strict=True):
        assert content(other.activation) == content(full[one].activation), one
    if returned.warnings == full.warnings:  # else there are more entries, and other labels
        for op in returned:
            assert content(op.activation) == content(full[op.label].activation), op.label


def _log(case: Case, mode: str, wanted: Any) -> tl.ModelLog:
    run = prepared(case, mode)
    with surroundings(case, mode):
        if wanted != "all":  # without the values, it can't always be known whether something has changed one
            warnings.simplefilter("ignore", tl.FidelityWarning)
        return tl.log_forward_pass(run.model, run.args, run.kwargs, layers_to_save=wanted)


def test_a_module_returns_its_tensor_as_it_is_then() -> None:
    """Changed through a view before the module returns it."""

    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            y.view(-1).neg_()
            return y

    model, x = nn.Sequential(Inner()), torch.rand(2, 3)
    for wanted in ("all", "0"):
        assert torch.equal(tl.log_forward_pass(model, x, layers_to_save=wanted)["0"].activation, x * -2)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_few_layers_take_the_memory_of_a_plain_forward() -> None:
    """And that of what is saved."""
    one_tensor = 4000 * 1000 * 4 // 1024
    plain = peak("model(x)")
    for wanted, tensors in {'["0", "45"]': 2, "[lambda op: op.layer_type == 'output']": 0, '"input"': 1}.items():
        taken = peak(f"log = tl.log_forward_pass(model, x, layers_to_save={wanted})")
        assert taken < 1.1 * plain + tensors * one_tensor


# ---- transforms -----------------------------------------------------------------------------------------------


def channel_means(tensor: Tensor) -> Tensor:
    return tensor.mean(dim=(2, 3)) if tensor.ndim == 4 else tensor


@pytest.mark.parametrize("wanted", ["all", "conv", ["conv2d_3_7", -1], lambda op: op.layer_label == "conv2d_3_7"])
def test_a_function_of_each_saved_value(alexnet: tuple[nn.Module, Tensor], wanted: Any) -> None:
    calls: list[torch.Size] = []

    def noted(tensor: Tensor) -> Tensor:
        calls.append(tensor.shape)
        return channel_means(tensor)

    log = tl.log_forward_pass(*alexnet, layers_to_save=wanted, activation_postfunc=noted)
    layer = log["conv2d_3_7"]
    assert torch.equal(layer.transformed_activation, layer.activation.mean(dim=(2, 3)))
    assert layer.tensor_shape == (1, 384, 13, 13)
    assert layer.transformed_activation_shape == (1, 384)
    assert layer.transformed_activation_dtype == torch.float32
    assert layer.transformed_activation_memory == 384 * 4
    assert len(calls) == len(log), "once for each saved value"
    only = tl.log_forward_pass(*alexnet, layers_to_save=wanted, activation_postfunc=noted, save_raw_activation=False)
    assert only["conv2d_3_7"].activation is None
    assert torch.equal(only["conv2d_3_7"].transformed_activation, layer.transformed_activation)
    assert (only["conv2d_3_7"].tensor_shape, only["conv2d_3_7"].tensor_memory) == ((1, 384, 13, 13), 384 * 169 * 4)
    assert only.layer_labels == log.layer_labels


def test_conversion_of_what_is_saved() -> None:
    model, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True)), torch.rand(2, 3)
    log = tl.log_forward_pass(model, x, output_dtype=torch.float16, output_device="meta")
    assert {(op.activation.dtype, op.activation.device.type) for op in log} == {(torch.float16, "meta")}
    assert {(op.tensor_dtype, op.tensor_device.type) for op in log} == {(torch.float32, "cpu")}
    half = tl.log_forward_pass(model, x, output_dtype=torch.float16)
    full = tl.log_forward_pass(model, x)
    assert all(torch.equal(half[op.label].activation, op.activation.half()) for op in full)
    with pytest.raises(tl.ArgumentError, match="only a log"):
        half.validate()


def test_a_failing_function_is_an_error_that_names_the_operation_and_leaves_nothing_behind() -> None:
    model, x = Counting(), torch.rand(2, 3)
    torch.manual_seed(1)
    with pytest.raises(tl.ArgumentError, match="activation_postfunc raised IndexError for input_1_0") as raised:
        tl.log_forward_pass(model, x, activation_postfunc=lambda t: t.mean(dim=(2, 3)))
    assert isinstance(raised.value.__cause__, IndexError)
    assert model.runs == 1
    assert "forward" not in vars(model)


def test_a_function_that_draws_random_numbers_does_not_disturb_the_model() -> None:
    model, x = Counting(), torch.rand(2, 3)
    torch.manual_seed(1)
    expected = model.eval()(x)
    torch.manual_seed(1)
    log = tl.log_forward_pass(model, x, activation_postfunc=lambda t: t + torch.rand(t.shape))
    assert torch.equal(log["output_1"].activation, expected)


@pytest.mark.parametrize(
    "options",
    [
        {"activation_postfunc": 3},
        {"save_raw_activation": False},
        {"output_device": "nowhere"},
        {"output_dtype": torch.int8},
        {"output_dtype": "half"},
    ],
)
def test_transforms_are_checked_before_the_model_runs(options: dict[str, Any]) -> None:
    model = Counting()
    with pytest.raises(tl.ArgumentError):
        tl.log_forward_pass(model, torch.rand(2, 3), **options)
    assert model.runs == 0
