"""Write tensors while the model runs, in the background and in bounded memory.

    tensors-00000.safetensors    the tensors, one after the other; the header is filled in when the file is full
    journal.jsonl                after each tensor a line: where it is, its hash, and the records up to it
    manifest.json, metadata.json at the end; then the journal is removed, and the folder is a bundle like any other

A line is written after its tensor: whatever the journal lists is intact, even after `kill -9`. The journal's
first line counts the tensors that were handed over to be written, so that it is known how many are missing.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from .._torch import UninitializedTensorMixin, is_functorch_wrapped
from ..capture.records import Stored, Trace, Value
from ..errors import BundleError
from ..words import counted
from .columns import SCHEMA, CallRow, ModuleCallRow, ModuleEndRow
from .encode import RecordEncoder, plain_tables, shared_tables, write_tables
from .files import FORMAT, JOURNAL, writing
from .hashing import hash_of
from .rows import Tables
from .save import Names, check_target, finish
from .shards import Blob, ShardWriter
from .tensors import Memory, TensorEncoder, TensorTable, plain_tensor

#: Bytes of tensors that may wait to be written; a single larger one waits alone.
WAITING = 64 << 20

#: What else to put on the journal's line, given the number of the tensor.
RowFacts = Callable[[int], dict[str, Any]]


class StreamedTensor(Stored):
    """A tensor on its way into a file, or there already."""

    __slots__ = ("_table", "number", "tensor")

    def __init__(self, tensor: Tensor, table: TensorTable) -> None:
        self.tensor: Tensor | None = tensor
        self.number = -1
        self._table = table

    @property
    def nbytes(self) -> int:
        tensor = self.tensor
        return tensor.numel() * tensor.element_size() if tensor is not None else self._table.nbytes(self.number)

    def read(self) -> Tensor:
        tensor = self.tensor
        return tensor if tensor is not None else self._table.read(self.number)


class TensorStream:
    """Appends tensors to a folder, in a background thread.

    >>> stream = TensorStream(folder / "stream", {"made by": "an example"})
    >>> kept = stream.append("x", torch.ones(3), lambda number: {"note": "three ones"})
    >>> entries = stream.close()
    >>> kept.read()
    tensor([1., 1., 1.])

    `append` waits while too much is waiting to be written. If writing fails, the next `append` and `close` raise.
    """

    def __init__(self, folder: Path, head: dict[str, Any], waiting: int = WAITING) -> None:
        check_target(folder, overwrite=False)
        with writing(folder):
            folder.mkdir(parents=True)
            self._journal = os.open(folder / JOURNAL, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            self._counter = os.open(folder / JOURNAL, os.O_WRONLY)  # what is open to append can't be overwritten
        self._recover = f"{'tl.fastlog.recover' if 'fastlog' in head else 'tl.recover'}({str(folder)!r})"
        self._handed = self._written = 0
        self.folder = folder
        self.table = TensorTable(folder, [], [], [])
        self.encoder = TensorEncoder(self._store)
        self._shards = ShardWriter(folder)
        self._names = Names()
        self._seen: dict[Any, dict[str, Blob]] = {}  # by a glimpse of the content: by hash
        self._limit = waiting
        self._queue: deque[tuple[str, StreamedTensor, RowFacts]] = deque()
        self._bytes = 0  # in the queue
        self._turn = threading.Condition()
        self._closing = False
        self.failure: BaseException | None = None
        self._write_line(_counted(0) + _dumped({"format": FORMAT, "schema": SCHEMA, **head})[1:])
        self._thread = threading.Thread(target=self._work, name="torchlens writer", daemon=True)
        self._thread.start()

    def append(self, name: str, tensor: Tensor, facts: RowFacts) -> StreamedTensor:
        """Queue a tensor for writing. It must not be changed until it has been written."""
        item = StreamedTensor(tensor, self.table)
        with self._turn:
            self._count()
            self._turn.wait_for(lambda: self.failure or not self._queue or self._bytes + item.nbytes <= self._limit)
            self._check()
            self._queue.append((name, item, facts))
            self._bytes += item.nbytes
            self._turn.notify_all()
        return item

    def drain(self) -> None:
        """Wait until everything has been written."""
        with self._turn:
            self._closing = True
            self._turn.notify_all()
        self._thread.join()
        self._check()

    def close(self) -> list[Any]:
        """Wait until everything has been written, and finish the files; return the manifest's entries for them."""
        self.drain()
        with self.explaining():
            entries = self._shards.close()
        self._close_journal()
        return entries

    def become_bundle(self, tables: Tables) -> None:
        """After everything has been written: turn the folder into a bundle with these tables."""
        entries = self.close()
        with self.explaining():
            finish(self.folder, tables, entries)
            with writing(self.folder / JOURNAL):
                os.unlink(self.folder / JOURNAL)

    def abandon(self) -> None:
        """Leave the folder as it is; what is intact in it can be recovered. May be called after `close`."""
        with self._turn:
            self._closing = True
            self._queue.clear()
            self._turn.notify_all()
        self._thread.join()
        self._shards.abandon()
        self._close_journal()

    def _close_journal(self) -> None:
        if self._journal >= 0:
            os.close(self._journal)
            os.close(self._counter)
            self._journal = -1

    def _check(self) -> None:
        if self.failure is not None:
            raise self._cut_short(self.failure) from self.failure

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Add to an error at the end how to recover what was written."""
        try:
            yield
        except (BundleError, OSError) as failure:
            raise self._cut_short(failure) from failure

    def _cut_short(self, failure: BaseException) -> BundleError:
        if not self._written:
            return BundleError(f"{failure}; no tensor had been written until then")
        tensors = f"the {counted(self._written, 'tensor')} that had been written until then"
        return BundleError(f"{failure}; {self._recover} gives {tensors}")

    def _count(self) -> None:
        """Count one more tensor in the journal, where the number survives this process."""
        self._handed += 1
        with writing(self.folder / JOURNAL):
            os.pwrite(self._counter, _counted(self._handed), 0)

    # ---- in the writer's thread -----------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._queue or self._closing)
                if not self._queue:
                    return
                name, item, facts = self._queue[0]
            try:
                self._write(name, item, facts)
            except BaseException as failure:
                with self._turn:
                    self.failure = failure
                    self._queue.clear()
                    self._turn.notify_all()
                return
            with self._turn:
                if self._queue:
                    self._queue.popleft()
                self._bytes -= item.nbytes
                item.tensor = None
                self._turn.notify_all()

    def _write(self, name: str, item: StreamedTensor, facts: RowFacts) -> None:
        assert item.tensor is not None
        number, rows = self.store(item.tensor, name)
        self.note({**rows, **facts(number)})
        self._written += 1
        item.number = number

    def store(self, tensor: Tensor, name: str) -> tuple[int, dict[str, Any]]:
        """Write a tensor; return its number and the new rows that describe it."""
        encoder, table = self.encoder, self.table
        before = len(encoder.rows), len(encoder.layouts), len(table.storages)
        number = encoder.add(plain_tensor(tensor), name)
        encoder.forget()
        rows, layouts = encoder.rows[before[0] :], encoder.layouts[before[1] :]
        for layout in layouts:
            table.add_layout(layout)
        for row in rows:
            table.add(row)
        return number, {"tensors": rows, "layouts": layouts, "storages": table.storages[before[2] :]}

    def _store(self, name: str, memory: Memory) -> Blob:
        """Write a stretch of memory, unless the same bytes have been written before, as for most views."""
        data = memory.data
        glimpse = (data.nbytes, memory.dtype, bytes(data[:: data.nbytes // 256 + 1]))
        known = self._seen.setdefault(glimpse, {})
        before = known.get(hash_of(data)) if known else None
        if before is not None:
            return before
        blob = self._shards.append(self._names.unique(name), memory.dtype, memory.shape, data)
        location = self._shards.last()
        known[location.xxh3] = blob
        self.table.storages.append(location)
        return blob

    def note(self, line: dict[str, Any]) -> None:
        """Write a line of the journal, in one piece."""
        self._write_line(_dumped(line))

    def _write_line(self, line: bytes) -> None:
        with writing(self.folder / JOURNAL):
            if os.write(self._journal, line + b"\n") != len(line) + 1:
                raise OSError("only a part of the line was written")


def _dumped(line: dict[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode()


def _counted(tensors: int) -> bytes:
    """The beginning of the journal, of the same length for any number."""
    return b'{"handed":%20d,' % tensors


class TraceStream:
    """Writes the values of a forward pass to disk while it runs, and keeps them in memory too if asked."""

    def __init__(self, folder: Path, keep_in_memory: bool) -> None:
        self._folder = folder
        self._keep = keep_in_memory
        self._numbers: dict[int, tuple[int | None, Any]] = {}  # of tensors, by value
        self._begun = False
        check_target(folder, overwrite=False)

    def begin(self, trace: Trace) -> None:
        """The forward pass is about to begin."""
        self._trace = trace
        self._journal = _Journal(trace)
        self._stream = TensorStream(self._folder, {"tables": plain_tables(self._journal.encoder)})
        self._begun = True

    def put(self, value: Value) -> None:
        """Write what was kept of a value. Called once for each value."""
        if isinstance(value.kept, UninitializedTensorMixin) or (
            isinstance(value.kept, Tensor) and is_functorch_wrapped(value.kept)
        ):
            return  # it has no value
        _ = value.facts  # read from the tensor, before it is dropped
        name = ".".join(filter(None, (value.role, str(value.index), value.address)))
        if isinstance(value.kept, Tensor):
            handle = self._stream.append(name, value.kept, lambda number: self._written(value, number))
            if not self._keep:
                value.kept = handle
        if isinstance(value.transformed, Tensor):
            made = self._stream.append(
                f"transformed.{name}", value.transformed, lambda number: self._made(value, number)
            )
            if not self._keep:
                value.transformed = made

    def _written(self, value: Value, number: int) -> dict[str, Any]:
        self._numbers[value.index] = (number, self._numbers.get(value.index, (None, None))[1])
        return self._journal.rows_until(value) | {"kept": [value.index, number]}

    def _made(self, value: Value, number: int) -> dict[str, Any]:
        self._numbers[value.index] = (self._numbers.get(value.index, (None, None))[0], ["kept", number])
        return self._journal.rows_until(value) | {"made": [value.index, number]}

    def finish(self) -> None:
        """The forward pass is over and everything has been put: turn the folder into a bundle."""
        stream, trace = self._stream, self._trace
        stream.drain()
        encoder = RecordEncoder(trace, stream.encoder)
        with stream.explaining():
            tables = write_tables(encoder, lambda value: self._stored(encoder, value))
        stream.become_bundle(tables)

    def _stored(self, encoder: RecordEncoder, value: Value) -> tuple[int | None, Any]:
        if value.role == "param":
            return encoder.keep(value)
        number, made = self._numbers.get(value.index, (None, None))
        if made is None and value.transformed is not None:
            made = encoder.transformed(value.transformed, f"transformed.{value.index}")
        return number, made

    def abandon(self) -> None:
        """An error occurred: leave what was written, to be recovered."""
        if self._begun:
            self._stream.abandon()


class _Journal:
    """The records that were added between one tensor and the next, as rows."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.encoder = RecordEncoder(
            trace, TensorEncoder(_nowhere), activations=False, gradients=False, arguments=False
        )
        self._done: dict[str, int] = {}  # rows noted, by table
        self._values = self._calls = self._params = self._module_calls = 0
        self._open: set[int] = set()  # module calls that have not ended

    def rows_until(self, value: Value) -> dict[str, Any]:
        """All records up to that of a value that have not been written yet."""
        trace, encoder = self._trace, self.encoder
        last = value.index
        if value.call >= 0:
            last = max(last, *(output.index for output in trace.calls[value.call].outputs))
        values = trace.values[self._values : last + 1]
        calls = []
        while self._calls < len(trace.calls) and trace.calls[self._calls].outputs[-1].index <= last:
            calls.append(trace.calls[self._calls])
            self._calls += 1
        self._values = max(self._values, last + 1)
        params = trace.params[self._params :]
        self._params += len(params)
        rows: dict[str, Any] = {
            "params": [encoder.value(each) for each in params],
            "values": [encoder.value(each) for each in values],
            "calls": [encoder.row(CallRow, call) for call in calls],
            "module_calls": self._begun(),
            "module_ends": self._ended(),
        }
        for name, table in shared_tables(encoder).items():
            rows[name] = table[self._done.get(name, 0) :]
            self._done[name] = len(table)
        return {name: new for name, new in rows.items() if new and name not in ("tensors", "layouts", "storages")}

    def _begun(self) -> list[Any]:
        calls = self._trace.module_calls
        rows = []
        while self._module_calls < len(calls):
            call = calls[self._module_calls]
            if call.start > self._calls or any(v.role != "param" and v.index >= self._values for v in call.entered):
                break
            rows.append(self.encoder.row(ModuleCallRow, call)._replace(stop=call.start, exited=[]))
            self._open.add(self._module_calls)
            self._module_calls += 1
        return rows

    def _ended(self) -> list[Any]:
        """Module calls that began before the latest operation but do not contain it: they have ended."""
        calls, latest = self._trace.module_calls, self._calls - 1
        around, running = set(), self._trace.calls[latest].module_call if latest >= 0 else -1
        while running >= 0:
            around.add(running)
            running = calls[running].parent
        ended = sorted(number for number in self._open - around if calls[number].start <= latest)
        self._open -= set(ended)
        rows = [(number, self.encoder.row(ModuleCallRow, calls[number])) for number in ended]
        return [ModuleEndRow(number, row.stop, row.exited) for number, row in rows]


def _nowhere(name: str, memory: Memory) -> Blob:
    raise AssertionError("the journal stores no tensors of its own")
