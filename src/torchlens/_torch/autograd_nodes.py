"""Nodes of autograd's graph: hooks on them, and the tensors they keep."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from .call_state import call_with_grad
from .private_name import private

#: A number for the backward pass that this thread is in; -1 if it is in none.
current_backward = private("torch._C._current_graph_task_id", part="saving gradients")


def hook_node_output(node: Any, output: int, hook: Callable[[Tensor], None]) -> Callable[[], None]:
    """Hook one output of an autograd node as `Tensor.register_hook` does, without the tensor; return how to undo it."""
    hooks = OrderedDict({0: hook})
    # What is registered is a dict of hooks taken from a tensor, and the place of that tensor among the outputs of the
    # node that made it: any tensor with that place will do.
    stand_in = call_with_grad(True, _output_of_a_node, output)
    stand_in._backward_hooks = hooks  # type: ignore[assignment]
    node._register_hook_dict(stand_in)
    return hooks.clear


def _output_of_a_node(place: int) -> Tensor:
    tensor = torch.empty(place + 1, device="cpu", requires_grad=place > 0)
    return tensor.unbind()[place] if place else tensor


def saved_for_backward(node: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors that an autograd node keeps, as they are: what hooks have put away is not fetched back.

    Ask `tells_what_is_saved` first.
    """
    kind: type = type(node)
    for name in _names_of_saved(kind):
        saved = getattr(node, "_raw_saved_" + name)
        for each in saved if isinstance(saved, (tuple, list)) else [saved]:
            if each.unpack_hook is None and isinstance(each.data, Tensor):
                yield name, each.data


def tells_what_is_saved() -> bool:
    """Does this torch tell whether hooks have put a saved tensor away? Reading one without knowing would run them."""
    return hasattr(_SavedTensor, "unpack_hook")


_SavedTensor = private("torch._C._autograd.SavedTensor")


@lru_cache
def _names_of_saved(kind: type) -> list[str]:
    return [name.removeprefix("_raw_saved_") for name in dir(kind) if name.startswith("_raw_saved_")]
