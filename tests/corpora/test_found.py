"""What PyTorch's databases and the zoo found wrong here, each as the smallest model that shows it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl
from torchlens.replay.same import difference, same


class Of(nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def validated(function: Callable[..., Any], *args: Any) -> tl.ModelLog:
    """The log of a function, once it is validated."""
    report = tl.validate_model_activations(Of(function), list(args), random_seed=1)
    assert report, str(report)
    assert not report.unverified and not report.unstable, str(report)
    return tl.log_forward_pass(Of(function), list(args), random_seed=1)


@pytest.mark.parametrize("initialise", [nn.init.kaiming_uniform_, nn.init.normal_, nn.init.uniform_, nn.init.constant_])
def test_initialisation_in_forward_is_stepped_into(initialise: Callable[..., Tensor]) -> None:
    """`nn.init` asks `torch.overrides` by its full name whether it is overridden."""
    constant = initialise is nn.init.constant_
    log = validated(lambda x: initialise(torch.zeros(4, 3), *([2.0] if constant else [])) + x, torch.rand(3))
    assert {"uniform", "normal", "fill"} & {op.layer_type for op in log}


def beyond(x: Tensor) -> Tensor:
    return x.as_strided((2, 2), (1, 2), 3) + 1


@pytest.mark.parametrize("part", [slice(0, 4), slice(2, 6), slice(None, None, 2)], ids=str)
def test_as_strided_reaches_beyond_the_tensor(part: slice) -> None:
    memory = torch.rand(10)
    log = tl.log_forward_pass(Of(beyond), memory[part])
    assert torch.equal(log[-1].activation, beyond(memory[part]))  # type: ignore[arg-type]
    assert log.validate(), str(log.validate())


def test_as_strided_sees_what_was_written_beside_the_tensor() -> None:
    def model(memory: Tensor) -> Tensor:
        own = memory + 0
        front = own[:4]
        own[4:] = 7.0
        return front.as_strided((6,), (1,), 0) * 2

    log = validated(model, torch.rand(6))
    assert log[-1].activation[4:].tolist() == [14.0, 14.0]  # type: ignore[index]


def test_checking_completeness_does_not_change_the_values() -> None:
    """Some functions compute differently when a dispatch mode is on; the check steps aside for what is logged."""
    torch.manual_seed(0)
    target, weight = torch.randint(0, 4, (8, 24)), torch.rand(4)
    loss = Of(lambda x: F.cross_entropy(x, target, weight, ignore_index=1, label_smoothing=0.1))
    for _ in range(20):
        x = torch.randn(8, 4, 24)
        log = tl.log_forward_pass(loss, x, check_completeness=True)
        assert log.completeness and log[-1].activation.item() == loss(x).item()  # type: ignore[union-attr]


@pytest.mark.parametrize("dtype", [torch.complex32, torch.float8_e5m2, torch.float8_e4m3fn], ids=str)
def test_types_without_comparison_are_compared(dtype: torch.dtype) -> None:
    one = torch.tensor([1.0, float("nan")]).to(dtype)
    other = torch.tensor([2.0, float("nan")]).to(dtype)
    assert same(one, one.clone()) and not same(one, other)
    assert "1 of 2 values" in difference(one, other)


def test_a_log_with_nested_tensors_is_checked_for_consistency() -> None:
    def model(x: Tensor) -> Tensor:
        return torch.nested.nested_tensor([x, x[:1]]).to_padded_tensor(0.0)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert tl.lint(tl.log_forward_pass(Of(model), torch.rand(2, 3))) == []


def test_perturbation_gives_no_index_beyond_those_there_were() -> None:
    """Not every kernel checks its indices; one that was given others wrote over memory that was not its own."""
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    given = []

    def scatter(values: Tensor, places: Tensor) -> Tensor:
        return torch.ops.aten.max_pool2d_with_indices_backward(values, x, [2, 2], [2, 2], [0, 0], [1, 1], False, places)

    values, places = F.max_pool2d(x, 2, return_indices=True)
    log = tl.log_forward_pass(Of(scatter), [values, places])
    (call,) = [call for call in log.graph.trace.calls if call.function.func is not None]
    run = call.function.func

    def spy(*args: Any) -> Tensor:
        given.append(args[-1].clone())
        return run(*args)

    call.function.func = spy
    try:
        assert log.validate()
    finally:
        call.function.func = run
    assert len(given) > 2 and any(not torch.equal(indices, places) for indices in given)
    assert all(indices.min() >= 0 and indices.max() <= places.max() for indices in given)


def test_perturbed_indices_make_no_broken_sparse_tensors() -> None:
    """Torch does not check the indices of a sparse tensor, and crashes on senseless ones."""

    def model(starts: Tensor, columns: Tensor, values: Tensor) -> Tensor:
        return torch.sparse_csr_tensor(starts, columns, values, size=(3, 3), check_invariants=False).to_dense() + 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        validated(model, torch.tensor([0, 2, 3, 4]), torch.tensor([0, 2, 1, 2]), torch.rand(4))


@pytest.mark.parametrize("side", [1, 3])
def test_quantized_tensors_are_kept_in_their_order(side: int) -> None:
    """The mean of a quantized tensor rounds differently in the order of channels last, which a clone does not keep."""

    def model(x: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x = torch.quantize_per_tensor(x.contiguous(memory_format=torch.channels_last), 0.1, 3, torch.quint8)
        return torch.relu(x).mean((2, 3)).dequantize()

    log = validated(model, torch.randn(1, 64, side, side))
    (quantized,) = [op for op in log if op.layer_type == "quantizepertensor"]
    assert (quantized.activation is not None and quantized.activation.stride()[1] == 1) or side == 1


def test_conjugate_views_are_kept_as_such() -> None:
    """Products with a conjugate view round differently than with its values written out."""

    def model(x: Tensor) -> Tensor:
        return (x + 1).mH @ (x + 2) + (x.conj() * 2).conj().imag.sum()

    log = validated(model, torch.randn(17, 5, dtype=torch.complex64))
    (view,) = [op for op in log if op.layer_type == "mh"]
    assert view.activation is not None and view.activation.is_conj()


def test_strides_of_single_rows_are_kept() -> None:
    """They tell kernels which order is meant, and a clone forgets them."""
    x = torch.rand(1, 8, 1, 1).as_strided((1, 8, 1, 1), (8, 1, 8, 8))
    log = tl.log_forward_pass(Of(lambda x: x + 1), x)
    assert log[0].activation is not None and log[0].activation.stride() == x.stride()
