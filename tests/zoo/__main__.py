"""Log and validate every model of the zoo; write what came of it to docs/zoo.md.

python -m tests.zoo                           everything; goes on where an interrupted run stopped
python -m tests.zoo --part timm               one part of it
python -m tests.zoo --only torchvision/raft   some models, without touching the document
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
from collections import Counter
from pathlib import Path

from tests.jobs import Result, Results, run_jobs
from tests.zoo.work import FAILED, NOT_BUILT, PARTS, PASSED, all_jobs, work

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / ".results" / "zoo.jsonl"
DOCUMENT = ROOT / "docs" / "zoo.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.zoo")
    parser.add_argument("--part", choices=PARTS, help="run only this part; the document still shows all")
    parser.add_argument("--only", help="models whose name contains this, such as torchvision/raft")
    parser.add_argument("--fresh", action="store_true", help="forget what was found before")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    # Nothing is downloaded, and every model gets by with one thread.
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", OMP_NUM_THREADS="1")
    jobs = all_jobs()
    if options.only:
        return try_out([job for job in jobs if options.only in job])
    if options.fresh:
        RESULTS.unlink(missing_ok=True)
    results = Results(RESULTS)
    chosen = [job for job in jobs if options.part is None or job.startswith(f"{options.part}/")]
    results.forget(chosen, FAILED, NOT_BUILT)
    try:
        run_jobs(
            chosen,
            work,
            results,
            preload=[*PARTS.values(), "timm"],
            processes=options.processes,
            seconds=600,
            gigabytes=12,
            describe=describe,
        )
    finally:
        text = document(jobs, results.found)
        DOCUMENT.parent.mkdir(exist_ok=True)
        DOCUMENT.write_text(text)
    print(summary(jobs, results.found))
    return int(any(results.found[job]["verdict"] == FAILED for job in chosen))


def describe(result: Result) -> str:
    facts = [f"{result['operations']} operations"] if "operations" in result else []
    facts += [result[key] for key in ("note", "why") if key in result]
    return f"{result['verdict']} {' '.join(facts)}"


def try_out(jobs: list[str]) -> int:
    failed = False
    for job in jobs:
        result = work(job)
        failed |= result["verdict"] == FAILED
        print(f"{job}: {describe(result)}", flush=True)
    return int(failed)


# ---- the document -----------------------------------------------------------------------------------------------

EXPLANATION = """\
# The zoo

Models that nobody here wrote, with random weights and small inputs, in eval mode (those of torchvision also in train
mode); models of text and pictures get both. Each was run plainly and logged, and its log validated
(`log.validate()`): the outputs equal the plain run's bit for bit; every logged operation, computed again
from its parents' saved values, gives the saved value; each parent was changed to see that the comparison could fail;
every operation that reached the dispatcher is in the log; the log is consistent and has no warnings. `tl.compare`
has to call it identical with a second log of the same run.

- *passed*: all of the above.
- *failed*: runs plainly, but one of the above does not hold: a bug here.
- *not built*: does not build or run here without us either; the reason is what it raised. For transformers that often
  means that sizes shrunk by their names do not fit together, or that no small input is known for it.

"""


def document(jobs: list[str], found: dict[str, Result]) -> str:
    return (
        EXPLANATION + f"Written by `make zoo`, with {_versions()}.\n\n" + summary(jobs, found) + _details(jobs, found)
    )


def _versions() -> str:
    packages = ("torch", "torchvision", "timm", "transformers", "torch_geometric", "diffusers")
    return ", ".join(f"{package} {importlib.metadata.version(package).split('+')[0]}" for package in packages)


def summary(jobs: list[str], found: dict[str, Result]) -> str:
    lines = ["| part | models | passed | failed | not built | not run yet | operations logged |", f"|---{'|--:' * 6}|"]
    total: Counter[str] = Counter()
    for part in PARTS:
        row = _row([job for job in jobs if job.startswith(f"{part}/")], found)
        total += row
        lines.append(_line(part, row))
    return "\n".join([*lines, _line("**all**", total)]) + "\n"


def _row(jobs: list[str], found: dict[str, Result]) -> Counter[str]:
    row: Counter[str] = Counter(models=len(jobs))
    for job in jobs:
        row[found[job]["verdict"] if job in found else "not run"] += 1
        row["operations"] += found.get(job, {}).get("operations", 0)
    return row


def _line(name: str, row: Counter[str]) -> str:
    columns = ("models", PASSED, FAILED, NOT_BUILT, "not run", "operations")
    return f"| {name} | {' | '.join(f'{row[column]:,}' for column in columns)} |"


def _details(jobs: list[str], found: dict[str, Result]) -> str:
    text = ""
    for part in PARTS:
        text += f"\n## {part}\n\n| model | | operations | |\n|---|---|--:|---|\n"
        for job in jobs:
            if job.startswith(f"{part}/") and job in found:
                result = found[job]
                remark = " ".join(result[key] for key in ("note", "why") if key in result).replace("|", "\\|")
                name = job.split("/", 1)[1]
                text += f"| {name} | {result['verdict']} | {result.get('operations', '')} | {remark} |\n"
    return text


if __name__ == "__main__":
    sys.exit(main())
