"""Run models and keep what is chosen: one forward pass, or as many as you like."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dis import opname
from functools import partial
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import FrameType
from typing import Any
from weakref import finalize

from torch import Tensor, nn

from .._torch import graph_break, inside_compiled
from ..capture.arguments import model_arguments
from ..capture.changes import Change, Changes, begin_or_undo
from ..capture.describe import modules_of
from ..capture.keeping import Keeper
from ..capture.modules import StandInsPut, WatchedHere
from ..capture.observer import Observer
from ..capture.records import Trace
from ..capture.session import run_traced
from ..capture.surroundings import EAGER
from ..errors import ArgumentError, FidelityWarning, LayerNotFoundError, named_arguments, warn
from ..intervene.live import LiveEdits
from ..log.interventions import live_edits, run_before
from ..log.model_log import ModelLog
from ..options import Options
from ..selectors import Selector, near_names, selector_text
from .collector import Collector, Stopped
from .events import Run
from .light_edits import LightEdits
from .light_tracer import LightTracer
from .recording import Record, Recording
from .recording_files import RecordStream, check_sample, check_storage
from .rules import Rules
from .spec import CaptureSpec, check_training
from .structural import Watch


@graph_break
def record(
    model: nn.Module,
    input_args: Any = None,
    input_kwargs: Mapping[str, Any] | None = None,
    *,
    keep_op: Any = None,
    keep_module: Any = None,
    default_op: bool | CaptureSpec = False,
    default_module: bool | CaptureSpec = False,
    stop_after: Any = None,
    history_size: int = 8,
    train_mode: bool = False,
    postfunc: Callable[[Tensor], Tensor] | None = None,
    save_to: str | os.PathLike[str] | None = None,
    keep_in_memory: bool = True,
    random_seed: int | None = None,
    interventions: Mapping[Any, Any] | None = None,
    base: ModelLog | None = None,
    allow_change: bool = False,
) -> Recording:
    """Run a model once and keep what is chosen.

    >>> recording = tl.fastlog.record(model, x, keep_op="relu")
    >>> [record.label for record in recording]
    ['relu_1_2', 'relu_2_4']
    >>> recording = tl.fastlog.record(model, x, keep_module=lambda ctx: ctx.kind == "module_exit")
    >>> recording["fc"].activation.shape
    torch.Size([5, 5])

    Args:
        model, input_args, input_kwargs, random_seed: as in `log_forward_pass`.
        keep_op: which operations (inputs and buffers too) to keep: part of a type such as "relu", a label as counted in
            this pass, a module address (what it returned), a number, a function of a `RecordContext`, a list of these;
            True or a `CaptureSpec` for everything. A function returns True, False, None for the default, or a
            `CaptureSpec`.
        keep_module: which module calls to keep: addresses, or a function, which is asked with contexts of kind
            "module_enter" (the tensors among the arguments are kept) and "module_exit" (those among the results).
        default_op, default_module: what None from a function means: True, False or a `CaptureSpec`.
        stop_after: end the forward pass after the event that this selects; of several, after the last.
        history_size: how many events and operations a context can look back.
        train_mode: what is kept stays connected to autograd.
        postfunc: a function of each value that is kept, such as `tl.reduce.mean()`; what it returns is kept instead.
        save_to: a folder to write the records to while the model runs; `fastlog.load` opens it again.
        keep_in_memory: False to keep values in the folder only; they are read when they are asked for.
        interventions, base, allow_change: as in `log_forward_pass`.
    """
    args, kwargs = model_arguments(model, input_args, input_kwargs)
    options = Options.checked(layers_to_save=None, random_seed=random_seed)
    rules = Rules(
        modules_of(model),
        keep_op=keep_op,
        keep_module=keep_module,
        default_op=default_op,
        default_module=default_module,
        stop_after=stop_after,
        train_mode=check_training(train_mode),
        postfunc=postfunc,
    )
    history_size = check_history_size(history_size)
    check_storage(save_to, keep_in_memory, train_mode)
    with RecordSink(type(inside_compiled(model)).__name__, save_to, keep_in_memory) as kept:
        collector = Collector(rules, Keeper(), history_size, kept.add)
        before = partial(run_before, model, None, args, kwargs, options)
        edits = live_edits(model, interventions, base, allow_change, before)
        structure = run_once(model, args, kwargs, options, collector, edits)
        for rule in (rules.op, rules.module):
            if rule.unmatched() and structure.complete:
                raise _nothing_chosen(rule.argument, rule.unmatched()[0], structure)
        recording = kept.finish(1, [*structure.warnings, *structure.remarks, *never_stopped(rules)])
    recording._log = partial(_log_of, structure)
    for warning in recording.warnings:
        warn(warning, FidelityWarning)
    return recording


class RecordSink:
    """Where records go: memory, a folder, or both."""

    def __init__(self, model_name: str, save_to: str | os.PathLike[str] | None, keep_in_memory: bool) -> None:
        self.records: list[Record] = []
        self._model_name = model_name
        self._stream = RecordStream(save_to, model_name, keep_in_memory) if save_to is not None else None

    def add(self, record: Record) -> None:
        if self._stream is not None:
            self._stream.put(record)
        self.records.append(record)

    def finish(self, runs: int, warnings: list[str]) -> Recording:
        stream, self._stream = self._stream, None
        if stream is not None:
            try:
                stream.finish(runs, warnings)
            except BaseException:
                stream.abandon()
                raise
        return Recording(self._model_name, self.records, runs, warnings)

    def __enter__(self) -> RecordSink:
        return self

    def __exit__(self, *raised: Any) -> None:
        """If the recording was not finished, leave what was written, to be recovered."""
        if self._stream is not None:
            self._stream.abandon()


def run_once(
    model: nn.Module,
    args: list[Any],
    kwargs: dict[str, Any],
    options: Options,
    collector: Collector,
    edits: LiveEdits | None = None,
) -> Trace:
    """Run the model and tell the collector of it; return the structure of the run."""
    collector.begin(Run(0, None))
    observers: tuple[Observer, ...] = (Watch(collector),) if edits is None else (edits, Watch(collector))
    structure, error, _ = run_traced(model, args, kwargs, options, observers=observers)
    error = edits.error_of(error) if edits is not None else error
    if error is None and edits is not None:
        edits.finish(lambda: ModelLog(structure).graph)
    if error is None:
        collector.check_names()
    if error is not None and not isinstance(error, Stopped):
        raise error
    if collector.failure is not None:
        raise collector.failure
    return structure


def _nothing_chosen(argument: str, selector: Selector, structure: Trace) -> LayerNotFoundError:
    hint = ""
    if isinstance(selector, str):
        graph = ModelLog(structure).graph
        hint = near_names(selector, graph)
        if selector in graph.layer_numbers:
            hint = "; fastlog numbers operations as they run and does not group passes into layers"
    return LayerNotFoundError(f"{argument}: nothing is chosen by {selector_text(selector)}{hint}")


def _log_of(structure: Trace) -> ModelLog:
    log = ModelLog(structure)
    graph = log.graph
    graph.listed = [place for place, value in enumerate(graph.entries) if value.kept is not None]
    return log


class Recorder:
    """Keep what is chosen of many forward passes, and nothing else of them.

    >>> with tl.fastlog.Recorder(model, keep_op="relu") as recorder:
    ...     for number in range(3):
    ...         output = recorder.log(x, sample_id=number)
    >>> recorder.recording
    Recording of DemoNetwork: 6 records of 3 passes, 600 B
    >>> recorder.recording.by_pass[2]["relu_1_2"].sample_id
    2

    Every call of the model inside the block is a pass, wherever it comes from: `model(x)` and each step of
    `model.generate(...)` too. What is called in other threads, or outside of the model, is not recorded.
    The arguments are those of `tl.fastlog.record`. `interventions` edit what modules return and what operations make,
    in every pass, chosen as in `keep_op`; nothing need be kept then.
    """

    @partial(named_arguments, name="Recorder")
    def __init__(
        self,
        model: nn.Module,
        *,
        keep_op: Any = None,
        keep_module: Any = None,
        default_op: bool | CaptureSpec = False,
        default_module: bool | CaptureSpec = False,
        stop_after: Any = None,
        history_size: int = 8,
        train_mode: bool = False,
        postfunc: Callable[[Tensor], Tensor] | None = None,
        save_to: str | os.PathLike[str] | None = None,
        keep_in_memory: bool = True,
        interventions: Mapping[Any, Any] | None = None,
        allow_change: bool = False,
    ) -> None:
        model_arguments(model, None, None)
        check_storage(save_to, keep_in_memory, train_mode)
        self._model = model
        self._rules = Rules(
            modules_of(model),
            keep_op=keep_op,
            keep_module=keep_module,
            default_op=default_op,
            default_module=default_module,
            stop_after=stop_after,
            train_mode=check_training(train_mode),
            postfunc=postfunc,
            may_be_empty=interventions is not None,
        )
        self._edits = LightEdits(interventions, model, allow_change) if interventions is not None else None
        self._history_size = check_history_size(history_size)
        self._save_to = save_to
        self._keep_in_memory = keep_in_memory
        self._kept: RecordSink | None = None
        self._tracer: LightTracer | None = None
        self._thread: int | None = None
        self._block = Changes([])
        self._recording: Recording | None = None

    def __enter__(self) -> Recorder:
        self.open(_frame_of_the_block())
        return self

    def open(self, frame: FrameType | None) -> None:
        """Begin to watch the calls of the model, at most as long as this frame runs."""
        if self._tracer is not None:
            raise ArgumentError("a Recorder can be entered only once; make a new one for each with-block")
        self._kept = RecordSink(type(inside_compiled(self._model)).__name__, self._save_to, self._keep_in_memory)
        collector = Collector(self._rules, Keeper(), self._history_size, self._kept.add, self._edits)
        self._tracer = LightTracer(self._model, collector)
        self._thread = threading.get_ident()
        eager = EagerCalls(self._model)
        compiled = inside_compiled(self._model) is not self._model
        outside: list[Change] = [StandInsPut([self._model]), WatchedHere(eager)] if compiled else []
        self._block = Changes([*outside, StandInsPut(self._tracer.watched), WatchedHere(self._tracer)])
        finalize(self, self._block.end)  # in case an interrupt comes while the with-block ends
        begin_or_undo(self._block, frame)

    def __exit__(self, *raised: Any) -> None:
        try:
            self.close()
        finally:
            self.close()
        assert self._tracer is not None
        runs = self._tracer.runs
        unmatched = [*self._rules.op.unmatched(), *self._rules.module.unmatched()]
        said = [f"nothing was chosen by {selector_text(selector)}" for selector in unmatched] + never_stopped(
            self._rules
        )
        said += self._edits.remarks() if self._edits is not None else []
        # What was recorded before the user's code raised is complete, and is kept.
        for warning in self.finish(said if runs and raised[0] is None else []).warnings:
            warn(warning, FidelityWarning)
        if self._edits is not None and runs and raised[0] is None:
            self._edits.check()

    def finish(self, said: Sequence[str] = ()) -> Recording:
        """What was kept, with these warnings; ends the recording."""
        assert self._tracer is not None and self._kept is not None
        self._tracer.close()
        self._recording = self._kept.finish(self._tracer.runs, [*self._tracer.warnings, *said])
        return self._recording

    def close(self) -> None:
        """Stop watching the model; can be repeated."""
        self._block.end()
        if self._tracer is not None:
            self._tracer.stop()
        self._thread = None

    def log(
        self,
        input_args: Any = None,
        input_kwargs: Mapping[str, Any] | None = None,
        *,
        sample_id: Any = None,
    ) -> Any:
        """Call the model and return what it returns; None if the pass was stopped early."""
        if self._tracer is None or self._thread is None:
            raise ArgumentError(
                "a Recorder works only inside its with-block: with Recorder(model, ...) as recorder: ..."
            )
        if self._thread != threading.get_ident():
            raise ArgumentError(
                "a Recorder works only in the thread that entered its with-block; make one for each thread"
            )
        if self._save_to is not None:
            check_sample(sample_id)
        args, kwargs = model_arguments(self._model, input_args, input_kwargs)
        self._tracer.sample_id, self._tracer.may_stop = sample_id, True
        try:
            return self._model(*args, **kwargs)
        except Stopped:
            if not self._tracer.collector.stopped:  # raised for another recorder, around this one
                raise
            return None
        finally:
            self._tracer.sample_id, self._tracer.may_stop = None, False

    def take(self) -> list[Record]:
        """The records kept so far, which are handed out and forgotten: for runs without an end."""
        if self._kept is None:
            raise ArgumentError(
                "a Recorder works only inside its with-block: with Recorder(model, ...) as recorder: ..."
            )
        taken, self._kept.records[:] = list(self._kept.records), []
        return taken

    @property
    def recording(self) -> Recording:
        """What was kept; there when the with-block is over."""
        if self._recording is None:
            raise ArgumentError("the recording is available only after the Recorder's with-block")
        return self._recording

    def __len__(self) -> int:
        """How many records there are so far."""
        return len(self._kept.records) if self._kept is not None else 0


class EagerCalls:
    """Makes a compiled model run its original Python code. That must be set before the model inside is called."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def enter_module(self, module: nn.Module, is_forward: bool, args: Any, kwargs: Any) -> Any:
        if module is not self._model:
            return None
        eager = Changes(EAGER)
        begin_or_undo(eager, sys._getframe(1))
        return eager

    def leave_module(self, call: Any, result: Any) -> Any:
        call.end()
        return result

    def abandon_module(self, call: Any) -> None:
        call.end()


def _frame_of_the_block() -> FrameType | None:
    """The frame that runs as long as the with-block does; None if that can't be known."""
    frame = sys._getframe(2)
    by_with = opname[frame.f_code.co_code[frame.f_lasti]] in ("BEFORE_WITH", "SETUP_WITH")
    suspends = frame.f_code.co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)
    return frame if by_with and not suspends else None


def check_history_size(size: Any) -> int:
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ArgumentError(f"history_size must be a number of events, not {size!r}")
    return size


def never_stopped(rules: Rules) -> list[str]:
    missing = [*rules.stop.unmatched(), *(p for p in rules.stop.predicates if p not in rules.stop.matched)]
    return [
        f"stop_after: nothing was chosen by {selector_text(selector)}; the forward pass ran to its end"
        for selector in missing
    ]
