"""Recover what is intact in a folder whose writing was interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..capture.records import Trace
from ..errors import BundleError
from .checks import blaming, integer, parse, text
from .columns import ModuleCallRow, ModuleEndRow, ValueRow
from .decode import read_tables
from .files import FORMAT, JOURNAL, MANIFEST, read_small_file
from .load import check_schema, open_bundle, stored_in
from .migrate import migrate
from .replace import not_there, put_back
from .shards import Location, shard_name
from .tensors import TensorTable

_LARGEST_JOURNAL = 1 << 30
_TABLES = (
    "values", "params", "calls", "module_calls", "module_ends", "facts", "functions", "states", "codes", "places",
    "statements", "sources", "sites", "objects", "layouts", "tensors", "storages", "kept", "made",
)  # fmt: skip


def recover_trace(path: Path) -> Trace:
    """The intact part of a trace whose saving was interrupted. Tensors are read on access."""
    put_back(path)
    if (path / MANIFEST).is_file():
        return _from_bundle(path)
    journal = open_journal(path)
    if "fastlog" in journal.head:
        raise is_recording(path)
    warnings = ["this log was recovered: the forward pass, or its saving, was cut short", *journal.warnings]
    with blaming(str(path / JOURNAL)):
        tables, rows = _join(journal.lines)
        tables |= dict(journal.head["tables"])
        tables["warnings"] = [*tables["warnings"], *warnings]
        tables = migrate(tables, journal.head["schema"])
        _put_back(tables, rows)
    return read_tables(tables, journal.table, stored_in(journal.table))


def _from_bundle(path: Path) -> Trace:
    """The trace in a finished bundle, some of whose tensors may be damaged."""
    tables, table = open_bundle(path, damaged=True)
    if "fastlog" in tables:
        raise is_recording(path)
    damage = list(table.find_damage())
    trace = read_tables(tables, table, stored_in(table))
    if damage:
        trace.values_kept = False
        trace.warnings += ["this log was recovered: its files are damaged", *damage]
    return trace


def is_recording(path: Path) -> BundleError:
    return BundleError(f"{path} holds a recording of tl.fastlog; tl.fastlog.recover({str(path)!r}) reads it")


def is_fastlog(path: Path) -> bool:
    """Does the folder hold a recording of tl.fastlog, complete or not, rather than a log?"""
    return "fastlog" in (open_bundle(path)[0] if (path / MANIFEST).is_file() else open_journal(path).head)


class Journal(NamedTuple):
    """What had been written when writing was interrupted."""

    head: dict[str, Any]
    lines: list[dict[str, Any]]
    table: TensorTable
    warnings: list[str]  # what is lost


def open_journal(path: Path) -> Journal:
    """Read the intact part of a journal."""
    if not path.is_dir():
        raise not_there(path)
    text_lines = read_small_file(path, JOURNAL, _LARGEST_JOURNAL).split(b"\n")
    warnings = []
    if text_lines.pop():
        warnings.append("the last line of the journal was incomplete and was dropped")
    if not text_lines:
        raise BundleError(f"{path / JOURNAL} is empty: nothing had been written yet")
    with blaming(str(path / JOURNAL)):
        head = _check_head(parse(text_lines[0], "its first line"))
        lines = _parsed(text_lines[1:], warnings)
        warnings = [*_count(head, lines), *warnings]
        locations = [_location(row) for line in lines for row in line.get("storages", [])]
        layouts, rows = ([row for line in lines for row in line.get(name, [])] for name in ("layouts", "tensors"))
        table = TensorTable(path, layouts, rows, locations)
    return Journal(head, lines, table, [*warnings, *table.find_damage()])


def _count(head: dict[str, Any], lines: list[dict[str, Any]]) -> Iterator[str]:
    """How many tensors had been handed over to be written, and how many of them were."""
    handed, written = integer(head.get("handed", 0)), sum("tensors" in line for line in lines)
    if written < handed:
        lost = handed - written
        yield f"{lost} of {handed} tensors had not been written when the process ended: they are lost"
    elif handed:
        yield f"all {handed} tensors that had been computed until then were written"


def _check_head(head: Any) -> dict[str, Any]:
    if type(head) is not dict or head.get("format") != FORMAT:
        raise BundleError("it is not the journal of a torchlens bundle")
    check_schema(head["schema"])
    return head


def _parsed(lines: list[bytes], warnings: list[str]) -> list[dict[str, Any]]:
    """The lines up to the first that can't be read; later ones would refer to rows that are missing."""
    parsed: list[dict[str, Any]] = []
    for number, line in enumerate(lines):
        try:
            new = parse(line, "a line")
            if type(new) is not dict or any(type(new.get(name, [])) is not list for name in _TABLES):
                raise BundleError("a line must be a JSON object of lists")
            parsed.append(new)
        except BundleError as error:
            warnings.append(f"line {number + 2} of the journal can't be read ({error}); it and the rest are dropped")
            break
    return parsed


def _join(lines: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """The tables, from what each line added to them."""
    rows: dict[str, list[Any]] = {name: [] for name in _TABLES}
    for line in lines:
        for name in _TABLES:
            added = line.get(name, [])
            rows[name] += [added] if name in ("kept", "made") and added else added
    apart = ("storages", "layouts", "tensors", "kept", "made", "module_ends")
    tables: dict[str, Any] = {name: table for name, table in rows.items() if name not in apart}
    nothing: dict[str, Any] = {
        "completeness": None,
        "gradients": None,
        "output": None,
        "events": [],
        "interventions": [],
        "applied": [],
        "listed": None,
        "complete": False,
    }
    return tables | nothing, rows


def _location(row: Any) -> Location:
    file, start, size, digest = row
    name = text(file)
    if name != shard_name(int(name[8:13])):
        raise BundleError(f"{name[:80]!r} is not the name of a file of a bundle")
    return Location(name, integer(start), integer(size), text(digest))


def _put_back(tables: dict[str, Any], rows: dict[str, list[Any]]) -> None:
    """Enter into the rows what was kept of each value, and where each module call ended."""
    values, calls = tables["values"], tables["module_calls"]
    for index, number in rows["kept"]:
        values[integer(index)] = ValueRow(*values[index])._replace(tensor=number)
    for index, number in rows["made"]:
        values[integer(index)] = ValueRow(*values[index])._replace(transformed=["kept", number])
    last = len(tables["calls"])  # a module call that was still running ends where the trace does
    calls[:] = [ModuleCallRow(*row)._replace(stop=last) for row in calls]
    for row in rows["module_ends"]:
        end = ModuleEndRow(*row)
        number = integer(end.module_call)
        calls[number] = calls[number]._replace(stop=end.stop, exited=end.exited)
