"""One job of the zoo: build a model, run it plainly, log it, validate the log, compare it with a second one."""

from __future__ import annotations

import importlib
import random
import time
import warnings
from copy import deepcopy

import numpy as np
import torch
from tests.jobs import Result
from tests.zoo.build import Built, NotBuilt, one_line
from torch import Tensor

import torchlens as tl
from torchlens.capture.containers import fresh_copy, tensors_in
from torchlens.replay.same import same

PASSED, FAILED, NOT_BUILT = "passed", "failed", "not built"

#: Each part of the zoo with the file that knows it.
PARTS = {
    "recurrent": "tests.zoo.recurrent",
    "torchvision": "tests.zoo.vision",
    "torchvision_training": "tests.zoo.vision_training",
    "timm": "tests.zoo.timm_models",
    "transformers": "tests.zoo.transformers_models",
    "generate": "tests.zoo.generation",
    "torch_geometric": "tests.zoo.graphs",
    "diffusers": "tests.zoo.diffusion",
}


def all_jobs() -> list[str]:
    return [f"{part}/{name}" for part, module in PARTS.items() for name in importlib.import_module(module).names()]


def work(job: str) -> Result:
    """Build and validate one model, such as `torchvision/resnet18`; what came of it."""
    started = time.perf_counter()
    warnings.simplefilter("ignore")
    result = _examine(job)
    return {**result, "seconds": round(time.perf_counter() - started, 1)}


def _examine(job: str) -> Result:
    part, name = job.split("/", 1)
    _seed()
    try:
        built: Built = importlib.import_module(PARTS[part]).build(name)
        outputs = _plain_run(built)
    except NotBuilt as reason:
        return {"verdict": NOT_BUILT, "why": str(reason)}
    except Exception as error:  # it is the model's own: nothing of ours has run yet
        return {"verdict": NOT_BUILT, "why": one_line(error)}
    try:
        return _validated(built, outputs)
    except Exception as error:
        return {"verdict": FAILED, "why": one_line(error)}


def _validated(built: Built, outputs: list[Tensor]) -> Result:
    log = _log(built, check_completeness=True)
    report = log.validate()
    report.compare_outputs(outputs, [log[label] for label in log.output_layers])
    result = {
        "operations": len(report.replayed) + len(report.given) + len(report.unverified),
        "unverified": len(report.unverified),
        "unstable": len(report.unstable),
    }
    problems = [problem for problem in report.problems if problem.check != "outputs"]
    about_outputs = [str(problem) for problem in report.problems if problem.check == "outputs"]
    about_outputs += _differences(log, _log(built))
    if about_outputs and not _reproducible(built, outputs):
        about_outputs = []
        result["note"] = "two plain runs give different outputs"
    if problems or about_outputs:
        return {"verdict": FAILED, "why": "; ".join([*map(str, problems), *about_outputs])[:600], **result}
    return {"verdict": PASSED, **result}


def _differences(log: tl.ModelLog, again: tl.ModelLog) -> list[str]:
    """What `tl.compare` says of two logs of the same run, if not that they are identical."""
    comparison = tl.compare(log, again)
    return [] if comparison.status == "identical" else [f"two logs compared: {comparison.verdict}"]


def _log(built: Built, **options: bool) -> tl.ModelLog:
    _seed()
    inputs = fresh_copy(built.args), fresh_copy(built.kwargs)
    return tl.log_forward_pass(deepcopy(built.model), *inputs, random_seed=0, **options)


def _plain_run(built: Built) -> list[Tensor]:
    _seed()
    outputs = deepcopy(built.model)(*fresh_copy(built.args), **fresh_copy(built.kwargs))
    return [tensor.detach() for _, tensor in tensors_in(outputs)]


def _reproducible(built: Built, outputs: list[Tensor]) -> bool:
    again = [_plain_run(built) for _ in range(3)]
    return all(same(one, other) for run in again for one, other in zip(outputs, run, strict=True))


def _seed() -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
