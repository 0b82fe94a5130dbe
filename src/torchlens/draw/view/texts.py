"""The text of nodes, boxes and the title."""

from __future__ import annotations

from functools import cached_property, lru_cache

import torch

from ...capture.records import TensorInfo, Value
from ...graph.graph import Graph
from ...words import counted, human_size, ranges, shape_words, shapes_words, times
from .contents import Contents, Spot
from .drawable import Drawable
from .elements import Text
from .gather import container_of
from .module_boxes import BoxPath, call_name

_MOST_LETTERS = 60
_MOST_EDITS = 3


class Texts:
    """The lines of text for what a picture contains."""

    def __init__(self, log: Drawable, contents: Contents) -> None:
        self._log = log
        self._contents = contents
        self._graph = log.graph
        self._boxes = contents.module_boxes

    # ---- title ----------------------------------------------------------------------------------------------

    def title(self) -> tuple[Text, ...]:
        log, trace = self._log, self._graph.trace
        name, nbytes, params = log.model_name, self._nbytes, trace.param_infos
        if self._boxes.focus is not None:
            call = self._boxes.focus[0]
            info = self._graph.modules.infos[self._graph.modules.calls[call].module]
            several = len(self._boxes.focus) > 1
            name = f"{name}: {'@' + info.address if several else call_name(self._graph, call)} ({info.class_name})"
            nbytes = [size for place, size in enumerate(nbytes) if self._boxes.in_focus(place)]
            params = self.params_in(info.address)
        tensors = f"{counted(len(nbytes), 'tensor')} total ({human_size(sum(nbytes))})"
        sizes = sum(param.numel for param in params), sum(param.nbytes for param in params)
        return (
            Text(shortened(name), bold=True),
            Text(tensors),
            Text(f"{counted(sizes[0], 'param')} total ({human_size(sizes[1])})"),
        )

    def notes(self) -> list[str]:
        """Notes on where the picture differs from the log."""
        notes = []
        visible = {*self._contents.boxes, *(spot.box for spot in self._contents.spots)}
        for box, run in self._contents.copies.items():
            if box in visible:
                what = f"{len(run)} identical {self._boxes.class_name(box)}"
                notes.append(f"{what} drawn once: {self._boxes.name(run[0])} to {self._boxes.name(run[-1])}")
        if hidden := self._contents.hidden:
            constants = sum(self._graph.entries[place].role == "op" for place in hidden)
            kinds = (len(hidden) - constants, "buffer"), (constants, "constant")
            words = ", ".join(counted(number, noun) for number, noun in kinds if number)
            notes.append(f'{words} not drawn: vis_buffers="always"')
        if not self._graph.entries:
            notes.append("no tensors: the forward pass neither took, made nor returned any")
        elif not self._graph.trace.complete:
            notes.append("cut short: the forward pass raised an exception here")
        return notes

    # ---- nodes ----------------------------------------------------------------------------------------------

    def node(self, spot: Spot) -> tuple[Text, ...]:
        if spot.box is not None:
            return self._module_node(spot, spot.box)
        name = ("output" if spot.end == "output" else self._name(spot)) + times(spot.passes)
        lines = [Text(name, bold=True), self._gathered_sizes(spot) if spot.gathered else self._sizes(spot.places)]
        if not spot.end:
            if params := self.used_params(spot):
                lines.append(_params_text(tuple([param.shape for param in params])))
            if self.is_condition(spot):
                lines += self._verdict(spot)
            lines += self._address(spot)
            lines += self.edits(spot)
        return tuple(lines)

    def edits(self, spot: Spot) -> list[Text]:
        """What interventions did to it; in which passes, if not in all."""
        edited = self._graph.edited.entries
        passes: dict[int, list[int]] = {}
        for place in [place for place in spot.places if place in edited]:
            for number in edited[place]:
                passes.setdefault(number, []).append(self._contents.pass_of(place))
        words = [f"edit: {edit_words(self._graph, number)}{_in_passes(each, spot)}" for number, each in passes.items()]
        more = [f"and {len(words) - _MOST_EDITS} edits more"] if len(words) > _MOST_EDITS else []
        return [Text(shortened(line)) for line in [*words[:_MOST_EDITS], *more]]

    def _name(self, spot: Spot) -> str:
        """`lstm_1_4` for all that a call returned, `getitem_1_2 ... getitem_300_301` for many that are alike."""
        if spot.gathered in ("", "call"):
            return spot.id
        return f"{spot.id} ... {self._contents.label(spot.places[-1])}"

    def _gathered_sizes(self, spot: Spot) -> Text:
        """`3 outputs: 1x6x16, 2x1x16, 2x1x16 (640 B)`, or `300 tensors: x4 (16 B) each`."""
        layers = self._graph.layers
        places = list(
            {layers[place] if self._boxes.rolled else place: place for place in reversed(spot.places)}.values()
        )
        what = counted(len(places), "output" if spot.gathered == "call" else "tensor")
        shapes = [self._graph.entries[place].shape for place in reversed(places)]
        if len(set(shapes)) == 1:
            return Text(f"{what}: {shape_words(shapes[0])} ({human_size(self._nbytes[places[0]])}) each")
        size = human_size(sum([self._nbytes[place] for place in places]))
        return Text(shortened(f"{what}: {shapes_words(shapes)} ({size})"))

    def _sizes(self, places: list[int]) -> Text:
        """`5x5 (100 B)`; if passes differ, each size once."""
        entries, nbytes = self._graph.entries, self._nbytes
        if len(places) == 1:
            return _sizes_text(((entries[places[0]].shape, nbytes[places[0]]),))
        return _sizes_text(tuple(dict.fromkeys([(entries[place].shape, nbytes[place]) for place in places])))

    @cached_property
    def _nbytes(self) -> list[int]:
        """By place."""
        return [value.nbytes for value in self._graph.entries]

    def _address(self, spot: Spot) -> list[Text]:
        """Where it is in the model: the module that does just this operation, the buffer, the container."""
        if spot.gathered == "container":
            container = container_of(self._graph, spot.places[0])
            return [Text(shortened(container.strip("[].'\"")))] if container else []
        ends = [spot.places[0], spot.places[-1]] if spot.gathered == "fan" else spot.places[:1]
        found = dict.fromkeys(address for place in ends if (address := self._boxes.address_of(place)))
        names = [shortened(self._within(spot.path, address)) for address in found]
        return [Text(" ... ".join(names))] if names else []

    def _within(self, box: BoxPath, name: str) -> str:
        """`@.conv1` for `@layer1.0.conv1` inside the box of `layer1.0`; a module from elsewhere keeps its name."""
        around = f"@{self._boxes.address(box)}" if box else self._focus()
        return f"@{name[len(around) :]}" if around and name.startswith(f"{around}.") else name

    def _focus(self) -> str:
        """The module that is drawn alone, as the title names it."""
        if self._boxes.focus is None:
            return ""
        return f"@{self._graph.modules.infos[self._graph.modules.calls[self._boxes.focus[0]].module].address}"

    def _verdict(self, spot: Spot) -> list[Text]:
        """What the condition that was decided here came out as."""
        passes: dict[bool, list[int]] = {}
        for place in spot.places:
            if place in self._verdicts:
                passes.setdefault(self._verdicts[place], []).append(self._graph.passes[place])
        if len(passes) == 1:
            return [Text(str(next(iter(passes))).upper())]
        words = [f"{str(verdict).upper()} in {ranges(each)}" for verdict, each in passes.items()]
        return [Text(shortened(", ".join(words)))] if words else []

    @cached_property
    def _verdicts(self) -> dict[int, bool]:
        """By place, the last answer that a tensor gave as a condition."""
        answers = {
            place: condition.event.result
            for condition in self._graph.conditions.seen
            for place in condition.places
            if isinstance(condition.event.result, bool)
        }
        for place in self._graph.conditions.ends - answers.keys():
            saved = self._graph.entries[place].saved
            if saved is not None and saved.dtype is torch.bool and saved.numel() == 1 and not saved.is_meta:
                answers[place] = bool(saved.item())
        return answers

    def is_condition(self, spot: Spot) -> bool:
        """Did this tensor decide something, and was it made for that?"""
        return spot.places[0] in self._conditions and spot.box is None

    @cached_property
    def _conditions(self) -> set[int]:
        """By place."""
        return self._graph.conditions.ends & self._graph.conditions.branch

    def _module_node(self, spot: Spot, box: BoxPath) -> tuple[Text, ...]:
        modules = self._graph.modules
        calls = [modules.calls_of[box[-1]][0]] if self._boxes.rolled else [box[-1]]
        outputs = [place for call in calls for place in modules.outputs(call)]
        layers = len({self._graph.layers[place] for place in spot.places})
        params = self.params_in(self._boxes.address(box))
        lines = [self._boxes.class_name(box)]
        if outputs:
            size = human_size(sum([self._nbytes[place] for place in outputs]))
            lines.append(f"{shapes_words(self._graph.entries[place].shape for place in outputs)} ({size})")
        lines += [counted(layers, "layer")]
        if params:
            size = human_size(sum(param.nbytes for param in params))
            lines.append(f"params: {sum(param.numel for param in params):,} ({size})")
        texts = [Text(shortened(line)) for line in lines]
        return (Text(self._box_name(box, spot.passes), bold=True), *texts, *self.edits(spot))

    # ---- boxes ----------------------------------------------------------------------------------------------

    def box(self, box: BoxPath) -> tuple[Text, ...]:
        passes = len(self._graph.modules.calls_of[box[-1]]) if self._boxes.rolled else 1
        return (
            Text(self._box_name(box, passes), bold=True),
            Text(f"({shortened(self._boxes.class_name(box))})"),
        )

    def _box_name(self, box: BoxPath, passes: int) -> str:
        run = self._contents.copies.get(box)
        name = shortened(self._within(box[:-1], self._boxes.name(box)))
        if run is None:
            return name + times(passes)
        return f"{name} ... {shortened(self._within(box[:-1], self._boxes.name(run[-1])))}{times(len(run))}"

    # ---- parameters -----------------------------------------------------------------------------------------

    def used_params(self, spot: Spot) -> tuple[Value, ...]:
        value = self._graph.entries[spot.places[0]]
        return self._graph.params[value.call] if value.role == "op" else ()

    def trainable(self, spot: Spot) -> set[bool]:
        """Whether its parameters are trained: True, False, both or none."""
        if spot.box is not None:
            return {param.trainable for param in self.params_in(self._boxes.address(spot.box))}
        return {self._is_trainable.get(param.address or "", True) for param in self.used_params(spot)}

    @cached_property
    def _is_trainable(self) -> dict[str, bool]:
        return {a: info.trainable for info in self._graph.trace.param_infos for a in info.all_addresses}

    def params_in(self, address: str) -> list[TensorInfo]:
        """The parameters in a module and its submodules."""
        return list(self._params_by_module.get(address, {}).values())

    @cached_property
    def _params_by_module(self) -> dict[str, dict[str, TensorInfo]]:
        found: dict[str, dict[str, TensorInfo]] = {}
        for info in self._graph.trace.param_infos:
            for address in info.all_addresses:
                while address:
                    address = address.rpartition(".")[0]
                    found.setdefault(address, {})[info.address] = info
        return found


def edit_words(graph: Graph, number: int) -> str:
    """What an intervention does, as the user wrote it."""
    return repr(graph.trace.interventions[number].edit)


def _in_passes(passes: list[int], spot: Spot) -> str:
    return f" in {ranges(passes)}" if len(set(passes)) < spot.passes else ""


@lru_cache(maxsize=1_000)
def _sizes_text(sizes: tuple[tuple[torch.Size, int], ...]) -> Text:
    each = [f"{shape_words(shape)} ({human_size(nbytes)})" for shape, nbytes in sizes]
    return Text(shortened(", ".join(each) if len(each) < 3 else f"{each[0]} ... {each[-1]}"))


@lru_cache(maxsize=1_000)
def _params_text(shapes: tuple[torch.Size, ...]) -> Text:
    return Text(shortened(f"params: {shapes_words(shapes)}"))


def shortened(text: str) -> str:
    """Shorten a very long line in its middle."""
    keep = _MOST_LETTERS // 2
    return text if len(text) <= _MOST_LETTERS else f"{text[:keep]}...{text[-keep:]}"
