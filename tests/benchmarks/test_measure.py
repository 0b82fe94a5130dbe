"""The driver: lanes that end in time, workers that answer, fail and take too long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from benchmarks.measure import Failed, Lane, Race, TooLong, Worker


def test_a_lane_ends_after_its_rounds_or_its_share_of_time() -> None:
    lane = Lane("floor", "plain", least=3)
    assert lane.wants_more(rounds=5, share=10)
    lane.runs, lane.spent = [{"seconds": 30.0}], 60.0
    assert lane.wants_more(rounds=5, share=10), "fewer than the least"
    lane.runs *= 3
    assert not lane.wants_more(rounds=5, share=10)
    lane.spent = 7.0
    assert lane.wants_more(rounds=5, share=10)
    lane.runs = lane.runs * 2
    assert not lane.wants_more(rounds=5, share=10)


def test_a_lane_without_runs_says_why() -> None:
    assert Lane("floor", "plain", 1, why="> 60 s, given up").result() == {
        "verdict": "failed",
        "why": "> 60 s, given up",
    }


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker("floor", "chain 1k")
    yield worker
    worker.stop()


def test_a_worker_answers(worker: Worker) -> None:
    worker.wait_until_ready()
    assert worker.about is not None and "torch" in worker.about["ready"]
    assert worker.ask("floor", 60)["seconds"] > 0
    with pytest.raises(Failed, match="KeyError"):
        worker.ask("no such tool", 60)
    assert worker.ask("plain", 60)["cpu"] > 0, "it is still there after an error"
    with pytest.raises(TooLong, match="given up"):
        worker.ask("everything", 1e-6)
    assert worker.process.poll() is not None
    with pytest.raises(Failed, match="was stopped: > 0 s"):
        worker.ask("plain", 60)


def test_a_worker_that_dies_says_what_it_said_last() -> None:
    worker = Worker("floor", "no such model")
    with pytest.raises(Failed, match="no such model"):
        worker.wait_until_ready()


def test_a_race() -> None:
    found = Race("chain 1k", ["floor", "three"], {"floor": "plain", "three": "plain"}, limit=60).run(rounds=2, share=60)
    assert found["floor"]["verdict"] == "measured"
    assert len(found["floor"]["ratios"]) == len(found["floor"]["cpu_ratios"]) == 2
    assert min(found["floor"]["ratios"]) > 0
    assert found["three"]["verdict"] == "failed", "a chain has no modules"
