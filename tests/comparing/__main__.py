"""Compare all pairs with known truth, both ways, and print a table: `python -m tests.comparing`; or some, by name."""

from __future__ import annotations

import sys
import time

from . import language_pairs, small_pairs, vision_pairs  # noqa: F401  (register their pairs)
from .pairs import PAIRS, Answer, answers_both_ways

try:
    from . import library_pairs  # noqa: F401
except ImportError as error:
    print(f"the pairs of library_pairs.py are left out: {error}")


def main(names: list[str]) -> int:
    chosen = [PAIRS[name] for name in names] if names else list(PAIRS.values())
    print(f"{'':54} {'status':10} defect place  cause  swapped")
    answers: list[Answer] = []
    mirrored = 0
    for pair in chosen:
        begin = time.perf_counter()
        found, is_mirrored = answers_both_ways(pair)
        answers.append(found)
        mirrored += is_mirrored
        right = found.verdict_is_right, found.place_is_right, found.cause_is_right, is_mirrored
        marks = " ".join(f"{'yes' if each else 'NO':6}" for each in right)
        print(f"{pair.name:54} {found.comparison.status:10} {marks} {time.perf_counter() - begin:6.1f} s", flush=True)
    print(_summary(answers) + f"; the same both ways: {mirrored} of {len(answers)}")
    return 0 if mirrored == len(answers) and all(found.is_right for found in answers) else 1


def _summary(answers: list[Answer]) -> str:
    defects = [each for each in answers if each.pair.has_defect]
    others = [each for each in answers if not each.pair.has_defect]
    parts = {
        "found": [each.verdict_is_right for each in defects],
        "right place": [each.place_is_right for each in defects],
        "right cause": [each.cause_is_right for each in defects],
        "proved": [each.comparison.is_proved for each in defects],
    }
    counts = ", ".join(f"{name} {sum(each)}" for name, each in parts.items())
    alarms = sum(not each.verdict_is_right for each in others)
    return f"{len(defects)} pairs with a defect: {counts}; {len(others)} without: {alarms} false alarms"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
