"""Selectors of layers by label or pattern, and of what the model returned by path."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import LayerNotFoundError
from .kinds import Kind
from .names import few_of, may_be_label, near_names, split_pass, steps_of
from .seen import ASK, NO, YES, Answer, Asked, KnownGraph, Seen
from .selection import Selector

#: `0` and `0[1]` name a module, as in nn.Sequential; an output is `[0]`.
_NUMBER_FIRST = re.compile(r"\d+(?:\W|$)")


class Word(Kind):
    """A label, an output of the model, or part of a label: what it is, only the graph knows for sure."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.name = said
        self.stem, self.call = split_pass(said)
        self.is_label = may_be_label(self.stem)
        self.needs_graph = self.is_label and self.call is not None
        self.steps = None if _NUMBER_FIRST.match(said) else steps_of(said)
        self.is_path = said.startswith((".", "["))
        self.by_type = self.is_part and "_" not in said

    # ---- while the model runs ---------------------------------------------------------------------------------

    def answer(self, seen: Seen) -> Answer:
        if seen.path is not None and self.leads_to(seen.path):
            return YES
        if seen.layer_type is None:
            return NO
        if self.is_path:
            return ASK if seen.layer_type == "output" and seen.path is None else NO
        return self.of_type(seen.layer_type) if seen.label is None else YES if self.fits(seen.label) else NO

    def of_type(self, layer_type: str) -> Answer:
        """Does it match the operations of this type?"""
        if layer_type == "output":  # which path it has is not known yet
            return YES if self.is_part and self.name in layer_type else ASK
        if self.is_label:
            return ASK if self.stem.partition("_")[0] == layer_type else NO
        if self.is_part and "_" not in self.name:
            return YES if self.name in layer_type else NO
        return ASK if self.is_part and layer_type.endswith(self.name.partition("_")[0]) else NO

    @property
    def is_part(self) -> bool:
        """Can it be a part of a label? Digits alone can't, nor can a whole label be part of another."""
        return not self.is_label and not self.name.isdecimal()

    def fits(self, label: str) -> bool:
        if self.is_label:
            return self.stem in (label, label.rpartition("_")[0])
        return self.is_part and self.name in label

    def leads_to(self, path: str) -> bool:
        """Does it name an output at this path, or what that is in?"""
        if not self.steps or self.steps[0] not in path:
            return False
        steps = steps_of(path)
        return steps is not None and steps[: len(self.steps)] == self.steps

    # ---- when the graph is known ------------------------------------------------------------------------------

    def places(self, graph: KnownGraph, asked: Asked) -> set[int]:
        exactly = self.exactly(graph)
        if exactly or not self.is_part or self.is_path:
            return exactly
        layers = [layer for layer, label in enumerate(graph.layer_labels) if self.name in label]
        return {place for layer in layers for place in graph.layer_entries[layer]}

    def exactly(self, graph: KnownGraph) -> set[int]:
        """The entries of the layer, or the outputs, with this very name."""
        layer = graph.layer_numbers.get(self.stem)
        entries = [] if layer is None else graph.layer_entries[layer]
        if self.call is not None:
            entries = entries[self.call - 1 : self.call] if self.call else []
        outputs = {place for place in self._outputs(graph) if self.leads_to(graph.entries[place].address or "")}
        if entries and outputs:
            raise LayerNotFoundError(
                f"{self.name!r} is the layer {graph.layer_labels[graph.layers[entries[0]]]!r} and the output "
                f"{graph.entries[min(outputs)].address!r}; use one of these names"
            )
        if outputs and self.is_part and not self.is_path:
            self._refuse_both(graph, outputs)
        return outputs or set(entries)

    @staticmethod
    def _outputs(graph: KnownGraph) -> Iterable[int]:
        """The places of the model's outputs: after its last call, with constants in between that it returned."""
        for place in range(len(graph.entries) - 1, -1, -1):
            value = graph.entries[place]
            if value.role == "output":
                yield place
            elif value.call >= 0 and graph.trace.calls[value.call].function.func is not None:
                return

    def _refuse_both(self, graph: KnownGraph, outputs: set[int]) -> None:
        labels = [label for label in graph.layer_labels if self.name in label]
        if (
            labels
            and {place for label in labels for place in graph.layer_entries[graph.layer_numbers[label]]} != outputs
        ):
            path = graph.entries[min(outputs)].address
            raise LayerNotFoundError(
                f"{self.name!r} is the output {path!r} and part of the label {labels[0]!r}; for the output, use "
                f"{path!r}, for the layers {'*' + self.name + '*'!r}"
            )

    def nothing(self, graph: KnownGraph) -> str:
        layer = graph.layer_numbers.get(self.stem)
        if layer is not None:
            total = len(graph.layer_entries[layer])
            return f"no pass {self.name!r}: {self.stem} has {total}"
        tensors = (("parameter", "params", graph.trace.param_infos), ("buffer", "buffers", graph.trace.buffer_infos))
        for kind, where, infos in tensors:
            if any(self.name in info.all_addresses for info in infos):
                return f"no layer or module {self.name!r}; it is a {kind}: log.{where}[{self.name!r}]"
        if self.name.isdecimal():
            return f"no layer or module {self.name!r}; a number is written without quotes: {int(self.name)}"
        if self.name == "all":
            return "no layer or module 'all'; '**' matches every one"
        hint = near_names(self.stem, graph) or "; print the log to see the names"
        return f"no layer or module {self.name!r}{hint}"

    def several(self, labels: Sequence[str]) -> str:
        return f"{self.name!r} is part of several names: {few_of(labels)}; ask for one of them, or log.select(...)"


class Like(Kind):
    """The layers whose label, in full or short, a pattern fits."""

    def __init__(self, said: Selector, fits: Callable[[str], Any], start: str, every: bool, call: int | None) -> None:
        super().__init__(said)
        self.needs_graph = call is not None
        self._fits = fits
        self._start = start  # of each label that fits
        self._every = every  # does what fits the beginning of a label fit all of it?
        self._call = call

    def answer(self, seen: Seen) -> Answer:
        if seen.layer_type is None:
            return NO
        if seen.label is not None and self._call is None:
            return YES if self.fits(seen.label) else NO
        beginning = f"{seen.layer_type}_"
        if not beginning.startswith(self._start[: len(beginning)]):
            return NO
        return YES if self._every and self._call is None and self._fits(beginning) else ASK

    def fits(self, label: str) -> bool:
        return bool(self._fits(label) or self._fits(label.rpartition("_")[0]))

    def places(self, graph: KnownGraph, asked: Asked) -> set[int]:
        layers = [
            entries for entries, name in zip(graph.layer_entries, graph.layer_labels, strict=True) if self.fits(name)
        ]
        passes = slice(None) if self._call is None else slice(self._call - 1, self._call)
        return {place for entries in layers for place in entries[passes]}

    def modules(self, total: int) -> set[int]:
        return set()
