"""What the layout of one container works with: the boxes in it, and the plan of its layers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .container_tree import Piece
from .lanes import Lane
from .layering import Order

ARROW = 8.0  # length of an arrow's head
CONVERGE = 10.0  # from labels side by side to the node they are for
PAD = 12.0  # inside a group's border
BESIDE = 5.0  # from a line to its label
ASIDE = 10.0  # between lines that end at the same node


@dataclass(slots=True)
class Box:
    """A child as its container sees it: extents across from its axis, length along, and where lines meet it."""

    left: float
    right: float
    length: float
    weight: int = 1
    half: float = 0.0  # of a node, without the room for labels; 0 for a group
    oval: bool = False
    entries: dict[int, float] = field(default_factory=dict)  # by stream, from the axis
    exits: dict[int, float] = field(default_factory=dict)
    exit_ports: dict[int, float] = field(default_factory=dict)  # where a line leaves the node itself, if elsewhere
    tail_room: float = 0.0  # along, for the labels where lines leave
    head_room: float = 0.0
    converges: bool = False  # labels need more room than the node is wide

    def inset(self, port: float) -> float:
        """How far the node's outline lies inside its box, away from its middle."""
        if not self.oval or not port:
            return 0.0
        return self.length / 2 * (1 - math.sqrt(1 - min(1.0, (port / self.half) ** 2)))


@dataclass(slots=True)
class ContainerPlan:
    """What is known about a container before anything is measured."""

    order: Order
    layer: list[int]
    end: int  # the layer of the way out
    direct: list[Piece]
    lanes: list[Lane]
