"""Logging leaves no trace in torch, in the process or on the model, whatever happened in the forward pass."""

from __future__ import annotations

import gc
import subprocess
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed
import torch.overrides
from tests.models import CASES, Case
from tests.state import model_state, process_state
from torch import Tensor, nn
from torch.nn.parameter import UninitializedTensorMixin

import torchlens as tl

# ---- models that fail -----------------------------------------------------------------------------------------


class Failure(Exception):
    """What the models here raise."""


Raise = Callable[[], None]


class Leaf(nn.Module):
    """Fails inside, between two operations."""

    def __init__(self, fail: Raise) -> None:
        super().__init__()
        self.fc, self.fail = nn.Linear(3, 3), fail

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc(x).relu()
        self.fail()
        return x + 1


class Middle(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.exp()) * 2


def at_depth(depth: int, fail: Raise) -> nn.Module:
    model: nn.Module = Leaf(fail)
    for _ in range(depth):
        model = Middle(model)
    return model


def in_a_hook(fail: Raise) -> nn.Module:
    model = at_depth(1, lambda: None)
    model.inner.fc.register_forward_hook(lambda module, args, result: fail())
    return model


def in_a_pre_hook(fail: Raise) -> nn.Module:
    model = at_depth(1, lambda: None)
    model.inner.fc.register_forward_pre_hook(lambda module, args: fail())
    return model


class InsideGradModes(nn.Module):
    """Fails with grad switched off and a torch function mode of its own active."""

    def __init__(self, fail: Raise) -> None:
        super().__init__()
        self.leaf = Leaf(fail)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad(), OwnMode():
            return self.leaf(x.exp())


class InsideATransform(nn.Module):
    """Fails where the operations are recorded at the dispatcher."""

    def __init__(self, fail: Raise) -> None:
        super().__init__()
        self.leaf = Leaf(fail)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autograd.forward_ad.dual_level():
            return torch.vmap(self.leaf)(x.exp())


class InsideAThread(nn.Module):
    """Fails in a thread that it started."""

    def __init__(self, fail: Raise) -> None:
        super().__init__()
        self.leaf = Leaf(fail)

    def forward(self, x: Tensor) -> Tensor:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(self.leaf, x.exp()).result()


class OwnMode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


FAILING = {
    "in the model": lambda fail: at_depth(0, fail),
    "in a submodule": lambda fail: at_depth(1, fail),
    "four deep": lambda fail: at_depth(4, fail),
    "in a hook": in_a_hook,
    "in a pre-hook": in_a_pre_hook,
    "inside modes": InsideGradModes,
    "inside a transform": InsideATransform,
    "inside a thread": InsideAThread,
}

failing_models = pytest.mark.parametrize("build", FAILING.values(), ids=FAILING)
kinds_of_error = pytest.mark.parametrize("kind", [Failure, RuntimeError, KeyboardInterrupt, SystemExit, GeneratorExit])


def failing_with(error: BaseException) -> Raise:
    def fail() -> None:
        raise error

    return fail


@pytest.fixture(autouse=True, scope="module")
def what_torch_does_late() -> None:
    """At the first call of a custom operator, or when a tensor is first pickled, torch changes itself."""
    for case in CASES:
        case.build().eval()(*case.inputs(), **case.kwargs())


@pytest.fixture(autouse=True)
def nothing_is_left(what_torch_does_late: None) -> Iterator[None]:
    before = process_state()
    yield
    assert process_state() == before


# ---- after success --------------------------------------------------------------------------------------------


def test_success_leaves_no_trace_on_the_model() -> None:
    model = at_depth(3, lambda: None)
    x = torch.randn(2, 3)
    before = model_state(model)
    log = tl.log_forward_pass(model, x)
    print(log, log["inner"], log.modules)
    assert model_state(model) == before
    assert vars(x) == {}
    assert "forward" not in vars(model) and "_call_impl" not in vars(model)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_leaves_no_trace_in_torch(case: Case) -> None:
    """The fixture looks around before and after."""
    logged(case.build().eval(), case.inputs(), case.kwargs())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_memory_stays_where_it_was(case: Case) -> None:
    """Others may hold pointers into the memory of inputs, parameters and buffers: NumPy, a captured CUDA graph."""
    moved = []
    for run in (lambda model, args, kwargs: model(*args, **kwargs), logged):
        model, args, kwargs = case.build().eval(), case.inputs(), case.kwargs()
        tensors = [t for t in (*model.parameters(), *model.buffers(), *args, *kwargs.values()) if has_memory(t)]
        before = [tensor.data_ptr() for tensor in tensors]
        run(model, args, kwargs)
        moved.append([tensor.data_ptr() != pointer for tensor, pointer in zip(tensors, before, strict=True)])
    assert moved[0] == moved[1]


def has_memory(thing: Any) -> bool:
    return (
        isinstance(thing, Tensor) and not isinstance(thing, UninitializedTensorMixin) and thing.layout == torch.strided
    )


def logged(model: nn.Module, args: list[Any], kwargs: dict[str, Any]) -> tl.ModelLog:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tl.FidelityWarning)
        return tl.log_forward_pass(model, args, kwargs)


def test_an_array_over_an_input_sees_what_the_model_writes() -> None:
    class Writing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.count.add_(1)
            return x.mul_(2) + self.count

    model, x = Writing(), torch.ones(2, 3)
    arrays = x.numpy(), model.count.numpy()
    log = tl.log_forward_pass(model, x)
    assert [array.max() for array in arrays] == [2, 1]
    arrays[0][:] = 5
    assert x.max() == 5 and log["input_1"].activation.max() == 1 and log["mul_1"].activation.max() == 2


def test_tensors_get_no_attributes() -> None:
    kept: list[Tensor] = []

    class Keeping(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            kept.extend([x, x * 2, (x * 2).add_(1), x[0]])
            return kept[2]

    tl.log_forward_pass(Keeping(), torch.randn(2, 3))
    assert [vars(tensor) for tensor in kept] == [{}] * 4


def test_a_forward_that_the_user_put_on_the_instance_stays() -> None:
    """In its place among the attributes, too."""
    model = nn.Sequential(nn.Linear(3, 3))
    original = model[0].forward
    model[0].forward = mine = lambda x: original(x) * 2
    model[0].more = 1
    x = torch.randn(2, 3)
    before = model_state(model)
    log = tl.log_forward_pass(model, x)
    assert model[0].forward is mine
    assert model_state(model) == before
    assert torch.equal(log["0"].activation, model(x))


def test_a_forward_that_the_model_replaces_stays_replaced() -> None:
    class Replacing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            self.fc.forward = torch.exp
            return self.fc(x)

    model, x = Replacing(), torch.randn(2, 3)
    log = tl.log_forward_pass(model, x)
    assert model.fc.forward is torch.exp
    assert torch.equal(log["output_1"].activation, x.exp())


def test_module_and_log_can_be_freed() -> None:
    """Neither the model, nor its tensors, nor the log is kept alive by the library, nor by a cycle."""
    model, x = at_depth(1, lambda: None), torch.randn(2, 3)
    log = tl.log_forward_pass(model, x)
    activation = log["relu_1"].activation
    print(log)
    gone = [weakref.ref(thing) for thing in (model, x, log)]
    gc.collect()
    gc.disable()
    try:
        del model, x, log
        alive = [reference() is not None for reference in gone]
    finally:
        gc.enable()
    assert alive[1:] == [False, False]
    gc.collect()
    assert gone[0]() is None
    assert activation.shape == (2, 3)


def test_the_garbage_collector_stays_off_if_it_was_off() -> None:
    gc.disable()
    try:
        tl.log_forward_pass(nn.Linear(3, 3), torch.randn(2, 3))
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_model_trains_on_as_if_nothing_had_been() -> None:
    """Logs between training steps change no step."""

    def trained(logged: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.ReLU(inplace=True), nn.Linear(4, 1)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        out: list[Tensor] = []
        model.register_forward_hook(lambda module, args, result: out.append(result))
        for _ in range(4):
            x = torch.randn(8, 3)
            if logged:
                tl.log_forward_pass(model, x)
            else:
                model(x)
            optimizer.zero_grad()
            out[-1].square().mean().backward()
            optimizer.step()
        return [tensor.detach() for tensor in model.state_dict().values()]

    assert all(map(torch.equal, trained(logged=True), trained(logged=False)))


class Node:
    """One of many objects that refer to each other."""

    def __init__(self, tensor: Tensor, *others: Node) -> None:
        self.tensor, self.left, self.right = tensor, others[:1], others[-1:]


def test_objects_that_refer_to_each_other() -> None:
    """Each of these objects is reached in many ways; each tensor is one entry."""

    class First(nn.Module):
        def forward(self, node: Node) -> Tensor:
            return node.tensor * 2

    node = Node(torch.ones(1))
    for number in range(12):
        node = Node(torch.full((1,), number), node)
    log = tl.log_forward_pass(First(), [node])
    assert len(log.input_layers) == 13


@pytest.mark.skipif(
    sys.version_info[:2] == (3, 12),
    reason="Python 3.12 limits how deep calls through C may go, and that limit can't be raised",
)
def test_recursion_as_deep_as_in_a_plain_run() -> None:
    class Recursive(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: Tensor, depth: int) -> Tensor:
            return self(self.fc(x).tanh(), depth - 1) if depth else x

    model, x, limit = Recursive(), torch.randn(2, 3), sys.getrecursionlimit()
    plain = model(x, 180)
    log = tl.log_forward_pass(model, [x, 180])
    assert torch.equal(log["output_1"].activation, plain)
    assert sys.getrecursionlimit() == limit
    assert str(log) and str(log[-1])


# ---- after failure --------------------------------------------------------------------------------------------


@failing_models
@kinds_of_error
def test_failure_leaves_no_trace(build: Callable[[Raise], nn.Module], kind: type[BaseException]) -> None:
    model, x = build(failing_with(kind("stop"))), torch.randn(2, 3)
    before = model_state(model)
    with pytest.raises(kind):
        tl.log_forward_pass(model, x)
    assert model_state(model) == before
    assert vars(x) == {}


@failing_models
@kinds_of_error
def test_the_exception_is_the_users_own(build: Callable[[Raise], nn.Module], kind: type[BaseException]) -> None:
    error = kind("stop")
    with pytest.raises(kind) as caught:
        tl.log_forward_pass(build(failing_with(error)), torch.randn(2, 3))
    assert caught.value is error
    assert error.args == ("stop",)
    assert error.__cause__ is None and error.__context__ is None
    assert traceback.extract_tb(error.__traceback__)[-1].name == "fail"


@failing_models
def test_a_plain_run_works_after_a_failed_one(build: Callable[[Raise], nn.Module]) -> None:
    failing = [True]

    def fail() -> None:
        if failing:
            raise Failure

    model, x = build(fail), torch.randn(2, 3)
    with pytest.raises(Failure):
        tl.log_forward_pass(model, x)
    failing.clear()
    plain = model(x)
    log = tl.log_forward_pass(model, x)
    assert log.is_complete
    torch.testing.assert_close(log["output_1"].activation, plain.detach(), rtol=0, atol=0, equal_nan=True)


def test_the_partial_log_has_the_operations_before() -> None:
    x = torch.randn(2, 3)
    model = at_depth(2, failing_with(Failure("stop")))
    with pytest.raises(Failure) as caught:
        tl.log_forward_pass(model, x)
    log = caught.value.partial_log
    assert isinstance(log, tl.ModelLog) and not log.is_complete
    assert [op.layer_type for op in log] == ["input", "exp", "exp", "linear", "relu"]
    leaf = model.inner.inner
    assert torch.equal(log["relu_1"].activation, leaf.fc(x.exp().exp()).relu())
    assert log["relu_1"].containing_modules == ["inner", "inner.inner"]
    assert log["relu_1"].parent_layers == [log["linear_1"].label]
    assert log.module_num_passes["inner.inner.fc"] == 1
    assert str(log) and str(log["relu_1"])


def test_the_partial_log_of_a_torch_error() -> None:
    """An operation that fails itself is not there; the ones before are."""

    class WrongShapes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x * 2) @ (x + 1)

    with pytest.raises(RuntimeError, match="mat1 and mat2") as caught:
        tl.log_forward_pass(WrongShapes(), torch.randn(2, 3))
    assert [op.layer_type for op in caught.value.partial_log] == ["input", "mul", "add"]


def test_the_partial_log_of_a_failed_write() -> None:
    """A write that fails changes nothing in the log."""

    class WrongWrite(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            y[0] = torch.zeros(7)
            return y

    with pytest.raises(RuntimeError) as caught:
        tl.log_forward_pass(WrongWrite(), torch.randn(2, 3))
    assert [op.layer_type for op in caught.value.partial_log] == ["input", "mul", "zeros"]


def test_an_error_that_the_model_catches_is_no_error() -> None:
    class Trying(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            try:
                x = x @ x
            except RuntimeError:
                x = x * 2
            return x + 1

    x = torch.randn(2, 3)
    log = tl.log_forward_pass(Trying(), x)
    assert [op.layer_type for op in log] == ["input", "mul", "add", "output"]
    assert log["add_1"].parent_layers == ["mul_1_1"]


def test_an_error_that_the_model_catches_around_a_submodule_is_no_error() -> None:
    """The operations after it belong to the model again, not to the submodule that failed."""

    class Trying(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.leaf = Middle(Leaf(failing_with(Failure("stop"))))

        def forward(self, x: Tensor) -> Tensor:
            try:
                return self.leaf(x)
            except Failure:
                return x.sin()

    log = tl.log_forward_pass(Trying(), torch.randn(2, 3))
    assert log.is_complete
    assert log["sin_1"].containing_modules == []
    assert log["relu_1"].containing_modules == ["leaf", "leaf.inner"]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have notes since Python 3.11")
def test_the_note_says_how_far_it_got() -> None:
    with pytest.raises(Failure) as caught:
        tl.log_forward_pass(at_depth(1, failing_with(Failure("stop"))), torch.randn(2, 3))
    (note,) = caught.value.__notes__
    line = Leaf.forward.__code__.co_firstlineno + 1
    assert "3 operations" in note
    assert "relu" in note and "inner" in note
    assert f"{__file__}:{line}" in note
    assert "partial_log" in note


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have notes since Python 3.11")
def test_the_note_of_a_model_that_fails_at_once() -> None:
    with pytest.raises(TypeError) as caught:
        tl.log_forward_pass(nn.Linear(3, 3), [])
    (note,) = caught.value.__notes__
    assert "0 operations" in note
    assert caught.value.partial_log.op_labels == []


def test_a_frozen_exception_still_gets_through() -> None:
    """Where nothing can be attached to the exception, the user still sees it."""

    class Frozen(Exception):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "partial_log":
                raise AttributeError("frozen")
            super().__setattr__(name, value)

    error = Frozen("stop")
    with pytest.raises(Frozen) as caught:
        tl.log_forward_pass(at_depth(0, failing_with(error)), torch.randn(2, 3))
    assert caught.value is error


# ---- importing ------------------------------------------------------------------------------------------------

IMPORT_CHANGES_NOTHING = """
import sys, torch, torch.nn.functional, torch.overrides, threading, gc, warnings

def seen():
    places = (torch, torch.Tensor, torch.nn.functional, torch.nn.Module, torch.overrides, torch._C, torch._tensor)
    names = [{name: id(value) for name, value in vars(place).items()} for place in places]
    return names, torch._C._len_torch_function_stack(), gc.isenabled(), id(threading.Thread), list(warnings.filters)

before, modules = seen(), set(sys.modules)
import torchlens
assert seen() == before, "importing changed torch"
heavy = {"pandas", "graphviz", "networkx", "matplotlib", "PIL", "IPython", "torch._dynamo", "torch._inductor"}
new = {name for name in set(sys.modules) - modules if name in heavy}
assert not new, f"importing imported {new}"
torchlens.log_forward_pass(torch.nn.Linear(3, 3), torch.ones(2, 3))
assert seen()[1:] == before[1:]
new = {name for name in set(sys.modules) - modules if name in heavy}
assert not new, f"logging imported {new}"
"""


def test_importing_changes_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_CHANGES_NOTHING], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
