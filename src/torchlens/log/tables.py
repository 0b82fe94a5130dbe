"""Records as tables: for pandas, as CSV, Parquet or JSON.

A row has every public property of a record but tensors, other records and lists as long as the log. There is no list of
columns to keep up to date: a new property is a new column.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, PassNeededError, TorchVersionError, near

#: Tensors, records, Python objects; and ancestors, of which every row of a deep model would list thousands.
_NO_COLUMNS = {
    "activation", "activation_before_edit", "captured_args", "captured_kwargs", "func_applied", "func_call_stack",
    "func_rng_states", "grad_fns", "gradient", "gradients", "internally_initialized_ancestors", "output_descendants",
    "passes", "root_ancestors", "transformed_activation", "transformed_gradient", "transformed_gradients", "value",
}  # fmt: skip

Target = str | PathLike[str]


class Tabular:
    """Base of the records that can be written as a table."""

    def _table_records(self) -> Iterable[Any]:
        """The records that are the rows: a single record is its own."""
        return [self]

    def to_pandas(self, columns: Sequence[str] | None = None) -> Any:
        """A pandas data frame; needs pandas.

        >>> log.to_pandas(["layer_label", "tensor_shape", "containing_module"]).loc[3].tolist()
        ['linear_1_3', [5, 5], 'fc']
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError('to_pandas needs pandas: pip install "forwardlens[tables]"') from error
        names, rows = _table(self, columns)
        return pandas.DataFrame(rows, columns=names)

    def to_csv(self, path: Target | None = None, columns: Sequence[str] | None = None) -> str | None:
        """Write CSV into a file, or return it. Lists are written as JSON.

        >>> print(log.params.to_csv(columns=["address", "shape"]).strip())
        address,shape
        fc.weight,"[5, 5]"
        fc.bias,[5]
        """
        names, rows = _table(self, columns, path)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        for row in rows:
            writer.writerow([_as_text(row[name]) for name in names])
        return _written(text.getvalue(), path)

    def to_json(self, path: Target | None = None, columns: Sequence[str] | None = None) -> str | None:
        """Write a JSON list of objects into a file, or return it.

        >>> log.buffers.to_json(columns=["address", "used_by"])
        '[{"address": "example_buffer", "used_by": ["mul_1_10"]}]'
        """
        _, rows = _table(self, columns, path)
        return _written(json.dumps(rows, ensure_ascii=False), path)

    def to_parquet(self, path: Target, columns: Sequence[str] | None = None) -> None:
        """Write a Parquet file; needs pyarrow. Lists of one type stay lists, all others become JSON.

        >>> log.modules.to_parquet(folder / "modules.parquet")
        """
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            raise ImportError('to_parquet needs pyarrow: pip install "forwardlens[tables]"') from error
        names, rows = _table(self, columns, path)
        arrays = [_arrow_array(pyarrow, [row[name] for row in rows]) for name in names]
        pyarrow.parquet.write_table(pyarrow.table(arrays, names=names), path)


@cache
def column_names(kind: type) -> tuple[str, ...]:
    """The columns of a class of records, in the order they are defined."""
    members = {name: member for owner in reversed(kind.__mro__) for name, member in vars(owner).items()}
    answers = (property, cached_property)
    names = (name for name, member in members.items() if isinstance(member, answers))
    return tuple(name for name in names if not name.startswith("_") and name not in _NO_COLUMNS)


def _table(
    source: Tabular, columns: Sequence[str] | None, path: Target | None = None
) -> tuple[list[str], list[dict[str, Any]]]:
    if path is not None and not isinstance(path, (str, PathLike)):
        raise ArgumentError(f"the first argument is a path; columns={path!r} chooses columns")
    records = list(source._table_records())
    columns = [columns] if isinstance(columns, str) else columns
    known = list(dict.fromkeys(name for kind in dict.fromkeys(map(type, records)) for name in column_names(kind)))
    for name in columns or ():
        if records and not all(hasattr(type(record), name) for record in records):
            raise ArgumentError(f"no column {name!r}{near(name, known)}")
    names = known if columns is None else list(columns)
    ask = getattr if columns is not None else _if_it_tells
    return names, [{name: _cell(ask(record, name)) for name in names} for record in records]


def _if_it_tells(record: Any, name: str) -> Any:
    """A property of a record; None if this torch can't tell or calls differ: the column was not asked for by name."""
    try:
        return getattr(record, name)
    except (TorchVersionError, PassNeededError):
        return None


def _cell(thing: Any) -> Any:
    """Plain data: numbers, strings, lists and dicts of them."""
    if thing is None or isinstance(thing, (bool, int, str)):
        return thing
    if isinstance(thing, float):
        return thing if math.isfinite(thing) else str(thing)
    if isinstance(thing, (list, tuple, set, frozenset)):
        return [_cell(member) for member in thing]
    if isinstance(thing, dict):
        return {str(key): _cell(member) for key, member in thing.items()}
    return str(thing)


def _arrow_array(pyarrow: Any, cells: list[Any]) -> Any:
    """A column has one type: what has none becomes JSON."""
    try:
        if not any(isinstance(cell, dict) for cell in cells):
            return pyarrow.array(cells)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, OverflowError):
        pass
    return pyarrow.array([None if cell is None else str(_as_text(cell)) for cell in cells])


def _as_text(cell: Any) -> Any:
    return json.dumps(cell, ensure_ascii=False) if isinstance(cell, (list, dict)) else cell


def _written(text: str, path: Target | None) -> str | None:
    if path is None:
        return text
    Path(path).write_text(text, encoding="utf-8")
    return None
