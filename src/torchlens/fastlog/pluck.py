"""One call, one tensor."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from ..capture import rng
from ..capture.arguments import model_arguments
from ..capture.session import run_traced
from ..errors import ArgumentError, FidelityWarning, LayerNotFoundError
from ..log.model_log import ModelLog
from ..log.settle import settle
from ..options import Options
from ..selectors import Selection, described, split_pass
from .recorder import Recorder, addresses_of


def pluck(
    model: nn.Module,
    input_args: Any,
    layers: Any,
    input_kwargs: Mapping[str, Any] | None = None,
    *,
    random_seed: int | None = None,
) -> Any:
    """Run a model as far as needed and return one value; a dict if several are asked for.

    >>> tl.pluck(model, x, "fc").shape
    torch.Size([5, 5])
    >>> sorted(tl.pluck(model, x, ["fc", "relu_1_2"]))
    ['fc', 'relu_1_2']

    Args:
        model, input_args, input_kwargs, random_seed: as in `log_forward_pass`.
        layers: one selector or a list: module addresses such as "features.6" or "fc:2" (the first tensor that the
            module returned), labels, numbers. A selector must mean one operation. If all are modules, the forward
            pass ends when the last of them has returned; otherwise it runs to the end.
    """
    several = isinstance(layers, Iterable) and not isinstance(layers, str)
    selectors = Selection.checked(layers, "layers").selectors
    if not selectors or any(callable(selector) for selector in selectors):
        raise ArgumentError("layers: pluck takes names and numbers of single layers; fastlog.record takes functions")
    addresses = addresses_of(model) if isinstance(model, nn.Module) else {}
    if all(isinstance(selector, str) and split_pass(selector)[0] in addresses for selector in selectors):
        found = _from_modules(model, input_args, input_kwargs, selectors, addresses, random_seed)
    else:
        found = _from_log(model, input_args, input_kwargs, selectors, random_seed)
    return found if several else found[selectors[0]]


def _from_modules(
    model: nn.Module,
    input_args: Any,
    input_kwargs: Any,
    selectors: tuple[Any, ...],
    addresses: Mapping[str, str],
    random_seed: int | None,
) -> dict[Any, Tensor]:
    """Stop when the first call, or the one that is asked for, of each module has returned."""
    calls = {selector: _call(selector, addresses) for selector in selectors}
    wanted = [f"{address or 'self'}:{number}" for address, number in calls.values()]
    if random_seed is not None:
        rng.begin(Options.checked(random_seed=random_seed).random_seed)
    with warnings.catch_warnings(), Recorder(model, keep_module=wanted, stop_after=wanted) as recorder:
        warnings.simplefilter("ignore", FidelityWarning)  # what is not found is an error below
        recorder.log(input_args, input_kwargs)
    found: dict[Any, Tensor] = {}
    for selector, label in zip(selectors, wanted, strict=True):
        records = recorder.recording.by_label.get(label)
        if not records:
            raise LayerNotFoundError(f"nothing is chosen by {described(selector)}: the module was not called so often")
        if records[0].activation is None:
            raise LayerNotFoundError(f"module {selector!r} returned no tensor")
        found[selector] = records[0].activation
    return found


def _call(selector: str, addresses: Mapping[str, str]) -> tuple[str, int]:
    name, number = split_pass(selector)
    return addresses[name], number or 1


def _from_log(
    model: nn.Module, input_args: Any, input_kwargs: Any, selectors: tuple[Any, ...], random_seed: int | None
) -> dict[Any, Tensor]:
    args, kwargs = model_arguments(model, input_args, input_kwargs)
    options = Options.checked(layers_to_save=list(selectors), random_seed=random_seed)
    recording, error = run_traced(model, args, kwargs, options)
    if error is not None:
        raise error
    log = ModelLog(recording)
    settle(log)
    found: dict[Any, Tensor] = {}
    for selector in selectors:
        places = log._lookup.places(selector) if isinstance(selector, str) else log._lookup.chosen(selector)
        if len(places) > 1:
            label = log.graph.label(places[0])
            raise ArgumentError(f"{selector!r} means {len(places)} operations; ask for one of them, such as {label!r}")
        value = log.graph.entries[places[0]].saved
        assert value is not None
        found[selector] = value
    return found
