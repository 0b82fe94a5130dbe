"""Records and recordings: what users hold after runs of fastlog."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import copy, deepcopy
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor

from ..capture.records import Stored, facts_of
from ..errors import ArgumentError, BundleError, LayerNotFoundError, PassNeededError, near
from ..words import counted, human_size, tensor_words
from .events import NO_HISTORY, Event, Snapshot
from .record_context import FIELDS, RecordContext

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..capture.following import Connections
    from ..log.model_log import ModelLog
    from .spec import CaptureSpec


class Record:
    """One event that was kept: its value and its context.

    >>> record = tl.fastlog.record(model, x, keep_op="relu")[0]
    >>> record.label, record.activation.shape, record.context.parent_labels
    ('relu_1_2', torch.Size([5, 5]), ('add_1_1',))
    """

    __slots__ = ("_connections", "_history", "_noted", "_saved", "_stored", "index", "spec")

    def __init__(self, index: int, event: Event, spec: CaptureSpec, history: Snapshot = NO_HISTORY) -> None:
        self.index = index  # place among the records
        self.spec = spec
        self._noted = event
        self._history = history
        self._saved: Tensor | None = None
        self._stored: Stored | None = None
        self._connections: Connections | None = None

    @property
    def _event(self) -> Event:
        """The event, with shape, type and device of its tensor, which are read from the tensor only now."""
        if self._noted.facts is None and self._saved is not None:
            self._noted = self._noted._replace(facts=facts_of(self._saved))
        return self._noted

    @property
    def activation(self) -> Tensor | None:
        """The value, as it was at the event; None if only metadata was kept."""
        if self._connections is not None:
            connected = self._connections.tensor(self)  # type: ignore[arg-type]
            if connected is not None:
                return connected
        if self._saved is None and self._stored is not None:
            return self._stored.read()
        return self._saved

    @property
    def tensor(self) -> Tensor | None:
        """The same as `activation`."""
        return self.activation

    @property
    def context(self) -> RecordContext | None:
        """What was known at the event; None if the `CaptureSpec` said not to keep it."""
        return RecordContext(self._event, self._history) if self.spec.save_metadata else None

    @property
    def label(self) -> str:
        """The operation or module call, as counted in its pass."""
        return self._event.label

    @property
    def position(self) -> int | None:
        """Position among the tensors that the operation or module returned, if there are several."""
        return self._event.position

    @property
    def pass_index(self) -> int:
        """Which forward pass; the first is 0."""
        return self._event.run.index

    @property
    def sample_id(self) -> Any:
        return self._event.run.sample_id

    @property
    def nbytes(self) -> int:
        """Bytes of what is stored."""
        if self._saved is not None:
            return self._saved.numel() * self._saved.element_size()
        return self._stored.nbytes if self._stored is not None else 0

    @property
    def shape(self) -> torch.Size:
        """Of the tensor as the model has it."""
        return self._event.facts[0] if self._event.facts is not None else torch.Size(())

    def __repr__(self) -> str:
        facts = self._event.facts
        what = "no tensor" if facts is None else tensor_words([facts[0]], facts[1])
        sample = "" if self.sample_id is None else f", sample {self.sample_id!r}"
        return f"Record({self.label}  {what}  pass {self.pass_index}{sample})"


class Records(Sequence[Record]):
    """Records in the order they were kept: by number, by label, by module, by pass."""

    def __init__(self, records: list[Record]) -> None:
        self.records = records

    def __repr__(self) -> str:
        return "\n    ".join([counted(len(self), "record"), *map(repr, self)])

    def __copy__(self) -> Self:
        new = object.__new__(type(self))
        vars(new).update(vars(self))
        return new

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        new = memo[id(self)] = copy(self)
        vars(new).update(deepcopy(vars(self), memo))
        return new

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise BundleError(
            "recordings can't be pickled; record with save_to=folder and load with tl.fastlog.load(folder)"
        )

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    @overload
    def __getitem__(self, key: int | str) -> Record: ...

    @overload
    def __getitem__(self, key: slice) -> list[Record]: ...

    def __getitem__(self, key: Any) -> Any:
        """A record by number, by label (short will do), by the module that returned it."""
        if isinstance(key, slice):
            return self.records[key]
        if isinstance(key, str):
            return self._named(key)
        try:
            return self.records[key.__index__()]
        except AttributeError:
            raise TypeError(f"records are indexed by a number, a label or a slice, not {key!r}") from None
        except IndexError:
            total = len(self.records)
            raise LayerNotFoundError(f"no record {key}: there are {total}, numbered 0 to {total - 1}") from None

    def _named(self, key: str) -> Record:
        found = self.by_label.get(key) or self._short.get(key)
        if not found:
            raise LayerNotFoundError(f"no record {key!r}{near(key, self.by_label)}")
        if len(found) > 1:
            passes = len({record.pass_index for record in found})
            raise PassNeededError(
                f"{key!r} was kept {len(found)} times, in {passes} passes: by_label[{found[0].label!r}] lists the "
                f"records, by_pass[{found[0].pass_index}] has those of one pass"
            )
        return found[0]

    @cached_property
    def by_label(self) -> dict[str, list[Record]]:
        """The records of each label, in order."""
        return _ByLabel(_grouped(self.records, lambda record: record.label), self)

    @cached_property
    def _short(self) -> dict[str, list[Record]]:
        """By `relu_3` for `relu_3_12`, by `features.1` for `features.1:1`."""
        short = _grouped(self.records, lambda record: record.label.rpartition(":" if _of_module(record) else "_")[0])
        for address, records in self.by_module_address.items():
            short.setdefault(address, records)
        return short

    @cached_property
    def by_module_address(self) -> dict[str, list[Record]]:
        """The records of each module: what was computed in it, what it was given and returned."""
        kept = [record for record in self.records if record.spec.save_metadata]
        return _grouped(kept, lambda record: RecordContext(record._event).module_address)

    @property
    def nbytes(self) -> int:
        """Bytes of everything that is stored."""
        return sum(record.nbytes for record in self.records)

    def rows(self) -> list[dict[str, Any]]:
        """The facts of every record, as a list of dicts."""
        names = [name for name in FIELDS if not name.startswith("recent")]
        rows = []
        for record in self.records:
            context = record.context
            facts = {name: getattr(context, name) for name in names} if context is not None else {}
            given = {"label": record.label, "pass_index": record.pass_index, "sample_id": record.sample_id}
            rows.append({**dict.fromkeys(names), **facts, **given, "nbytes": record.nbytes})
        return rows

    def to_pandas(self) -> Any:
        """A table with a row for each record; needs pandas."""
        return data_frame(self.rows())


def data_frame(rows: list[dict[str, Any]]) -> Any:
    try:
        pandas: Any = import_module("pandas")
    except ImportError as error:
        raise ImportError('to_pandas needs pandas: pip install "forwardlens[tables]"') from error
    return pandas.DataFrame(rows)


class _ByLabel(dict[str, list[Record]]):
    """Records by label; a short one such as `relu_3` or `features.1` will do as in `recording[...]`."""

    def __init__(self, records: dict[str, list[Record]], recording: Records) -> None:
        super().__init__(records)
        self._recording = recording

    def __missing__(self, key: str) -> list[Record]:
        found = self._recording._short.get(key)
        if found is None:
            raise LayerNotFoundError(f"no record {key!r}{near(key, self) if isinstance(key, str) else ''}")
        return found


def _of_module(record: Record) -> bool:
    return record._event.name is None


def _grouped(records: list[Record], key: Callable[[Record], str]) -> dict[str, list[Record]]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


class Recording(Records):
    """What was kept of one or many forward passes.

    >>> recording = tl.fastlog.record(model, x, keep_op=["relu", "mul"])
    >>> recording
    Recording of DemoNetwork: 3 records of 1 pass, 300 B
    >>> recording["relu_1_2"].activation.shape
    torch.Size([5, 5])
    >>> [record.label for record in recording.by_pass[0]]
    ['relu_1_2', 'relu_2_4', 'mul_1_10']

    `print(recording.summary())` lists what was kept; `recording.to_pandas()` is a table.
    """

    def __init__(self, model_name: str, records: list[Record], passes: int, warnings: list[str]) -> None:
        super().__init__(records)
        self.model_name = model_name
        self.num_passes = passes
        self.warnings = warnings
        self._log: Callable[[], ModelLog] | None = None

    @cached_property
    def by_pass(self) -> list[Records]:
        """The records of each forward pass; in a generation, of each step."""
        passes: list[list[Record]] = [[] for _ in range(self.num_passes)]
        for record in self.records:
            passes[record.pass_index].append(record)
        return [Records(records) for records in passes]

    def to_log(self) -> ModelLog:
        """The whole log of the pass, in which the kept values are saved. Only `fastlog.record` can give it.

        >>> tl.fastlog.record(model, x, keep_op="relu").to_log().layer_labels
        ['relu_1_2', 'relu_2_4']
        """
        if self._log is None:
            raise ArgumentError(
                "only a recording that fastlog.record returned can become a log: a Recorder and a recording on disk "
                "have records, but no graph"
            )
        return self._log()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a folder, which `tl.fastlog.load` opens again.

        >>> tl.fastlog.record(model, x, keep_op="relu", postfunc=tl.reduce.flatten()).save(folder / "relus")
        >>> tl.fastlog.load(folder / "relus")["relu_1_2"].activation.shape
        torch.Size([5, 5])
        """
        from .recording_files import RecordStream, check_record, check_sample

        for record in self.records:
            check_record(record)
            check_sample(record.sample_id)
        stream = RecordStream(path, self.model_name, keep_in_memory=True)
        try:
            for record in self.records:
                stream.put(record)
            stream.finish(self.num_passes, self.warnings)
        except BaseException:
            stream.abandon()
            raise

    def summary(self) -> str:
        """What was kept, as text: one line for each type and each module."""
        lines = [repr(self)]
        events = [record._event for record in self.records]
        types = Counter(event.name[0].layer_type if event.name else event.kind for event in events)
        sizes: Counter[str] = Counter()
        for record, event in zip(self.records, events, strict=True):
            sizes[event.name[0].layer_type if event.name else event.kind] += record.nbytes
        width = max((len(name) for name in types), default=0)
        lines += [f"\t{name:<{width}}  {count:>6}  {human_size(sizes[name])}" for name, count in types.most_common()]
        labels = list(self.by_label)
        lines += [f"\tfirst: {', '.join(labels[:6])}{', ...' if len(labels) > 6 else ''}"] if labels else []
        lines += [f"\twarning: {warning}" for warning in self.warnings]
        return "\n".join(lines)

    def __repr__(self) -> str:
        passes = f"{self.num_passes} pass{'es' if self.num_passes != 1 else ''}"
        return f"Recording of {self.model_name}: {counted(len(self), 'record')} of {passes}, {human_size(self.nbytes)}"
