"""Build the view of a log: its picture as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...capture.surroundings import without_collector
from ...graph.graph import Graph
from .color_by import amounts_of
from .contents import Contents, Spot, make_contents, prefixes
from .drawable import Drawable
from .elements import Edge, Group, Module, Node, View
from .links import Link, backward_edges, find_links, make_edge
from .module_boxes import BoxPath
from .overrides import apply_override
from .texts import Texts
from .theme import EDITED_PEN, THEMES, Theme, on_scale, readable_on
from .view_options import ViewOptions

_ROLE_FILLS = {"input": "input", "output": "output", "buffer": "buffer", "update": "buffer"}


@without_collector
def make_view(log: Drawable, options: ViewOptions | None = None) -> View:
    """What a picture of the log shows, with all decisions about looks taken.

    >>> view = make_view(log)
    >>> [node.id for node in view.nodes][:3]
    ['input_1_0', 'add_1_1', 'relu_1_2']
    """
    return ViewBuilder(log, options or ViewOptions()).build()


class ViewBuilder:
    """Nodes, edges and groups with all their words and colours, for one log and its options."""

    def __init__(self, log: Drawable, options: ViewOptions, theme: Theme | None = None) -> None:
        self._log = log
        self._options = options
        self.contents: Contents = make_contents(log, options)
        self._texts = Texts(log, self.contents)
        self._theme = theme or THEMES[options.vis_theme]
        self._shares, self._legend = amounts_of(log, self.contents, options, self._layer)
        self._boxes = self.contents.boxes
        names = self.contents.module_boxes.name
        self._group_ids = {box: f"box {n}: {names(box)}" for n, box in enumerate(self.contents.all_boxes)}
        self._deepest = max(map(len, self._boxes), default=0)

        self._spots_from_input: set[str] = set()
        spots = self.note_input(self.contents.spots)
        self._boxes_from_input = {box for path in {spot.path for spot in spots} for box in prefixes(path)}

    def note_input(self, spots: list[Spot]) -> list[Spot]:
        """Those that depend on the input, which are not drawn dashed."""
        from_input = self.contents.graph.from_input
        reached = [spot for spot in spots if any(from_input[place] for place in spot.places)]
        self._spots_from_input |= {spot.id for spot in reached}
        return reached

    def build(self) -> View:
        links = find_links(self.contents)
        edges = [self._edge(link) for link in links]
        edges += backward_edges(links, places_with_gradient(self.contents.graph), self._theme)
        return View(
            title=self._texts.title(),
            nodes=tuple(self.node(spot) for spot in self.contents.spots),
            edges=tuple(edges),
            groups=tuple(self.group(box) for box in self._boxes),
            direction=self._options.vis_direction,
            background=self._theme.background,
            font=self._theme.font,
            legend=self._legend,
            notes=tuple(self._texts.notes()),
            modules=tuple(self._modules()),
        )

    def _modules(self) -> Iterator[Module]:
        """Every module, with the node that stands for it where it is collapsed or lies in one that is."""
        drawn_as = {spot.box: spot.id for spot in self.contents.spots if spot.box is not None}
        boxes, ids = self.contents.module_boxes, self._group_ids
        for box in self.contents.all_boxes:
            outer = box[:-1]
            if outer in drawn_as:
                drawn_as[box] = drawn_as[outer]
            yield Module(ids[box], ids.get(outer), boxes.address(box), boxes.class_name(box), drawn_as.get(box))

    # ---- nodes ----------------------------------------------------------------------------------------------

    def node(self, spot: Spot) -> Node:
        fill, fill2 = self._fill(spot)
        font = self._theme.font
        if spot.id in self._shares and not spot.end:
            fill, fill2 = on_scale(self._shares[spot.id]), None
            font = readable_on(fill)
        is_edited = not spot.end and any(place in self.contents.graph.edited.entries for place in spot.places)
        node = Node(
            id=spot.id,
            lines=self._texts.node(spot),
            shape=self._shape(spot),
            fill=fill,
            fill2=fill2,
            line=self._theme.edited if is_edited else self._theme.line,
            pen=EDITED_PEN if is_edited else 1.0,
            font=font,
            dashed=spot.id not in self._spots_from_input,
            group=self._group_ids[spot.path] if spot.path else None,
            tooltip=self._tooltip(spot),
        )
        if spot.end:
            return node
        overrides = self._options.vis_node_overrides if spot.box is None else self._options.vis_module_overrides
        if overrides is None:
            return node
        changed = (apply_override(node, overrides, record) for record in self._records(spot))
        return next((each for each in changed if each != node), node)

    def _shape(self, spot: Spot) -> Any:
        if spot.box is not None:
            return "box3d"
        return "box" if not spot.end and self.contents.module_boxes.leaf(spot.places[0]) is not None else "ellipse"

    def _fill(self, spot: Spot) -> tuple[str, str | None]:
        """The colour of the node, and a second one if it shades into that."""
        theme = self._theme
        role = spot.end or ("module" if spot.box is not None else self.contents.graph.entries[spot.places[0]].role)
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
            return self.contents.module_boxes.address(spot.box)
        value = self.contents.graph.entries[spot.places[0]]
        calls = self.contents.graph.trace.calls
        function = [calls[value.call].function.name] if value.role == "op" else []
        address = [self.contents.module_boxes.address_of(spot.places[0]) or ""]
        return ", ".join(filter(None, [*address, *function, str(value.dtype)]))

    # ---- boxes and edges ------------------------------------------------------------------------------------

    def group(self, box: BoxPath) -> Group:
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
        return apply_override(group, overrides, self._log.modules[self.contents.module_boxes.address(box)])

    def _pen(self, depth: int) -> float:
        """The width of a box's border: thicker for outer boxes, from at most 5 to 2 for the innermost."""
        step = min(1.0, 3.0 / max(self._deepest - 1, 1))
        return round(2.0 + step * (self._deepest - depth), 2)

    def _edge(self, link: Link) -> Edge:
        edge = make_edge(link, self.contents.graph, self._theme)
        if self._options.vis_edge_overrides is None:
            return edge
        return apply_override(edge, self._options.vis_edge_overrides, *map(self._layer, link.first))

    # ---- what a user's function is given --------------------------------------------------------------------

    def _records(self, spot: Spot) -> list[Any]:
        """What a node stands for; of several that are drawn as one, the first that is to look otherwise decides."""
        if spot.box is not None:
            return [self._log.modules[self.contents.module_boxes.address(spot.box)]]
        return list(map(self._layer, spot.places if spot.gathered else spot.places[:1]))

    def _layer(self, place: int) -> Any:
        """The operation; in a rolled picture the layer with all its passes."""
        return self._log.layer_at(place, self.contents.module_boxes.rolled)


def places_with_gradient(graph: Graph) -> set[int]:
    """The entries whose gradient was logged."""
    gradients = graph.trace.gradients
    if gradients is None:
        return set()
    reached = {index for index, by_pass in gradients.received.items() if any(g is not None for g in by_pass.values())}
    return {place for place, value in enumerate(graph.entries) if value.index in reached}
