"""`tl.extract`: a data set through a model, chosen layers to disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..bundle.shards import DTYPES
from ..errors import ArgumentError, StoreError, near
from ..words import counted, human_size
from .inputs import Given
from .plan import settle
from .progress import Progress
from .run import Job, Request
from .shard import shard_numbers
from .storage import Storage, storage_at
from .store import Store


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
    ragged: bool = False,
    on_error: str = "raise",
    random_seed: int = 0,
    shard_rows: int | None = None,
    part: tuple[int, int] | None = None,
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
        ragged: allow values whose shapes differ from sample to sample.
        on_error: "raise", or "skip" to leave out samples that raise, and record them.
        random_seed: for models and preprocessing that draw random numbers; every batch begins at its own.
        shard_rows: rows in a file, a multiple of the batch size; chosen by their size unless given.
        part: (i, n) for the i-th of n processes that share the work, counted from 0.
        progress: show a report and a bar; None to show them on a terminal and in a notebook.
    """
    given = Given(
        inputs, _positive("batch_size", batch_size), preprocess, ids, bool(ragged), _one_of_two(on_error), random_seed
    )
    request = Request(model, given, layers, reduce, _dtype(dtype), _positive("shard_rows", shard_rows))
    is_mine = _part(part)
    storage, shown = storage_at(save_to), Progress(progress)
    job = request.job()
    done = _begin(job, storage, shown)
    try:
        job.run(storage, is_mine, shown.advance)
    finally:
        shown.end()
    store = Store(storage)
    shown.say(
        f"{store!r} in {storage.where}" if done < len(store) or not done else f"{store!r}: nothing was left to do"
    )
    return store


def _begin(job: Job, storage: Storage, shown: Progress) -> int:
    """Settle the plan, say what will be written, and refuse what can't fit; returns how many rows are done."""
    plan, source = job.plan, job.source
    shards = shard_numbers(storage)
    done = sum(len(plan.rows_of(shard)) for shard in shards)
    free = storage.free_bytes()
    due = (plan.count - done) * plan.row_bytes if plan.count is not None else 0
    if free is not None and due > free:
        raise StoreError(
            f"{human_size(due)} are to be written to {storage.where}, and {human_size(free)} are free there: "
            "dtype='float16' or reduce= makes it less"
        )
    storage.tidy()
    resumed = settle(storage, plan, job.ids)
    shown.say(f"{plan}\n\tto {storage.where}" + (f", where {human_size(free)} are free" if free is not None else ""))
    if job.calling.left_out:
        shown.say(f"\tof each sample, the last {counted(job.calling.left_out, 'part')} can't be given to the model")
    if resumed and done:
        shown.say(f"\tresumed: {counted(done, 'row')} are there already")
        if source.replays:
            shown.say("\tthe inputs are an iterable, which is read again from its beginning")
    job.fit(storage)
    shown.begin(plan.count, done)
    return done


def _positive(name: str, number: int | None) -> int | None:
    if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
        raise ArgumentError(f"{name} is a whole number from 1 on, not {number!r}")
    return number


def _one_of_two(on_error: str) -> str:
    if on_error not in ("raise", "skip"):
        raise ArgumentError(f'on_error is "raise" or "skip", not {on_error!r}')
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
        raise ArgumentError(f"dtype is one of {', '.join(types)}, not {given!r}{near(name, types)}")
    return types[name]


def _part(part: Any) -> Callable[[int], bool]:
    """Which shards are this process's: every n-th, from the i-th on."""
    if part is None:
        return lambda shard: True
    try:
        index, total = (int(each) for each in part)
    except (TypeError, ValueError):
        raise ArgumentError(f"part is a pair such as (3, 16), not {part!r}") from None
    if not 0 <= index < total:
        raise ArgumentError(f"part={part!r}: the parts are numbered from 0 to {total - 1}")
    return lambda shard: shard % total == index
