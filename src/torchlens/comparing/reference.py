"""A small file for a test suite: what a run gave, to compare later runs with."""

from __future__ import annotations

import json
import math
from os import PathLike, fsdecode
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..bundle.hashing import hash_of
from ..errors import ArgumentError
from ..log.model_log import ModelLog
from ..log.op_log import OpLog
from .compare import compare
from .fingerprints import fingerprint
from .layouts import plain

_FORMAT = "torchlens reference"
_VERSION = 1

#: Elements of each layer that are kept, evenly spread.
_SAMPLE = 6

#: Rounding that is to be expected in a deep model, in units of what the type rounds by.
_ROUNDINGS, _COARSEST = 1000, 0.1


def save_reference(log: ModelLog, path: str | PathLike[str]) -> Path:
    """Write a small file that later runs can be compared with, to be committed beside the tests; returns its path.

    >>> tl.save_reference(log, folder / "model.json").name
    'model.json'
    >>> tl.assert_same(log, folder / "model.json")

    It is JSON: of each layer its name, shape, type, a few moments and six elements; of each weight a hash. A test calls
    `tl.assert_same(log, path)`, which says on failure where the first difference is.
    """
    if not isinstance(log, ModelLog):
        raise ArgumentError(f"the first argument must be a ModelLog, not {type(log).__name__}")
    layers = [_layer(op) for op in log if op.activation is not None]
    weights = {param.address: _hash(param.kept) for param in log._trace.params if isinstance(param.kept, Tensor)}
    lines = ",\n".join(json.dumps(layer) for layer in layers)
    head = json.dumps({"format": _FORMAT, "version": _VERSION, "model": log.model_name, "weights": weights})
    file = Path(fsdecode(path))
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'{head[:-1]}, "layers": [\n{lines}\n]}}\n', encoding="utf-8")
    except OSError as error:
        raise ArgumentError(
            f"can't write to {str(file)!r} ({getattr(error, 'strerror', None) or error}); give another path"
        ) from None
    return file


def assert_same(a: ModelLog, b: ModelLog | str | PathLike[str], rtol: float | None = None) -> None:
    """Raise `AssertionError` unless two runs agree; its message says where they begin to differ, and why.

    >>> tl.assert_same(log, tl.log_forward_pass(model, x, random_seed=log.random_seed_used))
    >>> tl.assert_same(log, tl.log_forward_pass(model, x + 1))        # doctest: +ELLIPSIS
    Traceback (most recent call last):
    AssertionError: Different from input_1_0 on: the inputs differ: B's is 1 times A's +1. ...

    Args:
        a: a log.
        b: another one, or the path of a file that `tl.save_reference` wrote.
        rtol: how far the outputs may be apart, |a - b| / max(|a|, |b|), whatever the reason. Without it, two logs have
            to agree but for rounding, as `tl.compare` finds it; and every layer of a reference by a thousand times what
            its type rounds by.
    """
    if rtol is not None and (isinstance(rtol, bool) or not isinstance(rtol, (int, float)) or not rtol >= 0):
        raise ArgumentError(f"rtol must be a number, 0 or more, not {rtol!r}")
    if isinstance(b, ModelLog):
        comparison = compare(a, b)
        if not (comparison or (rtol is not None and comparison.output_error <= rtol)):
            raise AssertionError(str(comparison))
        if rtol is not None and comparison.output_error > rtol:
            raise AssertionError(f"The outputs differ by more than rtol={rtol:g}.\n{comparison}")
        return
    difference = _first_difference(a, _read(b), rtol)
    if difference:
        raise AssertionError(difference)


# ---- the file -------------------------------------------------------------------------------------------------------


def _layer(op: OpLog) -> dict[str, Any]:
    tensor = op.activation
    assert tensor is not None
    mark = fingerprint(tensor)
    return {
        "label": op.label,
        "module": op.containing_module or "",
        "shape": list(tensor.shape) if not tensor.is_nested else [],
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "moments": [_short(number) for number in (mark.mean, mark.mean_size, mark.rms, mark.low, mark.high)],
        "sample": [_short(number) for number in _sample(tensor)],
    }


def _sample(tensor: Tensor) -> list[float]:
    if tensor.is_nested or tensor.is_meta or tensor.numel() == 0:
        return []
    numbers = plain(tensor).reshape(-1)
    places = torch.linspace(0, numbers.numel() - 1, min(_SAMPLE, numbers.numel()), dtype=torch.float64).round().long()
    found: list[float] = numbers[places].tolist()
    return found


def _short(number: float) -> float | str:
    """JSON has no infinity and no NaN."""
    return float(f"{number:.9g}") if math.isfinite(number) else str(number)


def _hash(tensor: Tensor) -> str:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return hash_of(flat.view(torch.uint8).numpy().tobytes())[:16]


def _read(path: str | PathLike[str]) -> dict[str, Any]:
    file = Path(fsdecode(path))
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ArgumentError(
            f"{str(file)!r} can't be read as a reference ({error}); tl.save_reference writes one"
        ) from None
    if not isinstance(found, dict) or found.get("format") != _FORMAT or found.get("version") != _VERSION:
        raise ArgumentError(f"{str(file)!r} is not a reference of this version; write it again with tl.save_reference")
    return found


# ---- comparing with it ----------------------------------------------------------------------------------------------


def _first_difference(log: ModelLog, reference: dict[str, Any], rtol: float | None) -> str:
    """In words; empty if there is none."""
    kept, now = reference["layers"], [op for op in log if op.activation is not None]
    for layer, op in zip(kept, now, strict=False):
        words = _difference(layer, _layer(op), rtol)
        if words:
            stack = op.func_call_stack
            where = f" ({stack[0].file}:{stack[0].line})" if stack else ""
            changed = _changed_weights(log, reference)
            return f"Different from the reference from {op.label} on{where}: {words}.{changed}"
    if len(kept) != len(now):
        return f"The reference has {len(kept)} layers, this run {len(now)}; those that both have agree."
    return ""


def _difference(kept: dict[str, Any], now: dict[str, Any], rtol: float | None) -> str:
    for fact, name in (("label", "it was"), ("shape", "its shape was"), ("dtype", "its type was")):
        if kept[fact] != now[fact]:
            return f"{name} {kept[fact]} and is {now[fact]}"
    allowed = _allowed(now["dtype"]) if rtol is None else rtol
    size = max(
        abs(float(number)) for number in (*kept["moments"], *now["moments"], 0.0) if math.isfinite(float(number))
    )
    for fact, name in (("sample", "elements"), ("moments", "moments")):
        pairs = zip(map(float, kept[fact]), map(float, now[fact]), strict=True)
        error = max((_relative(x, y, size) for x, y in pairs), default=0.0)
        if error > allowed:
            return f"its {name} differ by up to {error:.1e} (relative), allowed is {allowed:.1e}"
    return ""


def _relative(one: float, other: float, size: float) -> float:
    """How far two numbers of a layer are apart, against its size; what fills a mask is larger than that."""
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    error = abs(one - other) / max(size, abs(one), abs(other))
    return error if math.isfinite(error) else math.inf


def _allowed(dtype: str) -> float:
    kind = getattr(torch, dtype)
    return min(_COARSEST, _ROUNDINGS * torch.finfo(kind).eps) if kind.is_floating_point else 0.0


def _changed_weights(log: ModelLog, reference: dict[str, Any]) -> str:
    kept = reference["weights"]
    now = {param.address: param.kept for param in log._trace.params if isinstance(param.kept, Tensor)}
    changed = [name for name, tensor in now.items() if name in kept and _hash(tensor) != kept[name]]
    if not changed:
        return " The weights are those of the reference."
    return f" {len(changed)} of {len(now)} weights differ from the reference, such as {changed[0]}."
