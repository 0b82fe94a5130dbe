"""Common calls are observed in C, if it could be compiled, and all calls by Python: both tell the rules the same."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.models import Case
from tests.test_oracle import content, every_run, prepared, surroundings
from torch import Tensor, nn

from torchlens.capture import native
from torchlens.fastlog import RecordContext, Recorder
from torchlens.fastlog.collector import Collector
from torchlens.fastlog.events import Event, Frame
from torchlens.fastlog.light_tracer import LightTracer
from torchlens.fastlog.record_context import FIELDS

needed = pytest.mark.skipif(
    not native.is_compiled, reason="hot.c was not compiled: there was no compiler, or no headers"
)


@pytest.fixture(autouse=True)
def recorded_by() -> Iterator[None]:
    """These tests choose by themselves."""
    yield
    native.use_if_wanted()


def both_ways(run: Callable[[], Any]) -> list[Any]:
    found = []
    for way in (True, False):
        native.use(way)
        found.append(run())
    return found


def told(context: RecordContext) -> list[Any]:
    return [getattr(context, field) for field in FIELDS if not field.startswith("recent")]


def seen_by_a_predicate(model: nn.Module, args: Any, kwargs: Any = None) -> list[Any]:
    """What a predicate is told of two passes: each event, and the events before it."""
    seen: list[Any] = []

    def ask(context: RecordContext) -> bool:
        recent = [*map(told, context.recent_events)], [*map(told, context.recent_ops)]
        seen.append((told(context), recent))
        return len(seen) % 3 == 0

    with Recorder(model, keep_op=ask, history_size=3) as recorder:
        for _ in range(2):  # the first call of a function is left to Python
            recorder.log(args, kwargs)
    return [seen, [(record.label, record.activation is None) for record in recorder.recording]]


@needed
@pytest.mark.parametrize(("case", "mode"), [run for run in every_run.args[1] if run.values[0].repeatable])
def test_both_ways_tell_a_predicate_the_same(case: Case, mode: str) -> None:
    def run() -> Any:
        fresh = prepared(case, mode)
        with surroundings(case, mode):
            return seen_by_a_predicate(fresh.model, fresh.args, fresh.kwargs)

    one, other = both_ways(run)
    assert one == other


class Inner(nn.Module):
    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        left, right = (x / scale).chunk(2, dim=-1)
        return torch.cat([left, torch.div(right, 2)], -1)


class Outer(nn.Module):
    """Modules in modules, with a module that is given two tensors; results that are several, that are no tensor, and
    whose type depends on how the call is written."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm, self.fc = Inner(), nn.LayerNorm(4), nn.Linear(4, 4)
        self.register_buffer("scale", torch.full((4,), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.norm(self.inner(x, self.scale))
            value, index = x.max(dim=-1, keepdim=True)
            x = nn.functional.dropout(self.fc(x), 0.0, training=False) + value * (index / 2)
            if x.sum().item() == 7:
                return x
        return torch.stack(x.unbind(0)).relu()


KINDS: list[Any] = ["layernorm", "truediv", "div", "chunk", "max", ["linear", "relu"], True, "buffer"]


@needed
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_both_ways_keep_the_same(kind: Any) -> None:
    torch.manual_seed(0)
    model, x = Outer(), torch.rand(2, 4)

    def run() -> Any:
        with torch.no_grad(), Recorder(model, keep_op=kind) as recorder:
            for _ in range(2):
                recorder.log(x)
        return [(told(record.context), content(record.activation)) for record in recorder.recording]

    one, other = both_ways(run)
    assert one and one == other


@needed
def test_what_an_observed_call_raises_reaches_the_model_and_leaves_nothing() -> None:
    native.use(True)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 2))
    for keep in ("linear", lambda context: False, True):
        with Recorder(model, keep_op=keep) as recorder:
            for _ in range(3):
                with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
                    recorder.log(torch.rand(2, 3))
            assert torch.equal(torch.ones(2).relu(), torch.ones(2))
        assert not any("forward" in vars(module) for module in model.modules())


@needed
def test_no_reference_is_lost_or_left() -> None:
    native.use(True)
    model, x = Outer(), torch.rand(2, 4)

    def counts() -> list[int]:
        for keep in ("layernorm", "chunk", lambda context: False):
            with torch.no_grad(), Recorder(model, keep_op=keep) as recorder:
                for _ in range(20):
                    recorder.log(x)
        things = (None, True, False, Tensor, x, model.fc.weight, Event, Frame, Collector, Outer.forward.__code__)
        return [sys.getrefcount(thing) for thing in things]

    counts()
    before, after = counts(), counts()
    assert all(abs(one - other) < 60 for one, other in zip(before, after, strict=True)), (before, after)


def test_what_was_compiled_is_used() -> None:
    """It would not be if an event or frame had got a field that hot.c does not fill."""
    assert native.is_compiled == ((LightTracer, "enter_module") in native._BOTH)
