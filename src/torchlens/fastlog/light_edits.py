"""Edits on the light path: of results of modules and of operations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from ..capture.containers import flat_tensors, put_in
from ..capture.describe import structure_of
from ..capture.records import facts_of
from ..errors import ArgumentError, LayerNotFoundError
from ..intervene.apply import apply_edit, check_reachable
from ..intervene.edit_base import Moment
from ..intervene.sites import ARGUMENT, EditRequest, ModelNames, checked_requests, donor_at, is_live, kinds_of
from ..selectors import NO, YES, Answer, Kind, Predicate, Returned, Seen
from .events import NO_HISTORY, Event, Frame, History, Run
from .record_context import RecordContext

_ELSEWHERE = "edit that with fastlog.record or log_forward_pass"


class LightEdits:
    """Edits values in every forward pass. A function also gets a `RecordContext`, if it takes two arguments."""

    def __init__(self, interventions: Any, model: nn.Module, allow_change: bool) -> None:
        self.requests = checked_requests(interventions)
        self.allow_change = allow_change
        self.applied = [0] * len(self.requests)
        self.changed = [False] * len(self.requests)
        self.by_module: dict[int, list[tuple[int, Returned]]] = {}
        self.of_operations: list[tuple[int, Kind]] = []
        self.failure: Exception | None = None  # the first of a pass; the model may have caught it
        self.unreachable: str | None = None  # why what an operation makes must not be edited, if it must not
        self.grad_enabled = True  # when the pass began
        self._wanted: dict[str, list[tuple[int, Kind]]] = {}  # those of operations, by the types that they may mean
        names = ModelNames(structure_of(model))
        for number, request in enumerate(self.requests):
            if names.is_tensor(request.key):
                raise self._refused(request, "a Recorder does not edit parameters and buffers")
            self._add(number, request, names)

    def _add(self, number: int, request: EditRequest, names: ModelNames) -> None:
        if isinstance(request.key, tuple):
            raise self._refused(request, "a Recorder edits what operations make and modules return, not edges")
        if request.edit.needs_arguments:
            raise self._refused(request, "a Recorder does not keep the arguments that swap needs")
        kinds = kinds_of(request.key, names.modules)
        for kind in kinds:
            if isinstance(kind, Returned) and is_live(kind):
                for module in kind.numbers:
                    self.by_module.setdefault(module, []).append((number, kind))
            else:
                self._check(request, kind)
                self.of_operations.append((number, kind))
        if all(isinstance(kind, Returned) and not kind.numbers for kind in kinds):
            raise LayerNotFoundError(f"{ARGUMENT}: {request.site}: the model has no such module")

    def _check(self, request: EditRequest, kind: Kind) -> None:
        if kind.needs_graph:
            raise self._refused(request, "only the whole graph has such labels and numbers")
        if request.edit.needs_label:
            raise self._refused(request, "a Recorder numbers operations as they run, and the other log may not")
        if isinstance(request.key, str) and any(kind.answer(Seen(role)) != NO for role in ("input", "buffer")):
            raise self._refused(request, "a Recorder does not edit inputs and buffers")

    def _refused(self, request: EditRequest, why: str) -> ArgumentError:
        return ArgumentError(f"{ARGUMENT}: {request.site}: {why}; {_ELSEWHERE}")

    @property
    def remembers(self) -> bool:
        """Are there predicates, which may look back?"""
        return any(kind.predicates() for _, kind in self.of_operations)

    def wanted(self, layer_type: str) -> list[tuple[int, Kind]]:
        """The edits that may apply to an operation of this type."""
        found = self._wanted.get(layer_type)
        if found is None:
            found = [(number, kind) for number, kind in self.of_operations if kind.answer(Seen(layer_type)) != NO]
            self._wanted[layer_type] = found
        return found

    # ---- what operations make -------------------------------------------------------------------------------

    def made(self, event: Event, tensor: Tensor, history: History | None) -> Tensor:
        """What takes the place of what an operation made: the tensor itself where it is not edited."""
        assert event.name is not None
        (tally, _, number), context = event.name, RecordContext(event, history or NO_HISTORY)
        seen = Seen(tally.layer_type, event.label, number, asked=partial(_asked, context))
        for request, kind in self.wanted(tally.layer_type):
            if kind.answer(seen) == YES:
                tensor = self._apply(request, tensor, Moment(context, self.applied[request], _no_donor))
        return tensor

    # ---- what modules return --------------------------------------------------------------------------------

    def returned(self, frame: Frame, run: Run, result: Any) -> tuple[Any, dict[int, Tensor]]:
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
                moment = self._moment(frame, run, number, position, len(tensors), tensor)
                edited = self._apply(number, tensor, moment)
                if edited is not tensor:
                    new[first] = edited
        return (put_in(result, new) if new else result), new

    def _moment(self, frame: Frame, run: Run, number: int, position: int, total: int, tensor: Tensor) -> Moment:
        event = Event("module_exit", 0, run, frame, None, position if total > 1 else None, facts_of(tensor))
        key = frame.label + (f"[{position}]" if total > 1 else "")
        return Moment(RecordContext(event), self.applied[number], partial(donor_at, key=key))

    def _apply(self, number: int, tensor: Tensor, moment: Moment) -> Tensor:
        request, changed = self.requests[number], self.changed[number]
        self.applied[number] += 1
        try:
            check_reachable(request, self.unreachable, self.grad_enabled)
            edited, changes = apply_edit(request, tensor, moment, self.allow_change, changed)
        except Exception as raised:
            self.failure, self.changed[number] = self.failure or raised, True
            raise
        self.changed[number] |= changes
        return edited

    # ---- the end --------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Count from zero again, as if the next pass were the first."""
        self.applied = [0] * len(self.requests)

    def check(self) -> None:
        """The runs are over: an edit that never happened is an error."""
        for request, applied in zip(self.requests, self.applied, strict=True):
            if not applied:
                raise LayerNotFoundError(f"{ARGUMENT}: {request.site} was never reached in any forward pass")

    def remarks(self) -> Sequence[str]:
        """What the user should know of edits that were applied."""
        applied = zip(self.requests, self.applied, self.changed, strict=True)
        unchanged = [each for each, times, changed in applied if times and not changed and not each.edit.is_backward]
        return [f"{request.site}: {request.edit!r} changed no element in any forward pass" for request in unchanged]


def _asked(context: RecordContext, predicate: Predicate) -> Answer:
    return YES if predicate(context) else NO


def _no_donor(log: Any) -> Tensor:
    raise AssertionError("edits that look into a log are refused before the model runs")
