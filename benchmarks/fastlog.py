"""What the light path costs: ratios to the plain forward in interleaved runs, with their targets.

python -m benchmarks.fastlog [--rounds N]

Each figure is one of three passes in a Recorder, set-up included. *does nothing* is a bare interception of every torch
call, below which nothing that sees them all can be.
"""

from __future__ import annotations

import statistics

from benchmarks.measure import Question
from benchmarks.overhead import ratios, rounds_asked, verdict
from benchmarks.report import FLOORS, MODES, RECORDER_MICROSECONDS, shown

TASKS = ["intercept", "fastlog nothing", "fastlog one kind", "fastlog stop"]


def main() -> None:
    rounds = rounds_asked(__doc__)
    for model in ("ResNet-50 b1", "GPT-2"):
        tasks = [task for task in TASKS if task == "intercept" or model in MODES[task]]
        for task, values in ratios(model, tasks, rounds).items():
            met = verdict(statistics.median(values), MODES[task][model]) if task in MODES else ""
            print(f"{model:<14}{FLOORS.get(task, task):<20}{shown(values):>18}   {met}".rstrip(), flush=True)
    answer = Question("", ("split", "chain 10k")).ask(600)["answers"][0]
    met = verdict(answer["fastlog"], RECORDER_MICROSECONDS)
    print(f"{'chain 10k':<14}{'everything kept':<20}{answer['fastlog']:>12.1f} us each   {met}")


if __name__ == "__main__":
    main()
