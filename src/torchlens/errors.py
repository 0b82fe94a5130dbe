"""Errors and warnings, as a tree.

TorchLensError
 ├── ArgumentError        an argument that can't be used (also a ValueError)
 ├── BundleError          a saved log that can't be written, or that can't be trusted when it is read
 │    ├── UnknownFunctionError  a saved log asks for a function that is not one of torch's own
 │    └── UntrustedError        a saved log would run what only a file that is trusted may
 ├── DrawingError         a picture that could not be made
 ├── LayerNotFoundError   nothing in the log has that name (also a KeyError)
 ├── PassNeededError      the layer has several passes and the answer differs (also an AttributeError)
 ├── StoreError           a store of tl.extract that can't be written, resumed or read
 ├── DivergenceError      a new input or value leads the model elsewhere than the log
 ├── ReplayError          an operation can't be run again
 └── TorchVersionError    the installed torch lacks something that this needs
FidelityWarning           something in the log may not be what it seems
SeveralOutputsWarning     a module returned several tensors where one was asked for
DrawingWarning            a picture was made in another way than asked for
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

_PACKAGE = os.path.dirname(__file__) + os.sep
_COMPILER = os.sep + os.path.join("torch", "_dynamo", "")  # torch 2.4 has frames of it between ours


class TorchLensError(Exception):
    """The base of every error that this library raises itself."""


class ArgumentError(TorchLensError, ValueError):
    """An argument can't be used; the message says what can."""


class BundleError(TorchLensError):
    """A saved log can't be written, or can't be trusted; the message says what is wrong with which file."""


class UnknownFunctionError(BundleError):
    """A saved log was asked to compute something with a function that is not one of torch's own."""


class UntrustedError(BundleError):
    """A loaded log would run what only a file that is trusted may: `tl.load(path, trust=True)`."""


class DrawingError(TorchLensError):
    """A picture could not be made; the message says what failed."""


class LayerNotFoundError(TorchLensError, KeyError):
    """Nothing in the log has that name; the message names the nearest."""

    def __str__(self) -> str:  # a KeyError would print the message in quotes
        return str(self.args[0])


class PassNeededError(TorchLensError, AttributeError):
    """The layer has several passes, and the answer differs between them."""


class DivergenceError(TorchLensError):
    """A new input or value leads the model elsewhere; the message says where, and the log is as it was."""


class StoreError(TorchLensError):
    """A store of `tl.extract` can't be written, resumed or read; the message says which part, and what to do."""


class ReplayError(TorchLensError):
    """An operation can't be run again from what was saved; the message says which and why."""


class TorchVersionError(TorchLensError):
    """The installed torch lacks something that was asked for; the message names its version and what is missing."""


class FidelityWarning(UserWarning):
    """Something in a log may not be what it seems; the same text stands in `log.warnings`."""


class SeveralOutputsWarning(UserWarning):
    """A module returned several tensors where one was asked for: the first was taken, and each has a name."""


class DrawingWarning(UserWarning):
    """A picture was made in another way than asked for."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the caller's own code that led here, the first outside of this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_not_the_users(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_not_the_users(file: str) -> bool:
    return file.startswith(_PACKAGE) or _COMPILER in file


P = ParamSpec("P")
R = TypeVar("R")


def named_arguments(function: Callable[P, R], name: str = "") -> Callable[P, R]:
    """A function that names the near argument where it is given one that it does not have."""
    known = list(signature(function).parameters)
    name = name or function.__name__

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for given in kwargs:
            if given not in known:
                raise ArgumentError(f"{name}: no argument {given!r}{near(given, known)}")
        return function(*args, **kwargs)

    return checked


def near(name: str, names: Iterable[str], count: int = 3) -> str:
    """A phrase naming the nearest of `names`, ready to append to an error message; empty if none is near.

    Nearest are those that differ in upper and lower case only; then those that end with the name, as `h.0.attn` does
    with `attn`; those that have all its parts, as `vis_nesting_depth` has those of `vis_depth`; then similar spellings.
    """
    names, wanted = list(dict.fromkeys(names)), name.lower()
    matches = (
        [other for other in names if other.lower() == wanted]
        or [other for other in names if other.lower().endswith(f".{wanted}")]
        or sorted([other for other in names if _has_parts(other.lower(), wanted)], key=len)
        or _spelled_alike(wanted, names, count)
    )
    return f"; did you mean {', '.join(map(repr, matches[:count]))}?" if matches else ""


def _has_parts(name: str, wanted: str) -> bool:
    """Does each part of `wanted` begin a part of the name, in this order?"""
    parts, left = re.split("[_.:]", wanted), iter(re.split("[_.:]", name))
    return len(parts) > 1 and all(any(_begins(part, other) for other in left) for part in parts)


def _begins(part: str, other: str) -> bool:
    return other == part or (len(part) > 2 and other.startswith(part) and not part[-1].isdigit())


def _alike(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio() if one and other else 1.0


def _spelled_alike(wanted: str, names: list[str], count: int) -> list[str]:
    """The nearest, and those that are nearly as near."""
    by_lower = {name.lower(): name for name in reversed(names)}
    letters = wanted.rstrip("_0123456789")  # labels are not alike for their numbers
    least = 0.6 if len(letters) > 3 else 0.49  # one letter of two
    alike = [name for name in by_lower if _alike(name.rstrip("_0123456789"), letters) > least]
    close = difflib.get_close_matches(wanted, alike, n=count, cutoff=0.5)
    ratios = [_alike(other, wanted) for other in close]
    return [by_lower[other] for other, ratio in zip(close, ratios, strict=True) if ratio > ratios[0] - 0.1]
