"""A trace from its tables, which encode.py wrote, or somebody who means harm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..capture.gradients import AutogradNode, Gradients, Pass, SavedForBackward, Step
from ..capture.records import NO_KWARGS, Applied, Call, Intervention, ModuleCall, ReadEvent, Stored, Trace, Value
from ..capture.rng import Seed
from ..capture.tensor_memory import version_of
from ..errors import BundleError
from ..intervene.edit_data import from_data
from .checks import at, blaming, each, flag, integer, listed, named, one_of, optional, text
from .columns import AppliedRow, CallRow, EventRow, ModuleCallRow, NodeRow, ValueRow
from .consistency import check_consistency
from .places import read_sites
from .python import PythonDecoder, decode_object
from .rows import (
    NAMES_IN_FILES,
    PLAIN,
    Tables,
    read_completeness,
    read_facts,
    read_function,
    read_module,
    read_tensor_info,
)
from .tensors import TensorTable

_ROLES = ("input", "buffer", "param", "source", "op", "update", "output")

#: What a value keeps, given the number of a tensor and, for a parameter, whether it requires grad: the tensor, or a
#: handle.
Kept = Callable[[int, "bool | None"], "Tensor | Stored"]


def read_tables(tables: Tables, tensors: TensorTable, kept: Kept, trust: bool = False) -> Trace:
    """A trace from its tables. Everything that later code relies on is checked here."""
    with blaming("the metadata"):
        return _Decoder(tables, tensors, kept, trust).trace()


class _Decoder:
    def __init__(self, tables: Tables, tensors: TensorTable, kept: Kept, trust: bool) -> None:
        if type(tables) is not dict:
            raise BundleError("it is no JSON object")
        self.tables = tables
        self.tensors = tensors
        self.kept = kept
        self.facts = self._each("facts", read_facts)
        self.functions = self._each("functions", lambda row: read_function(row, trust))
        self.sites = read_sites(tables)
        objects = self._each("objects", decode_object)
        self.values: list[Value] = []
        self.params: list[Value] = []
        self.python = PythonDecoder(self.values, self.params, objects, self._tensor)
        self.states = self._each("states", self._state)

    def _each(self, name: str, decode: Callable[[Any], Any]) -> list[Any]:
        return each(name, self.tables[name], decode)

    def _kept(self, index: Any, requires_grad: bool | None = None) -> Tensor | Stored | None:
        """The tensor with this number, or a handle; None if it is lost."""
        number = integer(index, 0, len(self.tensors) - 1)
        return self.kept(number, requires_grad) if self.tensors.is_whole(number) else None

    def _tensor(self, index: Any) -> Tensor | None:
        number = integer(index, 0, len(self.tensors) - 1)
        return self.tensors.read(number) if self.tensors.is_whole(number) else None

    def trace(self) -> Trace:
        tables = self.tables
        plain = {name: check(tables[NAMES_IN_FILES.get(name, name)]) for name, check in PLAIN.items()}
        self.call_count = len(tables["calls"])
        self.modules = self._each("modules", read_module)
        self.module_call_count = len(tables["module_calls"])
        self.params += self._each("params", lambda row: self._value(row, is_param=True))
        self.values += self._each("values", self._value)
        for index, value in enumerate(self.values):
            value.index = index
        for index, value in enumerate(self.params):
            value.index = index
        self.python.limit = len(self.values)
        module_calls: list[ModuleCall] = []
        each(
            "module_calls",
            tables["module_calls"],
            lambda row: module_calls.append(self._module_call(row, len(module_calls))),
        )
        calls: list[Call] = []
        each("calls", tables["calls"], lambda row: calls.append(self._call(row, len(calls))))
        self._check_results(calls)
        self.python.limit = len(self.values)
        trace = Trace(
            **plain,
            values=self.values,
            params=self.params,
            calls=calls,
            module_calls=module_calls,
            modules=self.modules,
            param_infos=self._each("param_infos", read_tensor_info),
            buffer_infos=self._each("buffer_infos", read_tensor_info),
            events=self._each("events", self._event),
            interventions=each("interventions", tables["interventions"], self._intervention),
            applied=each("applied", tables["applied"], self._applied),
            versions=named(text, tables.get("versions", {})),
            remarks=listed(text, tables.get("remarks", [])),
            seed=self._seed(*tables["seed"]),
            completeness=read_completeness(tables["completeness"]),
            gradients=self._gradients(tables["gradients"]),
            param_versions=[version_of(p.kept) if isinstance(p.kept, Tensor) else 0 for p in self.params],
            output=self.python.decode(tables["output"]),
        )
        check_consistency(trace)
        return trace

    def _check_results(self, calls: list[Call]) -> None:
        for index, value in enumerate(self.values):
            if value.call >= 0 and value not in calls[value.call].outputs:
                raise BundleError(f"values[{index}] is not among the results of its call")

    # ---- rows -----------------------------------------------------------------------------------------------

    def _value(self, data: Any, is_param: bool = False) -> Value:
        row = ValueRow(*data)
        value = Value(
            index=-1,
            role=one_of(_ROLES, row.role),
            call=integer(row.call, -1, self.call_count - 1),
            position=optional(integer, row.position),
            address=optional(text, row.address),
            facts=at(self.facts, row.facts),
            grad_fn=optional(text, row.grad_fn),
            kept=None,
        )
        if (row.role in ("op", "update", "output")) != (row.call >= 0) or (row.role == "param") != is_param:
            raise BundleError(f"a value of role {row.role!r} with call {row.call}")
        if row.tensor is not None:
            value.kept = self._kept(row.tensor, optional(flag, row.parameter))
        value.transformed = self._transformed(row.transformed)
        return value

    def _transformed(self, row: Any) -> Any:
        if type(row) is list and row[:1] == ["kept"]:
            _, number = row
            return self._kept(number)
        return self.python.decode(row)

    def _gradients(self, tables: Any) -> Gradients | None:
        if tables is None:
            return None
        steps = each("passes", tables["passes"], lambda row: [Step(*(integer(n) for n in step)) for step in row])
        nodes = each("nodes", tables["nodes"], lambda row: self._node(row, len(tables["nodes"])))
        if any(step.node >= len(nodes) for each_pass in steps for step in each_pass):
            raise BundleError("a backward pass came through a node that is not there")
        found: list[dict[int, dict[int, Any]]] = [{}, {}]
        for name, into in zip(("received", "transformed"), found, strict=True):
            for index, which, gradient in tables[name]:
                value, number = integer(index, 0, len(self.values) - 1), integer(which, 0, len(steps) - 1)
                found_gradient = self._transformed(gradient)
                if found_gradient is not None:
                    into.setdefault(value, {})[number] = found_gradient
        return Gradients.restored(nodes, [Pass(each_pass) for each_pass in steps], *found)

    def _node(self, data: Any, count: int) -> AutogradNode:
        row = NodeRow(*data)
        return AutogradNode(
            name=text(row.name),
            call=integer(row.call, -1, self.call_count - 1),
            next=tuple(integer(number, 0, count - 1) for number in row.next),
            saved=None if row.saved is None else tuple([_saved_for_backward(each) for each in row.saved]),
            param=optional(text, row.param),
            value=optional(integer, row.value),
        )

    def _call(self, data: Any, number_of: int) -> Call:
        row = CallRow(*data)
        results = tuple([at(self.values, output) for output in listed(integer, row.outputs)])
        if not results or any(value.call != number_of for value in results):
            raise BundleError("its outputs are none, or those of another call")
        self.python.limit = min(value.index for value in results)
        decode = self.python.decode_all
        return Call(
            function=at(self.functions, row.function),
            args=tuple(decode(listed(_anything, row.args))),
            kwargs={text(name): self.python.decode(argument) for name, argument in row.kwargs} or NO_KWARGS,
            outputs=results,
            written=self._values(row.written),
            module_call=integer(row.module_call, -1, self.module_call_count - 1),
            site=at(self.sites, row.site),
            time=integer(row.time),
            rng=None if row.rng is None else self._kept(row.rng),
            state=at(self.states, row.state),
        )

    def _module_call(self, data: Any, number_of: int) -> ModuleCall:
        row = ModuleCallRow(*data)
        at(self.modules, row.module)
        call = ModuleCall(
            module=row.module,
            number=integer(row.number, 1),
            parent=integer(row.parent, -1, number_of - 1),
            site=at(self.sites, row.site),
            start=integer(row.start, 0, self.call_count),
            entered=self._values(row.entered),
        )
        call.stop = integer(row.stop, 0, self.call_count)
        call.exited = self._values(row.exited)
        return call

    def _event(self, data: Any) -> ReadEvent:
        row = EventRow(*data)
        return ReadEvent(
            function=text(row.function),
            values=self._values(row.values),
            result=self.python.decode(row.result),
            module_call=integer(row.module_call, -1, self.module_call_count - 1),
            call=integer(row.call, 0, self.call_count),
            site=at(self.sites, row.site),
        )

    def _intervention(self, row: Any) -> Intervention:
        site, edit = row
        return Intervention(text(site), from_data(self.python.decode(edit)))

    def _applied(self, data: Any) -> Applied:
        row = AppliedRow(*data)
        kept = [None if number is None else self._kept(number) for number in (row.before, row.after)]
        (edited,) = self._values([row.value])
        number = integer(row.intervention, 0, len(self.tables["interventions"]) - 1)
        return Applied(number, edited, integer(row.call, -1, self.call_count - 1), *kept)

    def _values(self, data: Any) -> tuple[Value, ...]:
        values = tuple(self.python.decode_all(listed(_anything, data)))
        if any(type(value) is not Value for value in values):
            raise BundleError("a value of the log was expected, and something else was found")
        return values

    def _seed(self, seed: Any, encoded: Any) -> int:
        states = self.python.decode(encoded)
        if states is None:
            return integer(seed, -(2**64), 2**64)
        if not isinstance(states, dict) or not {"torch", "python"} <= states.keys():
            raise BundleError("a seed comes with the states of the generators")
        return Seed(integer(seed, -(2**64), 2**64), states)

    def _state(self, row: Any) -> tuple[Any, ...]:
        grad, inference, autocast = self.python.decode(row)
        for device, dtype in autocast:
            text(device), dtype.itemsize
        return flag(grad), flag(inference), tuple(autocast)


def _anything(thing: Any) -> Any:
    return thing


def _saved_for_backward(row: Any) -> SavedForBackward:
    name, nbytes, memory, is_param = row
    return SavedForBackward(text(name), integer(nbytes), integer(memory, 0, 2**64), flag(is_param))
