"""Where does a tensor come from that no recorded call made? The log follows it, or says that it does not know."""

from __future__ import annotations

import copy
import gc
import pickle
import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from torchlens.capture.functions import METADATA_QUERIES

#: What is kept must not change what is seen.
KEPT = pytest.mark.parametrize("kept", ["all", "none"])


class Model(nn.Module):
    """A module whose forward is a function."""

    def __init__(self, forward: Callable[[Model, Tensor], object]) -> None:
        super().__init__()
        self.function = forward

    def old_constant(self) -> Tensor:
        return torch.FloatTensor([1.0])

    def forward(self, x: Tensor) -> object:
        return self.function(self, x)


def logged(forward: Callable[[Model, Tensor], object], kept: str = "all", **options: object) -> tl.ModelLog:
    with torch.no_grad():
        return tl.log_forward_pass(Model(forward), torch.randn(3, 4), layers_to_save=kept, **options)  # type: ignore[arg-type]


def parents(log: tl.ModelLog, label: str) -> list[str]:
    return [parent.split("_")[0] for parent in log[label].parent_layers]


# ---- followed -------------------------------------------------------------------------------------------------


class Plain(Tensor):
    """A tensor of another class."""


class Telling(Tensor):
    """A tensor of a class with a say in what is done with it."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return super().__torch_function__(func, types, args, kwargs)


class Made(Tensor):
    """A tensor of a class that makes its tensors of others."""

    @staticmethod
    def __new__(cls, data):  # type: ignore[no-untyped-def]
        return Tensor._make_subclass(cls, data)


def by_storage(t: Tensor) -> Tensor:
    return torch.empty(0).set_(t.untyped_storage(), 0, t.size(), t.stride())  # type: ignore[call-overload, no-any-return]


def by_storage_of_old(t: Tensor) -> Tensor:
    return torch.FloatTensor(t.storage()).view(3, 4)


FOLLOWED: dict[str, Callable[[Tensor], Tensor]] = {
    "copy": copy.copy,
    "as_subclass": lambda t: t.as_subclass(Plain),
    "as_telling_subclass": lambda t: t.as_subclass(Telling),
    "make_subclass": Made,
    "tensor": Tensor,
    "variable": torch.autograd.Variable,
    "parameter": lambda t: nn.Parameter(t, requires_grad=False),
    "buffer": getattr(nn, "Buffer", torch.clone),
    "set": by_storage,
    "pickle": lambda t: pickle.loads(pickle.dumps(t)),
    "storage": by_storage_of_old,
    "numpy": lambda t: torch.from_numpy(t.numpy()),
    "as_tensor": lambda t: torch.as_tensor(t.numpy()),
    "tensor_of_numpy": lambda t: torch.tensor(t.numpy()),
}


@KEPT
@pytest.mark.filterwarnings("ignore:TypedStorage")
@pytest.mark.parametrize("how", FOLLOWED)
def test_followed_to_where_it_comes_from(how: str, kept: str) -> None:
    log = logged(lambda self, x: FOLLOWED[how](x * 2) + 1, kept, check_completeness=True)
    ancestors, ahead = set(), ["add"]
    while ahead:
        found = log[ahead.pop()]
        ancestors.add(found.layer_type)
        ahead += found.parent_layers
    assert "mul" in ancestors and "source" not in ancestors
    assert not log.warnings and log.completeness
    if kept == "all":
        assert log.validate()


@KEPT
def test_what_an_inner_log_gives_is_followed_or_told(kept: str) -> None:
    inside = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self: Model, x: Tensor) -> Tensor:
        return tl.log_forward_pass(inside, x)["relu"].activation + 1  # type: ignore[operator, return-value]

    if kept == "all":
        assert parents(logged(forward), "add") == ["relu"]
    else:
        with pytest.warns(tl.FidelityWarning, match=told_here("can't be observed")):
            logged(forward, kept)


# ---- told -----------------------------------------------------------------------------------------------------


def told_here(why: str) -> str:
    return rf"a tensor of shape \(.*\), used at .*test_origins.py:\d+, .*{why}"


def unseen(t: Tensor) -> Tensor:
    with torch._C.DisableTorchFunction():
        return t.sin()


def of_bytes(t: Tensor) -> Tensor:
    storage = torch.UntypedStorage([byte // 2 for byte in t.untyped_storage().tolist()])
    return torch.empty(0).set_(storage, 0, t.size(), t.stride())  # type: ignore[call-overload, no-any-return]


UNSEEN: dict[str, Callable[[Tensor], Tensor]] = {
    "operations": unseen,
    "storage": of_bytes,
    "numpy": lambda t: torch.from_numpy(np.sin(t.numpy())),
    "tensor_of_numpy": lambda t: torch.tensor(np.sin(t.numpy())),
    "as_tensor": lambda t: torch.as_tensor(np.sin(t.numpy())),
    "tensor_of_a_number": lambda t: torch.tensor(np.sin(t.numpy()).max()),
    "old_tensor_of_numpy": lambda t: Tensor(np.sin(t.numpy())),
    "tensor_of_a_list": lambda t: torch.tensor(t.tolist()),
    "old_tensor_of_a_list": lambda t: Tensor(t.tolist()),
    "tensor_of_items": lambda t: torch.tensor([t[0, 0].item(), t[0, 1].item()]).sum(),
    "new_tensor": lambda t: t.new_tensor(np.sin(t.numpy())),
}


@KEPT
@pytest.mark.parametrize("collect", [False, True])
@pytest.mark.parametrize("how", UNSEEN)
def test_what_came_to_be_unseen_is_told_with_its_line(how: str, collect: bool, kept: str) -> None:
    def forward(self: Model, x: Tensor) -> Tensor:
        unknown = UNSEEN[how](x * 2)
        if collect:
            gc.collect()
        return unknown + 1

    with pytest.warns(tl.FidelityWarning, match=told_here("")) as caught:
        log = logged(forward, kept)
    assert len(caught) == len(log.warnings) == 1 and re.search(told_here(""), log.warnings[0])


@KEPT
def test_what_came_to_be_unseen_and_is_returned_is_told(kept: str) -> None:
    with pytest.warns(tl.FidelityWarning, match=told_here("can't be observed")):
        logged(lambda self, x: unseen(x * 2), kept)


def test_what_came_to_be_unseen_before_the_model_raised_is_told() -> None:
    def forward(self: Model, x: Tensor) -> Tensor:
        _ = unseen(x) + 1
        raise ValueError

    with pytest.raises(ValueError) as raised:
        logged(forward)
    assert re.search(told_here("can't be observed"), raised.value.partial_log.warnings[0])  # type: ignore[attr-defined]


def test_a_helper_may_use_the_constructors_of_old() -> None:
    assert not logged(lambda self, x: x + old_constant() + self.old_constant()).warnings  # type: ignore[operator]


def old_constant() -> Tensor:
    return torch.FloatTensor([1.0])


@KEPT
def test_what_was_there_before_is_no_news(kept: str) -> None:
    """Constants: at any depth of the model's attributes, global, in closures, default arguments, from NumPy."""
    here, cell = torch.ones(4), [torch.ones(4)]
    array, made = np.ones(4, np.float32), torch.from_numpy(np.ones(4, np.float32))
    with torch.no_grad():
        computed = torch.ones(4) * 2

    def forward(self: Model, x: Tensor, default: Tensor = torch.ones(4)) -> Tensor:  # noqa: B008
        x = x + here + cell[0] + made + GLOBAL + default + computed + self.kept["a"][0] + self.kept["b"].inside
        x = x + torch.from_numpy(array) + torch.tensor(array) + torch.as_tensor(array)
        return x + torch.tensor(2.0) + torch.tensor([1.0, 2.0]).sum() + Tensor([1, 2, 3, 4]) + torch.FloatTensor([1])

    model = Model(forward)
    inside = nn.Identity()
    inside.inside = torch.ones(4)
    model.kept = {"a": (torch.ones(4),), "b": inside}  # type: ignore[assignment]
    log = tl.log_forward_pass(model, torch.randn(3, 4), layers_to_save=kept)
    assert not log.warnings


@KEPT
def test_constants_after_something_was_read_are_no_news(kept: str) -> None:
    def forward(self: Model, x: Tensor) -> Tensor:
        scale, sizes = x.max().item(), x.argmax(1).tolist()
        return x * scale + torch.tensor([0.5]) + torch.tensor(sizes).sum() + torch.full((4,), scale)

    assert not logged(forward, kept).warnings


GLOBAL = torch.ones(4)


# ---- memory at an address that was used before ----------------------------------------------------------------


@KEPT
def test_what_was_handed_out_and_freed_is_not_taken_for_what_lies_there_now(kept: str) -> None:
    def forward(self: Model, x: Tensor) -> Tensor:
        y = x.exp()
        y.numpy()
        address = y.data_ptr()
        del y
        for _ in range(100):  # the same memory, soon
            constant = np.ones((3, 4), np.float32)
            if constant.ctypes.data == address:
                break
        kept_alive.append(constant)
        return x + torch.from_numpy(constant)

    kept_alive: list[object] = []
    for _ in range(20):
        with pytest.warns(tl.FidelityWarning, match=told_here("came from outside torch")):
            log = logged(forward, kept)
        assert parents(log, "add") == ["input", "source"]


# ---- memory that others can write to --------------------------------------------------------------------------

BROUGHT_IN = {
    "from_numpy": torch.from_numpy,
    "as_tensor": torch.as_tensor,
    "asarray": torch.asarray,
    "frombuffer": lambda array: torch.frombuffer(memoryview(array).cast("B"), dtype=torch.float32),
    "from_dlpack": torch.from_dlpack,
}


@KEPT
@pytest.mark.parametrize("how", BROUGHT_IN)
@pytest.mark.parametrize("of_it", ["itself", "view", "part"])
def test_memory_of_numpy_is_looked_at_again_when_it_is_returned(how: str, of_it: str, kept: str) -> None:
    def forward(self: Model, x: Tensor) -> object:
        array = np.zeros(4, np.float32)
        t = BROUGHT_IN[how](array)
        t = {"itself": t, "view": t.view(2, 2), "part": t[1:]}[of_it]
        y = x + t.sum()
        array += 1
        return t, y

    with pytest.warns(tl.FidelityWarning, match="overwritten by code that can't be observed"):
        log = logged(forward, kept)
    if kept == "all":
        assert log["output_1"].activation.unique().tolist() == [1]  # type: ignore[union-attr]
    assert "aliasupdate" in log["output_1"].parent_layers[0]


@KEPT
def test_memory_of_numpy_is_looked_at_again_when_it_is_used(kept: str) -> None:
    def forward(self: Model, x: Tensor) -> object:
        array = np.zeros(4, np.float32)
        t = torch.from_numpy(array)
        y = x + t
        array += 1
        return y * t

    with pytest.warns(tl.FidelityWarning, match="overwritten by code that can't be observed"):
        log = logged(forward, kept)
    assert parents(log, "mul") == ["add", "aliasupdate"]


@KEPT
@pytest.mark.parametrize("size", [(4,), (2, 4)])
def test_a_buffer_over_memory_of_numpy_is_looked_at_again(size: tuple[int, ...], kept: str) -> None:
    array = np.zeros(size, np.float32)

    def forward(self: Model, x: Tensor) -> object:
        y = x + self.table.sum()
        array[:] += 1
        return y * self.table.sum()

    model = Model(forward)
    model.register_buffer("table", torch.from_numpy(array))
    with pytest.warns(tl.FidelityWarning, match="overwritten by code that can't be observed"):
        log = tl.log_forward_pass(model, torch.randn(3, 4), layers_to_save=kept)
    assert log["sum_1"].parent_layers != log["sum_2"].parent_layers


@KEPT
def test_an_input_over_memory_of_numpy_is_looked_at_again(kept: str) -> None:
    array = np.zeros((3, 4), np.float32)

    def forward(self: Model, x: Tensor) -> object:
        y = x + 1
        array[:] += 1
        return y * x

    with pytest.warns(tl.FidelityWarning, match="overwritten by code that can't be observed"):
        log = tl.log_forward_pass(Model(forward), torch.from_numpy(array), layers_to_save=kept)
    assert parents(log, "mul") == ["add", "aliasupdate"]


@torch.jit.script
def written_below(x: Tensor) -> Tensor:
    y = x * 2
    y.add_(1)
    return y


@KEPT
def test_a_write_at_the_dispatcher_is_counted_once(kept: str) -> None:
    log = logged(lambda self, x: written_below(x) + torch.empty(0).set_(x * 3) + 1, kept)  # type: ignore[call-overload]
    assert not log.warnings and "aliasupdate" not in [op.layer_type for op in log]


# ---- what is no operation -------------------------------------------------------------------------------------


def asked_of(name: str, tensor: Tensor) -> None:
    """Ask a tensor a question, with another tensor if it takes one."""
    question = getattr(tensor, name, None) or getattr(torch, name, tensor.dim)
    for args in ((), (tensor,), (tensor, tensor), (tensor.dtype, tensor.dtype)):
        try:
            question(*args)
            return
        except (AttributeError, TypeError, RuntimeError):  # it takes other arguments, or is for other tensors
            continue


@pytest.mark.parametrize("name", sorted(METADATA_QUERIES))
def test_a_question_is_no_missed_operation(name: str) -> None:
    def forward(self: Model, x: Tensor) -> Tensor:
        for tensor in (x * 2, (x > 0).float().to_sparse(), torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)):
            asked_of(name, tensor)
        return x + 1

    assert logged(forward, check_completeness=True).completeness
