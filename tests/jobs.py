"""Run many named jobs, each in a process of its own: resumable, with progress, limits of time and of memory.

    run_jobs(["one", "two"], work, Results(Path("results.jsonl")), seconds=60)

`work(name)` returns a dict that JSON can hold. Importing torch and its zoos takes longer than most jobs, so one process
imports what `preload` names and every job's process is forked from it; what a job breaks, it breaks for itself alone.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import time
from collections import deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
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
    preload: Sequence[str] = (),
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
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([work.__module__, *preload])
    running: list[_Running] = []
    try:
        while todo or running:
            while todo and len(running) < processes:
                running.append(_Running(context, todo.popleft(), work, gigabytes, seconds))
            wait([one.pipe for one in running], timeout=1)
            for one in list(running):
                result = one.result()
                if result is not None:
                    count += 1
                    results.add(one.job, result)
                    print(f"{count}/{total} {one.job}: {describe(result)}", flush=True)
                    running.remove(one)
    finally:
        for one in running:
            one.stop()


class _Running:
    """A process that does one job."""

    def __init__(self, context: ForkServerContext, job: str, work: Work, gigabytes: int, seconds: float) -> None:
        self.job = job
        self.pipe, far_end = context.Pipe(duplex=False)
        self.process = context.Process(target=_do, args=(far_end, work, job, gigabytes), daemon=True)
        self.process.start()
        far_end.close()
        self.deadline = time.monotonic() + seconds

    def result(self) -> Result | None:
        """What came of the job, None while it is running."""
        try:
            if self.pipe.poll():
                result: Result = self.pipe.recv()
                self.stop()
                return result
        except (EOFError, OSError):
            self.process.join()
            return {"verdict": "failed", "why": f"the process died with exit code {self.process.exitcode}"}
        if time.monotonic() < self.deadline:
            return None
        self.stop()
        return {"verdict": "failed", "why": "took too long"}

    def stop(self) -> None:
        self.process.kill()
        self.process.join()


def _do(pipe: Connection, work: Work, job: str, gigabytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (gigabytes * GIGABYTE, gigabytes * GIGABYTE))
    silence = os.open(os.devnull, os.O_WRONLY)  # models print and warn, some below Python; progress is what matters
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    pipe.send(work(job))
