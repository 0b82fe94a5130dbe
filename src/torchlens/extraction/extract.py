"""`tl.extract`: a data set through a model, chosen layers to disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .._torch import graph_break
from ..bundle.shards import DTYPES
from ..errors import ArgumentError, named_arguments, near
from .begin import announce, begin
from .input_source import Given
from .on_ray import extract_on_ray
from .progress import Progress
from .run import ExtractRequest
from .storage import storage_at
from .store import Store


@graph_break
@named_arguments
def extract(
    model: nn.Module | Callable[[], nn.Module],
    inputs: Any,
    layers: Any,
    save_to: str | os.PathLike[str],
    *,
    batch_size: int | None = None,
    ids: Any = None,
    preprocess: Callable[[Any], Any] | None = None,
    reduce: Any = None,
    dtype: str | torch.dtype | None = None,
    interventions: Any = None,
    ragged: bool = False,
    on_error: str = "raise",
    random_seed: int = 0,
    shard_rows: int | None = None,
    part: tuple[int, int] | None = None,
    backend: str | None = None,
    workers: int | None = None,
    num_gpus: float = 0,
    progress: bool | None = None,
) -> Store:
    """Run a model over a data set and write chosen layers to disk. The same call resumes what was cut short.

    >>> store = tl.extract(model, x, ["fc", "relu_1_2"], save_to=folder / "acts")
    >>> store["fc"][1:3].shape
    (2, 5)
    >>> tl.open_store(folder / "acts").layers
    ['fc', 'relu_1_2']

    Args:
        model: the model, in evaluation mode and on its device; or a function that makes it.
        inputs: a tensor or a tuple or dict of tensors with the samples along dimension 0; a `Dataset` or list of
            samples; a `DataLoader` that does not shuffle; a folder or list of image files; any other iterable (to
            resume, it is read again from its beginning). A sample is what the model takes: a tensor, a tuple of
            arguments, a dict of keywords. Parts of a tuple that the model can't take, such as labels, are left out.
        layers: one selector or a list, as in `log_forward_pass`; the forward pass ends after the last of them.
        save_to: a folder, or a URL such as "s3://bucket/acts".
        batch_size: samples in a forward pass, 64 unless a `DataLoader` says otherwise.
        ids: a text or whole number for each sample; of image files, their paths.
        preprocess: a function of a sample (of a batch, if a `DataLoader` is given) that returns what the model takes.
        reduce: what to make of the values before they are stored, on the device: one of `tl.reduce`, any function of a
            batch that keeps its first dimension, a list of these, or a dict of these for each layer.
        dtype: the type to store floating point values in, such as "float16".
        interventions: edits of values while the model runs, as in `log_forward_pass`; slower where others than results
            of modules are edited, as each batch is then logged in full.
        ragged: allow values whose shapes differ from sample to sample.
        on_error: "raise", or "skip" to leave out samples that raise, and record them.
        random_seed: for models and preprocessing that draw random numbers; every batch begins at its own.
        shard_rows: rows in a file, a multiple of the batch size; unless given, what a store has that is resumed, else
            at most 64 MB, 64 batches and a sixteenth of the inputs.
        part: (i, n) for the i-th of n processes that share the work, counted from 0.
        backend: "ray" for many workers, on the Ray cluster that is running or on this machine; model and inputs reach
            them by pickle, or are functions that make them there.
        workers: how many; as many as there are CPUs (or GPUs, with `num_gpus`) unless given.
        num_gpus: GPUs for each worker.
        progress: show a report and a bar; None to show them on a terminal and in a notebook.
    """
    given = Given(
        inputs,
        _positive("batch_size", batch_size),
        _callable(preprocess),
        ids,
        _flag("ragged", ragged),
        _one_of_two(on_error),
        _seed(random_seed),
    )
    request = ExtractRequest(
        model, given, layers, reduce, _dtype(dtype), _positive("shard_rows", shard_rows), interventions
    )
    is_mine = _part(part)
    storage, shown = storage_at(save_to), Progress(progress)
    try:
        if _on_ray(backend, workers, num_gpus):
            extract_on_ray(request, storage, workers, num_gpus, is_mine, shown)
        else:
            job = request.job()
            announce(begin(job, storage), storage.where, shown)
            job.run(storage, is_mine, shown.advance)
    finally:
        shown.end()
    store = Store(storage)
    shown.say(f"{store!r} in {storage.where}")
    return store


def _on_ray(backend: str | None, workers: int | None, num_gpus: float) -> bool:
    if backend not in (None, "ray"):
        raise ArgumentError(f'backend must be None, for this process, or "ray", not {backend!r}')
    if backend is None and (workers is not None or num_gpus):
        raise ArgumentError(
            'workers and num_gpus need backend="ray"; without it, one process uses the device of the model'
        )
    _positive("workers", workers)
    if not isinstance(num_gpus, (int, float)) or num_gpus < 0:
        raise ArgumentError(f"num_gpus must be a number, 0 or more, for each worker, not {num_gpus!r}")
    return backend == "ray"


def _positive(name: str, number: int | None) -> int | None:
    if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
        raise ArgumentError(f"{name} must be an integer, 1 or more, not {number!r}")
    return number


def _flag(name: str, given: bool) -> bool:
    if not isinstance(given, bool):
        raise ArgumentError(f"{name} must be True or False, not {given!r}")
    return given


def _callable(preprocess: Any) -> Callable[[Any], Any] | None:
    if preprocess is not None and not callable(preprocess):
        raise ArgumentError(f"preprocess must be a function of a sample, not {preprocess!r}")
    return preprocess  # type: ignore[no-any-return]


def _seed(seed: Any) -> int:
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**62:
        raise ArgumentError(f"random_seed must be an integer, 0 or more, not {seed!r}")
    return seed


def _one_of_two(on_error: str) -> str:
    if on_error not in ("raise", "skip"):
        raise ArgumentError(f'on_error must be "raise" or "skip", not {on_error!r}')
    return on_error


def _dtype(given: Any) -> torch.dtype | None:
    """A floating point type, by its name or as it is."""
    if given is None:
        return None
    types = {
        str(dtype).removeprefix("torch."): dtype for dtype in DTYPES if dtype.is_floating_point and dtype.itemsize > 1
    }
    name = str(given).removeprefix("torch.")
    if name not in types:
        raise ArgumentError(f"dtype must be one of {', '.join(types)}, not {given!r}{near(name, types)}")
    return types[name]


def _part(part: Any) -> Callable[[int], bool]:
    """Which shards are this process's: every n-th, from the i-th on."""
    if part is None:
        return lambda shard: True
    if not isinstance(part, (tuple, list)) or len(part) != 2 or any(type(each) is not int for each in part):
        raise ArgumentError(f"part must be a pair of integers such as (3, 16), not {part!r}")
    index, total = part
    if not 0 <= index < total:
        raise ArgumentError(f"part={part!r}: of n parts, the first is (0, n) and the last is (n - 1, n)")
    return lambda shard: shard % total == index
