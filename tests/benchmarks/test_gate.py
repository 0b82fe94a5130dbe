"""The gate: what it lets through."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest
from benchmarks.callgrind import Counter
from benchmarks.gate import OPERATIONS, compare, each

from benchmarks import callgrind


def test_compare() -> None:
    lines, passed = compare({"capture": 104.0, "print": 80.0}, {"capture": 100.0, "print": 100.0}, 0.05)
    assert passed
    assert "ok" in lines[0] and "better" in lines[1]
    lines, passed = compare({"capture": 106.0}, {"capture": 100.0}, 0.05)
    assert not passed and "WORSE" in lines[0]


def test_figures_that_come_or_go_must_be_accepted() -> None:
    assert not compare({"capture": 1.0}, {}, 0.05)[1]
    assert not compare({}, {"capture": 1.0}, 0.05)[1]


def test_what_is_paid_once_is_not_counted() -> None:
    costs = {"plain": 3.0, "capture": 10.0, "fastlog": 7.0, "passes": 5.0, "print": 2.0}
    totals = {
        f"{stage} {kind} {size}": 1e6 + cost * size
        for stage, cost in costs.items()
        for kind in ("chain", "RNN")
        for size in (OPERATIONS, 2 * OPERATIONS)
    }
    found = each(totals)
    assert found["capture chain"] == pytest.approx(7)  # without the plain forward
    assert found["fastlog RNN"] == pytest.approx(4)
    assert found["passes RNN"] == pytest.approx(5)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="machine code for x86-64")
def test_counting_does_nothing_without_valgrind() -> None:
    done = []
    Counter()("name", lambda: done.append(1))
    assert done == [1]


PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from benchmarks.callgrind import Counter
count = Counter()
for turns in (1000, 2000, 3000):
    count(str(turns), lambda: sum(range(turns)) and [number * number for number in range(turns)])
"""


@pytest.mark.skipif(not callgrind.is_there(), reason="no Valgrind")
def test_instructions_are_counted(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    counts = callgrind.run([sys.executable, "-S", "-c", PROGRAM.format(root=root)], tmp_path)
    first, second = counts["2000"] - counts["1000"], counts["3000"] - counts["2000"]
    assert first > 10_000
    assert second == pytest.approx(first, rel=0.2)
