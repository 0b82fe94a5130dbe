"""Run many named jobs in worker processes: resumable, with progress, a time limit for each job and a memory limit.

    run_jobs(["one", "two"], work, Results(Path("results.jsonl")), seconds=60)

`work(name)` runs in a worker and returns a dict that JSON can hold. A worker does one job at a time and many in a row;
if a job kills it or takes too long, the job has failed and a new worker goes on with the rest.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

Result = dict[str, Any]
Work = Callable[[str], Result]

GIGABYTE = 2**30


class Results:
    """What was found so far, one line of JSON for each job, so that an interrupted run can go on."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.found: dict[str, Result] = {}
        if file.exists():
            for line in file.read_text().splitlines():
                entry = json.loads(line)
                self.found[entry["job"]] = entry

    def forget(self, jobs: Sequence[str], *verdicts: str) -> None:
        """Forget the results of those of the jobs that came out so: they will be done again."""
        for job in jobs:
            if job in self.found and self.found[job]["verdict"] in verdicts:
                del self.found[job]

    def add(self, job: str, result: Result) -> None:
        entry = self.found[job] = {"job": job, **result}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as lines:
            lines.write(json.dumps(entry) + "\n")


def run_jobs(
    jobs: Sequence[str],
    work: Work,
    results: Results,
    *,
    processes: int = 2,
    seconds: float = 600,
    gigabytes: int = 10,
    describe: Callable[[Result], str] = str,
) -> None:
    """Do what is not in `results` yet."""
    todo = deque(job for job in jobs if job not in results.found)
    total, count = len(jobs), len(jobs) - len(todo)
    if count:
        print(f"{count} of {total} were done before; going on", flush=True)
    workers = [_Worker(work, gigabytes) for _ in range(min(processes, len(todo)))]
    while todo or any(worker.job for worker in workers):
        for worker in workers:
            if worker.job is None and todo:
                worker.begin(todo.popleft(), seconds)
        wait([worker.pipe for worker in workers if worker.job], timeout=1)
        for worker in workers:
            result = worker.result()
            if worker.job is not None and result is not None:
                count += 1
                results.add(worker.job, result)
                print(f"{count}/{total} {worker.job}: {describe(result)}", flush=True)
                worker.job = None
    for worker in workers:
        worker.stop()


@dataclass
class _Worker:
    work: Work
    gigabytes: int
    job: str | None = None
    deadline: float = 0.0
    pipe: Connection = field(init=False)
    process: BaseProcess = field(init=False)

    def __post_init__(self) -> None:
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, far_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(far_end, self.work, self.gigabytes), daemon=True)
        self.process.start()
        far_end.close()

    def begin(self, job: str, seconds: float) -> None:
        self.job, self.deadline = job, time.monotonic() + seconds
        self.pipe.send(job)

    def result(self) -> Result | None:
        """What came of the job, None while it is running or if there is none."""
        if self.job is None:
            return None
        try:
            if self.pipe.poll():
                return self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            why = f"the process died with exit code {self.process.exitcode}"
            self._start()
            return {"verdict": "failed", "why": why}
        if time.monotonic() < self.deadline:
            return None
        self.stop()
        self._start()
        return {"verdict": "failed", "why": "took too long"}

    def stop(self) -> None:
        self.process.kill()
        self.process.join()


def _serve(pipe: Connection, work: Work, gigabytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (gigabytes * GIGABYTE, gigabytes * GIGABYTE))
    silence = os.open(os.devnull, os.O_WRONLY)  # models print and warn, some below Python; progress is what matters
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        pipe.send(work(job))
