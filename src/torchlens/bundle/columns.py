"""The columns of the tables, by name, each with its kind (column_kinds.py): how it is written and read.

Writing, reading, streaming and recovering all use these. A row is written as a list in this order. A new field of a
record is one more column here, with the same name. To change columns, raise `SCHEMA` and add the step that migrates
older tables (migrate.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from ..capture.dispatcher import MissedOperation, UnknownTensor
from ..capture.gradients import SavedForBackward
from .checks import flag, integer, listed, number, optional, text
from .column_kinds import (
    ADDRESS,
    ARGUMENTS,
    CALL,
    CALLS_SO_FAR,
    COUNT,
    DEVICE,
    DTYPE,
    EDITED,
    FACTS,
    FLAG,
    FUNCTION,
    INTERVENTION,
    JAGGED,
    KEYWORD_ARGUMENTS,
    MODULE,
    MODULE_CALL,
    NAME,
    NODES,
    OPTIONAL_COUNT,
    OPTIONAL_TEXT,
    ORDINAL,
    OUTPUTS,
    PYTHON,
    RNG,
    ROLE,
    SHAPE,
    SITE,
    STATE,
    STATEMENT,
    TEXT,
    TEXTS,
    VALUE,
    VALUES,
    or_none,
    rows_of,
)

SCHEMA = 3  # of the columns below
OLDEST = 2  # of the schemas that are still read

#: The fields of a trace that are plain values, each with its check.
PLAIN: dict[str, Callable[[Any], Any]] = {
    "model_name": text,
    "values_kept": flag,
    "complete": flag,
    "grad_enabled": flag,
    "submodule": lambda thing: optional(text, thing),
    "start_time": number,
    "end_time": number,
    "seconds": number,
    "warnings": lambda thing: listed(text, thing),
    "listed": lambda thing: optional(lambda numbers: listed(integer, numbers), thing),
}

#: Names in files of fields that were renamed.
NAMES_IN_FILES = {"submodule": "within"}


class ValueRow(NamedTuple):
    """Of `values` and `params`. The columns without a kind describe what was kept of the value."""

    role: Annotated[Any, ROLE]
    call: Annotated[Any, CALL]
    position: Annotated[Any, OPTIONAL_COUNT]
    address: Annotated[Any, OPTIONAL_TEXT]
    facts: Annotated[Any, FACTS]
    grad_fn: Annotated[Any, OPTIONAL_TEXT]
    tensor: Any  # row of `tensors`: what was kept
    parameter: Any  # of a parameter that was kept: does it require grad?
    transformed: Any  # what `activation_postfunc` returned, encoded


class CallRow(NamedTuple):
    """Of `calls`."""

    function: Annotated[Any, FUNCTION]
    args: Annotated[Any, ARGUMENTS]
    kwargs: Annotated[Any, KEYWORD_ARGUMENTS]
    outputs: Annotated[Any, OUTPUTS]
    written: Annotated[Any, VALUES]
    module_call: Annotated[Any, MODULE_CALL]
    site: Annotated[Any, SITE]
    time: Annotated[Any, COUNT]
    rng: Annotated[Any, RNG]
    state: Annotated[Any, STATE]


class ModuleCallRow(NamedTuple):
    """Of `module_calls`."""

    module: Annotated[Any, MODULE]
    number: Annotated[Any, ORDINAL]
    parent: Annotated[Any, MODULE_CALL]
    site: Annotated[Any, SITE]
    start: Annotated[Any, CALLS_SO_FAR]
    stop: Annotated[Any, CALLS_SO_FAR]
    entered: Annotated[Any, VALUES]
    exited: Annotated[Any, VALUES]


class ModuleEndRow(NamedTuple):
    """Of `module_ends`, in journals only: what became known of a module call when it ended."""

    module_call: Any
    stop: Any
    exited: Any


class EventRow(NamedTuple):
    """Of `events`."""

    function: Annotated[Any, TEXT]
    values: Annotated[Any, VALUES]
    result: Annotated[Any, PYTHON]
    module_call: Annotated[Any, MODULE_CALL]
    call: Annotated[Any, CALLS_SO_FAR]
    site: Annotated[Any, STATEMENT]


class AppliedRow(NamedTuple):
    """Of `applied`."""

    intervention: Annotated[Any, INTERVENTION]
    value: Annotated[Any, VALUE]
    call: Annotated[Any, CALL]
    before: Annotated[Any, EDITED]
    after: Annotated[Any, EDITED]


class SavedRow(NamedTuple):
    """Of `saved`, in a `NodeRow`."""

    name: Annotated[Any, TEXT]
    nbytes: Annotated[Any, COUNT]
    memory: Annotated[Any, ADDRESS]
    is_param: Annotated[Any, FLAG]


class NodeRow(NamedTuple):
    """Of `nodes`, in `gradients`."""

    name: Annotated[Any, TEXT]
    call: Annotated[Any, CALL]
    next: Annotated[Any, NODES]
    saved: Annotated[Any, or_none(rows_of(SavedRow, SavedForBackward, tuple))]
    param: Annotated[Any, OPTIONAL_TEXT]
    value: Annotated[Any, OPTIONAL_COUNT]


class ModuleRow(NamedTuple):
    """Of `modules`."""

    address: Annotated[Any, TEXT]
    all_addresses: Annotated[Any, TEXTS]
    class_name: Annotated[Any, TEXT]
    training: Annotated[Any, FLAG]
    class_qualname: Annotated[Any, TEXT]
    bases: Annotated[Any, TEXTS]


class TensorInfoRow(NamedTuple):
    """Of `param_infos` and `buffer_infos`."""

    address: Annotated[Any, TEXT]
    all_addresses: Annotated[Any, TEXTS]
    shape: Annotated[Any, SHAPE]
    dtype: Annotated[Any, DTYPE]
    device: Annotated[Any, DEVICE]
    trainable: Annotated[Any, FLAG]


class MissedRow(NamedTuple):
    """Of `missed`, in the `CompletenessRow`."""

    operation: Annotated[Any, TEXT]
    file: Annotated[Any, NAME]
    line: Annotated[Any, COUNT]


class UnknownRow(NamedTuple):
    """Of `unknown`, in the `CompletenessRow`."""

    shape: Annotated[Any, JAGGED]
    file: Annotated[Any, NAME]
    line: Annotated[Any, COUNT]
    why: Annotated[Any, NAME]


class CompletenessRow(NamedTuple):
    """The only row of `completeness`."""

    operations: Annotated[Any, COUNT]
    missed: Annotated[Any, rows_of(MissedRow, MissedOperation)]
    unknown: Annotated[Any, rows_of(UnknownRow, UnknownTensor)]
