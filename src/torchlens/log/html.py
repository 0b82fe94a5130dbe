"""What a notebook shows: the same facts as `print`, as tables that fold.

A table's headings are the names of attributes, so that what is seen can be asked for. What comes from a model is
escaped, and nothing is fetched from anywhere. Colours are the page's own, so that light and dark both work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..words import counted, shape_words
from . import text

if TYPE_CHECKING:
    from .accessor import Accessor
    from .layer_log import LayerLog
    from .model_log import ModelLog
    from .module_log import ModuleLog, ModulePassLog
    from .op_log import OpLog
    from .tensor_logs import BufferLog, ParamLog

#: The most rows of a table, and of one that is open at first.
MOST_ROWS = 200
MOST_ROWS_OPEN = 15
_MOST_LISTED = 4

_LAYERS = ("label", "tensor_shape", "tensor_dtype", "tensor_memory_str", "containing_module", "parent_layers")
_MODULES = ("address", "module_class_name", "num_passes", "num_params", "output_layers")
_PARAMS = ("address", "shape", "dtype", "memory_str", "trainable")
_BUFFERS = ("address", "shape", "dtype", "memory_str", "used_by")

_MODULE = (
    "module_class_name",
    "num_passes",
    "training",
    "num_params",
    "macs",
    "flops",
    "layers",
    "output_layers",
    "params",
)
_MODULE_CALL = ("layers", "output_layers", "call_children")
_PARAM = ("shape", "dtype", "device", "memory_str", "trainable", "used_by", "module_address", "all_addresses")
_BUFFER = ("shape", "dtype", "device", "memory_str", "layers", "used_by", "module_address", "all_addresses")

_STYLE = """<style>
.torchlens {font-size: 13px; line-height: 1.5}
.torchlens table {border-collapse: collapse; margin: 2px 0 6px 0}
.torchlens th, .torchlens td {text-align: left; vertical-align: top; padding: 1px 10px 1px 0; color: inherit;
  background: none; border: none; border-bottom: 1px solid rgba(128, 128, 128, .3)}
.torchlens th {font-size: 12px; font-weight: 600; white-space: nowrap}
.torchlens td {font-size: 12px; font-family: monospace; overflow-wrap: anywhere}
.torchlens td.number {text-align: right; opacity: .6}
.torchlens summary {cursor: pointer}
.torchlens pre {margin: 2px 0; font-size: 12px; color: inherit; background: none}
.torchlens .rows {max-height: 26em; overflow: auto}
</style>"""


def log_html(log: ModelLog) -> str:
    warnings = "".join(f"<div>⚠ {escape(warning)}</div>" for warning in log.warnings)
    facts = "".join(f"<div>{escape(fact)}</div>" for fact in text.log_facts(log))
    parts = [_folded(counted(len(log), "operation"), len(log), _records(log, _LAYERS))]
    for records in (log.modules, log.params, log.buffers):
        if len(records):
            parts.append(_folded(records._title(), len(records), _records(records, _columns(records)), is_open=False))
    return block(f"<b>{escape(text.log_title(log))}</b>{facts}{warnings}{''.join(parts)}")


def op_html(op: OpLog) -> str:
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(fact.strip())}</td></tr>" for name, fact in text.op_facts(op)
    )
    gradient = text.gradient_of(op)
    tensors = [("Value", op._value.saved), *([("Gradient", gradient)] if gradient is not None else [])]
    values = "".join(
        f"<details><summary>{name}</summary><pre>{escape(text.corner(tensor))}</pre></details>"
        for name, tensor in tensors
    )
    return block(f"<b>{escape(text.op_title(op))}</b><table>{rows}</table>{values}{_code(op)}")


def layer_html(layer: LayerLog) -> str:
    title = f"Layer {layer.layer_label}, {layer.num_passes} passes"
    hint = f"<div>One pass: <code>log[{escape(repr(layer.layer_label + ':1'))}]</code></div>"
    table = _records(layer.passes.values(), ("label", "operation_num", *_LAYERS[1:]), first=1)
    return block(_folded(title, layer.num_passes, table, is_open=True) + hint)


def accessor_html(records: Accessor[Any]) -> str:
    return block(_folded(records._title(), len(records), _records(records, _columns(records))))


def module_html(module: ModuleLog) -> str:
    return _record(f"Module {module.address}", module, _MODULE)


def module_call_html(call: ModulePassLog) -> str:
    return _record(f"Module call {call.label}", call, _MODULE_CALL)


def param_html(param: ParamLog) -> str:
    return _record(f"Parameter {param.address}", param, _PARAM)


def buffer_html(buffer: BufferLog) -> str:
    return _record(f"Buffer {buffer.address}", buffer, _BUFFER)


# ---- pieces -------------------------------------------------------------------------------------------------------


def block(body: str) -> str:
    """What a notebook shows, with its style."""
    return f'<div class="torchlens">{_STYLE}{body}</div>'


def _folded(title: str, rows: int, table: str, is_open: bool | None = None) -> str:
    shown = rows <= MOST_ROWS_OPEN if is_open is None else is_open
    state = ' open=""' if shown else ""
    return f"<details{state}><summary>{escape(title)}</summary>{table}</details>"


def _columns(records: Accessor[Any]) -> Sequence[str]:
    return {"module": _MODULES, "parameter": _PARAMS, "buffer": _BUFFERS}[records.noun]


def _records(records: Iterable[Any], columns: Sequence[str], first: int = 0) -> str:
    """A numbered row for each record, with these attributes of it."""
    each = list(records)
    head = "".join(f"<th>{name}</th>" for name in ("", *columns))
    rows = "".join(
        f'<tr><td class="number">{number}</td>{"".join(_cell(getattr(record, name)) for name in columns)}</tr>'
        for number, record in enumerate(islice(each, MOST_ROWS), first)
    )
    more = f"<div>... and {len(each) - MOST_ROWS} more</div>" if len(each) > MOST_ROWS else ""
    return f'<div class="rows"><table><tr>{head}</tr>{rows}</table>{more}</div>'


def _record(title: str, record: Any, names: Sequence[str]) -> str:
    """A row for each of these attributes of one record."""
    rows = "".join(f"<tr><th>{name}</th>{_cell(getattr(record, name))}</tr>" for name in names)
    return block(f"<b>{escape(title)}</b><table>{rows}</table>")


def _cell(fact: Any) -> str:
    if isinstance(fact, list):
        words = ", ".join(map(str, fact[:_MOST_LISTED])) + (f", ... {len(fact)}" if len(fact) > _MOST_LISTED else "")
    elif isinstance(fact, tuple):
        words = shape_words(fact)
    elif isinstance(fact, int) and not isinstance(fact, bool):
        words = f"{fact:,}"
    else:
        words = "" if fact is None else str(fact).removeprefix("torch.")
    return f"<td>{escape(words)}</td>"


def _code(op: OpLog) -> str:
    """Where in the user's code it was computed."""
    places = op.func_call_stack
    if not places:
        return ""
    return f"<details><summary>Code</summary><pre>{escape(str(places[0]))}</pre></details>"
