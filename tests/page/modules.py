"""The viewer's modules by themselves, in the browser: to compare them with what Python computes."""

from __future__ import annotations

import re
from typing import Any

from torchlens.draw.layout.layout import Layout
from torchlens.draw.view.elements import Text, View
from torchlens.page.inline import script


def library() -> str:
    """The script of the page without the page: defines `lib`, with what the modules export."""
    text, found = re.subn(r"const app_js = .*", "", script(), flags=re.DOTALL)
    assert found == 1
    names = re.findall(r"^const (\w+)_js = ", text, flags=re.MULTILINE)
    return text + "globalThis.lib = {" + ", ".join(f"...{name}_js" for name in names) + "};"


def texts(lines: tuple[Text, ...]) -> list[list[Any]]:
    return [[line.text, line.bold] for line in lines]


def view_as_data(view: View) -> dict[str, Any]:
    nodes = {node.id: number for number, node in enumerate(view.nodes)}
    groups: dict[str | None, int] = {None: -1} | {group.id: number for number, group in enumerate(view.groups)}
    return {
        "direction": view.direction,
        "nodes": [
            {"lines": texts(n.lines), "shape": n.shape, "dashed": n.dashed, "group": groups[n.group]}
            for n in view.nodes
        ],
        "groups": [{"lines": texts(group.lines), "parent": groups[group.parent]} for group in view.groups],
        "edges": [
            {
                "source": nodes[edge.source],
                "target": nodes[edge.target],
                "label": texts(edge.label),
                "tailLabel": texts(edge.tail_label),
                "headLabel": texts(edge.head_label),
                "dashed": edge.dashed,
                "backward": edge.backward,
            }
            for edge in view.edges
        ],
    }


def layout_as_data(layout: Layout) -> dict[str, Any]:
    return {
        "size": [layout.width, layout.height],
        "nodes": [list(rect) for rect in layout.nodes],
        "groups": [list(rect) for rect in layout.groups],
        "edges": [[list(command) for command in route] for route in layout.edges],
        "groupLabels": [list(label.rect) for label in layout.group_labels],
        "edgeLabels": [[label.owner, *label.rect] for label in layout.edge_labels],
    }


#: From a view as data to its layout as data.
LAY_OUT = """(view) => {
  const lines = (texts) => texts.map(([text, bold]) => new lib.Text(text, bold));
  for (const node of view.nodes) node.lines = lines(node.lines);
  for (const group of view.groups) group.lines = lines(group.lines);
  for (const edge of view.edges) for (const end of ["label", "tailLabel", "headLabel"]) edge[end] = lines(edge[end]);
  const layout = lib.layOut(view);
  const rect = ({ x, y, width, height }) => [x, y, width, height];
  return {
    size: [layout.width, layout.height],
    nodes: layout.nodes.map(rect),
    groups: layout.groups.map(rect),
    edges: layout.edges,
    groupLabels: layout.groupLabels.map((label) => rect(label.rect)),
    edgeLabels: layout.edgeLabels.map((label) => [label.owner, ...rect(label.rect)]),
  };
}"""

#: From the data of a page and a state to what is shown.
SHOW = """([data, mode, depth, fold, gradients, gather]) => {
  const model = (globalThis.model = data ? new lib.Model(data) : globalThis.model).mode(mode);
  const open = new Set();
  model.depth.forEach((each, group) => each < depth && open.add(group));
  const folded = new Set(fold ? model.runs.keys() : []);
  const apart = new Set(gather ? [] : model.gathers.keys());
  const state = { open, folded, apart, buffers: "meaningful", only: null, direction: "topdown", gradients };
  const shown = lib.show(model, state);
  const texts = (lines) => lines.map((line) => [line.text, line.bold]);
  return {
    nodes: shown.nodes.map((n) => ({ lines: texts(n.lines), shape: n.shape, dashed: n.dashed, group: n.group })),
    groups: shown.groups.map((group) => ({ lines: texts(group.lines), parent: group.parent })),
    edges: shown.edges.map((edge) => ({
      source: edge.source, target: edge.target, label: texts(edge.label), tailLabel: texts(edge.tailLabel),
      headLabel: texts(edge.headLabel), dashed: edge.dashed, backward: Boolean(edge.backward),
    })),
  };
}"""
