"""The functions that users call: read top to bottom, this is the product."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .bundle.recover import recover_recording
from .bundle.save import save_recording
from .bundle.stream import RecordingStream
from .capture import rng
from .capture.containers import fresh_copy, tensors_in
from .capture.records import Recording
from .capture.session import record
from .errors import ArgumentError, FidelityWarning
from .graph.sites import user_stack
from .log.model_log import ModelLog
from .log.settle import settle
from .options import Options
from .selectors import Selector
from .source import FuncCallLocation
from .validate.report import ValidationReport


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
) -> ModelLog:
    """Run a model once, as it is, and return a log of every tensor operation.

    >>> log = tl.log_forward_pass(model, x)
    >>> log["fc"].activation.shape
    torch.Size([5, 5])
    >>> tl.log_forward_pass(model, x, layers_to_save=["relu", "fc", -1]).layer_labels
    ['relu_1_2', 'linear_1_3', 'relu_2_4', 'output_1_11']

    Args:
        model: the model; nothing in it is changed.
        input_args: one tensor, or a list or tuple of positional arguments. A model that takes a list, a dict or another
            container as its only argument gets it inside a list: `[batch]`.
        input_kwargs: keyword arguments.
        layers_to_save: "all" keeps every value, None only the metadata. Otherwise what to keep: labels, module
            addresses (what the module returned), numbers over the whole graph, parts of labels ("conv"), functions of
            the operation's record, or a list of these. The log then lists what was saved. Labels and numbers are known
            only when the forward pass is over: until then, a label keeps all layers of its type, a number all layers.
        activation_postfunc: a function of each saved value; what it returns is in `layer.transformed_activation`.
        save_raw_activation: False keeps only what the function returned.
        output_device: where to put what is saved.
        output_dtype: what to convert saved floating point values to.
        save_activations_to: a folder that does not exist yet. Values are written into it while the model runs; at the
            end it is a bundle for `load`. If the process dies before, `recover` has what was written until then.
        keep_activations_in_memory: False keeps the values in that folder only; `layer.activation` reads them there.
        random_seed: seeds torch, NumPy and Python before the run. Without it the generators go on from where they are.
        check_completeness: watch the dispatcher too, and report in `log.completeness` whether every operation was seen.

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
    )
    args, kwargs = _arguments(model, input_args, input_kwargs)
    with _streaming(options) as stream:
        recording, error = record(model, args, kwargs, options, stream)
        log = ModelLog(recording)
        if error is None:
            settle(log)
    if error is not None:
        raise _annotated(error, recording, log)
    for warning in recording.warnings:
        warnings.warn(warning, FidelityWarning, stacklevel=2)
    return log


def get_model_metadata(
    model: nn.Module,
    input_args: Any = None,
    input_kwargs: Mapping[str, Any] | None = None,
    *,
    random_seed: int | None = None,
) -> ModelLog:
    """Log everything about a forward pass but the values: no more memory than the forward pass itself.

    >>> metadata = tl.get_model_metadata(model, x)
    >>> metadata["fc"].tensor_shape, metadata["fc"].activation
    ((5, 5), None)
    """
    return log_forward_pass(model, input_args, input_kwargs, layers_to_save=None, random_seed=random_seed)


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
    args, kwargs = _arguments(model, input_args, input_kwargs)
    with rng.restored():
        seed = rng.begin(random_seed)
        expected = deepcopy(model)(*fresh_copy(args), **fresh_copy(kwargs))
        options = Options(random_seed=seed, check_completeness=True)
        recording, error = record(deepcopy(model), fresh_copy(args), fresh_copy(kwargs), options)
    if error is not None:
        raise error
    log = ModelLog(recording)
    report = log.validate(perturb)
    report.compare_outputs([tensor for _, tensor in tensors_in(expected)], [log[label] for label in log.output_layers])
    if verbose:
        print(report)
    return report


def save(
    log: ModelLog,
    path: str | PathLike[str],
    *,
    overwrite: bool = False,
    include_activations: bool = True,
    include_arguments: bool = True,
) -> None:
    """Save a log as a folder of JSON and safetensors files, without any pickle.

    >>> tl.save(log, folder / "demo")
    >>> tl.load(folder / "demo")["fc"].activation.equal(log["fc"].activation)
    True

    Args:
        log: the log.
        path: the folder to make. It appears when all of it is there: a crash leaves what was there before, or nothing.
        overwrite: replace a bundle that is there; anything else that is there is never replaced.
        include_activations: False leaves the values out, and saves all that is known about them.
        include_arguments: False leaves out what only computing again needs: the values of parameters, the states of
            random generators, NumPy arrays given to torch functions.

    Tensors that share memory share it in the file. What the log knows of your code goes with it: names of files and
    functions, and the lines around each call. An argument that is neither a tensor nor plain data is saved as its repr.
    A tensor that can't be saved exactly (of a class of your own, say) is an error; nothing is left out silently.
    """
    if not isinstance(log, ModelLog):
        raise ArgumentError(f"the first argument is a log, not {_kind(log)}")
    save_recording(
        log._recording,
        Path(path),
        overwrite=overwrite,
        activations=include_activations,
        arguments=include_arguments,
    )


def load(path: str | PathLike[str], lazy: bool = False) -> ModelLog:
    """The log that `save` wrote. Nothing that the files name is imported or run.

    >>> tl.save(log, folder / "log")
    >>> again = tl.load(folder / "log")
    >>> again["fc"].parent_layers, bool(again.validate())
    (['relu_1_2'], True)

    With `lazy=True` only the metadata is read; a tensor is read when it is asked for, and
    `layer.materialize_activation()` keeps it. Every tensor is checked against its hash when it is read.

    A bundle that is damaged, was altered or comes from a newer version is a `BundleError`. Functions are known by name:
    computing again (`log.validate()`) works for torch's own.
    """
    return ModelLog.load(path, lazy)


def recover(path: str | PathLike[str]) -> ModelLog:
    """What is whole of a log that was cut short while it was written with `save_activations_to`.

    >>> streamed = tl.log_forward_pass(model, x, save_activations_to=folder / "streamed")
    >>> tl.recover(folder / "streamed").num_tensors_saved       # nothing was cut short here
    12

    The log ends with the last tensor that was written whole; `log.warnings` says what is missing. Its tensors stay in
    the files and are read when they are asked for; `save` makes a bundle of them.
    """
    return ModelLog(recover_recording(Path(path)))


@contextmanager
def _streaming(options: Options) -> Iterator[RecordingStream | None]:
    """Where the values go while the model runs. A model that raised leaves a bundle of what was logged until then."""
    if options.save_activations_to is None:
        yield None
        return
    stream = RecordingStream(options.save_activations_to, options.keep_activations_in_memory)
    try:
        yield stream
        stream.finish()
    except BaseException:
        stream.abandon()
        raise


def _arguments(model: Any, input_args: Any, input_kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"the first argument is the model, an nn.Module, not {_kind(model)}")
    if input_kwargs is not None and not isinstance(input_kwargs, Mapping):
        raise ArgumentError(f"input_kwargs is a dict of keyword arguments, not {_kind(input_kwargs)}")
    if input_args is None:
        args = []
    elif type(input_args) in (list, tuple):
        args = list(input_args)
    else:
        args = [input_args]
    return args, dict(input_kwargs or {})


def _kind(thing: Any) -> str:
    return f"a class ({thing.__name__})" if isinstance(thing, type) else f"of type {type(thing).__name__}"


def _annotated(error: BaseException, recording: Recording, log: ModelLog) -> BaseException:
    """The user's own exception, with a note of how far the forward pass got and the log until there."""
    with contextlib.suppress(AttributeError, TypeError):  # an exception may refuse new attributes
        error.partial_log = log  # type: ignore[attr-defined]
    if sys.version_info >= (3, 11):
        error.add_note(_progress(recording))
    return error


def _progress(recording: Recording) -> str:
    note = f"torchlens: the forward pass raised after {len(recording.calls)} operations"
    if recording.calls:
        last = recording.calls[-1]
        stack = user_stack(recording, last.site, last.module_call)
        where = FuncCallLocation(*stack[0]) if stack else None
        note += f"; the last one was {last.function.name}"
        if last.module_call >= 0:
            module = recording.modules[recording.module_calls[last.module_call].module]
            note += f" in {module.address or 'the model itself'}"
        if where is not None:
            note += f", {where.file}:{where.line}"
    return note + " (what was logged until then is in this exception's partial_log)"
