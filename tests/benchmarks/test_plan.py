"""What is measured, what is measured again, and what isn't tried."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.__main__ import QUICK, Plan, _forget, _was_too_slow, questions, tools_for
from benchmarks.models import MODELS
from benchmarks.peers import PEERS
from benchmarks.single import QUESTIONS
from benchmarks.tools import TOOLS
from tests.jobs import Results


def options(**chosen: Any) -> argparse.Namespace:
    return argparse.Namespace(
        **{"fresh": False, "again": False, "questions": False, "models": None, "peers": None, **chosen}
    )


def store(folder: Path) -> Results:
    results = Results(folder / "store.jsonl")
    for key in ("GPT-2: floor", "GPT-2: nnsight", "BERT: floor", "import: ours"):
        results.add(key, {"verdict": "measured"})
    results.add("BERT: hooks", {"verdict": "failed", "why": "the machine was busy"})
    results.add("BERT: nnsight", {"verdict": "failed", "why": "> 40 s, given up"})
    return results


def test_everything_in_the_plans_exists() -> None:
    for plan in (Plan(), QUICK):
        for model in plan.models:
            assert model in MODELS
            assert set(tools_for(model)) <= set(TOOLS)
        for question in questions(plan):
            assert question.arguments[0] in QUESTIONS
    assert set(PEERS) <= set(TOOLS)


def test_only_what_should_work_is_tried_again(tmp_path: Path) -> None:
    results = store(tmp_path)
    _forget(results, options())
    assert set(results.found) == {"GPT-2: floor", "GPT-2: nnsight", "BERT: floor", "import: ours", "BERT: nnsight"}


def test_what_is_chosen_is_measured_again(tmp_path: Path) -> None:
    results = store(tmp_path)
    _forget(results, options(again=True, models=["GPT-2"], peers=["nnsight"]))
    assert "GPT-2: nnsight" not in results.found
    assert {"GPT-2: floor", "BERT: nnsight", "import: ours"} <= set(results.found)
    _forget(results, options(again=True, models=["BERT"], peers=["none"]))
    assert "BERT: floor" not in results.found and "BERT: nnsight" in results.found
    _forget(results, options(again=True, questions=True))
    assert "import: ours" not in results.found
    assert "GPT-2: floor" in results.found
    _forget(results, options(fresh=True))
    assert not results.found
    assert not results.file.exists()


def test_too_slow_with_few_operations_is_too_slow_with_more(tmp_path: Path) -> None:
    results = Results(tmp_path / "store.jsonl")
    results.add("chain 1k: torchview", {"verdict": "failed", "why": "> 40 s, given up"})
    why = _was_too_slow(results, "chain 10k", "torchview")
    assert why == "not tried: too slow at 1k"
    results.add("chain 10k: torchview", {"verdict": "failed", "why": why})
    assert _was_too_slow(results, "chain 100k", "torchview") == why
    assert _was_too_slow(results, "RNN 10k", "torchview") is None
    assert _was_too_slow(results, "GPT-2", "torchview") is None
