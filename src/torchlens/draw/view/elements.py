"""The elements of a picture: plain data, with every decision about style already made.

`view/build.py` turns a log into a `View`; the printers (DOT, SVG, PDF) only print it, so that two renderers show
the same thing. Elements that a picture has by the thousands are named tuples, which are three times as fast to create.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Direction = Literal["bottomup", "topdown", "leftright"]


class Text(NamedTuple):
    """One line of text."""

    text: str
    bold: bool = False


class Node(NamedTuple):
    """One box of the picture: an operation, a layer (rolled), or a collapsed module."""

    id: str
    lines: tuple[Text, ...]
    shape: Literal["box", "ellipse", "box3d"] = "ellipse"
    fill: str = "#FFFFFF"
    fill2: str | None = None  # a second colour: the fill is a gradient from `fill` to it
    line: str = "#000000"
    font: str = "#000000"
    pen: float = 1.0
    dashed: bool = False
    group: str | None = None  # id of the innermost group it lies in
    tooltip: str = ""


class Group(NamedTuple):
    """A module call (rolled: a module) drawn as a box around its members; groups nest through `parent`."""

    id: str
    lines: tuple[Text, ...]
    parent: str | None = None
    fill: str | None = None
    line: str = "#000000"
    font: str = "#000000"
    pen: float = 2.0
    dashed: bool = False


class Edge(NamedTuple):
    """An arrow between two nodes. Labels at its ends belong to the tail or the head; `label` is in its middle."""

    source: str
    target: str
    label: tuple[Text, ...] = ()
    tail_label: tuple[Text, ...] = ()  # beside the source, as in "Out 2-3"
    head_label: tuple[Text, ...] = ()  # beside the target, as in "arg 0" or "In 1"
    line: str = "#000000"
    pen: float = 1.0
    dashed: bool = False
    backward: bool = False  # follows the gradient: drawn, but it does not order the nodes

    @property
    def id(self) -> str:
        return f"{self.source} -> {self.target}"


class Module(NamedTuple):
    """A module call (rolled: a module) that the log has, whether the picture shows its inside or not."""

    id: str  # of its group, if there is one: the same however much of the picture is collapsed
    parent: str | None  # id of the module around it
    address: str
    class_name: str
    node: str | None = None  # id of the node that it is drawn as, or that hides it


@dataclass(frozen=True, slots=True)
class Legend:
    """What the colours mean when nodes are coloured by a number: a name and the ends of the scale."""

    title: str
    low: str
    high: str
    colors: tuple[str, ...]  # from low to high


@dataclass(frozen=True, slots=True)
class View:
    """A whole picture. Nodes are in execution order: only a rolled loop has edges from later to earlier ones."""

    title: tuple[Text, ...]
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()
    groups: tuple[Group, ...] = ()  # outer ones before the ones inside them
    direction: Direction = "bottomup"
    background: str = "#FFFFFF"
    font: str = "#000000"
    legend: Legend | None = None
    notes: tuple[str, ...] = field(default=())  # what was left out or folded, for the reader
    modules: tuple[Module, ...] = ()  # all of them, outer ones before the ones inside them
