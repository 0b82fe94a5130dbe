"""Every kind of selector, and values that are those of a log."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.extraction.networks import images, network
from tests.fastlog.test_values import INCOMPARABLE, UNINITIALIZED
from tests.models import Case
from tests.test_oracle import content, every_run, plain_run, prepared, surroundings
from torch import Tensor, nn

import torchlens as tl
from torchlens.extraction.chosen_layers import Forward, resolve_layers


class Loop(nn.Module):
    """Passes of one layer, a module that returns several tensors, a call in place, and a split."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)
        self.rnn = nn.LSTM(6, 6, batch_first=True)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for _ in range(3):
            x = self.fc(x).relu_()
        x = self.rnn(x[:, None])[0]
        x, weights = self.attention(x, x, x)
        left, right = x[:, 0].split(3, 1)
        return left + right, weights


def loop() -> Loop:
    torch.manual_seed(0)
    return Loop().eval()


SELECTORS: dict[str, tuple[Any, list[str]]] = {
    "address": ("rnn", ["rnn"]),
    "call": ("fc:2", ["fc:2"]),
    "calls": ("fc", ["fc:1", "fc:2", "fc:3"]),
    "tensor": ("attention[1]", ["attention[1]"]),
    "label": ("relu_1:2", ["relu_1:2"]),
    "passes": ("relu", ["relu_1_2:1", "relu_1_2:2", "relu_1_2:3"]),
    "split": ("split_1", ["split_1"]),
    "class": (nn.Linear, ["fc:1", "fc:2", "fc:3"]),
    "pattern": ("att*", ["attention[0]", "attention[1]"]),
    "regex": (re.compile("^add"), ["add_1_16"]),
    "number": (0, ["input_1_0"]),
    "function": (lambda op: op.func_name == "__add__", ["add_1_16"]),
    "combination": (tl.all_of("relu", lambda op: op.pass_num == 3), ["relu_1_2:3"]),
}


@pytest.mark.parametrize("name", SELECTORS)
@pytest.mark.filterwarnings("ignore::torchlens.errors.SeveralOutputsWarning")
def test_each_kind_of_selector(tmp_path: Path, name: str) -> None:
    selector, names = SELECTORS[name]
    x = torch.rand(6, 6)
    store = tl.extract(loop(), x, [selector], save_to=tmp_path / "acts", batch_size=3, shard_rows=3)
    if name not in ("split", "regex", "function", "pattern"):
        assert store.layers == names
    log = tl.log_forward_pass(loop(), x[3:])  # with autograd: the store has the same operations
    for layer in store.layers:
        plan = store[layer].plan
        expected = log[plan.label].activation
        if plan.position is not None:
            call = log[f"{plan.source}[{plan.position}]"]
            expected = call.activation
        # Not to the last bit: how an LSTM rounds may depend on where its weights lie in memory.
        torch.testing.assert_close(store[layer].torch(slice(3, 6)), expected.detach(), msg=layer)


def test_layers_are_found_by_other_names(tmp_path: Path) -> None:
    store = tl.extract(network(), images(), ["relu_1", "head"], save_to=tmp_path / "acts")
    assert store[store["relu_1"].plan.label].name == "relu_1" and store["head:1"].name == "head"
    with pytest.raises(tl.LayerNotFoundError, match="did you mean 'head'"):
        store["haed"]


def test_a_module_with_several_outputs_says_so(tmp_path: Path) -> None:
    with pytest.warns(tl.SeveralOutputsWarning, match="rnn"):
        store = tl.extract(loop(), torch.rand(6, 6), "rnn", save_to=tmp_path / "acts")
    assert store["rnn"].shape == (6, 1, 6)


class TwoWays(nn.Module):
    """Takes another way for some batches."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return self.fc(x.relu())
        return self.fc(x.sigmoid().tanh())


def test_a_module_is_found_on_every_way(tmp_path: Path) -> None:
    x = torch.ones(4, 3)
    x[2:] = -1
    model = TwoWays()
    store = tl.extract(model, x, "fc", save_to=tmp_path / "fc", batch_size=2)
    assert torch.equal(store["fc"].torch(), torch.cat([model(x[:2]), model(x[2:])]).detach())
    with pytest.raises(
        tl.LayerNotFoundError, match="relu_1: the model took a different path in this batch than in the first"
    ):
        tl.extract(model, x, "relu_1", save_to=tmp_path / "relu", batch_size=2)


#: What a full log adds so that its graph is right; the light path, and so a store, has none of these.
ADDED = ("alias_update", "implicit_view", "wrap")
#: Without values, a log can't tell that memory which was handed out was not written to, and counts one more.
CAUTIOUS = ("CopiesItself", "autograd_function_writing_in_place")
RUNS = [
    run
    for run in every_run.args[1]
    if run.values[1] == "eval-nograd" and run.values[0].name not in (*INCOMPARABLE, *CAUTIOUS)
]


@pytest.mark.parametrize(("case", "mode"), RUNS)
@pytest.mark.filterwarnings("ignore")
def test_every_operation_of_every_tiny_model(case: Case, mode: str) -> None:
    plain_run(case, mode)
    run = prepared(case, mode)
    with surroundings(case, mode):
        log = tl.log_forward_pass(run.model, run.args, run.kwargs)
    kept = [op for op in log if op.func_name not in ADDED and op.layer_type not in UNINITIALIZED]
    labels = [op.label for op in kept if op.activation is not None and op.layer_type not in ("output", "source")]
    if not labels:
        return
    run = prepared(case, mode)
    with surroundings(case, mode):
        wanted = resolve_layers(run.model, run.args, run.kwargs, lambda op: op.label in labels)
    run = prepared(case, mode)
    with surroundings(case, mode), Forward(run.model, wanted) as forward:
        values = forward(run.args, run.kwargs)
    assert len(values) == len(labels)
    assert {name: content(value) for name, value in values.items()} == {
        label: content(log[label].activation) for label in labels
    }
