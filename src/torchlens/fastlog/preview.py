"""What would be kept? Asked of one run, as often as you like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from .._torch import graph_break
from ..capture.arguments import model_arguments
from ..capture.buffers import BuffersKept
from ..capture.changes import between
from ..capture.describe import modules_of
from ..capture.keeping import Keeper
from ..capture.records import Trace, has_numbers
from ..errors import ArgumentError
from ..log.interventions import live_edits, run_before
from ..log.layer_log import LayerLog
from ..log.model_log import ModelLog
from ..options import Options
from ..selectors import YES, Modules, Seen
from ..words import counted, human_size, shape_words
from .collector import Collector, failure_of
from .events import Event, History, Name
from .record_context import FIELDS, RecordContext
from .recorder import check_history_size, run_once
from .recording import data_frame
from .rules import Rules
from .spec import AS_IT_IS, CaptureSpec

#: How nodes that would be kept look.
KEPT_LOOK = {"fill": "#FFD966", "pen": 2.5}


@graph_break
def dry_run(
    model: nn.Module,
    input_args: Any = None,
    input_kwargs: Mapping[str, Any] | None = None,
    *,
    keep_op: Any = None,
    keep_module: Any = None,
    default_op: bool | CaptureSpec = False,
    default_module: bool | CaptureSpec = False,
    history_size: int = 8,
    random_seed: int | None = None,
    interventions: Mapping[Any, Any] | None = None,
) -> Preview:
    """Run a model once and see what would be kept; nothing is. Then try something else on the same run.

    >>> preview = tl.fastlog.dry_run(model, x, keep_op="relu")
    >>> [context.label for context in preview.kept]
    ['relu_1_2', 'relu_2_4']
    >>> [context.label for context in preview.retry(keep_op="fc").kept]
    ['fc:1']

    `print(preview)` is a tree of modules and operations, `preview.table()` a table, `preview.draw()` a picture. The
    arguments are those of `tl.fastlog.record`. The model's buffers are left as they were, also in training mode.
    """
    args, kwargs = model_arguments(model, input_args, input_kwargs)
    modules, size = modules_of(model), check_history_size(history_size)
    rules = Rules(  # wrong arguments are noticed before the run
        modules, keep_op=keep_op, keep_module=keep_module, default_op=default_op, default_module=default_module
    )
    collector = Collector(Rules(modules, keep_op=lambda ctx: False), Keeper(), size, lambda record: None)
    collector.trail = []
    options = Options.checked(layers_to_save=None, random_seed=random_seed)
    before = partial(run_before, model, None, args, kwargs, options)
    edits = live_edits(model, interventions, None, False, before)
    kept = BuffersKept.of(model)
    structure = between(kept.begin, partial(run_once, model, args, kwargs, options, collector, edits), kept.end)
    trail = (collector.trail, collector.outputs, collector.values_of, collector.names_of)
    return Preview(PreviewedRun(structure, *trail, modules, size), rules)


class PreviewedRun(NamedTuple):
    """A run of which all events are known."""

    structure: Trace
    events: list[Event]
    outputs: list[tuple[Event, str]]  # what the model returned, with the path of each
    values_of: dict[int, list[int]]  # the values of each event, by its index
    names_of: dict[int, Sequence[Name | None]]  # the names of what a module call returned, by its index
    modules: Modules
    history_size: int


class Preview:
    """What would be kept of a run: what `dry_run` returns.

    >>> print(tl.fastlog.dry_run(model, x, keep_op="relu"))
    2 of 17 events would be kept, 200 B
      input_1_0
      self:1
          add_1_1
          relu_module:1
            * relu_1_2  5x5
          fc:1
              linear_1_3
        * relu_2_4  5x5
          randn_1_5
          add_2_6
          pow_1_7
          truediv_1_8
          buffer_1_9
          mul_1_10
    """

    def __init__(self, run: PreviewedRun, rules: Rules) -> None:
        self._run = run
        returned = [event for event, path in run.outputs if _is_output_kept(event, path, rules)]
        self._events = [*run.events, *returned]
        self._specs = _specs(run, rules) + [AS_IT_IS] * len(returned)

    def retry(
        self,
        *,
        keep_op: Any = None,
        keep_module: Any = None,
        default_op: bool | CaptureSpec = False,
        default_module: bool | CaptureSpec = False,
    ) -> Preview:
        """The same run with another choice; the model does not run again."""
        rules = Rules(
            self._run.modules,
            keep_op=keep_op,
            keep_module=keep_module,
            default_op=default_op,
            default_module=default_module,
        )
        return Preview(self._run, rules)

    @property
    def events(self) -> list[RecordContext]:
        """Every event of the run."""
        return [RecordContext(event) for event in self._events]

    @property
    def kept(self) -> list[RecordContext]:
        """The events that would be kept."""
        return [RecordContext(event) for event, spec in zip(self._events, self._specs, strict=True) if spec]

    @property
    def nbytes(self) -> int:
        """Bytes that would be stored."""
        pairs = zip(self._events, self._specs, strict=True)
        return sum(_bytes(event, spec) for event, spec in pairs if spec is not None)

    def __repr__(self) -> str:
        lines = [f"{len(self.kept)} of {counted(len(self._events), 'event')} would be kept, {human_size(self.nbytes)}"]
        depth = 0
        exits = {id(event.frame): spec for event, spec in zip(self._events, self._specs, strict=True) if _exits(event)}
        for event, spec in zip(self._events, self._specs, strict=True):
            if event.kind == "module_exit":
                depth -= 1
                continue
            if event.kind == "module_enter":
                marks = [word for word, wanted in (("given", spec), ("returned", exits.get(id(event.frame)))) if wanted]
                lines.append(_line(depth, bool(marks), event.label + (f"  {', '.join(marks)}" if marks else "")))
                depth += 1
                continue
            shape = f"  {shape_words(event.facts[0])}" if spec and event.facts is not None else ""
            lines.append(_line(depth, spec is not None, event.label + shape))
        return "\n".join(lines)

    def table(self) -> str:
        """The events that would be kept, as a table."""
        names = ("event_index", "kind", "label", "module_address", "func_name", "tensor_shape", "tensor_dtype")
        rows = [[str(getattr(context, name)) for name in names] for context in self.kept]
        widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in [list(names), *rows]
        )

    def to_pandas(self) -> Any:
        """A row for every event, with whether it would be kept; needs pandas."""
        names = [name for name in FIELDS if not name.startswith("recent")]
        return data_frame(
            [
                {**{name: getattr(RecordContext(event), name) for name in names}, "kept": spec is not None}
                for event, spec in zip(self._events, self._specs, strict=True)
            ]
        )

    def draw(self, **drawing: Any) -> Path:
        """Draw the graph with what would be kept marked; the arguments are those of `show_model_graph`.

        >>> preview = tl.fastlog.dry_run(model, x, keep_op="relu")
        >>> preview.draw(vis_outpath=folder / "preview.svg", vis_save_only=True).name
        'preview.svg'
        """
        log = ModelLog(self._run.structure)
        return log.draw(**self._marked(log, drawing))

    def to_dot(self, **drawing: Any) -> str:
        """The same picture in Graphviz's DOT language."""
        log = ModelLog(self._run.structure)
        return log.to_dot(**self._marked(log, drawing))

    def _marked(self, log: ModelLog, drawing: dict[str, Any]) -> dict[str, Any]:
        """The arguments of the picture, with another look for what would be kept."""
        if "vis_node_overrides" in drawing:
            raise ArgumentError(
                "vis_node_overrides can't be given here: this picture uses it to mark what would be kept"
            )
        graph, kept = log.graph, [context.event_index for context in self.kept]
        values = {index for event in kept for index in self._run.values_of.get(event, ())}
        places = [graph.place[index] for index in values if index in graph.place]
        labels = {graph.label(place) for place in places} | {graph.layer_labels[graph.layers[p]] for p in places}

        def look(layer: Any) -> dict[str, Any] | None:
            label = layer.layer_label if isinstance(layer, LayerLog) else layer.label
            return KEPT_LOOK if label in labels else None

        return {**drawing, "vis_node_overrides": look}


def _specs(run: PreviewedRun, rules: Rules) -> list[CaptureSpec | None]:
    """How each event would be kept."""
    history = History(run.history_size)
    specs = []
    for event in run.events:
        try:
            specs.append(_spec(event, rules, history, run.names_of.get(event.number, [None])))
        except Exception as raised:
            raise failure_of(rules, event, raised) from raised
        history.add(event)
    return specs


def _is_output_kept(event: Event, path: str, rules: Rules) -> bool:
    always = any(kind.answer(Seen("output")) == YES for kind in rules.op.kinds)
    return always or rules.op.names(event, History(0), path)


def _spec(event: Event, rules: Rules, history: History, names: Sequence[Name | None]) -> CaptureSpec | None:
    if event.name is None:
        specs = rules.specs_for_module(event, history, names)
        return next((spec for spec in specs if spec is not None), None)
    event.name[0].spec = rules.op.always(event.name[0].layer_type)
    return rules.spec_for_op(event, history)


def _bytes(event: Event, spec: CaptureSpec) -> int:
    if event.facts is None or not spec.save_activation or not has_numbers(event.facts[0]):
        return 0
    dtype = spec.dtype if spec.dtype is not None and event.facts[1].is_floating_point else event.facts[1]
    return event.facts[0].numel() * dtype.itemsize


def _exits(event: Event) -> bool:
    return event.kind == "module_exit"


def _line(depth: int, marked: bool, text: str) -> str:
    return "    " * depth + ("* " if marked else "  ") + text
