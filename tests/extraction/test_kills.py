"""Processes that are killed at any moment, and several at the same time: the store is the same to the byte."""

from __future__ import annotations

import multiprocessing
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.extraction.networks import Slow, network
from tests.extraction.test_extract import files

import torchlens as tl

COUNT, SECONDS = 60, 0.002
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["tests.extraction.test_kills", "torchlens.extraction.extract"])


def work(folder: str, part: tuple[int, int] | None = None) -> None:
    """Extract, in 15 shards."""
    layers = ["conv", "relu_1", "head"]
    reduce = {"conv": [tl.reduce.flatten(), tl.reduce.pca(4, samples=12)]}
    tl.extract(network(), Slow(COUNT, SECONDS), layers, folder, batch_size=2, shard_rows=4, reduce=reduce, part=part)


def start(folder: Path, *more: Any) -> Any:
    process = processes.Process(target=work, args=(str(folder), *more))
    process.start()
    return process


def wait_for(condition: Callable[[], bool], process: Any) -> None:
    while process.is_alive() and not condition():
        time.sleep(0.001)


def kill_and_resume(folder: Path, kills: int, seed: int) -> int:
    """Kill processes that work on one store until it is complete or there were so many kills; returns how many."""
    rng, killed = random.Random(seed), 0
    while killed < kills:
        process = start(folder)
        before = len(list(folder.rglob("*")))
        wait_for(lambda before=before: len(list(folder.rglob("*"))) > before, process)  # type: ignore[misc]
        time.sleep(rng.uniform(0, 0.08))
        process.kill()
        process.join()
        if process.exitcode == 0:
            break
        killed += 1
        if (folder / "plan.json").exists():
            report = tl.open_store(folder).verify()
            assert all(re.search(r"is missing$|is missing or damaged", problem) for problem in report.problems)
    work(str(folder))
    return killed


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a run that nobody interrupted."""
    folder = tmp_path_factory.mktemp("whole") / "acts"
    work(str(folder))
    found = files(folder)
    assert len(found) == 17  # the plan, what was fitted, the shards; rows that have no ids need no file
    return found


def test_killed_and_resumed(tmp_path: Path, whole: dict[str, bytes]) -> None:
    assert kill_and_resume(tmp_path / "acts", 5, seed=0) > 0
    assert files(tmp_path / "acts") == whole


@pytest.mark.kills
def test_killed_fifty_times(tmp_path: Path, whole: dict[str, bytes]) -> None:
    killed = stores = 0
    while killed < 50:
        folder = tmp_path / f"acts{stores}"
        killed += kill_and_resume(folder, 8, seed=stores)
        assert files(folder) == whole
        stores += 1
    print(f"\n{killed} processes killed, {stores} stores resumed, each the same to the byte")


def test_two_processes_at_once(tmp_path: Path, whole: dict[str, bytes]) -> None:
    both = [start(tmp_path / "acts"), start(tmp_path / "acts")]
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert files(tmp_path / "acts") == whole


def test_parts_at_once(tmp_path: Path, whole: dict[str, bytes]) -> None:
    parts = [start(tmp_path / "acts", (index, 3)) for index in range(3)]
    for process in parts:
        process.join()
    assert files(tmp_path / "acts") == whole
