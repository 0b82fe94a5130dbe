"""Asking a log for something, rightly and wrongly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.test_documented import DemoNetwork, RecurrentNetwork
from torch import Tensor, nn

import torchlens as tl


class TwoConvs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 2, 3))
        self.unused = nn.Linear(2, 2)
        self.blocks = nn.ModuleList([nn.Tanh(), nn.Sigmoid()])
        self.lstm = nn.LSTM(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x).flatten(2)[0]
        for block in self.blocks:
            x = block(x)
        return self.lstm(x[:, :6].unsqueeze(1))[0]


@pytest.fixture(scope="module")
def log() -> tl.ModelLog:
    return tl.log_forward_pass(TwoConvs(), torch.rand(1, 1, 9, 9))


@pytest.fixture(scope="module")
def recurrent() -> tl.ModelLog:
    return tl.log_forward_pass(RecurrentNetwork(), torch.rand(5, 5))


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("conv2d_2", "conv2d_2_3"),
        ("body.2", "conv2d_2_3"),
        ("body", "conv2d_2_3"),
        ("blocks.0", "tanh_1_6"),
        ("sigm", "sigmoid_1_7"),
        ("lstm[0]", "lstm_1_12"),
        ("lstm:1[2]", "lstm_3_14"),
        (" tanh_1 ", "tanh_1_6"),
        (0, "input_1_0"),
        (-1, "output_1_15"),
        ("self", "lstm_1_12"),
        (torch.tensor(2), "relu_1_2"),
    ],
)
def test_keys_that_work(log: tl.ModelLog, key: Any, label: str) -> None:
    assert log[key].layer_label == label


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("conv2d_7", "did you mean 'conv2d_2', 'conv2d_1'"),
        ("conv", "part of several names: conv2d_1_1, conv2d_2_3"),
        ("body.9", "did you mean 'body."),
        ("unused", "module 'unused' was never called"),
        ("blocks", "module 'blocks' was never called"),
        ("conv2d_1_1:2", "no pass 'conv2d_1_1:2': conv2d_1_1 has 1"),
        ("conv2d_1_1:0", "no pass 'conv2d_1_1:0'"),
        ("body:3", "no call 'body:3': the module was called once"),
        (99, "no operation 99: the log has 16, numbered 0 to 15"),
        (-17, "no operation -17"),
        ("", "no layer or module ''"),
        ("unused.weight", "it is a parameter: log.params['unused.weight']"),
    ],
)
def test_keys_that_do_not_work_say_what_does(log: tl.ModelLog, key: Any, message: str) -> None:
    with pytest.raises(tl.LayerNotFoundError) as caught:
        log[key]
    assert message in str(caught.value)
    assert isinstance(caught.value, KeyError)


def test_a_key_of_the_wrong_type(log: tl.ModelLog) -> None:
    with pytest.raises(TypeError, match="a name, a number or a slice"):
        log[1.5]  # type: ignore[index]


def test_slices_iteration_and_membership(log: tl.ModelLog) -> None:
    assert [op.label for op in log[1:3]] == ["conv2d_1_1", "relu_1_2"]
    assert len(log) == len(list(log)) == len(log.layer_list) == 16
    assert "body.0" in log and "conv2d_1" in log and 3 in log and log[3] in log
    assert "nothing" not in log and 99 not in log


def test_a_layer_of_several_passes(recurrent: tl.ModelLog) -> None:
    layer = recurrent["linear_1_1"]
    assert isinstance(layer, tl.LayerLog)
    assert recurrent["fc"].layer_label == recurrent["linear_1"].layer_label == "linear_1_1"
    assert (layer.num_passes, layer.layer_type, layer.tensor_shape, layer.uses_params) == (3, "linear", (5, 5), True)
    assert [op.label for op in layer.passes.values()] == ["linear_1_1:1", "linear_1_1:2", "linear_1_1:3"]
    assert layer.parent_layers == ["input_1_0", "mul_1_3"]
    assert layer.child_layers == ["add_1_2"]
    assert layer.macs == 3 * 125


@pytest.mark.parametrize(
    "name", ["activation", "tensor_contents", "operation_num", "lookup_keys", "max_distance_from_input"]
)
def test_what_differs_between_passes_must_be_asked_of_one(recurrent: tl.ModelLog, name: str) -> None:
    with pytest.raises(tl.PassNeededError, match=r"has 3 passes.*log\['linear_1_1:1'\]"):
        getattr(recurrent["linear_1_1"], name)


def test_what_a_function_made_of_each_pass_must_be_asked_of_one() -> None:
    log = tl.log_forward_pass(RecurrentNetwork(), torch.rand(5, 5), activation_postfunc=torch.sum)
    with pytest.raises(tl.PassNeededError, match="'transformed_activation' differs"):
        log["linear_1_1"].transformed_activation


def test_a_module_whose_calls_end_in_different_layers() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = Alternating()

        def forward(self, x: Tensor) -> Tensor:
            return self.act(self.act(x) + 1)

    class Alternating(nn.Module):
        odd = False

        def forward(self, x: Tensor) -> Tensor:
            self.odd = not self.odd
            return x.sin() if self.odd else x.cos()

    log = tl.log_forward_pass(Twice(), torch.rand(3))
    with pytest.raises(tl.LayerNotFoundError, match="'act' returned 2 layers: sin_1_1, cos_1_3; ask for one: 'act:1'"):
        log["act"]
    assert (log["act:1"].layer_label, log["act:2"].layer_label) == ("sin_1_1", "cos_1_3")


def test_wrong_attributes_name_the_nearest(log: tl.ModelLog) -> None:
    with pytest.raises(AttributeError, match="did you mean 'activation'"):
        log[1].activaton
    with pytest.raises(AttributeError, match="did you mean 'layer_labels'"):
        log.layer_label
    with pytest.raises(AttributeError, match="LayerLog has no attribute"):
        tl.log_forward_pass(RecurrentNetwork(), torch.rand(5, 5))["linear_1_1"].nonsense


def test_completion_offers_names(log: tl.ModelLog) -> None:
    assert {"conv2d_1_1", "body.0", "lstm"} <= set(log._ipython_key_completions_())
    assert {"activation", "parent_layers"} <= set(dir(log[1]))
    assert not [name for name in dir(log[1]) if name.startswith("_")]
    assert {"layer_labels", "modules"} <= set(dir(log))


def test_modules_params_and_buffers() -> None:
    log = tl.log_forward_pass(DemoNetwork(), torch.rand(5, 5))
    assert log.modules.keys() == ["self", "fc", "relu_module"]
    fc = log.modules["fc"]
    assert (fc.module_class_name, fc.num_passes, fc.num_params, fc.params) == (
        "Linear",
        1,
        30,
        ["fc.weight", "fc.bias"],
    )
    assert fc.passes[1].output_layers == ["linear_1_3"]
    assert log.modules["fc:1"].input_layers == ["relu_1_2"]
    assert log.modules["self"].call_children == ["relu_module:1", "fc:1"] == log.top_level_module_passes
    weight = log.params["fc.weight"]
    assert (weight.shape, weight.trainable, weight.used_by, weight.memory_str) == (
        (5, 5),
        True,
        ["linear_1_3"],
        "100 B",
    )
    buffer = log.buffers["example_buffer"]
    assert (buffer.layers, buffer.used_by) == (["buffer_1_9"], ["mul_1_10"])
    with pytest.raises(tl.LayerNotFoundError, match="no parameter 'fc.wieght'; did you mean 'fc.weight'"):
        log.params["fc.wieght"]
    with pytest.raises(tl.LayerNotFoundError, match="no module 'fc:7': fc was called 1x"):
        log.modules["fc:7"]
    assert repr(log.modules).startswith("3 modules, with the model itself\n")
    assert "fc.weight" in log.params and "nothing" not in log.params
    assert len(log.params) == 2 and [p.address for p in log.params] == log.params.keys()


def test_nested_and_shared_modules() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Linear(3, 3))
            self.second = self.first

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x))

    log = tl.log_forward_pass(Shared(), torch.rand(2, 3))
    assert log.modules["first"].all_addresses == ["first", "second"]
    assert log.modules["second"].num_passes == log.module_num_passes["first"] == 2
    assert log.module_addresses == ["first", "first.0"]
    assert log.module_pass_children == {
        "first:1": ["first.0:1"],
        "first.0:1": [],
        "first:2": ["first.0:2"],
        "first.0:2": [],
    }
    assert log["second:2"] is log["first:2"] is log["linear_1_1:2"]
    assert log["linear_1_1:2"].containing_modules == ["first", "first.0"]
    assert log["linear_1_1:2"].containing_module_passes == ["first:2", "first.0:2"]
    assert log["linear_1_1:1"].module_passes_exited == ["first.0:1", "first:1"]
    assert log["linear_1_1:1"].module_passes_entered == ["first:2", "first.0:2"]


def test_the_input_of_a_module_is_what_it_was_given() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
            self.again = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.again(self.again(self.block(x * 2)))

    log = tl.log_forward_pass(Twice(), torch.rand(2, 3))
    assert log.modules["block"].input_layers == ["mul_1_1"]
    assert log.modules["again:2"].input_layers == [log["again:1"].label]
    with pytest.raises(tl.PassNeededError, match=r"again was called 2 times; ask one call: log.modules\['again:1'\]"):
        _ = log.modules["again"].input_layers
    assert '"address": "again"' in (log.modules.to_json() or "")


def test_the_outputs_of_a_model_by_path() -> None:
    class Several(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Any]:
            return {"logits": x * 2, "attentions": (x + 1, x + 2)}

    log = tl.log_forward_pass(Several(), torch.rand(2, 3))
    assert "logits" in log["logits"].lookup_keys and "attentions[1]" in log["attentions[1]"].lookup_keys
    with pytest.raises(tl.LayerNotFoundError, match=r"several names: attentions\[0\], attentions\[1\]; ask for one"):
        log["attentions"]


def test_a_layer_of_several_passes_names_what_its_operations_have() -> None:
    log = tl.log_forward_pass(RecurrentNetwork(), torch.rand(5, 5))
    with pytest.raises(AttributeError, match="did you mean 'activation'"):
        _ = log["linear_1_1"].activations
