"""Kept values share memory with the model's tensors while it runs; afterwards whoever is left has memory of his own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from torchlens._torch import references

captured_in_a_closure: list[Callable[[], Tensor]] = []


class Stashes(nn.Module):
    """Keeps what it computes in all kinds of places."""

    def __init__(self, fail: bool = False) -> None:
        super().__init__()
        self.fc, self.fail, self.kept = nn.Linear(4, 4), fail, {}
        self.register_buffer("state", torch.zeros(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.fc(x).relu()
        shifted = hidden + 1
        self.kept = {"attribute": hidden, "view": hidden[0], "detached": shifted.detach()}
        self.state = hidden * 2  # a buffer
        self.kept["for the backward pass as well"] = shifted  # the sine keeps it
        self.state = self.state + shifted.sin()
        captured = hidden.exp()
        captured_in_a_closure[:] = [lambda: captured]
        last = captured.sum(0)
        if self.fail:
            self.kept["computed before it failed"] = last
            raise KeyError("stop")
        return last

    def stashed(self) -> dict[str, Tensor]:
        return self.kept | {"buffer": self.state, "closure": captured_in_a_closure[0]()}


def failing(model: Stashes, x: Tensor) -> Any:
    model.fail = True
    with pytest.raises(KeyError) as caught:
        tl.log_forward_pass(model, x)
    return caught.value.partial_log


def recorded(model: Stashes, x: Tensor) -> Any:
    with tl.fastlog.Recorder(model, keep_op=True) as recorder:
        model.kept["output"] = recorder.log(x)
    return recorder


def differentiated(model: Stashes, x: Tensor) -> Any:
    log = tl.log_forward_pass(model, x, save_gradients=True)
    log.log_backward(log["output"].activation.sum())
    return log


WAYS: dict[str, Callable[[Stashes, Tensor], Any]] = {
    "log": tl.log_forward_pass,
    "log of a submodule": lambda model, x: tl.log_forward_pass(model, x, module="fc"),
    "some layers": lambda model, x: tl.log_forward_pass(model, x, layers_to_save=["relu", "exp"]),
    "gradients": differentiated,
    "train_mode": lambda model, x: tl.log_forward_pass(model, x, train_mode=True),
    "failing": failing,
    "validate": lambda model, x: [log := tl.log_forward_pass(model, x), log.validate()],
    "fastlog.record": lambda model, x: tl.fastlog.record(model, x, keep_op=True),
    "fastlog.Recorder": recorded,
    "save_new_activations": lambda model, x: [log := tl.log_forward_pass(model, x), log.save_new_activations(model, x)],
}


WITHOUT_GRADIENTS = [way for way in WAYS if way not in ("gradients", "train_mode")]


@pytest.mark.parametrize(
    ("way", "grad"), [*((way, True) for way in WAYS), *((way, False) for way in WITHOUT_GRADIENTS)]
)
def test_every_tensor_that_can_be_reached_can_be_enlarged(way: str, grad: bool) -> None:
    model, x = Stashes(), torch.rand(3, 4)
    with torch.set_grad_enabled(grad):
        log = WAYS[way](model, x)
    for where, tensor in model.stashed().items():
        assert not torch._C._is_cow_tensor(tensor), where  # type: ignore[attr-defined]
    with torch.no_grad():
        out = model.stashed()["attribute"].detach().resize_(0)
        torch.add(torch.ones(50, 4), 1, out=out)
    assert out.shape == (50, 4) and log is not None


def test_what_is_kept_does_not_change_with_it() -> None:
    model, x = Stashes(), torch.rand(3, 4)
    with torch.no_grad():
        log = tl.log_forward_pass(model, x)
        before = log["relu"].activation.clone()
        torch.add(torch.ones(50, 4), 1, out=model.kept["attribute"])
        model.kept["view"].zero_()
    assert torch.equal(log["relu"].activation, before)


def test_nothing_is_copied_that_nobody_can_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what the model returned, nor what autograd alone keeps."""
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Linear(4, 4), nn.ReLU()), torch.rand(3, 4)
    asked: list[Tensor] = []
    given = Tensor.data_ptr
    monkeypatch.setattr(Tensor, "data_ptr", lambda tensor: asked.append(tensor) or given(tensor), raising=False)
    log = tl.log_forward_pass(model, x)
    assert log["sigmoid"].activation is not None and asked == []


def test_references_of_python_are_counted_whoever_else_uses_a_tensor() -> None:
    tensor = torch.rand(3, requires_grad=True) * 2

    def counted() -> int:
        return references(tensor)

    before = counted()
    users = [tensor.sin(), tensor[0], tensor.exp()]  # the first two keep it, but not from Python
    assert counted() == before
    more = [tensor, tensor]
    assert counted() == before + len(more) and users
