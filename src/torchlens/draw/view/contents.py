"""Which entries of the log become which node, inside which boxes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ...graph.graph import Graph
from ...selectors import Selection, modules_chosen
from .drawable import Drawable
from .fold import Unit, fold_repeats, no_folding
from .gather import gather
from .module_boxes import BoxPath, ModuleBoxes
from .view_options import Chosen, ViewOptions


@dataclass(slots=True)
class Spot:
    """What will be one node: an operation, a layer (rolled), a collapsed module, or an end of a submodule."""

    id: str
    places: list[int]  # the entries it stands for
    path: BoxPath  # the boxes around it
    box: BoxPath | None = None  # the collapsed module
    end: str = ""  # of a submodule shown alone: "input" for a tensor that enters it, "output" for one that leaves
    passes: int = 1
    gathered: str = ""  # why it stands for several entries: "call", "container", "fan"; see gather.py
    count: int = 1  # how many were gathered


@dataclass
class Contents:
    """Spots and boxes of a picture, and what is where."""

    graph: Graph
    module_boxes: ModuleBoxes
    spots: list[Spot] = field(default_factory=list)
    spot_of: dict[int, Spot] = field(default_factory=dict)  # by place
    hidden_links: Callable[[int, int], bool] = lambda parent, child: False  # between blocks drawn as one
    copies: dict[BoxPath, list[BoxPath]] = field(default_factory=dict)
    units: list[Unit] = field(default_factory=list)
    all_boxes: list[BoxPath] = field(default_factory=list)  # also those inside collapsed modules
    hidden: list[int] = field(default_factory=list)  # entries that are not drawn: why the labels skip numbers

    @property
    def boxes(self) -> list[BoxPath]:
        """The boxes to draw, outer ones before the ones inside them, in the order of their members."""
        return boxes_around([spot.path for spot in self.spots])

    def label(self, place: int) -> str:
        """Of an entry, in a rolled picture of its layer."""
        graph = self.graph
        return graph.layer_labels[graph.layers[place]] if self.module_boxes.rolled else graph.label(place)

    def pass_of(self, place: int) -> int:
        """Which pass of its node an entry belongs to."""
        spot = self.spot_of[place]
        if spot.passes == 1:
            return 1
        return self.graph.passes[place] if spot.box is None else self.module_boxes.pass_in(spot.box, place)


def make_contents(log: Drawable, options: ViewOptions) -> Contents:
    graph = log.graph
    hidden = _hidden(graph, options)
    module_boxes = ModuleBoxes(graph, options.vis_mode == "rolled", options.module, hidden)
    contents = Contents(graph, module_boxes)
    shown = [place for place in range(len(graph.entries)) if place not in hidden]
    inside = shown if module_boxes.focus is None else [place for place in shown if module_boxes.in_focus(place)]
    units = _units(module_boxes, graph, inside)
    if options.vis_gather:
        units = gather(graph, module_boxes, units)
    contents.units, contents.all_boxes = units, boxes_around([unit.path for unit in units])
    is_collapsed = _is_collapsed(log, module_boxes, options)
    _add_entering(contents, inside, set(shown))
    _add_units(contents, units, is_collapsed, options.vis_fold_repeats)
    _add_leaving(contents)
    if options.vis_buffers == "meaningful":
        contents.hidden = [
            place
            for place in sorted(hidden)
            if module_boxes.in_focus(place) and not any(map(is_collapsed, prefixes(module_boxes.path([place]))))
        ]
    return contents


def _units(module_boxes: ModuleBoxes, graph: Graph, places: list[int]) -> list[Unit]:
    groups = [[place] for place in places]
    if module_boxes.rolled:
        by_layer: dict[int, list[int]] = {}
        for place in places:
            by_layer.setdefault(graph.layers[place], []).append(place)
        groups = list(by_layer.values())
    return [Unit(group, module_boxes.path(group)) for group in groups]


def _add_units(contents: Contents, units: list[Unit], is_collapsed: Callable[[BoxPath], bool], fold: bool) -> None:
    folding = fold_repeats(contents.graph, contents.module_boxes, units) if fold else no_folding(units)
    contents.copies = folding.copies
    if folding.copies:
        numbers = {place: number for number, unit in enumerate(units) for place in unit.places}
        contents.hidden_links = lambda up, place: folding.hides(numbers[up], numbers[place]) if up in numbers else False
    spots: dict[BoxPath | int, Spot] = {}
    taken: set[str] = set()
    collapsed: dict[BoxPath, BoxPath | None] = {}  # by path, the outermost box that is
    for number, original in enumerate(folding.original):
        unit = units[original]
        if unit.path not in collapsed:
            collapsed[unit.path] = next((box for box in prefixes(unit.path) if is_collapsed(box)), None)
        box = collapsed[unit.path]
        key: BoxPath | int = original if box is None else box
        if key not in spots:
            spots[key] = _spot(contents, unit, box, taken)
            contents.spots.append(spots[key])
        if box is not None and units[number].path[: len(box)] == box:  # not in another block that is drawn as this one
            spots[key].places += units[number].places
        for place in units[number].places:
            contents.spot_of[place] = spots[key]
    for spot in contents.spots:
        if spot.box is not None and contents.module_boxes.rolled:
            spot.passes = len({contents.module_boxes.pass_in(spot.box, place) for place in spot.places})


def _spot(contents: Contents, unit: Unit, box: BoxPath | None, taken: set[str]) -> Spot:
    graph = contents.graph
    if box is not None:
        return Spot(_unused(f"module {contents.module_boxes.name(box)}", taken), [], box[:-1], box)
    spot = Spot(contents.label(unit.places[0]), list(unit.places), unit.path, gathered=unit.gathered, count=unit.count)
    if contents.module_boxes.rolled:
        spot.passes = graph.num_passes[graph.layers[unit.places[0]]]
    return spot


def _unused(name: str, taken: set[str]) -> str:
    """The name, with a number if it was given before: a rolled module may be called in several places."""
    number = 1
    unused = name
    while unused in taken:
        number += 1
        unused = f"{name} ({number})"
    taken.add(unused)
    return unused


def prefixes(path: BoxPath) -> list[BoxPath]:
    """The boxes that a path names."""
    return [path[: depth + 1] for depth in range(len(path))]


def boxes_around(paths: list[BoxPath]) -> list[BoxPath]:
    """All boxes on these paths, outer ones before the ones inside them."""
    return list(dict.fromkeys([box for path in dict.fromkeys(paths) for box in prefixes(path)]))


# ---- what is left out -----------------------------------------------------------------------------------------


def _hidden(graph: Graph, options: ViewOptions) -> set[int]:
    """The entries that are not drawn: buffers, and what torch's own modules make for themselves."""
    buffers = {
        place
        for place, value in enumerate(graph.entries)
        if value.role in ("buffer", "update") and not is_shown_buffer(graph, place, options.vis_buffers)
    }
    if options.vis_buffers == "always" or not options.vis_gather:
        return buffers
    return buffers | {place for place in range(len(graph.entries)) if _is_private(graph, place)}


def _is_private(graph: Graph, place: int) -> bool:
    """Is this made from nothing by a module of torch's own, for itself? Such as the first states of an `nn.LSTM`."""
    modules, value = graph.modules, graph.entries[place]
    home = modules.homes[place]
    if value.role != "op" or graph.parents[place] or home < 0 or graph.params[value.call]:
        return False
    is_own = modules.infos[modules.calls[home].module].class_qualname.startswith("torch.nn.")
    return is_own and {modules.homes[child] for child in graph.children[place]} == {home}


def is_shown_buffer(graph: Graph, place: int, shown: str) -> bool:
    """Buffers that a layer of torch's own keeps for itself, such as running statistics, say little about a model."""
    if shown != "meaningful":
        return shown == "always"
    modules = graph.modules
    owner = modules.numbers.get((graph.entries[place].address or "").rpartition(".")[0])
    if owner is None or not modules.infos[owner].class_qualname.startswith("torch.nn."):
        return True
    homes = {modules.homes[child] for child in graph.children[place]}
    return any(home < 0 or modules.calls[home].module != owner for home in homes)


def _is_collapsed(log: Drawable, module_boxes: ModuleBoxes, options: ViewOptions) -> Callable[[BoxPath], bool]:
    """A function that tells whether a box is drawn as a single node."""
    expand = _chooser(log, "vis_expand", options.vis_expand, with_ancestors=True)
    collapse = _chooser(log, "vis_collapse", options.vis_collapse, with_ancestors=False)
    answers: dict[BoxPath, bool] = {}

    def decide(box: BoxPath) -> bool:
        address = module_boxes.address(box)
        if collapse(address):
            return True
        too_deep = options.vis_nesting_depth is not None and len(box) >= options.vis_nesting_depth
        return too_deep and not expand(address)

    def is_collapsed(box: BoxPath) -> bool:
        if box not in answers:
            answers[box] = decide(box)
        return answers[box]

    return is_collapsed


def _chooser(log: Drawable, argument: str, chosen: Chosen, with_ancestors: bool) -> Callable[[str], bool]:
    """A function that tells whether a module is selected. Opening a module also opens those around it."""
    if not isinstance(chosen, Selection):
        return lambda address: bool(chosen(log.modules[address]))
    modules = log.graph.modules
    addresses = {modules.infos[number].address for number in modules_chosen(chosen, modules, argument)}
    if with_ancestors:
        addresses |= {a[:i] for a in addresses for i, letter in enumerate(a) if letter == "."}
    return addresses.__contains__


# ---- one submodule alone --------------------------------------------------------------------------------------


def _add_entering(contents: Contents, inside: list[int], shown: set[int]) -> None:
    """The tensors that the submodule in focus takes from outside are its inputs."""
    if contents.module_boxes.focus is None:
        return
    graph = contents.graph
    members = set(inside)
    outside = [p for place in inside for p in graph.parents[place] if p not in members and p in shown]
    spots: dict[str, Spot] = {}
    for place in sorted(set(outside)):
        layer = graph.layers[place]
        if contents.module_boxes.rolled:
            label, passes = graph.layer_labels[layer], len(graph.layer_entries[layer])
        else:
            label, passes = graph.label(place), 1
        spot = spots.setdefault(label, Spot(label, [], (), end="input", passes=passes))
        spot.places.append(place)
        contents.spot_of[place] = spot
    contents.spots += spots.values()


def _add_leaving(contents: Contents) -> None:
    """What the submodule in focus returned, one node for each tensor (rolled: for each layer)."""
    found: dict[str, Spot] = {}
    for call in contents.module_boxes.focus or ():
        for place in contents.graph.modules.outputs(call):
            source = contents.spot_of.get(place)
            if source is None:
                continue
            name = f"output {contents.graph.layer_labels[contents.graph.layers[place]]}"
            if not contents.module_boxes.rolled:
                name = f"output {contents.graph.label(place)}"
            if name not in found:
                found[name] = Spot(name, [], (), end="output", passes=source.passes)
                contents.spots.append(found[name])
            if place not in found[name].places:
                found[name].places.append(place)
