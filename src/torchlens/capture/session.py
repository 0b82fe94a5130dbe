"""Run a model once and record everything."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from .._torch import inside_compiled, without_torch_function
from ..options import Options
from . import native, rng
from .calls import TorchCalls
from .changes import Changes, between
from .choose import Chooser
from .containers import Unseen, tensors_in
from .describe import describe_modules, describe_tensors
from .dispatcher import Completeness, Fallback, Watcher, Witness
from .following import Following
from .gradients import Gradients
from .keeping import Keeper, Transform, ValueSink, give_own_memory
from .observer import Observer
from .origins import Origins
from .records import Trace
from .surroundings import captured
from .tracer import Tracer

native.use_if_wanted()


class RunResult(NamedTuple):
    """What came of running a model once."""

    trace: Trace
    error: BaseException | None  # what it raised
    chooser: Chooser | None  # if not all values were kept: it knows which ones are wanted


def run_traced(
    model: nn.Module,
    args: list[Any],
    kwargs: dict[str, Any],
    options: Options,
    sink: ValueSink | None = None,
    observers: tuple[Observer, ...] = (),
) -> RunResult:
    """Run `model(*args, **kwargs)` once, as it is, and let observers take part, in this order."""
    trace = Trace(type(inside_compiled(model)).__name__, values_kept=options.keeps_all and sink is None)
    trace.grad_enabled = torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    modules = describe_modules(model, trace)
    keeper = Keeper()
    following = Following(bool(options.save_gradients)) if options.follows_autograd else None
    chooser = None
    if options.layers_to_save is not None and not trace.values_kept:
        # What is to stay connected to autograd is transformed when the forward pass is over.
        transform = None if options.follows_autograd else transform_of(options)
        chooser = Chooser(options.selection, transform, sink)
    observers += tuple([observer for observer in (following, chooser) if observer is not None])
    tensors_by_id = describe_tensors(modules, trace)
    for observer in observers:
        observer.begin(trace, keeper)
    started = time.perf_counter()
    tracer = Tracer(trace, tensors_by_id, modules, keeper, observers)
    trace.seed = rng.seed_generators(options.random_seed)
    trace.start_time = time.time()
    if sink is not None:
        sink.begin(trace)
    origins = tracer.identity.origins = Origins()
    telling = Changes([origins])  # until what the model returned is recorded
    if options.check_completeness:
        trace.completeness = Completeness()
    error = between(telling.begin, partial(_run, model, modules, args, kwargs, tracer), telling.end)
    if following is not None:
        _keep_autograd(following, trace, options)
    give_own_memory((entry[0] for entry in tracer.identity.live.values()), following.held() if following else {})
    tracer.close()
    trace.values_kept = options.keeps_all
    trace.end_time = time.time()
    trace.seconds = time.perf_counter() - started
    return RunResult(trace, error, chooser)


def _run(
    model: nn.Module, modules: list[nn.Module], args: list[Any], kwargs: dict[str, Any], tracer: Tracer
) -> BaseException | None:
    """Record the inputs, the forward pass and the outputs; return what was raised."""
    trace, origins, error = tracer.trace, tracer.identity.origins, None
    assert origins is not None
    try:
        with without_torch_function():
            for path, tensor in input_tensors(args, kwargs, trace.warnings):
                tracer.identity.add_input(tensor, path)
            args, kwargs = tracer.told((args, kwargs))
        tracer.watchers = partial(dispatcher_watched, modules=modules, check=(trace.completeness, origins))
        changes = captured(tracer, modules)
        try:
            result = between(changes.begin, partial(model, *args, **kwargs), changes.end)
        finally:
            tracer.end()
        tracer.record_output(result)
        result = None  # if nobody else has it, it needs no memory of its own
        trace.complete = True
        if _was_lazy(trace):
            describe_tensors(modules, trace)
    except BaseException as raised:
        error = raised
        _forget_unfinished(trace)
    origins.report(trace)
    return error


def _keep_autograd(following: Following, trace: Trace, options: Options) -> None:
    trace.connections = following.connections
    if options.save_gradients:
        edges = {index: edge for index, edge in following.edges.items() if index < len(trace.values)}
        trace.gradients = Gradients(trace, edges, options.gradient_postfunc)


def dispatcher_watched(
    tracer: TorchCalls,
    modules: Iterable[nn.Module],
    check: tuple[Completeness | None, Origins | None] = (None, None),
) -> Iterator[Watcher]:
    """See at the dispatcher what Python can't: always in scripted modules, and as a check when asked to."""
    found, origins = check
    if found is not None and origins is not None:
        yield Witness(tracer, found, origins)
    if any(issubclass(kind, torch.jit.ScriptModule) for kind in set(map(type, modules))):
        yield Fallback(tracer)


def transform_of(options: Options) -> Transform | None:
    if not options.transforms:
        return None
    raw, device, dtype = options.save_raw_activation, options.output_device, options.output_dtype
    return Transform(options.activation_postfunc, raw, device, dtype)


def input_tensors(
    args: list[Any], kwargs: dict[str, Any], warnings: list[str] | None = None
) -> list[tuple[str, Tensor]]:
    """The tensors among the arguments, each with its path; in which of them tensors may be hidden is a warning."""
    unseen: list[Unseen] = []
    found = tensors_in(args, unseen)
    for name, argument in kwargs.items():
        hidden: list[Unseen] = []
        found += [(name + path, tensor) for path, tensor in tensors_in(argument, hidden)]
        unseen += [each._replace(path=name + each.path) for each in hidden]
    if warnings is not None:
        warnings += [
            f"the input {path or 'as a whole'} ({what}) can't be looked into: the tensors in it are logged as sources, "
            "not as inputs; give the model a list, a dict or an object with attributes"
            for path, what, holds in unseen
            if holds
        ]
    return found


def _was_lazy(trace: Trace) -> bool:
    """Were there parameters without a shape before the forward pass?"""
    return any(info.shape is None for info in trace.param_infos + trace.buffer_infos)


def _forget_unfinished(trace: Trace) -> None:
    """Drop values whose call was cut off before it was recorded."""
    values = trace.values
    while values and values[-1].call >= len(trace.calls):
        values.pop()
