"""What a store holds, decided before the first shard is written and never changed.

`plan.json` is a function of the call: the same call makes the same plan on any machine. So two
workers that do the same shard write the same bytes, and a call that means something else is refused by name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch
from torch import nn

from .._torch import grad_scope, set_grad_enabled
from ..bundle.checks import blaming, flag, integer, listed, one_of, optional, parse, sizes, text
from ..bundle.hashing import hash_of, new_hash
from ..bundle.shards import DTYPES
from ..errors import BundleError, StoreError
from ..words import counted, human_size, shape_words
from .storage import Storage

PLAN, IDS = "plan.json", "ids.json"
FORMAT = 1  # another number whenever an older reader would misread what is written
SHARD_BYTES = 64 << 20  # unless that is less than a batch
SHARD_BATCHES = 64  # at most; what a shard lacks to be whole, a killed process has to do again
SHARDS = 16  # at least, of so many batches or more: or a kill near the end of a small data set would cost all of it
Id = str | int

_TORCH_TYPES = {name: dtype for dtype, name in DTYPES.items()}


@dataclass(frozen=True)
class LayerPlan:
    """One layer of a store."""

    name: str  # its key in the store
    label: str  # of the operation, as a log of the first batch has it
    source: str  # the operation or module call, as the light path counts them
    position: int | None  # among the tensors of a module call
    shape: tuple[int, ...] | None  # of a row; None if it varies
    dtype: str
    reduce: str  # what was done with the value; "" for nothing

    @property
    def torch_dtype(self) -> torch.dtype:
        return _TORCH_TYPES[self.dtype]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row; 0 if that varies."""
        return 0 if self.shape is None else math.prod(self.shape) * self.torch_dtype.itemsize


@dataclass(frozen=True)
class StorePlan:
    """All that decides what is written."""

    format: int
    model: str  # its class
    weights: str  # hash
    interventions: str
    inputs: str  # hash of the first batch, as the model gets it
    count: int | None  # rows; None if only the end of the inputs will tell
    ids: str | None  # hash; None for the numbers of the rows
    batch_size: int
    shard_rows: int
    layers: tuple[LayerPlan, ...]
    dtype: str | None  # asked for
    ragged: bool
    on_error: str
    seed: int
    training: str  # hash of the modules in training mode; "" if there are none
    device: str
    torch: str

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=1, sort_keys=True).encode() + b"\n"

    @property
    def row_bytes(self) -> int:
        return sum(layer.row_bytes for layer in self.layers)

    @property
    def num_shards(self) -> int | None:
        return None if self.count is None else -(-self.count // self.shard_rows)

    def rows_of(self, shard: int) -> range:
        """The rows of a shard; as many as fit if their number is unknown."""
        start = shard * self.shard_rows
        stop = start + self.shard_rows
        return range(start, stop if self.count is None else min(stop, self.count))

    def __str__(self) -> str:
        rows = counted(self.count, "row") if self.count is not None else "rows until the inputs end"
        total = f", {human_size(self.count * self.row_bytes)}" if self.count is not None and not self.ragged else ""
        lines = [f"{self.model}: {counted(len(self.layers), 'layer')}, {rows}{total}"]
        width = max(len(layer.name) for layer in self.layers)
        for layer in self.layers:
            shape = "ragged" if layer.shape is None else shape_words(layer.shape)
            dtype = str(layer.torch_dtype).removeprefix("torch.")
            size = "" if layer.shape is None else f"  {human_size(layer.row_bytes)} a row"
            lines.append(f"\t{layer.name:<{width}}  {dtype} {shape}{size}{f'  {layer.reduce}' if layer.reduce else ''}")
        return "\n".join(lines)


def read_plan(storage: Storage) -> StorePlan | None:
    """The plan of a store; None if there is no store."""
    data = storage.read(PLAN)
    if data is None:
        return None
    try:
        with blaming(f"{storage.where}/{PLAN}"):
            return _plan(parse(data, "it"))
    except BundleError as error:
        raise StoreError(str(error)) from error


def _plan(row: dict[str, Any]) -> StorePlan:
    if row["format"] != FORMAT:
        raise BundleError(
            f"it is of format {row['format']!r}, and this version reads {FORMAT}; a newer torchlens may read it"
        )
    plan = StorePlan(
        format=FORMAT,
        count=optional(integer, row["count"]),
        ids=optional(text, row["ids"]),
        batch_size=integer(row["batch_size"], 1),
        shard_rows=integer(row["shard_rows"], 1),
        layers=tuple(listed(_layer, row["layers"])),
        dtype=optional(text, row["dtype"]),
        ragged=flag(row["ragged"]),
        seed=integer(row["seed"]),
        **{name: text(row[name]) for name in _TEXTS},
    )
    if row.keys() != asdict(plan).keys():
        raise BundleError(f"it has other fields: {', '.join(sorted(row.keys() ^ asdict(plan).keys()))}")
    return plan


_TEXTS = ("model", "weights", "interventions", "inputs", "on_error", "training", "device", "torch")


def _layer(row: dict[str, Any]) -> LayerPlan:
    return LayerPlan(
        name=text(row["name"]),
        label=text(row["label"]),
        source=text(row["source"]),
        position=optional(integer, row["position"]),
        shape=optional(sizes, row["shape"]),
        dtype=one_of(_TORCH_TYPES, row["dtype"]),
        reduce=text(row["reduce"]),
    )


# ---- resuming -----------------------------------------------------------------------------------------------

#: What a difference means, in the order in which it is told.
_DIFFERENCES = {
    "format": "the format of the store",
    "model": "the class of the model",
    "weights": "the weights of the model",
    "training": "the modules in training mode",
    "interventions": "the interventions",
    "count": "the number of inputs",
    "ids": "the ids",
    "inputs": "the first batch of inputs (other data, another preprocess, or a random one)",
    "layers": "the layers",
    "dtype": "the type, dtype=",
    "batch_size": "the batch size",
    "shard_rows": "the rows in a shard",
    "ragged": "ragged=",
    "on_error": "on_error=",
    "seed": "the random seed",
    "device": "the kind of device",
    "torch": "the version of torch",
}


def in_shards_of(begun: StorePlan | None, plan: StorePlan) -> StorePlan:
    """The plan with as many rows in a shard as the store was begun with: a caller who names no number takes any."""
    return plan if begun is None else replace(plan, shard_rows=begun.shard_rows)


def agree_on(storage: Storage, plan: StorePlan, ids: Sequence[Id] | None) -> bool:
    """Write the plan, or find that the store has the same; True if it was there. Raises if it has another."""
    is_new = storage.create(PLAN, plan.to_json())
    found = read_plan(storage)
    if found is None:
        raise StoreError(f"{storage.where}/{PLAN} vanished while the store was opened")
    if found != plan:
        raise StoreError(
            f"{storage.where} holds another extraction. What differs: {_difference(storage, found, plan, ids)}. "
            "Nothing was written: repeat the call as it was to resume it, or choose another save_to"
        )
    if ids is not None and storage.read(IDS) is None:
        storage.create(IDS, ids_json(ids))
    return not is_new


def _difference(storage: Storage, old: StorePlan, new: StorePlan, ids: Sequence[Id] | None) -> str:
    told: list[str] = []
    if old.dtype != new.dtype:  # which is told once, and not of each layer
        old = replace(old, layers=tuple(replace(layer, dtype="") for layer in old.layers))
        new = replace(new, layers=tuple(replace(layer, dtype="") for layer in new.layers))
    for name, phrase in _DIFFERENCES.items():
        before, now = getattr(old, name), getattr(new, name)
        follows = (name == "shard_rows" and told) or (name == "inputs" and old.batch_size != new.batch_size)
        if before != now and not follows:
            told.append(f"{phrase}{_detail(storage, name, before, now, ids)}")
    return "; ".join(told)


def _detail(storage: Storage, name: str, before: Any, now: Any, ids: Sequence[Id] | None) -> str:
    if name == "layers":
        return f" ({'; '.join(_layer_differences(before, now))})"
    if name == "ids":
        return _ids_difference(read_ids(storage) if before else None, ids)
    if name in ("weights", "inputs", "training"):
        return ""
    return f" ({before} there, {now} now)"


def _layer_differences(before: Sequence[LayerPlan], now: Sequence[LayerPlan]) -> list[str]:
    old, new = ({layer.name: layer for layer in layers} for layers in (before, now))
    told = [f"{name} is not asked for now" for name in old if name not in new]
    told += [f"{name} is not in the store" for name in new if name not in old]
    for name in [name for name in old if name in new and old[name] != new[name]]:
        for field in fields(LayerPlan):
            one, other = getattr(old[name], field.name), getattr(new[name], field.name)
            if one != other:
                one, other = ("none" if value in ("", None) else value for value in (one, other))
                told.append(f"{field.name} of {name}: {one} there, {other} now")
    return told or ["in another order"]


def _ids_difference(before: Sequence[Id] | None, now: Sequence[Id] | None) -> str:
    if before is None or now is None:
        return " (rows have ids in one, and only numbers in the other)"
    if sorted(map(repr, before)) == sorted(map(repr, now)):
        row = next(row for row, pair in enumerate(zip(before, now, strict=True)) if pair[0] != pair[1])
        return f" (the same ones in another order: row {row} is {before[row]!r} there, {now[row]!r} now)"
    only_there, only_now = set(before) - set(now), set(now) - set(before)
    some = [f"{min(only_there, key=repr)!r} only there"] if only_there else []
    some += [f"{min(only_now, key=repr)!r} only now"] if only_now else []
    return f" ({', '.join(some)})"


# ---- ids ----------------------------------------------------------------------------------------------------


def ids_json(ids: Sequence[Id]) -> bytes:
    return json.dumps(list(ids), separators=(",\n", ": ")).encode() + b"\n"


def read_ids(storage: Storage) -> list[Id] | None:
    data = storage.read(IDS)
    if data is None:
        return None
    try:
        with blaming(f"{storage.where}/{IDS}"):
            return listed(_id, parse(data, "it"))
    except BundleError as error:
        raise StoreError(str(error)) from error


def _id(thing: Any) -> Id:
    return thing if type(thing) is int else text(thing)


# ---- hashes -------------------------------------------------------------------------------------------------


def hash_of_ids(ids: Sequence[Id]) -> str:
    return hash_of(ids_json(ids))


def hash_of_weights(model: nn.Module) -> str:
    """Of all parameters and buffers, with their names: the same on every device."""
    return hash_of_tensors([*model.named_parameters(remove_duplicate=False), *model.named_buffers()])


def hash_of_tensors(named: Iterable[tuple[str, Any]]) -> str:
    """Of names and values; anything but a tensor counts by its text."""
    hashed = new_hash()
    for name, value in named:
        if not isinstance(value, torch.Tensor):
            hashed.update(f"{name} {value!r}\n".encode())
            continue
        hashed.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        with grad_scope():
            set_grad_enabled(False)
            flat = value.detach().to("cpu").contiguous().view(-1)
        if flat.numel():
            hashed.update(memoryview(flat.view(torch.uint8).numpy()))  # type: ignore[arg-type]
    return hashed.hexdigest()


def hash_of_modes(model: nn.Module) -> str:
    """Of the modules that are in training mode; empty if none is."""
    training = [name or "self" for name, module in model.named_modules() if module.training]
    return hash_of("\n".join(training).encode()) if training else ""


def shard_rows_for(row_bytes: int, batch_size: int, count: int | None) -> int:
    """Rows in a shard: whole batches for a file of a good size, and not much of the inputs in one file."""
    by_size = SHARD_BYTES // max(row_bytes * batch_size, 1)
    by_count = SHARDS if count is None else -(-count // (batch_size * SHARDS))
    return batch_size * max(1, min(by_size, by_count, SHARD_BATCHES))
