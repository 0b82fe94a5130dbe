"""Where an edit would not reach all that depends on the value: right, or refused with words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import torchlens as tl

E = tl.edits
X = torch.rand(4, 5)


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.fc(x)) + 1


class Around(nn.Module):
    """Calls its submodule in some way."""

    def __init__(self, inner: Any, call: Callable[[Any, Tensor], Tensor] = lambda inner, x: inner(x)) -> None:
        super().__init__()
        self.inner, self.call = inner, call

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.call(self.inner, x))


def run(model: nn.Module, site: Any, edit: Any = None, x: Tensor = X, **options: Any) -> tl.ModelLog:
    return tl.log_forward_pass(model, x, interventions={site: E.scale(3.0) if edit is None else edit}, **options)


def recorded(model: nn.Module, site: Any, x: Tensor = X) -> Tensor:
    with tl.fastlog.Recorder(model, interventions={site: E.scale(3.0)}) as recorder:
        output: Tensor = recorder.log(x)
    return output


def edited(inner: Any, site: str, x: Tensor = X) -> Tensor:
    """What the model returns with one value scaled, by hand."""
    weight = inner.fc.weight * 3 if site == "inner.fc.weight" else inner.fc.weight
    y = torch.relu(F.linear(x, weight, inner.fc.bias))
    y = y * 3 if site == "relu" else y
    return torch.tanh((y + 1) * 3 if site == "inner" else y + 1)


# ---- TorchScript ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [0, 4], ids=["at first", "when it is compiled"])
@pytest.mark.parametrize("site", ["relu", "inner.fc.weight"])
def test_inside_torchscript_edits_are_right_without_gradients_and_refused_with(runs: int, site: str) -> None:
    inner = Inner()
    model = Around(torch.jit.script(inner))
    for _ in range(runs):
        model(X)
    with torch.no_grad():
        log = run(model, site)
        assert log[-1].activation.allclose(edited(inner, site)) and log.validate()
    with pytest.raises(tl.ArgumentError, match=r"TorchScript, where gradients would ignore the edit.*no_grad"):
        run(model, site)
    if site == "relu":
        with torch.no_grad():
            assert recorded(model, site).allclose(edited(inner, site))
        with pytest.raises(tl.ArgumentError, match="TorchScript, where gradients"):
            recorded(model, site)


def test_what_a_scripted_module_returns_is_edited_with_gradients() -> None:
    inner = Inner()
    x, twin = X.clone().requires_grad_(), X.clone().requires_grad_()
    log = run(Around(torch.jit.script(inner)), "inner", x=x, train_mode=True)
    assert log[-1].activation.allclose(edited(inner, "inner"))
    log[-1].activation.sum().backward()
    edited(inner, "inner", twin).sum().backward()
    assert x.grad is not None and twin.grad is not None and x.grad.allclose(twin.grad)
    assert run(Around(torch.jit.script(inner)), "inner").validate()


# ---- transforms of torch.func -----------------------------------------------------------------------------------


def test_inside_vmap_operations_are_edited_and_modules_refused() -> None:
    inner = Inner()
    model = Around(inner, lambda inner, x: torch.vmap(inner)(x))
    with torch.no_grad():
        for site in ("relu", "inner.fc.weight"):
            log = run(model, site)
            assert log[-1].activation.allclose(edited(inner, site)) and log.validate()
        assert recorded(model, "relu").allclose(edited(inner, "relu"))
    for site in ("inner", "inner.fc"):
        with pytest.raises(tl.ArgumentError, match=r"called in a transform such as torch\.vmap"):
            run(model, site)
    for trial in (run, recorded):
        with pytest.raises(tl.ArgumentError, match=r"torch\.vmap, where gradients would ignore the edit"):
            trial(model, "relu")


@pytest.mark.parametrize(
    "transform",
    [
        lambda f, x: torch.func.grad(lambda t: f(t).sum())(x),
        lambda f, x: torch.func.vjp(f, x)[1](torch.ones_like(x))[0],
        lambda f, x: torch.func.jvp(f, (x,), (torch.ones_like(x),))[1],
        lambda f, x: torch.func.jacrev(f)(x[0]),
        lambda f, x: torch.func.jacfwd(f)(x[0]),
        lambda f, x: torch.func.hessian(lambda t: f(t).sum())(x[0]),
        lambda f, x: torch.vmap(torch.func.grad(lambda t: f(t).sum()))(x),
    ],
    ids=["grad", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "grad in vmap"],
)
def test_where_derivatives_are_taken_edits_are_refused(transform: Any) -> None:
    model = Around(nn.Identity(), lambda inner, x: transform(lambda t: torch.sin(t) ** 2, x))
    for trial in (run, recorded):
        with pytest.raises(tl.ArgumentError, match="takes derivatives, which would ignore the edit"), torch.no_grad():
            trial(model, "sin")


def test_around_a_transform_edits_are_right() -> None:
    model = Around(nn.ReLU(), lambda inner, x: torch.func.grad(lambda t: (t**3).sum())(inner(x)) * 2)
    expected = torch.tanh(3 * (torch.relu(X) * 3) ** 2 * 2)
    assert run(model, "inner")[-1].activation.allclose(expected)
    assert run(model, "relu")[-1].activation.allclose(expected)


# ---- computed again, computed otherwise -------------------------------------------------------------------------


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("site", ["relu", "inner", "inner.fc.weight"])
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_inside_a_checkpoint_edits_are_right_without_gradients_and_refused_with(reentrant: bool, site: str) -> None:
    inner = Inner()
    model = Around(inner, lambda inner, x: checkpoint(inner, x, use_reentrant=reentrant))
    with torch.no_grad():
        assert run(model, site)[-1].activation.equal(edited(inner, site))
    with pytest.raises(tl.ArgumentError, match=r"torch\.utils\.checkpoint.*no_grad"):
        run(model, site)
    if site != "inner.fc.weight":
        with pytest.raises(tl.ArgumentError, match=r"torch\.utils\.checkpoint.*no_grad"):
            recorded(model, site)


@pytest.mark.parametrize("site", ["relu", "inner", "inner.fc.weight"])
def test_in_a_compiled_submodule_edits_are_right(site: str) -> None:
    inner = Inner()
    x, twin = X.clone().requires_grad_(), X.clone().requires_grad_()
    log = run(Around(torch.compile(inner)), site, x=x, train_mode=True)
    log[-1].activation.sum().backward()
    edited(inner, site, twin).sum().backward()
    assert log[-1].activation.equal(edited(inner, site)) and x.grad is not None and x.grad.allclose(twin.grad)  # type: ignore[arg-type]


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.exp(x) * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 7


def test_inside_a_function_with_its_own_backward_the_value_is_edited_and_the_gradient_its_own() -> None:
    model = Around(nn.Identity(), lambda inner, x: Doubled.apply(x))
    x = X.clone().requires_grad_()
    log = run(model, "exp", x=x, train_mode=True)
    expected = torch.tanh(torch.exp(X) * 3 * 2)
    assert log[-1].activation.equal(expected)
    log[-1].activation.sum().backward()
    assert x.grad is not None and x.grad.allclose((1 - expected**2) * 7)


def test_the_inside_of_fused_layers_is_not_reached_and_that_is_an_error() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.rand(2, 3, 8)
    with torch.no_grad():
        for site in ("self_attn", "linear1"):
            with pytest.raises(tl.LayerNotFoundError, match="never called"):
                run(layer, site, x=x)
        whole = run(layer, "transformerencoderlayerfwd", x=x)
        assert whole[-1].activation.equal(layer(x) * 3)
