"""Edits on the light path: of what modules return."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from ..capture.containers import flat_tensors, put_in
from ..capture.records import facts_of
from ..errors import ArgumentError, LayerNotFoundError
from ..intervene.apply import apply_edit
from ..intervene.edits import Moment
from ..intervene.sites import ARGUMENT, checked_requests, donor_at, is_live, kinds_of
from ..selectors import ModuleTable, Returned
from .events import Event, Frame, Rollout
from .record_context import RecordContext


class ModuleEdits:
    """Edits what modules return, in every forward pass. A function is asked with the tensor and a `RecordContext`."""

    def __init__(self, interventions: Any, modules: ModuleTable, allow_change: bool) -> None:
        self.requests = checked_requests(interventions)
        self.allow_change = allow_change
        self.applied = [0] * len(self.requests)
        self.by_module: dict[int, list[tuple[int, Returned]]] = {}
        for number, request in enumerate(self.requests):
            kinds = [] if isinstance(request.key, tuple) else kinds_of(request.key, modules)
            if not kinds or request.edit.needs_arguments:
                kinds = []
            for kind in kinds:
                if isinstance(kind, Returned) and is_live(kind):
                    for module in kind.numbers:
                        self.by_module.setdefault(module, []).append((number, kind))
            if not kinds or not all(isinstance(kind, Returned) and is_live(kind) for kind in kinds):
                raise ArgumentError(
                    f"{ARGUMENT}: {request.site}: a Recorder edits what modules return, and nothing else; edit other "
                    "values with fastlog.record or log_forward_pass"
                )
            if not any(isinstance(kind, Returned) and kind.numbers for kind in kinds):
                raise LayerNotFoundError(f"{ARGUMENT}: {request.site}: the model has no such module")

    def edited(self, frame: Frame, rollout: Rollout, result: Any) -> tuple[Any, dict[int, Tensor]]:
        """What the caller of a module gets, and the tensors that took the place of others, by the ids of these."""
        tensors = flat_tensors((result,))
        new: dict[int, Tensor] = {}
        for number, kind in self.by_module[frame.module]:
            chosen = [n for n in range(len(tensors)) if kind.fits(frame.module, frame.number, n)]
            if len(chosen) > 1:
                raise ArgumentError(
                    f"{ARGUMENT}: {frame.label} returned {len(tensors)} tensors; say which, as in '[0]'"
                )
            for position in chosen:
                first = id(tensors[position])
                tensor = new.get(first, tensors[position])
                moment = self._moment(frame, rollout, number, position, len(tensors), tensor)
                self.applied[number] += 1
                edited, _ = apply_edit(self.requests[number], tensor, moment, self.allow_change)
                if edited is not tensor:
                    new[first] = edited
        return (put_in(result, new) if new else result), new

    def _moment(self, frame: Frame, rollout: Rollout, number: int, position: int, total: int, tensor: Tensor) -> Moment:
        event = Event("module_exit", 0, rollout, frame, None, position if total > 1 else None, facts_of(tensor))
        key = frame.label + (f"[{position}]" if total > 1 else "")
        return Moment(RecordContext(event), self.applied[number], partial(donor_at, key=key))

    def restart(self) -> None:
        """Count from zero again, as if the next pass were the first."""
        self.applied = [0] * len(self.requests)

    def check(self) -> None:
        """The passes are over: an edit that never happened is an error."""
        for request, applied in zip(self.requests, self.applied, strict=True):
            if not applied:
                raise LayerNotFoundError(f"{ARGUMENT}: {request.site} was never reached in any forward pass")
