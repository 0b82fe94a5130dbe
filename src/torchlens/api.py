"""The functions that users call. Read from top to bottom, this is the product.

What not every user needs (pictures, files, validation) is imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from inspect import signature
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ._torch import graph_break
from .capture.arguments import model_arguments
from .capture.buffers import BuffersKept
from .capture.changes import between
from .capture.submodule_run import trace_of
from .errors import ArgumentError, FidelityWarning, warn
from .log.apply_autograd import apply_autograd_options
from .log.apply_selection import apply_selection
from .log.backward_pass import BackwardPass, check_loss, listening
from .log.interventions import live_edits, run_before
from .log.model_log import ModelLog
from .log.raised import annotated
from .options import Options
from .selectors import Selector

if TYPE_CHECKING:
    from .bundle.stream import TraceStream
    from .draw.draw_options import DrawOptions
    from .validate.backward import BackwardReport
    from .validate.report import ValidationReport


@graph_break
def log_forward_pass(
    model: nn.Module,
    input_args: Any = None,
    input_kwargs: Mapping[str, Any] | None = None,
    *,
    layers_to_save: str | int | Callable[[Any], Any] | Iterable[Selector] | None = "all",
    activation_postfunc: Callable[[Tensor], Any] | None = None,
    save_raw_activation: bool = True,
    output_device: torch.device | str | None = None,
    output_dtype: torch.dtype | None = None,
    save_activations_to: str | PathLike[str] | None = None,
    keep_activations_in_memory: bool = True,
    random_seed: int | None = None,
    check_completeness: bool = False,
    save_gradients: bool | str | int | Callable[[Any], Any] | Iterable[Selector] = False,
    gradient_postfunc: Callable[[Tensor], Any] | None = None,
    train_mode: bool = False,
    detach_saved_tensors: bool = True,
    module: str | None = None,
    interventions: Mapping[Any, Any] | None = None,
    base: ModelLog | None = None,
    allow_change: bool = False,
    vis_mode: str = "none",
    **drawing: Any,
) -> ModelLog:
    """Run a model once, as it is, and return a log of every tensor operation.

    >>> log = tl.log_forward_pass(model, x)
    >>> log["fc"].activation.shape
    torch.Size([5, 5])
    >>> tl.log_forward_pass(model, x, layers_to_save=["relu", "fc", -1]).layer_labels
    ['relu_1_2', 'linear_1_3', 'relu_2_4', 'output_1_11']

    Args:
        model: the model. It runs as it is: in training mode, batch norm's running statistics change as in a plain
            forward pass. Nothing else in it is changed.
        input_args: one tensor, or a list or tuple of positional arguments. A model that takes a list, a dict or another
            container as its only argument gets it inside a list: `[batch]`.
        input_kwargs: keyword arguments.
        layers_to_save: "all" keeps every value, None only the metadata. Otherwise selectors: labels, module
            addresses ("fc:2", "attn[1]"), patterns ("h.*.attn"), module classes, numbers over the whole graph, parts of
            labels ("conv"), functions of the operation's record, `all_of`, `any_of`, or a list of these; the guide on
            choosing layers has them all. The log then lists what was saved. Labels and numbers are known
            only when the forward pass is over: until then, a label keeps all layers of its type, a number all layers.
        activation_postfunc: a function of each saved value; what it returns is in `layer.transformed_activation`.
        save_raw_activation: False keeps only what the function returned.
        output_device: where to put what is saved.
        output_dtype: what to convert saved floating point values to.
        save_activations_to: a folder that does not exist yet. Values are written into it while the model runs; at the
            end it is a bundle for `load`, with the model's weights in it. If the process dies before, `recover` has
            what was written until then.
        keep_activations_in_memory: False keeps the values in that folder only; `layer.activation` reads them there.
        random_seed: seeds torch, NumPy and Python before the run. Without it the generators go on from where they are.
        check_completeness: watch the dispatcher too, and report in `log.completeness` whether every operation was seen.
        save_gradients: True, or the layers whose gradients to keep, chosen as in `layers_to_save`. Any backward pass,
            from any layer, then fills `layer.gradient`. Saved values stay connected to autograd, so that there is
            something to begin from.
        gradient_postfunc: a function of each saved gradient; what it returns is in `layer.transformed_gradient`.
        train_mode: saved values stay connected to autograd: a loss computed from them trains the model.
        detach_saved_tensors: False is the older way to ask for that, without the checks that go with it.
        module: the address of a submodule to log alone, with what the model gives it; `"core:2"` is its second call.
            The rest of the model runs plainly.
        interventions: what to edit while the model runs: a dict from where to what. Where is a selector, an edge
            `(parent, child)`, or the address of a parameter; what is one of `tl.edits`, a tensor, a number, a function
            or a list of these. See the guide on interventions.
        base: a log of the same run, in which labels and numbers among the interventions are looked up. Without it they
            are looked up in a run before, on copies.
        allow_change: let edits change shape, type or device of what they edit.
        vis_mode: "unrolled" or "rolled" draws the graph as well; the other arguments are those of `show_model_graph`.

    If the model raises, the exception is the model's own; `exception.partial_log` holds what was logged until then.
    """
    options = Options.checked(
        layers_to_save=layers_to_save,
        activation_postfunc=activation_postfunc,
        save_raw_activation=save_raw_activation,
        output_device=output_device,
        output_dtype=output_dtype,
        save_activations_to=save_activations_to,
        keep_activations_in_memory=keep_activations_in_memory,
        random_seed=random_seed,
        check_completeness=check_completeness,
        save_gradients=save_gradients,
        gradient_postfunc=gradient_postfunc,
        train_mode=train_mode,
        detach_saved_tensors=detach_saved_tensors,
    )
    picture = _picture(log_forward_pass, vis_mode, drawing, model if module is None else None)
    args, kwargs = model_arguments(model, input_args, input_kwargs)
    before = partial(run_before, model, module, args, kwargs, options)
    edits = live_edits(model, interventions, base, allow_change, before, module)
    with _streaming(options) as stream:
        observers = (edits,) if edits is not None else ()
        trace, error, chooser = trace_of(model, module, args, kwargs, options, stream, observers)
        error = edits.error_of(error) if edits is not None else error
        log = ModelLog(trace, options)
        if error is None and edits is not None:
            edits.finish(lambda: log.graph)
        if error is None:
            apply_selection(log, chooser)
    if error is not None:
        apply_autograd_options(log)
        raise annotated(error, log, [*args, *kwargs.values()])
    apply_autograd_options(log)
    for warning in log.warnings:
        warn(warning, FidelityWarning)
    if picture is not None:
        from .draw.show import draw

        draw(log, picture)
    return log


@graph_break
def get_model_metadata(
    model: nn.Module,
    input_args: Any = None,
    input_kwargs: Mapping[str, Any] | None = None,
    *,
    random_seed: int | None = None,
    module: str | None = None,
) -> ModelLog:
    """Log everything about a forward pass but the values: no more memory than the forward pass itself.

    >>> metadata = tl.get_model_metadata(model, x)
    >>> metadata["fc"].tensor_shape, metadata["fc"].activation
    ((5, 5), None)

    The model's buffers are left as they were, also in training mode, when a forward pass changes them (batch norm's
    running statistics). `log_forward_pass(layers_to_save=None)` does to them what a plain forward pass does.
    """
    kept = BuffersKept.of(model)
    logged = partial(log_forward_pass, layers_to_save=None, random_seed=random_seed, module=module)
    return between(kept.begin, partial(logged, model, input_args, input_kwargs), kept.end)


@graph_break
def show_model_graph(
    model: nn.Module,
    input_args: Any = None,
    input_kwargs: Mapping[str, Any] | None = None,
    *,
    random_seed: int | None = None,
    vis_mode: str = "unrolled",
    **drawing: Any,
) -> Path:
    """Draw the graph of a model: write the picture, show it, and return the file's path. No values are kept.

    >>> path = tl.show_model_graph(model, x, vis_outpath=folder / "model.svg", vis_save_only=True)
    >>> path.name
    'model.svg'

    In a notebook the picture appears inline, from a script in the system's viewer. The model's buffers are left as they
    were, as by `get_model_metadata`.

    Args:
        model, input_args, input_kwargs, random_seed: as in `log_forward_pass`.
        vis_mode: "unrolled" shows every operation, "rolled" every layer once, with its passes.
        vis_nesting_depth: how many levels of modules to show; those at the last level are drawn as one node each.
        vis_expand, vis_collapse: modules to open or to draw as one node whatever the depth: addresses, or a function of
            the module.
        vis_fold_repeats: draw identical blocks that follow each other once, with their number.
        vis_gather: draw as one node what a call returned together, a container of more than three inputs or outputs,
            and more than twelve alike operations side by side; False for a node for each tensor.
        module: the address of a submodule to show alone.
        vis_buffers: "never", "always", or "meaningful" to leave out those that torch's own layers keep for themselves,
            with the first states that recurrent ones make.
        vis_outpath: the file to write, "modelgraph.svg" by default; in a notebook none is left by default.
        vis_fileformat: "svg", "pdf", "png" or "dot"; taken from the path's ending if not given.
        vis_save_only: write the file and show nothing.
        vis_direction: "bottomup", "topdown" or "leftright".
        vis_color_by: "time", "memory", "flops", a dict from labels to numbers, or a function of the layer.
        vis_theme: "light" or "dark".
        vis_node_overrides, vis_edge_overrides, vis_module_overrides: other looks (`fill`, `line`, `font`, `pen`,
            `dashed`, `shape`, `label`, `tooltip`): a dict, or a function that returns one and is given the layer, the
            two layers of the edge, or the module.
        renderer: "builtin"; "graphviz" for Graphviz's layout, "auto" for that where it is installed and can cope.
    """
    from .draw.show import draw

    options = _picture(show_model_graph, vis_mode, drawing, model)
    if options is None:
        raise ArgumentError('vis_mode must be "unrolled" or "rolled"; with "none" there is nothing to draw')
    return draw(get_model_metadata(model, input_args, input_kwargs, random_seed=random_seed), options)


def _picture(
    function: Callable[..., Any], vis_mode: Any, drawing: dict[str, Any], model: nn.Module | None
) -> DrawOptions | None:
    """The options of a picture that `function` is to draw, checked before the model runs; None if none is wanted."""
    if vis_mode == "none" and not drawing:
        return None
    from .draw.show import picture_options

    return picture_options(signature(function).parameters, vis_mode, drawing, model)


@graph_break
def validate_model_activations(
    model: nn.Module,
    input_args: Any = None,
    input_kwargs: Mapping[str, Any] | None = None,
    random_seed: int | None = None,
    verbose: bool = False,
    *,
    perturb: bool = True,
) -> ValidationReport:
    """Check that what a log of this model holds is right. The answer is true or false, and prints what was found.

    >>> bool(tl.validate_model_activations(model, x))
    True

    The model runs twice, on copies of itself and of the input: plainly and logged. The outputs must agree bit for bit;
    then every operation is computed again from its parents' saved values and compared, each parent is changed to make
    sure that the result would have shown it (unless `perturb=False`), the operations that reached the dispatcher are
    checked against the log, and the log is checked for consistency. The model, the input and the random generators are
    left as they were.
    """
    from .validate.two_runs import plain_and_logged

    args, kwargs = model_arguments(model, input_args, input_kwargs)
    expected, trace = plain_and_logged(model, args, kwargs, random_seed)
    log = ModelLog(trace)
    report = log.validate(perturb)
    report.compare_outputs(expected, [log[label] for label in log.output_layers])
    if verbose:
        print(report)
    return report


def save(
    log: ModelLog,
    path: str | PathLike[str],
    *,
    overwrite: bool = False,
    include_activations: bool = True,
    include_gradients: bool = True,
    include_arguments: bool = True,
) -> Path:
    """Save a log as a folder of JSON and safetensors files, without any pickle, and return the folder's path.

    >>> path = tl.save(log, folder / "demo")
    >>> tl.load(path)["fc"].activation.equal(log["fc"].activation)
    True

    Args:
        log: the log.
        path: the folder to make. It appears when all of it is on the disk: a crash leaves what was there before, or
            nothing.
        overwrite: replace a bundle that is there; anything else that is there is never replaced.
        include_activations: False leaves the values out, and saves all that is known about them.
        include_gradients: False leaves out what backward passes brought.
        include_arguments: False leaves out what only `log.replay` and `log.validate` need: the values of all
            parameters that were used, the states of random generators, NumPy arrays given to torch functions.

    A bundle holds the model's weights too, unless `include_arguments=False`: 45 MB of 110 MB for a ResNet-18.

    Tensors that share memory share it in the file. What the log knows of your code goes with it: names of files and
    functions, and the lines around each call. An argument that is neither a tensor nor plain data is saved as its repr.
    A tensor that can't be saved exactly (of a class of your own, say) is an error; nothing is left out silently.
    """
    if not isinstance(log, ModelLog):
        raise ArgumentError(f"the first argument must be a ModelLog, not {type(log).__name__}")
    from .bundle.save import save_trace

    save_trace(
        log._trace,
        Path(path),
        overwrite=overwrite,
        activations=include_activations,
        gradients=include_gradients,
        arguments=include_arguments,
    )
    return Path(path)


def load(path: str | PathLike[str], lazy: bool = False, trust: bool = False) -> ModelLog:
    """The log that `save` wrote. Nothing that the files name is imported or run.

    >>> path = tl.save(log, folder / "log")
    >>> again = tl.load(path)
    >>> again["fc"].parent_layers, bool(again.validate())
    (['relu_1_2'], True)

    With `lazy=True` only the metadata is read; a tensor is read when it is asked for, and
    `layer.materialize_activation()` keeps it. Every tensor is checked against its hash when it is read.

    A bundle that is damaged, makes no sense or comes from another version is a `BundleError`. Functions are known by
    name: computing again (`log.validate()`, `log.replay()`) works for torch's own, and without `trust=True` only for
    common ones that are known to check their arguments. Trust a file if you know who wrote it.
    """
    return ModelLog.load(path, lazy, trust)


def recover(path: str | PathLike[str]) -> ModelLog:
    """What is whole of a log that was cut short while it was written with `save_activations_to`.

    >>> streamed = tl.log_forward_pass(model, x, save_activations_to=folder / "streamed")
    >>> tl.recover(folder / "streamed").num_tensors_saved       # nothing was cut short here
    12

    The log ends with the last tensor that was written whole; `log.warnings` says how many more had been computed. Of a
    bundle whose files were damaged it has every tensor that is whole. Tensors stay in the files and are read when they
    are asked for; `save` makes a bundle of them. A bundle that had just been put aside to be replaced by `save` when
    the process died is put back.
    """
    from .bundle.recover import recover_trace

    return ModelLog(recover_trace(Path(path)))


@contextmanager
def _streaming(options: Options) -> Iterator[TraceStream | None]:
    """Where the values go while the model runs. A model that raised leaves a bundle of what was logged until then."""
    if options.save_activations_to is None:
        yield None
        return
    from .bundle.stream import TraceStream

    stream = TraceStream(options.save_activations_to, options.keep_activations_in_memory)
    try:
        yield stream
        stream.finish()
    except BaseException:
        stream.abandon()
        raise


@graph_break
def validate_backward_pass(
    model: nn.Module,
    input_args: Any = None,
    input_kwargs: Mapping[str, Any] | None = None,
    loss_fn: Callable[[Any], Tensor] | None = None,
    random_seed: int | None = None,
    verbose: bool = False,
) -> BackwardReport:
    """Check that the gradients that a log of this model holds are right. True or false, and prints what was found.

    >>> bool(tl.validate_backward_pass(model, x))
    True
    >>> bool(tl.validate_backward_pass(model, x, loss_fn=lambda output: output.square().mean()))
    True

    The model runs twice, on copies of itself and of the input: plainly with hooks on what its modules return, and
    logged. The gradients of all parameters, inputs and module outputs must agree bit for bit, and the gradient of every
    layer must be the one that `torch.autograd.grad` gives. `loss_fn` makes a number of what the model returns; without
    it, a weighted sum of all outputs is taken. The model, the input and the random generators are left as they were.
    """
    from .validate.backward import compare_backward_passes, default_loss

    args, kwargs = model_arguments(model, input_args, input_kwargs)
    logged = partial(log_forward_pass, save_gradients=True)
    report = compare_backward_passes(model, args, kwargs, loss_fn or default_loss, random_seed, logged)
    if verbose:
        print(report)
    return report


def log_backward(loss: Tensor, **arguments: Any) -> list[BackwardPass]:
    """Run `loss.backward()` and return what it did to each log that was made with `save_gradients`.

    >>> log = tl.log_forward_pass(model, x, save_gradients=True)
    >>> tl.log_backward(log.output.sum())
    [BackwardPass(1: 7 nodes of 6 layers)]
    >>> log["fc"].gradient.shape
    torch.Size([5, 5])

    The arguments are those of `Tensor.backward`.
    """
    before = [(log, len(log.backward_passes)) for log in listening]
    check_loss(loss)
    loss.backward(**arguments)  # type: ignore[no-untyped-call]
    passes = [log.backward_passes[-1] for log, count in before if len(log.backward_passes) > count]
    if not passes:
        raise ArgumentError("the loss was not computed from a log that was made with save_gradients=True")
    return passes
