"""Where do the tensors come from that no recorded call made?

A constant that the model keeps, and data brought in from Python or NumPy, are sources by right. A tensor that came to
be in the forward pass in any other way was computed by something that nobody saw, in a thread of a foreign library for
instance: everything that is logged from there on is right, but what went before is missing.
"""

from __future__ import annotations

import gc

from torch import Tensor

from .dispatcher import Completeness, UnknownTensor, user_line


class Origins:
    """Tells the sources of a forward pass apart; used when completeness is checked."""

    def __init__(self) -> None:
        self.made: dict[int, Tensor] = {}  # from Python's data, by id
        self.used: list[tuple[Tensor, bool, tuple[str, int]]] = []

    @staticmethod
    def begin() -> None:
        """Call this in a capture: what is in the collector's younger generations later is new (surroundings.py)."""
        gc.collect(1)

    def add_made(self, tensor: Tensor) -> None:
        self.made[id(tensor)] = tensor

    def is_made(self, tensor: Tensor) -> bool:
        return self.made.get(id(tensor)) is tensor

    def add_used(self, tensor: Tensor, handed_out: bool) -> None:
        """An operation used this unknown tensor. Had any tensor been handed out of torch before?"""
        self.used.append((tensor, handed_out, user_line()))

    def report(self, found: Completeness) -> None:
        """Add what is of unknown origin to `found`."""
        new = {id(thing) for thing in (*gc.get_objects(0), *gc.get_objects(1))} if self.used else set()
        for tensor, handed_out, where in self.used:
            if id(tensor) not in new:
                continue
            if _from_outside(tensor):
                why = "came from outside torch after a tensor was handed out: what was computed there is not logged"
                if not handed_out:
                    continue
            elif self.is_made(tensor):
                continue
            else:
                why = "was computed where nobody could see it"
            found.unknown.append(UnknownTensor(tuple(tensor.shape), *where, why))


def _from_outside(tensor: Tensor) -> bool:
    """Is this memory of NumPy's, of a file, of another process?"""
    try:
        return not tensor.untyped_storage().resizable()
    except (RuntimeError, NotImplementedError):
        return False  # sparse, a wrapper
