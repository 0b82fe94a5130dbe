"""Tensors are found in whatever a model takes or returns; where they can't be, the log says so."""

from __future__ import annotations

import types
from collections import ChainMap, OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree

import torchlens as tl
from torchlens.capture.containers import flat_tensors, fresh_copy, tensors_in

Pair = namedtuple("Pair", ["a", "b"])


class TypedPair(NamedTuple):
    a: Tensor
    b: Tensor


@dataclass
class Data:
    a: Tensor
    b: Tensor


@dataclass(frozen=True)
class Frozen:
    a: Tensor
    b: Tensor


@dataclass
class SlottedData:
    __slots__ = ("a", "b")
    a: Tensor
    b: Tensor


@dataclass
class DataWithMore:
    a: Tensor
    b: Tensor = field(init=False)

    def __post_init__(self) -> None:
        self.more: Tensor | None = None


class Slots:
    __slots__ = ("__b", "a")

    def __init__(self, a: Tensor, b: Tensor) -> None:
        self.a, self.__b = a, b


class SlotsBelow(Slots):
    __slots__ = ("unset",)


class SlotsAndMore(Slots):
    """It has a `__dict__`, too."""


class Attributes:
    def __init__(self, a: Tensor, b: Tensor) -> None:
        self.a, self.b = a, b


class Moody(Attributes):
    """Its properties and `__getattr__` are nobody's business."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):  # Python's own way to copy an object asks for `__setstate__`
            raise AssertionError(f"asked for {name}")
        raise AttributeError(name)

    @property
    def wrong(self) -> Any:
        raise AssertionError("asked for wrong")


class OwnSequence(Sequence[Tensor]):
    def __init__(self, *members: Tensor) -> None:
        self.kept = members

    def __getitem__(self, i: Any) -> Any:
        return self.kept[i]

    def __len__(self) -> int:
        return len(self.kept)


class Computed(OwnSequence):
    """Its members are others each time."""

    def __getitem__(self, i: Any) -> Any:
        return self.kept[i].clone()


class OwnMapping(Mapping[str, Tensor]):
    def __init__(self, a: Tensor, b: Tensor) -> None:
        self.kept = {"a": a, "b": b}

    def __getitem__(self, key: str) -> Tensor:
        return self.kept[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.kept)

    def __len__(self) -> int:
        return 2


class ListWithMore(list[Tensor]):
    more: Tensor


class DictWithAttributes(dict[str, Tensor]):
    """The same tensors as members and as attributes, as the outputs of transformers have them."""

    def __init__(self, a: Tensor, b: Tensor) -> None:
        super().__init__(a=a, b=b)
        self.a, self.b = a, b


class Iterable2:
    """Can be walked as often as one likes."""

    def __init__(self, *members: Tensor) -> None:
        self.kept = list(members)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.kept)


def with_more(a: Tensor, b: Tensor) -> ListWithMore:
    made = ListWithMore([a])
    made.more = b
    return made


def cyclic(a: Tensor, b: Tensor) -> list[Any]:
    made: list[Any] = [a, b]
    made.append(made)
    return made


def cyclic_object(a: Tensor, b: Tensor) -> Any:
    made = Attributes(a, b)
    made.self = made  # type: ignore[attr-defined]
    return made


def object_array(a: Tensor, b: Tensor) -> Any:
    made = np.empty(2, dtype=object)
    made[0], made[1] = a, b
    return made


CONTAINERS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "tuple": lambda a, b: (a, b),
    "list": lambda a, b: [a, b],
    "dict": lambda a, b: {"a": a, "b": b},
    "deque": lambda a, b: deque([a, b]),
    "OrderedDict": lambda a, b: OrderedDict(a=a, b=b),
    "defaultdict": lambda a, b: defaultdict(list, a=a, b=b),
    "UserDict": lambda a, b: UserDict(a=a, b=b),
    "UserList": lambda a, b: UserList([a, b]),
    "ChainMap": lambda a, b: ChainMap({"b": b}, {"a": a}),
    "MappingProxyType": lambda a, b: types.MappingProxyType({"a": a, "b": b}),
    "SimpleNamespace": lambda a, b: types.SimpleNamespace(a=a, b=b),
    "namedtuple": Pair,
    "NamedTuple": TypedPair,
    "dataclass": Data,
    "frozen dataclass": Frozen,
    "dataclass with slots": SlottedData,
    "slots": Slots,
    "slots of a parent": SlotsBelow,
    "slots and attributes": SlotsAndMore,
    "attributes": Attributes,
    "attributes of a moody class": Moody,
    "sequence": OwnSequence,
    "mapping": OwnMapping,
    "iterable": Iterable2,
    "a list with attributes": with_more,
    "a dict with the same attributes": DictWithAttributes,
    "a list in itself": cyclic,
    "an object in itself": cyclic_object,
    "an array of objects": object_array,
    "nested": lambda a, b: deque([Slots([{"x": a}], UserList([Data(b, b)]))][:1]),
}
TWICE = {"nested"}  # the second tensor is in it twice


class Through(nn.Module):
    """Takes a container and returns one of the same kind."""

    def __init__(self, make: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.make, self.fc = make, nn.Linear(3, 3)

    def forward(self, container: Any) -> Any:
        a, b = [tensor for _, tensor in tensors_in(container)][:2]
        return self.make(self.fc(a), b * 2)


@pytest.mark.parametrize("name", CONTAINERS)
def test_tensors_are_found_in_inputs_and_outputs(name: str) -> None:
    make = CONTAINERS[name]
    model, given = Through(make), make(torch.rand(2, 3), torch.rand(2, 3))
    expected = [tensor for _, tensor in tensors_in(model(given))]
    assert len(expected) == 2 + (name in TWICE)
    log = tl.log_forward_pass(model, [given])
    assert not log.warnings and len(log.input_layers) == len(expected)
    for label, tensor in zip(log.output_layers, expected, strict=True):
        assert torch.equal(log[label].activation, tensor) and log[label].has_input_ancestor
    assert log.validate()
    assert tl.validate_model_activations(model, [given])
    again = log.replay()
    assert type(again) is type(model(given))
    assert [path for path, _ in tensors_in(again)] == [path for path, _ in tensors_in(model(given))]
    assert all(torch.equal(one, other) for (_, one), other in zip(tensors_in(again), expected, strict=True))


@pytest.mark.parametrize("name", CONTAINERS)
def test_such_logs_are_saved_and_loaded(name: str, tmp_path: Any) -> None:
    make = CONTAINERS[name]
    log = tl.log_forward_pass(Through(make), [make(torch.rand(2, 3), torch.rand(2, 3))])
    tl.save(log, tmp_path / "log")
    loaded = tl.load(tmp_path / "log")
    assert [op.label for op in loaded] == [op.label for op in log]
    assert torch.equal(loaded[log.output_layers[0]].activation, log[log.output_layers[0]].activation)


@pytest.mark.parametrize("name", CONTAINERS)
def test_fastlog_and_pluck_find_them_too(name: str) -> None:
    make = CONTAINERS[name]
    model, given = Through(make), make(torch.rand(2, 3), torch.rand(2, 3))
    recording = tl.fastlog.record(model, [given], keep_op=lambda op: True)
    assert [record.label for record in recording if record.label.startswith(("linear", "mul"))] == [
        f"linear_1_{2 + (name in TWICE)}",
        f"mul_1_{3 + (name in TWICE)}",
    ]
    assert torch.equal(tl.pluck(model, [given], "fc"), model.fc(tensors_in(given)[0][1]))


@pytest.mark.parametrize("name", [name for name in CONTAINERS if name not in ("iterable", "attributes")])
def test_what_a_module_takes_and_returns(name: str) -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Through(CONTAINERS[name])

        def forward(self, a: Tensor, b: Tensor) -> Any:
            return self.inner(CONTAINERS[name](a + 1, b + 1))

    log = tl.log_forward_pass(Outer(), [torch.rand(2, 3), torch.rand(2, 3)])
    if name in LOOKED_INTO_QUICKLY:
        assert "inner" in log["add_1"].modules_entered and "inner" in log["add_2"].modules_entered
        assert "inner" in log["mul_1"].modules_exited
    assert log.validate()


LOOKED_INTO_QUICKLY = {
    "tuple", "list", "dict", "deque", "OrderedDict", "defaultdict", "UserDict", "ChainMap", "MappingProxyType",
    "namedtuple", "NamedTuple", "dataclass", "frozen dataclass", "dataclass with slots", "slots", "slots of a parent",
    "UserList", "sequence", "mapping", "a dict with the same attributes", "a list in itself", "nested",
}  # fmt: skip


def test_a_copy_of_the_inputs_has_its_own_tensors() -> None:
    for make in CONTAINERS.values():
        given = make(torch.rand(3), torch.rand(3))
        own = fresh_copy([given])[0]
        pairs = list(zip(tensors_in(given), tensors_in(own), strict=True))
        assert all(one is not other and torch.equal(one, other) for (_, one), (_, other) in pairs)


def test_members_that_are_computed_are_not_taken_for_stored_ones() -> None:
    a, b = torch.rand(3), torch.rand(3)
    assert [id(tensor) for _, tensor in tensors_in(Computed(a, b))] == [id(a), id(b)]


def test_tensors_as_keys() -> None:
    log = tl.log_forward_pass(Keyed(), [{torch.rand(3): 1}])
    assert len(log.input_layers) == 1 and log[log.output_layers[0]].has_input_ancestor
    assert isinstance(next(iter(log.replay())), Tensor)


class Keyed(nn.Module):
    def forward(self, given: dict[Tensor, int]) -> dict[Tensor, int]:
        return {key * 2: value for key, value in given.items()}


def test_what_is_registered_with_pytree() -> None:
    held: dict[int, list[Tensor]] = {}

    class Handle:
        __slots__ = ()

    def handle(tensors: Any, context: Any) -> Handle:
        made = Handle()
        held[id(made)] = list(tensors)
        alive.append(made)
        return made

    alive: list[Handle] = []
    _pytree.register_pytree_node(Handle, lambda made: (held[id(made)], None), handle)
    try:
        model = Through(lambda a, b: handle([a, b], None))
        log = tl.log_forward_pass(model, [handle([torch.rand(2, 3), torch.rand(2, 3)], None)])
        assert len(log.input_layers) == len(log.output_layers) == 2
        assert type(log.replay()) is Handle
    finally:
        _pytree.SUPPORTED_NODES.pop(Handle)


# ---- what can't be looked into --------------------------------------------------------------------------------


class TakesThem(nn.Module):
    def forward(self, given: Any) -> Tensor:
        return sum(tensor * 2 for tensor in given)  # type: ignore[return-value]


def holding(*tensors: Tensor) -> Iterator[Tensor]:
    yield from tensors


HIDING: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "list_iterator": lambda a, b: iter([a, b]),
    "generator": lambda a, b: holding(a, b),
    "map": lambda a, b: map(torch.neg, [a, b]),
    "zip": lambda a, b: (pair[0] for pair in zip([a, b], [b, a], strict=True)),
}


@pytest.mark.parametrize("name", HIDING)
def test_an_input_that_hides_tensors_is_a_warning(name: str) -> None:
    with pytest.warns(tl.FidelityWarning, match=r"the input \[0\] \(.*\) can't be looked into"):
        log = tl.log_forward_pass(TakesThem(), [HIDING[name](torch.rand(3), torch.rand(3))])
    assert any("can't be looked into" in warning for warning in log.warnings)


def test_an_output_that_hides_tensors_is_a_warning() -> None:
    class Gives(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return (x * i for i in range(3))

    with pytest.warns(tl.FidelityWarning, match="the model returned generator, which can't be looked into"):
        tl.log_forward_pass(Gives(), torch.rand(3))


def test_what_is_no_data_is_neither_looked_into_nor_warned_of() -> None:
    model = nn.Linear(3, 3)

    class Takes(nn.Module):
        def forward(self, x: Tensor, *others: Any) -> Tensor:
            return x * 2

    others = [
        model, torch.optim.SGD(model.parameters(), lr=0.1), partial(torch.add, 1), range(3), iter(range(3)), "word",
        torch.Generator(), Takes, len, object(), np.arange(3), iter("word"), (n for n in range(3)),
    ]  # fmt: skip
    log = tl.log_forward_pass(Takes(), [torch.rand(3), *others])
    assert len(log.input_layers) == 1 and not log.warnings


def test_a_huge_graph_of_objects_is_not_walked_to_its_end() -> None:
    given = [[object.__new__(Attributes)] for _ in range(120_000)]
    unseen: list[Any] = []
    assert tensors_in(given, unseen) == [] and "100000 objects" in str(unseen)


# ---- arguments of torch's functions ---------------------------------------------------------------------------


def test_other_sequences_as_arguments() -> None:
    class MyList(list[Tensor]):
        pass

    class Stacks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack(MyList([x * 2, x * 3])) + torch.tensor(deque([x.sum(), x.mean()]))[:, None]

    log = tl.log_forward_pass(Stacks(), torch.rand(3))
    assert log["stack"].parent_layers == ["mul_1_1", "mul_2_2"]
    assert log.validate()


def test_flat_tensors_of_a_list_in_itself() -> None:
    a = torch.rand(3)
    given: list[Any] = [a]
    given.append(given)
    assert [id(tensor) for tensor in flat_tensors(given)] == [id(a)]
