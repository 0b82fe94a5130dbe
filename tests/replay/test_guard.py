"""A replay answers as the model would, or raises: never with a wrong answer."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import torchlens as tl

Forward = Callable[[Tensor], Any]


class Plain(nn.Module):
    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.run = forward

    def forward(self, x: Tensor) -> Any:
        return self.run(x)


LOGGED = torch.tensor([1.0, 2.0, 3.0])
OTHERS = [*map(torch.tensor, ([4.0, -9.0, 0.5], [2.0, 4.0, 6.0], [3.0, 1.0, 2.0], [0.0, 2.0, 2.0])), LOGGED.clone()]


def answers(forward: Forward, other: Tensor, **arguments: Any) -> bool:
    """Does a replay on another input answer, and then as the model does? False if it raises instead."""
    model = Plain(forward)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log = tl.log_forward_pass(model, LOGGED.clone(), **arguments)
    try:
        got = log.replay(values={"input_1": other})
    except (tl.DivergenceError, tl.ReplayError):
        return False
    expected = model(other.clone())
    assert got.dtype == expected.dtype and torch.equal(got, expected)
    return True


# ---- what the model read ----------------------------------------------------------------------------------------


def doubled_until(x: Tensor) -> Tensor:
    for _ in range(5):
        if x.sum() < 10:
            x = x * 2
    return x


@torch.jit.script
def scripted_branch(x: Tensor) -> Tensor:
    if bool(x.sum() > 3):
        return x * 2
    return x * 3


READERS: dict[str, Forward] = {
    "bool": lambda x: x * 2 if x.sum() > 0 else x * 3,
    "bool of an inner value": lambda x: x * 2 if bool(x.exp().sum() > 100) else x * 3,
    "item": lambda x: x / x.max().item(),
    "float": lambda x: x / float(x.max()),
    "int": lambda x: x * int(x[0]),
    "index": lambda x: x[: x[0].long()],
    "range": lambda x: x * sum(range(x[0].long())),
    "loop": doubled_until,
    "complex": lambda x: x * complex(x[0]).real,
    "tolist": lambda x: x * sum(x.tolist()),
    "numpy": lambda x: x + torch.from_numpy(x.detach().numpy().copy() * 2),
    "array": lambda x: x * float(np.asarray(x.detach()).sum()),
    "dlpack": lambda x: x * float(np.from_dlpack(x.detach() * 1).sum()),
    "storage": lambda x: x * (x * 1).untyped_storage().tolist()[-2],
    "equal": lambda x: x * 2 if torch.equal(x, x.abs()) else x * 3,
    "equal by keyword": lambda x: x * 2 if torch.equal(x, other=x.abs()) else x * 3,
    "allclose": lambda x: x * 2 if torch.allclose(x, x.abs(), atol=0.5) else x * 3,
    "is_nonzero": lambda x: x * 2 if torch.is_nonzero(x.sum() > 0) else x * 3,
    "contains": lambda x: x * 2 if 1.0 in x else x * 3,
    "operator": lambda x: x * torch.ops.aten._local_scalar_dense(x.sum()),
    "script": scripted_branch,
    "cond": lambda x: torch.cond(x.sum() > 3, lambda x: x * 2, lambda x: x * 3, (x,)),
    "nnz": lambda x: x * x.relu().to_sparse()._nnz(),
    "len": lambda x: x.sum() * len(x[x > 0]),
    "shape": lambda x: x.sum() * x.nonzero().shape[0],
    "size after unique": lambda x: x.round().unique().sum() * x.round().unique().numel(),
    "max_len": lambda x: torch.zeros(int(x[0]), 2).sum() + x,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("saved", ["all", "none"])
def test_what_the_model_read_is_compared(name: str, saved: str) -> None:
    found = [answers(READERS[name], other, layers_to_save=saved) for other in OTHERS]
    assert not all(found), "one of the inputs leads elsewhere"
    assert found[-1] or saved == "none"  # the same input leads to the same place


def test_the_same_decision_may_be_made_of_other_values() -> None:
    assert answers(READERS["bool"], torch.tensor([5.0, 6.0, 7.0]))
    assert answers(READERS["equal"], torch.tensor([5.0, 6.0, 7.0]), layers_to_save="none")
    assert answers(READERS["item"], torch.tensor([-1.0, 2.5, 3.0]))


def test_the_message_says_what_was_read_where() -> None:
    log = tl.log_forward_pass(Plain(READERS["bool"]), LOGGED)
    there = r"the model read gt_1_2 as True \(__bool__, .*test_guard.py:\d+\), and would now read False"
    with pytest.raises(tl.DivergenceError, match=there):
        log.replay(values={"input_1": -LOGGED})
    with pytest.raises(tl.DivergenceError, match="run the model itself"):
        log.replay(values={"sum": torch.tensor(-1.0)})
    log = tl.log_forward_pass(Plain(READERS["tolist"]), LOGGED)
    with pytest.raises(
        tl.DivergenceError, match=r"the model read input_1_0 \(tolist, .*\), and would now read others: 3 "
    ):
        log.replay(values={"input_1": -LOGGED})
    log = tl.log_forward_pass(Plain(READERS["tolist"]), LOGGED, layers_to_save=None)
    with pytest.raises(tl.DivergenceError, match=r"the model read input_1_0 \(tolist, .*\), and it was not saved"):
        log.replay(values={"input_1": LOGGED})


def test_a_parameter_that_was_read_and_has_changed() -> None:
    class Scaled(nn.Module):
        def __init__(self, read: Callable[[Tensor], Any]) -> None:
            super().__init__()
            self.scale, self.read = nn.Parameter(torch.ones(1)), read

        def forward(self, x: Tensor) -> Tensor:
            return x * self.scale * self.read(self.scale)

    for read in (Tensor.item, lambda scale: scale.tolist()[0]):
        model = Scaled(read)
        log = tl.log_forward_pass(model, LOGGED)
        assert torch.equal(log.replay(), model(LOGGED))
        with torch.no_grad():
            model.scale.mul_(2)
        with pytest.raises(tl.DivergenceError, match=r"the model read the parameter scale"):
            log.replay()


# ---- shapes and types -------------------------------------------------------------------------------------------


def test_another_shape_or_type_may_have_been_read() -> None:
    forward: Forward = lambda x: x.sum() * x.shape[0]  # noqa: E731
    log = tl.log_forward_pass(Plain(forward), LOGGED)
    with pytest.raises(tl.DivergenceError, match=r"input_1_0 now has shape \(4,\) instead of \(3,\)"):
        log.replay(values={"input_1": torch.rand(4)})
    with pytest.raises(tl.DivergenceError, match=r"input_1_0 now has dtype torch.float64 instead of torch.float32"):
        log.replay(values={"input_1": LOGGED.double()})
    log = tl.log_forward_pass(Plain(lambda x: x[x > 0] * 2), LOGGED)
    with pytest.raises(tl.DivergenceError, match=r"getitem_1_2 now has shape \(2,\) instead of \(3,\)"):
        log.replay(values={"input_1": OTHERS[0]})


def test_new_rows_after_new_activations() -> None:
    model = nn.Sequential(nn.Linear(5, 5), nn.ReLU())
    log = tl.log_forward_pass(model, torch.rand(2, 5))
    log.save_new_activations(model, torch.rand(7, 5))
    assert torch.equal(log.replay(values={"0": torch.ones(7, 5)}), torch.ones(7, 5))


# ---- memory that is seen as another type ------------------------------------------------------------------------


def written(view: Callable[[Tensor], Tensor], of: Callable[[Tensor], Tensor] = lambda x: x * 1) -> Forward:
    """Write through a view and look at what lies below."""

    def forward(x: Tensor) -> Tensor:
        base = of(x)
        seen = view(base)
        seen.mul_(3) if seen.is_floating_point() or seen.is_complex() else seen.add_(5)
        return base * 2

    return forward


def as_complex(x: Tensor) -> Tensor:
    return torch.complex(x, x * 2)


def set_to(x: Tensor) -> Tensor:
    return torch.empty(0).set_(x)


def set_to_storage(x: Tensor) -> Tensor:
    return torch.empty(0).set_(x.untyped_storage(), 0, x.shape, x.stride())


WRITERS: dict[str, Forward] = {
    "int32": written(lambda x: x.view(torch.int32)),
    "int16": written(lambda x: x.view(torch.int16)[::2]),
    "bytes": written(lambda x: x.view(torch.uint8)[1::4]),
    "view_as_real": written(torch.view_as_real, as_complex),
    "real": written(lambda x: x.real, as_complex),
    "imag": written(lambda x: x.imag, as_complex),
    "imag of a conjugate": written(lambda x: x.conj().imag, as_complex),
    "imag below a conjugate": written(lambda x: x.imag, lambda x: as_complex(x).conj()),
    "conjugate": written(lambda x: x.conj(), as_complex),
    "part of imag": written(lambda x: x.imag[1:], as_complex),
    "view_as_complex": written(torch.view_as_complex, lambda x: torch.stack([x, x + 1], dim=-1)),
    "negative": written(lambda x: x.conj().imag[:2], as_complex),
    "set_": written(set_to),
    "data": written(lambda x: x.data),
    "as_strided": written(lambda x: x[1:].as_strided((2,), (1,), 0)),
    "diagonal": written(lambda x: x.diagonal(), lambda x: x.outer(x)),
    "unfold": written(lambda x: x.unfold(0, 1, 2)),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
def test_writes_through_views_of_any_kind(name: str, grad: bool) -> None:
    with torch.set_grad_enabled(grad):
        assert all(answers(WRITERS[name], other) for other in OTHERS)
        log = tl.log_forward_pass(Plain(WRITERS[name]), LOGGED.clone())
        assert log.validate(), log.validate()


@pytest.mark.parametrize("name", ["view_as_real", "real", "imag", "part of imag", "conjugate", "imag of a conjugate"])
def test_gradients_through_writes_into_parts_of_complex_numbers(name: str) -> None:
    log = tl.log_forward_pass(Plain(WRITERS[name]), LOGGED.clone())
    x, y = (OTHERS[0].clone().requires_grad_() for _ in range(2))
    torch.view_as_real(log.replay(values={"input_1": x})).square().sum().backward()
    torch.view_as_real(WRITERS[name](y)).square().sum().backward()
    assert torch.allclose(x.grad, y.grad)


def test_bits_have_no_gradient() -> None:
    log = tl.log_forward_pass(Plain(WRITERS["int32"]), LOGGED.clone())
    with pytest.raises(tl.ReplayError, match="autograd can't follow"):
        log.replay(values={"mul_1_1": LOGGED.clone().requires_grad_()})


def test_raw_memory_is_refused() -> None:
    assert not answers(written(set_to_storage), OTHERS[0])


def test_a_given_tensor_lies_as_the_logged_one_lay() -> None:
    """Whether `reshape` copies depends on it, and `as_strided` goes by it."""

    def reshaped(x: Tensor) -> Tensor:
        x.reshape(-1).add_(1)
        return x * x.as_strided((2, 2), (1, 2))

    x = torch.rand(2, 2)
    log = tl.log_forward_pass(Plain(reshaped), x.clone())
    given = torch.rand(2, 2).t()
    assert torch.equal(log.replay(values={"input_1": given}), reshaped(given.contiguous()))


# ---- calls that raise -------------------------------------------------------------------------------------------


def caught(x: Tensor) -> Tensor:
    y = torch.zeros(3)
    try:
        y.index_add_(0, x.long(), torch.ones(3))
    except (IndexError, RuntimeError):
        return y * 5 - 1
    return y + 1


@pytest.mark.parametrize("logged", [[0.0, 1.0, 2.0], [0.0, 1.0, 7.0]], ids=["works", "raises"])
def test_a_write_that_raises_must_have_raised_before(logged: list[float]) -> None:
    log = tl.log_forward_pass(Plain(caught), torch.tensor(logged))
    assert torch.equal(log.replay(), caught(torch.tensor(logged)))
    for other in ([2.0, 1.0, 0.0], [1.0, 1.0, 7.0], [-5.0, 1.0, 0.0]):
        try:
            got = log.replay(values={"input_1": torch.tensor(other)})
        except (tl.ReplayError, tl.DivergenceError):
            continue
        assert torch.equal(got, caught(torch.tensor(other)))


def solved(x: Tensor) -> Tensor:
    try:
        return torch.linalg.inv(x.diag())
    except RuntimeError:
        return x * 7


def test_whether_a_call_raised_is_compared() -> None:
    assert torch.equal(tl.log_forward_pass(Plain(solved), torch.zeros(3)).replay(), torch.zeros(3))
    for logged, other in (([0.0, 1.0, 2.0], [1.0, 1.0, 1.0]), ([1.0, 1.0, 1.0], [0.0, 1.0, 2.0])):
        log = tl.log_forward_pass(Plain(solved), torch.tensor(logged))
        with pytest.raises((tl.DivergenceError, tl.ReplayError)):
            log.replay(values={"input_1": torch.tensor(other)})
