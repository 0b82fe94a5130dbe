"""What a comparison found: what users hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from .aligned import Aligned
from .findings import Finding
from .float64_values import Values
from .matching import Matching
from .operation_pairs import Row, aligned_rows
from .preconditions import Check
from .proof import Proof, prove, prove_all
from .sides import Side


@dataclass
class Outcome:
    """What the search came to."""

    status: str  # "identical", "rounding", "hidden", "differs"
    matching: Matching | Aligned | None = None
    findings: list[Finding] = field(default_factory=list)
    observed: float = 0.0  # between the outputs as they were saved
    in_float64: float = 0.0  # between the outputs in float64
    rounding: dict[str, float] = field(default_factory=dict)  # of each side, in its outputs
    constants: bool = False  # only constants are rounded in another way
    original: Values | None = None  # of the recipient, before anything was grafted
    unwritten: int = 0  # values that differ in memory that nothing was written to yet, and only there

    @property
    def expected(self) -> float:
        """How far the outputs may be apart for rounding alone."""
        return max(10 * sum(self.rounding.values()), 1e-9)


@dataclass(frozen=True)
class Difference:
    """One reason why two runs differ.

    >>> doubled = tl.log_forward_pass(model, x * 2, random_seed=log.random_seed_used)
    >>> difference = tl.compare(log, doubled).first_difference
    >>> difference.a, difference.b, difference.cause
    ('input_1_0', 'input_1_0', "the inputs differ: B's is 2 times A's")

    `times` says how often it occurs, `places` where: pairs of labels, the first of which is `a` and `b`.
    """

    a: str  # the operation in A, by its label
    b: str
    kind: str  # "operation", "source", "order", "region", "missing", "unproven"
    cause: str
    module_a: str
    module_b: str
    line_a: str  # file and line; empty for what no call made
    line_b: str
    error: float  # how far the two values are apart, relative
    places: tuple[tuple[str, str], ...]

    @property
    def times(self) -> int:
        return len(self.places)


class Comparison:
    """What `tl.compare` found. Its print begins with the answer.

    >>> comparison = tl.compare(log, tl.log_forward_pass(model, x, random_seed=log.random_seed_used))
    >>> comparison.status, bool(comparison), comparison.first_difference
    ('identical', True, None)
    >>> comparison.rows[3]
    Row(a='linear_1_3', b='linear_1_3', shape_a=(5, 5), shape_b=(5, 5), error=0.0, rounding=0.0, in_float64=0.0,
        status='equal')

    `status` is one of

        identical   bit for bit
        rounding    in float64 they agree: what differs is rounding
        hidden      there is a real difference, smaller than the rounding of these runs
        differs     there is a difference; `first_difference` says where and why

    and `bool(comparison)` is True for the first two. `checks` is what was looked at first: versions, inputs,
    weights, mode, types, seeds. `differences` lists all that was found, one for each cause; `rows` aligns the
    operations of both.
    """

    def __init__(self, a: Side, b: Side, outcome: Outcome, checks: list[Check]) -> None:
        self._a, self._b, self._outcome = a, b, outcome
        self.status = outcome.status
        self.checks = checks

    def __bool__(self) -> bool:
        return self.status in ("identical", "rounding")

    def __repr__(self) -> str:
        from .comparison_text import describe

        return describe(self)

    def _repr_html_(self) -> str:
        from .comparison_html import comparison_html

        return comparison_html(self)

    @property
    def verdict(self) -> str:
        """The answer, in plain words."""
        from .comparison_text import verdict

        return verdict(self)

    @property
    def output_error(self) -> float:
        """How far the outputs are apart, as they were saved: the largest |a - b| / max(|a|, |b|)."""
        return self._outcome.observed

    @property
    def _donor(self) -> Side:
        return self._a if self._outcome.matching is None else self._outcome.matching.donor

    @property
    def _recipient(self) -> Side:
        return self._b if self._outcome.matching is None else self._outcome.matching.recipient

    @property
    def first_difference(self) -> Difference | None:
        """The first operation whose inputs agree and whose result does not; None if there is none."""
        return self.differences[0] if self.differences else None

    @cached_property
    def differences(self) -> list[Difference]:
        """All that was found, one for each cause, in the order in which they appear."""
        families: dict[Any, list[Finding]] = {}
        for finding in sorted(self._findings, key=lambda each: each.along_the_way):
            families.setdefault(finding.family, []).append(finding)
        return [self._difference(findings) for findings in families.values()]

    def _difference(self, findings: list[Finding]) -> Difference:
        first = findings[0]
        a, b = self._in_order(first)
        places = [self._in_order(finding) for finding in findings]
        return Difference(
            self._a.label(a),
            self._b.label(b),
            "missing" if first.kind == "extra" else first.kind,
            first.cause,
            self._a.module(a),
            self._b.module(b),
            self._a.line(a),
            self._b.line(b),
            first.error,
            tuple((self._a.label(x), self._b.label(y)) for x, y in places),
        )

    def _in_order(self, finding: Finding) -> tuple[int, int]:
        """Of A, then of B."""
        pair = finding.donor, finding.recipient
        return pair if self._donor is self._a else pair[::-1]

    @cached_property
    def proof(self) -> Proof | None:
        """What happens if the value of one run is put into the other at the first difference; None if there is none."""
        findings = self._outcome.findings
        return prove(self._donor, self._recipient, findings[0], self._outcome.expected) if findings else None

    @cached_property
    def full_proof(self) -> Proof | None:
        """The same for all differences at once; None if there are not several."""
        findings = self._findings
        return prove_all(self._donor, self._recipient, findings) if len(findings) > 1 else None

    @property
    def is_proved(self) -> bool:
        """Do the outputs agree but for rounding, or nearly so, when what differs is put right?"""
        found = (self.proof, self.full_proof)
        errors = [proof.error for proof in found if proof is not None and proof.error is not None]
        return bool(errors) and min(errors) <= max(self._outcome.expected, self.output_error / 10)

    @cached_property
    def _findings(self) -> list[Finding]:
        """Without what differs only because the search put a value in place for all that use it, and not for one."""
        found = self._outcome.findings
        if len(found) > 1 and found[0].kind in ("missing", "extra"):
            proof = self.proof
            if proof is not None and proof.edge and (proof.error or 0.0) <= self._outcome.expected:
                return found[:1]
        return found

    # ---- the table -----------------------------------------------------------------------------------------------

    @cached_property
    def rows(self) -> list[Row]:
        """The operations of both, aligned; one without a partner has a row of its own."""
        return aligned_rows(self._a, self._b, self._pairs, self._outcome)

    @cached_property
    def _pairs(self) -> dict[int, int]:
        """B's values with their partners in A, each once."""
        matching = self._outcome.matching
        if matching is None:
            return dict(zip(self._b.ids, self._a.ids, strict=True))
        found = {i: j for i, j in matching.partner.items() if j is not None}
        found |= {finding.recipient: finding.donor for finding in self._outcome.findings}
        pairs = found if self._recipient is self._b else {j: i for i, j in reversed(found.items())}
        return _one_to_one(pairs)

    def to_pandas(self) -> Any:
        """The rows as a pandas data frame; needs pandas.

        >>> tl.compare(log, log).to_pandas().loc[3, ["a", "b", "status"]].tolist()
        ['linear_1_3', 'linear_1_3', 'equal']
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError('to_pandas needs pandas: pip install "forwardlens[tables]"') from error
        return pandas.DataFrame([asdict(row) for row in self.rows], columns=[each.name for each in fields(Row)])

    # ---- elsewhere -----------------------------------------------------------------------------------------------

    def draw(self, path: str | PathLike[str] | None = None) -> Path:
        """Draw both runs side by side, matched rows joined, and write the picture; returns the file's path.

        >>> tl.compare(log, tl.log_forward_pass(model, x + 1)).draw(folder / "difference.svg").name
        'difference.svg'

        Grey is equal, blue is rounding, red is a difference and what depends on it, dashed has no partner. The ending
        of the file says the format: svg, pdf or png. A notebook shows the picture; elsewhere it is shown if no path is
        given, and written to the working folder.
        """
        from .side_by_side import draw_comparison

        return draw_comparison(self, path)

    def to_html(self, path: str | PathLike[str]) -> Path:
        """Write a page with the verdict and both logs side by side, coloured by error; returns its path.

        >>> tl.compare(log, tl.log_forward_pass(model, x + 1)).to_html(folder / "difference.html").name
        'difference.html'

        It opens at the first difference. Both sides are kept in step: what is selected in one is shown in the other.
        """
        from ..page.write import write_page

        return write_page(self._page(), path)

    def explore(self, *, height: int = 640) -> Any:
        """The page of `to_html` inline in a notebook, `height` pixels high; from a script, in the browser.

        >>> tl.compare(log, tl.log_forward_pass(model, x + 1)).explore(height=500)             # doctest: +SKIP
        """
        from ..page.embed import explore_page
        from .side_by_side import two_lanes

        title = " | ".join(self._names)
        return explore_page(self._page(), height, title, lambda: two_lanes(self).svg, "comparison")

    @property
    def _names(self) -> tuple[str, str]:
        return f"A: {self._a.log.model_name}", f"B: {self._b.log.model_name}"

    def _page(self) -> str:
        from ..page.write import two_logs
        from .comparison_text import answer_lines

        errors = {(row.a, row.b): row.error for row in self.rows if row.a and row.b and row.error is not None}
        matching = []
        for b, a in self._pairs.items():
            error = errors.get((self._a.label(a), self._b.label(b)))
            pair = self._a.rank[a], self._b.rank[b]
            matching.append(pair if error is None else (*pair, error))
        first = None
        for a, b in map(self._in_order, self._outcome.findings[:1]):
            first = self._a.rank[a], self._b.rank[b]
        answer = [line.strip() for line in answer_lines(self)]
        return two_logs(self._a.log, self._b.log, matching, names=self._names, answer=answer, first=first)


def _one_to_one(pairs: dict[int, int]) -> dict[int, int]:
    taken: set[int] = set()
    found = {}
    for b, a in sorted(pairs.items()):
        if a not in taken:
            taken.add(a)
            found[b] = a
    return found
