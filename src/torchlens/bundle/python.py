"""Python values to and from JSON.

What JSON has is written as it is; everything else is a list that begins with a tag: `["tuple", 1, 2]`. What has no tag
(an object of the user's) is written as its class and its repr, and loaded as a `SavedObject` that shows these.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..capture.records import Layout, SavedObject, Value
from ..errors import BundleError
from .checks import at, flag, integer, sizes, text
from .tensors import torch_constants

_DEEPEST = 100
_KINDS: tuple[type, ...] = (bool, int, float, complex, str, bytes, tuple, list, dict, set, slice, Tensor, nn.Parameter)
_TYPES = {kind.__name__: kind for kind in _KINDS}
_NUMPY_TYPE = re.compile(r"[<>|=]?[biufc](1|2|4|8|16)", re.ASCII)
_PLAIN = {type(None), bool, str}
_SMALL = 1 << 16  # bytes of an array that is written into the JSON itself


class SavedTuple(tuple[Any, ...]):
    """A named tuple, without its names."""


# ---- writing --------------------------------------------------------------------------------------------------


class PythonEncoder:
    """Encodes arguments. `store` stores a tensor and gives its number."""

    def __init__(self, store: Callable[[Tensor], int]) -> None:
        self._store = store
        self.arrays = True  # are they wanted?
        self.objects: list[list[str]] = []
        self._known: dict[Any, int] = {}
        self._alive: list[Any] = []  # so that no id is used twice

    def encode(self, thing: Any, depth: int = 0) -> Any:
        kind = type(thing)
        if kind in _PLAIN:
            return thing
        if kind is Value:
            return ["param" if thing.role == "param" else "value", thing.index]
        if kind is int:
            return thing if -(2**63) <= thing < 2**63 else ["int", hex(thing)]
        if kind is float:
            return thing if math.isfinite(thing) else ["float", repr(thing)]
        if depth >= _DEEPEST:
            return self._object(thing)
        encode = _ENCODE.get(kind)
        if encode is not None:
            return encode(self, thing, depth + 1)
        if isinstance(thing, (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)):
            return ["torch", str(thing).removeprefix("torch.")]
        if isinstance(thing, tuple):
            return ["named", *self.encode_all(thing, depth + 1)]
        if isinstance(thing, dict):
            return _dict(self, thing, depth + 1)
        if isinstance(thing, type) and _TYPES.get(thing.__name__) is thing:
            return ["type", thing.__name__]
        if isinstance(thing, np.generic) and _NUMPY_TYPE.fullmatch(thing.dtype.str):
            return ["number", thing.dtype.str, thing.tobytes().hex()]
        return self._object(thing)

    def encode_all(self, things: Sequence[Any], depth: int = 0) -> list[Any]:
        return [self.encode(thing, depth) for thing in things]

    def _array(self, array: np.ndarray[Any, Any], depth: int) -> Any:
        if not self.arrays or not _NUMPY_TYPE.fullmatch(array.dtype.str):
            return self._object(array)
        if array.nbytes <= _SMALL:
            return ["array", array.dtype.str, list(array.shape), array.tobytes().hex()]
        stored = self._store(torch.from_numpy(np.frombuffer(array.tobytes(), np.uint8).copy()))
        return ["large array", array.dtype.str, list(array.shape), stored]

    def _plain_tensor(self, tensor: Tensor, depth: int) -> Any:
        """Not one of the model's: the state of a random generator, part of what a user's function returned."""
        if tensor.dtype is torch.uint8 and tensor.dim() == 1 and tensor.numel() <= _SMALL:
            return ["tensor", self.encode(tensor.numpy(), depth)]
        return ["large tensor", self._store(tensor)]

    def _object(self, thing: Any) -> list[Any]:
        """Equal objects stay equal: which calls are passes of one layer depends on it."""
        try:
            key: Any = (type(thing), thing)
            number = self._known.get(key)
        except TypeError:
            key = id(thing)
            number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.objects)
            self._alive.append(thing)
            self.objects.append(_described(thing))
        return ["object", number]


def _described(thing: Any) -> list[str]:
    if isinstance(thing, torch.Generator):
        return ["generator", str(thing.device)]
    kind = type(thing)
    try:
        description = repr(thing)
    except Exception as error:  # the user's own repr
        description = f"<{kind.__name__}, whose repr raised {type(error).__name__}>"
    description = description if len(description) <= 300 else description[:300] + "..."
    return [f"{kind.__module__}.{kind.__qualname__}", description.encode("utf-8", "replace").decode()]


def _dict(encoder: PythonEncoder, thing: dict[Any, Any], depth: int) -> list[Any]:
    return ["dict", *([encoder.encode(key, depth), encoder.encode(member, depth)] for key, member in thing.items())]


def _plain_sizes(sizes: Iterable[Any]) -> list[int]:
    """The size of a jagged dimension is only a symbol."""
    return [size if type(size) is int else -1 for size in sizes]


def _layout(encoder: PythonEncoder, layout: Layout, depth: int) -> list[Any]:
    return [
        "layout",
        _plain_sizes(layout.size),
        _plain_sizes(layout.stride),
        layout.offset,
        layout.itemsize,
        layout.conj,
    ]


_ENCODE: dict[type, Callable[[PythonEncoder, Any, int], Any]] = {
    tuple: lambda encoder, thing, depth: ["tuple", *encoder.encode_all(thing, depth)],
    list: lambda encoder, thing, depth: ["list", *encoder.encode_all(thing, depth)],
    dict: _dict,
    set: lambda encoder, thing, depth: ["set", *encoder.encode_all(list(thing), depth)],
    frozenset: lambda encoder, thing, depth: ["frozenset", *encoder.encode_all(list(thing), depth)],
    slice: lambda encoder, thing, depth: ["slice", *encoder.encode_all((thing.start, thing.stop, thing.step), depth)],
    range: lambda encoder, thing, depth: ["range", *encoder.encode_all((thing.start, thing.stop, thing.step), depth)],
    complex: lambda encoder, thing, depth: ["complex", *encoder.encode_all((thing.real, thing.imag), depth)],
    bytes: lambda encoder, thing, depth: ["bytes", thing.hex()],
    type(...): lambda encoder, thing, depth: ["..."],
    torch.Size: lambda encoder, thing, depth: ["size", *_plain_sizes(thing)],
    torch.device: lambda encoder, thing, depth: ["device", str(thing)],
    np.ndarray: PythonEncoder._array,
    Tensor: PythonEncoder._plain_tensor,
    Layout: _layout,
}

# ---- reading --------------------------------------------------------------------------------------------------


class PythonDecoder:
    """Decodes arguments. Values are looked up among those given, and only among the first `limit` of them."""

    def __init__(
        self,
        values: Sequence[Value],
        params: Sequence[Value],
        objects: Sequence[Any],
        tensor: Callable[[int], Tensor | None],
    ) -> None:
        self.values = values
        self.params = params
        self.objects = objects
        self.tensor = tensor
        self.limit = len(values)  # what a call takes must have been there before it: otherwise there would be cycles

    def decode(self, data: Any, depth: int = 0) -> Any:
        if type(data) is not list:
            if type(data) is dict:
                raise BundleError("a value is no JSON object")
            return data
        if depth > _DEEPEST:
            raise BundleError("values are nested too deeply")
        tag, *members = data
        if tag == "value":
            (number,) = members
            return self.values[integer(number, 0, self.limit - 1)]
        decode = _DECODE.get(text(tag))
        if decode is None:
            raise BundleError(f"there is no kind of value {tag[:40]!r}")
        return decode(self, members, depth + 1)

    def decode_all(self, data: Sequence[Any], depth: int = 0) -> list[Any]:
        return [self.decode(member, depth) for member in data]

    def _dict(self, pairs: list[Any], depth: int) -> dict[Any, Any]:
        return {self.decode(key, depth): self.decode(member, depth) for key, member in pairs}

    def _param(self, members: list[Any], depth: int) -> Value:
        (number,) = members
        return at(self.params, number) if number != -1 else Value(-1, "param", -1, None, None, _NOTHING, None, None)

    def _array(self, members: list[Any], depth: int) -> Any:
        name, shape, data = members
        content = bytearray.fromhex(text(data))
        return np.frombuffer(content, dtype=_numpy_type(name)).reshape(sizes(shape))

    def _large_array(self, members: list[Any], depth: int) -> Any:
        name, shape, stored = members
        bytes_of_it = self.tensor(stored)
        if bytes_of_it is None:
            return SavedObject("numpy.ndarray", "an array that is lost")
        return bytes_of_it.numpy().view(_numpy_type(name)).reshape(sizes(shape))

    def _numpy(self, members: list[Any], depth: int) -> Any:
        name, data = members
        (found,) = np.frombuffer(bytes.fromhex(text(data)), dtype=_numpy_type(name))
        return found

    def _plain_tensor(self, members: list[Any], depth: int) -> Tensor:
        return torch.from_numpy(*self.decode_all(members, depth))


def _numpy_type(name: Any) -> np.dtype[Any]:
    if not _NUMPY_TYPE.fullmatch(text(name)):
        raise BundleError(f"no NumPy type {name[:40]!r}")
    found: np.dtype[Any] = np.dtype(name)
    return found


_NOTHING = (torch.Size(()), torch.float32, torch.device("cpu"))


def _range(decoder: PythonDecoder, members: list[Any], depth: int) -> range:
    return range(*[integer(member, -(2**63), 2**63) for member in members])


def _slice(decoder: PythonDecoder, members: list[Any], depth: int) -> slice:
    start, stop, step = decoder.decode_all(members, depth)
    return slice(start, stop, step)


def _read_layout(decoder: PythonDecoder, members: list[Any], depth: int) -> Layout:
    size, stride, offset, itemsize, conj = members
    return Layout(torch.Size(sizes(size)), sizes(stride), integer(offset), integer(itemsize), flag(conj))


def _complex(decoder: PythonDecoder, members: list[Any], depth: int) -> complex:
    real, imaginary = decoder.decode_all(members, depth)
    return complex(float(real), float(imaginary))


def _large_tensor(decoder: PythonDecoder, members: list[Any], depth: int) -> Any:
    (number,) = members
    tensor = decoder.tensor(number)
    return SavedObject("torch.Tensor", "a tensor that is lost") if tensor is None else tensor


def _one(check: Callable[[Any], Any]) -> Callable[[PythonDecoder, list[Any], int], Any]:
    def decode(decoder: PythonDecoder, members: list[Any], depth: int) -> Any:
        (member,) = members
        return check(member)

    return decode


_DECODE: dict[str, Callable[[PythonDecoder, list[Any], int], Any]] = {
    "param": PythonDecoder._param,
    "tuple": lambda decoder, members, depth: tuple(decoder.decode_all(members, depth)),
    "list": lambda decoder, members, depth: decoder.decode_all(members, depth),
    "dict": PythonDecoder._dict,
    "set": lambda decoder, members, depth: set(decoder.decode_all(members, depth)),
    "frozenset": lambda decoder, members, depth: frozenset(decoder.decode_all(members, depth)),
    "named": lambda decoder, members, depth: SavedTuple(decoder.decode_all(members, depth)),
    "slice": _slice,
    "range": _range,
    "complex": _complex,
    "layout": _read_layout,
    "size": lambda decoder, members, depth: torch.Size(sizes(members, -1)),
    "array": PythonDecoder._array,
    "large array": PythonDecoder._large_array,
    "tensor": PythonDecoder._plain_tensor,
    "large tensor": _large_tensor,
    "number": PythonDecoder._numpy,
    "object": lambda decoder, members, depth: at(decoder.objects, members[0]),
    "...": lambda decoder, members, depth: ...,
    "int": _one(lambda member: int(text(member)[:100_000], 16)),
    "float": _one(lambda member: {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[text(member)]),
    "bytes": _one(lambda member: bytes.fromhex(text(member))),
    "device": _one(lambda member: torch.device(text(member))),
    "torch": _one(lambda member: torch_constants()[text(member)]),
    "type": _one(lambda member: _TYPES[text(member)]),
}


def decode_object(row: Any) -> Any:
    """An entry of the table of objects."""
    kind, description = row
    if text(kind) == "generator":
        return torch.Generator(torch.device(text(description)).type) if description == "cpu" else SavedObject(*row)
    return SavedObject(kind, text(description))
