"""What a validation found."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong."""

    check: str  # "replay", "perturbation", "outputs", "completeness", "lint", "warning"
    layer: str | None
    what: str

    def __str__(self) -> str:
        return f"{self.check}: {self.layer + ': ' if self.layer else ''}{self.what}"


@dataclass
class ValidationReport:
    """The answer to "are the saved values right?": true or false, and `print` says why.

    >>> report = log.validate()
    >>> bool(report)
    True
    >>> print(report)                     # doctest: +ELLIPSIS
    Valid: 9 operations replayed, 11 parents perturbed ...
    """

    problems: list[Problem] = field(default_factory=list)
    replayed: list[str] = field(default_factory=list)  # operations whose saved value was computed again
    given: list[str] = field(default_factory=list)  # inputs, buffers, other tensors that nothing computed
    perturbed: int = 0  # (operation, parent) pairs where changing the parent changed the result
    without_influence: list[tuple[str, str]] = field(default_factory=list)  # pairs where it did not, however changed
    unstable: list[str] = field(default_factory=list)  # operations that give another result each time by themselves

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        verdict = "Valid" if self else f"NOT valid, {len(self.problems)} problems"
        lines = [
            f"{verdict}: {len(self.replayed)} operations replayed, {self.perturbed} parents perturbed "
            f"({len(self.without_influence)} had no influence at these values), {len(self.given)} tensors given."
        ]
        if self.unstable:
            lines.append(f"\tNot reproducible by themselves: {', '.join(self.unstable[:10])}")
        lines += [f"\t{problem}" for problem in self.problems[:20]]
        if len(self.problems) > 20:
            lines.append(f"\t... and {len(self.problems) - 20} more")
        return "\n".join(lines)

    __repr__ = __str__
