"""Decode a trace from its tables, which encode.py wrote, or an attacker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor

from ..capture.dispatcher import Completeness
from ..capture.functions import Function
from ..capture.gradients import AutogradNode, Gradients, Pass, Step
from ..capture.records import (
    Applied,
    Call,
    Facts,
    Intervention,
    ModuleCall,
    ModuleInfo,
    ReadEvent,
    Stored,
    TensorInfo,
    Trace,
    Value,
)
from ..capture.rng import Seed
from ..capture.tensor_memory import version_of
from ..errors import BundleError
from ..intervene.edit_data import from_data
from .checks import as_list, at, blaming, each, flag, integer, listed, named, optional, text
from .column_kinds import row_reader
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
from .consistency import check_consistency
from .places import read_sites
from .python import PythonDecoder, decode_object
from .rows import Tables, read_facts, read_function
from .tensors import TensorTable

T = TypeVar("T")

#: Returns what a value keeps, the tensor or a handle, given the tensor's number and a parameter's `requires_grad`.
Kept = Callable[[int, "bool | None"], "Tensor | Stored"]


def read_tables(tables: Tables, tensors: TensorTable, kept: Kept, trust: bool = False) -> Trace:
    """A trace from its tables. Everything that later code relies on is checked here."""
    with blaming("the metadata"):
        return RecordDecoder(tables, tensors, kept, trust).trace()


class RecordDecoder:
    """Turns rows into records. Each column is checked by its kind; combinations of columns are checked here."""

    def __init__(self, tables: Tables, tensors: TensorTable, kept: Kept, trust: bool) -> None:
        if type(tables) is not dict:
            raise BundleError("it is not a JSON object")
        self.tables: Tables = tables
        self.tensors = tensors
        self.kept = kept
        self.facts: list[Facts] = self._each("facts", read_facts)
        self.functions: list[Function] = self._each("functions", lambda row: read_function(row, trust))
        self.sites: list[Any] = read_sites(tables)
        objects = self._each("objects", decode_object)
        self.values: list[Value] = []
        self.params: list[Value] = []
        self.python: PythonDecoder = PythonDecoder(self.values, self.params, objects, self._tensor)
        self.states: list[Any] = self._each("states", self._state)
        self._row_readers: dict[type, Callable[[Any], dict[str, Any]]] = {}

    def _each(self, name: str, decode: Callable[[Any], Any]) -> list[Any]:
        return each(name, self.tables[name], decode)

    def kept_tensor(self, index: Any, requires_grad: bool | None = None) -> Tensor | Stored | None:
        """The tensor with this number, or a handle; None if it is damaged or missing."""
        number = integer(index, 0, len(self.tensors) - 1)
        return self.kept(number, requires_grad) if self.tensors.is_whole(number) else None

    def _tensor(self, index: Any) -> Tensor | None:
        number = integer(index, 0, len(self.tensors) - 1)
        return self.tensors.read(number) if self.tensors.is_whole(number) else None

    def trace(self) -> Trace:
        tables = self.tables
        plain = {name: check(tables[NAMES_IN_FILES.get(name, name)]) for name, check in PLAIN.items()}
        self.call_count: int = len(tables["calls"])
        self.modules: list[ModuleInfo] = self._each("modules", self._record(ModuleInfo, ModuleRow))
        self.module_call_count: int = len(tables["module_calls"])
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
            param_infos=self._each("param_infos", self._record(TensorInfo, TensorInfoRow)),
            buffer_infos=self._each("buffer_infos", self._record(TensorInfo, TensorInfoRow)),
            events=self._each("events", self._record(ReadEvent, EventRow)),
            interventions=self._each("interventions", self._intervention),
            applied=self._each("applied", self._record(Applied, AppliedRow)),
            versions=named(text, tables.get("versions", {})),
            remarks=listed(text, tables.get("remarks", [])),
            seed=self._seed(*tables["seed"]),
            completeness=optional(self._record(Completeness, CompletenessRow), tables["completeness"]),
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
        value = Value(index=-1, kept=None, **self._fields(row))
        if (row.role in ("op", "update", "output")) != (row.call >= 0) or (row.role == "param") != is_param:
            raise BundleError(f"a value of role {row.role!r} with call {row.call}")
        if row.tensor is not None:
            value.kept = self.kept_tensor(row.tensor, optional(flag, row.parameter))
        value.transformed = self._transformed(row.transformed)
        return value

    def _transformed(self, row: Any) -> Any:
        if type(row) is list and row[:1] == ["kept"]:
            _, number = row
            return self.kept_tensor(number)
        return self.python.decode(row)

    def _gradients(self, tables: Any) -> Gradients | None:
        if tables is None:
            return None
        steps = each("passes", tables["passes"], lambda row: [Step(*(integer(n) for n in step)) for step in row])
        self.node_count: int = len(tables["nodes"])
        nodes = each("nodes", tables["nodes"], self._record(AutogradNode, NodeRow))
        if any(step.node >= len(nodes) for each_pass in steps for step in each_pass):
            raise BundleError("a backward pass refers to a graph node that does not exist")
        found: list[dict[int, dict[int, Any]]] = [{}, {}]
        for name, into in zip(("received", "transformed"), found, strict=True):
            for index, which, gradient in tables[name]:
                value, number = integer(index, 0, len(self.values) - 1), integer(which, 0, len(steps) - 1)
                found_gradient = self._transformed(gradient)
                if found_gradient is not None:
                    into.setdefault(value, {})[number] = found_gradient
        return Gradients.restored(nodes, [Pass(each_pass) for each_pass in steps], *found)

    def _call(self, data: Any, number_of: int) -> Call:
        row = CallRow(*data)
        results = [at(self.values, output) for output in listed(integer, row.outputs)]
        if not results or any(value.call != number_of for value in results):
            raise BundleError("it has no outputs, or those of another call")
        self.python.limit = min(value.index for value in results)  # its arguments came before its results
        return Call(**self._fields(row))

    def _module_call(self, data: Any, number_of: int) -> ModuleCall:
        call = ModuleCall.__new__(ModuleCall)
        for name, field in self._fields(ModuleCallRow(*data)).items():
            setattr(call, name, field)
        if call.parent >= number_of:
            raise BundleError(f"its parent is module call {call.parent}, which comes later")
        return call

    def _record(self, kind: Callable[..., T], row: Callable[..., Any]) -> Callable[[Any], T]:
        """A function from a row to its record."""
        return lambda data: kind(**self._fields(row(*data)))

    def _fields(self, row: Any) -> dict[str, Any]:
        """The fields of a record, by name, from its row."""
        read = self._row_readers.get(type(row))
        if read is None:
            read = self._row_readers[type(row)] = row_reader(type(row), self)
        return read(row)

    def _intervention(self, row: Any) -> Intervention:
        site, edit = row
        return Intervention(text(site), from_data(self.python.decode(edit)))

    def values_of(self, data: Any) -> tuple[Value, ...]:
        values = tuple(self.python.decode_all(as_list(data)))
        if any(type(value) is not Value for value in values):
            raise BundleError("expected a reference to a value of the log")
        return values

    def _seed(self, seed: Any, encoded: Any) -> int:
        states = self.python.decode(encoded)
        if states is None:
            return integer(seed, -(2**64), 2**64)
        if not isinstance(states, dict) or not {"torch", "python"} <= states.keys():
            raise BundleError("the states of the random generators are missing")
        return Seed(integer(seed, -(2**64), 2**64), states)

    def _state(self, row: Any) -> tuple[Any, ...]:
        grad, inference, autocast = self.python.decode(row)
        for device, dtype in autocast:
            text(device), dtype.itemsize
        return flag(grad), flag(inference), tuple(autocast)
