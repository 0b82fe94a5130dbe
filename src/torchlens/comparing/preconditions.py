"""What is looked at before anything else: versions, inputs, weights, mode, types, seeds.

Most questions of the kind "why do my numbers differ?" end here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..capture.records import Value
from ..capture.versions import versions_of
from ..replay.same import same
from ..words import counted
from .fingerprints import FingerprintIndex, fingerprint
from .layouts import relative_error
from .sides import Side
from .weights import is_part

_EQUAL = 1e-6
_FEW = 4


@dataclass(frozen=True)
class Check:
    """One thing that both runs should have in common."""

    name: str  # "versions", "inputs", "weights", "mode", "types", "seeds"
    same: bool
    text: str


def run_checks(a: Side, b: Side) -> list[Check]:
    """Each of the checks, in the order in which they are worth reading."""
    return [_versions(a, b), _inputs(a, b), _weights(a, b), _mode(a, b), _types(a, b), *_seeds(a, b)]


# ---- versions -----------------------------------------------------------------------------------------------------


def _versions(a: Side, b: Side) -> Check:
    """Of Python and the packages that both models use; those of a log that was saved long ago may not be known."""
    one, other = versions_of(a.trace), versions_of(b.trace)
    common = [name for name in one if name in other]
    words = [f"{name} {one[name]} in A, {other[name]} in B" for name in common if one[name] != other[name]]
    if words:
        return Check("versions", False, "; ".join(words))
    known = ", ".join(f"{name} {one[name]}" for name in common)
    return Check("versions", True, f"both {known}" if known else "not known")


# ---- inputs -------------------------------------------------------------------------------------------------------


def _inputs(a: Side, b: Side) -> Check:
    if len(a.inputs) != len(b.inputs):
        counts = f"A was given {counted(len(a.inputs), 'tensor')}, B {len(b.inputs)}"
        return Check("inputs", False, counts)
    pairs = [(a.value(i), b.value(j)) for i, j in zip(a.inputs, b.inputs, strict=True)]
    different = [_input_words(x, y) for x, y in pairs]
    words = [each for each in different if each]
    if words:
        return Check("inputs", False, "; ".join(words[:_FEW]))
    return Check("inputs", True, f"equal ({counted(len(pairs), 'tensor')})")


def _input_words(one: Value, other: Value) -> str:
    """How two inputs differ; empty if they are equal up to their type or layout."""
    x, y = one.saved, other.saved
    name = one.address or "the input"
    if x is None or y is None:
        return f"{name} was not saved"
    if x.shape != y.shape:
        alike = fingerprint(x)[:1] + fingerprint(x)[6:8] == fingerprint(y)[:1] + fingerprint(y)[6:8]
        return "" if alike else f"{name} has shape {tuple(x.shape)} in A and {tuple(y.shape)} in B"
    if same(x, y):
        return ""
    if not x.is_floating_point():
        return f"{name} differs in {int((x != y).sum())} of {x.numel()} elements"
    coarse = max(torch.finfo(t.dtype).eps for t in (x, y) if t.is_floating_point())
    error = relative_error(x, y)
    return "" if error <= coarse and x.dtype != y.dtype else f"{name} differs (relative difference {error:.1e})"


# ---- weights ------------------------------------------------------------------------------------------------------


def _weights(a: Side, b: Side) -> Check:
    """Every parameter that was used, matched by content: equal, transposed, split, fused."""
    changed = [v.address for side in (a, b) for v in side.trace.params if v.index in side.exact.changed_since]
    names = {side.name for side in (a, b) if side.exact.changed_since}
    if changed:
        of = " and ".join(sorted(names))
        text = f"{counted(len(changed), 'weight')} changed since log {of} was made, such as {changed[0]}"
        return Check("weights", False, f"{text}: a log refers to the model's weights; tl.save keeps them")
    forward, found = _counterparts(a, b), _counterparts(b, a)
    lost = [v for v, how in forward if not how], [v for v, how in found if not how]
    kinds = [how for _, how in forward if how not in ("", "equal")]
    notes = [f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)]
    total = len(forward)
    if not any(lost):
        extra = f" ({', '.join(notes)})" if notes else ""
        return Check("weights", True, f"all {total} of A have a counterpart of the same numbers in B{extra}")
    words = [f"{len(lost[0])} of {total} in A and {len(lost[1])} of {len(found)} in B have no equal on the other side"]
    words += _named_differences(a, b, *lost)
    return Check("weights", False, "; ".join(words))


def _named_differences(a: Side, b: Side, lost_a: list[Value], lost_b: list[Value]) -> list[str]:
    """Those that have the same name on both sides, with how far they are apart; else their names."""
    by_name = {value.address: value for value in lost_b}
    words = []
    for value in lost_a[:_FEW]:
        other = by_name.get(value.address)
        one, two = a.param(value), None if other is None else b.param(other)
        if one is not None and two is not None and one.shape == two.shape:
            words.append(f"{value.address} differs by {relative_error(one, two):.1e}")
    if not words:
        words = [f"{side.name}'s {lost[0].address}" for side, lost in ((a, lost_a), (b, lost_b)) if lost]
    return words


def _counterparts(side: Side, other: Side) -> list[tuple[Value, str]]:
    """Each parameter with how it appears on the other side; "" if it does not."""
    by_name = {value.address: value for value in other.trace.params}
    same_name = {value.index for value in side.trace.params if _is_same(value, by_name.get(value.address))}
    if len(same_name) == len(side.trace.params):
        return [(value, "equal") for value in side.trace.params]
    others = [tensor for tensor in _all_tensors(other) if tensor is not None]
    index = FingerprintIndex(dict(enumerate(fingerprint(tensor) for tensor in others)), 1e-8)
    return [
        (value, "equal" if value.index in same_name else _counterpart(side.param(value), others, index))
        for value in side.trace.params
    ]


def _is_same(one: Value, other: Value | None) -> bool:
    """Bit for bit: the usual case, and quickly seen."""
    x, y = one.saved, None if other is None else other.saved
    return x is not None and y is not None and (x is y or same(x, y))


def _all_tensors(side: Side) -> list[Tensor | None]:
    """Parameters, and buffers and constants, which are parameters elsewhere."""
    fixed = [side.values[i] for i in side.ids if side.value(i).role in ("buffer", "source")]
    return [side.param(value) for value in side.trace.params] + fixed


def _counterpart(tensor: Tensor | None, others: list[Tensor], index: FingerprintIndex) -> str:
    if tensor is None:
        return ""
    mark = fingerprint(tensor)
    alike = (others[key] for key in index.each(mark))
    if any(other.shape == tensor.shape and relative_error(tensor, other) < _EQUAL for other in alike):
        return "equal"
    found = [others[key] for key in index.find(mark)]
    turned = tensor.t() if tensor.dim() == 2 else tensor
    if any(other.shape == turned.shape and relative_error(turned, other) < _EQUAL for other in found):
        return "transposed"
    if any(other.numel() == tensor.numel() for other in found):
        return "reshaped"
    if not mark.telling:
        return ""  # zeros are a part of all others
    for other in others:
        for each in (tensor, turned):
            if is_part(each, other):
                return "fused"
            if is_part(other, each):
                return "split"
    return ""


# ---- mode, types, seeds ---------------------------------------------------------------------------------------------


def _mode(a: Side, b: Side) -> Check:
    modes = []
    for side in (a, b):
        training = [info.training for info in side.trace.modules]
        modes.append("training" if all(training) else "evaluation" if not any(training) else "partly training")
    if modes[0] != modes[1]:
        return Check("mode", False, f"A ran in {modes[0]} mode, B in {modes[1]} mode")
    unlike = _unlike_modules(a, b)
    if unlike:
        return Check("mode", False, f"the modes of {counted(len(unlike), 'module')} differ, such as {unlike[0]}")
    return Check("mode", True, f"both {modes[0]}")


def _unlike_modules(a: Side, b: Side) -> list[str]:
    modes = {info.address: info.training for info in a.trace.modules}
    return [info.address for info in b.trace.modules if modes.get(info.address, info.training) != info.training]


def _types(a: Side, b: Side) -> Check:
    words = [_type_words(side) for side in (a, b)]
    if words[0] == words[1]:
        return Check("types", True, f"both {words[0]}")
    return Check("types", False, f"A computes in {words[0]}, B in {words[1]}")


def _type_words(side: Side) -> str:
    """The types of the weights, and of autocast."""
    types = {str(v.dtype).removeprefix("torch.") for v in side.trace.params if v.dtype.is_floating_point}
    cast = {str(dtype).removeprefix("torch.") for call in side.trace.calls for _, dtype in call.state[2]}
    name = " and ".join(sorted(types)) or str(side.param_type).removeprefix("torch.")
    return f"{name} with autocast to {' and '.join(sorted(cast))}" if cast else name


def _seeds(a: Side, b: Side) -> list[Check]:
    """Asked only where something random ran."""
    random = [any(call.rng is not None for call in side.trace.calls) for side in (a, b)]
    if not any(random):
        return []
    if int(a.trace.seed) == int(b.trace.seed):
        return [Check("seeds", True, f"both {int(a.trace.seed)}")]
    return [
        Check("seeds", False, f"random numbers were drawn: seed {int(a.trace.seed)} in A, {int(b.trace.seed)} in B")
    ]
