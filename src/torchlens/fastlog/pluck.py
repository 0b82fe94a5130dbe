"""Get one tensor of a model in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from .._torch import graph_break
from ..capture import rng
from ..capture.arguments import model_arguments
from ..capture.changes import between
from ..capture.describe import modules_of
from ..capture.session import run_traced
from ..errors import ArgumentError, LayerNotFoundError, SeveralOutputsWarning, named_arguments, warn
from ..log.apply_selection import apply_selection
from ..log.interventions import live_edits, run_before
from ..log.model_log import ModelLog
from ..options import Options
from ..selectors import Returned, Selection, compile, is_several, selector_text
from ..words import counted
from .recorder import Recorder
from .recording import Record


@graph_break
@named_arguments
def pluck(
    model: nn.Module,
    input_args: Any,
    layers: Any,
    input_kwargs: Mapping[str, Any] | None = None,
    *,
    random_seed: int | None = None,
    interventions: Mapping[Any, Any] | None = None,
    base: ModelLog | None = None,
) -> Any:
    """Run a model as far as needed and return one value; a dict if several are asked for.

    >>> tl.pluck(model, x, "fc").shape
    torch.Size([5, 5])
    >>> sorted(tl.pluck(model, x, ["fc", "relu_1_2"]))
    ['fc', 'relu_1_2']

    Args:
        model, input_args, input_kwargs, random_seed, interventions, base: as in `log_forward_pass`.
        layers: one selector or a list: module addresses such as "features.6", "fc:2" or "attn[1]" (of several
            tensors that a module returned, the second), labels, numbers. A selector must mean one operation. If all
            are modules, the forward pass ends when the last of them has returned; otherwise it runs to the end.
    """
    if isinstance(layers, Tensor):
        raise ArgumentError(
            "layers must be names or numbers, not a tensor; the arguments are pluck(model, input, layers)"
        )
    selection = Selection.checked(layers, "layers")
    if not selection.selectors:
        raise ArgumentError("layers is empty: name at least one layer or module")
    kinds = compile(selection, modules_of(model), "layers").kinds if isinstance(model, nn.Module) else []
    if any(kind.predicates() for kind in kinds):
        raise ArgumentError("layers: pluck takes names and numbers of single layers; fastlog.record takes functions")
    modules = [kind for kind in kinds if isinstance(kind, Returned) and kind.is_one_module]
    if kinds and len(modules) == len(kinds) and interventions is None:
        found = _from_modules(model, input_args, input_kwargs, modules, random_seed)
    else:
        found = _from_log(model, input_args, input_kwargs, selection, random_seed, interventions, base)
    return found if is_several(layers) else found[selection.selectors[0]]


def _from_modules(
    model: nn.Module, input_args: Any, input_kwargs: Any, modules: Sequence[Returned], random_seed: int | None
) -> dict[Any, Tensor]:
    """Stop when the first call, or the one that is asked for, of each module has returned."""
    infos = modules_of(model).infos
    wanted = [f"{infos[min(kind.numbers)].address or 'self'}:{kind.call or 1}" for kind in modules]
    if random_seed is not None:
        rng.seed_generators(Options.checked(random_seed=random_seed).random_seed)
    recorder = Recorder(model, keep_module=wanted, stop_after=wanted)
    between(recorder.open, partial(recorder.log, input_args, input_kwargs), recorder.close)
    by_label = recorder.finish().by_label
    return {kind.said: _result(kind, by_label.get(label, [])) for kind, label in zip(modules, wanted, strict=True)}


def _result(kind: Returned, records: Sequence[Record]) -> Tensor:
    """The tensor that is meant, among those that a module call returned."""
    said, tensors = (
        selector_text(kind.said),
        [record.activation for record in records if record.activation is not None],
    )
    if not records:
        raise LayerNotFoundError(f"{said} was never reached: the module was called fewer times")
    if not tensors:
        raise LayerNotFoundError(f"module {said} returned no tensor")
    if kind.index is not None and kind.index >= len(tensors):
        raise LayerNotFoundError(f"no tensor {said}: the module returned {counted(len(tensors), 'tensor')}")
    if kind.index is None and len(tensors) > 1:
        warn(kind.first_of(range(len(tensors))), SeveralOutputsWarning)
    return tensors[kind.index or 0]


def _from_log(
    model: nn.Module,
    input_args: Any,
    input_kwargs: Any,
    selection: Selection,
    random_seed: int | None,
    interventions: Any,
    base: ModelLog | None,
) -> dict[Any, Tensor]:
    args, kwargs = model_arguments(model, input_args, input_kwargs)
    options = Options.checked(layers_to_save=selection, random_seed=random_seed)
    edits = live_edits(model, interventions, base, False, partial(run_before, model, None, args, kwargs, options))
    observers = (edits,) if edits is not None else ()
    recording, error, chooser = run_traced(model, args, kwargs, options, observers=observers)
    error = edits.error_of(error) if edits is not None else error
    if error is not None:
        raise error
    log = ModelLog(recording, options)
    if edits is not None:
        edits.finish(lambda: log.graph)
    apply_selection(log, chooser)
    found: dict[Any, Tensor] = {}
    for selector in selection.selectors:
        # A log counts what it lists, a selector the whole graph.
        numbered = isinstance(selector, int)
        places = log._lookup.chosen(Selection((selector,)), "layers") if numbered else log._lookup.single(selector)
        if len(places) > 1:
            label = log.graph.label(places[0])
            said = selector_text(selector)
            raise ArgumentError(f"{said} matches {len(places)} operations; name one of them, such as {label!r}")
        value = log.graph.entries[places[0]].saved
        assert value is not None
        found[selector] = value
    return found
