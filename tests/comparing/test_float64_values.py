"""Float64 values that are computed again when they are asked for."""

from __future__ import annotations

from unittest.mock import patch

import pytest
import torch
from tests.comparing import small_pairs  # noqa: F401  (registers them)
from tests.comparing.pairs import PAIRS, Pair, answer
from torch import nn

import torchlens as tl
from torchlens.comparing import sides
from torchlens.comparing.float64_values import Values
from torchlens.replay.float64 import Float64


def deep() -> tl.ModelLog:
    layers = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(20)]
    return tl.log_forward_pass(nn.Sequential(*layers), torch.rand(4, 8))


def test_few_values_stay_and_all_can_be_asked_for() -> None:
    trace = deep().graph.trace
    values = Values(trace, Float64(trace), most_bytes=0)
    everything = Values(trace, Float64(trace), most_bytes=1 << 20)
    order = [value.index for value in trace.values]
    for index in (*order, *order[::-1], *order[::7]):
        one, other = values[index], everything[index]
        assert one is not None and other is not None and one.equal(other) and one.dtype == torch.float64
    assert len(values._kept) <= 40 / 8


def test_a_value_takes_a_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = deep().graph.trace
    values = Values(trace, Float64(trace), most_bytes=0)
    computed: list[int] = []
    results = Float64.results

    def counted(self: Float64, number: int, *args: object, **options: object) -> object:
        computed.append(number)
        return results(self, number, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Float64, "results", counted)
    for value in trace.values:
        values[value.index]
    assert len(computed) == len(trace.calls)  # in the order of the forward pass, each once
    for index in (30, 4, 21):
        computed.clear()
        values[index]
        assert len(computed) <= 9


def test_a_graft_changes_what_depends_on_it() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(12)))
    side = sides.Side(tl.log_forward_pass(model, torch.rand(4, 8)), "A")
    with patch.object(sides, "_LEAST_BYTES", 0):
        side.prepare(torch.float32, side)
    order = side.ids
    before = [side.values[i] for i in order]
    original, place = side.values.copy(), order.index(side.log["tanh_3_6"]._value.index)
    side.graft(order[place], torch.zeros(4, 8, dtype=torch.float64), (), lambda index, tensor: None)
    expected = model[3:].double()(torch.zeros(4, 8, dtype=torch.float64))
    after, unchanged = side.values[order[-1]], original[order[-1]]
    assert after is not None and torch.allclose(after, expected)
    assert unchanged is not None and before[-1] is not None and unchanged.equal(before[-1])
    for index, tensor in list(zip(order, before, strict=True))[:place]:
        now = side.values[index]
        assert now is not None and tensor is not None and now.equal(tensor)


#: The truth has to be found as well where nothing but what is needed stays in memory.
SOME = list(PAIRS.values())[1::4]


@pytest.mark.parametrize("pair", SOME, ids=lambda pair: pair.name)
def test_the_truth_is_found_in_little_memory(pair: Pair) -> None:
    with patch.object(sides, "_LEAST_BYTES", 0):
        found = answer(pair)
    assert found.is_right, repr(found.comparison)
