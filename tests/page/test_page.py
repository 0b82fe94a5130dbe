"""The page in a real browser: it opens, and does what it is asked by mouse and by keyboard."""

from __future__ import annotations

import copy
import html
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.page.browser import Tab
from torch import Tensor, nn

import torchlens as tl
from torchlens.page import embed
from torchlens.page.write import two_logs

Opened = Callable[..., Tab]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mlp(self.norm(x))


class Stack(nn.Module):
    """Blocks in blocks, many enough that not all are open at first, and a skip over all of them."""

    def __init__(self, blocks: int = 16) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(blocks)])
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        first = x
        for block in self.blocks:
            x = block(x)
        return self.head(x + first).softmax(-1)


class Loop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(2, 4)
        for step in x:
            state = self.cell(step, state)
        return state


@pytest.fixture(scope="module")
def stack() -> tl.ModelLog:
    torch.manual_seed(0)
    return tl.log_forward_pass(Stack(), torch.rand(3, 8))


# Where a node or module is in the window, by its name.
CENTRE = """(name) => {
  const { pane } = torchlens;
  const index = pane.scene.shown.nodes.findIndex((node) => node.lines[0].text === name);
  const group = pane.scene.shown.groups.findIndex((group) => group.lines[0].text === name);
  const rect = index >= 0 ? pane.scene.layout.nodes[index] : pane.scene.layout.groups[group];
  const box = pane.canvas.getBoundingClientRect();
  const { x, y, k } = pane.camera;
  const at = (u, v) => [box.left + (u - x) * k, box.top + (v - y) * k];
  const [left, top] = at(rect.x, rect.y);
  const [right, bottom] = at(rect.x + rect.width, rect.y + rect.height);
  return { x: (left + right) / 2, y: (top + bottom) / 2, left, top, right, bottom, open: index < 0 };
}"""
SELECTED = "() => torchlens.selectionWords()"


def test_opens_readable_and_asks_for_nothing(opened: Opened, stack: tl.ModelLog) -> None:
    tab = opened(stack)
    assert 10 <= tab.run("() => torchlens.pane.scene.shown.nodes.length") <= 60
    assert tab.page.title() == "Stack - torchlens"
    assert "operations" in tab.page.inner_text("#counts")
    assert tab.page.inner_text("#inspector h2") == "Stack"
    assert tab.page.locator("[role=treeitem]").count() > 10
    assert len(tab.requests) == 1  # the file itself
    pixels = "() => new Set(torchlens.pane.ctx.getImageData(0, 0, 900, 600).data).size"
    tab.page.wait_for_function(f"({pixels})() > 20")  # something is painted


def test_a_module_opens_under_the_pointer_and_closes(opened: Opened, stack: tl.ModelLog) -> None:
    tab = opened(stack, "#depth=1")
    tab.run("() => torchlens.pane.zoom(1.5)")
    at = tab.run(CENTRE, "@blocks.3")
    tab.page.mouse.dblclick(at["x"], at["y"])
    after = tab.run(CENTRE, "@blocks.3")
    assert after["open"] and not at["open"]
    assert after["left"] <= at["x"] <= after["right"] and after["top"] <= at["y"] <= after["bottom"]
    assert after["top"] == pytest.approx(at["top"], abs=1) and after["x"] == pytest.approx(at["x"], abs=1)
    assert tab.run(SELECTED) == "module blocks.3, open"
    corner = after["left"] + 3, after["top"] + 3
    tab.page.mouse.dblclick(*corner)
    closed = tab.run(CENTRE, "@blocks.3")
    assert not closed["open"]
    assert closed["left"] <= corner[0] <= closed["right"] and closed["top"] <= corner[1] <= closed["bottom"]


def test_every_edge_stays_connected_at_every_depth(opened: Opened, stack: tl.ModelLog) -> None:
    tab = opened(stack)
    script = """(depth) => {
      torchlens.pane.setDepth(depth);
      const { shown } = torchlens.pane.scene;
      const drawn = new Set(shown.edges.map((edge) => `${edge.source} ${edge.target}`));
      const { parents } = torchlens.pane.model;
      return parents.flatMap((from, place) => from.map((parent) => [shown.shownBy[parent], shown.shownBy[place]]))
        .filter(([a, b]) => a >= 0 && b >= 0 && a !== b && !drawn.has(`${a} ${b}`)).length;
    }"""
    assert [tab.run(script, depth) for depth in (1, 2, 3, 4)] == [0, 0, 0, 0]


def test_click_shows_everything_about_an_operation(opened: Opened, stack: tl.ModelLog) -> None:
    tab = opened(stack, "#depth=4")
    tab.page.fill("#search", "relu_3")
    tab.key("Enter")
    tab.page.wait_for_selector("#inspector canvas.histogram")
    text = tab.page.inner_text("#inspector")
    assert "relu_3_13" in text and "3x16" in text and "float32" in text
    assert "return x + self.mlp(self.norm(x))" in text  # the line of code
    assert "PARENTS" in text and "linear_5_12" in text
    assert 'log["relu_3_13"].activation' in text
    assert tab.page.locator("#inspector canvas.histogram").count() == 1
    assert tab.page.locator("#inspector canvas.thumbnail").count() == 1
    tab.page.locator("#inspector .links button", has_text="linear_5_12").click()
    assert tab.run(SELECTED).startswith("linear_5_12")


def test_search_by_fields(opened: Opened, stack: tl.ModelLog) -> None:
    tab = opened(stack)

    def found(query: str) -> list[str]:
        tab.page.fill("#search", query)
        return tab.run("() => torchlens.searchBox.hits.map((place) => torchlens.pane.model.ops.label[place])")

    assert found("softmax") == ["softmax_1_83"]
    assert len(found("type:relu")) == 16 and len(found("shape:16")) == 32
    assert found("module:blocks.7 type:linear") == ["linear_15_37", "linear_16_39"]
    assert len(found("params>140")) == 16 and found("class:Block shape:2") == []
    assert len(found("time>0ns")) > 10 and found("nan:true") == [] and found("param:head.weight") == ["linear_33_82"]
    assert found("no such thing") == [] and tab.page.inner_text("#found") == "0 matches"
    found("softmax")
    tab.key("Enter")
    assert tab.run(SELECTED).startswith("softmax_1_83") and "op=softmax_1_83" in tab.page.url


def test_a_link_and_a_reload_bring_the_state_back(opened: Opened, stack: tl.ModelLog) -> None:
    tab = opened(stack, "#op=relu_5_23&colour=memory&theme=dark&direction=leftright")
    assert tab.run(SELECTED).startswith("relu_5_23")
    state = """() => [torchlens.selectionWords(), torchlens.pane.scene.shown.nodes.length, torchlens.overlay,
                      document.documentElement.dataset.theme, torchlens.pane.state.direction]"""
    before = tab.run(state)
    tab.page.reload()
    tab.page.wait_for_selector("body.ready")
    assert tab.run(state) == before
    assert before[2:] == ["memory", "dark", "leftright"]


def test_nonsense_in_a_link_is_left_out(opened: Opened, stack: tl.ModelLog) -> None:
    tab = opened(stack, "#op=nothing&open=1e9.-3.x&depth=zero&fold=77&colour=<b>&mode=rolled&module=%00")
    assert tab.run(SELECTED) == "nothing selected" and tab.page.inner_text("#found") == "no nothing here"
    assert "colour" not in tab.page.url and tab.page.input_value("#colour") == ""


def test_a_link_to_a_module_by_its_address(opened: Opened, stack: tl.ModelLog) -> None:
    tab = opened(stack, "#op=blocks.3.mlp")
    assert tab.run(SELECTED) == "module blocks.3.mlp, closed"
    assert tab.page.locator("#breadcrumb button").all_inner_texts() == ["Stack", "blocks.3", "mlp"]


def test_repeats_fold_and_unfold(opened: Opened, stack: tl.ModelLog) -> None:
    tab = opened(stack, "#depth=1")
    names = "() => torchlens.pane.scene.shown.nodes.map((node) => node.lines[0].text)"
    assert tab.run(names).count("@blocks.4") == 1
    tab.page.click("#fold")
    assert tab.run(names)[1] == "@blocks.0 ... @blocks.15 (x16)" and len(tab.run(names)) == 6
    tab.page.click("#fold")
    assert tab.run(names).count("@blocks.4") == 1
    tab.page.click("#fold")
    tab.page.fill("#search", "module:blocks.9 type:relu")
    tab.key("Enter")  # what is looked for is shown, unfolded as far as needed
    assert tab.run(SELECTED).startswith("relu_10")


def test_rolled_and_unrolled(opened: Opened) -> None:
    tab = opened(tl.log_forward_pass(Loop(), torch.rand(4, 2, 3)))
    names = "() => torchlens.pane.scene.shown.nodes.map((node) => node.lines[0].text)"
    assert "grucell_1_6:4" in tab.run(names)
    tab.page.click("#mode-rolled")
    assert "grucell_1_6 (x4)" in tab.run(names)
    tab.key("r")
    assert "grucell_1_6:4" in tab.run(names)


def test_a_long_loop_is_rolled_up_at_first(opened: Opened) -> None:
    log = tl.log_forward_pass(Loop(), torch.rand(300, 2, 3))
    tab = opened(log)
    assert tab.run("() => torchlens.pane.modeName") == "rolled"
    tab.page.click("#mode-unrolled")
    tab.page.reload()
    tab.page.wait_for_selector("body.ready")
    assert tab.run("() => torchlens.pane.modeName") == "unrolled"


class Cached(nn.Module):
    """Returns more than can be read, as language models return their keys and values."""

    def forward(self, x: Tensor) -> dict[str, object]:
        kept = []
        for _ in range(20):
            x = (x + 1).relu()
            kept.append((x * 2, x * 3))
        return {"y": x, "cache": kept}


def test_many_outputs_are_drawn_as_one_and_apart(opened: Opened) -> None:
    log = tl.log_forward_pass(Cached(), torch.rand(2, 3))
    tab = opened(log)
    outputs = """() => torchlens.pane.scene.shown.nodes.map((node) => node.lines[0].text)
      .filter((name) => name.startsWith("output"))"""
    first, last = log.output_layers[1], log.output_layers[-1]
    together = [log.output_layers[0], f"{first} ... {last}"]
    assert tab.run(outputs) == together
    tab.page.fill("#search", last)
    tab.key("Enter")  # it is selected where it is drawn
    assert tab.run(SELECTED).startswith(last) and tab.run(outputs) == together
    at = tab.run(CENTRE, together[1])
    tab.page.mouse.dblclick(at["x"], at["y"])
    assert tab.run(outputs) == list(log.output_layers)
    after = tab.run(CENTRE, first)
    assert after["left"] <= at["x"] <= after["right"] and after["top"] <= at["y"] <= after["bottom"]
    tab.page.reload()
    tab.page.wait_for_selector("body.ready")
    assert tab.run(outputs) == list(log.output_layers)
    tab.page.locator("#inspector button", has_text="Draw 40 as one").click()
    assert tab.run(outputs) == together
    tab.page.focus("canvas.graph")
    tab.key("Enter")
    assert tab.run(outputs) == list(log.output_layers)


def test_folding_lists_no_hidden_buffers(opened: Opened) -> None:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)) for _ in range(4)])
    tab = opened(tl.log_forward_pass(model, torch.rand(3, 4)), "#depth=9")
    rows = "() => torchlens.outline.rows.map((row) => row.item < 0 ? '' : torchlens.pane.mode.nodes.id[row.item])"
    before = tab.run(rows)
    tab.page.click("#fold")
    assert [row for row in tab.run(rows) if "buffer" in row] == [row for row in before if "buffer" in row] == []


def test_colours_by_number_and_own_numbers(opened: Opened, stack: tl.ModelLog) -> None:
    scores = {op.label: float(number) for number, op in enumerate(stack)}
    tab = opened(stack, numbers={"score": scores, "shape": lambda op: op.tensor_shape[-1]})
    options = tab.page.locator("#colour option").all_inner_texts()
    assert options[:5] == ["by kind", "Time", "Memory", "FLOPs", "Parameters"] and options[-2:] == ["score", "shape"]
    for value in tab.run("() => [...document.querySelectorAll('#colour option')].map((option) => option.value)"):
        tab.page.select_option("#colour", value)
        assert tab.page.is_visible("#legend") == bool(value)
    last = "() => torchlens.pane.fillOf(torchlens.pane.scene.shown.nodes.length - 1)[0]"
    tab.page.select_option("#colour", "own:score")
    assert tab.run(last) == "rgb(139,0,0)"  # the largest number, the dark end of the scale
    most = len(stack) - 1
    legend = tab.page.inner_text("#legend").splitlines()
    assert legend[1:4] == ["0", f"{most / 4:g}", str(most)] and legend[4].startswith("not linear: half the bar")


def test_walk(opened: Opened, stack: tl.ModelLog) -> None:
    tab = opened(stack, "#depth=1")
    tab.page.click("#walk-button")
    assert tab.page.inner_text("#walk-where").startswith("1 of 21: input_1_0")
    tab.page.click("#walk-on")
    tab.key(".")
    assert tab.page.inner_text("#walk-where").startswith("3 of 21")
    tab.key(",")
    assert tab.run(SELECTED) == "module blocks.0, closed"
    assert tab.page.inner_text("#walk-line") == "return x + self.mlp(self.norm(x))"
    tab.run("() => { torchlens.walk.interval = 15; torchlens.walk.play(); }")
    tab.page.wait_for_function("() => torchlens.walk.step === 20 && !torchlens.walk.isPlaying")
    assert tab.run(SELECTED).startswith("output_1_84")
    tab.key("Escape")
    assert not tab.page.is_visible("#walk")


def test_space_plays_a_walk_that_was_begun_with_the_mouse(opened: Opened, stack: tl.ModelLog) -> None:
    tab = opened(stack, "#depth=1")
    tab.run("() => { torchlens.walk.interval = 15; }")
    tab.page.click("#walk-button")
    tab.key(" ")
    tab.page.wait_for_function("() => torchlens.walk.step === 20 && !torchlens.walk.isPlaying")
    tab.page.click("#walk-end")
    assert not tab.page.is_visible("#walk")
    tab.key("ArrowDown")  # the graph has the focus again
    assert tab.run(SELECTED) != "nothing selected"


def test_a_walk_on_a_phone(opened: Opened, stack: tl.ModelLog) -> None:
    tab = opened(stack, "#depth=1", browser_options={"viewport": {"width": 390, "height": 800}})
    tab.page.click("#menu-button")
    tab.page.click("#walk-button")
    for _ in range(3):
        tab.page.click("#walk-on", timeout=3000)  # fails if something lies over it
    assert tab.page.inner_text("#walk-where").startswith("4 of 21")
    assert not tab.page.is_visible("#menu")


def test_details_on_a_phone_do_not_lie_over_what_is_selected(opened: Opened, stack: tl.ModelLog) -> None:
    tab = opened(stack, "#op=relu_7_33", browser_options={"viewport": {"width": 390, "height": 800}})
    tab.page.wait_for_selector("#inspector canvas.histogram", state="attached")
    top = tab.page.locator("#inspector").bounding_box()
    assert top is not None and tab.run(CENTRE, "relu_7_33")["bottom"] < top["y"]


def test_keyboard_only(opened: Opened, stack: tl.ModelLog) -> None:
    tab = opened(stack, "#depth=1")
    tab.page.focus("canvas.graph")
    tab.key("ArrowDown")
    assert tab.run(SELECTED).startswith("input_1_0")
    tab.key("ArrowDown")
    assert tab.run(SELECTED) == "module blocks.0, closed"
    tab.key("Enter")
    assert tab.run(SELECTED) == "module blocks.0, open"
    tab.key("]")
    assert tab.page.inner_text("#depth") == "2"
    tab.key("[")
    tab.key("Escape")
    tab.key("/")
    tab.page.keyboard.type("softmax")
    tab.key("Enter")
    tab.key("Escape")
    tab.key("u")
    assert tab.run("() => torchlens.pane.litPlaces.size") == len(stack) - 1
    tab.page.focus("[role=treeitem][tabindex='0']")
    tab.key("Home")
    tab.key("ArrowDown")
    tab.key("ArrowRight")
    focused = "() => [document.activeElement.dataset.name, document.activeElement.getAttribute('aria-expanded')]"
    assert tab.run(focused) == ["blocks.0", "true"]
    tab.key("ArrowLeft")
    assert tab.run(focused) == ["blocks.0", "false"]
    tab.key("Enter")
    assert tab.run(SELECTED) == "module blocks.0, closed"


def test_an_edge_says_what_flows_along_it(opened: Opened, stack: tl.ModelLog) -> None:
    tab = opened(stack, "#depth=1")
    one, other = tab.run(CENTRE, "input_1_0"), tab.run(CENTRE, "@blocks.0")
    for share in (0.3, 0.5, 0.7):
        tab.page.mouse.move(one["x"], one["bottom"] + share * (other["top"] - one["bottom"]))
        if tab.page.is_visible("#tip"):
            break
    assert tab.page.inner_text("#tip") == "input_1_0 → @blocks.0\n3x8 float32"


def test_mouse_on_the_graph_and_the_map(opened: Opened, stack: tl.ModelLog) -> None:
    tab = opened(stack, "#depth=2")
    camera = "() => { const { x, y, k } = torchlens.pane.camera; return [x, y, k]; }"
    x, y, k = tab.run(camera)
    tab.page.mouse.move(700, 500)
    tab.page.mouse.down()
    tab.page.mouse.move(650, 380, steps=3)
    tab.page.mouse.up()
    assert tab.run(camera) == pytest.approx([x + 50 / k, y + 120 / k, k])
    tab.page.mouse.wheel(0, -200)
    tab.page.wait_for_function(f"() => torchlens.pane.camera.k > {k}")
    tab.page.click("#fit")
    tab.page.mouse.move(700, 500)
    tab.page.mouse.wheel(0, -2000)
    tab.page.wait_for_function("() => !document.getElementById('minimap').classList.contains('whole')")
    box = tab.page.locator("#minimap").bounding_box()
    assert box is not None
    tab.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.9)
    middle = """() => {
      const { camera, size, scene } = torchlens.pane;
      return (camera.y + size.height / camera.k / 2) / scene.height;
    }"""
    assert tab.run(middle) == pytest.approx(0.9, abs=0.02)


def test_the_way_between_two_by_mouse_and_by_keys(opened: Opened, stack: tl.ModelLog) -> None:
    tab = opened(stack, "#depth=1&op=blocks.2")
    lit = "() => torchlens.pane.litPlaces?.size ?? 0"
    tab.page.focus("canvas.graph")
    tab.key("p")
    for _ in range(3):
        tab.key("ArrowRight")
    tab.key("p")
    found = tab.run(lit)
    assert found == 4 * 5 and tab.page.inner_text("#found") == "20 on the way"  # all of four blocks
    tab.key("Escape")
    assert tab.run(lit) == 0
    tab.page.click("#fit")
    for name, keys in (("@blocks.2", ()), ("@blocks.5", ("Shift",))):
        at = tab.run(CENTRE, name)
        for key in keys:
            tab.page.keyboard.down(key)
        tab.page.mouse.click(at["x"], at["y"])
    assert tab.run(lit) == found


def test_buffers_are_hidden_and_shown(opened: Opened) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(4)
            self.register_buffer("scale", torch.tensor(2.0))

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(x) * self.scale

    tab = opened(tl.log_forward_pass(Scaled(), torch.rand(3, 4)))
    tab.page.click("#menu-button")
    shown = {}
    for choice in ("meaningful", "always", "never"):
        tab.page.select_option("#buffers", choice)
        shown[choice] = tab.run(
            "() => torchlens.pane.scene.shown.nodes.filter((node) => node.lines[0].text.startsWith('buffer')).length"
        )
    assert shown["meaningful"] == 1 < shown["always"] and shown["never"] == 0


def test_what_a_screen_reader_is_told(opened: Opened, stack: tl.ModelLog) -> None:
    tab = opened(stack, "#depth=2&op=relu_1_3&colour=time")
    tree = tab.context.new_cdp_session(tab.page).send("Accessibility.getFullAXTree")["nodes"]
    seen: dict[str, list[tuple[str, Any]]] = {}
    for node in [node for node in tree if not node["ignored"]]:
        facts = {each["name"]: each["value"].get("value") for each in node.get("properties", [])}
        seen.setdefault(node["role"]["value"], []).append((node["name"]["value"] if "name" in node else "", facts))
    names = {role: [name for name, _ in found] for role, found in seen.items()}
    rows = dict(seen["treeitem"])
    assert rows["blocks.0 Block"]["expanded"] and rows["blocks.0 Block"]["level"] == 1
    assert [facts["expanded"] for name, facts in seen["treeitem"] if name == "mlp Sequential"][:2] == [True, False]
    assert rows["relu_1_3 3x16"]["selected"]
    assert names["heading"][:2] == ["Stack", "relu_1_3"] and {"VALUE", "SOURCE", "PARENTS"} <= set(names["heading"])
    assert all(names["button"]) and all(names["combobox"]) and names["searchbox"] == ["search operations"]
    assert any(name.startswith("histogram from") for name in names["image"])
    assert {"lines of code", "what the colours mean"} <= set(names["group"])
    assert tab.page.locator("[aria-current=true].line").first.inner_text().split(maxsplit=1)[1].startswith("return")
    assert tab.page.inner_text("#said").startswith("relu_1_3")
    for width, is_seen in ((1500, "true"), (390, "false")):
        tab.page.set_viewport_size({"width": width, "height": 800})
        tab.page.wait_for_function(
            "(seen) => document.getElementById('outline-button').getAttribute('aria-expanded') === seen", arg=is_seen
        )
        tab.page.click("#outline-button")
        assert tab.page.get_attribute("#outline-button", "aria-expanded") != is_seen
        tab.page.click("#outline-button")


def test_only_a_part_is_shown(opened: Opened, stack: tl.ModelLog) -> None:
    tab = opened(stack, "#depth=1&module=blocks.3")
    count = "() => torchlens.pane.scene.shown.nodes.length"
    everything = tab.run(count)
    tab.page.locator("#inspector button", has_text="Only this").click()
    assert tab.run(count) == 3
    tab.page.click("#show-all")
    assert tab.run(count) == everything


def test_export(opened: Opened, stack: tl.ModelLog, tmp_path: Path) -> None:
    tab = opened(stack, "#depth=2")
    tab.page.click("#menu-button")
    for button, begin in (("#svg", b"<svg"), ("#png", b"\x89PNG")):
        with tab.page.expect_download() as download:
            tab.page.click(button)
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        assert path.read_bytes().startswith(begin) and path.stem == "Stack"
    svg = ElementTree.parse(tmp_path / "Stack.svg").getroot()
    texts = {element.text for element in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert {"input_1_0", "@blocks.0", "(Block)", "output_1_84"} <= texts


class Hostile(nn.Module):
    """Names that would mean something if they were not text."""

    NAMES = (
        "</script><script>hurt = 1</script>",
        "\"'<img src=x onerror=hurt=1>",
        "\u202eright to left",
        "x" * 3000,
    )

    def __init__(self) -> None:
        super().__init__()
        for name in self.NAMES:
            inner = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
            inner.register_module("-->\n&amp;", nn.Tanh())
            self.register_module(name, inner)

    def forward(self, x: Tensor) -> Tensor:
        for name in self.NAMES:
            x = getattr(self, name)(x)
        return x


def test_hostile_names_stay_text(opened: Opened) -> None:
    Hostile.__name__ = "<script>hurt = 1</script>"
    log = tl.log_forward_pass(Hostile(), torch.rand(2, 3))
    tab = opened(log, browser_options={"viewport": {"width": 700, "height": 600}})
    for _ in range(14):
        tab.key("ArrowDown")
        tab.key("Enter")
    tab.page.fill("#search", "onerror")
    tab.key("Enter")
    assert tab.run("() => window.hurt === undefined && document.querySelectorAll('img').length === 0")
    assert tab.page.locator("script").count() == 3  # the data, its values, the viewer
    assert tab.page.inner_text("h1").startswith("<script>")
    assert tab.run("() => document.documentElement.scrollWidth <= innerWidth")
    title = tab.page.title()
    assert title == "<script>hurt = 1</script> - torchlens"


def test_nothing_else_may_act_in_the_page(opened: Opened, stack: tl.ModelLog) -> None:
    tab = opened(stack)
    tab.run("""() => {
      const script = document.createElement("script");
      script.textContent = "window.injected = 1";
      document.body.append(script);
      const image = new Image();
      image.src = "https://example.com/x.png";
      document.body.append(image);
    }""")
    tab.page.wait_for_timeout(100)
    assert tab.run("() => window.injected === undefined")
    assert tab.run("() => fetch('https://example.com').then(() => 'sent', () => 'refused')") == "refused"
    assert len(tab.sent) == 1  # the file itself
    assert all("Content Security Policy" in complaint for complaint in tab.complaints) and tab.complaints
    tab.complaints.clear()
    tab.requests.clear()


def test_narrow_wide_light_and_dark(opened: Opened, stack: tl.ModelLog) -> None:
    for width, height in ((390, 800), (3840, 2160)):
        for scheme in ("light", "dark"):
            options: Any = {"viewport": {"width": width, "height": height}, "color_scheme": scheme}
            tab = opened(stack, browser_options=options)
            assert tab.run("() => document.documentElement.scrollWidth") <= width
            assert tab.run("() => document.documentElement.dataset.theme") == scheme
            at = tab.run(CENTRE, "input_1_0")
            tab.page.mouse.click(at["x"], at["y"])
            assert tab.page.is_visible("#inspector h2") and tab.page.inner_text("#inspector h2") == "input_1_0"


def test_values_nan_numbers_and_budget(opened: Opened) -> None:
    class Teaching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x / x.sum(-1, keepdim=True)).log()

    log = tl.log_forward_pass(Teaching(), torch.tensor([[1.0, 3.0], [0.0, 0.0]]))
    tab = opened(log, "#op=log_1_3")
    text = tab.page.inner_text("#inspector")
    assert "2 NaN of 4" in text and "-1.386" in text and "nan" in text  # every number of a tiny tensor
    tab.page.fill("#search", "nan:true")
    assert tab.run("() => torchlens.searchBox.hits.length") == 3
    without = opened(log, "#op=log_1_3", values=False)
    assert "-1.386" not in without.page.inner_text("#inspector")


def test_numbers_of_weights(opened: Opened) -> None:
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.5, -1.25, 3.0], [7.0, float("inf"), 0.0]]))
    tab = opened(tl.log_forward_pass(model, torch.rand(4, 3)), "#op=linear_1_1")
    tab.page.wait_for_selector("details.param table")
    weight, bias = tab.page.locator("details.param").all()
    assert weight.inner_text().startswith("weight 2x3") and bias.inner_text().startswith("bias x2")
    assert weight.locator("td").all_inner_texts() == ["0.5", "-1.25", "3", "7", "inf", "0"]
    assert "1 Inf of 6" in weight.inner_text()


def test_weights_of_a_larger_model_are_folded_away(opened: Opened) -> None:
    tab = opened(tl.log_forward_pass(nn.Linear(300, 100), torch.rand(4, 300)), "#op=linear_1_1")
    tab.page.wait_for_selector("details.param canvas", state="attached")
    weight = tab.page.locator("details.param").first
    assert not weight.locator("canvas.histogram").is_visible()
    weight.locator("summary").click()
    assert weight.locator("canvas.histogram").is_visible() and weight.locator("canvas.thumbnail").is_visible()
    assert weight.locator("table").count() == 0


def test_gradients_are_in_the_page(opened: Opened) -> None:
    log = tl.log_forward_pass(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.rand(5, 4), save_gradients=True)
    log[-1].activation.sum().backward()
    tab = opened(log, "#op=relu_1_2")
    assert "GRADIENT" in tab.page.inner_text("#inspector")
    tab.page.click("#menu-button")
    tab.page.click("#gradients")
    assert tab.run("() => torchlens.pane.scene.shown.edges.filter((edge) => edge.backward).length") > 0


def test_edits_are_in_the_page(opened: Opened) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid())
    log = tl.log_forward_pass(model, torch.rand(2, 4), interventions={"sigmoid_1_2": tl.edits.zero()})
    tab = opened(log, "#op=sigmoid_1_2")
    text = tab.page.inner_text("#inspector")
    assert "edited: " in text and "zero()" in text and "BEFORE THE EDIT" in text
    assert tab.run("() => [...torchlens.pane.marks.edited]") == [2]


def test_in_the_frame_of_a_notebook(
    browser: Any, stack: tl.ModelLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sandboxed, without storage and clipboard; where the frame is taken out, a picture is seen in its place."""
    monkeypatch.setattr(embed, "in_notebook", lambda: True)
    (tmp_path / "cell.html").write_text(f"<!DOCTYPE html>{stack.explore(height=500)._repr_html_()}", encoding="utf-8")
    tab = Tab(browser)
    tab.page.goto((tmp_path / "cell.html").as_uri())
    frame = tab.page.frames[1]
    frame.wait_for_selector("body.ready")
    assert frame.evaluate("() => innerHeight") == 500
    frame.fill("#search", "softmax")
    frame.press("#search", "Enter")
    assert frame.inner_text("#inspector h2") == "softmax_1_83"
    tab.run("() => document.querySelector('iframe').remove()")
    assert tab.run("() => document.querySelector('img').naturalWidth") > 50
    assert tab.closed() == []


#: What the output of a cell lies in elsewhere: the sandbox of the frame around outputs, and the content policy in it,
#: which the frame of the page inherits. VS Code's is that of `notebook.experimental.enableCsp`; usually it has none.
FRONT_ENDS = {
    "vscode": (
        "allow-scripts allow-same-origin allow-forms allow-pointer-lock allow-downloads",
        "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
        "img-src https: http: data:; font-src https:; connect-src https:; child-src https: data:",
    ),
    "colab": (
        "allow-downloads allow-forms allow-pointer-lock allow-popups allow-popups-to-escape-sandbox allow-same-origin "
        "allow-scripts",
        "",
    ),
}


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_in_the_sandboxes_of_other_front_ends(
    browser: Any, stack: tl.ModelLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, front_end: str
) -> None:
    """They put the HTML of an output into a page of their own, by a script, in a frame with less rights."""
    monkeypatch.setattr(embed, "in_notebook", lambda: True)
    sandbox, policy = FRONT_ENDS[front_end]
    output = json.dumps(stack.explore(height=500)._repr_html_()).replace("</", "<\\/")
    inner = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><div id="output"></div>'
        f"<script>document.getElementById('output').innerHTML = {output};</script>"
    )
    frame = f'<iframe sandbox="{sandbox}" style="width: 900px; height: 700px" srcdoc="{html.escape(inner)}"></iframe>'
    (tmp_path / "front_end.html").write_text(f"<!DOCTYPE html>{frame}", encoding="utf-8")
    tab = Tab(browser)
    tab.page.goto((tmp_path / "front_end.html").as_uri())
    tab.page.wait_for_function("() => frames[0]?.frames.length === 1")
    outside, page = tab.page.frames[1], tab.page.frames[2]
    page.wait_for_selector("body.ready")
    assert page.evaluate("() => innerHeight") == outside.evaluate("() => document.body.firstChild.offsetHeight") == 500
    page.fill("#search", "softmax")
    page.press("#search", "Enter")
    page.wait_for_selector("#inspector table.numbers, #inspector canvas.histogram")
    assert page.inner_text("#inspector h2") == "softmax_1_83"
    page.click("#menu-button")
    with tab.page.expect_download() as download:
        page.click("#svg")
    assert download.value.suggested_filename == "Stack.svg"
    assert [complaint for complaint in tab.closed() if "can escape its sandboxing" not in complaint] == []  # the host's


def test_two_logs_side_by_side(opened: Opened, stack: tl.ModelLog) -> None:
    torch.manual_seed(1)
    other = tl.log_forward_pass(Stack(), torch.rand(3, 8))
    matching = [(place, place, place / 100) for place in range(len(stack) - 1)]
    tab = opened(two_logs(stack, other, matching, names=("before", "after")))
    assert tab.page.locator("canvas.graph").count() == 2
    assert tab.page.inner_text("h1") == "before | after" and tab.page.is_visible("#legend")
    tab.page.fill("#search", "relu_7")
    tab.key("Enter")
    assert (
        tab.run("() => torchlens.panes.map((pane) => pane.model.ops.label[pane.selection.place])") == ["relu_7_33"] * 2
    )
    places = """() => torchlens.panes.map(({ camera, marks, scene }) => {
      const { x, y } = scene.layout.nodes[marks.selectedNode];
      return [camera.k, (x - camera.x) * camera.k, (y - camera.y) * camera.k].map(Math.round);
    })"""
    tab.run("() => { torchlens.pane.zoom(0.7); torchlens.pane.pan(40, -30); }")
    one, other = tab.run(places)
    assert one == other  # the windows go together
    tab.page.fill("#search", "output")
    tab.key("Enter")
    assert tab.run("() => torchlens.panes[1].selection") is None  # has no match


@pytest.mark.parametrize("width", [1400, 390])
def test_a_comparison_opens_at_the_first_difference(opened: Opened, width: int) -> None:
    torch.manual_seed(0)
    net, x = Stack(2), torch.rand(3, 8)
    other = copy.deepcopy(net)
    other.blocks[1].norm.eps = 1e-2  # type: ignore[union-attr]
    comparison = tl.compare(tl.log_forward_pass(net, x), tl.log_forward_pass(other, x))
    tab = opened(comparison._page(), browser_options={"viewport": {"width": width, "height": 800}})
    assert tab.page.inner_text("#verdict") == comparison.verdict and "eps is 1e-05 in A" in comparison.verdict
    labels = "() => torchlens.panes.map((pane) => pane.model.ops.label[pane.selection.place])"
    assert tab.run(labels) == ["layernorm_2_6"] * 2
    tab.run("() => torchlens.showWhole()")
    tab.page.click("#first-difference")
    assert tab.run(labels) == ["layernorm_2_6"] * 2
    heads = [head.inner_text().split() for head in tab.page.locator(".pane-head").all()]
    assert heads[0][:2] == ["A:", "Stack"] and heads[1] == ["B:", "Stack"]  # each name once, the boxes with A's
    assert tab.page.inner_text("#counts").count("operations") == 2 or width < 900
    lowest, highest = tab.run("""() => [document.querySelector(".pane-head").getBoundingClientRect().bottom,
      document.querySelector("canvas.graph").getBoundingClientRect().top]""")
    assert lowest <= highest  # the names lie above the graphs, not over them
