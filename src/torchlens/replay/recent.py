"""A cache of recently used tensors, up to a number of bytes."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor


class Recent:
    """
    >>> recent = Recent(100)
    >>> recent.put(1, torch.zeros(20)), recent.put(2, torch.ones(20))
    (None, None)
    >>> recent.get(1), recent.get(2).sum()
    (None, tensor(20.))

    The least recently used one is dropped first. The newest stays even if it alone is larger.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self._bytes = 0
        self._tensors: OrderedDict[int, Tensor] = OrderedDict()

    def get(self, key: int) -> Tensor | None:
        tensor = self._tensors.get(key)
        if tensor is not None:
            self._tensors.move_to_end(key)
        return tensor

    def put(self, key: int, tensor: Tensor) -> None:
        self.drop(key)
        self._tensors[key] = tensor
        self._bytes += _size(tensor)
        while self._bytes > self.most_bytes and len(self._tensors) > 1:
            _, oldest = self._tensors.popitem(last=False)
            self._bytes -= _size(oldest)

    def drop(self, key: int) -> None:
        tensor = self._tensors.pop(key, None)
        if tensor is not None:
            self._bytes -= _size(tensor)

    def copy(self) -> Recent:
        """Another one with the same tensors."""
        made = Recent(self.most_bytes)
        made._tensors, made._bytes = self._tensors.copy(), self._bytes
        return made


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
