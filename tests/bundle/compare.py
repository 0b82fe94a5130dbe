"""Is a loaded log the log that was saved? Every public property of every record is compared, without naming any."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

import torchlens as tl
from torchlens.bundle.function_names import UnknownFunction
from torchlens.capture.functions import Function
from torchlens.capture.records import Value
from torchlens.capture.restored import SavedObject, SavedRecord, type_name_of
from torchlens.log.accessor import Accessor
from torchlens.log.backward_pass import GradFnLog
from torchlens.log.interventions import InterventionLog, Interventions
from torchlens.replay.same import same

RECORDS = (
    GradFnLog, tl.BackwardPass, tl.OpLog, tl.LayerLog, tl.ModuleLog, tl.ModulePassLog, tl.ParamLog, tl.BufferLog,
    Interventions, InterventionLog,
)  # fmt: skip


def fields(record: Any) -> list[str]:
    """The public properties of a record's class."""
    members = {name: value for kind in reversed(type(record).__mro__) for name, value in vars(kind).items()}
    answers = (property, cached_property)
    return [name for name, value in members.items() if isinstance(value, answers) and not name.startswith("_")]


def records(log: tl.ModelLog) -> Iterator[tuple[str, Any]]:
    """Everything in a log that has properties, by where it is found."""
    yield "log", log
    for op in log.layer_list:
        yield op.label, op
        if op.num_passes > 1 and op.pass_num == 1:
            yield op.layer_label, log[op.layer_label]
    for accessor in (log.modules, log.params, log.buffers):
        yield from ((f"{accessor.noun} {key}", accessor[key]) for key in accessor._records)
    for module in log.modules:
        yield from ((each.label, each) for each in module.passes.values())


def differences(saved: tl.ModelLog, loaded: tl.ModelLog) -> list[str]:
    """What is not the same in two logs."""
    found = [] if str(saved) == str(loaded) else ["print(log)"]
    found += [] if saved.summary() == loaded.summary() else ["log.summary()"]
    found += [] if saved.to_dot() == loaded.to_dot() else ["log.to_dot()"]
    before, after = list(records(saved)), list(records(loaded))
    if [where for where, _ in before] != [where for where, _ in after]:
        return [*found, "they have different records"]
    for (where, one), (_, other) in zip(before, after, strict=True):
        found += [] if str(one) == str(other) else [f"print({where})"]
        for name in fields(one):
            before_it, after_it = answer(one, name), answer(other, name)
            if name != "graph" and not equal(before_it, after_it):
                found.append(f"{where}.{name}: {before_it!r:.200} became {after_it!r:.200}")
    return found


def answer(record: Any, name: str) -> Any:
    """What a property says, be it that it can't."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the gradient is None", tl.FidelityWarning)
        try:
            return getattr(record, name)
        except tl.TorchLensError as error:
            return str(error)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and same(one, other) and _laid_out(one) == _laid_out(other)
    if isinstance(one, (*RECORDS, Accessor, Value)):
        return type(one) is type(other) and str(one) == str(other)
    if isinstance(one, Function):
        return isinstance(other, Function) and one.name == other.name
    if isinstance(one, tl.FuncCallLocation):
        return bool(one == other) and one.code_context == other.code_context and str(one) == str(other)
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        if (
            not isinstance(other, (list, tuple))
            or len(one) != len(other)
            or (type(one) in (list, tuple) and type(one) is not type(other))
        ):
            return False
        return all(equal(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(other, SavedRecord):  # a structure of the model's output, with the same fields
        fields = vars(other)
        return type_name_of(one) == type_name_of(other) and all(equal(getattr(one, f), fields[f]) for f in fields)
    if isinstance(other, SavedObject):  # not more than its class and print is kept of it
        return other.type_name == f"{type(one).__module__}.{type(one).__qualname__}" and _print_of(one, other)
    if isinstance(other, UnknownFunction):
        return other.__name__ in (getattr(one, "__qualname__", None), str(one))
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    try:
        return type(one) is type(other) and bool(one == other)
    except (RuntimeError, ValueError):  # arrays
        return bool((one == other).all())


def _print_of(one: Any, other: SavedObject) -> bool:
    one = one.description if isinstance(one, SavedObject) else repr(one)
    return other.description in (one, one[:300] + "...")


def _laid_out(tensor: Tensor) -> Any:
    if tensor.is_nested or tensor.layout is not torch.strided:
        return None
    return tensor.stride(), tensor.is_conj(), tensor.requires_grad


# ---- the records themselves -------------------------------------------------------------------------------------

#: What a log loaded from disk can't have, or has in another form that `differences` compares.
OF_THE_PROCESS = {
    "Trace": {"chooser", "connections", "param_versions"},
    "Gradients": {"postfunc", "_passes_by_task", "_to_hook", "_undo"},
    "Pass": {"running"},
    "Call": {"site"},
    "ReadEvent": {"site"},
    "ModuleCall": {"site"},
}


def record_fields(record: Any) -> list[str]:
    """The fields of a record: of a dataclass, a named tuple, a class with slots, or any other."""
    if dataclasses.is_dataclass(record):
        names = [field.name for field in dataclasses.fields(record)]
    else:
        kind = type(record)
        names = list(
            getattr(kind, "_fields", None) or getattr(kind, "__slots__", None) or getattr(record, "__dict__", ())
        )
    of_the_process = OF_THE_PROCESS.get(type(record).__name__, ())
    return [name for name in names if name not in of_the_process and not name.startswith("__")]


def is_record(thing: Any) -> bool:
    ours = type(thing).__module__.startswith("torchlens.capture") and not isinstance(thing, Function)
    return ours and bool(record_fields(thing))


def record_differences(one: Any, other: Any, where: str, filled: set[str], seen: set[int]) -> list[str]:
    """What differs between two traces, field by field of all records that they are made of.

    The fields that held something are added to `filled`, as "Call.args".
    """
    if is_record(one):
        if id(one) in seen:
            return []
        seen.add(id(one))
        found = [] if type(one) is type(other) else [f"{where} became a {type(other).__name__}"]
        for name in record_fields(one) if not found else []:
            before, after = getattr(one, name), getattr(other, name)
            if before is not None and before != () and before != [] and before != {}:
                filled.add(f"{type(one).__name__}.{name}")
            found += record_differences(before, after, f"{where}.{name}", filled, seen)
        return found
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and any(map(is_record, one)):
        found = [] if len(one) == len(other) else [f"{where}: {len(one)} became {len(other)}"]
        for number, (a, b) in enumerate(zip(one, other, strict=False)):
            found += record_differences(a, b, f"{where}[{number}]", filled, seen)
        return found
    return [] if equal(one, other) else [f"{where}: {one!r:.100} became {other!r:.100}"]
