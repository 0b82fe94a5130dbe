"""A device that is not the CPU, made of Python: its tensors show no memory, and whoever reads one is seen.

    device = FakeDevice()          # once in a process: `torch.rand(3, device="fake")` works from then on
    with device.watched() as seen: ...
    seen                           # the operators that made the CPU wait for the device, in that block

What a tensor of it holds lies in a tensor of the CPU's, which computes. Like an accelerator, it has a random generator
of its own.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import torchlens as tl

NAME = "fake"
_TENSORS = (torch.TensorType, torch.ListType)


class FakeDevice:
    """The device, its generator, and what its tensors hold."""

    def __init__(self) -> None:
        self.generator = torch.Generator()
        self.held: dict[int, Tensor] = {}  # by the address of a storage object
        self.waits: list[str] = []
        _setup_privateuseone_for_python_backend(NAME, _Module(self.generator))
        of_others = torch.UntypedStorage.nbytes
        torch.UntypedStorage.nbytes = lambda storage: self._nbytes(storage) or of_others(storage)  # type: ignore[method-assign]
        self._library = torch.library.Library("_", "IMPL")
        self._library.fallback(self._run, "PrivateUse1")

    def _nbytes(self, storage: torch.UntypedStorage) -> int:
        held = self.held.get(storage._cdata) if storage.device.type == NAME else None
        return 0 if held is None else held.nbytes

    @contextmanager
    def watched(self) -> Iterator[list[str]]:
        """The operators that made the CPU wait for the device, in the block."""
        self.waits.clear()
        yield self.waits

    def put(self, tensor: Tensor) -> Tensor:
        """A tensor of this device that holds what this one does."""
        made: Tensor = torch._C._acc.create_empty_tensor(tuple(tensor.shape), tensor.dtype)
        self.held[made.untyped_storage()._cdata] = tensor
        return made

    def get(self, tensor: Tensor) -> Tensor:
        """What a tensor of this device holds, without being seen."""
        return self.held[tensor.untyped_storage()._cdata]

    def _run(self, operator: Any, *args: Any, **kwargs: Any) -> Any:
        if operator is torch.ops.aten._copy_from.default:
            return self._copy(*args)
        ours = {id(self.get(t)): t for t in pytree.tree_leaves((args, kwargs)) if _is_here(t)}
        tensors = any(isinstance(returned.type, _TENSORS) for returned in operator._schema.returns)
        if not tensors and operator is not torch.ops.aten.is_set_to.default:  # which asks for addresses
            self.waits.append(str(operator))  # a number of Python's
        args, kwargs = pytree.tree_map(lambda t: self.get(t) if _is_here(t) else t, (args, kwargs))
        if "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        if any(argument.name == "generator" for argument in operator._schema.arguments):
            kwargs["generator"] = self.generator
        result = operator(*args, **kwargs)
        return pytree.tree_map_only(Tensor, lambda t: ours[id(t)] if id(t) in ours else self.put(t), result)

    def _copy(self, source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
        if source.device != target.device:
            self.waits.append(f"from {source.device} to {target.device}")
        first, second = (self.get(t) if _is_here(t) else t for t in (source, target))
        second.copy_(first)
        return target


class _Module:
    """What `torch.fake` is."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        self.generator.manual_seed(seed)

    def get_rng_state(self, device: Any = NAME) -> Tensor:
        return self.generator.get_state()

    def set_rng_state(self, state: Tensor, device: Any = NAME) -> None:
        self.generator.set_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


def _is_here(thing: Any) -> bool:
    return isinstance(thing, Tensor) and thing.device.type == NAME


# ---- what is tried on it ----------------------------------------------------------------------------------------


class Network(nn.Module):
    """Draws random numbers, writes in place, keeps statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x)) + torch.rand(3, 4, device=x.device)
        x = nn.functional.dropout(x, 0.5, self.training)
        hidden = x * 2
        hidden.relu_()
        hidden += 1
        return self.last(hidden)


def check_nothing_waits(device: FakeDevice, model: nn.Module, x: Tensor) -> None:
    for name, run in {
        "with autograd": lambda: tl.log_forward_pass(model, x),
        "without": lambda: torch.no_grad()(tl.log_forward_pass)(model, x),
        "gradients": lambda: tl.log_forward_pass(model, x, save_gradients=True),
        "train mode": lambda: tl.log_forward_pass(model, x, train_mode=True),
        "a module's": lambda: tl.pluck(model, x, "first"),
        "an operation's": lambda: tl.pluck(model, x, "relu"),
        "recorded": lambda: tl.fastlog.record(model, x, keep_op=lambda ctx: ctx.layer_type == "dropout"),
        "structure": lambda: tl.log_forward_pass(model, x).graph,
    }.items():
        with device.watched() as waits:
            run()
        assert not waits, f"{name}: {waits}"


def check_values(device: FakeDevice, model: nn.Module, x: Tensor) -> None:
    """They are on the device, and what the CPU has if it draws the same numbers."""
    plain = Network().eval()  # dropout draws in another way
    plain.load_state_dict({name: value.cpu() for name, value in model.state_dict().items()})
    log = tl.log_forward_pass(model.eval(), x, random_seed=0)
    assert {op.activation.device.type for op in log} == {NAME} == {op.tensor_device.type for op in log}
    expected = tl.log_forward_pass(plain, device.get(x), random_seed=0)
    assert [op.label for op in log] == [op.label for op in expected]
    for op, other in zip(log, expected, strict=True):
        assert torch.equal(device.get(op.activation), other.activation), op.label


def check_validation(device: FakeDevice, model: nn.Module, x: Tensor) -> None:
    log = tl.log_forward_pass(model, x)
    before = device.generator.get_state()
    report = log.validate()
    assert report and not report.unverified, str(report)
    assert torch.equal(before, device.generator.get_state())


def check_seeds(device: FakeDevice, model: nn.Module, x: Tensor) -> None:
    """A run that began in the middle of the device's random numbers is reproduced."""
    torch.rand(7, device=NAME)
    first = tl.log_forward_pass(model, x)
    again = tl.log_forward_pass(model, x, random_seed=first.random_seed_used)
    assert torch.equal(device.get(first["dropout"].activation), device.get(again["dropout"].activation))


def check_other_device(device: FakeDevice, model: nn.Module, x: Tensor) -> None:
    log = tl.log_forward_pass(model, x, output_device="cpu")
    assert {op.activation.device.type for op in log} == {"cpu"} and log["relu"].tensor_device.type == NAME


def check_gradients(device: FakeDevice, model: nn.Module, x: Tensor) -> None:
    plain = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).to(NAME)
    log = tl.log_forward_pass(plain, x, save_gradients=True)
    with device.watched() as waits:
        log.output.sum().backward()
    assert not waits and {op.gradient.device.type for op in log if op.gradient is not None} == {NAME}


def check_metadata(device: FakeDevice, model: nn.Module, x: Tensor) -> None:
    """Only its end compares the buffers with what they were, to put back those that have changed."""
    before = [value.cpu() for value in model.buffers()]
    with device.watched() as waits:
        tl.get_model_metadata(model, x)
    assert waits.count("aten.equal.default") == len(waits) <= len(before)
    assert all(torch.equal(value.cpu(), old) for value, old in zip(model.buffers(), before, strict=True))


def main() -> None:
    device, found = FakeDevice(), {}
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            torch.manual_seed(0)
            try:
                check(device, Network().to(NAME), torch.rand(3, 4).to(NAME))
                found[name] = "right"
            except Exception:
                found[name] = traceback.format_exc()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
