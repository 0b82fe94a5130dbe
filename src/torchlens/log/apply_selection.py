"""Once the graph is known: keep the values that were chosen, and release the others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ..capture.choose import Chooser, Failure
from ..capture.context import OpInProgress
from ..capture.records import Value
from ..errors import ArgumentError, LayerNotFoundError
from ..selectors import Predicate, selector_text
from .op_log import OpLog

if TYPE_CHECKING:
    from .model_log import ModelLog


def apply_selection(log: ModelLog, chooser: Chooser | None) -> None:
    """Keep what the selection means, and list nothing else."""
    if chooser is None:
        return
    try:
        if chooser.failure is not None:
            raise _error(log, chooser.failure)
        if chooser.matcher is not None:
            _keep_only(log, chooser, chooser.matcher.places(log.graph, partial(_chosen_by, log, chooser)))
        if chooser.failure is not None:
            raise _error(log, chooser.failure)
    except (ArgumentError, LayerNotFoundError) as error:
        error.partial_log = log  # type: ignore[union-attr]
        raise


def _chosen_by(log: ModelLog, chooser: Chooser, predicate: Predicate) -> list[int]:
    place = log.graph.place
    chosen = set(chooser.chosen[predicate])
    for index, moment in chooser.undecided[predicate].items():
        if index not in place:
            continue
        try:
            if predicate(_Finished(log._op(place[index]), moment)):
                chosen.add(index)
        except Exception as raised:
            value = log._trace.values[index]
            raise _error(log, Failure(f"the predicate {selector_text(predicate)}", value, raised)) from raised
    return [place[index] for index in chosen if index in place]


def _keep_only(log: ModelLog, chooser: Chooser, places: list[int]) -> None:
    graph = log.graph
    meant = {graph.entries[place].index for place in places}
    for value in graph.trace.values:
        if value.index in meant:
            chooser.finish(value)
        else:
            value.saved = value.transformed = None
    graph.trace.listed = sorted(meant)
    graph.listed = places


def _error(log: ModelLog, failure: Failure) -> ArgumentError:
    raised = failure.raised
    error = ArgumentError(f"{failure.what} raised {type(raised).__name__} for {label_of(log, failure.value)}: {raised}")
    error.__cause__ = raised
    return error


def label_of(log: ModelLog, value: Value) -> str:
    """What to call a value in a message."""
    place = log.graph.place.get(value.index)
    return log.graph.label(place) if place is not None else f"a dropped {value.role}"


class _Finished:
    """An operation of the log that also answers what could be asked while the model ran."""

    def __init__(self, op: OpLog, moment: OpInProgress) -> None:
        self._op, self._moment = op, moment

    def __getattr__(self, name: str) -> Any:
        only_then = name in vars(OpInProgress) and not hasattr(OpLog, name)
        return getattr(self._moment if only_then else self._op, name)
