"""The columns of the tables, by name. Writing, reading, streaming and recovering all go by these.

A row is written as a list in this order. To change a column, raise `SCHEMA` and add the step that brings older tables
to the new columns (migrate.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

SCHEMA = 3  # of the columns below
OLDEST = 2  # of the schemas that are still read


class ValueRow(NamedTuple):
    """Of `values` and `params`."""

    role: Any
    call: Any
    position: Any
    address: Any
    facts: Any  # row of `facts`
    grad_fn: Any
    tensor: Any  # row of `tensors`: what was kept
    parameter: Any  # of a parameter that was kept: does it require grad?
    transformed: Any  # what the user's function made of it, encoded


class CallRow(NamedTuple):
    """Of `calls`."""

    function: Any  # row of `functions`
    args: Any
    kwargs: Any
    outputs: Any  # rows of `values`
    written: Any
    module_call: Any  # row of `module_calls`
    site: Any  # row of `sites`
    time: Any
    rng: Any  # row of `tensors`
    state: Any  # row of `states`


class ModuleCallRow(NamedTuple):
    """Of `module_calls`."""

    module: Any  # row of `modules`
    number: Any
    parent: Any  # row of `module_calls`
    site: Any
    start: Any  # rows of `calls`, from and to
    stop: Any
    entered: Any
    exited: Any


class ModuleEndRow(NamedTuple):
    """Of `module_ends`, in journals only: what became known of a module call when it ended."""

    module_call: Any
    stop: Any
    exited: Any


class EventRow(NamedTuple):
    """Of `events`."""

    function: Any
    values: Any
    result: Any
    module_call: Any
    call: Any
    site: Any


class AppliedRow(NamedTuple):
    """Of `applied`."""

    intervention: Any  # row of `interventions`
    value: Any
    call: Any
    before: Any  # rows of `tensors`
    after: Any


class NodeRow(NamedTuple):
    """Of `nodes`, in `gradients`."""

    name: Any
    call: Any
    next: Any
    saved: Any  # rows as SavedForBackward has fields; None if it was not looked at
    param: Any
    value: Any


class ModuleRow(NamedTuple):
    """Of `modules`."""

    address: Any
    all_addresses: Any
    class_name: Any
    training: Any
    class_qualname: Any
    bases: Any


class TensorInfoRow(NamedTuple):
    """Of `param_infos` and `buffer_infos`."""

    address: Any
    all_addresses: Any
    shape: Any
    dtype: Any
    device: Any
    trainable: Any


class CompletenessRow(NamedTuple):
    """The only row of `completeness`."""

    operations: Any
    missed: Any
    unknown: Any
