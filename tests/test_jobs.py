"""Jobs in processes of their own: what they return, what kills them, and going on after an interruption."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from tests.jobs import Results, run_jobs


def work(job: str) -> dict[str, Any]:
    if job == "dies":
        os._exit(7)
    if job == "sleeps":
        time.sleep(600)
    if job == "eats":
        return {"verdict": "passed", "bytes": len(bytearray(2 * 2**30))}
    return {"verdict": "passed", "process": os.getpid()}


def test_jobs(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    run_jobs(["one", "dies", "two", "three"], work, results, processes=1)
    assert {job: result["verdict"] for job, result in results.found.items()} == {
        "one": "passed",
        "dies": "failed",
        "two": "passed",
        "three": "passed",
    }
    assert "exit code 7" in results.found["dies"]["why"]
    assert len({os.getpid(), results.found["two"]["process"], results.found["three"]["process"]}) == 3


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    results.add("one", {"verdict": "passed", "process": 0})
    results.add("two", {"verdict": "failed", "why": "a bug"})
    again = Results(tmp_path / "results.jsonl")
    again.forget(["one", "two"], "failed")
    run_jobs(["one", "two"], work, again, processes=1)
    assert again.found["one"]["process"] == 0
    assert again.found["two"]["verdict"] == "passed"
    assert Results(tmp_path / "results.jsonl").found == again.found


def test_limits(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    run_jobs(["sleeps"], work, results, processes=1, seconds=0.5)
    assert results.found["sleeps"]["why"] == "took too long"
    run_jobs(["eats"], work, results, processes=1, gigabytes=1)
    assert results.found["eats"]["verdict"] == "failed"
