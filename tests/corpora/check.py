"""Is one example logged right? Asked of examples that nobody here wrote."""

from __future__ import annotations

import copy
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import torchlens as tl
from torchlens.capture.containers import rebuild, replace_tensors, tensors_in
from torchlens.capture.records import Value
from torchlens.replay.same import difference, same

#: What can become of an example. Only "failed" is a fault of ours.
PASSED = "passed"
UNINITIALISED = "uninitialised memory"  # the difference is gone when torch fills the memory it hands out
UNSTABLE = "unstable by itself"  # two plain runs differ
REFUSED = "raises plainly"  # such as an in-place operation whose result has another shape
FAILED = "failed"
VERDICTS = (PASSED, UNINITIALISED, UNSTABLE, REFUSED, FAILED)


@dataclass
class Example:
    """A model and its input; `fresh` makes an equal copy of both, independent of all others."""

    name: str
    fresh: Callable[[], tuple[nn.Module, list[Any], dict[str, Any]]]
    grad: bool = True


def examine(examples: Iterable[Example]) -> dict[str, Any]:
    """Check examples; return how many came out how, the number of logged operations, and the first failures."""
    counts: Counter[str] = Counter()
    failures: list[str] = []
    operations = 0
    for example in examples:
        verdict, logged, why = check(example)
        counts[verdict] += 1
        operations += logged
        if verdict == FAILED:
            failures.append(f"{example.name}: {why}")
    verdict = FAILED if failures else PASSED
    return {"verdict": verdict, "counts": counts, "operations": operations, "failures": failures[:20]}


def check(example: Example) -> tuple[str, int, str]:
    """The verdict on one example, how many operations were logged, and what is wrong."""
    try:
        plain = _plain_run(example)
        again = _plain_run(example)
    except Exception as error:
        return REFUSED, 0, f"{type(error).__name__}: {error}"
    stable = not _differences(plain, again)
    try:
        operations, problems = _logged_run(example, plain if stable else None)
        if stable and not problems:
            return PASSED, operations, ""
        if _right_with_filled_memory(example):
            return UNINITIALISED, operations, ""
        if not problems or _unstable(example, plain):
            return UNSTABLE, operations, ""
    except Exception as error:
        return FAILED, 0, f"{type(error).__name__}: {error}"
    return FAILED, operations, "; ".join(problems)[:600]


def _plain_run(example: Example) -> tuple[Any, ...]:
    """What the model returns, and what it leaves in its arguments and buffers."""
    model, args, kwargs = example.fresh()
    seed_all()
    with warnings.catch_warnings(), torch.set_grad_enabled(example.grad):
        warnings.simplefilter("ignore")
        result = model(*args, **kwargs)
    return result, args, kwargs, dict(model.named_buffers())


def _logged_run(example: Example, plain: tuple[Any, ...] | None) -> tuple[int, list[str]]:
    """How many operations were logged, and what is wrong with the log. `plain` is what the run must leave, if known."""
    model, args, kwargs = example.fresh()
    seed_all()
    with warnings.catch_warnings(), torch.set_grad_enabled(example.grad):
        warnings.simplefilter("ignore")
        log = tl.log_forward_pass(model, args, kwargs, check_completeness=True)
        report = log.validate()
    problems = [str(problem) for problem in report.problems]
    if plain is None:  # the values can't be compared, all else can
        problems = [str(p) for p in report.problems if not (p.check == "replay" and "differs" in p.what)]
    else:
        left = (log.graph.trace.output, args, kwargs, dict(model.named_buffers()))
        saved = _saved(left)
        problems += _differences(plain, saved)
        problems += [f"{label} gives another result each time" for label in report.unstable]
    problems += [f"{label} could not be verified: {why}" for label, why in report.unverified]
    return len(log), problems


def _saved(thing: Any) -> Any:
    """The same with saved tensors in place of the log's values."""
    return thing.saved if isinstance(thing, Value) else rebuild(thing, _saved)


def _differences(one: Any, other: Any) -> list[str]:
    ones, others = tensors_in(one), tensors_in(other)
    if len(ones) != len(others):
        return [f"{len(others)} tensors come out of the log, {len(ones)} of the plain run"]
    pairs = [(path, a, b) for (path, a), (_, b) in zip(ones, others, strict=True)]
    return [f"{path} differs from the plain run: {difference(b, a)}" for path, a, b in pairs if not same(b, a)]


def _right_with_filled_memory(example: Example) -> bool:
    """In deterministic mode torch fills the memory that `empty` and its like hand out."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        plain = _plain_run(example)
        return not _differences(plain, _plain_run(example)) and not _logged_run(example, plain)[1]
    finally:
        torch.use_deterministic_algorithms(False)


def _unstable(example: Example, plain: tuple[Any, ...]) -> bool:
    """Does one of many plain runs differ? Some kernels round by where in memory their arguments lie."""
    held = []
    for number in range(40):
        held.append((_plain_run(example), torch.empty(number * 7 + 1)))
    return any(_differences(plain, other) for other, _ in held)


def seed_all(seed: int = 0) -> None:
    torch.default_generator.manual_seed(seed)  # torch.manual_seed asks for every other device too, and is slow
    np.random.seed(seed)
    random.seed(seed)


def copied(thing: Any) -> Any:
    """A copy with tensors of its own that lie in memory as the original ones do."""
    return replace_tensors(thing, _copied_tensor)


def _copied_tensor(tensor: Tensor) -> Tensor:
    return copy.deepcopy(tensor.detach()).requires_grad_(tensor.requires_grad)
