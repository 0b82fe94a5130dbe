"""A layer of several passes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..aliases import LAYER_ATTRIBUTES, Aliased
from ..errors import PassNeededError, near
from ..graph.graph import Graph
from . import text
from .listing import Numbered, layer_line
from .op_log import OpLog
from .tables import Tabular

_DIFFER_BY_NATURE = {
    "activation", "captured_args", "captured_kwargs", "func_rng_states", "gradient", "gradients", "label",
    "layer_label_w_pass", "lookup_keys", "operation_num", "pass_num", "recurrent_group", "transformed_activation",
    "transformed_gradient", "transformed_gradients",
}  # fmt: skip


class LayerLog(Tabular, Aliased):
    """One layer that ran several times.

    >>> layer = recurrent_log["linear_1_1"]
    >>> layer.num_passes, layer.tensor_shape
    (3, (5, 5))
    >>> layer.passes[2].activation.shape
    torch.Size([5, 5])

    What all passes agree on is answered directly; for the rest, ask one pass.
    """

    _aliases = LAYER_ATTRIBUTES

    def __init__(self, graph: Graph, layer: int) -> None:
        self._graph = graph
        self._layer = layer

    def __str__(self) -> str:
        return text.describe_layer(self)

    def __repr__(self) -> str:
        return layer_line(self)

    def _repr_html_(self) -> str:
        from .html import layer_html

        return layer_html(self)

    def _table_records(self) -> Iterable[OpLog]:
        return self.passes.values()

    @property
    def layer_label(self) -> str:
        return self._graph.layer_labels[self._layer]

    @property
    def passes(self) -> dict[int, OpLog]:
        """The operations of this layer, by pass; the first is 1."""
        places = self._graph.layer_entries[self._layer]
        return Numbered((number, OpLog(self._graph, place)) for number, place in enumerate(places, 1))

    @property
    def num_passes(self) -> int:
        return len(self._graph.layer_entries[self._layer])

    def __len__(self) -> int:
        return self.num_passes

    @property
    def macs(self) -> int:
        """Multiply-adds of all passes."""
        return sum(op.macs for op in self.passes.values())

    @property
    def flops(self) -> int | None:
        """Floating point operations of all passes; None where there is no formula."""
        each = [op.flops for op in self.passes.values()]
        return None if None in each else sum(filter(None, each))

    @property
    def func_time(self) -> float:
        """Seconds spent in the function over all passes."""
        return sum(op.func_time for op in self.passes.values())

    @property
    def parent_layers(self) -> list[str]:
        """The layers that any pass takes from, without passes."""
        return self._neighbours(self._graph.parents)

    @property
    def child_layers(self) -> list[str]:
        """The layers that any pass gives to, without passes."""
        return self._neighbours(self._graph.children)

    def _neighbours(self, neighbours: Any) -> list[str]:
        graph = self._graph
        places = [place for entry in graph.layer_entries[self._layer] for place in neighbours[entry]]
        return [graph.layer_labels[layer] for layer in dict.fromkeys(graph.layers[place] for place in places)]

    def __getattr__(self, name: str) -> Any:
        name = self._aliases.get(name, name)
        if name in type(self).__dict__:
            return getattr(self, name)
        if name.startswith("_") or not hasattr(OpLog, name):
            return super().__getattr__(name)
        if name not in _DIFFER_BY_NATURE:
            answers = [getattr(op, name) for op in self.passes.values()]
            if all(answer == answers[0] for answer in answers):
                return answers[0]
        label = self.layer_label
        raise PassNeededError(
            f"{label} has {self.num_passes} passes, and {name!r} differs between them; "
            f"ask one pass: log['{label}:1'].{name} or layer.passes[1].{name}"
        )

    def _hint(self, name: str) -> str:
        return near(name, [each for each in (*dir(self), *self._aliases) if not each.startswith("_")])

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in dir(OpLog) if not name.startswith("_"))})
