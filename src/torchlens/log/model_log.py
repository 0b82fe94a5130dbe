"""What a user holds after a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from torch import Tensor, nn

from ..aliases import LAYER_ATTRIBUTES, MODEL_ATTRIBUTES, Aliased
from ..capture.arguments import model_arguments
from ..capture.records import Trace, Value
from ..capture.submodule_run import trace_of
from ..errors import ArgumentError, FidelityWarning, PassNeededError, named_arguments, warn
from ..graph.graph import Graph
from ..options import Options
from ..selectors import Selection, Selector, is_selector, numbered
from ..words import human_size
from . import text
from .apply_autograd import apply_autograd_options
from .apply_selection import apply_selection
from .backward_pass import BackwardPass, GradFnLog, check_loss, gradients_of, memory_of, saved_by
from .layer_log import LayerLog
from .listing import Listed
from .lookup import Lookup
from .model_facts import ModelFacts
from .op_log import OpLog
from .returned import output_of, place_of
from .summary import PrintedText, summarize
from .tables import Tabular

if TYPE_CHECKING:
    from ..validate.report import ValidationReport


class ModelLog(ModelFacts, Tabular, Aliased):
    """Every operation of a forward pass.

    >>> log = tl.log_forward_pass(model, x)
    >>> log["linear_1_3"].activation.shape            # by label; log["linear_1"] will do
    torch.Size([5, 5])
    >>> log["fc"].layer_label, log[3].layer_label     # by module, by number
    ('linear_1_3', 'linear_1_3')
    >>> [layer.layer_type for layer in log][:3]
    ['input', 'add', 'relu']

    `print(log)` lists the modules and the layers.
    """

    _aliases = MODEL_ATTRIBUTES

    def __init__(self, trace: Trace, options: Options | None = None) -> None:
        self._trace = trace
        self._options = options or Options()  # how it was made, for `save_new_activations`
        self._ops: dict[int, OpLog] = {}

    @classmethod
    def load(cls, path: str | PathLike[str], lazy: bool = False, trust: bool = False) -> ModelLog:
        """The log that `tl.save` wrote; the same as `tl.load`.

        >>> path = tl.save(log, folder / "demo")
        >>> tl.ModelLog.load(folder / "demo").model_name
        'DemoNetwork'
        """
        from ..bundle.load import load_trace

        return cls(load_trace(Path(path), lazy, trust))

    def __deepcopy__(self, memo: dict[int, Any]) -> ModelLog:
        return ModelLog(deepcopy(self._trace, memo), self._options)

    @cached_property
    def graph(self) -> Graph:
        """The graph as plain lists, from which everything else is derived."""
        return Graph(self._trace).build()

    @cached_property
    def _lookup(self) -> Lookup:
        return Lookup(self.graph)

    def __repr__(self) -> str:
        return text.describe_log(self)

    def _repr_html_(self) -> str:
        from .html import log_html

        return log_html(self)

    def _table_records(self) -> Iterable[OpLog]:
        return self

    def _hint(self, name: str) -> str:
        is_of_a_layer = name in LAYER_ATTRIBUTES or hasattr(OpLog, name)
        if is_of_a_layer and not hasattr(type(self), f"{name}s"):
            label = next((op.label for op in reversed(self.layer_list) if not op.is_output_layer), "label")
            return f"; a layer has: log[{label!r}].{name}"
        return super()._hint(name)

    # ---- access ---------------------------------------------------------------------------------------------

    @overload
    def __getitem__(self, key: slice) -> list[OpLog]: ...

    @overload
    def __getitem__(self, key: Selector) -> OpLog: ...

    def __getitem__(self, key: Selector | slice) -> Any:
        """An operation by number, label, pass or module; a layer of several passes by its bare label."""
        if isinstance(key, slice):
            return Listed(self.layer_list[key])
        return self._found(key)

    def _found(self, key: Any, *, quietly: bool = False) -> OpLog | LayerLog:
        if hasattr(key, "__index__") and not isinstance(key, type):
            listed = self.graph.listed
            return self._op(listed[numbered(key.__index__(), len(listed))])
        if not is_selector(key):
            raise TypeError(f"a log is indexed by a name, a number or a slice, not {key!r}")
        places = self._lookup.single(key, quietly=quietly)
        return self._op(places[0]) if len(places) == 1 else LayerLog(self.graph, self.graph.layers[places[0]])

    def select(self, *selectors: Selector) -> list[OpLog]:
        """The operations that selectors choose, in order, whether they were saved or not.

        >>> [op.label for op in log.select("relu", nn.Linear)]
        ['relu_1_2', 'linear_1_3', 'relu_2_4']

        Every kind of selector is in the guide on choosing layers.
        """
        places = self._lookup.chosen(Selection.checked(selectors, "log.select"), "log.select")
        return Listed(self._op(place) for place in places)

    def _op(self, place: int) -> OpLog:
        op = self._ops.get(place)
        if op is None:
            op = self._ops[place] = OpLog(self.graph, place)
        return op

    def _layer(self, layer: int) -> OpLog | LayerLog:
        """A layer of the graph by its number: its only operation, or all its passes."""
        places = self.graph.layer_entries[layer]
        return self._op(places[0]) if len(places) == 1 else LayerLog(self.graph, layer)

    def layer_at(self, place: int, rolled: bool = False) -> OpLog | LayerLog:
        """The entry at a place of `log.graph`; with `rolled`, the layer that it is a pass of.

        >>> log.layer_at(2).label
        'relu_1_2'
        """
        return self._layer(self.graph.layers[place]) if rolled else self._op(place)

    def __len__(self) -> int:
        """How many operations the log lists: all, or the saved ones if it was told what to save."""
        return len(self.graph.listed)

    def __iter__(self) -> Iterator[OpLog]:
        return (self._op(place) for place in self.graph.listed)

    @property
    def all_ops(self) -> list[OpLog]:
        """Every operation of the forward pass, in order, also those that the log does not list."""
        return Listed(self._op(place) for place in range(len(self.graph.entries)))

    def __contains__(self, key: object) -> bool:
        if isinstance(key, OpLog):
            return key._graph is self.graph
        try:
            return isinstance(key, (str, int)) and self._found(key, quietly=True) is not None
        except KeyError:
            return False

    def _ipython_key_completions_(self) -> list[str]:
        return self._lookup.names()

    @property
    def layer_list(self) -> list[OpLog]:
        """The operations, in order."""
        return Listed(self)

    @property
    def layer_labels(self) -> list[str]:
        """The name of every layer, in order; a layer of several passes is named once."""
        layers = dict.fromkeys(self.graph.layers[place] for place in self.graph.listed)
        return [self.graph.layer_labels[layer] for layer in layers]

    @property
    def op_labels(self) -> list[str]:
        """The name of every operation, in order, with the pass where there are several."""
        return [self.graph.label(place) for place in self.graph.listed]

    # ---- questions --------------------------------------------------------------------------------------------

    def summary(
        self, columns: Sequence[str] = ("output_shape", "num_params", "macs"), depth: int | None = None
    ) -> PrintedText:
        """A table by module, with totals.

        >>> print(log.summary())                                        # doctest: +ELLIPSIS
        ==...
        Module            Output shape  Params  Mult-adds
        ==...

        The columns to choose from are input_shape, output_shape, num_params, macs, flops, memory, time, passes and
        trainable; `depth` leaves out modules nested deeper.
        """
        return summarize(self, columns, depth)

    def validate(self, perturb: bool = True) -> ValidationReport:
        """Check that the saved values are right: compute each operation again from its parents' saved values.

        >>> bool(log.validate())
        True

        The result is true or false, and prints what was found. `perturb` also changes each parent in turn and makes
        sure that the result would have been different.
        """
        from ..validate.lint import lint
        from ..validate.report import Problem
        from ..validate.validate import validate_graph

        report = validate_graph(self.graph, perturb)
        report.problems += [Problem("lint", None, problem) for problem in lint(self)]
        return report

    def first_nan(self) -> OpLog | None:
        """The first operation whose result has a NaN or Inf though its inputs had none; None if there is none.

        >>> print(log.first_nan())
        None

        If an input has one, that input is returned. One in a parameter shows up in the first operation that uses it.
        The -inf of an attention mask, from `masked_fill` or given to the model, counts only if the model returns it.
        """
        from .first_nan import first_not_finite

        place = first_not_finite(self.graph)
        return None if place is None else self._op(place)

    @property
    def output(self) -> Any:
        """What the model returned, as it returned it, with the saved values in place of its tensors.

        >>> log.output.shape
        torch.Size([5, 5])

        A part of it has a path: `log["logits"]` is the operation of `log.output.logits`. In a loaded log it has the
        same fields: tuples, lists and dicts are as they were, and an object of another class is a read-only record with
        the name of its class, since no code that a file names is run.
        """
        return output_of(self.graph)

    def find(self, tensor: Tensor) -> OpLog | None:
        """The operation that made a tensor: the one whose value it is, else the first whose value equals it.

        >>> log.find(log.output).label
        'mul_1_10'
        >>> print(log.find(torch.rand(5, 5)))
        None

        Equal means bit for bit, with NaN equal to NaN; shape, type and layout must agree, the device need not. If
        nothing is found and values of this shape and type were not saved, that is an error: it may be one of them.
        """
        place = place_of(self.graph, tensor)
        return None if place is None else self._op(place)

    # ---- backward passes ------------------------------------------------------------------------------------

    def log_backward(self, loss: Tensor, **arguments: Any) -> BackwardPass:
        """Run `loss.backward()` and return what it did; each layer then has its gradient.

        >>> trained = tl.log_forward_pass(model, x, save_gradients=True)
        >>> trained.log_backward(trained.output.sum())
        BackwardPass(1: 7 nodes of 6 layers)
        >>> trained["fc"].gradient.shape
        torch.Size([5, 5])

        The arguments are those of `Tensor.backward`. Calling `loss.backward()` yourself does the same.
        """
        before = len(self.backward_passes)
        check_loss(loss)
        loss.backward(**arguments)  # type: ignore[no-untyped-call]
        passes = self.backward_passes
        if len(passes) == before:
            raise ArgumentError("the loss was not computed from this forward pass, so no gradient came through it")
        return passes[-1]

    @property
    def backward_passes(self) -> list[BackwardPass]:
        """The backward passes through this forward pass so far; the log must have been made with save_gradients."""
        return [BackwardPass(self.graph, number) for number in range(len(gradients_of(self.graph).passes))]

    @property
    def grad_fns(self) -> list[GradFnLog]:
        """Autograd's graph: its nodes, each with its operation; the log must have been made with save_gradients."""
        return [GradFnLog(self.graph, number) for number in range(len(gradients_of(self.graph).nodes))]

    @property
    def saved_for_backward_memory(self) -> int:
        """Bytes that autograd keeps of the forward pass for the backward pass, each once, without parameters."""
        return memory_of(saved for node in gradients_of(self.graph).nodes for saved in saved_by(node))

    @property
    def saved_for_backward_memory_str(self) -> str:
        return human_size(self.saved_for_backward_memory)

    # ---- running it again -----------------------------------------------------------------------------------

    @named_arguments
    def replay(self, from_layer: str | int | None = None, values: Mapping[str | int, Tensor] | None = None) -> Any:
        """Compute the operations again without the model's own code, and return what the model would return.

        >>> bool((log.replay() == log.output).all())         # everything, from the inputs
        True
        >>> changed = log.replay(values={"linear_1_3": torch.zeros(5, 5)})   # only what depends on this layer
        >>> log.replay(from_layer="fc").shape                        # from its saved value on
        torch.Size([5, 5])

        Args:
            from_layer: compute only what depends on this layer.
            values: other tensors in place of the saved ones, by layer; what depends on them is computed again.

        Random operations draw the same numbers again. The parameters are the model's, as they are now. Unless it is
        called under `torch.no_grad()`, the result can be differentiated with respect to them and to `values`.

        Where the model would read something else from the new values (the truth of a tensor, a number, a list, an
        array), or a value gets another shape or type, `DivergenceError` is raised: what the model would do is not
        recorded. What it only prints is not compared.
        """
        given: dict[Value, Tensor | None] = {}
        if isinstance(from_layer, Tensor):
            inputs = ", ".join(f"{label!r}: ..." for label in self.input_layers)  # type: ignore[unreachable]
            raise ArgumentError(f"from_layer names a layer; a new input is a value: log.replay(values={{{inputs}}})")
        if from_layer is not None:
            given[self._single(from_layer)] = None
        for key, tensor in (values or {}).items():
            if not isinstance(tensor, Tensor):
                raise ArgumentError(f"values must map layers to tensors; {key!r} is mapped to {type(tensor).__name__}")
            given[self._single(key)] = tensor
        from ..replay.downstream import replayed_output

        if not self._trace.applied:
            return replayed_output(self.graph, given)
        from ..intervene.offline import EarlierEdits

        return replayed_output(self.graph, given, EarlierEdits(self.graph))

    def intervene(self, interventions: Mapping[Any, Any], *, allow_change: bool = False) -> ModelLog:
        """The log that the model would have produced with these edits. The model does not run.

        >>> edited = log.intervene({"fc": tl.edits.zero()})
        >>> edited["fc"].activation.any().item(), edited.interventions[0].layers
        (False, ['linear_1_3'])

        The interventions are those of `log_forward_pass`. Only what lies downstream of them is computed again; the new
        log shares the rest with this one. Where the model would have read something else from an edited value (the
        truth of a tensor, a number, a shape), `DivergenceError` is raised, since what it would do is not recorded.
        """
        from ..intervene.offline import intervened
        from ..intervene.sites import Base, checked_requests

        trace, graph = intervened(Base(self.graph, self._lookup._asked), checked_requests(interventions), allow_change)
        log = ModelLog(trace, self._options)
        log.__dict__["graph"] = graph
        for remark in trace.remarks[len(self._trace.remarks) :]:
            warn(remark, FidelityWarning)
        return log

    def _single(self, key: str | int) -> Value:
        op = self[key]
        if isinstance(op, LayerLog):
            raise PassNeededError(f"{op.layer_label} has {op.num_passes} passes; name one: '{op.layer_label}:1'")
        return op._value

    def save_new_activations(
        self,
        model: nn.Module,
        input_args: Any = None,
        input_kwargs: Mapping[str, Any] | None = None,
        *,
        layers_to_save: Any = None,
        random_seed: int | None = None,
        train_mode: bool | None = None,
    ) -> None:
        """Run the model on another input and put its values into this log, whose graph stays as it is.

        >>> log = tl.log_forward_pass(model, x)
        >>> log.save_new_activations(model, torch.zeros(5, 5))
        >>> log["input_1"].activation.sum().item()
        0.0

        Args:
            layers_to_save: as in `log_forward_pass`; None for what the log saved before.
            random_seed: as in `log_forward_pass`.
            train_mode: as in `log_forward_pass`; None for what it was before.

        If the new input takes another path through the model (another branch, another number of loops), the error says
        where, and the log is as it was. Layer objects that were taken from the log before keep their old values.
        """
        if self._trace.interventions:
            raise ArgumentError("this log was made with interventions; log the new input with them")
        options = self._options.again(layers_to_save, random_seed, train_mode)
        args, kwargs = model_arguments(model, input_args, input_kwargs)
        trace, error, chooser = trace_of(model, self._trace.submodule, args, kwargs, options)
        if error is not None:
            raise error
        from ..rerun.refresh import refreshed

        new = ModelLog(trace, options)
        new.__dict__["graph"] = refreshed(self.graph, trace)
        apply_selection(new, chooser)
        apply_autograd_options(new)
        for warning in trace.warnings:
            warn(warning, FidelityWarning)
        self.__dict__.clear()
        self.__dict__.update(new.__dict__)

    # ---- elsewhere ------------------------------------------------------------------------------------------

    def draw(self, *path: Any, **drawing: Any) -> Path:
        """Draw the graph, write the picture and show it; returns the file's path.

        >>> log.draw(vis_outpath=folder / "graph.svg", vis_save_only=True).name
        'graph.svg'

        The arguments are those of `show_model_graph`.
        """
        from ..draw.draw_options import DrawOptions
        from ..draw.show import draw

        if path:
            raise ArgumentError(f"options go by name: log.draw(vis_outpath={path[0]!r}, vis_save_only=True)")
        return draw(self, DrawOptions.checked(**drawing))

    def to_dot(self, **drawing: Any) -> str:
        """The picture as text in Graphviz's DOT language; the arguments are those of `show_model_graph`.

        >>> print(log.to_dot(vis_mode="rolled")[:9])
        digraph {
        """
        from ..draw.draw_options import DrawOptions
        from ..draw.output.dot import to_dot
        from ..draw.view.build import make_view

        return to_dot(make_view(self, DrawOptions.checked(**drawing)))

    def to_html(
        self,
        path: str | PathLike[str],
        *,
        values: bool | int = True,
        numbers: Mapping[str, Mapping[str, float] | Callable[[OpLog], float | None]] | None = None,
    ) -> Path:
        """Write a page to explore the log: one file that needs no server and loads nothing; returns its path.

        >>> log.to_html(folder / "model.html").name
        'model.html'
        >>> log.to_html(folder / "small", values=False, numbers={"score": {"relu_1_2": 0.7}}).name
        'small.html'

        Args:
            path: the file to write.
            values: whether saved values are in it, as histograms and small pictures; a number is how many bytes of them
                at most (8 million by default).
            numbers: your own numbers to colour by, by name: dicts from layers or modules to numbers, or functions of
                the operation.
        """
        from ..page.write import page_of, write_page

        return write_page(page_of(self, values=values, numbers=numbers), path)

    def explore(
        self,
        *,
        height: int = 640,
        values: bool | int = True,
        numbers: Mapping[str, Mapping[str, float] | Callable[[OpLog], float | None]] | None = None,
    ) -> Any:
        """The page of `to_html` inline in a notebook, `height` pixels high; from a script, in the browser.

        >>> log.explore(height=500)                       # doctest: +SKIP
        """
        from ..page.embed import explore
        from ..page.write import page_of

        return explore(self, page_of(self, values=values, numbers=numbers), height)

    def to_networkx(self, rolled: bool = False) -> Any:
        """The graph as a `networkx.DiGraph`: a node for every operation; with `rolled`, for every layer.

        >>> network = log.to_networkx()
        >>> list(network.predecessors("linear_1_3")), network.nodes["linear_1_3"]["num_params_total"]
        (['relu_1_2'], 30)
        >>> recurrent_log.to_networkx(rolled=True).nodes["linear_1_1"]["num_passes"]
        3

        A node has its shape, type, memory, function, time, FLOPs, module and parameters, under the names that they have
        in the log; None for what differs between the passes of a layer.
        """
        from .networks import to_networkx

        return to_networkx(self, rolled)
