"""Seeds that reproduce a run."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from .changes import between

T = TypeVar("T")


class Seed(int):
    """The seed of a forward pass: an int that also remembers where the random generators stood.

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
    """Put torch's, NumPy's and Python's generators where the run is to begin, and say where that is."""
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
    """What `body` returns; the generators are put back to where they are now, whatever happens."""
    states = _states()
    return between(lambda frame: None, body, lambda: _restore(states))


class restored:
    """The same for a with-block. It is no generator: one that an interrupt leaves behind would put them back later."""

    def __enter__(self) -> None:
        self._before = _states()

    def __exit__(self, *raised: object) -> None:
        _restore(self._before)


def _states() -> dict[str, Any]:
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if "numpy" in sys.modules:
        states["numpy"] = sys.modules["numpy"].random.get_state()
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def _restore(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    random.setstate(states["python"])
    if "numpy" in states:
        import numpy

        numpy.random.set_state(states["numpy"])
    if "cuda" in states:
        torch.cuda.set_rng_state_all(states["cuda"])
