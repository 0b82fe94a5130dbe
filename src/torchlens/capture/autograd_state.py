"""Ask a tensor where it stands in the autograd graph."""

from __future__ import annotations

from typing import Any

from torch import Tensor

#: torch frees autograd nodes that Python has seen by recursion: a longer chain of them could overflow the stack.
MOST_GRAD_FNS = 8_000


def node_of(tensor: Tensor) -> Any:
    """Where a tensor stands in the autograd graph; None for a leaf."""
    try:
        return tensor.grad_fn
    except RuntimeError:  # a view made and overwritten without grad, of memory that requires it: torch won't say
        return None


def is_leaf(tensor: Tensor) -> bool:
    try:
        return tensor.is_leaf
    except RuntimeError:  # likewise
        return True
