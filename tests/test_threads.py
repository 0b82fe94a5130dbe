"""Several logs at once: in several threads, and one inside another, each as if it were alone."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from tests.models import CASES, Case
from torch import Tensor, nn

import torchlens as tl


class Block(nn.Module):
    """A few operations, a module called twice, a write in place, and a pause where threads can change places."""

    def __init__(self, pause: Callable[[], Any] = lambda: None) -> None:
        super().__init__()
        self.fc, self.act, self.pause = nn.Linear(8, 8), nn.ReLU(inplace=True), pause

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.fc(x))
        self.pause()
        y = self.act(self.fc(x + 1))
        y[0] = 0
        return y.sum(dim=1)


class Model(nn.Module):
    def __init__(self, pause: Callable[[], Any] = lambda: None, depth: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(pause) for _ in range(depth)])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x * 0.5 + block(x)[:, None]
        return x


def description(log: tl.ModelLog) -> list[tuple[Any, ...]]:
    """All that one log has in common with another of the same run."""
    return [
        (
            op.label,
            op.parent_layers,
            op.child_layers,
            op.containing_module_passes,
            op.module_passes_exited,
            op.param_addresses,
            op.activation.detach().contiguous().numpy().tobytes(),
        )
        for op in log
    ] + [(log.module_num_passes, log.warnings)]


def at_once(*tasks: Callable[[], Any]) -> list[Any]:
    """Run each in a thread of its own, all starting together; their results."""
    ready = threading.Barrier(len(tasks))

    def run(task: Callable[[], Any]) -> Any:
        ready.wait(timeout=10)
        return task()

    with ThreadPoolExecutor(len(tasks)) as pool:
        return [future.result(timeout=30) for future in [pool.submit(run, task) for task in tasks]]


def meeting(threads: int) -> Callable[[], Any]:
    """A pause in which every thread waits for all others, so that the logs really overlap."""
    barrier = threading.Barrier(threads)
    return lambda: barrier.wait(timeout=10)


def built(pause: Callable[[], Any] = lambda: None, seed: int = 0) -> Model:
    torch.manual_seed(seed)
    return Model(pause)


def sample(seed: int) -> Tensor:
    return torch.randn(4, 8, generator=torch.Generator().manual_seed(seed))


counts = pytest.mark.parametrize("threads", [2, 8])


# ---- threads --------------------------------------------------------------------------------------------------


@counts
def test_different_models(threads: int) -> None:
    pause = meeting(threads)
    expected = [description(tl.log_forward_pass(built(seed=i), sample(i))) for i in range(threads)]
    models = [built(pause, seed=i) for i in range(threads)]
    logs = at_once(*[lambda i=i: tl.log_forward_pass(models[i], sample(i)) for i in range(threads)])
    assert [description(log) for log in logs] == expected


@counts
def test_the_same_model(threads: int) -> None:
    expected = [description(tl.log_forward_pass(built(), sample(i))) for i in range(threads)]
    model = built(meeting(threads))
    before = [list(vars(module)) for module in model.modules()]
    logs = at_once(*[lambda i=i: tl.log_forward_pass(model, sample(i)) for i in range(threads)])
    assert [description(log) for log in logs] == expected
    assert [list(vars(module)) for module in model.modules()] == before


@counts
def test_the_same_model_and_input(threads: int) -> None:
    expected = description(tl.log_forward_pass(built(), sample(0)))
    model, x = built(meeting(threads)), sample(0)
    logs = at_once(*[lambda: tl.log_forward_pass(model, x)] * threads)
    assert [description(log) for log in logs] == [expected] * threads


@counts
def test_the_same_input_into_different_models(threads: int) -> None:
    expected = [description(tl.log_forward_pass(built(seed=i), sample(0))) for i in range(threads)]
    pause, x = meeting(threads), sample(0)
    models = [built(pause, seed=i) for i in range(threads)]
    logs = at_once(*[lambda model=model: tl.log_forward_pass(model, x) for model in models])
    assert [description(log) for log in logs] == expected


def test_a_submodule_in_one_thread_and_its_model_in_another() -> None:
    """The stand-ins on the shared submodule serve both; each log counts only its own calls."""
    plain = built()
    expected = [
        description(tl.log_forward_pass(plain, sample(0))),
        description(tl.log_forward_pass(plain.blocks[0], sample(1))),
    ]
    model = built()
    model.blocks[0].pause = meeting(2)
    logs = at_once(
        lambda: tl.log_forward_pass(model, sample(0)), lambda: tl.log_forward_pass(model.blocks[0], sample(1))
    )
    assert [description(log) for log in logs] == expected


def test_a_plain_run_in_another_thread() -> None:
    """Runs that are not logged are neither changed nor seen."""
    expected, plain_output = description(tl.log_forward_pass(built(), sample(0))), built()(sample(1))
    model = built(meeting(2))
    log, output = at_once(lambda: tl.log_forward_pass(model, sample(0)), lambda: model(sample(1)))
    assert description(log) == expected
    assert torch.equal(output, plain_output)
    assert type(output) is Tensor and output.grad_fn is not None


def test_a_failure_in_one_thread_does_not_disturb_another() -> None:
    expected = description(tl.log_forward_pass(built(), sample(0)))
    pause = meeting(2)

    class Failing(Model):
        def forward(self, x: Tensor) -> Tensor:
            super().forward(x)
            raise KeyError("stop")

    good, bad = built(pause), Failing(pause)

    def failing() -> tl.ModelLog:
        with pytest.raises(KeyError) as caught:
            tl.log_forward_pass(bad, sample(1))
        return caught.value.partial_log

    log, partial = at_once(lambda: tl.log_forward_pass(good, sample(0)), failing)
    assert description(log) == expected
    assert not partial.is_complete and len(partial) > 20


def test_a_log_that_ends_first_leaves_the_other_alone() -> None:
    pause = meeting(2)
    long, short = built(pause), built(pause)
    long.blocks.append(Block())
    logs = at_once(lambda: tl.log_forward_pass(long, sample(0)), lambda: tl.log_forward_pass(short, sample(1)))
    for block in long.blocks:
        block.pause = lambda: None
    assert description(logs[0]) == description(tl.log_forward_pass(long, sample(0)))


def test_many_logs_in_many_threads() -> None:
    """Every case that can be repeated, over and over, in eight threads."""
    quiet = [case for case in CASES if case.repeatable and not case.warns]
    assert len(quiet) > 50
    expected = [labels_and_sums(case) for case in quiet]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(2):
            assert list(pool.map(labels_and_sums, quiet)) == expected


_building = threading.Lock()


def labels_and_sums(case: Case) -> list[tuple[Any, ...]]:
    with _building:  # the seed is the process's
        torch.manual_seed(0)
        model, args, kwargs = case.build().eval(), case.inputs(), case.kwargs()
    with torch.no_grad():
        log = tl.log_forward_pass(model, args, kwargs)
        return [(op.label, *op.parent_layers, op.containing_module, number(op.activation)) for op in log]


def number(tensor: Tensor) -> str:
    if tensor.is_meta or tensor.layout == torch.jagged:
        return str(tensor.dtype)
    if tensor.is_nested:
        return str([number(part) for part in tensor.unbind()])
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return str(tensor.to(torch.complex128).sum().item())


# ---- a log inside a log ---------------------------------------------------------------------------------------


class LogsItsSubmodule(nn.Module):
    """Logs one of its own submodules in forward, and uses what the log says."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.head = Block(), nn.Linear(8, 2)
        self.inner_log: tl.ModelLog | None = None

    def forward(self, x: Tensor) -> Tensor:
        x = x.sin()
        self.inner_log = tl.log_forward_pass(self.block, x)
        return self.head(x * 2) + self.inner_log["output_1"].activation.sum()


class LogsAnotherModel(nn.Module):
    def __init__(self, other: nn.Module) -> None:
        super().__init__()
        self.fc, self.hidden = nn.Linear(8, 8), [other]  # in a list: no submodule
        self.inner_log: tl.ModelLog | None = None

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc(x)
        self.inner_log = tl.log_forward_pass(self.hidden[0], x)
        return self.fc(x.relu())


def test_a_model_that_logs_its_submodule() -> None:
    torch.manual_seed(0)
    model, x = LogsItsSubmodule(), sample(0)
    plain = model(x)
    alone = model.inner_log
    outer = tl.log_forward_pass(model, x)
    assert description(model.inner_log) == description(alone)
    assert description(alone) == description(tl.log_forward_pass(model.block, x.sin()))
    assert torch.equal(outer["output_1"].activation, plain)
    # The outer log sees the submodule's operations too: they ran in its forward pass.
    assert outer.module_num_passes["block"] == 1
    assert outer.module_num_passes["block.fc"] == 2
    inner_types = [op.layer_type for op in alone if not op.is_input_layer and not op.is_output_layer]
    in_block = [op.layer_type for op in outer if "block" in op.containing_modules]
    assert in_block == inner_types


def test_a_model_that_logs_another_model() -> None:
    torch.manual_seed(0)
    other, x = Model(depth=1), sample(0)
    model = LogsAnotherModel(other)
    plain = model(x)
    alone = model.inner_log
    outer = tl.log_forward_pass(model, x)
    assert description(model.inner_log) == description(alone)
    assert description(alone) == description(tl.log_forward_pass(other, model.fc(x)))
    assert torch.equal(outer["output_1"].activation, plain)
    assert outer.module_num_passes == {"fc": 2}
    assert [p for op in outer for p in op.module_passes_exited] == ["fc:1", "fc:2"]


def test_a_model_that_logs_itself() -> None:
    class LogsItself(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.busy, self.inner_log = nn.Linear(8, 8), False, None

        def forward(self, x: Tensor) -> Tensor:
            x = self.fc(x)
            if not self.busy:
                self.busy = True
                self.inner_log = tl.log_forward_pass(self, x)
                self.busy = False
            return x.exp()

    model, x = LogsItself(), sample(0)
    outer = tl.log_forward_pass(model, x)
    assert model.inner_log.module_num_passes == {"fc": 1}
    assert torch.equal(model.inner_log["linear_1"].activation, model.fc(model.fc(x)))
    assert outer.module_num_passes == {"fc": 2}
    assert torch.equal(outer["fc:1"].activation, model.fc(x))
    assert "forward" not in vars(model)


def test_an_inner_log_that_fails() -> None:
    class Trying(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.broken = nn.Linear(8, 8), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            try:
                tl.log_forward_pass(self.broken, x)
            except RuntimeError as error:
                assert not error.partial_log.is_complete
            return self.fc(x).relu()

    log = tl.log_forward_pass(Trying(), sample(0))
    assert [op.layer_type for op in log] == ["input", "linear", "relu", "output"]
    assert log["relu_1"].containing_modules == []


def test_logs_in_a_thread_that_the_model_starts() -> None:
    """A forward that hands a submodule to another thread, which logs it."""

    class Threaded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.fc, self.inner_log = Block(), nn.Linear(8, 8), None

        def forward(self, x: Tensor) -> Tensor:
            (self.inner_log,) = at_once(lambda: tl.log_forward_pass(self.block, x))
            return self.fc(x)

    model, x = Threaded(), sample(0)
    outer = tl.log_forward_pass(model, x)
    assert description(model.inner_log) == description(tl.log_forward_pass(model.block, x))
    # The outer log sees what the thread does: it ran in its forward pass, though the result goes nowhere.
    assert outer["fc"].parent_layers == ["input_1_0"] and outer.output_layers == [outer[-1].label]
    assert outer.module_num_passes["block"] == 1 and outer.module_num_passes["block.fc"] == 2


def test_tasks_that_wait_for_each_other_inside_an_operation() -> None:
    """Only the bookkeeping is done in turn, not the operations."""
    both = threading.Barrier(2)

    library = torch.library.Library("torchlens_test_threads", "FRAGMENT")
    library.define("meet(Tensor x) -> Tensor")

    def meet(x: Tensor) -> Tensor:
        both.wait(timeout=30)
        return x * 2

    library.impl("meet", meet, "CPU")

    class Waiting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            with ThreadPoolExecutor(2) as pool:
                one, other = pool.map(torch.ops.torchlens_test_threads.meet, [x, x + 1])
            return one + other

    model, x = Waiting(), torch.rand(3)
    log = tl.log_forward_pass(model, x)
    assert sorted(op.layer_type for op in log) == ["add", "add", "input", "meet", "meet", "output"]
    assert len(tl.fastlog.record(model, x, keep_op="meet")) == 2
    with tl.fastlog.Recorder(model, keep_op="meet") as recorder:
        recorder.log(x)
    assert len(recorder.recording) == 2


LOOKED_AT = """
import gc, threading
from torchlens.capture.changes import Changes

gc.set_threshold(1)
run = Changes([])
run.begin()
for _ in range(1000):
    cycle = [threading.local()]
    cycle.append(cycle)
    del cycle
    assert not run.is_over()
run.end()
"""


def test_the_collector_does_not_wait_for_ever() -> None:
    """Before Python 3.12.2 it can't free a `threading.local` while the frames of all threads are asked for."""
    subprocess.run([sys.executable, "-c", LOOKED_AT], check=True, timeout=120)
