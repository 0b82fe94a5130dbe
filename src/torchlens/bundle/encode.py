"""A trace to tables of plain data. Rows refer to each other by number, as the records themselves do.

Every field of every record is named once here and once in decode.py, as a column of columns.py; a test makes sure that
none is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from .._torch import UninitializedTensorMixin, is_functorch_wrapped
from ..capture.gradients import AutogradNode, Gradients
from ..capture.records import Applied, Call, Facts, ModuleCall, ReadEvent, Trace, Value, fetched
from ..capture.rng import Seed
from ..capture.versions import versions_of
from ..errors import BundleError
from ..intervene.edit_data import to_data
from .columns import AppliedRow, CallRow, EventRow, ModuleCallRow, NodeRow, ValueRow
from .places import PlaceEncoder
from .python import PythonEncoder
from .rows import (
    NAMES_IN_FILES,
    PLAIN,
    Table,
    Tables,
    clean,
    completeness_row,
    facts_row,
    function_row,
    module_row,
    tensor_info_row,
)
from .tensors import TensorEncoder, is_own_kind, plain_tensor


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
        self.python = PythonEncoder(lambda tensor: tensors.add(tensor, "array"))
        self.python.arrays = arguments
        self.facts = Table(facts_row)
        self.functions = Table(function_row)
        self.states = Table(self.python.encode)
        self.places = PlaceEncoder()

    # ---- tensors --------------------------------------------------------------------------------------------

    def value(self, value: Value, tensor: int | None = None, transformed: Any = None) -> ValueRow:
        """A value's row, with the number of the tensor that was kept of it and the row of what was made of it."""
        known = _facts_of_nothing(value.kept) if isinstance(value.kept, UninitializedTensorMixin) else value.facts
        facts = None if value.index < 0 else self.facts.number(known)
        saved = value.saved if value.role == "param" else None
        parameter = saved.requires_grad if isinstance(saved, Parameter) else None
        names = value.role, value.call, value.position, value.address
        return ValueRow(*names, facts, value.grad_fn, tensor, parameter, transformed)

    def foresee(self) -> int:
        """See which memory the tensors share before any is stored; return about how many pieces there will be."""
        for value in (*self.trace.values, *self.trace.params):
            tensor = self._wanted(value)
            if tensor is not None:
                with self._naming(value):
                    self.tensors.foresee(tensor)
        others = sum(call.rng is not None for call in self.trace.calls)
        return self.tensors.pieces + others + 8

    def keep(self, value: Value) -> tuple[int | None, Any]:
        """Store what was kept of a value and what was made of it; return the number of the one and the row of the
        other."""
        tensor = self._wanted(value)
        made = fetched(value.transformed) if self.activations else None
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

    # ---- calls ----------------------------------------------------------------------------------------------

    def call(self, call: Call) -> CallRow:
        state = fetched(call.rng) if self.arguments else None
        rng = None if state is None else self.tensors.add(state, "rng")
        return CallRow(
            function=self.functions.number(call.function, id(call.function)),
            args=self.python.encode_all(call.args),
            kwargs=[[name, self.python.encode(argument)] for name, argument in call.kwargs.items()],
            outputs=[value.index for value in call.outputs],
            written=self.python.encode_all(call.written),
            module_call=call.module_call,
            site=self.places.number(call.site),
            time=call.time,
            rng=rng,
            state=self.states.number(call.state),
        )

    def module_call(self, call: ModuleCall) -> ModuleCallRow:
        return ModuleCallRow(
            module=call.module,
            number=call.number,
            parent=call.parent,
            site=self.places.number(call.site),
            start=call.start,
            stop=call.stop,
            entered=self.python.encode_all(call.entered),
            exited=self.python.encode_all(call.exited),
        )

    def event(self, event: ReadEvent) -> EventRow:
        site = self.places.number(event.site)
        self.places.note_statement(event.site)
        values = self.python.encode_all(event.values)
        result = self.python.encode(event.result)
        return EventRow(event.function, values, result, event.module_call, event.call, site)

    def applied(self, applied: Applied) -> AppliedRow:
        kept = [fetched(each) if self.activations else None for each in (applied.before, applied.after)]
        numbers = [None if each is None else self.tensors.add(each.detach(), "edited") for each in kept]
        return AppliedRow(applied.intervention, self.python.encode(applied.value), applied.call, *numbers)


def _facts_of_nothing(tensor: Any) -> Facts:
    """A lazy module's parameter or buffer is nothing yet."""
    return torch.Size(()), tensor.dtype, tensor.device


def write_tables(encoder: RecordEncoder, keep: Callable[[Value], tuple[int | None, Any]]) -> Tables:
    """The whole trace as tables. `keep` stores what was kept of a value and what was made of it."""
    trace = encoder.trace
    tables = plain_tables(trace)
    tables["values_kept"] = trace.values_kept and encoder.activations
    tables["warnings"] += _left_out(encoder)
    tables |= {
        "seed": _seed_row(trace.seed, encoder),
        "completeness": completeness_row(trace.completeness),
        "gradients": _gradient_rows(trace.gradients, encoder),
        "values": [encoder.value(value, *keep(value)) for value in trace.values],
        "params": [encoder.value(value, *keep(value)) for value in trace.params],
        "calls": [encoder.call(call) for call in trace.calls],
        "module_calls": [encoder.module_call(call) for call in trace.module_calls],
        "events": [encoder.event(event) for event in trace.events],
        "interventions": [[clean(site), encoder.python.encode(to_data(edit))] for site, edit in trace.interventions],
        "applied": [encoder.applied(applied) for applied in trace.applied],
        "versions": {clean(name): clean(version) for name, version in versions_of(trace).items()},
        "remarks": [clean(remark) for remark in trace.remarks],
        "output": encoder.python.encode_output(trace.output),
    }  # fmt: skip
    return tables | shared_tables(encoder)


def plain_tables(trace: Trace) -> Tables:
    """What is known of a forward pass before it begins, or apart from its records."""
    tables: Tables = {NAMES_IN_FILES.get(name, name): getattr(trace, name) for name in PLAIN}
    tables["warnings"] = [clean(warning) for warning in trace.warnings]
    return tables | {
        "seed": [int(trace.seed), None],
        "modules": [module_row(info) for info in trace.modules],
        "param_infos": [tensor_info_row(info) for info in trace.param_infos],
        "buffer_infos": [tensor_info_row(info) for info in trace.buffer_infos],
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
    """What the rows of the other tables refer to."""
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


def _gradient_rows(gradients: Gradients | None, encoder: RecordEncoder) -> Any:
    if gradients is None or not encoder.gradients:
        return None
    return {
        "nodes": [_node_row(node) for node in gradients.nodes],
        "passes": [[[step.node, step.start, step.stop] for step in each.steps] for each in gradients.passes],
        "received": _by_pass(gradients.received, "gradient", encoder),
        "transformed": _by_pass(gradients.transformed, "transformed.gradient", encoder),
    }


def _node_row(node: AutogradNode) -> NodeRow:
    return NodeRow(node.name, node.call, node.next, node.saved, node.param, node.value)


def _by_pass(found: dict[int, dict[int, Any]], name: str, encoder: RecordEncoder) -> list[Any]:
    return [
        [index, number, encoder.transformed(fetched(gradient), f"{name}.{index}.{number}")]
        for index, gradients in found.items()
        for number, gradient in gradients.items()
    ]


def _seed_row(seed: int, encoder: RecordEncoder) -> list[Any]:
    states = seed.states if isinstance(seed, Seed) and encoder.arguments else None
    return [int(seed), encoder.python.encode(states)]
