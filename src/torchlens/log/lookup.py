"""Find entries of a log by label, short label, pass, module address, number or part of a name."""

from __future__ import annotations

from functools import cached_property

from ..errors import LayerNotFoundError, near
from ..graph.graph import Graph
from ..selectors import split_pass


class Lookup:
    """Turns a key into the places of the entries it means: one entry, or all passes of one layer."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @cached_property
    def _layers(self) -> dict[str, int]:
        """Layers by full and by short label."""
        graph = self._graph
        names = zip(graph.layer_types, graph.layer_type_nums, strict=True)
        short = {f"{layer_type}_{number}": layer for layer, (layer_type, number) in enumerate(names)}
        return short | {label: layer for layer, label in enumerate(graph.layer_labels)}

    def places(self, key: str) -> list[int]:
        """The entries meant by a name. Raises if there is none, or if the name is ambiguous."""
        key = key.strip()
        if key == "self":
            return self._module_outputs("")
        name, number = split_pass(key)
        if number is not None:
            return [self._one_pass(name, number, key)]
        if key in self._layers:
            return self._graph.layer_entries[self._layers[key]]
        if key and key in self._graph.modules.numbers:
            return self._module_outputs(key)
        return self._containing(key)

    def chosen(self, selector: str | int) -> list[int]:
        """All entries that a selector means: every layer with that part in its label, all that a module returned."""
        if isinstance(selector, int):
            return [numbered(selector, len(self._graph.entries))]
        name, number = split_pass(selector)
        modules = self._graph.modules
        if name in self._layers:
            return self._graph.layer_entries[self._layers[name]] if number is None else self.places(selector)
        module = modules.numbers.get("" if name == "self" else name)
        if module is not None:
            calls = modules.calls_of[module]
            wanted = [call for call in calls if number in (None, modules.calls[call].number)]
            return [place for call in wanted for place in modules.outputs(call)] or self.places(selector)
        labels = self._graph.layer_labels
        layers = [layer for layer, label in enumerate(labels) if selector in label]
        if not layers:
            raise self._not_found(selector)
        return [place for layer in layers for place in self._graph.layer_entries[layer]]

    def _one_pass(self, name: str, number: int, key: str) -> int:
        modules = self._graph.modules
        if name in self._layers:
            entries = self._graph.layer_entries[self._layers[name]]
            found = entries[number - 1 : number] if number else []
            total = len(entries)
        elif name in modules.numbers:
            calls = modules.calls_of[modules.numbers[name]]
            found = modules.outputs(calls[number - 1])[:1] if 0 < number <= len(calls) else []
            total = len(calls)
        else:
            raise self._not_found(name)
        if not found:
            reason = "it returned no tensor of the graph" if 0 < number <= total else f"{name} has {total}"
            raise LayerNotFoundError(f"no pass {key!r}: {reason}")
        return found[0]

    def _module_outputs(self, address: str) -> list[int]:
        modules = self._graph.modules
        calls = modules.calls_of[modules.numbers[address]]
        outputs = [modules.outputs(call)[0] for call in calls if modules.outputs(call)]
        if not calls:
            raise LayerNotFoundError(f"module {address!r} was never called; its submodules may have been")
        if not outputs:
            raise LayerNotFoundError(f"module {address!r} returned no tensor of the graph")
        layers = {self._graph.layers[place] for place in outputs}
        if len(outputs) == 1:
            return outputs
        if len(layers) == 1:
            return self._graph.layer_entries[layers.pop()]
        raise LayerNotFoundError(
            f"module {address!r} was called {len(calls)} times; ask for one call: {address + ':1'!r}"
        )

    def _containing(self, part: str) -> list[int]:
        labels = self._graph.layer_labels
        matches = [layer for layer, label in enumerate(labels) if part and part in label]
        if len(matches) == 1:
            return self._graph.layer_entries[matches[0]]
        if not matches:
            raise self._not_found(part)
        listed = ", ".join(labels[layer] for layer in matches[:6])
        more = f" and {len(matches) - 6} more" if len(matches) > 6 else ""
        raise LayerNotFoundError(f"{part!r} is part of several names: {listed}{more}; ask for one of them")

    def _not_found(self, key: str) -> LayerNotFoundError:
        trace = self._graph.trace
        for kind, where, infos in (
            ("parameter", "params", trace.param_infos),
            ("buffer", "buffers", trace.buffer_infos),
        ):
            if any(key in info.all_addresses for info in infos):
                return LayerNotFoundError(f"no layer or module {key!r}; it is a {kind}: log.{where}[{key!r}]")
        names = [*self._layers, *filter(None, self._graph.modules.numbers)]
        hint = near(key, names) or "; print the log to see the names"
        return LayerNotFoundError(f"no layer or module {key!r}{hint}")

    def names(self) -> list[str]:
        """Every label and module address, for completion."""
        return [*self._graph.layer_labels, *filter(None, self._graph.modules.numbers)]


def numbered(number: int, total: int) -> int:
    """The place with this number among `total`; negative numbers count from the end."""
    if not -total <= number < total:
        raise LayerNotFoundError(f"no operation {number}: the log has {total}, numbered 0 to {total - 1}")
    return number % total
