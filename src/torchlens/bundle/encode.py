"""Encode a trace as tables of plain data. Rows refer to each other by number, as the records themselves do.

columns.py says which columns a row has and how each field is written; a test makes sure that none is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

from .._torch import UninitializedTensorMixin, is_functorch_wrapped
from ..capture.dispatcher import Completeness
from ..capture.gradients import Gradients
from ..capture.records import Facts, Trace, Value, fetched
from ..capture.rng import Seed
from ..capture.versions import versions_of
from ..errors import BundleError
from ..intervene.edit_data import to_data
from .column_kinds import row_writer
from .columns import (
    NAMES_IN_FILES,
    PLAIN,
    AppliedRow,
    CallRow,
    CompletenessRow,
    EventRow,
    ModuleCallRow,
    ModuleRow,
    NodeRow,
    TensorInfoRow,
    ValueRow,
)
from .places import PlaceEncoder
from .python import PythonEncoder
from .rows import Table, Tables, clean, facts_row, function_row
from .tensors import TensorEncoder, is_own_kind, plain_tensor

AnyRow = TypeVar("AnyRow")


class RecordEncoder:
    """Turns records into rows, one by one."""

    def __init__(
        self,
        trace: Trace,
        tensors: TensorEncoder,
        *,
        activations: bool = True,
        gradients: bool = True,
        arguments: bool = True,
    ) -> None:
        self.trace = trace
        self.tensors = tensors
        self.activations = activations
        self.gradients = gradients
        self.arguments = arguments
        self.python: PythonEncoder = PythonEncoder(lambda tensor: tensors.add(tensor, "array"))
        self.python.arrays = arguments
        self.facts: Table = Table(facts_row)
        self.functions: Table = Table(function_row)
        self.states: Table = Table(self.python.encode)
        self.places: PlaceEncoder = PlaceEncoder()
        self._row_writers: dict[type, Callable[..., Any]] = {}

    def row(self, kind: type[AnyRow], record: Any, **given: Any) -> AnyRow:
        """The row of a record."""
        write = self._row_writers.get(kind)
        if write is None:
            write = self._row_writers[kind] = row_writer(kind, self)
        row: AnyRow = write(record, **given)
        return row

    # ---- tensors --------------------------------------------------------------------------------------------

    def value(self, value: Value, tensor: int | None = None, transformed: Any = None) -> ValueRow:
        """A value's row, given the number of its tensor and the row of what `activation_postfunc` returned for it."""
        known = _facts_of_nothing(value.kept) if isinstance(value.kept, UninitializedTensorMixin) else value.facts
        saved = value.saved if value.role == "param" else None
        parameter = saved.requires_grad if saved is not None and isinstance(saved, Parameter) else None
        kept = {"tensor": tensor, "parameter": parameter, "transformed": transformed}
        return self.row(ValueRow, value, facts=self.facts.number(known), **kept)

    def foresee(self) -> int:
        """Find out which storages the tensors share, before any is stored; return about how many there will be."""
        for value in (*self.trace.values, *self.trace.params):
            tensor = self._wanted(value)
            if tensor is not None:
                with self._naming(value):
                    self.tensors.foresee(tensor)
        others = sum(call.rng is not None for call in self.trace.calls)
        return self.tensors.pieces + others + 8

    def keep(self, value: Value) -> tuple[int | None, Any]:
        """Store a value's tensor and its transformed result; return the tensor's number and the result's row."""
        tensor = self._wanted(value)
        made = fetched(value.transformed) if self.activations else None
        if tensor is None and made is None:
            return None, None
        name = ".".join(filter(None, (value.role, str(value.index), value.address)))
        with self._naming(value):
            number = None if tensor is None else self.tensors.add(tensor, name)
            return number, self.transformed(made, f"transformed.{name}")

    def transformed(self, made: Any, name: str) -> Any:
        if isinstance(made, Tensor):
            return [
                "kept",
                self.tensors.add(made.detach(), name) if made.requires_grad else self.tensors.add(made, name),
            ]
        self.python.arrays = True
        try:
            return self.python.encode(made)
        finally:
            self.python.arrays = self.arguments

    def _wanted(self, value: Value) -> Tensor | None:
        wanted = self.arguments if value.role == "param" else self.activations
        tensor = value.saved if wanted else None
        if tensor is None or is_functorch_wrapped(tensor) or isinstance(tensor, UninitializedTensorMixin):
            return None
        return plain_tensor(tensor)

    @contextmanager
    def _naming(self, value: Value) -> Iterator[None]:
        try:
            yield
        except BundleError as error:
            raise BundleError(f"{self._called(value)}: {error}") from error

    def _called(self, value: Value) -> str:
        function = self.trace.calls[value.call].function.name if value.call >= 0 else value.address
        return f"the {value.role} number {value.index} ({function}, shape {tuple(value.shape)})"


def _facts_of_nothing(tensor: Any) -> Facts:
    """An uninitialized parameter or buffer of a lazy module has no shape yet."""
    return torch.Size(()), tensor.dtype, tensor.device


def write_tables(encoder: RecordEncoder, keep: Callable[[Value], tuple[int | None, Any]]) -> Tables:
    """The whole trace as tables. `keep` stores a value's tensor and its transformed result."""
    trace = encoder.trace
    tables = plain_tables(encoder)
    tables["values_kept"] = trace.values_kept and encoder.activations
    tables["warnings"] += _left_out(encoder)
    tables |= {
        "seed": _seed_row(trace.seed, encoder),
        "completeness": _completeness_row(trace.completeness, encoder),
        "gradients": _gradient_rows(trace.gradients, encoder),
        "values": [encoder.value(value, *keep(value)) for value in trace.values],
        "params": [encoder.value(value, *keep(value)) for value in trace.params],
        "calls": [encoder.row(CallRow, call) for call in trace.calls],
        "module_calls": [encoder.row(ModuleCallRow, call) for call in trace.module_calls],
        "events": [encoder.row(EventRow, event) for event in trace.events],
        "interventions": [[clean(site), encoder.python.encode(to_data(edit))] for site, edit in trace.interventions],
        "applied": [encoder.row(AppliedRow, applied) for applied in trace.applied],
        "versions": {clean(name): clean(version) for name, version in versions_of(trace).items()},
        "remarks": [clean(remark) for remark in trace.remarks],
        "output": encoder.python.encode_output(trace.output),
    }  # fmt: skip
    return tables | shared_tables(encoder)


def plain_tables(encoder: RecordEncoder) -> Tables:
    """The tables that are known before the forward pass begins."""
    trace = encoder.trace
    tables: Tables = {NAMES_IN_FILES.get(name, name): getattr(trace, name) for name in PLAIN}
    tables["warnings"] = [clean(warning) for warning in trace.warnings]
    return tables | {
        "seed": [int(trace.seed), None],
        "modules": [encoder.row(ModuleRow, info) for info in trace.modules],
        "param_infos": [encoder.row(TensorInfoRow, info) for info in trace.param_infos],
        "buffer_infos": [encoder.row(TensorInfoRow, info) for info in trace.buffer_infos],
    }


def _left_out(encoder: RecordEncoder) -> Iterable[str]:
    wrapped = [
        value for value in encoder.trace.values if isinstance(value.kept, Tensor) and is_functorch_wrapped(value.kept)
    ]
    if wrapped and encoder.activations:
        yield f"{len(wrapped)} tensors inside torch.vmap or torch.func have no value outside of it; they were not saved"
    kinds = {type(v.kept) for v in encoder.trace.values if isinstance(v.kept, Tensor) and is_own_kind(v.kept)}
    if kinds and encoder.activations:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        yield f"tensors of class {names} were saved as plain tensors, with the same values"


def shared_tables(encoder: RecordEncoder) -> Tables:
    """The tables that rows of other tables refer to."""
    return {
        "facts": encoder.facts.rows,
        "functions": encoder.functions.rows,
        "states": encoder.states.rows,
        **encoder.places.tables(),
        "objects": encoder.python.objects,
        "layouts": encoder.tensors.layouts,
        "tensors": encoder.tensors.rows,
        "storages": [list(blob) for blob in encoder.tensors.storages],
    }


def _completeness_row(found: Completeness | None, encoder: RecordEncoder) -> CompletenessRow | None:
    return None if found is None else encoder.row(CompletenessRow, found)


def _gradient_rows(gradients: Gradients | None, encoder: RecordEncoder) -> Any:
    if gradients is None or not encoder.gradients:
        return None
    return {
        "nodes": [encoder.row(NodeRow, node) for node in gradients.nodes],
        "passes": [[[step.node, step.start, step.stop] for step in each.steps] for each in gradients.passes],
        "received": _by_pass(gradients.received, "gradient", encoder),
        "transformed": _by_pass(gradients.transformed, "transformed.gradient", encoder),
    }


def _by_pass(found: dict[int, dict[int, Any]], name: str, encoder: RecordEncoder) -> list[Any]:
    return [
        [index, number, encoder.transformed(fetched(gradient), f"{name}.{index}.{number}")]
        for index, gradients in found.items()
        for number, gradient in gradients.items()
    ]


def _seed_row(seed: int, encoder: RecordEncoder) -> list[Any]:
    states = seed.states if isinstance(seed, Seed) and encoder.arguments else None
    return [int(seed), encoder.python.encode(states)]
