"""The kinds of columns: how a field of a record is written as plain data, and how that is checked and read.

Each column in columns.py has a kind. `write` is given the field and the `RecordEncoder`, `read` the data and the
`RecordDecoder`; both know the tables that rows refer to by number. What is read may come from anybody: `read` raises
for whatever `write` could not have written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

import torch

from ..capture.records import NO_KWARGS, fetched
from .checks import at, flag, integer, listed, one_of, optional, sizes, text
from .rows import clean, plain_sizes
from .tensors import dtype_name, dtype_named

if TYPE_CHECKING:
    from .decode import RecordDecoder
    from .encode import RecordEncoder


class ColumnKind(NamedTuple):
    """How the fields of a column are written and read."""

    write: Callable[[Any, RecordEncoder], Any]
    read: Callable[[Any, RecordDecoder], Any]


@cache
def column_kinds(row: Any) -> dict[str, ColumnKind]:
    """The kind of each column of a row that is a field of its record."""
    hints = get_type_hints(row, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}


def to_row(row: Any, record: Any, encoder: RecordEncoder, **given: Any) -> Any:
    """The row of a record; columns that are no fields of it, or are known already, are `given`."""
    for name, (write, _) in column_kinds(row).items():
        if name not in given:
            given[name] = write(getattr(record, name), encoder)
    return row(**given)


def from_row(row: Any, decoder: RecordDecoder) -> dict[str, Any]:
    """The fields of a record, by name, from its row."""
    columns: Any = type(row)
    return {name: read(getattr(row, name), decoder) for name, (_, read) in column_kinds(columns).items()}


def _unchanged(field: Any, encoder: Any) -> Any:
    return field


def as_it_is(check: Callable[[Any], Any]) -> ColumnKind:
    """Numbers, truths and texts, written as they are."""
    return ColumnKind(_unchanged, lambda data, decoder: check(data))


def or_none(kind: ColumnKind) -> ColumnKind:
    """The same, for a field that may be None."""
    write, read = kind
    return ColumnKind(
        lambda field, encoder: None if field is None else write(field, encoder),
        lambda data, decoder: None if data is None else read(data, decoder),
    )


def rows_of(row: Any, record: Any, container: Callable[[Any], Any] = list) -> ColumnKind:
    """Records that have rows of their own, inside the row of another."""
    return ColumnKind(
        lambda field, encoder: [to_row(row, each, encoder) for each in field],
        lambda data, decoder: container(listed(lambda each: record(**from_row(row(*each), decoder)), data)),
    )


def _anything(thing: Any) -> Any:
    return thing


# ---- numbers and texts --------------------------------------------------------------------------------------------

COUNT = as_it_is(integer)
FLAG = as_it_is(flag)
TEXT = as_it_is(text)
NAME = ColumnKind(lambda field, encoder: clean(field), lambda data, decoder: text(data))
OPTIONAL_TEXT = as_it_is(lambda data: optional(text, data))
OPTIONAL_COUNT = as_it_is(lambda data: optional(integer, data))
TEXTS = as_it_is(lambda data: tuple(listed(text, data)))
ADDRESS = as_it_is(lambda data: integer(data, 0, 2**64))  # in memory
ORDINAL = as_it_is(lambda data: integer(data, 1))
ROLE = as_it_is(lambda data: one_of(("input", "buffer", "param", "source", "op", "update", "output"), data))

# ---- rows of other tables -----------------------------------------------------------------------------------------

#: A torch call; -1 for none.
CALL = ColumnKind(_unchanged, lambda data, decoder: integer(data, -1, decoder.call_count - 1))

#: How many torch calls had been recorded.
CALLS_SO_FAR = ColumnKind(_unchanged, lambda data, decoder: integer(data, 0, decoder.call_count))

#: Nodes of autograd's graph.
NODES = ColumnKind(_unchanged, lambda data, decoder: tuple([integer(node, 0, decoder.node_count - 1) for node in data]))

#: A call of a module; -1 for none.
MODULE_CALL = ColumnKind(_unchanged, lambda data, decoder: integer(data, -1, decoder.module_call_count - 1))

MODULE = ColumnKind(_unchanged, lambda data, decoder: integer(data, 0, len(decoder.modules) - 1))
INTERVENTION = ColumnKind(_unchanged, lambda data, decoder: integer(data, 0, len(decoder.tables["interventions"]) - 1))
FACTS = ColumnKind(lambda field, encoder: encoder.facts.number(field), lambda data, decoder: at(decoder.facts, data))
SITE = ColumnKind(lambda field, encoder: encoder.places.number(field), lambda data, decoder: at(decoder.sites, data))
STATE = ColumnKind(lambda field, encoder: encoder.states.number(field), lambda data, decoder: at(decoder.states, data))
FUNCTION = ColumnKind(
    lambda field, encoder: encoder.functions.number(field, id(field)),
    lambda data, decoder: at(decoder.functions, data),
)


def _write_statement(site: Any, encoder: RecordEncoder) -> int:
    number = encoder.places.number(site)
    encoder.places.note_statement(site)
    return number


#: A site whose statement decided something.
STATEMENT = ColumnKind(_write_statement, SITE.read)

# ---- values and arguments -----------------------------------------------------------------------------------------

PYTHON = ColumnKind(
    lambda field, encoder: encoder.python.encode(field),
    lambda data, decoder: decoder.python.decode(data),
)
VALUE = ColumnKind(PYTHON.write, lambda data, decoder: decoder.values_of([data])[0])
VALUES = ColumnKind(
    lambda field, encoder: encoder.python.encode_all(field),
    lambda data, decoder: decoder.values_of(data),
)
OUTPUTS = ColumnKind(
    lambda field, encoder: [value.index for value in field],
    lambda data, decoder: tuple([at(decoder.values, output) for output in listed(integer, data)]),
)
ARGUMENTS = ColumnKind(
    lambda field, encoder: encoder.python.encode_all(field),
    lambda data, decoder: tuple(decoder.python.decode_all(listed(_anything, data))),
)
KEYWORD_ARGUMENTS = ColumnKind(
    lambda field, encoder: [[name, encoder.python.encode(argument)] for name, argument in field.items()],
    lambda data, decoder: {text(name): decoder.python.decode(argument) for name, argument in data} or NO_KWARGS,
)

# ---- tensors ------------------------------------------------------------------------------------------------------


def _write_rng(state: Any, encoder: RecordEncoder) -> int | None:
    state = fetched(state) if encoder.arguments else None
    return None if state is None else encoder.tensors.add(state, "rng")


def _write_edited(tensor: Any, encoder: RecordEncoder) -> int | None:
    tensor = fetched(tensor) if encoder.activations else None
    return None if tensor is None else encoder.tensors.add(tensor.detach(), "edited")


def _read_kept(data: Any, decoder: RecordDecoder) -> Any:
    return None if data is None else decoder.kept_tensor(data)


RNG = ColumnKind(_write_rng, _read_kept)
EDITED = ColumnKind(_write_edited, _read_kept)
SHAPE = ColumnKind(_unchanged, lambda data, decoder: None if data is None else torch.Size(sizes(data)))
DTYPE = ColumnKind(lambda field, encoder: dtype_name(field), lambda data, decoder: dtype_named(data))
DEVICE = ColumnKind(lambda field, encoder: str(field), lambda data, decoder: torch.device(text(data)))

JAGGED = ColumnKind(lambda field, encoder: plain_sizes(field), lambda data, decoder: sizes(data, -1))
