"""A logged run is the plain run, and the log holds what the plain run computed: for every hard case, value by value.

The reference is a plain run of an equal model on equal inputs from the same seed, in which taps and forward hooks
copy the values. Nothing of the library takes part in it.
"""

from __future__ import annotations

import dataclasses
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from tests.models import CASES, WITH_GRAD, Case, recorded_taps
from torch import Tensor, nn

import torchlens as tl
from torchlens._torch import as_class

RUNS = [pytest.param(case, mode, id=f"{case.name}-{mode}") for case in CASES for mode in case.modes]
every_run = pytest.mark.parametrize(("case", "mode"), RUNS)
runs_of_modules = pytest.mark.parametrize(
    ("case", "mode"), [run for run in RUNS if run.values[0].hooks and isinstance(run.values[0].build, type)]
)
differentiable_runs = pytest.mark.parametrize(
    ("case", "mode"), [run for run in RUNS if run.values[0].backward and run.values[1] in WITH_GRAD]
)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Tiny models are fastest in one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# ---- running --------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Run:
    """One run of a case: what went in, what came out."""

    model: nn.Module
    args: list[Any]
    kwargs: dict[str, Any]
    output: Any = None
    log: Any = None

    @property
    def inputs(self) -> list[Any]:
        return [*self.args, *self.kwargs.values()]


def prepared(case: Case, mode: str) -> Run:
    """A fresh model and fresh inputs, the same every time."""
    torch.manual_seed(0)
    model = case.build()
    model.train(mode.startswith("train"))
    run = Run(model, case.inputs(), case.kwargs())
    if case.input_grad and mode in WITH_GRAD:
        for tensor in tensors_in(run.inputs):
            if tensor.is_floating_point() or tensor.is_complex():
                tensor.requires_grad_(True)
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    return run


@contextmanager
def surroundings(case: Case, mode: str) -> Iterator[None]:
    """With or without grad, or in inference mode."""
    with torch.inference_mode(mode.endswith("inference")), warnings.catch_warnings():
        if case.warns:
            warnings.simplefilter("ignore", tl.FidelityWarning)
        with torch.set_grad_enabled(mode in WITH_GRAD):
            yield


def plain_run(case: Case, mode: str) -> Run:
    run = prepared(case, mode)
    with surroundings(case, mode):
        run.output = run.model(*run.args, **run.kwargs)
    return run


def logged_run(case: Case, mode: str) -> Run:
    """The same through the library; a hook catches what the model returned."""
    run = prepared(case, mode)
    handle = run.model.register_forward_hook(lambda module, args, result: setattr(run, "output", result))
    try:
        with surroundings(case, mode):
            run.log = tl.log_forward_pass(run.model, run.args, run.kwargs)
    finally:
        handle.remove()
    return run


# ---- comparing ------------------------------------------------------------------------------------------------


def tensors_in(thing: Any, seen: set[int] | None = None) -> Iterator[Tensor]:
    """Every tensor that can be reached from something, in order: containers, attributes, modules."""
    seen = set() if seen is None else seen
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, Mapping):
        yield from (t for member in thing.values() for t in tensors_in(member, seen))
    elif isinstance(thing, (list, tuple)):
        yield from (t for member in thing for t in tensors_in(member, seen))
    elif hasattr(thing, "__dict__") and not isinstance(thing, type) and not callable(thing):
        yield from tensors_in(vars(thing), seen)


def content(tensor: Tensor) -> tuple[Any, ...]:
    """Shape, dtype and every bit, so that NaN equals itself and zero does not equal minus zero."""
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        return _content(tensor.detach())


def _content(tensor: Tensor) -> tuple[Any, ...]:
    if tensor.layout == torch.jagged:  # with a size that is a symbol of its own in each
        return (*_content(tensor.values()), *_content(tensor.offsets()))
    if tensor.is_meta:
        return (tensor.dtype, tensor.shape)
    if tensor.is_nested:
        return (tensor.dtype, *(_content(part) for part in tensor.unbind()))
    if tensor.layout != torch.strided:
        return (tensor.layout, *_content(tensor.to_dense()))
    plain = as_class(tensor, Tensor).resolve_conj().resolve_neg().contiguous().flatten()
    return (tensor.dtype, tensor.shape, plain.view(torch.uint8).numpy().tobytes())


def assert_same(first: Any, second: Any, where: str = "output") -> None:
    """Equal structures of equal types with equal tensors."""
    assert type(first) is type(second), where
    if isinstance(first, Tensor):
        assert content(first) == content(second), f"{where}: {first} is not {second}"
        assert first.requires_grad == second.requires_grad, where
        if first.layout == torch.strided:
            assert first.stride() == second.stride(), where
        assert type(first.grad_fn) is type(second.grad_fn), where
    elif isinstance(first, Mapping):
        assert list(first) == list(second), where
        for key in first:
            assert_same(first[key], second[key], f"{where}[{key!r}]")
    elif isinstance(first, (list, tuple)):
        assert len(first) == len(second), where
        for i, (one, other) in enumerate(zip(first, second, strict=True)):
            assert_same(one, other, f"{where}[{i}]")
    elif hasattr(first, "__dict__"):
        assert_same(vars(first), vars(second), where)
    else:
        assert first == second, where


def aliasing(run: Run) -> list[tuple[str, ...]]:
    """Which output shares memory with, or is, which input or parameter."""
    others = [("input", t) for t in tensors_in(run.inputs)]
    others += [(name, t) for name, t in [*run.model.named_parameters(), *run.model.named_buffers()]]
    return [
        (str(i), name, "is" if output is other else "shares memory")
        for i, output in enumerate(tensors_in(run.output))
        for name, other in others
        if output is other or (storage(output) is not None and storage(output) == storage(other))
    ]


def storage(tensor: Tensor) -> int | None:
    return tensor.untyped_storage()._cdata if tensor.layout == torch.strided and not tensor.is_nested else None


def version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def state(run: Run) -> dict[str, Any]:
    """All that a forward pass may leave behind, in the model, in its inputs and in the process."""
    model = run.model
    numpy_state = np.random.get_state()
    return {
        "state_dict": {name: tensor.clone() for name, tensor in model.state_dict().items()},
        "parameters": {n: (p.requires_grad, p.grad, version(p)) for n, p in model.named_parameters()},
        "buffers": {name: (tensor.clone(), version(tensor)) for name, tensor in model.named_buffers()},
        "modules": {name: module_state(module) for name, module in model.named_modules()},
        "inputs": [(tensor.clone(), version(tensor), tensor.grad) for tensor in tensors_in(run.inputs)],
        "torch rng": torch.get_rng_state(),
        "numpy rng": (numpy_state[1].tolist(), *numpy_state[2:]),
        "python rng": random.getstate(),
        "modes": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")),
    }


def module_state(module: nn.Module) -> dict[str, Any]:
    attributes = vars(module)
    return {
        "class": type(module).__name__,
        "training": module.training,
        "attributes": list(attributes),
        "hooks": {name: len(value) for name, value in attributes.items() if "hooks" in name and value is not None},
        "methods": [name for name in ("forward", "_call_impl", "__call__") if name in attributes],
    }


# ---- the run --------------------------------------------------------------------------------------------------


@every_run
def test_a_logged_run_is_the_plain_run(case: Case, mode: str) -> None:
    plain = plain_run(case, mode)
    expected = state(plain)
    logged = logged_run(case, mode)
    assert_same(state(logged), expected, "state")
    assert_same(logged.output, plain.output, "output")
    assert aliasing(logged) == aliasing(plain)


@differentiable_runs
def test_gradients_are_those_of_a_plain_run(case: Case, mode: str) -> None:
    plain, logged = gradients(plain_run(case, mode)), gradients(logged_run(case, mode))
    assert_same(logged, plain, "gradients")


def gradients(run: Run) -> list[Tensor | None]:
    ends = [tensor for tensor in tensors_in(run.output) if tensor.grad_fn is not None]
    if ends:
        torch.autograd.backward([tensor.abs().sum() for tensor in ends])
    inputs = [tensor for tensor in tensors_in(run.inputs) if tensor.is_leaf]
    return [leaf.grad for leaf in (*run.model.parameters(), *inputs)]


# ---- the log --------------------------------------------------------------------------------------------------


@every_run
def test_the_log_holds_what_a_plain_run_computed(case: Case, mode: str) -> None:
    given = copies(prepared(case, mode).inputs)
    with recorded_taps() as computed:
        returned = copies(plain_run(case, mode).output)
    run = logged_run(case, mode)
    before = [op.activation.clone() for op in run.log]
    scramble_everything(run)

    changed = [op.label for op, value in zip(run.log, before, strict=True) if content(op.activation) != content(value)]
    assert not changed, f"changed after the run: {changed}"
    assert_holds(run.log, run.log.input_layers, given)
    assert_holds(run.log, run.log.output_layers, returned)
    assert_holds(run.log, case.tap_labels(mode), computed)
    assert bool(run.log.warnings) == case.warns, run.log.warnings


def copies(thing: Any) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors_in(thing)]


def assert_holds(log: tl.ModelLog, labels: list[str], expected: list[Tensor]) -> None:
    """The entries with these labels have these values, whole, and nothing of autograd."""
    assert len(labels) == len(expected), f"{len(labels)} labels for {len(expected)} tensors"
    for label, value in zip(labels, expected, strict=True):
        op = log[label]
        assert content(op.activation) == content(value), f"{label} is {op.activation}, but was {value}"
        assert (op.tensor_shape, op.tensor_dtype) == (tuple(value.shape), value.dtype), label
        assert not op.activation.requires_grad, label


def scramble_everything(run: Run) -> None:
    """Overwrite all that can still be reached: outputs, inputs, buffers, parameters, what the model put aside."""
    reachable = [*tensors_in(run.output), *tensors_in(run.inputs)]
    for module in run.model.modules():
        reachable += tensors_in({k: v for k, v in vars(module).items() if not isinstance(v, nn.Module)})
    for tensor in reachable:
        scramble(tensor)


def scramble(tensor: Tensor) -> None:
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        if tensor.layout == torch.sparse_coo:
            tensor = tensor._values()
        if tensor.dtype is torch.bool:
            tensor.logical_not_()
        else:
            tensor.fill_(77)


@every_run
def test_edges_and_parameters(case: Case, mode: str) -> None:
    log = logged_run(case, mode).log
    for label, parents in case.edges.items():
        assert log[label].parent_layers == parents.split(), label
    for label, addresses in case.params.items():
        assert log[label].param_addresses == addresses.split(), label
    for label, ancestors in case.origins.items():
        assert {log[ancestor].label for ancestor in ancestors.split()} <= origins(log, log[label].label), label
    for op in log:
        assert all(op.label in log[parent].child_layers for parent in op.parent_layers)
        assert all(log[parent].operation_num < op.operation_num for parent in op.parent_layers)


@differentiable_runs
def test_whatever_autograd_connects_is_connected(case: Case, mode: str) -> None:
    run = logged_run(case, mode)
    if case.warns:
        return
    sources = dict(zip(run.log.input_layers, tensors_in(run.inputs), strict=True)) | dict(run.model.named_parameters())
    distinct = {id(tensor): name for name, tensor in reversed(sources.items())}.values()
    sources = {name: sources[name] for name in distinct if sources[name].requires_grad}
    for label, output in zip(run.log.output_layers, tensors_in(run.output), strict=True):
        if output.grad_fn is not None and sources:
            end = output.abs().sum()
            found = torch.autograd.grad(end, list(sources.values()), retain_graph=True, allow_unused=True)
            connected = {name for name, gradient in zip(sources, found, strict=True) if gradient is not None}
            assert connected <= origins(run.log, label), label


def origins(log: tl.ModelLog, label: str) -> set[str]:
    """The inputs and parameters that an entry was computed from, according to the log."""
    found, stack = {label}, [label]
    while stack:
        new = set(log[stack.pop()].parent_layers) - found
        found |= new
        stack += new
    return found | {address for ancestor in found for address in log[ancestor].param_addresses}


@runs_of_modules
def test_module_outputs_are_what_forward_hooks_see(case: Case, mode: str) -> None:
    seen = hooked_run(case, mode)
    log = logged_run(case, mode).log
    assert {address: len(values) for address, values in seen.items()} == log.module_num_passes
    for address, calls in seen.items():
        for number, values in enumerate(calls, 1):
            name = f"{address}:{number}"
            assert_holds(log, [name] if len(values) == 1 else [f"{name}[{i}]" for i in range(len(values))], values)


def hooked_run(case: Case, mode: str) -> dict[str, list[list[Tensor]]]:
    """The tensors that each submodule returned, call by call, in a plain run."""
    run = prepared(case, mode)
    seen: dict[str, list[list[Tensor]]] = {}
    for address, module in run.model.named_modules():
        if address:
            module.register_forward_hook(noting(seen.setdefault(address, [])))
    with surroundings(case, mode):
        run.model(*run.args, **run.kwargs)
    return seen


def noting(calls: list[list[Tensor]]) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any, result: Any) -> None:
        calls.append(copies(result))

    return hook


QUANTIZED = """
import torch, torchlens

class Quantizing(torch.nn.Module):
    def forward(self, x):
        return torch.quantize_per_tensor(x, 0.1, 10, torch.quint8).dequantize()

x = torch.randn(2, 3)
saved = torchlens.log_forward_pass(Quantizing(), x)["quantizepertensor_1"].activation
assert str(saved) == str(torch.quantize_per_tensor(x, 0.1, 10, torch.quint8))
"""


def test_quantized_tensors() -> None:
    """In a process of its own: a copy without its quantizer crashes the interpreter."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", QUANTIZED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_case_says_what_it_is() -> None:
    assert all(case.about and "\n" not in case.about for case in CASES)
    assert len({case.name for case in CASES}) == len(CASES)
