"""The kinds of columns: how a field of a record is written as plain data, and how that data is checked and read.

Each column in columns.py has a kind. Its `writer` and `reader` are called once for each table, with the encoder or
decoder whose tables the rows refer to, and return a function of a single field: most are the check itself, so that a
field costs one call. Nothing in a file is trusted: what `writer` could not have written, `reader` refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

import torch

from ..capture.records import NO_KWARGS, fetched
from .checks import as_list, at, flag, in_range, integer, listed, one_of, sizes, text
from .rows import clean, plain_sizes
from .tensors import dtype_name, dtype_named

if TYPE_CHECKING:
    from .decode import RecordDecoder
    from .encode import RecordEncoder

Field = Callable[[Any], Any]


class ColumnKind(NamedTuple):
    """How the fields of a column are written and read."""

    writer: Callable[[RecordEncoder], Field | None]  # None: written as it is
    reader: Callable[[RecordDecoder], Field]


@cache
def column_kinds(row: Any) -> dict[str, ColumnKind]:
    """The kind of each column of a row that is a field of its record."""
    hints = get_type_hints(row, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}


def row_writer(row: Any, encoder: RecordEncoder) -> Callable[..., Any]:
    """A function from a record to its row; columns that are not fields of the record are given by name."""
    kinds = column_kinds(row)
    columns = [(name, kinds[name].writer(encoder) if name in kinds else None) for name in row._fields]

    def write_row(record: Any, **given: Any) -> Any:
        cells = [
            (given[name] if name in given else getattr(record, name) if write is None else write(getattr(record, name)))
            for name, write in columns
        ]
        return row._make(cells)

    return write_row


def row_reader(row: Any, decoder: RecordDecoder) -> Callable[[Any], dict[str, Any]]:
    """A function from a row to the fields of its record, by name."""
    kinds = column_kinds(row)
    columns = [(n, name, kinds[name].reader(decoder)) for n, name in enumerate(row._fields) if name in kinds]
    return lambda cells: {name: read(cells[n]) for n, name, read in columns}


def _unchanged(encoder: Any) -> None:
    """The writer of fields that are plain data already."""


def as_it_is(check: Field) -> ColumnKind:
    """Numbers, truth values and strings, written as they are."""
    return ColumnKind(_unchanged, lambda decoder: check)


def or_none(kind: ColumnKind) -> ColumnKind:
    """The same, for a field that may be None."""

    def writer(encoder: RecordEncoder) -> Field:
        write = kind.writer(encoder)
        assert write is not None
        return lambda field: None if field is None else write(field)

    def reader(decoder: RecordDecoder) -> Field:
        read = kind.reader(decoder)
        return lambda data: None if data is None else read(data)

    return ColumnKind(writer, reader)


def rows_of(row: Any, record: Any, container: Callable[[Any], Any] = list) -> ColumnKind:
    """Records that have rows of their own, inside the row of another."""

    def writer(encoder: RecordEncoder) -> Field:
        write = row_writer(row, encoder)
        return lambda field: [write(each) for each in field]

    def reader(decoder: RecordDecoder) -> Field:
        read = row_reader(row, decoder)
        return lambda data: container(listed(lambda each: record(**read(row(*each))), data))

    return ColumnKind(writer, reader)


def _number_in(table: Sequence[Any]) -> Field:
    """The reader of a row's number in a table."""
    return lambda data: table[data] if type(data) is int and 0 <= data < len(table) else at(table, data)


# ---- numbers and strings ------------------------------------------------------------------------------------------

COUNT = as_it_is(integer)
FLAG = as_it_is(flag)
TEXT = as_it_is(text)
NAME = ColumnKind(lambda encoder: clean, lambda decoder: text)
OPTIONAL_TEXT = as_it_is(lambda data: None if data is None else text(data))
OPTIONAL_COUNT = as_it_is(lambda data: None if data is None else integer(data))
TEXTS = as_it_is(lambda data: tuple(listed(text, data)))
ADDRESS = as_it_is(in_range(0, 2**64))  # in memory
ORDINAL = as_it_is(in_range(1))
ROLE = as_it_is(lambda data: one_of(("input", "buffer", "param", "source", "op", "update", "output"), data))

# ---- rows of other tables -----------------------------------------------------------------------------------------

#: A torch call; -1 for none.
CALL = ColumnKind(_unchanged, lambda decoder: in_range(-1, decoder.call_count - 1))

#: How many torch calls had been recorded.
CALLS_SO_FAR = ColumnKind(_unchanged, lambda decoder: in_range(0, decoder.call_count))


def _read_nodes(decoder: RecordDecoder) -> Field:
    node = in_range(0, decoder.node_count - 1)
    return lambda data: tuple([node(each) for each in data])


#: Nodes of autograd's graph.
NODES = ColumnKind(_unchanged, _read_nodes)

#: A call of a module; -1 for none.
MODULE_CALL = ColumnKind(_unchanged, lambda decoder: in_range(-1, decoder.module_call_count - 1))

MODULE = ColumnKind(_unchanged, lambda decoder: in_range(0, len(decoder.modules) - 1))
INTERVENTION = ColumnKind(_unchanged, lambda decoder: in_range(0, len(decoder.tables["interventions"]) - 1))
FACTS = ColumnKind(lambda encoder: encoder.facts.number, lambda decoder: _number_in(decoder.facts))
SITE = ColumnKind(lambda encoder: encoder.places.number, lambda decoder: _number_in(decoder.sites))
STATE = ColumnKind(lambda encoder: encoder.states.number, lambda decoder: _number_in(decoder.states))


def _write_function(encoder: RecordEncoder) -> Field:
    number = encoder.functions.number
    return lambda field: number(field, id(field))


FUNCTION = ColumnKind(_write_function, lambda decoder: _number_in(decoder.functions))


def _write_statement(encoder: RecordEncoder) -> Field:
    def write(site: Any) -> int:
        number = encoder.places.number(site)
        encoder.places.note_statement(site)
        return number

    return write


#: A site whose statement decided something.
STATEMENT = ColumnKind(_write_statement, SITE.reader)

# ---- values and arguments -----------------------------------------------------------------------------------------


def _read_outputs(decoder: RecordDecoder) -> Field:
    value = _number_in(decoder.values)
    return lambda data: tuple(listed(value, data))


def _read_arguments(decoder: RecordDecoder) -> Field:
    decode_all = decoder.python.decode_all
    return lambda data: tuple(decode_all(as_list(data)))


def _write_keywords(encoder: RecordEncoder) -> Field:
    encode = encoder.python.encode
    return lambda field: [[name, encode(argument)] for name, argument in field.items()]


def _read_keywords(decoder: RecordDecoder) -> Field:
    decode = decoder.python.decode
    return lambda data: {text(name): decode(argument) for name, argument in data} or NO_KWARGS


PYTHON = ColumnKind(lambda encoder: encoder.python.encode, lambda decoder: decoder.python.decode)
VALUE = ColumnKind(PYTHON.writer, lambda decoder: lambda data: decoder.values_of([data])[0])
VALUES = ColumnKind(lambda encoder: encoder.python.encode_all, lambda decoder: decoder.values_of)
OUTPUTS = ColumnKind(lambda encoder: lambda field: [value.index for value in field], _read_outputs)
ARGUMENTS = ColumnKind(lambda encoder: encoder.python.encode_all, _read_arguments)
KEYWORD_ARGUMENTS = ColumnKind(_write_keywords, _read_keywords)

# ---- tensors ------------------------------------------------------------------------------------------------------


def _write_rng(encoder: RecordEncoder) -> Field:
    def write(state: Any) -> int | None:
        state = fetched(state) if encoder.arguments else None
        return None if state is None else encoder.tensors.add(state, "rng")

    return write


def _write_edited(encoder: RecordEncoder) -> Field:
    def write(tensor: Any) -> int | None:
        tensor = fetched(tensor) if encoder.activations else None
        return None if tensor is None else encoder.tensors.add(tensor.detach(), "edited")

    return write


def _read_kept(decoder: RecordDecoder) -> Field:
    return lambda data: None if data is None else decoder.kept_tensor(data)


RNG = ColumnKind(_write_rng, _read_kept)
EDITED = ColumnKind(_write_edited, _read_kept)
SHAPE = as_it_is(lambda data: None if data is None else torch.Size(sizes(data)))
DTYPE = ColumnKind(lambda encoder: dtype_name, lambda decoder: dtype_named)
DEVICE = ColumnKind(lambda encoder: str, lambda decoder: lambda data: torch.device(text(data)))
JAGGED = ColumnKind(lambda encoder: plain_sizes, lambda decoder: lambda data: sizes(data, -1))
