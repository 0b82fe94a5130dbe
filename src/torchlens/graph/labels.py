"""Name the layers: `conv2d_3_7` is the third convolution and the seventh layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..capture.records import Call, Value
from ..source import operator_name
from .sites import frames, is_library_code

if TYPE_CHECKING:
    from .graph import Graph

_ROLE_TYPES = {
    "input": "input",
    "output": "output",
    "buffer": "buffer",
    "update": "buffer",
    "source": "source",
}

# `x / y` reaches torch as `div`; the language, and so the log, calls the operator truediv.
_DIVISIONS = {"div": "__truediv__", "div_": "__itruediv__"}


def name_layers(graph: Graph) -> None:
    """Number the layers in order of first appearance, all together and by type."""
    calls = graph.recording.calls
    counts: dict[str, int] = {}
    graph.layer_types, graph.layer_labels, graph.layer_type_nums = [], [], []
    for number, members in enumerate(graph.layer_entries):
        layer_type = layer_type_of(graph.entries[members[0]], calls)
        type_num = counts[layer_type] = counts.get(layer_type, 0) + 1
        graph.layer_types.append(layer_type)
        graph.layer_type_nums.append(type_num)
        graph.layer_labels.append(f"{layer_type}_{type_num}_{number}")


def layer_type_of(value: Value, calls: list[Call]) -> str:
    fixed = _ROLE_TYPES.get(value.role)
    if fixed is not None:
        return fixed
    call = calls[value.call]
    if call.function.name in _DIVISIONS and operator_of(call) == _DIVISIONS[call.function.name]:
        return "truediv"
    return call.function.layer_type


def operator_of(call: Call) -> str | None:
    """The dunder name of the Python operator that made this call, if one did: `__add__` for `x + y`."""
    name = call.function.name.strip("_")
    for code, instruction in frames(call.site):
        operator = operator_name(code, instruction)
        if operator is not None:
            plain = operator.strip("_")
            return operator if _OPERATOR_FUNCTIONS.get(plain, plain) == name else None
        if not is_library_code(code):
            break
    return None


# Torch names of the operators that Python names otherwise, without underscores; in-place forms begin with an i.
_NAMES = {"truediv": "div", "floordiv": "floor_divide", "mod": "remainder"}
_OPERATOR_FUNCTIONS = {
    prefix + operator: _NAMES.get(operator, operator)
    for operator in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
    for prefix in ("", "i")
}
