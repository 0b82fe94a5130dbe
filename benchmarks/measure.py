"""Time tools in turns with the plain forward, across processes and environments.

Every environment has a worker process for the model. A round runs each tool once, between two runs of what it is
compared with in the same process, so that a change in the machine's speed meets both alike.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peers import PEERS, ROOT
from tests.jobs import Result, Results

from benchmarks import peers

START_LIMIT = 180.0  # seconds until a worker has its model
UNTOUCHED = "untouched"  # what a plain forward costs after the tool was used, against before


class TooLong(Exception):
    pass


class Failed(Exception):
    pass


def python_of(tool: str) -> str:
    return peers.python(tool) if tool in PEERS else sys.executable


def environment_of(tool: str) -> dict[str, str]:
    """Another tool must not find this library, which has the name of one of them. And what is imported is compiled
    once and for all, as it is where a package was installed."""
    without = {"PYTHONDONTWRITEBYTECODE"} | ({"PYTHONPATH"} if tool in PEERS else set())
    return {name: value for name, value in os.environ.items() if name not in without}


class Worker:
    """A process that holds a model; see worker.py."""

    def __init__(self, tool: str, model: str) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (it is read when the process has ended)
        self.process = subprocess.Popen(
            [python_of(tool), "-m", "benchmarks.worker", model],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            cwd=ROOT,
            env=environment_of(tool),
            text=True,
        )
        self.about: Result | None = None
        self.given_up: str | None = None

    def wait_until_ready(self) -> None:
        if self.about is None:
            self.about = self._answer(START_LIMIT)

    def ask(self, tool: str, limit: float) -> Result:
        if self.process.poll() is not None:
            raise Failed(self._last_words())
        self.process.stdin.write(json.dumps({"tool": tool}) + "\n")
        self.process.stdin.flush()
        answer = self._answer(limit)
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def _answer(self, limit: float) -> Result:
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(limit):
                self.stop()
                self.given_up = f"> {limit:.0f} s, given up"
                raise TooLong(self.given_up)
        line = self.process.stdout.readline()
        if not line:
            raise Failed(self._last_words())
        return json.loads(line)

    def _last_words(self) -> str:
        if self.given_up is not None:
            return f"the process was stopped: {self.given_up}"
        self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines() or ["nothing said"]
        return f"the process ended with {self.process.returncode}: {lines[-1][:300]}"

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass
class Lane:
    """One tool with one model, and what came of it."""

    tool: str
    base: str
    least: int  # rounds, however long they take
    runs: list[Result] = field(default_factory=list)
    bases: list[Result] = field(default_factory=list)
    spent: float = 0.0
    why: str | None = None  # it is no longer run

    def wants_more(self, rounds: int, share: float) -> bool:
        count = len(self.runs)
        if self.why is not None or count >= rounds:
            return False
        return count < self.least or self.spent * (count + 1) / count <= share

    def result(self) -> Result:
        if not self.runs:
            return {"verdict": "failed", "why": self.why or "not run"}
        seconds = [run["seconds"] for run in self.runs]
        return {
            "verdict": "measured",
            "ratios": [run["seconds"] / base["seconds"] for run, base in zip(self.runs, self.bases, strict=True)],
            "cpu_ratios": [run["cpu"] / base["cpu"] for run, base in zip(self.runs, self.bases, strict=True)],
            "seconds": seconds,
            "base_seconds": [base["seconds"] for base in self.bases],
        }


class Race:
    """All tools that are to be measured with one model."""

    def __init__(self, model: str, tools: Sequence[str], bases: dict[str, str], limit: float, least: int = 3) -> None:
        self.model, self.limit = model, limit
        self.lanes = [Lane(tool, bases[tool], 1 if tool in PEERS else least) for tool in tools]
        self.workers: dict[str, Worker] = {}
        self.before: dict[str, float] = {}  # the plain forward's time before the tool was first used
        self.last: tuple[Worker, str, Result] | None = None

    def run(self, rounds: int, share: float) -> dict[str, Result]:
        load = os.getloadavg()[0]
        try:
            self._start()
            self._warm_up()
            for _ in range(rounds):
                for lane in self.lanes:
                    if lane.wants_more(rounds, share):
                        self._round(lane)
        finally:
            for worker in self.workers.values():
                worker.stop()
        return {lane.tool: {**lane.result(), **self._about(lane), "load": load} for lane in self.lanes}

    def _start(self) -> None:
        for lane in self.lanes:
            if self._place(lane) not in self.workers:
                self.workers[self._place(lane)] = Worker(lane.tool, self.model)
        for lane in self.lanes:
            self._try(lane, self.workers[self._place(lane)].wait_until_ready)

    def _warm_up(self) -> None:
        """Each tool once, after a few plain runs."""
        for lane in self.lanes:
            if lane.why is None and lane.tool in PEERS:
                self._try(lane, lambda lane=lane: self._note_untouched(lane))
            for tool in (lane.base, lane.tool):
                if lane.why is None:
                    self._try(lane, lambda lane=lane, tool=tool: self._worker(lane).ask(tool, self.limit))

    def _note_untouched(self, lane: Lane) -> None:
        times = [self._worker(lane).ask("plain", self.limit)["seconds"] for _ in range(5)]
        self.before[lane.tool] = min(times)

    def _round(self, lane: Lane) -> None:
        started = time.monotonic()
        self._try(lane, lambda: self._between_bases(lane))
        lane.spent += time.monotonic() - started

    def _between_bases(self, lane: Lane) -> None:
        worker = self._worker(lane)
        if self.last is not None and self.last[:2] == (worker, lane.base):
            before = self.last[2]
        else:
            before = worker.ask(lane.base, self.limit)
        taken = worker.ask(lane.tool, self.limit)
        after = worker.ask(lane.base, self.limit)
        self.last = worker, lane.base, after
        lane.runs.append(taken)
        lane.bases.append({clock: (before[clock] + after[clock]) / 2 for clock in after})

    def _try(self, lane: Lane, step: Any) -> None:
        try:
            step()
        except (TooLong, Failed) as error:
            lane.why = str(error)

    def _worker(self, lane: Lane) -> Worker:
        """The lane's process; a new one if the last was stopped for another tool's sake."""
        place = self._place(lane)
        if self.workers[place].process.poll() is not None:
            self.workers[place] = Worker(lane.tool, self.model)
            self.workers[place].wait_until_ready()
        return self.workers[place]

    def _about(self, lane: Lane) -> Result:
        about = dict(self.workers[self._place(lane)].about or {})
        if lane.tool in self.before and lane.runs:
            about[UNTOUCHED] = min(base["seconds"] for base in lane.bases) / self.before[lane.tool]
        return about

    @staticmethod
    def _place(lane: Lane) -> str:
        return lane.tool if lane.tool in PEERS else "here"


# ---- questions that a process of its own answers ----------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """Something that `single.py` finds out, several times."""

    key: str
    arguments: tuple[str, ...]
    repeats: int = 1
    tool: str = "here"

    def ask(self, limit: float) -> Result:
        answers = []
        for _ in range(self.repeats):
            try:
                answers.append(self._once(limit))
            except (TooLong, Failed) as error:
                return {"verdict": "failed", "why": str(error)}
        return {"verdict": "measured", "answers": answers, "load": os.getloadavg()[0]}

    def _once(self, limit: float) -> Result:
        try:
            done = subprocess.run(
                [python_of(self.tool), "-m", "benchmarks.single", *self.arguments],
                capture_output=True,
                text=True,
                timeout=limit,
                cwd=ROOT,
                env=environment_of(self.tool),
            )
        except subprocess.TimeoutExpired:
            raise TooLong(f"> {limit:.0f} s, given up") from None
        if done.returncode:
            raise Failed((done.stderr.strip().splitlines() or ["nothing said"])[-1][:300])
        return json.loads(done.stdout.splitlines()[-1])


def answer_questions(questions: Iterable[Question], results: Results, limit: float) -> None:
    for question in questions:
        if question.key not in results.found:
            print(f"  {question.key}", flush=True)
            results.add(question.key, question.ask(limit))
