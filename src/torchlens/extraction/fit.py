"""Reductions that are fitted to some of the inputs before the first shard: `tl.reduce.pca`.

What was fitted is a file of the store. The first to have it writes it, and everybody reads that one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import StoreError
from .reduce import Components, check_size, pca
from .shard import About, Shard, encode
from .storage import Storage

if TYPE_CHECKING:
    from .run import Job


class Unfitted:
    """Stands for components until they are there: gives values of the right shape, and says nothing else of them."""

    def __init__(self, wish: pca, value: Tensor) -> None:
        self.wish = wish
        self.size = value[0].numel()

    def __call__(self, value: Tensor) -> Tensor:
        return value.new_zeros(len(value), self.wish.n, dtype=torch.float32)


def fit(job: Job, storage: Storage) -> None:
    """Fit the reductions of a job that are not, one after another where a layer has several."""
    while True:
        due = {name: _first_unfitted(job.reductions[name]) for name in job.reductions}
        places = {name: place for name, place in due.items() if place is not None}
        if not places:
            return
        files = {name: f"fitted/{number:03d}-{due[name]}.safetensors" for number, name in enumerate(due)}
        missing = [name for name in places if not storage.has(files[name])]
        for name, values in _values(job, missing, places).items():
            center, components = job.reductions[name][places[name]].wish.fitted(values)  # type: ignore[attr-defined]
            pieces = encode({"center": center, "components": components}, About(0, len(values)))
            storage.create(files[name], b"".join(pieces))
        for name, place in places.items():
            job.reductions[name][place] = _read(storage, files[name], job.reductions[name][place])


def _first_unfitted(reduces: list[Any]) -> int | None:
    return next((place for place, reduction in enumerate(reduces) if isinstance(reduction, Unfitted)), None)


def _values(job: Job, names: list[str], places: dict[str, int]) -> dict[str, Tensor]:
    """What these layers give for enough of the inputs, reduced as far as what is to be fitted."""
    if not names:
        return {}
    wishes = {name: job.reductions[name][places[name]].wish for name in names}  # type: ignore[attr-defined]
    found: dict[str, list[Tensor]] = {name: [] for name in names}
    wanted = [each for each in job.wanted if each.name in names]
    with job.forward(wanted) as forward:
        for batch in job.source.some_batches(max(wish.samples for wish in wishes.values())):
            for rows, value in batch.groups:
                for name, reduced in job.computed(rows, value, batch, forward, {}, places)[1].items():
                    check_size(reduced, job.reductions[name][places[name]].size)  # type: ignore[attr-defined]
                    found[name].append(reduced.cpu())
    return {name: torch.cat(found[name])[: wishes[name].samples] for name in names}


def _read(storage: Storage, name: str, unfitted: Any) -> Components:
    shard = Shard(storage, name)
    center, components = shard.tensor("center"), shard.tensor("components")
    if shard.damages() or components.shape != (unfitted.wish.n, unfitted.size):
        raise StoreError(f"{storage.where}/{name} is damaged or was altered; delete it, and it is fitted again")
    return Components(center, components)
