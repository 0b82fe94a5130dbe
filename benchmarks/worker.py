"""A process that holds one model and runs tools with it when it is told to.

    python -m benchmarks.worker "ResNet-50 b1"

One line of JSON on standard input asks for a run, `{"tool": "floor"}`; one line answers, with the seconds it took by
the clock and of processor time: `{"seconds": 0.1, "cpu": 0.2}`, or `{"error": "..."}`. The first line says that the
model is there, and with which versions.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import warnings
from importlib import metadata
from typing import Any

import torch
from benchmarks.models import MODELS
from benchmarks.tools import TOOLS, Task


def serve(model_name: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what models and tools print is not an answer
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    model, x = MODELS[model_name]()
    tasks: dict[str, Task] = {}
    _answer(answers, {"ready": _versions(), "threads": torch.get_num_threads()})
    with torch.no_grad():
        for line in sys.stdin:
            name = json.loads(line)["tool"]
            try:
                if name not in tasks:
                    tasks[name] = TOOLS[name].prepare(model, x)
                _answer(answers, timed(tasks[name], TOOLS[name].passes))
            except Exception as error:
                _answer(answers, {"error": f"{type(error).__name__}: {error}".strip()[:300]})


def timed(task: Task, passes: int) -> dict[str, float]:
    gc.collect()
    start, start_cpu = time.perf_counter(), time.process_time()
    task()
    cpu, seconds = time.process_time() - start_cpu, time.perf_counter() - start
    return {"seconds": seconds / passes, "cpu": cpu / passes}


def _answer(answers: Any, content: dict[str, Any]) -> None:
    print(json.dumps(content), file=answers, flush=True)


def _versions() -> dict[str, str]:
    names = ("torch", "torchvision", "transformers", "torchlens", "nnsight", "torchview")
    there = {distribution.metadata["Name"] for distribution in metadata.distributions()}
    return {name: metadata.version(name) for name in names if name in there}


if __name__ == "__main__":
    serve(sys.argv[1])
