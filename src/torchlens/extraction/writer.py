"""Shards on their way to the storage: built here, written by a thread.

Four slots go round: one is being built, two wait, one is being written. Whoever builds waits for a free slot, so memory
is bounded, and its pages are used again.
"""

from __future__ import annotations

import threading
from queue import Queue
from typing import Any

import torch
from torch import Tensor

from .plan import LayerPlan, StorePlan
from .shard import About, encode, shard_path
from .storage import Storage

SLOTS = 4

#: Tensors by name, for the rows of a shard; empty until they are needed.
Slot = dict[str, Tensor]


class Building:
    """The rows of one shard, as far as they are computed."""

    def __init__(self, plan: StorePlan, number: int, slot: Slot) -> None:
        self.number = number
        self.slot = slot
        self._plan = plan
        self._rows = plan.rows_of(number)
        self._filled = 0
        self._pieces: dict[str, list[Tensor]] = {layer.name: [] for layer in plan.layers}  # of ragged layers
        self._shapes: dict[str, list[list[int]]] = {layer.name: [] for layer in plan.layers}
        self.skipped: dict[str, str] = {}

    def add(self, values: dict[str, Tensor], rows: int) -> None:
        """The next rows."""
        for layer in self._plan.layers:
            if layer.shape is None:
                self._add_ragged(layer, values[layer.name])
            else:
                self._memory(layer)[self._filled : self._filled + rows].copy_(values[layer.name])
        self._filled += rows

    def _memory(self, layer: LayerPlan) -> Tensor:
        if layer.name not in self.slot:
            shape = (self._plan.shard_rows, *(layer.shape or ()))
            self.slot[layer.name] = torch.empty(shape, dtype=layer.torch_dtype, device="cpu")
        return self.slot[layer.name]

    def _add_ragged(self, layer: LayerPlan, value: Tensor) -> None:
        self._pieces[layer.name].append(value.to("cpu", layer.torch_dtype).reshape(-1))
        self._shapes[layer.name] += [list(value.shape[1:])] * len(value)

    def finished(self, stop: int, last: bool) -> list[memoryview]:
        """The bytes of the shard."""
        tensors: dict[str, Tensor] = {}
        none = torch.empty(0, device="cpu")
        for layer in self._plan.layers:
            if layer.shape is not None:
                tensors[layer.name] = self._memory(layer)[: self._filled]
                continue
            tensors[layer.name] = torch.cat([*self._pieces[layer.name], none.to(layer.torch_dtype)])
            shapes = torch.tensor(self._shapes[layer.name], dtype=torch.int64, device="cpu")
            tensors[shapes_name(layer.name)] = shapes.reshape(len(self._shapes[layer.name]), -1)
        return encode(tensors, About(self._rows.start, stop, self.skipped, last))


def shapes_name(name: str) -> str:
    """Under which name the shapes of a ragged layer are stored."""
    return f"{name} shapes"


class Writer:
    """Writes shards in another thread, in order.

    What is handed over before the end of the block is written, whatever ended it: a whole shard is worth keeping.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._free: Queue[Slot] = Queue()
        for _ in range(SLOTS):
            self._free.put({})
        self._queue: Queue[tuple[Building, int, bool] | None] = Queue()
        self._failure: BaseException | None = None
        self.written: list[int] = []
        self._thread = threading.Thread(target=self._write_all, name="torchlens writer", daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, kind: Any, *raised: Any) -> None:
        self._queue.put(None)
        self._thread.join()
        if kind is None:
            self._check()

    def slot(self) -> Slot:
        """Memory for another shard; waits until some is free."""
        slot = self._free.get()
        self._check()
        return slot

    def put(self, building: Building, stop: int, last: bool) -> None:
        self._queue.put((building, stop, last))

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _write_all(self) -> None:
        while (item := self._queue.get()) is not None:
            building, stop, last = item
            try:
                if self._failure is None:
                    self._storage.put(shard_path(building.number), building.finished(stop, last))
                    self.written.append(building.number)
            except BaseException as error:  # shown to the one who builds
                self._failure = error
            self._free.put(building.slot)
