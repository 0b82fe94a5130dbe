"""Log and validate every example of PyTorch's operator and module databases; write the counts to docs/corpora.md.

python -m tests.corpora                      everything; goes on where an interrupted run stopped
python -m tests.corpora --only float32/sort  some of it, printing what fails, without touching the document
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from tests.corpora.check import FAILED, PASSED, REFUSED, UNINITIALISED, UNSTABLE, VERDICTS
from tests.corpora.operators import DTYPES
from tests.corpora.work import MODULES, all_jobs, work
from tests.jobs import Result, Results, run_jobs

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / ".results" / "corpora.jsonl"
DOCUMENT = ROOT / "docs" / "corpora.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.corpora")
    parser.add_argument("--only", help="jobs whose name contains this, such as float32/ or /sort")
    parser.add_argument("--fresh", action="store_true", help="forget what was found before")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    jobs = all_jobs()
    if options.only:
        return try_out([job for job in jobs if options.only in job])
    if options.fresh:
        RESULTS.unlink(missing_ok=True)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    results = Results(RESULTS)
    results.forget(jobs, FAILED)
    try:
        run_jobs(jobs, work, results, processes=options.processes, seconds=1800, describe=describe)
    finally:
        text = document(jobs, results.found)
        DOCUMENT.parent.mkdir(exist_ok=True)
        DOCUMENT.write_text(text)
    print(text)
    return int(any(result["verdict"] == FAILED for result in results.found.values()))


def describe(result: Result) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in result.get("counts", {}).items()) or result["why"]


def try_out(jobs: list[str]) -> int:
    failed = False
    for job in jobs:
        result = work(job)
        failed |= result["verdict"] == FAILED
        print(f"{job}: {describe(result)}", *result["failures"], sep="\n\t", flush=True)
    return int(failed)


# ---- the document -----------------------------------------------------------------------------------------------

EXPLANATION = f"""\
# PyTorch's own test corpora

PyTorch tests itself with a database of operators, each with sample inputs, and one of `nn` modules. Each sample was run
plainly and logged, and its log validated: the output, and what was left in the arguments and buffers, equals the plain
run's bit for bit; every logged operation, computed again from its parents' saved values, gives the saved value; every
operation that reached the dispatcher is in the log; the log is consistent (`tl.lint`) and has no warnings.

Operators are called as function, method, in-place method, operator and in-place operator, and by their aliases, where
they have these; in float32, complex64 and bfloat16 with inputs that require gradients. Modules are run in train and
eval mode, with and without grad, in float32, float64 and complex64 where they take these.

- *{PASSED}*: all of the above.
- *{UNINITIALISED}*: the result is whatever the memory held; all of the above when torch fills what it hands out.
- *{UNSTABLE}*: two plain runs differ from each other; all else holds.
- *{REFUSED}*: the sample raises without us as well, such as an in-place operation whose result has another shape.

Written by `make corpora`, with torch {torch.__version__.split("+")[0]}.

"""


def document(jobs: list[str], found: dict[str, Result]) -> str:
    lines = [f"| corpus | entries | samples | {' | '.join(VERDICTS)} | operations logged |", f"|---{'|--:' * 8}|"]
    total: Counter[str] = Counter()
    for kind in [*DTYPES, MODULES]:
        row = _row([found[job] for job in jobs if job.startswith(f"{kind}/") and job in found])
        total += row
        lines.append(_line("modules (`nn`)" if kind == MODULES else f"operators, {kind}", row))
    lines.append(_line("**all**", total))
    missing = len(jobs) - len([job for job in jobs if job in found])
    rest = [f"\n{missing} entries were not run yet.\n"] if missing else []
    for verdict in (UNINITIALISED, UNSTABLE):
        names = sorted({job.split("/", 1)[1] for job in found if found[job].get("counts", {}).get(verdict)})
        rest.append(f"\n{verdict.capitalize()}: {', '.join(f'`{name}`' for name in names) or 'none'}.\n")
    failures = [line for job in jobs if job in found for line in _failures(job, found[job])]
    if failures:
        rest.append("\n## Failed\n\n" + "\n".join(f"- {line}" for line in failures) + "\n")
    return EXPLANATION + "\n".join(lines) + "\n" + "".join(rest)


def _row(results: list[Result]) -> Counter[str]:
    row: Counter[str] = Counter(entries=len(results))
    for result in results:
        row.update(result.get("counts", {FAILED: 1}))
        row["operations"] += result.get("operations", 0)
    return row


def _line(name: str, row: Counter[str]) -> str:
    counts = [row["entries"], sum(row[v] for v in VERDICTS), *[row[v] for v in VERDICTS], row["operations"]]
    return f"| {name} | {' | '.join(f'{count:,}' for count in counts)} |"


def _failures(job: str, result: dict[str, Any]) -> list[str]:
    return [f"{job}: {result['why']}"] if "why" in result else result["failures"]


if __name__ == "__main__":
    sys.exit(main())
