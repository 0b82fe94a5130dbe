"""Checks for untrusted data: everything in a file is checked before it is used."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from ..errors import BundleError

T = TypeVar("T")

LARGEST = 2**62  # for any size, offset or count

#: What Python raises on malformed data that no check has refused.
MISFITS = (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError, RuntimeError)


@contextmanager
def blaming(what: str) -> Iterator[None]:
    """Turn any error about a piece of data into a `BundleError` that names it."""
    try:
        yield
    except BundleError as error:
        if str(error).startswith(os.path.dirname(what) or "//"):  # it names a file of the bundle itself
            raise
        raise BundleError(f"{what}: {error}") from error
    except MISFITS as error:  # RecursionError is a RuntimeError
        raise BundleError(f"{what} is malformed ({type(error).__name__}: {str(error)[:200]})") from error


def each(what: str, rows: Any, decode: Callable[[Any], T]) -> list[T]:
    """Decode every row of a table."""
    found: list[T] = []
    with blaming(what):
        as_list(rows)
    try:
        for row in rows:
            found.append(decode(row))
    except (BundleError, *MISFITS):
        with blaming(f"{what}[{len(found)}]"):
            raise
    return found


def integer(thing: Any, low: int = 0, high: int = LARGEST) -> int:
    if type(thing) is not int or not low <= thing <= high:
        raise BundleError(f"expected an integer from {low} to {high}, not {_kind(thing)}")
    return thing


def in_range(low: int, high: int = LARGEST) -> Callable[[Any], int]:
    """A check for integers in a fixed range."""
    return lambda thing: thing if type(thing) is int and low <= thing <= high else integer(thing, low, high)


def number(thing: Any) -> float:
    if type(thing) not in (int, float):
        raise BundleError(f"expected a number, not {_kind(thing)}")
    return float(thing)


def text(thing: Any) -> str:
    if type(thing) is not str:
        raise BundleError(f"expected a string, not {_kind(thing)}")
    return thing


def flag(thing: Any) -> bool:
    if type(thing) is not bool:
        raise BundleError(f"expected true or false, not {_kind(thing)}")
    return thing


def optional(check: Callable[[Any], T], thing: Any) -> T | None:
    return None if thing is None else check(thing)


def as_list(thing: Any) -> list[Any]:
    """A list whose members are checked later."""
    if type(thing) is not list:
        raise BundleError(f"expected a list, not {_kind(thing)}")
    return thing


def listed(check: Callable[[Any], T], thing: Any) -> list[T]:
    return [check(member) for member in as_list(thing)]


def named(check: Callable[[Any], T], thing: Any) -> dict[str, T]:
    if type(thing) is not dict:
        raise BundleError(f"expected a JSON object, not {_kind(thing)}")
    return {name: check(member) for name, member in thing.items()}


def one_of(allowed: Iterable[str], thing: Any) -> str:
    if type(thing) is not str or thing not in allowed:
        raise BundleError(f"expected one of the known names, not {_kind(thing)}")
    return thing


def at(table: Sequence[T], index: Any) -> T:
    """The row with this number. Python's own indexing would accept negative numbers."""
    return table[integer(index, 0, len(table) - 1)]


def sizes(thing: Any, low: int = 0) -> tuple[int, ...]:
    """Shapes and strides."""
    if type(thing) is not list or len(thing) > 64:
        raise BundleError(f"expected a short list of sizes, not {_kind(thing)}")
    return tuple([integer(size, low) for size in thing])


def _kind(thing: Any) -> str:
    shown = repr(thing) if isinstance(thing, (int, float, str, bool, type(None))) else type(thing).__name__
    return shown if len(shown) < 60 else shown[:60] + "..."


def parse(data: bytes, what: str) -> Any:
    """JSON, strictly."""
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except RecursionError:
        raise BundleError(f"{what} is nested too deeply") from None
    except ValueError as error:  # invalid UTF-8 included
        hint = "; it looks like a pickle, which is never read" if data[:1] == b"\x80" else ""
        raise BundleError(f"{what} is not JSON ({str(error)[:200]}){hint}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
