"""What CONTRIBUTING.md and the workflow name is there, and they say no more than `.ci/run` does."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_it_fits_on_one_screen() -> None:
    assert len(TEXT.splitlines()) <= 50


def test_the_commands_exist() -> None:
    commands = set(re.findall(r"\bmake ([a-z]+)\b", TEXT))
    targets = set(re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert len(commands) >= 5 and commands <= targets


def test_the_paths_exist() -> None:
    paths = re.findall(r"[(` ]((?:\w+/)*[\w.]+(?:/|\.py|\.md))[)`:;. ]", TEXT)
    assert len(paths) >= 10
    for path in paths:
        assert (ROOT / path).exists() or (ROOT / "src" / "torchlens" / path).exists(), path


def test_the_workflow_is_the_same_as_ci_run() -> None:
    workflow = ROOT / ".github" / "workflows" / "ci.yml"
    assert re.findall(r"run: (.+)", workflow.read_text()) == [".ci/run"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
