"""A view as text in Graphviz's DOT language."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from ..view.elements import Edge, Group, Legend, Node, Text, View

_RANKDIR = {"bottomup": "BT", "topdown": "TB", "leftright": "LR"}
_FONT = "Helvetica"
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\\": "\\\\"})
_LEFT = '<br align="left"/>'

Attributes = Mapping[str, str | float]


def print_dot(view: View) -> bytes:
    return to_dot(view).encode()


def to_dot(view: View) -> str:
    """
    >>> from torchlens.draw.view.elements import Edge, Node, Text, View
    >>> nodes = (Node("a", (Text("a", bold=True),)), Node("b", (Text("x < y"),)))
    >>> print(to_dot(View((Text("two"),), nodes, (Edge("a", "b"),))).splitlines()[-2])
      "a" -> "b" [color="#000000", penwidth=1]
    """
    lines = [
        "digraph {",
        f"  graph {_attributes(_graph_attributes(view))}",
        f"  node {_attributes({'fontname': _FONT, 'fontsize': 12, 'margin': '0.14,0.08', 'height': 0.4})}",
        f"  edge {_attributes({'fontname': _FONT, 'fontsize': 10, 'fontcolor': view.font, 'arrowsize': 0.8})}",
        *_body(view),
        *(f"  {_edge(edge, view)}" for edge in view.edges),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _graph_attributes(view: View) -> dict[str, str | float]:
    return {
        "label": _Html(_title(view)),
        "labelloc": "t",
        "labeljust": "l",
        "fontname": _FONT,
        "fontsize": 14,
        "fontcolor": view.font,
        "bgcolor": view.background,
        "rankdir": _RANKDIR[view.direction],
        "ranksep": 0.35,
        "nodesep": 0.3,
        "pad": 0.2,
        "charset": "UTF-8",
        "newrank": "true",
    }


# ---- nodes in boxes -------------------------------------------------------------------------------------------


def _body(view: View) -> Iterator[str]:
    """The nodes, each inside the boxes around it."""
    nodes: dict[str | None, list[Node]] = {}
    for node in view.nodes:
        nodes.setdefault(node.group, []).append(node)
    inner: dict[str | None, list[Group]] = {}
    for group in view.groups:
        inner.setdefault(group.parent, []).append(group)
    numbers = {group.id: number for number, group in enumerate(view.groups)}

    def inside(group: str | None, indent: str) -> Iterator[str]:
        for node in nodes.get(group, ()):
            yield f"{indent}{quoted(node.id)} {_attributes(_node(node))}"
        for box in inner.get(group, ()):
            yield f"{indent}subgraph cluster_{numbers[box.id]} {{"
            yield f"{indent}  graph {_attributes(_group(box))}"
            yield from inside(box.id, indent + "  ")
            yield f"{indent}}}"

    yield from inside(None, "  ")


def _node(node: Node) -> dict[str, str | float]:
    dashed = ",dashed" if node.dashed else ""
    return {
        "label": _Html(_lines(node.lines)),
        "shape": node.shape,
        "style": f"filled{dashed}",
        "fillcolor": node.fill if node.fill2 is None else f"{node.fill}:{node.fill2}",
        "color": node.line,
        "fontcolor": node.font,
        "penwidth": node.pen,
        "tooltip": node.tooltip or node.id,
    }


def _group(group: Group) -> dict[str, str | float]:
    styles = [*(["filled"] if group.fill else []), *(["dashed"] if group.dashed else [])]
    return {
        "label": _Html(_lines(group.lines, _LEFT) + _LEFT),
        "labelloc": "t",
        "labeljust": "l",
        "fontsize": 12,
        "fontcolor": group.font,
        "color": group.line,
        "penwidth": group.pen,
        "style": ",".join(styles) or "solid",
        **({"fillcolor": group.fill} if group.fill else {}),
        "margin": 12,
    }


def _edge(edge: Edge, view: View) -> str:
    attributes: dict[str, str | float] = {"color": edge.line, "penwidth": edge.pen}
    if edge.dashed:
        attributes["style"] = "dashed"
    if edge.backward:
        attributes["constraint"] = "false"
    if edge.label:
        attributes["label"] = _Html(_lines(edge.label))
    if edge.tail_label:
        attributes["taillabel"] = _Html(_lines(edge.tail_label))
    if edge.head_label:
        attributes["headlabel"] = _Html(_lines(edge.head_label))
    if edge.tail_label or edge.head_label:
        attributes |= {"labelfontcolor": view.font, "labelfontsize": 9, "labeldistance": 1.8, "labelangle": 30}
    return f"{quoted(edge.source)} -> {quoted(edge.target)} {_attributes(attributes)}"


# ---- labels ---------------------------------------------------------------------------------------------------


class _Html(str):
    """A label in Graphviz's own little HTML; stands in angle brackets instead of quotes."""


def _lines(lines: Iterable[Text], end: str = "<br/>") -> str:
    return end.join(f"<b>{_escaped(line.text)}</b>" if line.bold else _escaped(line.text) for line in lines) or " "


def _title(view: View) -> str:
    title = _lines(view.title, _LEFT) + _LEFT
    for note in view.notes:
        title += f"<i>{_escaped(note)}</i>{_LEFT}"
    if view.legend is None:
        return title
    return (
        f'<table border="0" cellborder="0" cellspacing="0"><tr><td align="left" balign="left">{title}</td></tr>'
        f'<tr><td align="left">{_scale(view.legend)}</td></tr></table>'
    )


def _scale(legend: Legend) -> str:
    colors = "".join(f'<td bgcolor="{color}" width="24" height="12"></td>' for color in legend.colors)
    return (
        '<table border="0" cellborder="0" cellspacing="0"><tr>'
        f"<td>{_escaped(legend.title)}: {_escaped(legend.low)} </td>{colors}<td> {_escaped(legend.high)}</td>"
        "</tr></table>"
    )


def _escaped(text: str) -> str:
    """Text inside an HTML label, where a backslash means something too. An empty one would be a syntax error."""
    return (printable(text) or " ").translate(_ENTITIES)


def printable(text: str) -> str:
    """Text without what DOT and XML can't represent: control characters and lone surrogates."""
    return re.sub("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]", "\ufffd", text).replace("\n", " ")


def quoted(text: str) -> str:
    r"""
    >>> print(quoted('a "b" \\ c'))
    "a \"b\" \\ c"
    """
    return '"' + printable(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _attributes(attributes: Attributes) -> str:
    return "[" + ", ".join(f"{name}={_value(value)}" for name, value in attributes.items()) + "]"


def _value(value: str | float) -> str:
    if isinstance(value, _Html):
        return f"<{value}>"
    return quoted(value) if isinstance(value, str) else f"{value:g}"
