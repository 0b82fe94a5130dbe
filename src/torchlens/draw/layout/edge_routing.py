"""How high the layers of a container and the gaps between them are, and the course of each line through them.

Lines run along the flow wherever there are boxes, and change their place across only in the crossing zone between two
layers, where there are none: so no line can cross a box.

    layer n      | boxes, and lines that pass
    gap          | labels at tails | crossing zone | labels at heads, arrows |
    layer n + 1  | boxes, and lines that pass
"""

from __future__ import annotations

from collections.abc import Sequence

from .container_tree import OUTSIDE, Piece
from .lanes import Lane, assign_columns
from .layer_items import LayerItems
from .layout_types import ARROW, ASIDE, BESIDE, CONVERGE, Box, ContainerPlan

CROSSING = 12.0  # the least height of a crossing zone
TRACK = 5.0  # between two lines across in a crossing zone
MOST_TRACKS = 30  # more than this share the room
WIDE = 50.0  # a line that moves farther across gets a track
LANE = 9.0  # between two lanes
STRAIGHT = 0.4


class EdgeRouting:
    """The heights of layers and gaps, and the lines through them, once all positions across are known."""

    def __init__(self, plan: ContainerPlan, boxes: Sequence[Box], layer_items: LayerItems, across: list[float]) -> None:
        items = layer_items.items
        self.plan, self.boxes, self.across = plan, boxes, across
        self.axis = [across[item] for item in layer_items.children]
        self.entry_ports = {stream: across[item] for stream, item in layer_items.entries.items()}
        self.exit_ports = {stream: across[item] for stream, item in layer_items.exits.items()}
        self.left = max(left - at for left, at in zip(items.left, across, strict=True))
        self.right = max(right + at for right, at in zip(items.right, across, strict=True))
        # along the flow, by layer: where it starts and its height; by gap: where its crossing zone begins and ends
        self.start, self.band = [0.0] * (plan.end + 1), [0.0] * (plan.end + 1)
        self.begins, self.ends = [0.0] * plan.end, [0.0] * plan.end
        self.tracks: list[dict[tuple[int, int], int]] = [{} for _ in range(plan.end)]
        self.lane_at: dict[int, float] = {}
        if plan.lanes:
            self._open_lanes()

    def _open_lanes(self) -> None:
        columns = assign_columns(self.plan.lanes)
        first = self.right + ASIDE
        for lane in self.plan.lanes:
            at = first + lane.column * LANE
            for piece in lane.pieces:
                self.lane_at[id(piece)] = at
                if piece.tail == OUTSIDE:
                    self.entry_ports.setdefault(piece.stream, at)
                if piece.head == OUTSIDE:
                    self.exit_ports.setdefault(piece.stream, at)
        self.right = first + (columns - 1) * LANE

    # ---- across ------------------------------------------------------------------------------------------------

    def tail_at(self, piece: Piece) -> float:
        if piece.tail == OUTSIDE:
            return self.entry_ports[piece.stream]
        return self.axis[piece.tail] + self.boxes[piece.tail].exits.get(piece.stream, 0.0)

    def head_at(self, piece: Piece) -> float:
        return self.exit_ports[piece.stream] if piece.head == OUTSIDE else self.axis[piece.head] + piece.slot

    def choose_slots(self) -> None:
        """Where each line ends at its head: at a group's port, or side by side on a node."""
        arriving: list[list[tuple[float, Piece]]] = [[] for _ in self.boxes]
        for piece in self.plan.direct:
            if piece.head != OUTSIDE:
                path = piece.path
                before = self.tail_at(piece) if len(path) == 2 else self.across[path[-2]]
                arriving[piece.head].append((before, piece))
        for lane in self.plan.lanes:
            for piece in lane.pieces:
                if piece.head != OUTSIDE:
                    arriving[piece.head].append((self.lane_at[id(piece)], piece))
        for child, pieces in enumerate(arriving):
            box = self.boxes[child]
            if not box.half:
                for _, piece in pieces:
                    piece.slot = piece.port = box.entries[piece.stream]
            elif any(piece.head_label for _, piece in pieces):
                _slots_with_labels(box, pieces)
            elif pieces:
                _slots(box, pieces, self.axis[child])

    # ---- along -------------------------------------------------------------------------------------------------

    def heights(self, start: float, pad: float) -> float:
        """Fix layers and gaps along the flow; returns the container's length."""
        plan, boxes, end = self.plan, self.boxes, self.plan.end
        band = self.band
        tail_room = [0.0] * (end + 1)
        head_room = [0.0] * (end + 1)
        for child, box in enumerate(boxes):
            layer = plan.layer[child]
            band[layer] = max(band[layer], box.length)
            tail_room[layer] = max(tail_room[layer], box.tail_room)
            head_room[layer - 1] = max(head_room[layer - 1], box.head_room)
        for piece in plan.direct:
            if piece.label and len(piece.path) > 2:
                layer = self._label_layer(piece)
                band[layer] = max(band[layer], piece.label_size[1] + 4)
        crossing = self._crossings()
        if not self.entry_ports:
            crossing[0], head_room[0] = self._only_lanes(0), max(head_room[0], pad)
        if not self.exit_ports:
            crossing[end - 1], tail_room[end - 1] = self._only_lanes(end - 1), max(tail_room[end - 1], pad)
        at = start
        for layer in range(end):
            self.begins[layer] = at + band[layer] + tail_room[layer]
            self.ends[layer] = self.begins[layer] + crossing[layer]
            at = self.start[layer + 1] = self.ends[layer] + head_room[layer]
        return at

    def _label_layer(self, piece: Piece) -> int:
        return (self.plan.layer[piece.tail] + self.plan.layer[piece.head]) // 2

    def _only_lanes(self, gap: int) -> float:
        return CROSSING + TRACK * min(len(self.tracks[gap]), MOST_TRACKS) if self.tracks[gap] else 0.0

    def _crossings(self) -> list[float]:
        """Lines that go far across get a track of their own; returns the height of each crossing zone."""
        plan, across = self.plan, self.across
        farthest = [0.0] * plan.end
        for piece in plan.direct:
            gap = 0 if piece.tail == OUTSIDE else plan.layer[piece.tail]
            at, last = self.tail_at(piece), len(piece.path) - 1
            for step in range(1, last + 1):
                to = self.head_at(piece) if step == last else across[piece.path[step]]
                far = abs(to - at)
                if far > WIDE:
                    tracks = self.tracks[gap]
                    tracks.setdefault((piece.tail, piece.stream), len(tracks))
                elif far > farthest[gap]:
                    farthest[gap] = far
                if far > STRAIGHT:  # as in `_pass_layers`: steps that are too small to be drawn add up
                    at = to
                gap += 1
        for lane in plan.lanes:
            for piece in lane.pieces:
                for gap in self._lane_gaps(piece):
                    tracks = self.tracks[gap]
                    tracks.setdefault(_lane_key(lane), len(tracks))
        return [
            CROSSING + max(min(far * 0.25, 12.0), TRACK * min(len(tracks), MOST_TRACKS))
            for far, tracks in zip(farthest, self.tracks, strict=True)
        ]

    def _lane_gaps(self, piece: Piece) -> tuple[int, int]:
        """The gaps where a piece goes over to its lane, and back from it."""
        first = 0 if piece.tail == OUTSIDE else self.plan.layer[piece.tail]
        last = self.plan.end - 1 if piece.head == OUTSIDE else self.plan.layer[piece.head] - 1
        return first, last

    def _track(self, gap: int, key: tuple[int, int]) -> float:
        tracks = self.tracks[gap]
        begin, end = self.begins[gap], self.ends[gap]
        return begin + (end - begin) * (tracks[key] + 1) / (len(tracks) + 1)

    def places(self) -> list[tuple[float, float]]:
        """Axis and start of each child. A node that is a little shorter than its layer stands in the layer's middle."""
        places = []
        for child, box in enumerate(self.boxes):
            layer = self.plan.layer[child]
            spare = self.band[layer] - box.length
            places.append((self.axis[child], self.start[layer] + (spare / 2 if box.half and spare < 40 else 0.0)))
        return places

    # ---- lines -------------------------------------------------------------------------------------------------

    def draw(self, places: list[tuple[float, float]], length: float) -> None:
        for piece in self.plan.direct:
            self._leave(piece, places)
            self._pass_layers(piece)
            self._arrive(piece, places, length)
        for lane in self.plan.lanes:
            key = _lane_key(lane)
            for piece in lane.pieces:
                self._leave(piece, places)
                self._use_lane(piece, key)
                self._arrive(piece, places, length)

    def _leave(self, piece: Piece, places: list[tuple[float, float]]) -> None:
        at = self.tail_at(piece)
        if piece.tail == OUTSIDE:
            piece.points.append((at, 0.0, None))
            return
        box, (axis, start) = self.boxes[piece.tail], places[piece.tail]
        end = start + box.length
        port = box.exit_ports.get(piece.stream)
        if port is None:
            piece.points.append((at, end - box.inset(at - axis), None))
        else:
            piece.points.append((axis + port, end - box.inset(port), None))
            piece.points.append((axis + port, end, None))
            piece.points.append((at, end + CONVERGE, None))

    def _arrive(self, piece: Piece, places: list[tuple[float, float]], length: float) -> None:
        if piece.head == OUTSIDE:
            piece.points.append((self.head_at(piece), length, None))
            return
        box, (axis, start) = self.boxes[piece.head], places[piece.head]
        if piece.slot != piece.port:
            piece.points.append((axis + piece.slot, start - ARROW - CONVERGE, None))
            piece.points.append((axis + piece.port, start - ARROW, None))
        piece.points.append((axis + piece.port, start + box.inset(piece.port), None))
        if piece.head_label:
            away = ARROW + CONVERGE if box.converges else 2.0
            piece.head_label_at = axis + piece.slot + BESIDE, start - away - piece.head_label_size[1]

    def _pass_layers(self, piece: Piece) -> None:
        points, path = piece.points, piece.path
        gap = 0 if piece.tail == OUTSIDE else self.plan.layer[piece.tail]
        at, last = self.tail_at(piece), len(path) - 1
        for step in range(1, last + 1):
            to = self.head_at(piece) if step == last else self.across[path[step]]
            far = abs(to - at)
            if far > STRAIGHT:
                track = self._track(gap, (piece.tail, piece.stream)) if far > WIDE else None
                points.append((at, self.begins[gap], None))
                points.append((to, self.ends[gap], track))
                at = to
            gap += 1
            if piece.label and last > 1 and step < last and gap == self._label_layer(piece):
                piece.label_at = to + BESIDE, self.start[gap] + (self.band[gap] - piece.label_size[1]) / 2

    def _use_lane(self, piece: Piece, key: tuple[int, int]) -> None:
        lane, points = self.lane_at[id(piece)], piece.points
        first, last = self._lane_gaps(piece)
        onward = first < last  # else a loop, which turns back
        at, to = self.tail_at(piece), self.head_at(piece)
        if abs(lane - at) > STRAIGHT:
            points.append((at, self.begins[first], None))
            points.append((lane, self.ends[first] if onward else self.begins[first], self._track(first, key)))
        if abs(to - lane) > STRAIGHT:
            points.append((lane, self.begins[last] if onward else self.ends[last], None))
            points.append((to, self.ends[last], self._track(last, key)))


def _lane_key(lane: Lane) -> tuple[int, int]:
    return -2, lane.column  # no child has the number -2


def _slots(box: Box, pieces: list[tuple[float, Piece]], axis: float) -> None:
    """Lines without labels end side by side, in the order they come from, the straightest about in the middle."""
    middle = 0
    if len(pieces) > 1:
        pieces.sort(key=lambda arrival: arrival[0])
        middle = min(range(len(pieces)), key=lambda index: abs(pieces[index][0] - axis))
    aside = pieces[middle][0] - axis
    if abs(aside) > 0.4 * box.half:
        aside = 0.0
    step = min(ASIDE, (0.7 * box.half - abs(aside)) / max(1, middle, len(pieces) - 1 - middle))
    for index, (_, piece) in enumerate(pieces):
        piece.slot = piece.port = aside + (index - middle) * step


def _slots_with_labels(box: Box, pieces: list[tuple[float, Piece]]) -> None:
    """Lines with labels come in beside each other, wide enough for the labels, and converge at the node."""
    if len(pieces) == 1:
        return
    pieces.sort(key=lambda arrival: arrival[0])
    at = -slots_width([piece for _, piece in pieces]) / 2
    for _, piece in pieces:
        piece.slot = piece.port = at + ASIDE / 2
        if box.converges:
            piece.port *= 0.7 * box.half / max(box.left, box.right)
        at += _slot_width(piece.head_label_size[0])


def slots_width(pieces: Sequence[Piece]) -> float:
    return sum(_slot_width(piece.head_label_size[0]) for piece in pieces)


def _slot_width(label: float) -> float:
    return ASIDE + (label + BESIDE if label else 0.0)
