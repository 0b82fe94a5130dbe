"""The page about versions: what was tried, what came of it."""

from __future__ import annotations

from typing import Any

EXPLANATION = """\
# Versions of PyTorch and Python

The test suite, run with each of these. Written by `make versions`; `make versions TORCH=2.8.0 PYTHON=python3.12` tries
one. What is private in torch lies in one file, `_torch.py`, with what is done where a version does not have it.

"""

#: What a version lacks, and what happens instead.
LACKS = """\
## What a version can't do

| torch | what | what happens |
|---|---|---|
| before 2.9 | tell what autograd keeps for the backward pass | `saved_for_backward_memory` and `saved_tensors` raise `TorchVersionError`; gradients work |
| before 2.5 | `torch.cond` under a dispatch mode | `check_completeness=True` on a model with `torch.cond` raises torch's own error; logs without it work |
"""  # noqa: E501


def document(found: dict[str, dict[str, Any]]) -> str:
    rows = ["| environment | passed | failed | skipped |", "|---|--:|--:|--:|"]
    rows += [_row(name, result) for name, result in sorted(found.items(), key=_order)]
    return EXPLANATION + "\n".join(rows) + "\n\n" + LACKS + _reasons(found) + _failures(found)


def _order(item: tuple[str, Any]) -> tuple[list[int], str]:
    name = item[0]
    return [int(part) for part in name.split()[1].rstrip(",").split(".")], name


def _row(name: str, result: dict[str, Any]) -> str:
    if "passed" not in result:
        return f"| {name} | not run: {result['summary']} | | |"
    return f"| {name} | {result['passed']:,} | {result['failed']} | {sum(result['skipped'].values())} |"


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
