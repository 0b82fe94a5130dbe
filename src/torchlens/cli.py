"""The command line, for those who just want to look: `torchlens show`, `summary`, `validate`, `extract`, `inspect`,
`compare`.

Exit codes: 0 all is well; 1 the model raised, is not valid, two logs differ, or a bundle can't be read; 2 the command
itself is wrong.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import pkgutil
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from . import fastlog
from .api import get_model_metadata, log_forward_pass, recover, show_model_graph, validate_model_activations
from .bundle.recover import is_fastlog
from .draw.output.formats import FORMATS, endings_in_words
from .errors import ArgumentError, TorchLensError, near
from .extraction.extract import extract
from .extraction.store import is_store, open_store
from .log.model_log import ModelLog
from .log.raised import how_far
from .words import human_size, shape_words

_TARGET = """\
The model is given as MODULE:NAME: an nn.Module, or what returns one when it is
called (a class, a function), in a module that can be imported, also from this
folder. Inputs are random, and the same each time; integers are 0 or 1, which are
valid for every embedding. The model is in evaluation mode unless --train is given.

A folder that tl.save wrote can be given in place of a model; then the model's
code is not needed, and nothing is run but by validate."""

_EXAMPLES = {
    "show": """\
  torchlens show torchvision.models:resnet18 --input 1,3,224,224 --out resnet18.svg
  torchlens show torchvision.models:vit_b_16 --input 1,3,224,224 --out vit.pdf --depth 3 --mode rolled
  torchlens show torch.nn:LSTM --arg input_size=8 --arg hidden_size=16 --input 5,2,8 --out lstm.png --theme dark""",
    "page": """\
  torchlens page torchvision.models:resnet18 --input 1,3,224,224 --out resnet18.html
  torchlens page run1 --out run1.html       what tl.save wrote""",
    "summary": """\
  torchlens summary torchvision.models:alexnet --input 1,3,224,224
  torchlens summary mymodel:Net --arg depth=4 --kwarg input_ids=1,16:int64 --columns output_shape,flops,time""",
    "validate": """\
  torchlens validate torchvision.models:resnet18 --input 1,3,64,64
  torchlens validate mymodel:build --input 1,128:int64 --input 1,128:bool --seed 7 --train
  torchlens validate run1 --trust           what tl.save wrote""",
    "extract": """\
  torchlens extract torchvision.models:resnet18 --data photos --layers layer4,avgpool --out acts
  torchlens extract mymodel:build --data photos --preprocess mymodel:prepare --layers relu --out s3://bucket/acts \\
      --reduce mean --dtype float16 --batch-size 256 --part 3/16""",
    "inspect": """\
  torchlens inspect run1              what tl.save wrote
  torchlens inspect acts              what tl.extract wrote, or has written so far
  torchlens inspect relus --all       what tl.fastlog wrote, every record
  torchlens inspect interrupted       what can be recovered of what was cut short""",
    "compare": """\
  torchlens compare run1 run2         what tl.save wrote; exit code 0 if they agree but for rounding, else 1
  torchlens compare run1 run2 --out difference.svg""",
}

#: How many layers or records `inspect` lists unless all are wanted.
_FEW = 20


class _Raised(TorchLensError):
    """The user's own code raised."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code.

    >>> main(["validate", "torch.nn:Linear", "--arg", "in_features=3", "--arg", "out_features=2", "--input", "4,3"])
    Valid: 1 operation replayed, 1 parent perturbed (0 had no influence at these values), 1 tensor given.
    0
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.run is None:
        parser.print_help(sys.stderr)
        return 2
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            return int(arguments.run(arguments))
        except TorchLensError as error:
            print(f"torchlens: {error}", file=sys.stderr)
            return 2 if isinstance(error, ArgumentError) else 1


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"torchlens: warning: {message}", file=sys.stderr)


# ---- the commands ---------------------------------------------------------------------------------------------


def _show(given: argparse.Namespace) -> int:
    drawing = {"vis_mode": given.mode, "vis_direction": given.direction, "vis_theme": given.theme}
    if given.out is not None:
        if Path(given.out).suffix[1:] not in ("", *FORMATS):
            raise ArgumentError(f"--out {given.out}: the file must end in {endings_in_words(dotted=True)}")
        drawing |= {"vis_outpath": given.out, "vis_save_only": True}
    saved = _saved(given)
    if saved is not None:
        print(saved.draw(vis_nesting_depth=given.depth, **drawing))
        return 0
    with _model(given) as (model, args, kwargs):
        print(show_model_graph(model, args, kwargs, vis_nesting_depth=given.depth, **drawing))
    return 0


def _page(given: argparse.Namespace) -> int:
    log = _saved(given)
    if log is None:
        with _model(given) as (model, args, kwargs):
            log = log_forward_pass(model, args, kwargs, layers_to_save=None if given.no_values else "all")
    values = not given.no_values
    print(log.explore(values=values) if given.out is None else log.to_html(given.out, values=values))
    return 0


def _summary(given: argparse.Namespace) -> int:
    log = _saved(given)
    if log is None:
        with _model(given) as (model, args, kwargs):
            log = get_model_metadata(model, args, kwargs)
    columns = {"columns": given.columns.split(",")} if given.columns else {}
    print(log.summary(depth=given.depth, **columns))
    return 0


def _validate(given: argparse.Namespace) -> int:
    saved = _saved(given, trust=given.trust)
    if saved is not None:
        report = saved.validate()
    else:
        with _model(given) as (model, args, kwargs):
            report = validate_model_activations(model, args, kwargs)
    print(report)
    return 0 if report else 1


def _extract(given: argparse.Namespace) -> int:
    """Run a model over a folder of images; the same command resumes."""
    part = None
    if given.part is not None:
        numbers = re.fullmatch(r"(\d+)/(\d+)", given.part)
        if numbers is None:
            raise ArgumentError(f"--part {given.part}: it must have the form 3/16: part 3 of the parts 0 to 15")
        part = int(numbers[1]), int(numbers[2])
    arguments = dict(_literal(text) for text in given.arg)
    torch.manual_seed(given.seed)
    model = _built(given.target, _found(given.target), arguments).eval()
    preprocess = _found(given.preprocess) if given.preprocess is not None else None
    with _blaming(f"running {given.target}"):
        store = extract(
            model,
            given.data,
            [layer for text in given.layers for layer in text.split(",")],
            given.out,
            batch_size=given.batch_size,
            preprocess=preprocess,
            reduce=given.reduce,
            dtype=given.dtype,
            on_error=given.on_error,
            part=part,
        )
    print(store)
    print(*(f"\tskipped {id}: {error}" for id, error in store.skipped.items()), sep="\n", end="")
    return 0


def _inspect_store(path: str, everything: bool) -> int:
    store = open_store(path)
    print(store)
    print(*str(store.plan).splitlines()[1:], sep="\n")
    missing = [f"\trows {rows.start} to {rows.stop - 1} are missing" for rows in store.missing_rows]
    problems = [*missing, *(f"\t{id} was skipped: {error}" for id, error in store.skipped.items())]
    shown = problems if everything else problems[:_FEW]
    print(*shown, sep="\n", end="\n" if shown else "")
    if len(problems) > len(shown):
        print(f"\t... and {len(problems) - len(shown)} more: --all lists them")
    return 0


def _inspect(given: argparse.Namespace) -> int:
    if is_store(given.bundle):
        return _inspect_store(given.bundle, given.all)
    path = Path(given.bundle)
    if is_fastlog(path):
        recording = fastlog.recover(path)
        print(recording.summary())
        lines, weights = [repr(record) for record in recording], 0
    else:
        log = recover(path)
        print(str(log).partition("\n\tModule Hierarchy:")[0])
        print(*(f"\tWarning: {warning}" for warning in log.warnings), sep="\n", end="\n" if log.warnings else "")
        lines, weights = _layer_lines(log), _bytes_of_weights(log)
    shown = lines if given.all else lines[:_FEW]
    print(*(f"\t{line}" for line in shown), sep="\n")
    if len(lines) > len(shown):
        print(f"\t... and {len(lines) - len(shown)} more: --all lists them")
    size = sum(file.stat().st_size for file in path.iterdir())
    among = f"; the model's weights are among them, {human_size(weights)}" if weights else ""
    print(f"\t{human_size(size)} in {len(list(path.iterdir()))} files{among}")
    return 0


def _compare(given: argparse.Namespace) -> int:
    from .comparing.compare import compare

    comparison = compare(*(ModelLog.load(path, trust=given.trust) for path in (given.a, given.b)))
    print(comparison)
    if given.out is not None:
        page = Path(given.out).suffix.lower() in (".html", ".htm")
        print(comparison.to_html(given.out) if page else comparison.draw(given.out))
    return 0 if comparison else 1


def _bytes_of_weights(log: ModelLog) -> int:
    return sum(value.nbytes for value in log._trace.params if value.kept is not None)


def _layer_lines(log: ModelLog) -> list[str]:
    width = max((len(label) for label in log.op_labels), default=0)
    return [
        f"{op.label:<{width}}  {str(op.tensor_dtype).removeprefix('torch.')} {shape_words(op.tensor_shape)} "
        f"({op.tensor_memory_str}){'' if op.has_saved_activation else ', not saved'}"
        for op in log
    ]


# ---- the model and its inputs, or a saved log ------------------------------------------------------------------


def _saved(given: argparse.Namespace, trust: bool = False) -> ModelLog | None:
    """The log in the folder that was given in place of a model."""
    if not Path(given.target).is_dir():
        return None
    for option in ("input", "kwarg", "arg", "train"):
        if getattr(given, option):
            raise ArgumentError(f"{given.target} is a folder, so a saved log: --{option} is for a model, MODULE:NAME")
    return ModelLog.load(given.target, lazy=True, trust=trust)


@contextmanager
def _model(given: argparse.Namespace) -> Iterator[tuple[nn.Module, list[Tensor], dict[str, Tensor]]]:
    """The model and its inputs, ready to run; an exception of the model becomes a message."""
    arguments = dict(_literal(text) for text in given.arg)
    named = dict(_named(text, "--kwarg", "input_ids=1,16:int64") for text in given.kwarg)
    facts = [_facts(text) for text in (*given.input, *named.values())]
    torch.manual_seed(given.seed)
    found = _found(given.target)
    torch.manual_seed(given.seed)  # whether or not the import has drawn any number
    model = _built(given.target, found, arguments).train(given.train)
    tensors = [_random(shape, dtype) for shape, dtype in facts]
    args, kwargs = tensors[: len(given.input)], dict(zip(named, tensors[len(given.input) :], strict=True))
    hint = "" if tensors else "; --input 1,3,224,224 gives it an input"
    with _blaming(f"running {given.target}", hint):
        yield model, args, kwargs


def _found(target: str) -> Any:
    """What `module:name` stands for."""
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        module, _, last = target.rpartition(".")
        if module and last:
            raise ArgumentError(f"{target!r} is not of the form MODULE:NAME; did you mean {module}:{last}?")
        raise ArgumentError(
            f"{target!r} is neither of the form MODULE:NAME, such as torchvision.models:resnet18, nor a folder that "
            "tl.save wrote"
        )
    found: Any = _imported(module_name)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ArgumentError(f"{module_name} has no {name!r}{near(part, dir(found))}")
        found = getattr(found, part)
    return found


def _built(target: str, found: Any, arguments: dict[str, Any]) -> nn.Module:
    """A model, of what was found: itself, or what it returns."""
    if isinstance(found, nn.Module):
        if arguments:
            raise ArgumentError(f"{target} is already a model, so --arg can't be used")
        return found
    if not callable(found):
        raise ArgumentError(f"{target} is neither a model nor callable: it is of type {type(found).__name__}")
    with _blaming(f"calling {target}", "" if arguments else "; --arg name=value gives it an argument"):
        model = found(**arguments)
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"{target}() is not an nn.Module: it is of type {type(model).__name__}")
    return model


def _imported(name: str) -> Any:
    if "/" in name or name.endswith(".py"):
        raise ArgumentError(f"{name!r} is a file: name it as in an import, {Path(name).stem}:NAME, in its folder")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        with _blaming(f"importing {name}"):
            return importlib.import_module(name)
    except _Raised as raised:
        error = raised.__cause__
        missing = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
        if not missing or not f"{name}.".startswith(f"{missing}."):  # it is there, but needs another one that isn't
            raise
        parent, _, last = missing.rpartition(".")
        places = getattr(sys.modules.get(parent), "__path__", []) if parent else None
        others = [info.name for info in pkgutil.iter_modules(places)]
        where = "" if parent else " is installed or in this folder"
        raise ArgumentError(f"no module {missing!r}{where}{near(last, others)}") from None


def _literal(text: str) -> tuple[str, Any]:
    """A name and a Python value, from `depth=4` or `sizes=[8, 16]`."""
    name, value = _named(text, "--arg", "depth=4")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        raise ArgumentError(
            f"--arg {text}: the value must be a Python literal: a number, a string in quotes, True, None, a list, ...; "
            f"for a string, write --arg \"{name}='{value}'\""
        ) from None


def _named(text: str, option: str, example: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (sign and name.isidentifier()):
        raise ArgumentError(f"{option} {text}: it must have the form NAME=VALUE, such as {option} {example}")
    return name, value


def _facts(text: str) -> tuple[list[int], torch.dtype]:
    """
    >>> _facts("1,128:int64"), _facts("3")
    (([1, 128], torch.int64), ([3], torch.float32))
    """
    shape, _, name = text.partition(":")
    if not re.fullmatch(r"\d+(,\d+)*", shape, re.ASCII):
        raise ArgumentError(
            f"{text!r} is not a shape: give sizes with commas, and a dtype if it is not float32, as in 1,128:int64"
        )
    dtypes = {name: dtype for name, dtype in vars(torch).items() if isinstance(dtype, torch.dtype)}
    if (name or "float32") not in dtypes:
        raise ArgumentError(f"{text!r}: torch has no dtype {name!r}{near(name, dtypes)}")
    return [int(size) for size in shape.split(",")], dtypes[name or "float32"]


def _random(shape: list[int], dtype: torch.dtype) -> Tensor:
    try:
        if dtype.is_floating_point or dtype.is_complex:
            return torch.rand(shape, dtype=dtype if dtype.is_complex else None).to(dtype)
        return torch.randint(0, 2, shape).to(dtype)
    except (RuntimeError, NotImplementedError) as error:  # no memory for it, or a type that has no numbers
        raise ArgumentError(f"can't make an input of shape {shape} and {dtype}: {str(error).splitlines()[0]}") from None


@contextmanager
def _blaming(doing: str, hint: str = "") -> Iterator[None]:
    """Turn an exception of the user's code into a message that says where it came from."""
    try:
        yield
    except TorchLensError:
        raise
    except Exception as error:
        message = f"{doing} raised {type(error).__name__}: {error}{hint if isinstance(error, TypeError) else ''}"
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_the_users(frame.filename)]
        if frames:
            message += f"\n  {frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}"
        partial = getattr(error, "partial_log", None)
        if isinstance(partial, ModelLog):
            message += f"\n  {how_far(partial._trace, error)}"
        raise _Raised(message) from error


def _is_the_users(file: str) -> bool:
    ours = tuple(str(Path(package.__file__).parent) for package in (torch, sys.modules[__package__], importlib))  # type: ignore[arg-type]
    return not file.startswith((*ours, "<"))


# ---- what may be written ----------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torchlens",
        description="Look inside any PyTorch model.",
        epilog="examples:\n" + "\n".join(text.splitlines()[0] for text in _EXAMPLES.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(metavar="COMMAND")
    show = _command(commands, "show", _show, "draw the graph of a model", of_model=True)
    show.add_argument(
        "--out", metavar="FILE", help=f"where to put it: {endings_in_words(dotted=True)}; without it, it is shown"
    )
    show.add_argument("--mode", choices=["unrolled", "rolled"], default="unrolled", help="rolled: each layer once")
    show.add_argument("--depth", type=int, metavar="N", help="how many levels of modules to open")
    show.add_argument("--direction", choices=["bottomup", "topdown", "leftright"], default="bottomup")
    show.add_argument("--theme", choices=["light", "dark"], default="light")
    page = _command(commands, "page", _page, "write a page to explore a model or a saved log", of_model=True)
    page.add_argument("--out", metavar="FILE", help="where to put it; without it, it is opened in the browser")
    page.add_argument("--no-values", action="store_true", help="leave the values out")
    summary = _command(commands, "summary", _summary, "shapes, parameters and work of each module", of_model=True)
    summary.add_argument("--depth", type=int, metavar="N", help="leave out modules nested deeper")
    summary.add_argument("--columns", metavar="A,B", help="such as input_shape,output_shape,num_params,flops,time")
    validate = _command(commands, "validate", _validate, "check that a log of the model is right", of_model=True)
    validate.add_argument("--trust", action="store_true", help="run all of torch's functions that a saved log names")
    _add_extract(commands)
    inspect = _command(
        commands, "inspect", _inspect, "what a saved log, recording or store holds; nothing in it is run"
    )
    inspect.add_argument("bundle", metavar="BUNDLE", help="the folder")
    inspect.add_argument("--all", action="store_true", help=f"list all layers or records, not the first {_FEW}")
    compared = _command(commands, "compare", _compare, "where two saved logs begin to differ, and why")
    compared.add_argument("a", metavar="A", help="a folder that tl.save wrote")
    compared.add_argument("b", metavar="B", help="another one")
    compared.add_argument("--trust", action="store_true", help="run all of torch's functions that the logs name")
    compared.add_argument("--out", metavar="FILE", help="a picture or a page of both: .svg, .pdf, .png, .html")
    return parser


def _add_extract(commands: Any) -> None:
    command = _command(commands, "extract", _extract, "run a model over a folder of images and write layers to disk")
    command.add_argument("target", metavar="MODULE:NAME", help="the model, such as torchvision.models:resnet18")
    command.add_argument("--data", metavar="FOLDER", required=True, help="images, in this folder and those in it")
    command.add_argument(
        "--layers", metavar="A,B", required=True, action="append", help="which layers: addresses, labels, patterns"
    )
    command.add_argument("--out", metavar="PLACE", required=True, help="a folder, or a URL such as s3://bucket/acts")
    command.add_argument("--arg", metavar="NAME=VALUE", action="append", default=[], help="an argument for the model")
    command.add_argument("--preprocess", metavar="MODULE:NAME", help="a function from a Pillow image to a tensor")
    command.add_argument("--batch-size", type=int, metavar="N", help="images in a forward pass, 64 unless given")
    command.add_argument("--reduce", metavar="NAME", help="mean, max, flatten, cls or last_token, for all layers")
    command.add_argument("--dtype", metavar="TYPE", help="such as float16")
    command.add_argument("--on-error", choices=["raise", "skip"], default="raise", help="what to do with bad images")
    command.add_argument("--part", metavar="I/N", help="the part I of N, counted from 0, for jobs that share the work")
    command.add_argument("--seed", type=int, default=0, help="for models that draw random numbers when they are built")


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], purpose: str, of_model: bool = False
) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=purpose,
        description=f"{purpose[0].upper()}{purpose[1:]}." + (f"\n\n{_TARGET}" if of_model else ""),
        epilog=f"examples:\n{_EXAMPLES[name]}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    if of_model:
        many: dict[str, Any] = {"action": "append", "default": []}
        command.add_argument("target", metavar="MODULE:NAME", help="the model, or a folder that tl.save wrote")
        command.add_argument("--input", metavar="SHAPE", help="an input, such as 1,3,224,224 or 1,128:int64", **many)
        command.add_argument("--kwarg", metavar="NAME=SHAPE", help="a keyword input: input_ids=1,16:int64", **many)
        command.add_argument("--arg", metavar="NAME=VALUE", help="an argument to build the model with: depth=4", **many)
        command.add_argument("--seed", type=int, default=0, metavar="N", help="of the weights and the inputs (0)")
        command.add_argument("--train", action="store_true", help="leave the model in training mode")
    return command
