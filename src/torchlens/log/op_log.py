"""One operation of a forward pass: its value, its relations in the graph, its module, its metadata."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..aliases import LAYER_ATTRIBUTES, Aliased
from ..capture.containers import rebuild
from ..capture.naming import func_name, grad_fn_name
from ..capture.records import Applied, Call, Value, argument_values, fetched
from ..graph import ancestry
from ..graph.call_stacks import user_stack
from ..graph.graph import Graph
from ..selectors import Word, short_path
from ..source import FuncCallLocation
from ..words import human_size
from . import backward_pass, text
from .listing import Numbered, op_line
from .tables import Tabular


class OpLog(Tabular, Aliased):
    """One operation: one tensor that the forward pass produced, or one of its inputs, outputs or buffers.

    >>> layer = log["linear_1_3"]
    >>> layer.activation.shape
    torch.Size([5, 5])
    >>> layer.parent_layers, layer.child_layers
    (['relu_1_2'], ['relu_2_4'])

    Everything is derived from the records when it is asked for. `print(layer)` shows what matters most.
    """

    _aliases = LAYER_ATTRIBUTES

    def __init__(self, graph: Graph, place: int) -> None:
        self._graph = graph
        self._place = place
        self._value: Value = graph.entries[place]

    @property
    def _call(self) -> Call | None:
        return self._graph.trace.calls[self._value.call] if self._value.call >= 0 else None

    def __str__(self) -> str:
        return text.describe_op(self)

    def __repr__(self) -> str:
        return op_line(self)

    def _repr_html_(self) -> str:
        from .html import op_html

        return op_html(self)

    # ---- names ----------------------------------------------------------------------------------------------

    @property
    def _layer(self) -> int:
        return self._graph.layers[self._place]

    @property
    def layer_label(self) -> str:
        """Type, number among layers of the type, number among all layers: `conv2d_3_7`."""
        return self._graph.layer_labels[self._layer]

    @property
    def layer_label_w_pass(self) -> str:
        """The label with the pass: `conv2d_3_7:1`."""
        return f"{self.layer_label}:{self.pass_num}"

    @property
    def layer_label_short(self) -> str:
        """The label without the second, redundant number: `conv2d_3`."""
        return f"{self.layer_type}_{self.layer_type_num}"

    @property
    def label(self) -> str:
        """The label, with the pass if the layer has several."""
        return self._graph.label(self._place)

    @property
    def operation_num(self) -> int:
        """Which operation of the forward pass this is, from 1, inputs and buffers included."""
        return self._place + 1

    @property
    def layer_type(self) -> str:
        return self._graph.layer_types[self._layer]

    @property
    def layer_type_num(self) -> int:
        return self._graph.layer_type_nums[self._layer]

    @property
    def layer_total_num(self) -> int:
        return self._layer

    @property
    def pass_num(self) -> int:
        return self._graph.passes[self._place]

    @property
    def num_passes(self) -> int:
        return len(self._graph.layer_entries[self._layer])

    @property
    def passes(self) -> dict[int, OpLog]:
        """All passes of this layer, by number."""
        places = self._graph.layer_entries[self._layer]
        return Numbered((number, OpLog(self._graph, place)) for number, place in enumerate(places, 1))

    @property
    def recurrent_group(self) -> list[str]:
        """The other passes of the layer."""
        places = self._graph.layer_entries[self._layer]
        return self._labels(place for place in places if place != self._place)

    @cached_property
    def lookup_keys(self) -> list[int | str]:
        """The keys with which `log[key]` finds this operation: numbers first, then names."""
        names = {self.layer_label_w_pass}
        if self.num_passes == 1:
            names.add(self.layer_label)
        if self.is_output_layer and self._value.address:
            path = short_path(self._value.address)
            taken = path in self._graph.modules.numbers or any(path in each for each in self._graph.layer_labels)
            names.add(self._value.address if taken else path)
        modules = self._graph.modules
        for call in modules.exited.get(self._place, ()):
            names.update(self._names_as_output(call))
        listed = self._graph.listed
        number = bisect_left(listed, self._place)
        numbers = [number - len(listed), number] if self._place in listed[number : number + 1] else []
        return [*numbers, *sorted(names)]

    def _names_as_output(self, call: int) -> list[str]:
        """What it is called as a result of a module call: `fc`, `fc:2`; of several tensors `attn[1]`, `attn:2[1]`."""
        modules = self._graph.modules
        values, address = modules.calls[call].exited, modules.address(call)
        if address in self._graph.layer_numbers or self._is_also_an_output(address):
            address = f"self.{address}"
        if len(set(modules.outputs(call))) == 1:
            ends = [""]
        else:
            ends = [f"[{index}]" for index, value in enumerate(values) if value is self._value]
        stems = [f"{address}:{modules.calls[call].number}"]
        if modules.call_counts[modules.calls[call].module] == 1:
            stems.append(address)
        return [stem + end for stem in stems for end in ends]

    def _is_also_an_output(self, address: str) -> bool:
        """Does the model return something else under this name?"""
        return any(self._place not in self._graph.parents[place] for place in Word(address).exactly(self._graph))

    # ---- the tensor -----------------------------------------------------------------------------------------

    @property
    def activation(self) -> Tensor | None:
        """The tensor as it was when the operation returned; None if it was not saved."""
        connections = self._graph.trace.connections
        connected = connections.tensor(self._value) if connections is not None else None
        return self._value.saved if connected is None else connected

    @property
    def activation_before_edit(self) -> Tensor | None:
        """What the operation computed before an intervention replaced it; None if it was not edited."""
        applied = self._applied
        return fetched(applied[0].before) if applied else None

    @property
    def edit(self) -> Any:
        """The edit that an intervention applied to the value: a list if there were several, None if there was none."""
        edits = [self._graph.trace.interventions[applied.intervention].edit for applied in self._applied]
        return edits[0] if len(edits) == 1 else edits or None

    @property
    def _applied(self) -> list[Applied]:
        return [applied for applied in self._graph.trace.applied if applied.value is self._value and applied.call < 0]

    @property
    def has_saved_activation(self) -> bool:
        """Was the tensor saved, or what `activation_postfunc` returned for it?"""
        return self._value.kept is not None or self._value.transformed is not None

    @property
    def transformed_activation(self) -> Any:
        """What `activation_postfunc` returned for the tensor; None if there is no such function."""
        connections = self._graph.trace.connections
        connected = connections.transformed.get(self._value.index) if connections is not None else None
        return fetched(self._value.transformed) if connected is None else connected

    @property
    def transformed_activation_shape(self) -> tuple[int, ...] | None:
        made = self.transformed_activation
        return tuple(made.shape) if isinstance(made, Tensor) else None

    @property
    def transformed_activation_dtype(self) -> torch.dtype | None:
        made = self.transformed_activation
        return made.dtype if isinstance(made, Tensor) else None

    @property
    def transformed_activation_memory(self) -> int | None:
        """Bytes."""
        made = self.transformed_activation
        return made.numel() * made.element_size() if isinstance(made, Tensor) else None

    def materialize_activation(self) -> Tensor | None:
        """Read the tensor from the bundle that the log was loaded from, and keep it.

        >>> path = tl.save(log, folder / "demo")
        >>> lazy = tl.load(folder / "demo", lazy=True)
        >>> lazy["linear_1_3"].materialize_activation().shape
        torch.Size([5, 5])

        Without this, a log that was loaded with `lazy=True` reads the tensor again each time it is asked for.
        """
        self._value.kept = self._value.saved
        return self._value.saved

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        return tuple(self._value.shape)

    @property
    def tensor_dtype(self) -> torch.dtype:
        return self._value.dtype

    @property
    def tensor_device(self) -> torch.device:
        return self._value.device

    @property
    def tensor_memory(self) -> int:
        """Bytes: elements times their size."""
        return self._value.nbytes

    @property
    def tensor_memory_str(self) -> str:
        return human_size(self.tensor_memory)

    @property
    def grad_fn_name(self) -> str | None:
        """The autograd node that made the tensor; None if it requires no gradient or is a leaf."""
        return grad_fn_name(self._value, self._graph.trace)

    @property
    def is_part_of_iterable_output(self) -> bool:
        return self._value.position is not None

    @property
    def iterable_output_index(self) -> int | None:
        return self._value.position

    # ---- backward passes ------------------------------------------------------------------------------------

    @property
    def gradients(self) -> list[Tensor | None]:
        """The gradient of the tensor in each backward pass so far; None for a pass that did not reach it."""
        return backward_pass.gradients_by_pass(self._graph, self._value.index)

    @property
    def gradient(self) -> Tensor | None:
        """The gradient from the last backward pass that reached it; None if none did.

        None with a warning if the log was made without `save_gradients`, or if there was no backward pass yet.
        """
        backward_pass.warn_if_none(self._graph, self._value.index)
        return backward_pass.last(self.gradients)  # type: ignore[no-any-return]

    @property
    def transformed_gradients(self) -> list[Any]:
        """What `gradient_postfunc` returned for each gradient."""
        return backward_pass.gradients_by_pass(self._graph, self._value.index, transformed=True)

    @property
    def transformed_gradient(self) -> Any:
        """What `gradient_postfunc` returned for the last gradient."""
        backward_pass.warn_if_none(self._graph, self._value.index)
        return backward_pass.last(self.transformed_gradients)

    @property
    def grad_fns(self) -> list[backward_pass.GradFnLog]:
        """The nodes of autograd's graph that the operation made; the log must have been made with save_gradients."""
        return backward_pass.grad_fns_of(self._graph, self._place)

    @property
    def saved_for_backward_memory(self) -> int:
        """Bytes that autograd keeps of the forward pass for this operation, parameters not counted."""
        return backward_pass.memory_of(saved for node in self.grad_fns for saved in node.saved_tensors)

    @property
    def saved_for_backward_memory_str(self) -> str:
        return human_size(self.saved_for_backward_memory)

    # ---- the function ---------------------------------------------------------------------------------------

    @property
    def func_applied(self) -> Any:
        """The torch function that was called; None for inputs, outputs and buffers."""
        return self._call.function.func if self._call else None

    @property
    def func_name(self) -> str | None:
        """The function's name; for an operator its special method, `__add__`."""
        return func_name(self._value, self._graph.trace.calls)

    @property
    def func_time(self) -> float:
        """Seconds spent in the function."""
        return self._call.time / 1e9 if self._call else 0.0

    @property
    def macs(self) -> int:
        """Multiply-adds of matrix products and convolutions; twice this is what torch's flop counter counts."""
        return self._graph.costs[self._place].macs

    @property
    def flops(self) -> int | None:
        """All floating point operations; None where there is no formula (`tl.register_formula` adds one)."""
        return self._graph.costs[self._place].flops

    @property
    def func_is_inplace(self) -> bool:
        """Did the call overwrite one of its arguments?"""
        return bool(self._call and self._call.written)

    @property
    def func_rng_states(self) -> dict[str, Tensor] | None:
        """The random generator's state before the call, if the function draws random numbers."""
        state = fetched(self._call.rng) if self._call else None
        return None if state is None else {"torch": state}

    @property
    def captured_args(self) -> tuple[Any, ...]:
        """The positional arguments, with the saved values in place of the tensors."""
        return tuple(_restored(argument) for argument in self._call.args) if self._call else ()

    @property
    def captured_kwargs(self) -> dict[str, Any]:
        """The keyword arguments, with the saved values in place of the tensors."""
        return {name: _restored(a) for name, a in self._call.kwargs.items()} if self._call else {}

    @property
    def func_positional_args_non_tensor(self) -> list[Any]:
        """The positional arguments without tensors; a list, tuple or dict without those in it, if anything is left."""
        arguments = self._call.args if self._call else ()
        return [_without_tensors(a) for a in arguments if not _is_all_tensors(a)]

    @property
    def func_kwargs_non_tensor(self) -> dict[str, Any]:
        kwargs = self._call.kwargs if self._call else {}
        return {name: _without_tensors(a) for name, a in kwargs.items() if not _is_all_tensors(a)}

    @cached_property
    def func_call_stack(self) -> list[FuncCallLocation]:
        """The lines of the user's code that made the call, the innermost first."""
        return user_stack(self._graph.trace, self._call) if self._call else []

    # ---- parameters -----------------------------------------------------------------------------------------

    @property
    def _params(self) -> tuple[Value, ...]:
        return self._graph.params[self._value.call] if self._value.call >= 0 else ()

    @property
    def uses_params(self) -> bool:
        return bool(self._params)

    @property
    def param_addresses(self) -> list[str]:
        """Where the parameters used here are in the model."""
        return [param.address or "" for param in self._params]

    @property
    def num_param_tensors(self) -> int:
        return len(self._params)

    @property
    def parent_param_shapes(self) -> list[tuple[int, ...]]:
        return [tuple(param.shape) for param in self._params]

    @property
    def num_params_total(self) -> int:
        return sum(math.prod(param.shape) for param in self._params)

    @property
    def params_memory(self) -> int:
        return sum(param.nbytes for param in self._params)

    @property
    def params_memory_str(self) -> str:
        return human_size(self.params_memory)

    # ---- family ---------------------------------------------------------------------------------------------

    def _labels(self, places: Iterable[int]) -> list[str]:
        return [self._graph.label(place) for place in places]

    @property
    def parent_layers(self) -> list[str]:
        """The operations whose tensors went into this one, in argument order."""
        return self._labels(self._graph.parents[self._place])

    @property
    def parent_layer_arg_locs(self) -> dict[str, list[int | str]]:
        """For each parent, the positions and names of the arguments it was given as."""
        found: dict[str, list[int | str]] = {}
        for location, value in argument_values(self._call) if self._call else ():
            if value.role != "param" and value.index in self._graph.place:
                found.setdefault(self._graph.label(self._graph.place[value.index]), []).append(location)
        return found

    @property
    def child_layers(self) -> list[str]:
        """The operations that this one's tensor went into."""
        return self._labels(self._graph.children[self._place])

    @property
    def sibling_layers(self) -> list[str]:
        """Other operations with a parent in common."""
        graph = self._graph
        places = {child for parent in graph.parents[self._place] for child in graph.children[parent]}
        return self._labels(sorted(places - {self._place}))

    @property
    def co_parent_layers(self) -> list[str]:
        """Other operations with a child in common."""
        graph = self._graph
        places = {parent for child in graph.children[self._place] for parent in graph.parents[child]}
        return self._labels(sorted(places - {self._place}))

    @cached_property
    def root_ancestors(self) -> list[str]:
        """The ancestors that have no parents: inputs, buffers, tensors made inside the model."""
        return self._labels(ancestry.roots(self._place, self._graph.parents))

    @property
    def is_input_layer(self) -> bool:
        return self._value.role == "input"

    @property
    def has_input_ancestor(self) -> bool:
        return self._graph.from_input[self._place]

    @property
    def min_distance_from_input(self) -> int | None:
        """Edges on the shortest path from an input; None if it depends on no input."""
        distance = self._graph.distances_from_input[self._place]
        return distance and distance[0]

    @property
    def max_distance_from_input(self) -> int | None:
        distance = self._graph.distances_from_input[self._place]
        return distance and distance[1]

    @property
    def is_output_layer(self) -> bool:
        return self._value.role == "output"

    @property
    def is_output_ancestor(self) -> bool:
        return self._graph.to_output[self._place]

    @cached_property
    def output_descendants(self) -> list[str]:
        """The model outputs that depend on this operation."""
        entries = self._graph.entries
        reached = ancestry.ancestors(self._place, self._graph.children)
        return self._labels(place for place in reached if entries[place].role == "output")

    @property
    def min_distance_from_output(self) -> int | None:
        """Edges on the shortest path to an output; None if no output depends on it."""
        distance = self._graph.distances_from_output[self._place]
        return distance and distance[0]

    @property
    def max_distance_from_output(self) -> int | None:
        distance = self._graph.distances_from_output[self._place]
        return distance and distance[1]

    # ---- kinds of tensors -----------------------------------------------------------------------------------

    @property
    def is_buffer_layer(self) -> bool:
        return self._value.role in ("buffer", "update")

    @property
    def buffer_address(self) -> str | None:
        """Where the buffer is in the model."""
        return self._value.address if self.is_buffer_layer else None

    @property
    def io_path(self) -> str | None:
        """For an input or output: where it is among the arguments or in what the model returned."""
        return self._value.address if self._value.role in ("input", "output") else None

    @property
    def is_internally_initialized(self) -> bool:
        """Was this tensor made inside the model, from nothing (`torch.rand`, a constant)?"""
        return _is_internally_initialized(self._graph, self._place)

    @property
    def internally_initialized_parents(self) -> list[str]:
        parents = self._graph.parents[self._place]
        return self._labels(place for place in parents if _is_internally_initialized(self._graph, place))

    @cached_property
    def internally_initialized_ancestors(self) -> list[str]:
        above = ancestry.ancestors(self._place, self._graph.parents)[:-1]
        return self._labels(place for place in above if _is_internally_initialized(self._graph, place))

    @property
    def is_internally_terminated(self) -> bool:
        """Is the tensor used by no other operation, though it is not an output?"""
        return not self._graph.children[self._place] and not self.is_output_layer

    @property
    def is_terminal_bool_layer(self) -> bool:
        """Is this a single bool, or another tensor that decided something, that no operation uses?"""
        if self._graph.children[self._place]:
            return False
        is_single_bool = self.tensor_dtype is torch.bool and math.prod(self.tensor_shape) == 1
        return (is_single_bool and self._value.role == "op") or self._place in self._graph.conditions.ends

    @property
    def in_cond_branch(self) -> bool:
        """Does this operation serve only to evaluate a condition?"""
        return self._place in self._graph.conditions.branch

    @property
    def cond_branch_children(self) -> list[str]:
        """The children at which the evaluation of a condition leaves the main path: where an IF begins."""
        return self._labels(child for place, child in self._graph.conditions.starts if place == self._place)

    # ---- modules --------------------------------------------------------------------------------------------

    @property
    def is_computed_inside_submodule(self) -> bool:
        return bool(self.containing_modules)

    @property
    def containing_module(self) -> str | None:
        """The address of the innermost submodule that the operation ran in."""
        return self.containing_modules[-1] if self.containing_modules else None

    @property
    def containing_modules(self) -> list[str]:
        """The addresses of the submodules around the operation, from the outermost in."""
        modules = self._graph.modules
        return [modules.address(call) for call in modules.containing(self._place)]

    @property
    def containing_module_passes(self) -> list[str]:
        """The same with the pass of each: `fc:2`."""
        return [self._graph.modules.label(call) for call in self._graph.modules.containing(self._place)]

    @property
    def modules_entered(self) -> list[str]:
        """The submodules that the tensor was given to."""
        modules = self._graph.modules
        return [modules.address(call) for call in modules.entered.get(self._place, ())]

    @property
    def module_passes_entered(self) -> list[str]:
        return [self._graph.modules.label(call) for call in self._graph.modules.entered.get(self._place, ())]

    @property
    def is_submodule_output(self) -> bool:
        return self._place in self._graph.modules.exited

    @property
    def modules_exited(self) -> list[str]:
        """The submodules that returned the tensor, the innermost first."""
        modules = self._graph.modules
        return [modules.address(call) for call in modules.exited.get(self._place, ())]

    @property
    def module_passes_exited(self) -> list[str]:
        return [self._graph.modules.label(call) for call in self._graph.modules.exited.get(self._place, ())]

    @property
    def leaf_module(self) -> str | None:
        """The address of the single-operation module that this operation is the output of."""
        modules = self._graph.modules
        home = modules.homes[self._place]
        exits = modules.exited.get(self._place, ())
        is_leaf = self._value.role == "op" and home in exits and modules.is_bottom_level(home)
        return modules.address(home) if is_leaf else None

    @property
    def is_leaf_module_output(self) -> bool:
        return self.leaf_module is not None


def _is_internally_initialized(graph: Graph, place: int) -> bool:
    return not graph.parents[place] and graph.entries[place].role in ("op", "source")


def _restored(argument: Any) -> Any:
    if isinstance(argument, Value):
        return argument.saved
    return rebuild(argument, _restored)


def _is_all_tensors(argument: Any) -> bool:
    """Is an argument a tensor, or a container of nothing else?"""
    if isinstance(argument, dict):
        argument = list(argument.values())
    if isinstance(argument, slice):
        return any(isinstance(end, Value) for end in (argument.start, argument.stop, argument.step))
    if isinstance(argument, (list, tuple)) and type(argument) is not torch.Size and argument:
        return all(_is_all_tensors(member) for member in argument)
    return isinstance(argument, Value)


def _without_tensors(argument: Any) -> Any:
    if isinstance(argument, dict):
        return {key: _without_tensors(member) for key, member in argument.items() if not _is_all_tensors(member)}
    if isinstance(argument, (list, tuple)) and type(argument) is not torch.Size:
        members = [_without_tensors(member) for member in argument if not _is_all_tensors(member)]
        return members if isinstance(argument, list) else tuple(members)
    return argument
