"""Which source is made of what a user gave: the only part that knows which kinds of inputs there are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ..errors import ArgumentError
from .images import image_files, is_image_file, relative_ids, to_tensor
from .input_source import (
    BATCH_SIZE,
    Given,
    Source,
)
from .loaders import loader_source
from .plan import Id
from .samples import Columns, Images, Samples, SampleStream


def source_of(given: Given) -> Source:
    """A source for what was given; raises if nothing can be made of it."""
    source = _source(given)
    ids = given.ids
    if ids is not None:
        if isinstance(ids, str) or not isinstance(ids, Iterable):
            raise ArgumentError(f"ids must be a list with an id for each input, not {ids!r}")
        source.ids = [_id(each) for each in ids]
        if source.count is None:
            source.count = len(source.ids)
        if len(source.ids) != source.count:
            raise ArgumentError(f"there are {len(source.ids)} ids, but {source.count} inputs")
    if source.ids is not None and len(set(source.ids)) < len(source.ids):
        seen: set[Id] = set()
        twice = next(each for each in source.ids if each in seen or seen.add(each))  # type: ignore[func-returns-value]
        raise ArgumentError(f"ids: {twice!r} appears more than once; each input needs its own id")
    if source.count == 0:
        raise ArgumentError("there are no inputs")
    return source


def _source(given: Given) -> Source:
    inputs = given.inputs
    if isinstance(inputs, DataLoader):
        return loader_source(inputs, given)
    if isinstance(inputs, (str, os.PathLike)):
        folder = Path(inputs)
        files = image_files(folder)
        return Samples(Images(files), given, [file.relative_to(folder).as_posix() for file in files], to_tensor)
    if isinstance(inputs, np.ndarray):
        if inputs.dtype.hasobject:
            raise ArgumentError("inputs: an array of objects is no tensor; a list of samples will do")
        inputs = torch.from_numpy(inputs)
    if given.preprocess is None and _is_columns(inputs):
        return Columns(inputs, given.batch_size or BATCH_SIZE)
    if isinstance(inputs, Sequence) and inputs and all(is_image_file(each) for each in inputs):
        return Samples(Images([Path(each) for each in inputs]), given, relative_ids(inputs), to_tensor)
    if isinstance(inputs, Tensor) or (hasattr(inputs, "__getitem__") and hasattr(inputs, "__len__")):
        if isinstance(inputs, Mapping):
            raise ArgumentError("inputs: a dict must hold tensors, all with the samples in dimension 0")
        return Samples(inputs, given)
    if isinstance(inputs, Iterable):
        return SampleStream(inputs, given)
    raise ArgumentError(
        f"inputs: {type(inputs).__name__} can't be used; a tensor, Dataset, DataLoader, a folder or list of images, "
        "a list or any other iterable of samples can"
    )


def _id(given: Any) -> Id:
    if isinstance(given, str):
        return str(given)
    if hasattr(given, "__index__") and not isinstance(given, bool):
        return int(given.__index__())
    if isinstance(given, os.PathLike):
        return str(given)
    raise ArgumentError(f"ids must be strings or integers, not {given!r}")


def _is_columns(inputs: Any) -> bool:
    """Tensors that have all samples along dimension 0, one for each argument of the model."""
    if isinstance(inputs, Tensor):
        if not inputs.dim():
            raise ArgumentError("inputs: a tensor without dimensions holds no samples")
        return True
    members = list(inputs.values()) if isinstance(inputs, Mapping) else inputs if type(inputs) is tuple else []
    return bool(members) and all(isinstance(member, Tensor) and member.dim() for member in members)
