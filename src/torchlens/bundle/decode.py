"""A trace from its tables, which encode.py wrote, or somebody who means harm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..capture.gradients import Gradients, Node, Pass, SavedForBackward, Step
from ..capture.identity import version_of
from ..capture.records import NO_KWARGS, Applied, Call, Event, Intervention, ModuleCall, Stored, Trace, Value
from ..capture.rng import Seed
from ..errors import BundleError
from ..intervene.data import from_data
from .checks import at, blaming, each, flag, integer, listed, one_of, optional, text
from .consistency import check_consistency
from .places import read_sites
from .python import PythonDecoder, decode_object
from .rows import PLAIN, Tables, read_completeness, read_facts, read_function, read_module, read_tensor_info
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
        plain = {name: check(tables[name]) for name, check in PLAIN.items()}
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
            interventions=each("interventions", tables.get("interventions", []), self._intervention),
            applied=each("applied", tables.get("applied", []), self._applied),
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

    def _value(self, row: Any, is_param: bool = False) -> Value:
        role, call, position, address, facts, grad_fn, tensor, parameter, transformed = row
        value = Value(
            -1,
            one_of(_ROLES, role),
            integer(call, -1, self.call_count - 1),
            optional(integer, position),
            optional(text, address),
            at(self.facts, facts),
            optional(text, grad_fn),
            None,
        )
        if (role in ("op", "update", "output")) != (call >= 0) or (role == "param") != is_param:
            raise BundleError(f"a value of role {role!r} with call {call}")
        if tensor is not None:
            value.kept = self._kept(tensor, optional(flag, parameter))
        value.transformed = self._transformed(transformed)
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

    def _node(self, row: Any, count: int) -> Node:
        name, call, following, saved, param, value = row
        kept = None if saved is None else tuple([_saved_for_backward(each) for each in saved])
        after = tuple(integer(number, 0, count - 1) for number in following)
        at_call = integer(call, -1, self.call_count - 1)
        return Node(text(name), at_call, after, kept, optional(text, param), optional(integer, value))

    def _call(self, row: Any, number_of: int) -> Call:
        function, args, kwargs, outputs, written, module_call, site, time, rng, state = row
        results = tuple([at(self.values, output) for output in listed(integer, outputs)])
        if not results or any(value.call != number_of for value in results):
            raise BundleError("its results are not its own")
        self.python.limit = min(value.index for value in results)
        decode = self.python.decode_all
        return Call(
            at(self.functions, function),
            tuple(decode(listed(_anything, args))),
            {text(name): self.python.decode(argument) for name, argument in kwargs} or NO_KWARGS,
            results,
            self._values(written),
            integer(module_call, -1, self.module_call_count - 1),
            at(self.sites, site),
            integer(time),
            None if rng is None else self._kept(rng),
            at(self.states, state),
        )

    def _module_call(self, row: Any, number_of: int) -> ModuleCall:
        module, count, parent, site, start, stop, entered, exited = row
        at(self.modules, module)
        call = ModuleCall(
            module,
            integer(count, 1),
            integer(parent, -1, number_of - 1),
            at(self.sites, site),
            integer(start, 0, self.call_count),
            self._values(entered),
        )
        call.stop = integer(stop, 0, self.call_count)
        call.exited = self._values(exited)
        return call

    def _event(self, row: Any) -> Event:
        function, values, result, module_call, call, site = row
        return Event(
            text(function),
            self._values(values),
            self.python.decode(result),
            integer(module_call, -1, self.module_call_count - 1),
            integer(call, 0, self.call_count),
            at(self.sites, site),
        )

    def _intervention(self, row: Any) -> Intervention:
        site, edit = row
        return Intervention(text(site), from_data(self.python.decode(edit)))

    def _applied(self, row: Any) -> Applied:
        intervention, value, call, before, after = row
        kept = [None if n is None else self.kept(integer(n, 0, len(self.tensors) - 1), None) for n in (before, after)]
        (edited,) = self._values([value])
        number = integer(intervention, 0, len(self.tables["interventions"]) - 1)
        return Applied(number, edited, integer(call, -1, self.call_count - 1), *kept)

    def _values(self, data: Any) -> tuple[Value, ...]:
        values = tuple(self.python.decode_all(listed(_anything, data)))
        if any(type(value) is not Value for value in values):
            raise BundleError("something stands where a tensor should be")
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
