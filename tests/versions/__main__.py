"""Run the tests with other versions of torch and Python, each in an environment of its own; write docs/versions.md.

python -m tests.versions                                     what has not been run yet, one after the other
python -m tests.versions --torch 2.8.0 --python python3.12   one of them
python -m tests.versions --lowest                            the oldest dependencies that pyproject.toml names
python -m tests.versions --again                             what failed the last time, once more

Wheels of torch bring several gigabytes of CUDA libraries: an environment is removed when its tests have run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.jobs import Results
from tests.versions.document import document
from tests.versions.environment import Environment, run

ROOT = Path(__file__).parents[2]
#: A line for each run, the last of an environment counts; kept with the source, because a page joins runs of many days.
RESULTS = Path(__file__).with_name("results.jsonl")
DOCUMENT = ROOT / "docs" / "versions.md"

#: What is tried, as (torch, Python). The newest torch that has wheels for a Python is tried with it.
MATRIX = [
    *[(version, "python3.11") for version in ("2.4.1", "2.6.0", "2.8.0", "2.10.0", "2.12.1", "2.14.1", "2.15.0")],
    ("2.14.1", "python3.10"),
    *[("2.15.0", python) for python in ("python3.12", "python3.13", "python3.14")],
]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.versions")
    parser.add_argument("--torch", help="one version of torch")
    parser.add_argument("--python", default="python3.11", help="the interpreter to try it with, by name or path")
    parser.add_argument("--lowest", action="store_true", help="the oldest dependencies that pyproject.toml names")
    parser.add_argument("--fresh", action="store_true", help="forget what was found before")
    parser.add_argument("--again", action="store_true", help="only what failed before, where something did")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    options = parser.parse_args()
    if options.fresh:
        RESULTS.unlink(missing_ok=True)
    results = Results(RESULTS)
    for environment in chosen(options, results):
        print(f"{environment.name} ...", flush=True)
        before = results.found[environment.name] if options.again else None
        results.add(environment.name, run(environment, ROOT, before, keep=options.keep))
        write_document(results)
        print(results.found[environment.name]["summary"], flush=True)
    return int(any(result.get("failed") for result in results.found.values()))


def write_document(results: Results) -> None:
    DOCUMENT.write_text(page(results), encoding="utf-8")


def page(results: Results) -> str:
    """docs/versions.md: what was run, and what has not been run yet."""
    found = {environment.name: results.found.get(environment.name, {}) for environment in everything()}
    return document({**found, **results.found})


def chosen(options: argparse.Namespace, results: Results) -> list[Environment]:
    if options.lowest:
        return [Environment("2.4.1", options.python, lowest=True)]
    if options.torch:
        return [Environment(options.torch, options.python)]
    if options.again:
        return [environment for environment in everything() if results.found.get(environment.name, {}).get("failures")]
    return [environment for environment in everything() if environment.name not in results.found]


def everything() -> list[Environment]:
    return [Environment(torch, python) for torch, python in MATRIX] + [Environment("2.4.1", "python3.11", lowest=True)]


if __name__ == "__main__":
    sys.exit(main())
