"""Edits to and from plain data: numbers, strings, lists and tensors. Functions and logs are kept by name only."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from torch import Tensor

from ..errors import BundleError
from . import edits
from .edit_base import Edit, function_label

#: What an edit in a file may be, by its name there.
_KINDS: dict[str, type[Edit]] = {
    kind.__name__: kind
    for kind in (
        edits.Zero, edits.Replace, edits.Add, edits.Scale, edits.Clamp, edits.Noise, edits.Mean, edits.Patch,
        edits.Resample, edits.Swap, edits.Where, edits.Gradient, edits.Several,
    )
} | {"Function": edits.FunctionEdit}  # fmt: skip
_NAMES = {kind: name for name, kind in _KINDS.items()}


class NotSavedError(BundleError):
    """An edit needs a function or a log, of which only the name was saved."""


class Absent:
    """Stands for a function or a log of which only the name was saved."""

    def __init__(self, what: str, name: str) -> None:
        self.what = what
        self.__name__ = name
        if what == "log":
            self.model_name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotSavedError(f"the function {self.__name__} was not saved, only its name; run the model with it again")

    @property
    def graph(self) -> Any:
        raise NotSavedError(f"the log of {self.__name__} that an edit takes values from was not saved with this one")


def to_data(thing: Any) -> Any:
    """An edit, or a field of one, as plain data and tensors."""
    if isinstance(thing, Edit):
        given = {each.name: to_data(getattr(thing, each.name)) for each in fields(thing)}
        return {"kind": _NAMES.get(type(thing), type(thing).__name__), **given}
    if isinstance(thing, Tensor):
        return thing.detach()
    if type(thing) in (tuple, list):
        return type(thing)(to_data(member) for member in thing)
    if isinstance(thing, Absent):
        return {"absent": thing.what, "name": thing.__name__}
    if hasattr(thing, "model_name") and hasattr(type(thing), "graph"):
        return {"absent": "log", "name": thing.model_name}
    return {"absent": "function", "name": function_label(thing)} if callable(thing) else thing


def from_data(data: Any) -> Any:
    """What `to_data` made of an edit, as an edit again."""
    if type(data) in (tuple, list):
        return type(data)(from_data(member) for member in data)
    if type(data) is not dict:
        return data
    if "absent" in data:
        if data["absent"] not in ("log", "function") or type(data.get("name")) is not str:
            raise BundleError("an edit refers to something that is neither a function nor a log")
        return Absent(data["absent"], data["name"])
    kind = _KINDS.get(data.get("kind"))  # type: ignore[arg-type]
    if kind is None or {each.name for each in fields(kind)} != data.keys() - {"kind"}:
        raise BundleError(f"no edit is called {data.get('kind')!r}, or not with these fields")
    edit = object.__new__(kind)
    for each in fields(kind):
        object.__setattr__(edit, each.name, from_data(data[each.name]))
    return edit
