"""Records to rows and back: the columns by name, and a reader that trusts nothing in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ..bundle.checks import flag, integer, listed, one_of, optional, text
from ..bundle.load import StoredTensor
from ..bundle.rows import facts_row, read_facts
from ..bundle.tensors import TensorTable
from ..errors import BundleError
from .events import Event, Frame, Run, Tally
from .recording import Record
from .spec import CaptureSpec

MOST_RUNS = 10**7  # `by_pass` has a list for each, and a file may say anything
_KINDS = ("op", "module_enter", "module_exit", "input", "buffer", "output")


class RecordRow(NamedTuple):
    """The columns of `records`; in the journal, of each line that has a record."""

    index: Any
    kind: Any
    number: Any  # among the events of the run
    run: Any
    sample_id: Any
    frames: Any  # of `FrameRow`, from the model in
    name: Any  # a `NameRow`; None for a module call
    position: Any
    facts: Any  # a `FactsRow`
    func_name: Any
    parents: Any
    spec: Any  # a `SpecRow`
    tensor: Any  # row of `tensors`


class FrameRow(NamedTuple):
    """A module call."""

    module: Any
    address: Any
    class_name: Any
    number: Any


class NameRow(NamedTuple):
    """The name of an operation: its type, its number of this type and of all."""

    layer_type: Any
    count: Any
    total: Any


class FactsRow(NamedTuple):
    """What is known of a tensor without its values."""

    shape: Any
    dtype: Any
    device: Any


class SpecRow(NamedTuple):
    """What was to be saved of it."""

    save_activation: Any
    save_metadata: Any


def record_row(record: Record) -> RecordRow:
    """A record as plain data, still without the number of its tensor."""
    event, spec, facts = record._event, record.spec, record._event.facts
    known = spec.save_metadata
    return RecordRow(
        index=record.index,
        kind=event.kind,
        number=event.number,
        run=event.run.index,
        sample_id=event.run.sample_id,
        frames=[FrameRow(each.module, each.address, each.class_name, each.number) for each in _frames(event.frame)],
        name=NameRow(event.name[0].layer_type, *event.name[1:]) if event.name is not None else None,
        position=event.position,
        facts=FactsRow(*facts_row(facts)) if facts is not None else None,
        func_name=event.func_name if known else None,
        parents=list(event.parent_labels()) if known else [],
        spec=SpecRow(spec.save_activation, spec.save_metadata),
        tensor=None,
    )


def _frames(frame: Frame | None) -> Iterable[Frame]:
    """From the model in."""
    if frame is None:
        return []
    return [*_frames(frame.parent), frame]


class RecordReader:
    """Rows to records. Nothing in a row is trusted."""

    def __init__(self, table: TensorTable) -> None:
        self._table = table
        self._tallies: dict[str, Tally] = {}
        self._runs: dict[int, Run] = {}

    def record(self, data: Any) -> Record:
        row = RecordRow(*data)
        event = Event(
            one_of(_KINDS, row.kind),
            integer(row.number),
            self._run(integer(row.run, 0, MOST_RUNS), row.sample_id),
            self._frame(row.frames),
            self._name(row.name),
            optional(integer, row.position),
            optional(read_facts, row.facts),
            optional(text, row.func_name),
            (),
            listed(text, row.parents),
        )
        if (event.name is None) != event.kind.startswith("module") or (event.name is None and event.frame is None):
            raise BundleError(f"a {event.kind} has the wrong kind of name")
        activation, metadata = SpecRow(*row.spec)
        spec = CaptureSpec(save_activation=flag(activation), save_metadata=flag(metadata))
        record = Record(integer(row.index), event, spec)
        if row.tensor is not None:
            record._stored = StoredTensor(self._table, integer(row.tensor, 0, len(self._table) - 1))
        return record

    def _run(self, number: int, sample_id: Any) -> Run:
        return self._runs.setdefault(number, Run(number, sample_id))

    def _frame(self, rows: Any) -> Frame | None:
        frame = None
        for data in listed(list, rows):
            row = FrameRow(*data)
            frame = Frame(integer(row.module), text(row.address), text(row.class_name), integer(row.number, 1), frame)
        return frame

    def _name(self, data: Any) -> tuple[Tally, int, int] | None:
        if data is None:
            return None
        row = NameRow(*data)
        layer_type = text(row.layer_type)
        tally = self._tallies.setdefault(layer_type, Tally(layer_type))
        return tally, integer(row.count, 1), integer(row.total)
