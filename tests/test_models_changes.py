"""What the model changes in its forward pass stays changed, as in a plain run."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl

LOGS: dict[str, Callable[[nn.Module, Tensor], Any]] = {
    "log": tl.log_forward_pass,
    "fastlog.record": lambda model, x: tl.fastlog.record(model, x, keep_op=True),
    "pluck": lambda model, x: tl.pluck(model, x, "self"),
    "Recorder": lambda model, x: recorded(model, x),
}

every_log = pytest.mark.parametrize("log", LOGS.values(), ids=LOGS)


def recorded(model: nn.Module, x: Tensor) -> None:
    with tl.fastlog.Recorder(model, keep_op=True) as recorder:
        recorder.log(x)


class Changes(nn.Module):
    """Changes something in forward."""

    def __init__(self, change: Callable[[], Any]) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: Tensor) -> Tensor:
        x = x + 1
        self.change()
        return x * 2


#: What a model may change, how, and how to see it.
STATE: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "collector": (gc.disable, gc.isenabled),
    "collector's thresholds": (lambda: gc.set_threshold(500, 5, 5), gc.get_threshold),
    "recursion limit": (lambda: sys.setrecursionlimit(2_000), sys.getrecursionlimit),
    "twice the recursion limit": (
        lambda: sys.setrecursionlimit(2 * (sys.getrecursionlimit() // 2)), lambda: sys.getrecursionlimit() < 1_000
    ),
    "default dtype": (lambda: torch.set_default_dtype(torch.float64), torch.get_default_dtype),
    "grad mode": (lambda: torch._C._set_grad_enabled(False), torch.is_grad_enabled),
    "threads": (lambda: torch.set_num_threads(3), torch.get_num_threads),
    "warning filters": (lambda: warnings.simplefilter("error", ResourceWarning), lambda: list(warnings.filters)),
    "default device": (lambda: torch.set_default_device("meta"), lambda: torch.empty(1).device),
    "random numbers": (lambda: torch.manual_seed(7), lambda: torch.get_rng_state().tolist()),
    "deterministic": (lambda: torch.use_deterministic_algorithms(True), torch.are_deterministic_algorithms_enabled),
}  # fmt: skip


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    thresholds, limit, threads = gc.get_threshold(), sys.getrecursionlimit(), torch.get_num_threads()
    with warnings.catch_warnings():
        yield
    gc.enable()
    gc.set_threshold(*thresholds)
    sys.setrecursionlimit(limit)
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.set_num_threads(threads)
    torch.set_default_device(None)
    torch.use_deterministic_algorithms(False)


@every_log
@pytest.mark.parametrize("name", STATE)
def test_what_the_model_changes_stays_changed(log: Callable[..., Any], name: str, undone: None) -> None:
    change, look = STATE[name]
    x = torch.rand(2)
    before = look()
    log(Changes(change), x)
    found = look()
    if name != "twice the recursion limit":
        assert found != before
    Changes(change)(x)
    assert look() == found


@pytest.mark.parametrize(
    ("owner", "name"),
    [(threading.Thread, "start"), (ThreadPoolExecutor, "submit"), (nn.Module, "register_forward_hook"),
     (torch, "compile"), (torch.nn.functional, "has_torch_function_unary"), (torch.overrides, "has_torch_function"),
     (torch.Tensor, "set_"), (nn.Parameter, "__new__")],
)  # fmt: skip
def test_a_function_that_the_model_patches_stays_patched(owner: Any, name: str) -> None:
    own, original = vars(owner).get(name), getattr(owner, name)
    calls: list[str] = []

    def patch() -> None:
        inner = getattr(owner, name)

        def patched(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            return inner(*args, **kwargs)

        setattr(owner, name, staticmethod(patched) if name == "__new__" else patched)

    try:
        tl.log_forward_pass(Changes(patch), torch.rand(2))
        patched = vars(owner)[name]
        assert getattr(patched, "__name__", "patched") == "patched"
        log = tl.log_forward_pass(Threads(), torch.rand(2))  # sees each operation once, through the patch
        assert [op.func_name for op in log if op.func_name == "sin"] == ["sin"]
        assert vars(owner)[name] is patched
        assert name != "start" or calls
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)
    assert getattr(owner, name) == original


class Threads(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        found: list[Tensor] = []
        thread = threading.Thread(target=lambda: found.append(x.sin()))
        thread.start()
        thread.join()
        return found[0] + 1


def test_a_forward_that_wraps_the_stand_in_is_logged_once() -> None:
    class Wraps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            if "forward" not in vars(self.act) or not hasattr(self.act.forward, "mine"):
                inner = self.act.forward

                def forward(x: Tensor) -> Tensor:
                    return inner(x)

                forward.mine = True  # type: ignore[attr-defined]
                self.act.forward = forward  # type: ignore[method-assign]
            return self.act(x)

    model = Wraps()
    tl.log_forward_pass(model, torch.rand(2))
    assert hasattr(model.act.forward, "mine")
    log = tl.log_forward_pass(model, torch.rand(2))
    assert log.module_num_passes["act"] == 1


COMPILES = """
import torch, torchlens as tl
class Model(torch.nn.Module):
    def forward(self, x):
        from torch import compile
        self.compile_ = compile
        return x + 1
model = Model()
tl.log_forward_pass(model, torch.rand(2))
import torch._dynamo
seen = []
def backend(graph, inputs):
    seen.append(graph)
    return graph.forward
model.compile_(lambda x: x * 2, backend=backend)(torch.rand(2))
torch.compile(lambda x: x * 3, backend=backend)(torch.rand(2))
print(len(seen))
"""


def test_torch_compile_imported_in_forward_compiles_afterwards() -> None:
    done = subprocess.run([sys.executable, "-c", COMPILES], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == "2"
