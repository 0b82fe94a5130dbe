"""The worked examples of the paper, its figures and the READMEs, with the facts that they state."""

from __future__ import annotations

import pytest
import torch
from tests.torchvision_models import torchvision_models
from torch import Tensor, nn

import torchlens as tl

ALEXNET_LABELS = [
    "input_1_0",
    "conv2d_1_1",
    "relu_1_2",
    "maxpool2d_1_3",
    "conv2d_2_4",
    "relu_2_5",
    "maxpool2d_2_6",
    "conv2d_3_7",
    "relu_3_8",
    "conv2d_4_9",
    "relu_4_10",
    "conv2d_5_11",
    "relu_5_12",
    "maxpool2d_3_13",
    "adaptiveavgpool2d_1_14",
    "flatten_1_15",
    "dropout_1_16",
    "linear_1_17",
    "relu_6_18",
    "dropout_2_19",
    "linear_2_20",
    "relu_7_21",
    "linear_3_22",
    "output_1_23",
]


class DemoNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(in_features=5, out_features=5)
        self.relu_module = nn.ReLU()
        self.register_buffer("example_buffer", torch.ones(5))

    def forward(self, x: Tensor) -> Tensor:
        x = x + 1
        x = self.relu_module(x)
        x = self.fc(x)
        x = nn.functional.relu(x)
        x = x + torch.randn(x.shape)
        y = x**2
        x = x / y
        return x * self.example_buffer


class RecurrentNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(in_features=5, out_features=5)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.fc(x)
            x = x + 1
            x = x * 2
        return x


class Submodule2(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = x + 2
        w = torch.cos(x)
        y = torch.sin(x)
        z = torch.tan(x)
        return w + y + z


class Submodule1(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.submodule2 = Submodule2()

    def forward(self, x: Tensor) -> Tensor:
        x = x + 3
        x = self.submodule2(x)
        return x * 4


class NetworkOrganizationDemo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.submodule1 = Submodule1()

    def forward(self, x: Tensor) -> Tensor:
        if torch.sum(x) > 0:
            x = x * 2
        else:
            x = x + 1
        w = 1 / x
        y = torch.log(x)
        z = x**2
        x = w + y + z
        x = self.submodule1(x)
        x = x + 1
        return x * 2


@pytest.fixture(scope="module")
def alexnet() -> tl.ModelLog:
    return tl.log_forward_pass(torchvision_models().alexnet(), torch.rand(1, 3, 224, 224))


def test_alexnet_facts(alexnet: tl.ModelLog) -> None:
    assert alexnet.layer_labels == ALEXNET_LABELS
    assert [layer.layer_label for layer in alexnet.layer_list] == ALEXNET_LABELS
    assert alexnet.num_tensors_total == alexnet.num_tensors_saved == 24
    assert alexnet.total_activation_memory_str == "4.8 MB"
    assert alexnet.num_modules == 23
    assert alexnet.total_params == 61100840
    assert alexnet.num_param_operations == 16
    assert not alexnet.is_recurrent
    assert not alexnet.is_branching


def test_alexnet_print(alexnet: tl.ModelLog) -> None:
    lines = str(alexnet).splitlines()
    assert lines[:4] == [
        "Log of AlexNet forward pass:",
        "\tModel structure: purely feedforward, without branching; 23 total modules.",
        "\t24 tensors (4.8 MB) computed in forward pass; 24 tensors (4.8 MB) saved.",
        "\t16 parameter operations (61100840 params total; 233.1 MB).",
    ]
    assert lines[4].startswith("\tRandom seed: ")
    assert lines[5].startswith("\tTime elapsed: ")
    assert lines[6:14] == [
        "\tModule Hierarchy:",
        "\t\tfeatures:",
        "\t\t    features.0, features.1, features.2, features.3, features.4, features.5, features.6, features.7,",
        "\t\t    features.8, features.9, features.10, features.11, features.12",
        "\t\tavgpool",
        "\t\tclassifier:",
        "\t\t    classifier.0, classifier.1, classifier.2, classifier.3, classifier.4, classifier.5, classifier.6",
        "\tLayers:",
    ]
    assert [line.partition("  ")[0] for line in lines[14:]] == [
        f"\t\t{number}: {label}" for number, label in enumerate(ALEXNET_LABELS)
    ]
    assert lines[14].split() == ["0:", "input_1_0", "f32[1,3,224,224]"]
    assert lines[21].split() == ["7:", "conv2d_3_7", "f32[1,384,13,13]", "features.6"]


def test_alexnet_layer_print(alexnet: tl.ModelLog) -> None:
    lines = str(alexnet["conv2d_3_7"]).splitlines()
    assert lines[:2] == [
        "Layer conv2d_3_7, operation 8/24:",
        "\tOutput tensor: shape=(1, 384, 13, 13), dtype=torch.float32, size=253.5 KB",
    ]
    assert lines[2].startswith("\t\ttensor([[")
    assert lines[6].endswith("]])...")
    assert lines[7:12] == [
        "\tParams: Computed from params with shape (384,), (384, 192, 3, 3); 663936 params total (2.5 MB)",
        "\tParent Layers: maxpool2d_2_6",
        "\tChild Layers: relu_3_8",
        "\tFunction: conv2d (grad_fn=ConvolutionBackward0)",
        "\tComputed inside module: features.6",
    ]
    assert lines[12].startswith("\tTime elapsed:  ")
    assert lines[13:] == [
        "\tOutput of modules: features.6",
        "\tOutput of bottom-level module: features.6",
        "\tLookup keys: -17, 7, conv2d_3_7, conv2d_3_7:1, features.6, features.6:1",
    ]


@pytest.mark.parametrize("key", ["conv2d_3_7", "conv2d_3", "conv2d_3_7:1", "features.6", "features.6:1", 7, -17])
def test_alexnet_lookup(alexnet: tl.ModelLog, key: str | int) -> None:
    assert alexnet[key] is alexnet.layer_list[7]


def test_alexnet_modules_at_any_level(alexnet: tl.ModelLog) -> None:
    assert alexnet["features"].layer_label == alexnet["features.12"].layer_label == "maxpool2d_3_13"
    assert alexnet["classifier"].layer_label == "linear_3_22"


def test_resnet50_counts() -> None:
    log = tl.get_model_metadata(torchvision_models().resnet50().eval(), torch.rand(1, 3, 64, 64))
    roles = [len(log.buffer_layers), len(log.input_layers), len(log.output_layers)]
    assert roles == [106, 1, 1]
    assert len(log) - sum(roles) == 175


def test_demo_network() -> None:
    log = tl.get_model_activations(DemoNetwork(), torch.rand(5, 5))
    assert log.layer_labels == [
        "input_1_0",
        "add_1_1",
        "relu_1_2",
        "linear_1_3",
        "relu_2_4",
        "randn_1_5",
        "add_2_6",
        "pow_1_7",
        "truediv_1_8",
        "buffer_1_9",
        "mul_1_10",
        "output_1_11",
    ]
    lines = str(log).splitlines()
    assert lines[1:4] == [
        "\tModel structure: purely feedforward, with branching; 2 total modules.",
        "\t12 tensors (1.1 KB) computed in forward pass; 12 tensors (1.1 KB) saved.",
        "\t2 parameter operations (30 params total; 120 B).",
    ]
    assert lines[6:9] == ["\tModule Hierarchy:", "\t\trelu_module", "\t\tfc"]
    layer = log["linear_1_3"]
    assert layer.operation_num == 4
    assert layer.tensor_memory_str == "100 B"
    assert layer.lookup_keys == [-9, 3, "fc", "fc:1", "linear_1_3", "linear_1_3:1"]
    assert layer.is_leaf_module_output
    assert not log["relu_2_4"].is_leaf_module_output
    assert log["randn_1_5"].is_internally_initialized
    assert log["buffer_1_9"].buffer_address == "example_buffer"
    assert log["truediv_1_8"].parent_layers == ["add_2_6", "pow_1_7"]


def test_recurrent_network() -> None:
    log = tl.log_forward_pass(RecurrentNetwork(), torch.rand(5, 5))
    assert log.layer_labels == ["input_1_0", "linear_1_1", "add_1_2", "mul_1_3", "output_1_4"]
    assert log.num_tensors_total == 11
    lines = str(log).splitlines()
    assert lines[1] == "\tModel structure: recurrent (at most 3 loops), without branching; 1 total module."
    assert lines[3] == "\t2 parameter operations (30 params total; 120 B)."
    assert "\t\t2: add_1_2:1 (1/3 passes)" in [line.partition("  ")[0] for line in lines]
    assert lines[-1].startswith("\t\t10: output_1_4 ")
    second = log["linear_1_1:2"]
    assert str(second).startswith("Layer linear_1_1 (pass 2/3), operation 5/11:")
    assert second.parent_layers == ["mul_1_3:1"]
    assert second.child_layers == ["add_1_2:2"]
    assert second.lookup_keys == [-7, 4, "fc:2", "linear_1_1:2"]
    assert log["fc:2"] is second
    assert log["linear_1_1"].num_passes == 3


def test_network_organization() -> None:
    log = tl.log_forward_pass(NetworkOrganizationDemo(), torch.rand(5, 5))
    lines = str(log).splitlines()
    assert lines[1:3] == [
        "\tModel structure: purely feedforward, with branching; 2 total modules.",
        "\t21 tensors (1.9 KB) computed in forward pass; 21 tensors (1.9 KB) saved.",
    ]
    assert lines[3] == "\t0 parameter operations (0 params total; 0 B)."
    assert lines[7:9] == ["\t\tsubmodule1:", "\t\t    submodule1.submodule2"]
    layer = log["submodule1.submodule2"]
    assert (layer.layer_label, layer.operation_num, len(log)) == ("add_6_16", 17, 21)
    assert (layer.func_name, layer.grad_fn_name) == ("__add__", None)
    assert layer.child_layers == ["mul_3_17"]
    assert layer.modules_exited == ["submodule1.submodule2"]
    assert layer.lookup_keys[-2:] == ["submodule1.submodule2", "submodule1.submodule2:1"]
    assert not layer.is_leaf_module_output
    assert log.has_conditional_branching
    (condition,) = log.conditionals
    assert (condition.kind, condition.value, condition.layer) == ("if", True, "gt_1_2")
    assert [op.layer_label for op in log if op.in_cond_branch] == ["sum_1_1", "gt_1_2"]


class Figure3A(nn.Module):
    """The same linear layer twice, with equal neighbours, and something else in between."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc(torch.cos(x)) + 1
        x = torch.sin(x)
        x = self.fc(torch.cos(x)) + 1
        return torch.tan(x)


class Figure3B(nn.Module):
    """A sequence without parameters twice in a row, and once more after something else."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = torch.relu(torch.cos(x)) * 2
        x = torch.tan(x)
        return torch.relu(torch.cos(x)) * 2


def test_figure_3a() -> None:
    log = tl.log_forward_pass(Figure3A(), torch.rand(5, 5))
    assert (
        log.op_labels
        == (
            "input_1_0 cos_1_1:1 linear_1_2:1 add_1_3:1 sin_1_4 cos_1_1:2 linear_1_2:2 add_1_3:2 tan_1_5 output_1_6"
        ).split()
    )
    assert log["cos_1_1"].parent_layers == ["input_1_0", "sin_1_4"]


def test_figure_3b() -> None:
    log = tl.log_forward_pass(Figure3B(), torch.rand(5, 5))
    assert (
        log.op_labels
        == (
            "input_1_0 cos_1_1:1 relu_1_2:1 mul_1_3:1 cos_1_1:2 relu_1_2:2 mul_1_3:2 tan_1_4 cos_2_5 relu_2_6 mul_2_7 "
            "output_1_8"
        ).split()
    )


def test_swin_v2_b_is_feedforward() -> None:
    log = tl.get_model_metadata(torchvision_models().swin_v2_b().eval(), torch.rand(1, 3, 256, 256))
    assert not log.is_recurrent  # though it fills its attention masks in a loop
    assert len(log) == len(log.layer_labels) > 1800
