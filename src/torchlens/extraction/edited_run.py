"""Forward passes with interventions that the light tracer can't make: of operations, of edges, of parameters.

The full tracer makes them, which is slower and goes to the end of the model. Edits of what modules return take the
light path, see `Forward`. Either way the layers are those of `log_forward_pass(..., interventions=...)`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn

from ..capture.submodule_run import trace_of
from ..errors import LayerNotFoundError, TorchLensError
from ..log.apply_selection import apply_selection
from ..log.interventions import live_edits, run_before
from ..log.model_log import ModelLog
from ..options import Options
from ..selectors import Selection
from .chosen_layers import WantedValue, module_edits
from .described import described_function, described_state


def are_light(model: nn.Module, interventions: Any) -> bool:
    """Can the light path make all of these edits?"""
    try:
        requests = module_edits(model, interventions).requests
    except TorchLensError:  # a full run makes the edit, or says what is wrong with it
        return False
    return not any(request.edit.asks_operation for request in requests)  # which the light path does not know


class EditedForward:
    """Runs a model on batches, with interventions. As `Forward`."""

    def __init__(
        self, model: nn.Module, wanted: Sequence[WantedValue], interventions: Any, base: ModelLog | None
    ) -> None:
        self._model, self._interventions, self._base = model, interventions, base
        self.wanted = list(wanted)

    def __enter__(self) -> EditedForward:
        return self

    def __exit__(self, *raised: Any) -> None:
        pass

    def __call__(self, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Tensor]:
        log = edited_log(
            self._model, args, kwargs, [each.source for each in self.wanted], self._interventions, self._base
        )
        values: dict[str, Tensor] = {}
        for place, wanted in enumerate(self.wanted):
            (entry, *others) = log._lookup.single(wanted.source, quietly=True)
            op = log._op(entry)
            way = f"{op.label} {op.func_name} {op.containing_modules} {op.parent_layers}"
            if others or op.activation is None or wanted.way not in ("", way):
                raise LayerNotFoundError(
                    f"{wanted.name}: the model took a different path in this batch than in the first, and did not "
                    "compute it at the same point"
                )
            self.wanted[place] = dataclasses.replace(wanted, way=way)
            values[wanted.name] = op.activation
        return values


def edited_log(
    model: nn.Module, args: list[Any], kwargs: dict[str, Any], layers: Any, interventions: Any, base: ModelLog | None
) -> ModelLog:
    """The log of an edited run that holds these layers."""
    options = Options.checked(layers_to_save=layers)
    edits = live_edits(model, interventions, base, False, partial(run_before, model, None, args, kwargs, options))
    assert edits is not None
    run = trace_of(model, None, args, kwargs, options, None, (edits,))
    error = edits.error_of(run.error)
    if error is not None:
        raise error
    log = ModelLog(run.trace, options)
    edits.finish(lambda: log.graph)
    apply_selection(log, run.chooser)
    return log


def resolve_edited(
    model: nn.Module, args: list[Any], kwargs: dict[str, Any], layers: Any, interventions: Any
) -> tuple[list[WantedValue], ModelLog]:
    """The values that the selectors mean in an edited run of this batch, and the run before it, without edits."""
    base = run_before(model, None, args, kwargs, Options.checked(layers_to_save=None))
    log = edited_log(model, args, kwargs, None, interventions, base)
    found: dict[int, WantedValue] = {}
    for selector in Selection.checked(layers, "layers").selectors:
        places = log._lookup.chosen(Selection((selector,)), "layers")
        for place in places:
            alone = len(places) == 1 and isinstance(selector, str)
            label = log.graph.label(place)
            name = str(selector) if alone else label
            found.setdefault(place, WantedValue(name, label, name, None, False, selector))
    return list(found.values()), base


def described_interventions(interventions: Mapping[Any, Any] | None) -> str:
    """How a store remembers interventions: as they print, with a hash of the tensors and functions in them."""
    if interventions is None:
        return ""
    parts = []
    for key, edit in interventions.items():
        shown = "a tensor" if isinstance(edit, Tensor) else described_function(edit) if callable(edit) else repr(edit)
        state = "" if callable(edit) else described_state(edit)
        parts.append(f"{described_function(key) if callable(key) else key!r}: {shown}{state}")
    return "; ".join(parts)
