"""What a model returned comes back from a file with the same fields and paths, without the classes it is made of."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections import OrderedDict, UserDict, deque
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
import torch
from tests.models import Forward
from torch import Tensor, nn

import torchlens as tl
from torchlens.bundle.hashing import hash_of
from torchlens.capture.containers import tensors_in
from torchlens.capture.restored import SavedRecord


@dataclasses.dataclass
class Output:
    logits: Tensor
    loss: Tensor | None = None
    name: str = "it"


@dataclasses.dataclass(frozen=True)
class Frozen:
    inner: Output
    more: tuple[Tensor, ...]


class Named(NamedTuple):
    first: Tensor
    rest: list[Tensor]


class Slots:
    __slots__ = ("kept", "x")

    def __init__(self, x: Tensor) -> None:
        self.x, self.kept = x, 3


class ModelOutput(OrderedDict):  # type: ignore[type-arg]
    """A dict whose keys are attributes as well."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(fields)
        self.__dict__.update(fields)


class Tagged(list):  # type: ignore[type-arg]
    extra: Tensor


def tagged(x: Tensor) -> Tagged:
    new = Tagged([x, x + 1])
    new.extra = x * 5
    return new


def circular(x: Tensor) -> Slots:
    new = Slots(x + 1)
    new.kept = new  # type: ignore[assignment]
    return new


RETURNED = {
    "dataclass": lambda x: Output(x * 2),
    "nested": lambda x: Frozen(Output(x * 2, x.sum()), (x, x + 1)),
    "named tuple": lambda x: Named(x + 1, [x, x * 3]),
    "slots": lambda x: Slots(x + 1),
    "deque": lambda x: deque([x + 1, {"a": x * 2}], maxlen=4),
    "model output": lambda x: ModelOutput(logits=x * 2, hidden=(x, x + 1)),
    "a list with more": tagged,
    "mapping": lambda x: UserDict(a=x + 1),
    "proxy": lambda x: MappingProxyType({"a": x + 1}),
    "plain": lambda x: ({"a": [x + 1]}, None, 2),
    "return type": lambda x: x.max(0),
    "circular": circular,
}


@pytest.mark.parametrize("kind", RETURNED)
def test_a_loaded_log_returns_the_same_structure(kind: str, tmp_path: Path) -> None:
    model, x = Forward(RETURNED[kind]), torch.rand(2, 3)
    returned = model(x)
    tl.save(tl.log_forward_pass(model, x), tmp_path / "log")
    loaded = tl.load(tmp_path / "log")
    for again in (loaded.replay(from_layer="input_1"), copy.deepcopy(loaded).replay(from_layer="input_1")):
        expected, found = tensors_in(returned), tensors_in(again)
        assert [path for path, _ in found] == [path for path, _ in expected]
        assert all(torch.equal(one, other) for (_, one), (_, other) in zip(found, expected, strict=True))
        assert isinstance(again, (tuple, list, dict, deque)) or type(returned).__name__ in repr(again)
    tl.save(loaded, tmp_path / "again")
    twice = tl.load(tmp_path / "again").replay(from_layer="input_1")
    assert [path for path, _ in tensors_in(twice)] == [path for path, _ in expected] and repr(twice) == repr(again)
    changed = loaded.replay(values={"input_1": x + 1})
    assert [each.shape for _, each in tensors_in(changed)] == [each.shape for _, each in expected]
    assert any(not torch.equal(one, other) for (_, one), (_, other) in zip(tensors_in(changed), expected, strict=True))


def test_a_record_reads_as_the_object_did(tmp_path: Path) -> None:
    def replayed(forward: Any) -> Any:
        path = tmp_path / str(len(list(tmp_path.iterdir())))
        tl.save(tl.log_forward_pass(Forward(forward), torch.ones(2)), path)
        return tl.load(path).replay(from_layer="input_1")

    output = replayed(RETURNED["nested"])
    assert output.inner.name == "it" and output.inner.loss.item() == 2
    assert repr(replayed(lambda x: Output(x))) == "Output(logits=tensor([1., 1.]), loss=None, name='it')"
    with pytest.raises(AttributeError, match="read-only"):
        output.inner = 1
    with pytest.raises(AttributeError, match="Output has no attribute 'logit'"):
        _ = output.inner.logit
    named = replayed(RETURNED["named tuple"])
    assert named.first is named[0] and named._fields == ("first", "rest") and repr(named).startswith("Named(first=tens")
    model_output = replayed(RETURNED["model output"])
    assert model_output.logits is model_output["logits"] and list(model_output) == ["logits", "hidden"]
    assert isinstance(replayed(RETURNED["deque"]), deque) and replayed(RETURNED["deque"]).maxlen == 4


def test_what_cannot_be_made_again_says_so_after_loading_too(tmp_path: Path) -> None:
    class Stubborn:
        def __init__(self, x: Tensor) -> None:
            self.x = x

        def __copy__(self) -> Stubborn:
            raise TypeError("there is only one")

        __reduce_ex__ = None  # type: ignore[assignment]

    tl.save(tl.log_forward_pass(Forward(Stubborn), torch.ones(2)), tmp_path / "log")
    with pytest.raises(tl.TorchLensError, match="can't be rebuilt: .*there is only one"):
        tl.load(tmp_path / "log").replay(from_layer="input_1")


@pytest.mark.parametrize(
    "row",
    [
        ["record", "Output", "module", [], []], ["record", 3, "object", [], []], ["record", "A", "object", [1], []],
        ["record", "A", "object", [], [[1, 2]]], ["record", "A", "dict", [[1]], []], ["record", "A"],
        ["record", "A", "dict", [[["list"], 1]], []], ["named tuple", "A", ["x"]], ["named tuple", "A", [1], 1],
        ["deque", -1], ["deque", "x", 1], ["not rebuilt", 3],
    ],
)  # fmt: skip
def test_nonsense_is_refused(row: Any, tmp_path: Path) -> None:
    path = tmp_path / "log"
    tl.save(tl.log_forward_pass(nn.ReLU(), torch.rand(3)), path)
    tables = json.loads((path / "metadata.json").read_text())
    tables["output"] = row
    data = json.dumps(tables).encode()
    (path / "metadata.json").write_bytes(data)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["metadata"] = {"bytes": len(data), "xxh3": hash_of(data)}
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(tl.BundleError):
        tl.load(path)


def test_names_from_a_file_are_only_names(tmp_path: Path) -> None:
    """Attributes with the names of methods are what they are in any object: they do not run."""

    class Odd:
        def __init__(self, x: Tensor) -> None:
            self.__dict__.update({"x": x, "__class__": "str", "__reduce__": "nothing", "type_name": "fake"})

    tl.save(tl.log_forward_pass(Forward(Odd), torch.ones(2)), tmp_path / "log")
    found = tl.load(tmp_path / "log").replay(from_layer="input_1")
    assert isinstance(found, SavedRecord) and list(vars(found)) == ["x", "type_name"] and type(found).__name__ == "Odd"
    assert repr(copy.copy(found)) == repr(found)
