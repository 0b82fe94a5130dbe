"""Interrupt logs at random moments, and look for anything that stays changed.

python -m tests.interrupts                  2,000 interrupts: half by signals, half as exceptions sent from a thread
python -m tests.interrupts --interrupts 60  fewer

Half of the interrupts fall anywhere into a run, half into its set-up and tear-down. After each, everything that a
capture changes must be as before, and the next log must be right. Interrupts in the few lines of torch's own in which
`torch.vmap` begins and ends leave its level open, logged or not: they are counted apart, and the level is closed.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import random
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tests.state import model_state, process_state
from torch import Tensor, nn

import torchlens as tl

OWN, VMAP = str(Path(tl.__file__).parent), "_functorch"


class Interrupted(KeyboardInterrupt):
    """What the interrupts of this test raise."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(torch.relu(self.fc(x)))
        y += 1
        return torch.nn.functional.softmax(y, -1)


class Model(nn.Module):
    """Modules with and without hooks, writes in place, buffers, a transform, a function written in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
        self.blocks[0].fc.register_forward_hook(lambda module, args, result: result * 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x) + torch.vmap(torch.sin)(x)


Scenario = Callable[[nn.Module, Tensor], Any]


def recorder(model: nn.Module, x: Tensor) -> None:
    with tl.fastlog.Recorder(model, keep_op="relu") as recording:
        recording.log(x)
        model(x)


def backward(model: nn.Module, x: Tensor) -> None:
    log = tl.log_forward_pass(model, x, save_gradients=True)
    log.log_backward(log["output"].activation.sum())


def replayed(model: nn.Module, x: Tensor) -> None:
    tl.log_forward_pass(model, x).replay(values={"input": x + 1})


SCENARIOS: dict[str, Scenario] = {
    "log": tl.log_forward_pass,
    "log, checked": lambda model, x: tl.log_forward_pass(model, x, check_completeness=True),
    "log of a submodule": lambda model, x: tl.log_forward_pass(model, x, module="blocks.1"),
    "log of some layers": lambda model, x: tl.log_forward_pass(model, x, layers_to_save=["relu"]),
    "save_new_activations": lambda model, x: tl.log_forward_pass(model, x).save_new_activations(model, x + 1),
    "log_backward": backward,
    "replay": replayed,
    "validate": tl.validate_model_activations,
    "fastlog.record": lambda model, x: tl.fastlog.record(model, x, keep_op="relu"),
    "fastlog.Recorder": recorder,
    "pluck": lambda model, x: tl.pluck(model, x, "blocks.0"),
}


# ---- interrupts -----------------------------------------------------------------------------------------------


def by_signal(work: Callable[[], Any], delay: float) -> list[str]:
    """Run `work`, interrupted by a signal after so many seconds. Gives the files of the stack, none if it came late."""
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-6))
            work()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except BaseException as error:
        return interrupted_in(error)
    return []


def interrupted_in(error: BaseException | None) -> list[str]:
    """The files of the stack, innermost last, if this exception is the interrupt, or was raised in place of it."""
    while error is not None and not isinstance(error, Interrupted):
        error = error.__context__
    frames = traceback.extract_tb(error and error.__traceback__)
    return [frame.filename for frame in frames if frame.filename != __file__]


def in_torch_vmap(files: list[str]) -> bool:
    """Is it code of torch's that was interrupted, on behalf of `torch.vmap` and not of ours?"""
    innermost = [OWN if file.startswith(OWN) else "vmap" for file in files if file.startswith(OWN) or VMAP in file]
    return innermost[-1:] == ["vmap"]


def by_exception(work: Callable[[], Any], delay: float) -> list[str]:
    """The same by an exception that another thread sends."""
    ident, begun, over = threading.get_ident(), threading.Event(), threading.Event()

    def send() -> None:
        begun.wait()
        if not over.wait(delay):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(Interrupted))

    thread = threading.Thread(target=send)
    thread.start()
    interrupted: list[str] = []
    try:
        begun.set()
        work()
    except BaseException as error:
        interrupted = interrupted_in(error)
    try:
        over.set()
        thread.join()
        for _ in range(100):  # one that was sent but not yet noticed
            time.sleep(0)
    except Interrupted:
        thread.join()
    return interrupted


def _raise(number: int, frame: Any) -> None:
    raise Interrupted


def run(count: int, seed: int = 0) -> tuple[Counter[str], list[str]]:
    """So many interrupts; how many there were of each scenario, and what was left behind."""
    chance = random.Random(seed)
    torch.manual_seed(0)
    model, x = Model().eval(), torch.rand(3, 6)
    signal.signal(signal.SIGALRM, _raise)
    torch.vmap(torch.sin)(x)  # the first one loads something, which computes
    expected = description(tl.log_forward_pass(model, x))
    seconds: dict[str, float] = {}
    for name, scenario in SCENARIOS.items():  # twice: what is set up once is set up
        for _ in range(2):
            start = time.perf_counter()
            scenario(model, x)
            seconds[name] = time.perf_counter() - start
    before = process_state(), model_state(model)
    made: Counter[str] = Counter()
    left: list[str] = []
    while made.total() < count:
        name = chance.choice(list(SCENARIOS))
        delay = moment(chance) * seconds[name]
        interrupt = by_signal if made.total() % 2 else by_exception
        where = interrupt(lambda name=name: SCENARIOS[name](model, x), delay)
        if not where:
            continue
        gc.collect()  # torch's own generators end with the traceback that holds them
        if in_torch_vmap(where) and torch._C._functorch.get_dynamic_layer_stack_depth():
            torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(0)
            name += ", in torch.vmap itself"
        made[name] += 1
        if name != "fastlog.Recorder":  # an interrupt as its with-block ends is made good by the next log
            left += [f"{name}, {interrupt.__name__}: {what}" for what in changed(before, model)]
        if description(tl.log_forward_pass(model, x)) != expected:
            left.append(f"{name}, {interrupt.__name__}: the next log differs")
        left += [f"{name}, {interrupt.__name__}, after the next log: {what}" for what in changed(before, model)]
    return made, left


def moment(chance: random.Random) -> float:
    """When, as a part of the whole run."""
    anywhere = chance.uniform(0, 1.2)
    return chance.choice([anywhere, anywhere, chance.uniform(0, 0.15), chance.gauss(0.95, 0.1)])


def changed(before: tuple[dict[str, Any], list[Any]], model: nn.Module) -> list[str]:
    process, state = before
    now = process_state()
    found = [f"{key}: {process[key]!r:.100} became {now[key]!r:.100}" for key in process if process[key] != now[key]]
    return found + ["the model"] * (model_state(model) != state)


def description(log: tl.ModelLog) -> list[tuple[Any, ...]]:
    return [(op.label, op.containing_module, op.activation.sum().item()) for op in log]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interrupts", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    made, left = run(options.interrupts, options.seed)
    for name, count in made.items():
        print(f"{count:6} {name}")
    print("\n".join(left[:20]))
    print(f"{made.total()} interrupts, {len(left)} of which left something behind")
    sys.exit(bool(left))


if __name__ == "__main__":
    main()
