"""The work itself: a plan from a call, and shards from a plan. One process or many, it is the same."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from .._torch import call_with_grad
from ..bundle.shards import DTYPES
from ..capture import rng
from ..capture.changes import between
from ..errors import ArgumentError, LayerNotFoundError, StoreError, TorchLensError, near, warn
from ..log.model_log import ModelLog
from ..words import counted
from . import edited_run
from . import reduce as reductions
from .chosen_layers import Calling, Forward, WantedValue, resolve_layers
from .fit import Unfitted, fit
from .inputs import Batch, Given, Source, blamed, noted, row_words, rows_in, seed_of, source_of
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
from .reduce import Reduction
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
        self.model = _built(request.model)
        self.source: Source = source_of(replace(given, inputs=inputs))
        self.ids: list[Id] | None = list(self.source.ids) if self.source.ids is not None else None
        self.calling = Calling(self.model)
        self._base: ModelLog | None = None  # in which interventions look up labels, where the light path can't edit
        self.wanted, self.reductions, self.plan = quietly(self._decide)

    def _decide(self) -> tuple[list[WantedValue], dict[str, list[Reduction]], StorePlan]:
        batch = next(self.source.some_batches(1), None)
        if batch is None:
            raise ArgumentError("there are no inputs")
        rows, args, kwargs, wanted, values = self._try_first(batch)
        reduces = {each.name: reductions.checked_reductions(_of(each, self.request.reduce)) for each in wanted}
        _check_keys(self.request.reduce, wanted)
        self._check_rows_first(wanted, reduces, values, rows, batch)
        for name, value in values.items():
            reduces[name] = _made_for(reduces[name], value, self.source.count, args, kwargs)
        small = {name: _reduced(name, value, reduces[name], args, kwargs) for name, value in values.items()}
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
            args, kwargs = self.calling(value)
            try:
                rng.seed_generators(seed_of(self.request.given.seed, rows[0]))
                wanted = self._resolve(args, kwargs)
                rng.seed_generators(seed_of(self.request.given.seed, rows[0]))
                with self.forward(wanted) as forward:
                    values = forward(args, kwargs)
                return rows, args, kwargs, forward.wanted, values
            except TorchLensError:
                raise
            except Exception as error:
                if attempt == len(tries):
                    raise blamed(error, f"running the first batch, from {row_words(self.ids, rows[0])} on") from None
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
        args, kwargs = self.calling(batch.some(rows[:1]))
        try:
            with self.forward(wanted) as forward:
                alone = forward(args, kwargs)
        except Exception:
            return  # a model that takes no single sample
        for name, value in alone.items():
            if not reduces[name] and values[name].dim() and len(values[name]) == len(rows) and len(value) != 1:
                raise _not_rows_first(name, value, 1)

    def _plan(self, wanted: list[WantedValue], small: TensorsByName, inputs: Any) -> StorePlan:
        request, given, source = self.request, self.request.given, self.source
        layers = tuple(self._layer(each, small[each.name]) for each in wanted)
        row_bytes = sum(layer.row_bytes for layer in layers) or sum(v[0].nbytes for v in small.values())
        return StorePlan(
            format=FORMAT,
            model=type(self.model).__name__,
            weights=hash_of_weights(self.model),
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
            reduce=reductions.described_reductions(reductions.checked_reductions(_of(wanted, self.request.reduce))),
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
            done, values = self._computed(rows, value, batch, forward, failed)
            if done:
                self._check_shapes(values, done)
                building.add(values, len(done))
        building.skipped.update({str(row): _said(failed[row]) for row in sorted(failed)})

    def _computed(
        self, rows: list[int], value: Any, batch: Batch, forward: Running, failed: dict[int, Exception]
    ) -> tuple[list[int], TensorsByName]:
        """The values of rows that run together; where samples may be skipped, without those that raise alone."""
        try:
            return rows, self.values(rows, value, forward)
        except TorchLensError as error:
            raise noted(error, f"running rows {rows[0]} to {rows[-1]}") from None
        except Exception as error:
            alone = self._raise_alone(rows, batch, forward)
            if self.request.given.on_error != "skip" or not alone:
                culprit = row_words(self.ids, next(iter(alone))) if alone else f"rows {rows[0]} to {rows[-1]} together"
                raise blamed(error, f"running {culprit}") from None
        failed.update(alone)
        left = [row for row in rows if row not in alone]
        if not left or batch.some is None:
            return [], {}
        return left, self.values(left, batch.some(left), forward)

    def _raise_alone(self, rows: list[int], batch: Batch, forward: Running) -> dict[int, Exception]:
        found: dict[int, Exception] = {}
        if batch.some is None:
            return found
        for row in rows:
            try:
                self.values([row], batch.some([row]), forward)
            except Exception as error:
                found[row] = error
                if self.request.given.on_error != "skip":
                    break
        return found

    def values(
        self, rows: list[int], value: Any, forward: Running, places: Mapping[str, int] | None = None
    ) -> TensorsByName:
        """The reduced values of rows that run together; with `places`, reduced only so far."""
        args, kwargs = self.calling(value)
        if rows_in([args, list(kwargs.values())]) != len(rows):
            raise ArgumentError(f"inputs: expected {len(rows)} samples at row {rows[0]}, but got {rows_in(value)}")
        rng.seed_generators(seed_of(self.request.given.seed, rows[0]))
        values = forward(args, kwargs)
        reduces = {name: self.reductions[name][: places[name] if places is not None else None] for name in values}
        return {name: _reduced(name, values[name], reduces[name], args, kwargs) for name in values}

    def _check_shapes(self, values: TensorsByName, rows: list[int]) -> None:
        for layer in self.plan.layers:
            value = values[layer.name]
            if len(value) != len(rows):
                raise _not_rows_first(layer.name, value, len(rows))
            if layer.shape is not None and value.shape[1:] != layer.shape:
                raise StoreError(
                    f"{layer.name} has shape {list(value.shape[1:])} from {row_words(self.ids, rows[0])} on, and "
                    f"{list(layer.shape)} before: reduce= can make them alike, and ragged=True stores values of "
                    "different shapes"
                )
            _check_range(layer, value, self.ids, rows)


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


# ---- models and inputs --------------------------------------------------------------------------------------


def _is_factory(inputs: Any) -> bool:
    return callable(inputs) and not hasattr(inputs, "__getitem__") and not hasattr(inputs, "__iter__")


def _built(model: Any) -> nn.Module:
    """The model, or what the function that was given makes."""
    if not isinstance(model, nn.Module) and callable(model):
        model = _made(model)
    if not isinstance(model, nn.Module):
        raise ArgumentError(
            f"the first argument must be the model, an nn.Module, or a function that makes one, not {model!r}"
        )
    for name, module in model.named_modules():
        if module.training and getattr(module, "track_running_stats", False):
            raise ArgumentError(
                f"{name or 'the model'} ({type(module).__name__}) is in training mode: it would mix the samples of a "
                "batch, and change with each; call model.eval() first"
            )
    _warn_of_dropout(model)
    return model


def _made(factory: Callable[..., Any]) -> Any:
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise ArgumentError(
            f"the first argument is a function, which is called without arguments to make the model ({error}); give "
            "an nn.Module if it is the model itself"
        ) from None
    return factory()


_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def _warn_of_dropout(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if module.training and isinstance(module, _DROPOUTS) and module.p:
            warn(
                f"{name or 'the model'} ({type(module).__name__}) is in training mode and zeroes random elements of "
                "what is stored; call model.eval() to turn dropout off"
            )
            return


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
        return shard_rows_for(row_bytes, source.batch_size)
    if asked < 1 or asked % source.batch_size:
        raise ArgumentError(f"shard_rows={asked} is not a multiple of the batch size, {source.batch_size}")
    return asked


# ---- values -------------------------------------------------------------------------------------------------


def _of(wanted: WantedValue, reduce: Any) -> Any:
    """The reduction that was asked for a layer: by its name, by the selector that chose it, or for all."""
    if not isinstance(reduce, Mapping):
        return reduce
    return reduce.get(wanted.name, reduce.get(wanted.selector))


def _check_keys(reduce: Any, wanted: list[WantedValue]) -> None:
    known = {each.name for each in wanted} | {each.selector for each in wanted}
    for key in reduce if isinstance(reduce, Mapping) else ():
        if key not in known:
            names = [str(name) for name in known]
            raise LayerNotFoundError(f"reduce: no layer {key!r} is extracted{near(str(key), names)}")


def _made_for(
    reduces: list[Reduction], value: Tensor, rows: int | None, args: list[Any], kwargs: dict[str, Any]
) -> list[Reduction]:
    """Reductions that depend on the shape of the layer, made for it."""
    made: list[Any] = []
    for reduction in reduces:
        if isinstance(reduction, reductions.random_projection):
            reduction = reduction.made_for(value.shape[1:], rows)
        elif isinstance(reduction, reductions.pca):
            reduction = Unfitted(reduction, value)
        made.append(reduction)
        value = applied(reduction, value, args, kwargs)
    return made


def applied(reduction: Any, value: Tensor, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if hasattr(reduction, "with_inputs"):
        return reduction.with_inputs(value, args, kwargs)
    return reduction(value)


def _reduced(name: str, value: Tensor, reduces: list[Reduction], args: list[Any], kwargs: dict[str, Any]) -> Tensor:
    """A value as it is to be stored, but for its type."""
    rows = rows_in([args, list(kwargs.values())])
    for reduction in reduces:
        value = applied(reduction, value, args, kwargs)
        if not isinstance(value, Tensor):
            raise ArgumentError(f"reduce: {reduction!r} returned {type(value).__name__} for {name}, not a tensor")
    if not value.dim() or len(value) != rows:
        raise _not_rows_first(name, value, rows)
    return value


def _not_rows_first(name: str, value: Tensor, rows: int) -> ArgumentError:
    return ArgumentError(
        f"{name} has shape {list(value.shape)} for {counted(rows, 'sample')}: they are not along its first dimension; "
        f"reduce={{{name!r}: f}} with a function f can move them there"
    )


def _check_range(layer: LayerPlan, value: Tensor, ids: Any, rows: list[int]) -> None:
    """Refuse to write infinity for a number that is only too large for float16."""
    if layer.torch_dtype != torch.float16 or value.dtype == torch.float16 or not value.numel():
        return
    low, high = (float(end) for end in torch.aminmax(value))
    if low > -_TOO_LARGE and high < _TOO_LARGE:
        return
    too_large = (value.abs() >= _TOO_LARGE) & value.isfinite()
    if bool(too_large.any()):
        row = rows[int(too_large.flatten(1).any(1).nonzero()[0])]
        raise StoreError(
            f"{layer.name} of {row_words(ids, row)} has {float(value[too_large][0]):.6g}, more than float16 can hold; "
            "dtype='bfloat16' or 'float32' can"
        )


_TOO_LARGE = 65520.0  # from here on float16 rounds to infinity


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
