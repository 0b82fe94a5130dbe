"""From a log to a picture as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..capture.surroundings import collector_held_off
from .amounts import amounts_of
from .boxes import BoxPath
from .edges import Link, backward_edges, find_links, make_edge
from .elements import Edge, Group, Node, View
from .options import DrawOptions
from .overrides import apply_override
from .plan import Plan, Spot, make_plan, prefixes
from .texts import Texts
from .theme import THEMES, on_scale, readable_on

if TYPE_CHECKING:
    from ..log.model_log import ModelLog

_ROLE_FILLS = {"input": "input", "output": "output", "buffer": "buffer", "update": "buffer"}


def make_view(log: ModelLog, options: DrawOptions | None = None) -> View:
    """What a picture of the log shows, with all decisions about looks taken.

    >>> view = make_view(log)
    >>> [node.id for node in view.nodes][:3]
    ['input_1_0', 'add_1_1', 'relu_1_2']
    """
    with collector_held_off():
        return _Painter(log, options or DrawOptions()).paint()


class _Painter:
    def __init__(self, log: ModelLog, options: DrawOptions) -> None:
        self._log = log
        self._options = options
        self._plan: Plan = make_plan(log, options)
        self._texts = Texts(log, self._plan)
        self._theme = THEMES[options.vis_theme]
        self._shares, self._legend = amounts_of(log, self._plan, options, self._layer)
        self._boxes = self._plan.boxes
        self._group_ids = {box: f"box {n}: {self._plan.nesting.name(box)}" for n, box in enumerate(self._boxes)}
        self._deepest = max(map(len, self._boxes), default=0)

        from_input = self._plan.graph.from_input
        spots = [spot for spot in self._plan.spots if any(from_input[place] for place in spot.places)]
        self._spots_from_input = {spot.id for spot in spots}
        self._boxes_from_input = {box for path in {spot.path for spot in spots} for box in prefixes(path)}

    def paint(self) -> View:
        links = find_links(self._plan)
        edges = [self._edge(link) for link in links]
        edges += backward_edges(links, places_with_gradient(self._log), self._theme)
        return View(
            title=self._texts.title(),
            nodes=tuple(self._node(spot) for spot in self._plan.spots),
            edges=tuple(edges),
            groups=tuple(self._group(box) for box in self._boxes),
            direction=self._options.vis_direction,
            background=self._theme.background,
            font=self._theme.font,
            legend=self._legend,
            notes=tuple(self._texts.notes()),
        )

    # ---- nodes ----------------------------------------------------------------------------------------------

    def _node(self, spot: Spot) -> Node:
        fill, fill2 = self._fill(spot)
        font = self._theme.font
        if spot.id in self._shares and not spot.end:
            fill, fill2 = on_scale(self._shares[spot.id]), None
            font = readable_on(fill)
        node = Node(
            id=spot.id,
            lines=self._texts.node(spot),
            shape=self._shape(spot),
            fill=fill,
            fill2=fill2,
            line=self._theme.line,
            font=font,
            dashed=spot.id not in self._spots_from_input,
            group=self._group_ids[spot.path] if spot.path else None,
            tooltip=self._tooltip(spot),
        )
        if spot.end:
            return node
        overrides = self._options.vis_node_overrides if spot.box is None else self._options.vis_module_overrides
        return apply_override(node, overrides, self._record(spot)) if overrides is not None else node

    def _shape(self, spot: Spot) -> Any:
        if spot.box is not None:
            return "box3d"
        return "box" if not spot.end and self._plan.nesting.leaf(spot.places[0]) is not None else "ellipse"

    def _fill(self, spot: Spot) -> tuple[str, str | None]:
        """The colour of the node, and a second one if it shades into that."""
        theme = self._theme
        role = spot.end or ("module" if spot.box is not None else self._plan.graph.entries[spot.places[0]].role)
        if role in _ROLE_FILLS:
            return getattr(theme, _ROLE_FILLS[role]), None
        if self._texts.is_condition(spot):
            return theme.condition, None
        trainable = self._texts.trainable(spot)
        if not trainable:
            return theme.node, None
        if len(trainable) == 2:
            return theme.trainable, theme.frozen
        return theme.trainable if True in trainable else theme.frozen, None

    def _tooltip(self, spot: Spot) -> str:
        if spot.box is not None:
            return self._plan.nesting.address(spot.box)
        value = self._plan.graph.entries[spot.places[0]]
        calls = self._plan.graph.trace.calls
        function = f"{calls[value.call].function.name}, " if value.role == "op" else ""
        return f"{function}{value.dtype}"

    # ---- boxes and edges ------------------------------------------------------------------------------------

    def _group(self, box: BoxPath) -> Group:
        group = Group(
            id=self._group_ids[box],
            lines=self._texts.box(box),
            parent=self._group_ids[box[:-1]] if len(box) > 1 else None,
            line=self._theme.line,
            font=self._theme.font,
            pen=self._pen(len(box)),
            dashed=box not in self._boxes_from_input,
        )
        overrides = self._options.vis_module_overrides
        if overrides is None:
            return group
        return apply_override(group, overrides, self._log.modules[self._plan.nesting.address(box)])

    def _pen(self, depth: int) -> float:
        """The line around a box: the thicker, the further outside; from 5 at most to 2 for the innermost."""
        step = min(1.0, 3.0 / max(self._deepest - 1, 1))
        return round(2.0 + step * (self._deepest - depth), 2)

    def _edge(self, link: Link) -> Edge:
        edge = make_edge(link, self._theme)
        if self._options.vis_edge_overrides is None:
            return edge
        return apply_override(edge, self._options.vis_edge_overrides, *map(self._layer, link.first))

    # ---- what a user's function is given --------------------------------------------------------------------

    def _record(self, spot: Spot) -> Any:
        if spot.box is not None:
            return self._log.modules[self._plan.nesting.address(spot.box)]
        return self._layer(spot.places[0])

    def _layer(self, place: int) -> Any:
        """The operation; in a rolled picture the layer with all its passes."""
        return self._log._layer(self._log.graph.layers[place]) if self._plan.nesting.rolled else self._log._op(place)


def places_with_gradient(log: ModelLog) -> set[int]:
    """The entries whose gradient was logged."""
    if log._trace.gradients is None:
        return set()
    return {place for place in range(len(log.graph.entries)) if log._op(place).gradient is not None}
