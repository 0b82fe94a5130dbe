"""Compare all pairs with known truth and print a table: `python -m tests.comparing`, or with names, some of them."""

from __future__ import annotations

import sys
import time

from . import language_pairs, small_pairs, vision_pairs  # noqa: F401  (register their pairs)
from .pairs import PAIRS, Answer, answer


def main(names: list[str]) -> int:
    chosen = [PAIRS[name] for name in names] if names else list(PAIRS.values())
    answers: list[Answer] = []
    for pair in chosen:
        begin = time.perf_counter()
        found = answer(pair)
        answers.append(found)
        marks = [
            "yes" if right else "NO" for right in (found.verdict_is_right, found.place_is_right, found.cause_is_right)
        ]
        seconds = f"{time.perf_counter() - begin:6.1f} s"
        print(
            f"{pair.name:44} {found.comparison.status:10} {' '.join(f'{mark:4}' for mark in marks)} {seconds}",
            flush=True,
        )
    defects = [found for found in answers if found.pair.has_defect]
    others = [found for found in answers if not found.pair.has_defect]
    print(f"{len(defects)} pairs with a defect: found {sum(a.verdict_is_right for a in defects)}, ", end="")
    print(
        f"right place {sum(a.place_is_right for a in defects)}, right cause {sum(a.cause_is_right for a in defects)}; ",
        end="",
    )
    print(f"{len(others)} without: {sum(not a.verdict_is_right for a in others)} false alarms")
    return 0 if all(found.is_right for found in answers) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
