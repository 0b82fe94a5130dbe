"""What `print` shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from torch import Tensor

from .._torch import call_with_grad
from ..graph.graph import Graph
from ..words import counted, shape_words
from .backward_pass import last, why_none
from .listing import layer_lines, shown_of

if TYPE_CHECKING:
    from .layer_log import LayerLog
    from .model_log import ModelLog
    from .op_log import OpLog

#: Of a layer that ran more often, the first and the last passes are shown.
_MOST_PASSES = 20


# ---- the whole log --------------------------------------------------------------------------------------------


def describe_log(log: ModelLog) -> str:
    lines = [
        f"{log_title(log)}:",
        *(f"\t{fact}" for fact in log_facts(log)),
        "\n\t\t".join(["\tModule Hierarchy:", *_module_lines(log.graph)]),
        "\n\t\t".join(["\tLayers:", *layer_lines(log.graph)]),
    ]
    lines += [f"\tWarning: {warning}" for warning in log.warnings]
    return "\n".join(lines)


def log_title(log: ModelLog) -> str:
    return f"Log of {log.model_name} forward pass{'' if log.is_complete else ' (cut short by an exception)'}"


def log_facts(log: ModelLog) -> list[str]:
    return [
        f"Model structure: {_structure(log)}",
        f"{counted(log.num_tensors_total, 'tensor')} ({log.total_activation_memory_str}) computed in forward pass; "
        f"{counted(log.num_tensors_saved, 'tensor')} ({log.saved_activation_memory_str}) saved.",
        f"{counted(log.num_param_operations, 'parameter operation')} "
        f"({log.total_params} params total; {log.total_params_memory_str}).",
        *([f"Interventions: {_edits(log)}"] if len(log.interventions) else []),
        f"Random seed: {log.random_seed_used:d}",
        f"Time elapsed: {log.time_total:.3f}s",
    ]


def _edits(log: ModelLog) -> str:
    """The first of them; `log.interventions` says more."""
    words = [f"{each.site}: {each.edit!r}" for each in log.interventions[:3]]
    more = len(log.interventions) - len(words)
    return "; ".join(words) + (f"; and {more} more: print(log.interventions)" if more else "")


def _structure(log: ModelLog) -> str:
    recurrent = f"recurrent (at most {log.max_recurrent_loops:,} loops)" if log.is_recurrent else "purely feedforward"
    branching = "with branching" if log.is_branching else "without branching"
    return f"{recurrent}, {branching}; {counted(log.num_modules, 'total module')}."


def _module_lines(graph: Graph) -> list[str]:
    lines = list(_hierarchy(graph))
    first, last = shown_of(len(lines))
    left_out = [f"... {last - first:,} more lines: log.modules has every module, print(log.summary()) a table"]
    return [*lines[:first], *(left_out if last > first else []), *lines[last:]]


def _hierarchy(graph: Graph) -> Iterator[str]:
    """The modules as a tree of addresses, in the order of their first calls."""
    children = _children_by_address(graph)
    for address in children.get("", ()):
        yield from _branch(address, children)


def _branch(address: str, children: dict[str, list[str]]) -> Iterator[str]:
    below = children.get(address, [])
    yield f"{address}:" if below else address
    if not children.keys().isdisjoint(below):
        for child in below:
            yield from (f"    {line}" for line in _branch(child, children))
    else:
        rows = [below[i : i + 8] for i in range(0, len(below), 8)]
        yield from (f"    {', '.join(row)}{',' if row is not rows[-1] else ''}" for row in rows)


def _children_by_address(graph: Graph) -> dict[str, list[str]]:
    """The modules directly in each one: first those that were called, in the order of their first calls."""
    addresses = [info.address for info in graph.trace.modules]
    above: dict[str, str] = {}  # by address, in this order
    for address in [*[addresses[call.module] for call in graph.trace.module_calls if call.number == 1], *addresses]:
        while address and address not in above:  # a container counts as called when something in it first is
            address, inside = address.rpartition(".")[0], address
            above[inside] = address
    children: dict[str, list[str]] = {}
    for address in filter(set(addresses).__contains__, above):
        children.setdefault(above[address], []).append(address)
    return children


# ---- one operation --------------------------------------------------------------------------------------------


def describe_op(op: OpLog) -> str:
    lines = [f"{op_title(op)}:"]
    gradient = gradient_of(op)
    values = {"Output tensor": corner(op._value.saved), "Gradient": None if gradient is None else corner(gradient)}
    for name, fact in op_facts(op):
        lines.append(f"{name}: {fact}")
        value = values.get(name)
        lines += [f"\t{value}"] if value is not None else []
    return "\n\t".join(lines)


def op_title(op: OpLog) -> str:
    passes = f" (pass {op.pass_num}/{op.num_passes})" if op.num_passes > 1 else ""
    return f"Layer {op.layer_label}{passes}, operation {op.operation_num}/{len(op._graph.entries)}"


def op_facts(op: OpLog) -> list[tuple[str, str]]:
    """What matters most about an operation: first its tensor, then the rest."""
    return [
        ("Output tensor", f"shape={op.tensor_shape}, dtype={op.tensor_dtype}, size={op.tensor_memory_str}"),
        *([("Edit", repr(op.edit))] if op.edit is not None else []),
        *([("Gradient", _gradient(op))] if op._graph.trace.gradients is not None else []),
        ("Params", _params(op)),
        ("Parent Layers", _listed(op.parent_layers)),
        ("Child Layers", _listed(op.child_layers)),
        ("Function", f"{op.func_name or 'none'} (grad_fn={op.grad_fn_name})"),
        ("Computed inside module", op.containing_module or "not computed inside a module"),
        ("Time elapsed", f"{op.func_time: .3E}s"),
        *([("Output of modules", _listed(op.modules_exited))] if op.modules_exited else []),
        *([("Output of bottom-level module", op.leaf_module)] if op.leaf_module else []),
        ("Lookup keys", _listed(op.lookup_keys)),
    ]


def _gradient(op: OpLog) -> str:
    why = why_none(op._graph, op._value.index)
    if why is not None:
        return f"none, since {why}"
    came = len(op._graph.trace.gradients.received[op._value.index])  # type: ignore[union-attr]
    return "of the backward pass" if came == 1 else f"of the last of {came:,} backward passes"


def gradient_of(op: OpLog) -> Tensor | None:
    """The last gradient; None, without a warning, if there is none."""
    return last(op.gradients)  # type: ignore[no-any-return]


def _listed(things: Iterable[object]) -> str:
    return ", ".join(map(str, things)) or "none"


def _params(op: OpLog) -> str:
    if not op.uses_params:
        return "no params used"
    shapes = _listed(sorted(op.parent_param_shapes))
    total = f"{op.num_params_total} params total ({op.params_memory_str})"
    return f"Computed from params with shape {shapes}; {total}"


def corner(tensor: Tensor | None) -> str:
    """The first five rows and columns of the last two dimensions."""
    if tensor is None:
        return "(not saved)"
    try:
        shown = tensor
        while shown.dim() > 2:
            shown = shown[0]
        shown = shown[(slice(5),) * shown.dim()]
        dots = "..." if shown.shape != tensor.shape else ""
        return f"{_plain(shown)}{dots}"
    except (RuntimeError, NotImplementedError, IndexError):
        return f"({tensor.layout} tensor on {tensor.device})"


def _plain(tensor: Tensor) -> str:
    """The tensor's print without its type, which stands in the line above."""
    return call_with_grad(False, str, tensor.detach())


def describe_layer(layer: LayerLog) -> str:
    passes = layer.passes
    begin, end = shown_of(len(passes), _MOST_PASSES)
    lines = [f"Layer {layer.layer_label}, {len(passes):,} passes:"]
    lines += [_pass_line(number, passes[number]) for number in range(1, begin + 1)]
    lines += [f"\t... {end - begin:,} more: layer.passes lists all"] if end > begin else []
    lines += [_pass_line(number, passes[number]) for number in range(end + 1, len(passes) + 1)]
    one = layer.layer_label + ":1"
    return "\n".join([*lines, f"\tAsk one pass for more: log[{one!r}] or layer.passes[1]"])


def _pass_line(number: int, op: OpLog) -> str:
    size = f"{shape_words(op.tensor_shape)} ({op.tensor_memory_str})"
    return f"\t{number}: operation {op.operation_num}, {size}  <- {_listed(op.parent_layers)}"
