"""Proof by graft: put one run's value into the other, compute on in its own type, and look at the outputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from .._torch import grad_scope, set_grad_enabled
from ..capture.records import Value
from ..errors import TorchLensError
from ..replay.downstream import Downstream
from .findings import Finding
from .layouts import best_fit, laid_out_as, relative_error
from .sides import Side


@dataclass(frozen=True)
class Proof:
    """What came of a graft."""

    error: float | None  # how far the outputs are apart after it; None if it could not be made
    operations: int = 0  # how many were computed again
    reason: str = ""  # why it could not be made


def prove(donor: Side, recipient: Side, findings: list[Finding]) -> Proof:
    """Graft the donor's saved values, and compare the outputs with the donor's."""
    given: dict[Value, Tensor | None] = {}
    for finding in findings:
        tensor = _laid_out(donor, recipient, finding)
        if tensor is None:
            return Proof(None, reason="a value was not saved")
        given[recipient.value(finding.recipient)] = tensor
    try:
        with grad_scope():
            set_grad_enabled(False)
            run = Downstream(recipient.graph, given)
            computed = sum(value.role == "op" for value, _ in run.values())
    except TorchLensError as error:
        return Proof(None, reason=str(error))
    return Proof(output_error(donor, recipient, run), computed)


def _laid_out(donor: Side, recipient: Side, finding: Finding) -> Tensor | None:
    one, other = donor.value(finding.donor).saved, recipient.value(finding.recipient).saved
    if one is None or other is None or one.numel() != other.numel():
        return None
    one = one.detach()
    if one.shape != other.shape:
        exact, own = donor.values[finding.donor], recipient.values[finding.recipient]
        found = None if exact is None or own is None else best_fit(exact, own)
        if found is None:
            return None
        one = laid_out_as(one, other.shape, found.how)
    return one.to(other.dtype)


def output_error(donor: Side, recipient: Side, run: Downstream | None = None) -> float:
    """How far the outputs are apart, as they were saved or, of the recipient, computed anew."""
    worst = 0.0
    for j, i in zip(donor.outputs, recipient.outputs, strict=False):
        one, value = donor.value(j).saved, recipient.value(i)
        other = value.saved if run is None else run.tensor(value)
        if one is None or other is None:
            return math.inf
        worst = max(worst, tensor_error(one, other))
    return worst


def tensor_error(one: Tensor, other: Tensor) -> float:
    if one.shape == other.shape:
        return relative_error(one, other)
    found = best_fit(one.double() if one.is_floating_point() else one, other)
    return math.inf if found is None else found.error
