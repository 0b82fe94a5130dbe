"""The functions that a file of unknown origin may run, with arguments that nobody meant.

`python -m tests.fuzz.functions` runs them all.
Each sample of PyTorch's operator database is altered (indices out of range, sizes without bounds, other types, shapes
and strides, NaN) and called as a loaded log would call it. An exception is an answer; a process that dies, or memory
that the C library's own checks find damaged, is not.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from ctypes.util import find_library
from typing import Any, NamedTuple

import torch
from tests.corpora.operators import DTYPES, _variants, op_db
from torch import Tensor

from torchlens.bundle.function_names import torch_name
from torchlens.bundle.trust import careful, is_allowed

WHOLE = [-(2**63), -(2**31), -2, -1, 0, 1, 2, 7, 2**31, 2**62, 2**63 - 1]
REAL = [math.nan, math.inf, -math.inf, -1.0, 0.0, 1e-30, 1e30]
TYPES = [torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64]
SECONDS = 20  # for one call; then it is given up
MEMORY = 12 << 30


def altered(thing: Any, chance: random.Random) -> Any:
    """The same with one leaf of it made into something else."""
    if isinstance(thing, (list, tuple)) and thing and not isinstance(thing, torch.Size):
        parts = list(thing)
        place = chance.randrange(len(parts))
        if chance.random() < 0.1:
            del parts[place]
        else:
            parts[place] = altered(parts[place], chance)
        return tuple(parts) if isinstance(thing, tuple) else parts
    if isinstance(thing, dict):
        name = chance.choice(sorted(thing))
        return thing | {name: altered(thing[name], chance)}
    if isinstance(thing, Tensor):
        return _altered_tensor(thing, chance)
    if isinstance(thing, bool) or thing is None:
        return chance.choice([True, False, None, 3])
    if isinstance(thing, int):
        return chance.choice([*WHOLE, thing - 1, thing + 1, -thing])
    return chance.choice(REAL) if isinstance(thing, float) else thing


def _altered_tensor(tensor: Tensor, chance: random.Random) -> Tensor:
    tensor = tensor.detach().clone()
    kind = chance.choice(["values", "values", "type", "empty", "part", "dimension", "repeated", "turned", "bare"])
    if kind == "values" and tensor.numel():
        values = REAL if tensor.is_floating_point() or tensor.is_complex() else WHOLE
        flat = tensor.view(-1) if tensor.is_contiguous() else tensor.reshape(-1)
        for _ in range(chance.choice([1, 1, 3])):
            value = chance.choice([*values, tensor.shape[0] if tensor.dim() else 1])
            flat[chance.randrange(flat.numel())] = torch.tensor(value).to(tensor.dtype)
        return flat.view(tensor.shape)
    if kind == "type":
        return tensor.to(
            chance.choice([torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64])
        )
    if kind == "empty" and tensor.dim():
        return tensor[:0]
    if kind == "part" and tensor.dim():
        return tensor.narrow(chance.randrange(tensor.dim()), 0, 1) if min(tensor.shape) else tensor
    if kind == "dimension":
        return tensor.unsqueeze(0)
    if kind == "repeated" and tensor.dim() and tensor.shape[0]:
        return tensor[:1].expand(chance.choice([3, 1000, 2**20]), *tensor.shape[1:])
    if kind == "turned" and tensor.dim() > 1:
        return tensor.transpose(0, -1)
    return tensor.flatten()[:1].reshape(()) if kind == "bare" and tensor.numel() else tensor


class Call(NamedTuple):
    name: str
    function: Any
    args: Any
    kwargs: dict[str, Any]


def calls(seed: int) -> Iterator[Call]:
    """Every sample of every function that may run, altered."""
    for dtype in ("float32", "int64"):
        for op in op_db:
            if not op.supports_dtype(DTYPES[dtype][0], "cpu"):
                continue
            named = {torch_name(function): function for _, function, _ in _variants(op)}
            allowed = {name: function for name, function in named.items() if name is not None and is_allowed(name)}
            samples = _samples(op, dtype) if allowed else []
            for name, function in allowed.items():
                chance = random.Random(f"{seed} {dtype} {op.variant_test_name} {name}")
                for sample in chance.sample(samples, min(len(samples), 12)):
                    yield _altered_call(name, function, sample, chance)


def _samples(op: Any, dtype: str) -> list[Any]:
    torch.manual_seed(0)
    return list(op.sample_inputs_func(op, "cpu", DTYPES[dtype][0], False))


def _altered_call(name: str, function: Any, sample: Any, chance: random.Random) -> Call:
    args, kwargs = [sample.input, *sample.args], sample.kwargs
    if kwargs and chance.random() < 0.4:
        return Call(name, function, args, altered(kwargs, chance))
    return Call(name, function, altered(args, chance), kwargs)


def outcome(call: Call) -> str:
    """Call the function as a loaded log would."""
    try:
        careful(call.name, call.function)(call.args, call.kwargs)
        call.function(*call.args, **call.kwargs)
    except _TooSlow:
        return "slow"
    except Exception:
        return "refused"
    return "run"


def run(seed: int, first: int) -> None:
    """Make the calls from number `first` on. A line for each says what is about to be called."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, _too_slow)
    for number, call in enumerate(calls(seed)):
        if number >= first:
            print(f"{number} {call.name}", flush=True)
            signal.alarm(SECONDS)
            print(outcome(call), flush=True)
            signal.alarm(0)


class _TooSlow(Exception):
    pass


def _too_slow(number: int, frame: Any) -> None:
    raise _TooSlow


def checking() -> dict[str, str]:
    """The environment in which the C library looks for damage to the heap."""
    library = find_library("c_malloc_debug") or "libc_malloc_debug.so.0"
    return os.environ | {"LD_PRELOAD": library, "MALLOC_CHECK_": "3", "OMP_NUM_THREADS": "1"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", dest="first", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first is not None:
        run(options.seed, options.first)
        return 0
    found = {"run": 0, "refused": 0, "slow": 0}
    died: list[str] = []
    first, code = 0, 1
    while code:
        command = [sys.executable, "-m", "tests.fuzz.functions", "--seed", str(options.seed), "--from", str(first)]
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=checking())
        lines, code = ran.stdout.splitlines(), ran.returncode
        for outcome in lines:
            if outcome in found:
                found[outcome] += 1
        if code:
            last = next((line for line in reversed(lines) if line[:1].isdigit()), None)
            if last is None:
                print(f"the process ended with {code} before its first call")
                return 1
            died.append(f"{last}: the process ended with {code}")
            first = int(last.split()[0]) + 1
    print(f"{sum(found.values()) + len(died)} calls: {', '.join(f'{n} {what}' for what, n in found.items())}")
    print("\n".join(died) or "no process died")
    return 1 if died else 0


if __name__ == "__main__":
    sys.exit(main())
