"""What was edited in a forward pass, and the observer that edits one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..capture import rng
from ..capture.containers import fresh_copy
from ..capture.describe import structure_of
from ..capture.modules import copied_model
from ..capture.records import Applied, fetched
from ..capture.submodule_run import submodule, trace_of
from ..errors import ArgumentError
from ..graph.graph import Graph
from ..options import Options

if TYPE_CHECKING:
    from ..intervene.live import LiveEdits
    from .model_log import ModelLog


class InterventionLog:
    """One intervention: where, what, how often, and what it changed. An entry of `log.interventions`.

    >>> edited = tl.log_forward_pass(model, x, interventions={"fc": tl.edits.zero()})
    >>> edited.interventions[0].layers
    ['linear_1_3']
    """

    def __init__(self, graph: Graph, number: int) -> None:
        self._graph = graph
        self.site, self.edit = graph.trace.interventions[number]
        self._applied = [applied for applied in graph.trace.applied if applied.intervention == number]

    @property
    def num_applied(self) -> int:
        """How often it was applied."""
        return len(self._applied)

    @property
    def layers(self) -> list[str]:
        """What was edited: labels, addresses of parameters, edges."""
        return list(dict.fromkeys(_name(self._graph, applied) for applied in self._applied))

    @cached_property
    def _differences(self) -> list[Tensor]:
        return [change_of(applied) for applied in self._applied]

    @property
    def largest_change(self) -> float:
        """The largest change of an element, by absolute value; NaN if that can't be told."""
        found = [each.max().item() for each in self._differences if each.numel()]
        return max(found, default=0.0)

    @property
    def share_changed(self) -> float:
        """Which part of the elements changed, from 0 to 1."""
        total = sum(each.numel() for each in self._differences)
        return sum(int(each.count_nonzero()) for each in self._differences) / total if total else 0.0

    def __repr__(self) -> str:
        return f"InterventionLog({self.site}: {self.edit!r}, applied {self.num_applied} times)"


def change_of(applied: Applied) -> Tensor:
    """By how much each element changed; nothing if that can't be told."""
    before, after = fetched(applied.before), fetched(applied.after)
    if before is None or after is None or before.shape != after.shape:
        return torch.full((1,), torch.nan, device="cpu")
    if before is after:
        return torch.zeros(before.numel() or 1, device="cpu")
    try:
        distance: Tensor = (after.to(torch.complex128) - before.to(torch.complex128)).abs()
        return distance
    except RuntimeError:  # a layout that can't be subtracted
        return torch.full((1,), torch.nan, device="cpu")


def _name(graph: Graph, applied: Applied) -> str:
    value = applied.value
    if value.role == "param":
        name = value.address or "?"
    else:
        place = graph.place.get(value.index)
        name = graph.label(place) if place is not None else f"a dropped {value.role}"
    if applied.call < 0:
        return name
    children = [graph.place[v.index] for v in graph.trace.calls[applied.call].outputs if v.index in graph.place]
    return f"{name} -> {graph.label(children[0])}" if children else f"{name} -> a dropped operation"


class Interventions(Sequence[InterventionLog]):
    """The interventions of a log; prints as a table."""

    def __init__(self, graph: Graph) -> None:
        self._entries = [InterventionLog(graph, number) for number in range(len(graph.trace.interventions))]

    def __getitem__(self, key: Any) -> Any:
        return self._entries[key]

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[InterventionLog]:
        return iter(self._entries)

    def __repr__(self) -> str:
        if not self._entries:
            return "no interventions"
        rows = [("site", "edit", "layers", "applied", "largest change", "changed")]
        for entry in self._entries:
            layers = ", ".join(entry.layers[:3]) + f" and {len(entry.layers) - 3} more" * (len(entry.layers) > 3)
            change, share = f"{entry.largest_change:.4g}", f"{entry.share_changed:.1%}"
            rows.append((entry.site, repr(entry.edit), layers, str(entry.num_applied), change, share))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join(line.rstrip() for line in lines)


# ---- getting ready --------------------------------------------------------------------------------------------


def live_edits(
    model: nn.Module,
    interventions: Any,
    base: ModelLog | None,
    allow_change: bool,
    run_before: Callable[[], ModelLog],
    module: str | None = None,
) -> LiveEdits | None:
    """The observer that edits a run of the model; None without interventions."""
    if interventions is None:
        if base is not None or allow_change:
            raise ArgumentError("base and allow_change apply to interventions, and none were given")
        return None
    from ..intervene.live import LiveEdits
    from ..intervene.sites import Base, ModelNames, checked_requests, resolve_sites

    def as_base(log: ModelLog) -> Base:
        return Base(log.graph, log._lookup._asked)

    requests, given = checked_requests(interventions), None if base is None else as_base(base)
    edits = LiveEdits(requests, given, lambda: as_base(run_before()), allow_change)
    if module is not None:  # when the submodule is called, it is too late for another run of the model
        resolve_sites(requests, ModelNames(structure_of(submodule(model, module))), edits.base_needed)
    return edits


def run_before(
    model: nn.Module, module: str | None, args: list[Any], kwargs: dict[str, Any], options: Options
) -> ModelLog:
    """A first run, on copies and without values, to look labels up in; the random generators are put back."""
    from .model_log import ModelLog

    try:
        twin = copied_model(model)
    except ArgumentError as error:
        raise ArgumentError(
            "interventions: labels and numbers are looked up in an earlier run, on a copy of the model, but it can't "
            "be copied; give a log of the same run: base=log"
        ) from error
    before = Options.checked(layers_to_save=None, random_seed=options.random_seed)
    run = rng.restoring(partial(trace_of, twin, module, fresh_copy(args), fresh_copy(kwargs), before))
    if run.error is not None:
        raise run.error
    return ModelLog(run.trace)
