"""A table by module: shapes, parameters, work and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..errors import ArgumentError, near
from ..words import counted, human_size, shapes_words, times

if TYPE_CHECKING:
    from .model_log import ModelLog
    from .module_log import ModuleLog


class PrintedText(str):
    """A string that shows itself as it prints, in a notebook or at the prompt."""

    def __repr__(self) -> str:
        return str(self)


def _shapes(log: ModelLog, labels: list[str]) -> str:
    return shapes_words(log[label].tensor_shape for label in labels[:2]) + (", ..." if labels[2:] else "")


def _first_pass(module: ModuleLog, attribute: str) -> list[str]:
    return getattr(module.passes[1], attribute) if module.num_passes else []


def _number(amount: int | None) -> str:
    return "unknown" if amount is None else f"{amount:,}" if amount else "--"


#: What each column is called and how a module fills it.
COLUMNS: dict[str, tuple[str, Callable[[ModelLog, ModuleLog], str]]] = {
    "input_shape": ("Input shape", lambda log, m: _shapes(log, _first_pass(m, "input_layers"))),
    "output_shape": ("Output shape", lambda log, m: _shapes(log, _first_pass(m, "output_layers"))),
    "num_params": ("Params", lambda log, m: _number(m.num_params)),
    "macs": ("Mult-adds", lambda log, m: _number(m.macs)),
    "flops": ("FLOPs", lambda log, m: _number(m.flops)),
    "memory": ("Activations", lambda log, m: human_size(m.activation_memory)),
    "time": ("Time", lambda log, m: f"{1e3 * m.time:.2f} ms"),
    "passes": ("Calls", lambda log, m: str(m.num_passes)),
    "trainable": ("Trainable", lambda log, m: _trainable(log, m)),
}


def summarize(log: ModelLog, columns: Sequence[str], depth: int | None) -> PrintedText:
    columns = [columns] if isinstance(columns, str) else columns
    for name in columns:
        if name not in COLUMNS:
            raise ArgumentError(f"no column {name!r} (there are {', '.join(COLUMNS)}){near(name, COLUMNS)}")
    rows = [("Module", *(COLUMNS[name][0] for name in columns))]
    for module in _in_order(log):
        level = 0 if module.address == "self" else module.address.count(".") + 1
        if depth is None or level <= depth:
            rows.append((_name(log, module, level), *(COLUMNS[name][1](log, module) for name in columns)))
    return PrintedText("\n".join([*_table(rows), *_totals(log)]))


def _in_order(log: ModelLog) -> list[ModuleLog]:
    """The modules as a tree of addresses, parents before children, siblings in the order they were built."""
    order = {module.address: number for number, module in enumerate(log.modules)}

    def path(module: ModuleLog) -> list[int]:
        parts = [] if module.address == "self" else module.address.split(".")
        return [order.get(".".join(parts[: i + 1]), 0) for i in range(len(parts))]

    return sorted(log.modules, key=path)


def _name(log: ModelLog, module: ModuleLog, level: int) -> str:
    if not level:
        return log.model_name
    return f"{'  ' * level}{module.address.rpartition('.')[2]}: {module.module_class_name}{times(module.num_passes)}"


def _trainable(log: ModelLog, module: ModuleLog) -> str:
    flags = {log.params[address].trainable for address in module.params}
    return "--" if not flags else "partly" if len(flags) > 1 else str(flags.pop())


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for first, *cells in rows:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *padded]))
    rule = "=" * len(lines[0])
    return [rule, lines[0], rule, *lines[1:], rule]


def _totals(log: ModelLog) -> list[str]:
    inputs = human_size(sum(log[label].tensor_memory for label in log.input_layers))
    unknown = log.layers_with_unknown_flops
    named = f"{', '.join(unknown[:3])}{', ...' if unknown[3:] else ''}"
    return [
        f"Params: {log.total_params:,} ({log.total_params_trainable:,} trainable, {log.total_params_frozen:,} frozen), "
        f"{log.total_params_memory_str}",
        f"Mult-adds: {log.total_macs:,}; FLOPs: {log.total_flops:,}"
        + (f" and those of {counted(len(unknown), 'layer')} without a formula ({named})" if unknown else ""),
        f"Input: {inputs}; activations: {log.total_activation_memory_str} in {log.num_tensors_total} tensors",
        f"Time: {log.time_total:.3f} s, of which {log.time_function_calls:.3f} s in {len(log.op_labels)} operations",
    ]
