"""Walking the graph in code."""

from __future__ import annotations

import pytest
import torch
from tests.torchvision_models import torchvision_models
from torch import nn

import torchlens as tl


@pytest.fixture(scope="module")
def alexnet() -> tl.ModelLog:
    return tl.get_model_metadata(torchvision_models().alexnet().eval(), torch.rand(1, 3, 224, 224))


def test_pooling_layers_that_follow_a_relu(alexnet: tl.ModelLog) -> None:
    found = [
        layer.layer_label
        for layer in alexnet
        if "pool" in layer.layer_type and any(alexnet[p].layer_type == "relu" for p in layer.parent_layers)
    ]
    assert found == ["maxpool2d_1_3", "maxpool2d_2_6", "maxpool2d_3_13"]


def test_convolutions_between_two_layers(alexnet: tl.ModelLog) -> None:
    networkx = pytest.importorskip("networkx")
    network = alexnet.to_networkx()
    path = networkx.shortest_path(network, "maxpool2d_1_3", "linear_1_17")
    assert sum(network.nodes[label]["layer_type"] == "conv2d" for label in path) == 4
    assert network.nodes["conv2d_1_1"]["tensor_shape"] == (1, 64, 55, 55)


def test_networkx_has_a_node_for_every_pass() -> None:
    class Loop(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(3):
                x = x.sin().cos()
            return x

    network = tl.log_forward_pass(Loop(), torch.rand(2)).to_networkx()
    assert list(network.successors("sin_1_1:2")) == ["cos_1_2:2"]
    assert len(network) == 8


def test_networkx_nodes_have_what_tables_have(alexnet: tl.ModelLog) -> None:
    pytest.importorskip("networkx")
    for rolled in (False, True):
        node = alexnet.to_networkx(rolled).nodes["conv2d_3_7"]
        assert node["num_params_total"] == 663936 and node["containing_module"] == node["leaf_module"] == "features.6"
        assert node["macs"] == alexnet["conv2d_3_7"].macs > 0 and node["flops"] == alexnet["conv2d_3_7"].flops
        assert (
            node["param_addresses"] == ["features.6.weight", "features.6.bias"]
            and node["tensor_dtype"] == "torch.float32"
        )


def test_networkx_rolled() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(3):
                x = torch.cat([self.fc(x), x[:1]])
            return x

    pytest.importorskip("networkx")
    log = tl.log_forward_pass(Loop(), torch.rand(2, 2))
    network = log.to_networkx(rolled=True)
    assert list(network) == log.layer_labels
    node = network.nodes["linear_1_1"]
    assert (node["num_passes"], node["num_params_total"], node["macs"]) == (
        3,
        6,
        sum(op.macs for op in log.select("fc")),
    )
    assert node["tensor_shape"] is None, "it grows"
    assert {("cat_1_3", "linear_1_1"), ("input_1_0", "linear_1_1")} <= set(network.edges)


def test_summary(alexnet: tl.ModelLog) -> None:
    lines = str(alexnet.summary()).splitlines()
    assert lines[1].split() == ["Module", "Output", "shape", "Params", "Mult-adds"]
    assert lines[3].split() == ["AlexNet", "1x1000", "61,100,840", "714,188,480"]
    row = next(line for line in lines if "6: Conv2d" in line)
    assert row.split() == ["6:", "Conv2d", "1x384x13x13", "663,936", "112,140,288"]
    assert "Params: 61,100,840 (61,100,840 trainable, 0 frozen), 233.1 MB" in lines
    assert repr(alexnet.summary()) == str(alexnet.summary())
    assert len({len(line) for line in lines if line.startswith(("=", " ", "Module", "AlexNet"))}) == 1


def test_summary_columns_and_depth(alexnet: tl.ModelLog) -> None:
    text = str(alexnet.summary(columns=["passes", "time", "memory", "flops", "trainable", "input_shape"], depth=1))
    assert "features: Sequential" in text and "0: Conv2d" not in text
    with pytest.raises(tl.ArgumentError, match="no column 'parms' .*; did you mean 'num_params'"):
        alexnet.summary(columns=["parms"])


def test_a_container_that_is_never_called_has_the_work_of_its_modules() -> None:
    class Inner(nn.Module):
        def __init__(self, shared: nn.Module) -> None:
            super().__init__()
            self.shared = shared

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.shared(x)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            linear = nn.Linear(3, 3)
            self.blocks = nn.ModuleList([Inner(linear), linear])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for block in self.blocks:
                x = block(x)
            return x + 1

    log = tl.log_forward_pass(Outer(), torch.rand(2, 3))
    blocks = log.modules["blocks"]
    assert (blocks.num_passes, blocks.macs, log.total_macs) == (0, 36, 36)
    assert blocks.flops < log.total_flops and blocks.activation_memory == 2 * 24
    assert 0 < blocks.time < log.time_function_calls
    assert [line.split()[-1] for line in log.summary().splitlines() if "ModuleList" in line] == ["36"]


def test_work_is_added_up_exactly_however_large() -> None:
    log = tl.get_model_metadata(nn.Sequential(nn.ReLU()), torch.rand(2))
    assert log.graph.modules.totals([0, 2**60 + 1, 0]) == [2**60 + 1, 2**60 + 1]


def test_flops_agree_with_torch() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    model, x = torchvision_models().resnet18().eval(), torch.rand(1, 3, 64, 64)
    with FlopCounterMode(display=False) as counter:
        model(x)
    log = tl.get_model_metadata(model, x)
    assert 2 * log.total_macs == counter.get_total_flops()
    assert log.layers_with_unknown_flops == []
    assert sum(log.modules[address].macs for address in ("conv1", "layer1", "layer2", "layer3", "layer4", "fc")) == (
        log.total_macs
    )


def test_a_formula_of_ones_own() -> None:
    class Unusual(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.inv(x)

    log = tl.log_forward_pass(Unusual(), torch.eye(3))
    assert log["linalginv_1_1"].flops is None
    assert log.layers_with_unknown_flops == ["linalginv_1_1"]
    assert "and those of 1 layer without a formula (linalginv_1_1)\n" in log.summary()
    tl.register_formula("linalg_inv")(lambda call: tl.Cost(flops=call.size**2))
    try:
        log = tl.log_forward_pass(Unusual(), torch.eye(3))
        assert (log["linalginv_1_1"].flops, log.total_flops) == (81, 81)
    finally:
        tl.unregister_formula("linalg_inv")
