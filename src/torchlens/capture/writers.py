"""Which arguments does a torch function overwrite?

Torch's own operator schemas say it: `add_(Tensor(a!) self, ...)` writes to `self`. A function that is called from
Python reaches the operator of the same name, with its arguments in the same order. The table at the end lists only
what no schema says, with the reason; a test goes through all schemas of the installed torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch

from .._torch import schemas_of

#: The written arguments among those of a call.
Written = Callable[[Sequence[Any], Mapping[str, Any]], list[Any]]

#: An argument by position and name.
Place = tuple[int, str]


def argument(args: Sequence[Any], kwargs: Mapping[str, Any], position: int, name: str) -> Any:
    if position < len(args):
        return args[position]
    return kwargs.get(name, kwargs.get("input") if name == "self" else None)


def first(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The first argument, which in-place methods and functions such as `torch.relu_` write to."""
    return [args[0]] if args else [kwargs.get("self", kwargs.get("input", next(iter(kwargs.values()), None)))]


def written_by_builtin(name: str, switch: Place | None) -> Written | None:
    """For a torch function that is not written in Python. It also writes to what it is given as `out`."""
    places: set[Place] = set()
    for schema in schemas_of(f"aten::{name}"):
        declared, out = written_places(schema)
        places |= set() if out else set(declared)
    return _writer(places, switch) if places else _by_name(name)


def written_by_operator(name: str, schemas: Iterable[Any], switch: Place | None) -> Written | None:
    """For an operator of `torch.ops`: its overloads may write to keyword arguments of any name."""
    rules = {written_places(schema) for schema in schemas}
    plain = {place for places, out in rules if not out for place in places}
    given = {(places, out) for places, out in rules if out - {"out"} or (out and places)}
    always = _writer(plain, switch) if plain else _by_name(name)
    if not given:
        return always

    def written(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        found = always(args, kwargs) if always is not None else []
        chosen = [rule for rule in given if not rule[1].isdisjoint(kwargs)]
        found += [argument(args, kwargs, *place) for places, _ in chosen for place in places if place not in plain]
        return found + [kwargs[name] for name in kwargs if any(name in out - {"out"} for _, out in chosen)]

    return written


def written_in_python(name: str, func: FunctionType) -> Written | None:
    """For a function written in Python, where it is seen as one call because a tensor subclass wants to see it."""
    names = func.__code__.co_varnames[: func.__code__.co_argcount]
    if name in UNDECLARED:
        places = {(names.index(written), written) for written in UNDECLARED[name] if written in names}
        switch = next(((names.index(n), n) for n in ("training", "use_input_stats") if n in names), None)
        return _writer(places, switch)
    if "inplace" in names and func.__module__ == torch.nn.functional.__name__:
        return _writer({(0, names[0])}, (names.index("inplace"), "inplace"))
    return _by_name(name)


def written_places(schema: Any) -> tuple[tuple[Place, ...], frozenset[str]]:
    """The positional arguments that an overload writes to, and the keyword arguments that it writes its results to."""
    undeclared = UNDECLARED.get(schema.name.split("::")[-1], ())
    written = [
        (position, each)
        for position, each in enumerate(schema.arguments)
        if (each.alias_info is not None and each.alias_info.is_write) or each.name in undeclared
    ]
    places = tuple([(position, each.name) for position, each in written if not each.kwarg_only])
    return places, frozenset([each.name for _, each in written if each.kwarg_only])


def _writer(places: set[Place], switch: Place | None) -> Written:
    if places == {(0, "self")} and switch is None:
        return first
    ordered = sorted(places)

    def written(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        if switch is not None and not argument(args, kwargs, *switch):
            return []
        return [argument(args, kwargs, *place) for place in ordered]

    return written


def _by_name(name: str) -> Written | None:
    """Where no schema tells: Python's own operators, `Tensor.map_`, `torch.nn.init`, collectives."""
    in_place = name.endswith("_") and not name.endswith("__")
    augmented = name.startswith("__i") and name.endswith("__") and name not in ("__invert__", "__index__", "__int__")
    return first if in_place or augmented or name == "__setitem__" else None


_STATISTICS = ("running_mean", "running_var")

#: Arguments that are overwritten though the schema does not say so: running statistics, which torch updates out of
#: sight of autograd, and what a fused sum of oneDNN's is added to.
UNDECLARED: dict[str, tuple[str, ...]] = {
    "_batch_norm_impl_index": _STATISTICS,
    "batch_norm": _STATISTICS,
    "batch_norm_gather_stats": _STATISTICS,
    "batch_norm_gather_stats_with_counts": _STATISTICS,
    "batch_norm_update_stats": _STATISTICS,
    "conv2d_add": ("qaccum",),
    "conv2d_add_relu": ("qaccum",),
    "cudnn_batch_norm": _STATISTICS,
    "instance_norm": _STATISTICS,
    "miopen_batch_norm": _STATISTICS,
    "native_batch_norm": _STATISTICS,
    "qconv2d_pointwise": ("qaccum",),  # older versions of torch have it
}
