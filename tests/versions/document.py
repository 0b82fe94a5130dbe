"""The page about versions: what was tried, what came of it."""

from __future__ import annotations

from typing import Any

from tests.versions.environment import LEFT_OUT

EXPLANATION = """\
# Versions of PyTorch and Python

The test suite, run with each of these. Written by `make versions`; `make versions TORCH=2.8.0 PYTHON=python3.12` tries
one, `make versions LOWEST=1` the oldest dependencies that `pyproject.toml` names, `make versions AGAIN=1` what failed.
What is private in torch lies in one folder, `_torch`, with what is done where a version does not have it; a test hides
each of these names in turn.

Where tests had failed and the cause was mended, only these were run again; the table says how many.

"""

#: What a version lacks, and what happens instead.
LACKS = """\
## What a version can't do

| torch | what | what happens |
|---|---|---|
| before 2.9 | tell what autograd keeps for the backward pass | `saved_for_backward_memory` and `saved_tensors` raise `TorchVersionError`, in tables the cell is empty; gradients work |
| before 2.13 | differentiate `scan` right | a log of it has the right gradient, a plain run has not |
| before 2.8 | `scan` with gradients, `fully_shard` on a CPU | torch itself refuses |
| before 2.6 | transformers 5 | tried with transformers 4 |
| 2.4 | `flex_attention`, `DTensor` under its public name, attention with grouped queries, padding of jagged tensors | there is nothing to log |
| 2.4 | differentiate `torch.cond` | a log of it can be differentiated, a plain run can't |

Python 3.12 limits how deep calls through C may go, and that limit can't be raised: a module that calls itself can do so some
200 times in a plain run, and some 150 times in a log; then there is a `RecursionError`.
"""  # noqa: E501


def document(found: dict[str, dict[str, Any]]) -> str:
    """The page, of what was found by name of the environment; of one that has not been run that is empty."""
    rows = ["| environment | passed | failed | skipped | run again | date |", "|---|--:|--:|--:|--:|---|"]
    rows += [_row(name, result) for name, result in sorted(found.items(), key=_order)]
    return EXPLANATION + "\n".join(rows) + "\n\n" + LACKS + _left_out() + _reasons(found) + _failures(found)


def _left_out() -> str:
    lines = [f"- `{path}`: {reason}" for path, reason in LEFT_OUT.items()]
    head = "\n## Not run here\n\n`make test` runs these with the torch of `constraints.txt`.\n\n"
    return head + "\n".join(lines) + "\n"


def _order(item: tuple[str, Any]) -> tuple[list[int], str]:
    name = item[0]
    return [int(part) for part in name.split()[1].rstrip(",").split(".")], name


def _row(name: str, result: dict[str, Any]) -> str:
    if "passed" not in result:
        return f"| {name} | not run{': ' + result['summary'] if result else ' yet'} | | | | |"
    counts = f"{result['passed']:,} | {result['failed']} | {sum(result['skipped'].values())}"
    again = sum(failed for _, failed in result.get("earlier", []))
    return f"| {name} | {counts} | {again or ''} | {result['date']} |"


def _reasons(found: dict[str, dict[str, Any]]) -> str:
    reasons: dict[str, dict[str, int]] = {}
    for name, result in sorted(found.items(), key=_order):
        for reason, count in result.get("skipped", {}).items():
            reasons.setdefault(reason, {})[name] = count
    lines = [
        f"- {reason}: {', '.join(f'{count} with {n}' for n, count in by.items())}" for reason, by in reasons.items()
    ]
    return "\n## Skipped, and why\n\n" + "\n".join(lines or ["Nothing."]) + "\n"


def _failures(found: dict[str, dict[str, Any]]) -> str:
    lines = [f"- {name}: `{test}`" for name, result in found.items() for test in result.get("failures", ())]
    return "\n## Failed\n\n" + "\n".join(lines) + "\n" if lines else ""
