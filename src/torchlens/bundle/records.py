"""A recording to and from tables of plain data. Rows refer to each other by number, as the records themselves do.

`write_tables` and `read_tables` name every field of every record once each; a test makes sure that none is forgotten.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from .._torch import UninitializedTensorMixin, is_functorch_wrapped
from ..capture.dispatcher import Completeness, MissedOperation
from ..capture.functions import ALIAS_UPDATE, IMPLICIT_VIEW, OUTPUT, UNWRAP, WRAP, Function
from ..capture.gradients import Gradients, Node, Pass, SavedForBackward, Step
from ..capture.identity import version_of
from ..capture.naming import frames, is_library_code
from ..capture.records import (
    NO_KWARGS,
    Call,
    Event,
    Facts,
    ModuleCall,
    ModuleInfo,
    Recording,
    Site,
    Stored,
    TensorInfo,
    Value,
    fetched,
)
from ..capture.rng import Seed
from ..errors import BundleError
from ..source import LINES_AFTER, LINES_BEFORE, SavedCode, line_at, operator_name
from ..statements import Statement, find_statement
from .checks import at, blaming, each, flag, integer, listed, number, one_of, optional, sizes, text
from .functions import UnknownFunction, find, name_of
from .python import PythonDecoder, PythonEncoder, decode_object
from .tensors import TensorEncoder, TensorTable, dtype_name, dtype_named, is_own_kind, plain_tensor

Tables = dict[str, Any]

ROLES = ("input", "buffer", "param", "source", "op", "update", "output")

#: What stands in a log without a call.
_SYNTHETIC = {function.name: function for function in (OUTPUT, ALIAS_UPDATE, IMPLICIT_VIEW, WRAP, UNWRAP)}

#: The fields of a recording that are plain values, each with its check.
_PLAIN: dict[str, Callable[[Any], Any]] = {
    "model_name": text,
    "values_kept": flag,
    "complete": flag,
    "ended": flag,
    "grad_enabled": flag,
    "within": lambda thing: optional(text, thing),
    "start_time": number,
    "end_time": number,
    "seconds": number,
    "warnings": lambda thing: listed(text, thing),
    "listed": lambda thing: optional(lambda numbers: listed(integer, numbers), thing),
}


# ---- writing --------------------------------------------------------------------------------------------------


class Table:
    """Rows without repetition: what is equal is stored once and has one number."""

    def __init__(self, encode: Callable[[Any], Any]) -> None:
        self.rows: list[Any] = []
        self._encode = encode
        self._numbers: dict[Hashable, int] = {}
        self._alive: list[Any] = []

    def number(self, thing: Any, key: Hashable = None) -> int:
        key = thing if key is None else key
        found = self._numbers.get(key)
        if found is None:
            row = self._encode(thing)
            found = self._numbers[key] = len(self.rows)
            self._alive.append(thing)
            self.rows.append(row)
        return found


class RecordEncoder:
    """Turns records into rows, one by one."""

    def __init__(
        self,
        recording: Recording,
        tensors: TensorEncoder,
        *,
        activations: bool = True,
        gradients: bool = True,
        arguments: bool = True,
    ) -> None:
        self.recording = recording
        self.tensors = tensors
        self.activations = activations
        self.gradients = gradients
        self.arguments = arguments
        self.python = PythonEncoder(lambda tensor: tensors.add(tensor, "array"))
        self.python.arrays = arguments
        self.facts = Table(_facts_row)
        self.functions = Table(_function_row)
        self.states = Table(self.python.encode)
        self.sites = Table(self._site_row)
        self.codes: list[list[Any]] = []
        self.places: list[list[Any]] = []  # of instructions in codes
        self.statements: list[list[Any]] = []  # at places
        self.sources: list[list[Any]] = []  # lines of files
        self._code_numbers: dict[int, tuple[Any, int]] = {}
        self._noted: set[tuple[Any, ...]] = set()

    # ---- tensors --------------------------------------------------------------------------------------------

    def value(self, value: Value, tensor: int | None, transformed: Any) -> list[Any]:
        """A value's row, with the number of the tensor that was kept of it and the row of what was made of it."""
        known = _facts_of_nothing(value.kept) if isinstance(value.kept, UninitializedTensorMixin) else value.facts
        facts = None if value.index < 0 else self.facts.number(known)
        saved = value.saved if value.role == "param" else None
        parameter = saved.requires_grad if isinstance(saved, Parameter) else None
        names = [value.role, value.call, value.position, value.address]
        return [*names, facts, value.grad_fn, tensor, parameter, transformed]

    def foresee(self) -> int:
        """See which memory the tensors share before any is stored; return about how many pieces there will be."""
        for value in (*self.recording.values, *self.recording.params):
            tensor = self._wanted(value)
            if tensor is not None:
                with self._naming(value):
                    self.tensors.foresee(tensor)
        others = sum(call.rng is not None for call in self.recording.calls)
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
        function = self.recording.calls[value.call].function.name if value.call >= 0 else value.address
        return f"the {value.role} number {value.index} ({function}, shape {tuple(value.shape)})"

    # ---- calls ----------------------------------------------------------------------------------------------

    def call(self, call: Call) -> list[Any]:
        state = fetched(call.rng) if self.arguments else None
        rng = None if state is None else self.tensors.add(state, "rng")
        return [
            self.functions.number(call.function, id(call.function)),
            self.python.encode_all(call.args),
            [[name, self.python.encode(argument)] for name, argument in call.kwargs.items()],
            [value.index for value in call.outputs],
            self.python.encode_all(call.written),
            call.module_call,
            self.sites.number(call.site, self._site_key(call.site)),
            call.time,
            rng,
            self.states.number(call.state),
        ]

    def module_call(self, call: ModuleCall) -> list[Any]:
        return [
            call.module,
            call.number,
            call.parent,
            self.sites.number(call.site, self._site_key(call.site)),
            call.start,
            call.stop,
            self.python.encode_all(call.entered),
            self.python.encode_all(call.exited),
        ]

    def event(self, event: Event) -> list[Any]:
        site = self.sites.number(event.site, self._site_key(event.site))
        self._note_statement(event.site)
        values = self.python.encode_all(event.values)
        return [event.function, values, self.python.encode(event.result), event.module_call, event.call, site]

    # ---- where in the user's code ---------------------------------------------------------------------------

    def _site_key(self, site: Site) -> Hashable:
        """Code objects compare by content, which is slow; they are told apart by identity."""
        return tuple([part if type(part) is int else id(part) for part in site])

    def _site_row(self, site: Site) -> list[int]:
        return [part for code, instruction in frames(site) for part in (self._code(code, instruction), instruction)]

    def _code(self, code: Any, instruction: int) -> int:
        known = self._code_numbers.get(id(code))
        if known is None:
            known = self._code_numbers[id(code)] = (code, len(self.codes))
            qualname = getattr(code, "co_qualname", None)
            self.codes.append([_clean(code.co_filename), code.co_name, qualname, is_library_code(code)])
        where = known[1]
        if self._is_new("place", where, instruction):
            line = line_at(code, instruction)
            self.places.append([where, instruction, line, operator_name(code, instruction)])
            if not is_library_code(code):
                self._note_source(code, line)
        return where

    def _is_new(self, *fact: Any) -> bool:
        before = len(self._noted)
        self._noted.add(fact)
        return len(self._noted) > before

    def _note_source(self, code: Any, line: int) -> None:
        """The lines around a call travel along: the reader may not have the file."""
        around = range(max(1, line - LINES_BEFORE), line + LINES_AFTER + 1)
        if isinstance(code, SavedCode):
            lines = {number: code.source[number] for number in around if number in code.source}
        else:
            known = linecache.getlines(code.co_filename)
            lines = {number: known[number - 1] for number in around if number <= len(known)}
        file = _clean(code.co_filename)
        self.sources += [[file, n, _clean(line)] for n, line in lines.items() if self._is_new("source", file, n)]

    def _note_statement(self, site: Site) -> None:
        innermost = next(frames(site), None)
        if innermost is None or is_library_code(innermost[0]):
            return
        code, instruction = innermost
        found = find_statement(code, instruction)
        where = self._code_numbers[id(code)][1]
        if self._is_new("statement", where, instruction):
            row = [found.kind, _clean(found.file), found.line, _clean(found.source), found.span, found.truth]
            self.statements.append([where, instruction, *row])


def _clean(name: str) -> str:
    """A text that UTF-8 can hold; names of files need not be one."""
    return name.encode("utf-8", "replace").decode()


def _facts_of_nothing(tensor: Any) -> Facts:
    """A lazy module's parameter or buffer is nothing yet."""
    return torch.Size(()), tensor.dtype, tensor.device


def _facts_row(facts: Facts) -> list[Any]:
    shape, dtype, device = facts
    plain = [size if type(size) is int else -1 for size in shape]  # that of a jagged dimension is only a symbol
    return [plain, dtype_name(dtype), str(device)]


def _function_row(function: Function) -> list[Any]:
    if _SYNTHETIC.get(function.name) is function:
        return [function.name, None]
    if isinstance(function.func, UnknownFunction):
        return [function.name, function.func.__name__]
    name = getattr(function.func, "__qualname__", None) or str(function.func)
    return [function.name, name_of(function.func) or f"unknown:{_clean(name)}"]


def write_tables(encoder: RecordEncoder, keep: Callable[[Value], tuple[int | None, Any]]) -> Tables:
    """The whole recording as tables. `keep` stores what was kept of a value and what was made of it."""
    recording = encoder.recording
    tables = plain_tables(recording)
    tables["values_kept"] = recording.values_kept and encoder.activations
    tables["warnings"] += _left_out(encoder)
    tables |= {
        "seed": _seed_row(recording.seed, encoder),
        "completeness": _completeness_row(recording.completeness),
        "gradients": _gradient_rows(recording.gradients, encoder),
        "values": [encoder.value(value, *keep(value)) for value in recording.values],
        "params": [encoder.value(value, *keep(value)) for value in recording.params],
        "calls": [encoder.call(call) for call in recording.calls],
        "module_calls": [encoder.module_call(call) for call in recording.module_calls],
        "events": [encoder.event(event) for event in recording.events],
        "output": encoder.python.encode(recording.output),
    }  # fmt: skip
    return tables | shared_tables(encoder)


def plain_tables(recording: Recording) -> Tables:
    """What is known of a forward pass before it begins, or apart from its records."""
    tables: Tables = {name: getattr(recording, name) for name in _PLAIN}
    tables["warnings"] = [_clean(warning) for warning in recording.warnings]
    return tables | {
        "seed": [int(recording.seed), None],
        "modules": [
            [i.address, list(i.all_addresses), i.class_name, i.training, i.class_qualname] for i in recording.modules
        ],
        "param_infos": [_tensor_info_row(info) for info in recording.param_infos],
        "buffer_infos": [_tensor_info_row(info) for info in recording.buffer_infos],
    }


def _left_out(encoder: RecordEncoder) -> Iterable[str]:
    wrapped = [
        value
        for value in encoder.recording.values
        if isinstance(value.kept, Tensor) and is_functorch_wrapped(value.kept)
    ]
    if wrapped and encoder.activations:
        yield f"{len(wrapped)} tensors inside torch.vmap or torch.func have no value outside of it; they were not saved"
    kinds = {type(v.kept) for v in encoder.recording.values if isinstance(v.kept, Tensor) and is_own_kind(v.kept)}
    if kinds and encoder.activations:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        yield f"tensors of class {names} were saved as plain tensors, with the same values"


def shared_tables(encoder: RecordEncoder) -> Tables:
    """What the rows of the other tables refer to."""
    return {
        "facts": encoder.facts.rows,
        "functions": encoder.functions.rows,
        "states": encoder.states.rows,
        "codes": encoder.codes,
        "places": encoder.places,
        "statements": encoder.statements,
        "sources": encoder.sources,
        "sites": encoder.sites.rows,
        "objects": encoder.python.objects,
        "layouts": encoder.tensors.layouts,
        "tensors": encoder.tensors.rows,
        "storages": [list(blob) for blob in encoder.tensors.storages],
    }


def _gradient_rows(gradients: Gradients | None, encoder: RecordEncoder) -> Any:
    if gradients is None or not encoder.gradients:
        return None
    return {
        "nodes": [
            [n.name, n.call, list(n.next), [list(s) for s in n.saved], n.param, n.value] for n in gradients.nodes
        ],
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


def _completeness_row(found: Completeness | None) -> Any:
    if found is None:
        return None
    return [found.operations, [[m.operation, _clean(m.file), m.line] for m in found.missed]]


def _tensor_info_row(info: TensorInfo) -> list[Any]:
    shape = None if info.shape is None else list(info.shape)
    return [info.address, list(info.all_addresses), shape, dtype_name(info.dtype), str(info.device), info.trainable]


# ---- reading --------------------------------------------------------------------------------------------------

#: What a value keeps, given the number of a tensor and, for a parameter, whether it requires grad: the tensor, or a
#: handle.
Kept = Callable[[int, "bool | None"], "Tensor | Stored"]


def read_tables(tables: Tables, tensors: TensorTable, kept: Kept) -> Recording:
    """A recording from its tables. Everything that later code relies on is checked here."""
    with blaming("the metadata"):
        return _Decoder(tables, tensors, kept).recording()


class _Decoder:
    def __init__(self, tables: Tables, tensors: TensorTable, kept: Kept) -> None:
        if type(tables) is not dict:
            raise BundleError("it is no JSON object")
        self.tables = tables
        self.tensors = tensors
        self.kept = kept
        self.facts = self._each("facts", _read_facts)
        self.functions = self._each("functions", _read_function)
        sources: dict[str, dict[int, str]] = {}
        self.codes = self._each("codes", lambda row: _read_code(row, sources))
        self._each("sources", lambda row: _read_source(row, sources))
        self._each("places", self._place)
        self._each("statements", self._statement)
        self.sites = self._each("sites", self._site)
        objects = self._each("objects", decode_object)
        self.values: list[Value] = []
        self.params: list[Value] = []
        self.python = PythonDecoder(self.values, self.params, objects, self._tensor)
        self.states = self._each("states", self._state)

    def _each(self, name: str, decode: Callable[[Any], Any]) -> list[Any]:
        return each(name, self.tables[name], decode)

    def _tensor(self, index: Any) -> Tensor:
        return self.tensors.read(integer(index, 0, len(self.tensors) - 1))

    def recording(self) -> Recording:
        tables = self.tables
        plain = {name: check(tables[name]) for name, check in _PLAIN.items()}
        self.call_count = len(tables["calls"])
        self.modules = self._each("modules", _read_module)
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
        return Recording(
            **plain,
            values=self.values,
            params=self.params,
            calls=calls,
            module_calls=module_calls,
            modules=self.modules,
            param_infos=self._each("param_infos", _read_tensor_info),
            buffer_infos=self._each("buffer_infos", _read_tensor_info),
            events=self._each("events", self._event),
            seed=self._seed(*tables["seed"]),
            completeness=_read_completeness(tables["completeness"]),
            gradients=self._gradients(tables["gradients"]),
            param_versions=[version_of(p.kept) if isinstance(p.kept, Tensor) else 0 for p in self.params],
            output=self.python.decode(tables["output"]),
        )

    def _check_results(self, calls: list[Call]) -> None:
        for index, value in enumerate(self.values):
            if value.call >= 0 and value not in calls[value.call].outputs:
                raise BundleError(f"values[{index}] is not among the results of its call")

    # ---- rows -----------------------------------------------------------------------------------------------

    def _value(self, row: Any, is_param: bool = False) -> Value:
        role, call, position, address, facts, grad_fn, tensor, parameter, transformed = row
        value = Value(
            -1,
            one_of(ROLES, role),
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
            value.kept = self.kept(integer(tensor, 0, len(self.tensors) - 1), optional(flag, parameter))
        value.transformed = self._transformed(transformed)
        return value

    def _transformed(self, row: Any) -> Any:
        if type(row) is list and row[:1] == ["kept"]:
            _, number = row
            return self.kept(integer(number, 0, len(self.tensors) - 1), None)
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
                of_value = into.setdefault(integer(index, 0, len(self.values) - 1), {})
                of_value[integer(which, 0, len(steps) - 1)] = self._transformed(gradient)
        return Gradients.restored(nodes, [Pass(each_pass) for each_pass in steps], *found)

    def _node(self, row: Any, count: int) -> Node:
        name, call, following, saved, param, value = row
        kept = [SavedForBackward(text(n), integer(b), integer(m, 0, 2**64), flag(p)) for n, b, m, p in saved]
        after = tuple(integer(number, 0, count - 1) for number in following)
        at_call = integer(call, -1, self.call_count - 1)
        return Node(text(name), at_call, after, tuple(kept), optional(text, param), optional(integer, value))

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
            None if rng is None else self.kept(integer(rng, 0, len(self.tensors) - 1), None),
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

    def _place(self, row: Any) -> None:
        where, instruction, line, operator = row
        code = at(self.codes, where)
        code.lines[integer(instruction, -1)] = integer(line)
        if operator is not None:
            code.operators[instruction] = text(operator)

    def _statement(self, row: Any) -> None:
        where, instruction, *statement = row
        code = at(self.codes, where)
        code.lines[integer(instruction, -1)]  # it is one of the places
        code.statements[instruction] = _read_statement(*statement)

    def _site(self, row: Any) -> Site:
        site: list[Any] = []
        for code_number, instruction in zip(row[::2], row[1::2], strict=True):
            code = at(self.codes, code_number)
            code.lines[integer(instruction, -1)]  # every instruction of a site is described
            site += (code, instruction)
        return tuple(site)

    def _state(self, row: Any) -> tuple[Any, ...]:
        grad, inference, autocast = self.python.decode(row)
        for device, dtype in autocast:
            text(device), dtype.itemsize
        return flag(grad), flag(inference), tuple(autocast)


def _anything(thing: Any) -> Any:
    return thing


def _read_facts(row: Any) -> Facts:
    shape, dtype, device = row
    size, kind = sizes(shape, -1), dtype_named(dtype)
    count = kind.itemsize
    for length in size:
        count *= abs(length)
    integer(count)
    return torch.Size(size), kind, torch.device(text(device))


def _read_function(row: Any) -> Function:
    name, torch_name = row
    if torch_name is None:
        return _SYNTHETIC[one_of(_SYNTHETIC, name)]
    return Function(text(name), find(text(torch_name)) or UnknownFunction(torch_name.removeprefix("unknown:")))


def _read_module(row: Any) -> ModuleInfo:
    address, addresses, class_name, training, qualname = row
    return ModuleInfo(text(address), tuple(listed(text, addresses)), text(class_name), flag(training), text(qualname))


def _read_tensor_info(row: Any) -> TensorInfo:
    address, addresses, shape, dtype, device, trainable = row
    size = None if shape is None else torch.Size(sizes(shape))
    where = torch.device(text(device))
    return TensorInfo(text(address), tuple(listed(text, addresses)), size, dtype_named(dtype), where, flag(trainable))


def _read_completeness(row: Any) -> Completeness | None:
    if row is None:
        return None
    operations, missed = row
    return Completeness(integer(operations), [MissedOperation(text(o), text(f), integer(n)) for o, f, n in missed])


def _read_code(row: Any, sources: dict[str, dict[int, str]]) -> SavedCode:
    file, name, qualname, library = row
    known = sources.setdefault(text(file), {})
    return SavedCode(file, text(name), optional(text, qualname), flag(library), source=known)


def _read_source(row: Any, sources: dict[str, dict[int, str]]) -> None:
    file, line, content = row
    sources[text(file)][integer(line, 1)] = text(content)


def _read_statement(kind: Any, file: Any, line: Any, source: Any, span: Any, truth: Any) -> Statement:
    where: Any = None if span is None else tuple(listed(integer, span))
    if_true, if_false = (optional(flag, each) for each in truth)
    return Statement(one_of(KINDS, kind), text(file), integer(line), text(source), where, (if_true, if_false))  # type: ignore[arg-type]


KINDS = ("if", "elif", "while", "assert", "ternary", "comprehension", "guard", "boolop", "call", "unknown")

#: Which of a recording's fields the tables have; a test compares it with the fields that there are.
FIELDS = {field.name for field in fields(Recording)}
