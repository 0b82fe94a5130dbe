"""Records on disk: written while the model runs, in the same format as bundles of logs, and as safe to read.

A record is one line of the journal, written after its tensor: it is complete or not there at all. At the end the lines
become the table of a bundle.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..bundle.checks import blaming, each, integer, listed, text
from ..bundle.files import JOURNAL, MANIFEST
from ..bundle.load import StoredTensor, open_bundle
from ..bundle.recover import open_journal
from ..bundle.replace import put_back
from ..bundle.stream import TensorStream
from ..bundle.tensors import TensorTable
from ..errors import ArgumentError, BundleError
from .record_rows import MOST_RUNS, RecordReader, RecordRow, record_row
from .recording import Record, Recording


class RecordStream:
    """Where records go while the model runs: a folder, and memory as well if that is wanted."""

    def __init__(self, path: str | os.PathLike[str], model_name: str, keep_in_memory: bool) -> None:
        self.folder = Path(path)
        self._model_name = model_name
        self._keep = keep_in_memory
        self._rows: list[tuple[RecordRow, Any]] = []  # each with the tensor on its way, if there is one
        self._stream = TensorStream(self.folder, {"fastlog": {"model": model_name}})

    def put(self, record: Record) -> None:
        """Write a record."""
        check_record(record)
        row, tensor = record_row(record), record.activation
        if tensor is None:
            self._stream.note({"record": row})
            self._rows.append((row, None))
            return
        name = f"{record.pass_index}.{record.label}"
        handle = self._stream.append(name, tensor, lambda number: {"record": row._replace(tensor=number)})
        self._rows.append((row, handle))
        if not self._keep:
            record._stored, record._saved = handle, None

    def finish(self, runs: int, warnings: list[str]) -> None:
        """Everything was put: make the folder a bundle."""
        stream = self._stream
        stream.drain()
        encoder = stream.encoder
        tables = {
            "fastlog": {"model": self._model_name, "passes": runs, "warnings": warnings},
            "records": [row if handle is None else row._replace(tensor=handle.number) for row, handle in self._rows],
            "layouts": encoder.layouts,
            "tensors": encoder.rows,
            "storages": [list(blob) for blob in encoder.storages],
        }
        stream.become_bundle(tables)

    def abandon(self) -> None:
        """An error occurred: leave what was written, to be recovered."""
        self._stream.abandon()


def check_storage(save_to: Any, keep_in_memory: bool, train_mode: bool) -> None:
    """Refuse what can't be written, before anything runs."""
    if save_to is None:
        if not keep_in_memory:
            raise ArgumentError("keep_in_memory=False needs save_to=path, or nothing would be kept")
        return
    if not isinstance(save_to, (str, os.PathLike)):
        raise ArgumentError(f"save_to must be the path of a folder, not {save_to!r}")
    if train_mode:
        raise ArgumentError(
            "train_mode=True keeps values connected to autograd, which is impossible on disk; leave out save_to"
        )


def check_record(record: Record) -> None:
    if record.spec.keep_grad:
        raise ArgumentError(
            f"{record.label} is to stay connected to autograd (keep_grad), which is impossible on disk; "
            "keep it in memory, without save_to"
        )


def check_sample(sample_id: Any) -> None:
    try:
        json.dumps(sample_id, allow_nan=False)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"sample_id={sample_id!r} can't be written to disk; numbers, strings and lists of them can"
        ) from None


# ---- reading --------------------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str]) -> Recording:
    """Open a recording that was written to a folder. Tensors are read when they are asked for.

    >>> with tl.fastlog.Recorder(model, keep_op="relu", save_to=folder / "relus", keep_in_memory=False) as recorder:
    ...     output = recorder.log(x, sample_id="first")
    >>> recording = tl.fastlog.load(folder / "relus")
    >>> recording["relu_1_2"].activation.shape, recording[0].sample_id
    (torch.Size([5, 5]), 'first')

    Nothing in the files is run or imported; what is damaged or makes no sense is refused.
    """
    folder = Path(path)
    if not (folder / MANIFEST).exists() and (folder / JOURNAL).exists():
        raise BundleError(
            f"{folder} is incomplete: writing it was interrupted; tl.fastlog.recover({str(folder)!r}) reads what is "
            "intact"
        )
    tables, table = open_bundle(folder)
    if "fastlog" not in tables:
        raise BundleError(f"{folder} is a log, not a recording of tl.fastlog; tl.load({str(folder)!r}) reads it")
    return _recording(folder, tables, table)


def _recording(folder: Path, tables: dict[str, Any], table: TensorTable) -> Recording:
    with blaming(str(folder)):
        head = tables["fastlog"]
        records = each("records", tables["records"], RecordReader(table).record)
        runs, warnings = integer(head["passes"], 0, MOST_RUNS), listed(text, head["warnings"])
        if any(record.pass_index >= runs for record in records):
            raise BundleError("a record is of a run that was not counted")
        whole = [record for record in records if _is_whole(record)]
        return Recording(text(head["model"]), whole, runs, warnings + _dropped(records, whole))


def recover(path: str | os.PathLike[str]) -> Recording:
    """Open a recording whose writing was cut short, or that was damaged: every whole record is there.

    >>> recorder = tl.fastlog.Recorder(model, keep_op="relu", save_to=folder / "cut")
    >>> with recorder:
    ...     output = recorder.log(x)
    >>> len(tl.fastlog.recover(folder / "cut"))     # a finished one opens as well
    2

    `warnings` says how much is lost: after a `kill -9`, that is what was still waiting to be written.
    """
    folder = Path(path)
    put_back(folder)
    if (folder / MANIFEST).is_file():
        return _recover_finished(folder)
    journal = open_journal(folder)
    if "fastlog" not in journal.head:
        raise _is_a_log(folder)
    with blaming(str(folder / JOURNAL)):
        model = text(journal.head["fastlog"]["model"])
        reader = RecordReader(journal.table)
        rows = [line["record"] for line in journal.lines if "record" in line]
        records = sorted(each("records", rows, reader.record), key=lambda record: record.index)
    whole = [record for record in records if _is_whole(record)]
    warnings = ["this recording was recovered: its writing was cut short", *journal.warnings, *_dropped(records, whole)]
    runs = 1 + max((record.pass_index for record in whole), default=-1)
    return Recording(model, whole, runs, warnings)


def _recover_finished(folder: Path) -> Recording:
    tables, table = open_bundle(folder, damaged=True)
    if "fastlog" not in tables:
        raise _is_a_log(folder)
    damage = list(table.find_damage())
    recording = _recording(folder, tables, table)
    if damage:
        recording.warnings[:0] = ["this recording was recovered: its files are damaged", *damage]
    return recording


def _is_whole(record: Record) -> bool:
    return not isinstance(record._stored, StoredTensor) or record._stored.is_whole


def _dropped(records: list[Record], whole: list[Record]) -> list[str]:
    lost = len(records) - len(whole)
    return [f"{lost} of {len(records)} records were incomplete or damaged, and are dropped"] if lost else []


def _is_a_log(folder: Path) -> BundleError:
    return BundleError(f"{folder} holds a log, not a recording of tl.fastlog; tl.recover({str(folder)!r}) reads it")
