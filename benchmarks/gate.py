"""Has the hot path become slower? Counts instructions for each operation and compares with benchmarks/gate.json.

python -m benchmarks.gate            count, compare, fail if anything costs 5 % more than it did
python -m benchmarks.gate --accept   write what was found to gate.json

Counted by Valgrind, which gives the same number on a busy machine. Where there is none, or with `--calibrated`,
processor time is compared with that of a loop that never changes; such figures are less steady, and kept apart.
Each figure is the difference between a model with twice as many operations and one with as many, so that what a log
costs once is not in it; captures are without what the plain forward costs.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmarks.models import chain, rnn, small_transformer

import torchlens as tl
from benchmarks import callgrind

FILE = Path(__file__).parent / "gate.json"
OPERATIONS = 500
TOLERANCE = {"instructions": 0.05, "calibrated": 0.30}
UNITS = {"instructions": "instructions", "calibrated": "turns of the calibration loop"}
MODELS = {
    "chain": chain,
    "RNN": rnn,
    "transformer": small_transformer,
}  # without modules, with recurring ones, with many
STAGES = ("plain", "capture", "fastlog", "passes", "print", "backward", "gradients")
ABOVE = {"capture": "plain", "fastlog": "plain", "gradients": "backward"}  # what they cost more than

Count = Callable[[str, Callable[[], object]], None]


def work_through(count: Count) -> None:
    """Everything that is counted, in two sizes."""
    torch.set_num_threads(1)
    gc.disable()
    with torch.no_grad():
        for kind, build in MODELS.items():
            _stages(lambda name, work: work(), kind, *build(OPERATIONS))  # what is set up once
            for size in (OPERATIONS, 2 * OPERATIONS):
                _stages(lambda name, work, size=size: count(f"{name} {size}", work), kind, *build(size))


def _stages(count: Count, kind: str, model: Any, x: Any) -> None:
    made: list[Any] = []
    count(f"plain {kind}", lambda: model(x))
    count(f"capture {kind}", lambda: made.append(tl.log_forward_pass(model, x)))
    count(f"passes {kind}", lambda: made[0].graph)
    count(f"print {kind}", lambda: str(made[0]))
    with tl.fastlog.Recorder(model, keep_op=lambda ctx: False) as recorder:
        recorder.log(x)
        count(f"fastlog {kind}", lambda: recorder.log(x))
    if kind == "transformer":
        with torch.enable_grad():
            count(f"backward {kind}", lambda: model(x).sum().backward())
            count(f"gradients {kind}", lambda: _log_gradients(model, x))


def _log_gradients(model: Any, x: Any) -> None:
    log = tl.log_forward_pass(model, x, save_gradients=True)
    log[log.output_layers[0]].activation.sum().backward()


def each(totals: dict[str, float]) -> dict[str, float]:
    """The cost of one operation in each stage."""
    found = {}
    for kind in MODELS:
        sizes = {stage: (f"{stage} {kind} {OPERATIONS}", f"{stage} {kind} {2 * OPERATIONS}") for stage in STAGES}
        slopes = {
            stage: (totals[larger] - totals[smaller]) / OPERATIONS
            for stage, (smaller, larger) in sizes.items()
            if larger in totals
        }
        for stage, slope in slopes.items():
            if stage not in ABOVE.values():
                found[f"{stage} {kind}"] = slope - slopes.get(ABOVE.get(stage, ""), 0)
    return found


# ---- two ways to count ------------------------------------------------------------------------------------------


def instructions() -> dict[str, float]:
    environment = {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="torchlens-") as folder:
        os.environ.update(environment)
        totals = callgrind.run([sys.executable, "-m", "benchmarks.gate", "--count"], Path(folder))
    return each(dict(totals))


def calibrated() -> dict[str, float]:
    """The least of several rounds, each against the calibration loop beside it."""
    least: dict[str, float] = {}

    def count(name: str, work: Callable[[], object]) -> None:
        turn = _calibration_turn()
        start = time.process_time()
        work()
        least[name] = min(least.get(name, float("inf")), (time.process_time() - start) / turn)

    for _ in range(7):
        work_through(count)
    return each(least)


def _calibration_turn() -> float:
    """Seconds of processor time for one turn of a loop that stays as it is."""
    turns, table, start = 20_000, {}, time.process_time()
    for number in range(turns):
        table[number & 255] = (number, str(number))
    return (time.process_time() - start) / turns


# ---- the gate ---------------------------------------------------------------------------------------------------


def compare(found: dict[str, float], known: dict[str, float], tolerance: float) -> tuple[list[str], bool]:
    """A line for each figure, and whether all are within the tolerance."""
    lines, passed = [], True
    for name in [*found, *(name for name in known if name not in found)]:
        now, before = found.get(name), known.get(name)
        if now is None or before is None:
            passed = False
            figure = "no longer counted" if now is None else f"{now:,.0f}, new"
            lines.append(f"{name:<16} {figure}: accept the new figures")
            continue
        change = now / before - 1
        verdict = "ok" if change <= tolerance else f"MORE THAN {tolerance:.0%} WORSE"
        if change < -tolerance:
            verdict = "better: accept the new figures to keep it so"
        passed = passed and change <= tolerance
        lines.append(f"{name:<16} {now:>10,.0f} {before:>10,.0f} {change:>+8.1%}  {verdict}")
    return lines, passed


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--accept", action="store_true")
    parser.add_argument("--calibrated", action="store_true")
    parser.add_argument("--count", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.count:
        counter = callgrind.Counter()
        work_through(counter)
        counter.stop()
        return 0
    way = "instructions" if callgrind.is_there() and not options.calibrated else "calibrated"
    found = instructions() if way == "instructions" else calibrated()
    known = json.loads(FILE.read_text()) if FILE.exists() else {}
    made_with = {"python": platform.python_version(), "torch": torch.__version__}
    if options.accept:
        known[way] = {"made with": made_with, "each operation": {name: round(cost, 1) for name, cost in found.items()}}
        FILE.write_text(json.dumps(known, indent=2) + "\n")
    before = known.get(way, {"made with": made_with, "each operation": {}})
    lines, passed = compare(found, before["each operation"], TOLERANCE[way])
    print(f"{UNITS[way]} for each operation: now, before", *lines, sep="\n")
    if before["made with"] != made_with:
        print(f"gate.json was made with {before['made with']}, this is {made_with}: differences may come from there")
    if not passed:
        print("\nFailed: the hot path costs more than it did, or is counted otherwise. If that is meant: ACCEPT=1")
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
