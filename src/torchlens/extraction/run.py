"""The work itself: a plan from a call, and shards from a plan. One process or many, it is the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from .._torch import call_with_grad
from ..bundle.shards import DTYPES
from ..capture import rng
from ..capture.changes import between
from ..errors import ArgumentError, StoreError, TorchLensError
from ..log.model_log import ModelLog
from . import edited_run
from .chosen_layers import Calling, Forward, WantedValue, resolve_layers
from .described import described_functions
from .fit import fit
from .given_model import WatchedState, built
from .input_source import Batch, Given, Source, blamed, noted, own_copy, row_words, rows_in, seed_of
from .inputs import source_of
from .plan import (
    FORMAT,
    Id,
    LayerPlan,
    StorePlan,
    hash_of_ids,
    hash_of_modes,
    hash_of_tensors,
    hash_of_weights,
    shard_rows_for,
)
from .reduce import Reduction, checked_reductions
from .reduced_values import check_keys, check_range, made_for, not_rows_first, reduced, reduction_of
from .shard import known_end, shard_path
from .storage import Storage
from .writer import Building, Writer

T = TypeVar("T")

TensorsByName = dict[str, Tensor]
Running = Forward | edited_run.EditedForward


@dataclass(frozen=True)
class ExtractRequest:
    """What a user asked for, checked: all that a worker on another machine needs."""

    model: Any  # or what makes one
    given: Given
    layers: Any
    reduce: Any = None
    dtype: torch.dtype | None = None
    shard_rows: int | None = None
    interventions: Any = None

    def job(self) -> Job:
        """Look at the model and the first batch, and decide what is to be done."""
        return Job(self)


class Job:
    """A request with its model, its inputs and its plan: able to compute shards."""

    def __init__(self, request: ExtractRequest) -> None:
        self.request = request
        given = request.given
        inputs = given.inputs() if _is_factory(given.inputs) else given.inputs
        self.model = built(request.model)
        self.source: Source = source_of(replace(given, inputs=inputs))
        self.ids: list[Id] | None = list(self.source.ids) if self.source.ids is not None else None
        self.calling = Calling(self.model)
        self._changes_inputs = False  # does the model write to them?
        self._base: ModelLog | None = None  # in which interventions look up labels, where the light path can't edit
        self.wanted, self.reductions, self.plan = quietly(self._decide)

    def _decide(self) -> tuple[list[WantedValue], dict[str, list[Reduction]], StorePlan]:
        batch = next(self.source.some_batches(1), None)
        if batch is None:
            raise ArgumentError("there are no inputs")
        self._weights = hash_of_weights(self.model)  # before anything runs: a pass may change them
        state = WatchedState(self.model)
        rows, args, kwargs, wanted, values = self._try_first(batch)
        state.warn_if_changed()
        reduces = {each.name: checked_reductions(reduction_of(each, self.request.reduce)) for each in wanted}
        check_keys(self.request.reduce, wanted)
        self._check_rows_first(wanted, reduces, values, rows, batch)
        for name, value in values.items():
            reduces[name] = made_for(name, reduces[name], value, self.source.count, args, kwargs)
        small = {name: reduced(name, value, reduces[name], args, kwargs) for name, value in values.items()}
        self._dims = {name: value.dim() for name, value in small.items()}
        return wanted, reduces, self._plan(wanted, small, (args, kwargs))

    def _try_first(self, batch: Batch) -> tuple[list[int], list[Any], dict[str, Any], list[WantedValue], TensorsByName]:
        """Run the first batch; or, if samples that fail are to be skipped, the first of its samples that does not."""
        if not batch.groups:
            raise StoreError(
                f"not one sample of the first batch could be loaded: {next(iter(batch.failed.values()))!r}"
            )
        rows, value = batch.groups[0]
        tries = [(rows, value)]
        if self.request.given.on_error == "skip" and batch.some is not None:
            tries += [([row], batch.some([row])) for row in rows]
        for attempt, (rows, value) in enumerate(tries, 1):
            try:
                rng.seed_generators(seed_of(self.request.given.seed, rows[0]))
                wanted = self._resolve(*self.calling(own_copy(value)))
                rng.seed_generators(seed_of(self.request.given.seed, rows[0]))
                given = own_copy(value)
                with self.forward(wanted) as forward:
                    values = forward(*self.calling(given))
                self._changes_inputs = hash_of_tensors(_leaves(given)) != hash_of_tensors(_leaves(value))
                return rows, *self.calling(value), forward.wanted, values
            except TorchLensError:
                raise
            except Exception as error:
                if attempt == len(tries) and attempt > 1:
                    raise StoreError(f"not one sample of the first batch could be run: {error!r}") from error
                if attempt == len(tries):
                    doing = f"running the first batch, from {row_words(self.ids, rows[0])} on{self.calling.remark}"
                    raise blamed(error, doing) from None
        raise AssertionError

    def _resolve(self, args: list[Any], kwargs: dict[str, Any]) -> list[WantedValue]:
        layers, interventions, self._base = self.request.layers, self.request.interventions, None
        if interventions is None or edited_run.are_light(self.model, interventions):
            wanted = resolve_layers(self.model, args, kwargs, layers, interventions)
            if not any(each.is_edited_later for each in wanted):
                return wanted
        wanted, self._base = edited_run.resolve_edited(self.model, args, kwargs, layers, interventions)
        return wanted

    def forward(self, wanted: list[WantedValue]) -> Running:
        """What runs batches."""
        if self._base is None:
            return Forward(self.model, wanted, self.request.interventions)
        return edited_run.EditedForward(self.model, wanted, self.request.interventions, self._base)

    def _check_rows_first(
        self,
        wanted: list[WantedValue],
        reduces: Mapping[str, list[Reduction]],
        values: TensorsByName,
        rows: list[int],
        batch: Batch,
    ) -> None:
        """Refuse values whose first dimension is as long as the batch by accident: let it be shorter and look again."""
        if len(rows) == 1 or batch.some is None:
            return
        try:
            with self.forward(wanted) as forward:
                alone = forward(*self.calling(batch.some(rows[:1])))
        except Exception:
            return  # a model or a collate_fn that takes no single sample
        for name, value in alone.items():
            whole = values[name]
            if reduces[name] or not whole.dim() or value.dim() != whole.dim():  # squeezed, in a batch of one
                continue
            if len(whole) == len(rows) and len(value) != 1:
                raise not_rows_first(name, value, 1)

    def _plan(self, wanted: list[WantedValue], small: TensorsByName, inputs: Any) -> StorePlan:
        request, given, source = self.request, self.request.given, self.source
        layers = tuple(self._layer(each, small[each.name]) for each in wanted)
        row_bytes = sum(layer.row_bytes for layer in layers) or sum(v[0].nbytes for v in small.values())
        return StorePlan(
            format=FORMAT,
            model=type(self.model).__name__,
            weights=self._weights,
            interventions=edited_run.described_interventions(request.interventions),
            inputs=hash_of_tensors(_leaves(inputs)),
            count=source.count,
            ids=hash_of_ids(self.ids) if self.ids is not None else None,
            batch_size=source.batch_size,
            shard_rows=_shard_rows(request.shard_rows, row_bytes, source),
            layers=layers,
            dtype=str(request.dtype).removeprefix("torch.") if request.dtype is not None else None,
            ragged=given.ragged,
            on_error=given.on_error,
            seed=given.seed,
            training=hash_of_modes(self.model),
            device=self.calling.device.type,
            torch=torch.__version__,
        )

    def _layer(self, wanted: WantedValue, value: Tensor) -> LayerPlan:
        asked = self.request.dtype if self.request.dtype is not None and value.is_floating_point() else value.dtype
        if asked not in DTYPES:
            raise ArgumentError(f"{wanted.name} is of type {asked}, which safetensors files can't store")
        return LayerPlan(
            name=wanted.name,
            label=wanted.label,
            source=wanted.source,
            position=wanted.position,
            shape=None if self.request.given.ragged else tuple(value.shape[1:]),
            dtype=DTYPES[asked],
            reduce=described_functions(checked_reductions(reduction_of(wanted, self.request.reduce))),
        )

    def fit(self, storage: Storage) -> None:
        """Fit what is fitted to the inputs, or read what was fitted when the store began."""
        quietly(partial(fit, self, storage))

    # ---- computing ------------------------------------------------------------------------------------------

    def run(self, storage: Storage, wanted: Callable[[int], bool], advance: Callable[[int], None]) -> list[int]:
        """Compute and write the shards that are wanted and not there yet; returns their numbers."""

        end = known_end(storage) if self.plan.count is None else None

        def is_due(shard: int) -> bool:
            if end is not None and shard * self.plan.shard_rows >= end:
                raise _other_count(end, "more")
            return wanted(shard) and not storage.has(shard_path(shard))

        written = quietly(partial(self._run, storage, is_due, advance))
        if end is not None and self.source.read != end:
            raise _other_count(end, self.source.read)
        return written

    def _run(self, storage: Storage, is_due: Callable[[int], bool], advance: Callable[[int], None]) -> list[int]:
        with Writer(storage) as writer, self.forward(self.wanted) as forward:
            building: Building | None = None
            for batch in self.source.batches(self.plan.shard_rows, _once(is_due)):
                self._check_count(batch)
                if building is None:
                    building = Building(self.plan, batch.rows[0] // self.plan.shard_rows, writer.slot())
                self._add(building, batch, forward)
                advance(len(batch.rows))
                stop = batch.rows[-1] + 1
                if stop == self.plan.rows_of(building.number).stop or batch.last:
                    writer.put(building, stop, last=batch.last or stop == self.plan.count)
                    building = None
        return writer.written

    def _check_count(self, batch: Batch) -> None:
        """Refuse an iterable that has more or fewer samples than it said, or than there are ids."""
        stop, count = batch.rows[-1] + 1, self.plan.count
        if count is not None and (stop > count or (batch.last and stop < count)):
            how = f"there are more than the {count}" if stop > count else f"the inputs ended after {stop} of {count}"
            raise StoreError(f"{how} samples that were expected")

    def _add(self, building: Building, batch: Batch, forward: Running) -> None:
        """Compute a batch into the shard that is being built."""
        failed = dict(batch.failed)
        for rows, value in batch.groups:
            done, values = self.computed(rows, value, batch, forward, failed)
            if done:
                self._check_shapes(values, done)
                building.add(values, len(done))
        building.skipped.update({str(row): _said(failed[row]) for row in sorted(failed)})

    def computed(
        self,
        rows: list[int],
        value: Any,
        batch: Batch,
        forward: Running,
        failed: dict[int, Exception],
        places: Mapping[str, int] | None = None,
    ) -> tuple[list[int], TensorsByName]:
        """The values of rows that run together; where samples may be skipped, without those that raise alone.

        With `places`, they are reduced only so far.
        """
        try:
            return rows, self._values(rows, value, forward, places)
        except TorchLensError as error:
            raise noted(error, f"running rows {rows[0]} to {rows[-1]}") from None
        except Exception as error:
            alone = self._raise_alone(rows, batch, forward, places)
            if self.request.given.on_error == "skip" and batch.some is None:
                raise noted(error, f"running rows {rows[0]} to {rows[-1]}, a batch that can't be taken apart") from None
            if self.request.given.on_error != "skip" or not alone:
                culprit = row_words(self.ids, next(iter(alone))) if alone else f"rows {rows[0]} to {rows[-1]} together"
                raise blamed(error, f"running {culprit}") from None
        failed.update(alone)
        left = [row for row in rows if row not in alone]
        if not left or batch.some is None:
            return [], {}
        return left, self._values(left, batch.some(left), forward, places)

    def _raise_alone(
        self, rows: list[int], batch: Batch, forward: Running, places: Mapping[str, int] | None
    ) -> dict[int, Exception]:
        found: dict[int, Exception] = {}
        if batch.some is None:
            return found
        for row in rows:
            try:
                self._values([row], batch.some([row]), forward, places)
            except Exception as error:
                found[row] = error
                if self.request.given.on_error != "skip":
                    break
        return found

    def _values(self, rows: list[int], value: Any, forward: Running, places: Mapping[str, int] | None) -> TensorsByName:
        args, kwargs = self.calling(own_copy(value) if self._changes_inputs else value)
        if rows_in([args, list(kwargs.values())]) != len(rows):
            raise ArgumentError(f"inputs: expected {len(rows)} samples at row {rows[0]}, but got {rows_in(value)}")
        rng.seed_generators(seed_of(self.request.given.seed, rows[0]))
        values = forward(args, kwargs)
        reduces = {name: self.reductions[name][: places[name] if places is not None else None] for name in values}
        return {name: reduced(name, values[name], reduces[name], args, kwargs) for name in values}

    def _check_shapes(self, values: TensorsByName, rows: list[int]) -> None:
        for layer in self.plan.layers:
            value = values[layer.name]
            if len(value) != len(rows):
                raise not_rows_first(layer.name, value, len(rows))
            if value.dim() != self._dims[layer.name]:
                raise StoreError(
                    f"{layer.name} has {value.dim() - 1} dimensions from {row_words(self.ids, rows[0])} on, and "
                    f"{self._dims[layer.name] - 1} in the first batch: their number can't vary"
                )
            if layer.shape is not None and value.shape[1:] != layer.shape:
                raise StoreError(
                    f"{layer.name} has shape {list(value.shape[1:])} from {row_words(self.ids, rows[0])} on, and "
                    f"{list(layer.shape)} before: reduce= can make them alike, and ragged=True stores values of "
                    "different shapes"
                )
            check_range(layer, value, self.ids, rows)


def _other_count(before: int, now: int | str) -> StoreError:
    return StoreError(f"the number of inputs differs: there were {before} when the store was completed, and now {now}")


def quietly(body: Callable[[], T]) -> T:
    """Call `body` with no autograd, the operations of a log in the caller's mode, and random generators put back.

    Without autograd, attention layers of torch take a fused kernel. A caller whose logs have autograd on would find
    other layers than in these, so the kernel is left to callers who have switched autograd off themselves.
    """
    fused, set_fused = torch.backends.mha.get_fastpath_enabled(), torch.backends.mha.set_fastpath_enabled
    wanted = fused and not torch.is_grad_enabled()
    inside = partial(rng.restoring, partial(call_with_grad, False, body))
    return between(lambda frame: set_fused(wanted), inside, lambda: set_fused(fused))


def _once(is_due: Callable[[int], bool]) -> Callable[[int], bool]:
    """The answer for the shard asked about last stands: it does not become done while it is computed."""
    known: dict[int, bool] = {}

    def answer(shard: int) -> bool:
        if shard not in known:
            known.clear()
            known[shard] = is_due(shard)
        return known[shard]

    return answer


# ---- helpers ------------------------------------------------------------------------------------------------


def _is_factory(inputs: Any) -> bool:
    return callable(inputs) and not hasattr(inputs, "__getitem__") and not hasattr(inputs, "__iter__")


def _leaves(thing: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in nested containers, with where it is."""
    if isinstance(thing, Mapping):
        for name in thing:
            yield from _leaves(thing[name], f"{path}.{name}")
    elif isinstance(thing, (tuple, list)):
        for index, member in enumerate(thing):
            yield from _leaves(member, f"{path}.{index}")
    else:
        yield path, thing


def _shard_rows(asked: int | None, row_bytes: int, source: Source) -> int:
    if asked is None:
        return shard_rows_for(row_bytes, source.batch_size, source.count)
    if asked < 1 or asked % source.batch_size:
        raise ArgumentError(f"shard_rows={asked} is not a multiple of the batch size, {source.batch_size}")
    return asked


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
