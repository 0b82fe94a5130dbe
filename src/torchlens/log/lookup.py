"""Find entries of a log: `log["conv2d_3"]`, `log.select("h.*.attn")`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..errors import LayerNotFoundError, SeveralOutputsWarning, warn
from ..graph.graph import Graph
from ..selectors import Asked, Kind, Selection, Word, compile, short_path
from .op_log import OpLog


class Lookup:
    """Turns selectors into the places of the entries that they match."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def chosen(self, selection: Selection, argument: str, asked: Asked | None = None) -> list[int]:
        """All entries that selectors match; `asked` says which ones a predicate chooses."""
        matcher = compile(selection, self._graph.modules, argument)
        return matcher.places(self._graph, asked or self._asked)

    def single(self, key: Any, *, quietly: bool = False) -> list[int]:
        """One entry, or all passes of one layer. Raises if there is none, or if several match."""
        if isinstance(key, str) and not key.strip():
            raise LayerNotFoundError("no layer or module ''; print the log to see the names")
        kind = compile(Selection.checked(key, "log[...]"), self._graph.modules, "log[...]").kinds[0]
        places, remark = kind.single(self._graph, self._asked)
        if not places:
            if isinstance(key, str) and key.strip().lstrip("-").isdigit():
                raise LayerNotFoundError(
                    f"no layer or module {key!r}; a number is asked for without quotes: log[{key}]"
                )
            raise LayerNotFoundError(kind.nothing(self._graph))
        found = sorted(places) if len(places) == 1 else self._layer(kind, sorted(places))
        if remark is not None and not quietly:
            warn(remark, SeveralOutputsWarning)
        return found

    def _layer(self, kind: Kind, places: list[int]) -> list[int]:
        layers = list(dict.fromkeys(self._graph.layers[place] for place in places))
        if len(layers) > 1:
            paths = self._paths(kind, places)
            raise LayerNotFoundError(kind.several(paths or [self._graph.layer_labels[layer] for layer in layers]))
        return self._graph.layer_entries[layers[0]]

    def _paths(self, kind: Kind, places: list[int]) -> list[str]:
        """Where the model's output has these entries, if that is how the selector found them."""
        paths = [self._graph.entries[place].address or "" for place in places]
        return [short_path(path) for path in paths] if isinstance(kind, Word) and all(map(kind.leads_to, paths)) else []

    def _asked(self, predicate: Any) -> Collection[int]:
        return [place for place in range(len(self._graph.entries)) if predicate(OpLog(self._graph, place))]

    def names(self) -> list[str]:
        """Every label and module address, for completion."""
        return [*self._graph.layer_labels, *filter(None, self._graph.modules.numbers)]
