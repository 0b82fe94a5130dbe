"""Seeds that reproduce a run."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import torch

from .._torch import ACCELERATORS, default_device, others_accelerator
from .changes import between

T = TypeVar("T")


class Seed(int):
    """The seed of a forward pass: an int that also holds the states of the random generators.

    Given back as `random_seed=`, it reproduces the run exactly, even if that run began somewhere in the middle of the
    generators' sequences. The bare number does so when the run was started with it.
    """

    states: dict[str, Any]

    def __new__(cls, number: int, states: dict[str, Any]) -> Seed:
        seed = super().__new__(cls, number)
        seed.states = states
        return seed

    def __getnewargs__(self) -> tuple[int, dict[str, Any]]:  # type: ignore[override]
        return int(self), self.states


def seed_generators(random_seed: int | None) -> Seed:
    """Seed torch's, NumPy's and Python's generators if a seed is given; return the seed with their states."""
    if isinstance(random_seed, Seed):
        _restore(random_seed.states)
        return random_seed
    if random_seed is not None:
        torch.manual_seed(random_seed)
        random.seed(random_seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(random_seed % 2**32)
        return Seed(random_seed, _states())
    return Seed(torch.initial_seed(), _states())


def restoring(body: Callable[[], T]) -> T:
    """Call `body` and return its result; the generators' states are restored afterwards, whatever happens."""
    states = _states()
    return between(lambda frame: None, body, lambda: _restore(states))


def _states() -> dict[str, Any]:
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if "numpy" in sys.modules:
        states["numpy"] = sys.modules["numpy"].random.get_state()
    for kind in (*ACCELERATORS, others_accelerator()):
        if _is_in_use(kind):
            states[kind] = [generator.get_state() for generator in _generators(kind)]
    return states


def _restore(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    random.setstate(states["python"])
    if "numpy" in states:
        import numpy

        numpy.random.set_state(states["numpy"])
    for kind in states.keys() - {"torch", "python", "numpy"}:
        if _is_in_use(kind):
            for generator, state in zip(_generators(kind), states[kind], strict=False):
                generator.set_state(state)


# ---- the generators of devices --------------------------------------------------------------------------------


class Generates(Protocol):
    """What draws random numbers."""

    def get_state(self) -> torch.Tensor: ...

    def set_state(self, state: torch.Tensor, /) -> Any: ...


def drawn_from(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Generates:
    """What a call with these arguments draws its random numbers from."""
    given: torch.Generator | None = kwargs.get("generator")
    return given if given is not None else generator_of(_device_of(args, kwargs))


def generator_of(device: torch.device) -> Generates:
    """What draws for calls on this device, unless they are given a generator."""
    module = None if device.type in ("cpu", "meta") else getattr(torch, device.type, None)
    return _DeviceGenerator(module, device) if hasattr(module, "get_rng_state") else torch.default_generator


class _DeviceGenerator:
    """A device's own generator, through `torch.cuda` and its counterparts. Reading its state does not wait for the
    device: the CPU keeps count of the numbers drawn."""

    def __init__(self, module: Any, device: torch.device) -> None:
        self._module = module
        self._device = () if device.type == "mps" else (device,)  # there is one such device

    def get_state(self) -> torch.Tensor:
        state: torch.Tensor = self._module.get_rng_state(*self._device)
        return state

    def set_state(self, state: torch.Tensor) -> None:
        self._module.set_rng_state(state, *self._device)


def _device_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.device:
    """Where a call with these arguments computes."""
    if kwargs.get("device") is not None:
        return torch.device(kwargs["device"])
    for argument in (*args, *kwargs.values()):
        if isinstance(argument, torch.Tensor):
            return argument.device
    return default_device()


def _is_in_use(kind: str) -> bool:
    """Is there such a device, and has it been used?"""
    if kind == "mps":
        return torch.backends.mps.is_available()
    module: Any = getattr(torch, kind, None)
    if not hasattr(module, "get_rng_state"):
        return False
    was_used = getattr(module, "is_initialized", module.is_available)  # quicker to tell than whether there is one
    return bool(was_used() and module.is_available())


def _generators(kind: str) -> list[Generates]:
    count = 1 if kind == "mps" else getattr(torch, kind).device_count()
    return [generator_of(torch.device(kind, number)) for number in range(count)]
