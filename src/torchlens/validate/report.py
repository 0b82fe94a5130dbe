"""What a validation found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from ..replay.same import difference, same
from ..words import counted

if TYPE_CHECKING:
    from ..log.op_log import OpLog


_MOST_LISTED = 20
_MOST_REASONS = 5


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong."""

    check: str  # "replay", "perturbation", "outputs", "completeness", "parameters", "lint", "warning"
    layer: str | None
    what: str

    def __str__(self) -> str:
        return f"{self.check}: {self.layer + ': ' if self.layer else ''}{self.what}"


@dataclass
class Report:
    """True if nothing is wrong; `print` says what was found."""

    problems: list[Problem] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.problems

    def _verdict(self) -> str:
        return "Valid" if self else f"NOT valid, {counted(len(self.problems), 'problem')}"

    def _listed(self) -> list[str]:
        more = [f"\t... and {len(self.problems) - _MOST_LISTED} more"] if len(self.problems) > _MOST_LISTED else []
        return [f"\t{problem}" for problem in self.problems[:_MOST_LISTED]] + more

    def __repr__(self) -> str:
        return str(self)


@dataclass(repr=False)
class ValidationReport(Report):
    """The answer to "are the saved values right?": true or false, and `print` says why.

    >>> report = log.validate()
    >>> bool(report)
    True
    >>> print(report)
    Valid: 9 operations replayed, 11 parents perturbed (0 had no influence at these values), 2 tensors given.
    """

    replayed: list[str] = field(default_factory=list)  # operations whose saved value was computed again
    given: list[str] = field(default_factory=list)  # inputs, buffers, other tensors that nothing computed
    perturbed: int = 0  # (operation, parent) pairs where changing the parent changed the result
    without_influence: list[tuple[str, str]] = field(default_factory=list)  # pairs where it did not, however changed
    unverified: list[tuple[str, str]] = field(default_factory=list)  # operations that can't be run alone, and why
    unstable: list[str] = field(default_factory=list)  # operations that give another result each time by themselves

    def compare_outputs(self, expected: list[Tensor], logged: list[OpLog]) -> None:
        """Compare the logged outputs with those of a plain run."""
        if len(expected) != len(logged):
            what = f"the plain run returned {len(expected)} tensors, the logged one {len(logged)}"
            self.problems.append(Problem("outputs", None, what))
        for tensor, layer in zip(expected, logged, strict=False):
            if layer.activation is None or not same(layer.activation, tensor):
                what = "not saved" if layer.activation is None else difference(layer.activation, tensor)
                self.problems.append(Problem("outputs", layer.label, f"differs from a plain run: {what}"))

    def _verdict(self) -> str:
        """What can't be run again is no error, and no proof."""
        return "Valid as far as checked" if self and self.unverified else super()._verdict()

    def _unverified(self) -> list[str]:
        """A line for each reason, with the operations that it holds for."""
        labels: dict[str, list[str]] = {}
        for label, reason in self.unverified:
            labels.setdefault(reason, []).append(label)
        lines = [f"\tNot verified: {_few(found)}: {reason}" for reason, found in labels.items()]
        more = [f"\t... and {len(lines) - _MOST_REASONS} more reasons"] if len(lines) > _MOST_REASONS else []
        return lines[:_MOST_REASONS] + more

    def _replayed(self) -> str:
        """Of all operations, `5 of 9`."""
        others = [label for label, _ in self.unverified if not label.startswith("the edit of ")]
        if not others:
            return counted(len(self.replayed), "operation")
        return f"{len(self.replayed):,} of {counted(len(self.replayed) + len(others), 'operation')}"

    def __str__(self) -> str:
        lines = [
            f"{self._verdict()}: {self._replayed()} replayed, "
            f"{counted(self.perturbed, 'parent')} perturbed ({len(self.without_influence)} had no influence at these "
            f"values), {counted(len(self.given), 'tensor')} given."
        ]
        if self.unstable:
            lines.append(f"\tNot reproducible by themselves: {', '.join(self.unstable[:10])}")
        return "\n".join([*lines, *self._unverified(), *self._listed()])


def _few(labels: list[str]) -> str:
    more = f" and {len(labels) - _MOST_REASONS} more" if len(labels) > _MOST_REASONS else ""
    return ", ".join(labels[:_MOST_REASONS]) + more
