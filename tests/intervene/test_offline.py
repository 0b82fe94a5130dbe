"""Edits of a finished log are those of the full run, or are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.intervene.test_twins import REPEATABLE, edited_run, made_by_calls, quiet
from tests.models import Case
from tests.test_oracle import surroundings
from torch import Tensor, nn

import torchlens as tl
from torchlens.replay.same import same

E = tl.edits


@pytest.mark.parametrize(("case", "mode"), [run for run in REPEATABLE if run.values[1] == "eval-nograd"])
def test_a_log_edited_afterwards_is_the_full_run(case: Case, mode: str) -> None:
    base = edited_run(case, mode, None)
    for op in made_by_calls(base.log)[:12]:
        site = {op.label: E.zero()}
        try:
            with surroundings(case, mode), quiet():
                after = base.log.intervene(site)
            full = edited_run(case, mode, site, base.log)
        except (tl.DivergenceError, tl.ReplayError, tl.ArgumentError):
            continue
        assert_equal_values(after, full.log)


def assert_equal_values(one: tl.ModelLog, other: tl.ModelLog) -> None:
    assert [op.label for op in one] == [op.label for op in other]
    for op, twin in zip(one, other, strict=True):
        first, second = op._value.saved, twin._value.saved
        assert (first is None) == (second is None), op.label
        assert first is None or second is None or same(first, second), op.label


class Branch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.out = nn.Linear(5, 5), nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.fc(x))
        z = torch.tanh(x)
        if y.sum() >= 0:
            y = y * 2
        return self.out(y) + z


X = torch.rand(4, 5)


@pytest.fixture
def model() -> Branch:
    torch.manual_seed(0)
    return Branch()


@pytest.mark.parametrize(
    "sites",
    [
        {"fc": E.scale(0.5)},
        {"relu_1_2": E.zero(units=[1]), "out": E.add(1.0)},
        {"out.weight": E.scale(2)},
        {("tanh", "add"): E.zero()},
        {"input_1_0": E.add(1.0)},
        {"relu": E.swap(torch.sigmoid)},
        {"relu": lambda t, op: t * 2},
    ],
)
def test_equal_to_the_full_run(model: Branch, sites: Any) -> None:
    base = tl.log_forward_pass(model, X)
    after, full = base.intervene(sites), tl.log_forward_pass(model, X, interventions=sites)
    assert_equal_values(after, full)
    assert str(after.interventions) == str(full.interventions)
    assert after.validate() and base.validate() and not base.interventions
    assert after["fc"]._value is base["fc"]._value or "fc" in str(sites) or "input" in str(sites)


def test_another_path_is_refused(model: Branch) -> None:
    with pytest.raises(tl.DivergenceError, match="read"):
        tl.log_forward_pass(model, X).intervene({"relu_1_2": E.replace(-1.0)})


def test_edits_add_up(model: Branch) -> None:
    base = tl.log_forward_pass(model, X)
    once = base.intervene({"fc": E.scale(0.5)}).intervene({"out": E.zero()})
    both = base.intervene({"fc": E.scale(0.5), "out": E.zero()})
    assert_equal_values(once, both)
    assert [entry.site for entry in once.interventions] == ["fc", "out"]


def test_a_replay_of_an_edited_log_applies_its_edits(model: Branch) -> None:
    log = tl.log_forward_pass(model, X, interventions={"relu_1_2": E.scale(3), ("tanh", "add"): E.zero()})
    with torch.no_grad():
        assert log.replay().equal(log[-1].activation)
        assert log.replay(from_layer="fc").equal(log[-1].activation)


def test_what_others_have_is_refused() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Identity())
    with pytest.raises(tl.ReplayError, match="used elsewhere"):
        tl.log_forward_pass(model, X).intervene({"1": E.zero()})


def test_patching_all_of_the_last_layer_gives_the_output_of_the_donor(model: Branch) -> None:
    donor = tl.log_forward_pass(model, torch.rand(4, 5))
    patched = tl.log_forward_pass(model, X).intervene({"add": E.patch(donor)})
    assert patched[-1].activation.equal(donor[-1].activation)


@pytest.mark.parametrize("kept", ["last", "list", "stack"])
@pytest.mark.parametrize("cell", [nn.GRUCell, nn.RNNCell])
def test_the_state_of_a_recurrent_cell(cell: Any, kept: str) -> None:
    class Cells(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = cell(4, 4)

        def forward(self, x: Tensor) -> Any:
            state, states = torch.zeros(2, 4), []
            for _ in range(3):
                state = self.cell(x, state)
                states.append(state)
            return torch.stack(states) if kept == "stack" else states if kept == "list" else state

    model, x = Cells(), torch.rand(2, 4)
    for site in ("cell:2", "cell:1"):
        edits = {site: tl.edits.add(1.0)}
        offline = tl.log_forward_pass(model, x).intervene(edits)
        live = tl.log_forward_pass(model, x, interventions=edits)
        assert [op.label for op in offline] == [op.label for op in live]
        assert all(torch.equal(a.activation, b.activation) for a, b in zip(offline, live, strict=True))  # type: ignore[arg-type]
        assert offline.validate()
