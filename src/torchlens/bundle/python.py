"""Python values to and from JSON.

JSON's own types are written as they are; everything else is a list that begins with a tag: `["tuple", 1, 2]`. An object
without a tag (of a user's class) is written as its class and repr, and loaded as a `SavedObject` that shows these.
Only the model's output keeps its structure: objects with tensors in them are written with their members and
attributes, and loaded as the classes of capture/restored.py.
"""

from __future__ import annotations

import math
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..capture.containers import holds
from ..capture.members import attributes, is_collection, members
from ..capture.records import MemoryLayout, NotRebuilt, Value
from ..capture.restored import (
    SavedDict,
    SavedList,
    SavedNamedTuple,
    SavedObject,
    SavedRecord,
    SavedTuple,
    class_like,
    type_name_of,
)
from ..errors import BundleError
from .checks import at, flag, integer, one_of, sizes, text
from .rows import plain_sizes
from .tensors import torch_constants

_DEEPEST = 100
_MOST_RECORDS = 100_000
_KINDS: tuple[type, ...] = (bool, int, float, complex, str, bytes, tuple, list, dict, set, slice, Tensor, nn.Parameter)
_TYPES = {kind.__name__: kind for kind in _KINDS}
_NUMPY_TYPE = re.compile(r"[<>|=]?[biufc](1|2|4|8|16)", re.ASCII)
_PLAIN = {type(None), bool, str}
_SMALL = 1 << 16  # bytes of an array that is written into the JSON itself


# ---- writing --------------------------------------------------------------------------------------------------


class PythonEncoder:
    """Encodes arguments. `store` stores a tensor and returns its number."""

    def __init__(self, store: Callable[[Tensor], int]) -> None:
        self._store = store
        self.arrays = True  # are they wanted?
        self.objects: list[list[str]] = []
        self._known: dict[Any, int] = {}
        self._alive: list[Any] = []  # so that no id is reused
        self._open: set[int] | None = None  # objects that are being encoded, if with their structure
        self._records = 0

    def encode_output(self, output: Any) -> Any:
        """What the model returned, with the structure of the objects that hold values."""
        self._open, self._records = set(), 0
        try:
            return self.encode(output)
        finally:
            self._open = None

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
        if self._open is not None and (found := self._record(thing, self._open, depth + 1)):
            return found
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

    def _record(self, thing: Any, opened: set[int], depth: int) -> list[Any] | None:
        """An object that holds values, with members and attributes; None for any other, and for one inside itself."""
        if id(thing) in opened or self._records > _MOST_RECORDS or not holds(thing, Value, {}):
            return None
        opened.add(id(thing))
        self._records += 1
        try:
            return self._with_members(thing, type_name_of(thing).encode("utf-8", "replace").decode(), depth)
        finally:
            opened.remove(id(thing))

    def _with_members(self, thing: Any, name: str, depth: int) -> list[Any] | None:
        own = attributes(thing)
        if isinstance(thing, tuple):
            names = getattr(thing, "_fields", None)
            return ["named tuple", name, list(names), *self.encode_all(thing, depth)] if names else None
        if isinstance(thing, Mapping):
            return ["record", name, "dict", _dict(self, thing, depth)[1:], self._attributes(own.items(), depth)]
        if is_collection(thing):
            held = self.encode_all(list(thing), depth)
            kind = "set" if isinstance(thing, Set) else "list"
            return (
                [kind, *held] if kind == "set" else ["record", name, kind, held, self._attributes(own.items(), depth)]
            )
        found = [(step, member) for step, member in members(thing)]
        if all(step.startswith(".") for step, _ in found):
            return ["record", name, "object", [], self._attributes([(step[1:], m) for step, m in found], depth)]
        return ["named", *self.encode_all([member for _, member in found], depth)]

    def _attributes(self, pairs: Iterable[tuple[str, Any]], depth: int) -> list[Any]:
        return [[name, self.encode(member, depth)] for name, member in pairs if not _is_special(name)]

    def _array(self, array: np.ndarray[Any, Any], depth: int) -> Any:
        if not self.arrays or not _NUMPY_TYPE.fullmatch(array.dtype.str):
            return self._object(array)
        if array.nbytes <= _SMALL:
            return ["array", array.dtype.str, list(array.shape), array.tobytes().hex()]
        stored = self._store(torch.from_numpy(np.frombuffer(array.tobytes(), np.uint8).copy()))
        return ["large array", array.dtype.str, list(array.shape), stored]

    def _plain_tensor(self, tensor: Tensor, depth: int) -> Any:
        """A tensor that is not a value of the trace: a random generator's state, part of a user function's result."""
        if tensor.dtype is torch.uint8 and tensor.dim() == 1 and tensor.numel() <= _SMALL:
            return ["tensor", self.encode(tensor.numpy(), depth)]
        return ["large tensor", self._store(tensor)]

    def _object(self, thing: Any) -> list[Any]:
        """Equal objects get one number: grouping calls into layers depends on their equality."""
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


def _is_special(name: str) -> bool:
    """Is it a name that Python itself looks up?"""
    return name.startswith("__") and name.endswith("__")


def _described(thing: Any) -> list[str]:
    if isinstance(thing, torch.Generator):
        return ["generator", str(thing.device)]
    if isinstance(thing, SavedObject):
        return [thing.type_name, thing.description]
    kind = type(thing)
    try:
        description = repr(thing)
    except Exception as error:  # from the user's __repr__
        description = f"<{kind.__name__}, whose repr raised {type(error).__name__}>"
    description = description if len(description) <= 300 else description[:300] + "..."
    return [f"{kind.__module__}.{kind.__qualname__}", description.encode("utf-8", "replace").decode()]


def _dict(encoder: PythonEncoder, thing: Mapping[Any, Any], depth: int) -> list[Any]:
    return ["dict", *([encoder.encode(key, depth), encoder.encode(member, depth)] for key, member in thing.items())]


def _layout(encoder: PythonEncoder, layout: MemoryLayout, depth: int) -> list[Any]:
    return [
        "layout",
        plain_sizes(layout.size),
        plain_sizes(layout.stride),
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
    deque: lambda encoder, thing, depth: ["deque", thing.maxlen, *encoder.encode_all(list(thing), depth)],
    OrderedDict: _dict,
    defaultdict: _dict,
    Counter: _dict,
    NotRebuilt: lambda encoder, thing, depth: ["not rebuilt", thing.reason.encode("utf-8", "replace").decode()],
    type(...): lambda encoder, thing, depth: ["..."],
    torch.Size: lambda encoder, thing, depth: ["size", *plain_sizes(thing)],
    torch.device: lambda encoder, thing, depth: ["device", str(thing)],
    np.ndarray: PythonEncoder._array,
    Tensor: PythonEncoder._plain_tensor,
    MemoryLayout: _layout,
}

# ---- reading --------------------------------------------------------------------------------------------------


class PythonDecoder:
    """Decodes arguments. References to values may point to the first `limit` of them only."""

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
        self._classes: dict[Any, type] = {}
        self.limit = len(values)  # arguments must exist before their call: otherwise the graph could have cycles

    def decode(self, data: Any, depth: int = 0) -> Any:
        if type(data) is not list:
            if type(data) is dict:
                raise BundleError("a value is not a JSON object")
            return data
        if depth > _DEEPEST:
            raise BundleError("values are nested too deeply")
        tag, *members = data
        if tag == "value":
            (number,) = members
            return self.values[integer(number, 0, self.limit - 1)]
        decode = _DECODE.get(text(tag))
        if decode is None:
            raise BundleError(f"unknown kind of value {tag[:40]!r}")
        return decode(self, members, depth + 1)

    def decode_all(self, data: Sequence[Any], depth: int = 0) -> list[Any]:
        return [self.decode(member, depth) for member in data]

    def _dict(self, pairs: list[Any], depth: int) -> dict[Any, Any]:
        return {self.decode(key, depth): self.decode(member, depth) for key, member in pairs}

    def _deque(self, data: list[Any], depth: int) -> deque[Any]:
        longest, *held = data
        return deque(self.decode_all(held, depth), None if longest is None else integer(longest, len(held)))

    def _named_tuple(self, data: list[Any], depth: int) -> Any:
        type_name, names, *held = data
        fields = tuple([_attribute(name) for name in names])
        if len(fields) != len(held):
            raise BundleError("a named tuple must have one name for each member")
        return self._class(SavedNamedTuple, type_name, fields)(*self.decode_all(held, depth))

    def _record(self, data: list[Any], depth: int) -> Any:
        type_name, kind, held, own = data
        make = self._class(_RECORDS[one_of(_RECORDS, kind)], type_name)
        if kind == "object" and held:
            raise BundleError("an object must have attributes, not members")
        found = (
            make() if kind == "object" else make(self._dict(held, depth) if kind == "dict" else self.decode_all(held))
        )
        vars(found).update({_attribute(name): self.decode(member, depth) for name, member in own})
        return found

    def _class(self, base: type, type_name: Any, names: tuple[str, ...] = ()) -> Any:
        key = base, text(type_name), names
        if key not in self._classes:
            self._classes[key] = class_like(base, type_name, names)
        return self._classes[key]

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


_RECORDS: dict[str, type] = {"object": SavedRecord, "dict": SavedDict, "list": SavedList}


def _attribute(name: Any) -> str:
    if _is_special(text(name)):
        raise BundleError(f"{name[:40]!r} is not the name of an attribute")
    return text(name)


def _numpy_type(name: Any) -> np.dtype[Any]:
    if not _NUMPY_TYPE.fullmatch(text(name)):
        raise BundleError(f"NumPy has no type {name[:40]!r}")
    found: np.dtype[Any] = np.dtype(name)
    return found


_NOTHING = (torch.Size(()), torch.float32, torch.device("cpu"))


def _range(decoder: PythonDecoder, members: list[Any], depth: int) -> range:
    return range(*[integer(member, -(2**63), 2**63) for member in members])


def _slice(decoder: PythonDecoder, members: list[Any], depth: int) -> slice:
    start, stop, step = decoder.decode_all(members, depth)
    return slice(start, stop, step)


def _read_layout(decoder: PythonDecoder, members: list[Any], depth: int) -> MemoryLayout:
    size, stride, offset, itemsize, conj = members
    return MemoryLayout(torch.Size(sizes(size)), sizes(stride), integer(offset), integer(itemsize), flag(conj))


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
    "deque": PythonDecoder._deque,
    "named tuple": PythonDecoder._named_tuple,
    "record": PythonDecoder._record,
    "not rebuilt": _one(lambda member: NotRebuilt(text(member))),
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
