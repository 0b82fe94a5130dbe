"""What is whole in a folder that was cut short."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..capture.records import Recording
from ..errors import BundleError
from .checks import blaming, integer, parse, read_small_file, text
from .load import JOURNAL, StoredTensor, load_recording
from .records import read_tables
from .save import FORMAT, MANIFEST, SCHEMA
from .shards import Location, shard_name
from .tensors import TensorTable

_LARGEST_JOURNAL = 1 << 30
_TABLES = (
    "values", "params", "calls", "module_calls", "module_ends", "facts", "functions", "states", "codes", "places",
    "statements", "sources", "sites", "objects", "layouts", "tensors", "storages", "kept", "made",
)  # fmt: skip


def recover_recording(path: Path) -> Recording:
    """The recording of a forward pass whose saving was cut short, as far as it is whole. Tensors stay in the files."""
    if (path / MANIFEST).is_file():
        return load_recording(path, lazy=True)
    if not path.is_dir():
        raise BundleError(f"{path} is not a folder" if path.exists() else f"{path} does not exist")
    lines = read_small_file(path, JOURNAL, _LARGEST_JOURNAL).split(b"\n")
    warnings = ["this log was recovered: the forward pass, or its saving, was cut short"]
    if lines.pop():
        warnings.append("the last line of the journal was incomplete; what it was about is dropped")
    if not lines:
        raise BundleError(f"{path / JOURNAL} is empty: nothing had been written yet")
    with blaming(str(path / JOURNAL)):
        head = _check_head(parse(lines[0], "its first line"))
        tables, rows = _join(lines[1:], warnings)
        locations = [_location(row) for row in rows["storages"]]
    whole = [_is_whole(location, path) for location in locations]
    if not all(whole):
        warnings.append(f"{whole.count(False)} of {len(whole)} pieces of memory were incomplete or damaged")
    tables |= head
    tables["warnings"] = [*tables["warnings"], *warnings]
    with blaming(str(path / JOURNAL)):
        table = TensorTable(path, rows["layouts"], rows["tensors"], locations)
        _put_back(tables, rows, table, whole)
    return read_tables(tables, table, lambda number, requires_grad: StoredTensor(table, number, requires_grad))


def _check_head(head: Any) -> dict[str, Any]:
    if type(head) is not dict or head.get("format") != FORMAT:
        raise BundleError("it is not the journal of a torchlens bundle")
    if integer(head["schema"], 1) > SCHEMA:
        raise BundleError(f"it has schema {head['schema']}, but this version reads up to {SCHEMA}")
    tables: dict[str, Any] = head["tables"]
    return dict(tables)


def _join(lines: list[bytes], warnings: list[str]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """The tables, from what each line added to them. After a line that can't be read, nothing makes sense."""
    rows: dict[str, list[Any]] = {name: [] for name in _TABLES}
    for number, line in enumerate(lines):
        try:
            new = parse(line, "a line")
            if type(new) is not dict:
                raise BundleError("a line is a JSON object")
            for name in _TABLES:
                added = new.get(name, [])
                rows[name] += [added] if name in ("kept", "made") and added else added
        except (BundleError, TypeError) as error:
            warnings.append(f"line {number + 2} of the journal can't be read ({error}); it and the rest are dropped")
            break
    apart = ("storages", "layouts", "tensors", "kept", "made", "module_ends")
    tables: dict[str, Any] = {name: table for name, table in rows.items() if name not in apart}
    nothing: dict[str, Any] = {
        "completeness": None,
        "gradients": None,
        "output": None,
        "events": [],
        "listed": None,
        "complete": False,
    }
    return tables | nothing, rows


def _location(row: Any) -> Location:
    file, start, size, digest = row
    name = text(file)
    if name != shard_name(int(name[8:13])):
        raise BundleError(f"no file of a bundle is called {name[:80]!r}")
    return Location(name, integer(start), integer(size), text(digest))


def _is_whole(location: Location, path: Path) -> bool:
    try:
        location.check(path)
    except BundleError:
        return False
    return True


def _put_back(tables: dict[str, Any], rows: dict[str, list[Any]], table: TensorTable, whole: list[bool]) -> None:
    """Tell the values what was kept of them."""
    for index, number in rows["kept"]:
        if all(whole[storage] for storage in table.storages_of(integer(number, 0, len(table) - 1))):
            tables["values"][integer(index)][6] = number
    for index, number in rows["made"]:
        if all(whole[storage] for storage in table.storages_of(integer(number, 0, len(table) - 1))):
            tables["values"][integer(index)][8] = ["kept", number]
    for row in tables["module_calls"]:
        row[5] = len(tables["calls"])  # what was still running ended where the recording does
    for number, stop, exited in rows["module_ends"]:
        row = tables["module_calls"][integer(number)]
        row[5], row[7] = stop, exited
