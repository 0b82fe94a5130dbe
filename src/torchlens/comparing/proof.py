"""Proof by graft: put one run's value into the other, compute on in its own type, and look at the outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from .._torch import grad_scope, set_grad_enabled
from ..capture.records import Value
from ..errors import TorchLensError
from ..replay.downstream import Downstream, Edits
from .findings import Finding
from .layouts import best_fit, laid_out_as, relative_error
from .sides import Side

#: A value that more operations use is not tried along each edge.
_MOST_EDGES = 8


@dataclass(frozen=True)
class Proof:
    """What came of a graft."""

    error: float | None  # how far the outputs are apart after it; None if it could not be made
    operations: int = 0  # how many were computed again
    reason: str = ""  # why it could not be made
    edge: str = ""  # the one operation that got the value, if the others that use it went on as they were

    def is_better_than(self, other: Proof) -> bool:
        return self.error is not None and (other.error is None or self.error < other.error)


def prove(donor: Side, recipient: Side, finding: Finding, good_enough: float) -> Proof:
    """Graft the donor's saved value; if that does not let the outputs agree, along one of its edges alone.

    A step that is missing on one edge, such as a norm before one branch, can't be put in the place of the value itself,
    which others use as it is.
    """
    best = prove_all(donor, recipient, [finding])
    if best.error is not None and best.error <= good_enough:
        return best
    for edge in _edge_proofs(donor, recipient, finding):
        best = edge if edge.is_better_than(best) else best
    return best


def _edge_proofs(donor: Side, recipient: Side, finding: Finding) -> Iterator[Proof]:
    consumers = recipient.consumers.get(finding.recipient, [])
    tensor = _laid_out(donor, recipient, finding)
    if len(consumers) < 2 or tensor is None:
        return
    for number in consumers[:_MOST_EDGES]:
        users = [output.index for output in recipient.trace.calls[number].outputs if output.index in recipient.rank]
        edge = _OneEdge(number, recipient.value(finding.recipient), tensor)
        if users:
            build = partial(Downstream, recipient.graph, {}, calls=[number], edits=edge)
            yield replace(_proof_of(donor, recipient, build), edge=recipient.label(users[0]))


class _OneEdge(Edits):
    """Another tensor for one use of a value."""

    def __init__(self, number: int, value: Value, tensor: Tensor) -> None:
        self.number, self.value, self.tensor = number, value, tensor

    def argument(self, call: int, value: Value, tensor: Tensor) -> Tensor:
        return self.tensor if call == self.number and value is self.value else tensor


def prove_all(donor: Side, recipient: Side, findings: list[Finding]) -> Proof:
    """Graft the donor's saved values, and compare the outputs with the donor's."""
    given: dict[Value, Tensor | None] = {}
    for finding in findings:
        tensor = _laid_out(donor, recipient, finding)
        if tensor is None:
            return Proof(None, reason="a value was not saved")
        given[recipient.value(finding.recipient)] = tensor
    return _proof_of(donor, recipient, partial(Downstream, recipient.graph, given))


def _proof_of(donor: Side, recipient: Side, build: Callable[[], Downstream]) -> Proof:
    for side in (donor, recipient):
        side.make_room()
    try:
        with grad_scope():
            set_grad_enabled(False)
            run = build()
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
