"""What needs a process of its own: each function is one question, its answer one line of JSON.

python -m benchmarks.single peak "ResNet-50 b16" metadata
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

HEAVY = ("pandas", "graphviz", "pygraphviz", "ray", "networkx", "pyarrow", "matplotlib", "IPython", "torchvision")


def imported(package: str) -> dict[str, Any]:
    """Seconds of processor time that an import takes when torch has been imported, and what heavy things it brings."""
    import torch  # noqa: F401

    there = set(sys.modules)
    seconds = _cpu(lambda: importlib.import_module(package))
    return {"seconds": seconds, "heavy": [name for name in HEAVY if name in sys.modules and name not in there]}


def first_call(model_name: str) -> dict[str, float]:
    """The time of the first log of a process, and the median of those that follow."""
    model, x = _built(model_name)
    import torch

    import torchlens as tl

    with torch.no_grad():
        model(x)
        model(x)
        times = []
        for _ in range(8):
            gc.collect()
            start = time.perf_counter()
            str(tl.log_forward_pass(model, x))
            times.append(time.perf_counter() - start)
    return {"first": times[0], "later": statistics.median(times[1:])}


def split(model_name: str) -> dict[str, float]:
    """Microseconds of processor time for each tiny operation: plain, and what bare interceptions, each stage of a full
    log, and a Recorder that keeps everything add; the median of a few rounds, if there is time."""
    import torch
    from benchmarks.models import operations

    import torchlens as tl

    model, x = _built(model_name)
    count = operations(model_name)
    with torch.no_grad():
        str(tl.log_forward_pass(*_built("chain 1k")))  # what is set up once
        rounds = [_stages(model, x) for _ in range(max(1, 50_000 // count))]
    return {stage: 1e6 * statistics.median(spans[stage] for spans in rounds) / count for stage in rounds[0]}


def _stages(model: Any, x: Any) -> dict[str, float]:
    from benchmarks.tools import TOOLS

    import torchlens as tl

    before = _cpu(lambda: model(x))
    gc.collect()
    made: list[Any] = []
    spans = {"capture": _cpu(lambda: made.append(tl.log_forward_pass(model, x)))}
    spans["passes"] = _cpu(lambda: made[0].graph)
    spans["print"] = _cpu(lambda: str(made[0]))
    made.clear()
    spans["fastlog"] = _recorded(model, x)
    for floor in ("intercept", "floor"):
        spans[floor] = _cpu(TOOLS[floor].prepare(model, x))
    plain = min(before, _cpu(lambda: model(x)))
    for span in ("capture", "fastlog", "intercept", "floor"):
        spans[span] -= plain
    return {"plain": plain, **spans}


def _recorded(model: Any, x: Any) -> float:
    import torchlens as tl

    with tl.fastlog.Recorder(model, keep_op=True) as recorder:
        return _cpu(lambda: recorder.log(x))


def held(model_name: str) -> dict[str, float]:
    """Bytes for each operation that a log without values holds: as it is returned, and when it has been printed."""
    from benchmarks.models import operations

    model, x = _built(model_name)
    import torch

    import torchlens as tl

    with torch.no_grad():
        str(tl.get_model_metadata(*_built("chain 1k")))
        model(x)
        start = _resident()
        log = tl.get_model_metadata(model, x)
        returned = _resident()
        str(log)
        printed = _resident()
    count = operations(model_name)
    return {"returned": (returned - start) / count, "printed": (printed - start) / count}


def peak(model_name: str, tool_name: str) -> dict[str, float]:
    """The most memory, in MB, that a process which runs this once has ever had."""
    import torch
    from benchmarks.tools import TOOLS

    model, x = _built(model_name)
    with torch.no_grad():
        TOOLS[tool_name].prepare(model, x)()
    return {"MB": _status("VmHWM") / 2**20}  # not getrusage, which begins with the peak of the parent process


def ways(model_name: str, threads: str, seconds: str) -> dict[str, dict[str, float]]:
    """Ratios to the plain forward in interleaved runs, by elapsed and by processor time.

    What a run has left is dropped before the next one begins, as a script does; and for one more figure the last log
    is held, so that all values of the next one need fresh memory.
    """
    import torch
    from benchmarks.tools import TOOLS

    import torchlens as tl

    torch.set_num_threads(int(threads))
    model, x = _built(model_name)
    held: list[Any] = []
    tasks = {tool: TOOLS[tool].prepare(model, x) for tool in WAYS_TOOLS}
    tasks["held"] = lambda: _hold(held, tl.log_forward_pass(model, x))
    passes = {tool: TOOLS[tool].passes for tool in WAYS_TOOLS} | {"held": 1}
    spans: dict[str, list[tuple[float, float]]] = {tool: [] for tool in tasks}
    with torch.no_grad():
        for task in tasks.values():  # what is set up once
            task()
        end = time.monotonic() + float(seconds)
        while time.monotonic() < end or len(spans["held"]) < 5:
            for tool, task in tasks.items():
                spans["plain"].append(_clocks(tasks["plain"]))
                spans[tool].append(_clocks(task))
            held.clear()
            tasks["held"]()
    wall, cpu = ({tool: statistics.median(clocks) for tool, clocks in _by_clock(spans, n)} for n in (0, 1))
    return {
        tool: {"wall": wall[tool] / passes[tool] / wall["plain"], "cpu": cpu[tool] / passes[tool] / cpu["plain"]}
        for tool in tasks
    }


def _by_clock(spans: dict[str, list[tuple[float, float]]], clock: int) -> list[tuple[str, list[float]]]:
    return [(tool, [each[clock] for each in found]) for tool, found in spans.items()]


#: What is measured in several ways.
WAYS_TOOLS = ("plain", "intercept", "floor", "copies", "capture", "everything", "fastlog one kind")


def _hold(held: list[Any], log: Any) -> None:
    str(log)
    held[:] = [log]


def _clocks(task: Any) -> tuple[float, float]:
    """Elapsed and processor time."""
    gc.collect(0)
    wall, cpu = time.perf_counter(), time.process_time()
    task()
    return time.perf_counter() - wall, time.process_time() - cpu


def _built(model_name: str) -> Any:
    import torch
    from benchmarks.models import MODELS

    torch.manual_seed(0)
    return MODELS[model_name]()


def _cpu(work: Any) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _resident() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what is free is not held
    return _status("VmRSS")


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


QUESTIONS = {function.__name__: function for function in (imported, first_call, split, held, peak, ways)}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(QUESTIONS[sys.argv[1]](*sys.argv[2:])))
