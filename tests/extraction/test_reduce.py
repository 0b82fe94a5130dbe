"""Reductions: what they compute, and that they come out alike in every process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.extraction.networks import Fragile, Tokens, images, network
from torch import Tensor

import torchlens as tl

R = tl.reduce
MAPS, SEQUENCES = torch.rand(4, 6, 5, 5), torch.rand(4, 7, 3)


@pytest.mark.parametrize(
    ("reduction", "value", "expected"),
    [
        (R.mean(), MAPS, MAPS.mean((2, 3))),
        (R.mean(), SEQUENCES, SEQUENCES.mean(1)),
        (R.mean(), MAPS[:, :, 0, 0], MAPS[:, :, 0, 0]),
        (R.mean(dim=-1), MAPS, MAPS.mean(-1)),
        (R.max(), MAPS, MAPS.amax((2, 3))),
        (R.max(dim=(1, 2)), MAPS, MAPS.amax((1, 2))),
        (R.flatten(), MAPS, MAPS.flatten(1)),
        (R.token(2), SEQUENCES, SEQUENCES[:, 2]),
        (R.cls(), SEQUENCES, SEQUENCES[:, 0]),
        (R.last_token(), SEQUENCES, SEQUENCES[:, -1]),
        (R.pool(1), MAPS, MAPS.mean((2, 3), keepdim=True)),
        (R.pool(5), MAPS, MAPS),
    ],
    ids=str,
)
def test_what_they_compute(reduction: Any, value: Tensor, expected: Tensor) -> None:
    assert torch.allclose(reduction(value), expected)
    assert eval(repr(reduction), vars(R)) == reduction  # they print as they are written


def test_the_last_token_that_is_no_padding() -> None:
    mask = torch.tensor([[1, 1, 0, 0, 0, 0, 0], [1] * 7, [0, 0, 1, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0, 0]])
    found = R.last_token("mask").with_inputs(SEQUENCES, [], {"mask": mask})
    assert torch.equal(found, SEQUENCES[torch.arange(4), [1, 6, 4, 0]])
    assert torch.equal(found, R.last_token(1).with_inputs(SEQUENCES, [None, mask], {}))
    with pytest.raises(tl.ArgumentError, match=r"the model was given no 'mask', only \['x'\]"):
        R.last_token("mask").with_inputs(SEQUENCES, [], {"x": 1})
    with pytest.raises(tl.ArgumentError, match="a row without any token"):
        R.last_token("mask").with_inputs(SEQUENCES, [], {"mask": mask * 0})


def test_random_projections_keep_distances() -> None:
    values = torch.randn(30, 20_000, generator=torch.Generator().manual_seed(0))
    projected = R.random_projection(2000, seed=1)(values)
    ratio = torch.pdist(projected) / torch.pdist(values)
    assert projected.shape == (30, 2000) and float((ratio - 1).abs().max()) < 0.1
    assert torch.equal(projected, R.random_projection(2000, seed=1)(values))
    assert not torch.equal(projected, R.random_projection(2000, seed=2)(values))


def test_as_many_numbers_as_the_bound_says() -> None:
    assert R.random_projection("auto").made_for((9432,), 60_000)(torch.rand(2, 9432)).shape == (2, 9431)
    assert R.random_projection(eps=0.5).made_for((333,), 1000)(torch.rand(2, 333)).shape == (2, 332)
    with pytest.raises(tl.ArgumentError, match="needs the number of inputs"):
        R.random_projection().made_for((9,), None)
    with pytest.raises(tl.ArgumentError, match='a number of features or "auto"'):
        R.random_projection("all")


def test_principal_components(tmp_path: Path) -> None:
    store = tl.extract(
        network(), images(40), ["conv"], tmp_path / "acts", batch_size=4, shard_rows=8, reduce=R.pca(5, samples=20)
    )
    full = tl.extract(network(), images(40), ["conv"], tmp_path / "full", batch_size=4)["conv"].torch().flatten(1)
    fitted = torch.cat([full[start : start + 4] for start in range(0, 40, 8)])  # spread over the inputs
    center = fitted.mean(0)
    _, _, axes = torch.linalg.svd((fitted - center).double(), full_matrices=False)
    expected = (full - center).double() @ axes[:5].t()
    assert torch.allclose(store["conv"].torch().double().abs(), expected.abs(), atol=1e-4)
    assert (tmp_path / "acts" / "fitted" / "000-0.safetensors").exists()
    (tmp_path / "acts" / "shards" / "000002.safetensors").unlink()
    again = tl.extract(
        network(), images(40), ["conv"], tmp_path / "acts", batch_size=4, shard_rows=8, reduce=R.pca(5, samples=20)
    )
    assert torch.equal(again["conv"].torch(), store["conv"].torch())
    with pytest.raises(tl.ArgumentError, match="8 samples of 288 numbers have fewer components"):
        tl.extract(network(), images(8), "conv", tmp_path / "few", reduce=R.pca(9))


def test_several_in_turn_and_for_each_layer(tmp_path: Path) -> None:
    reduce = {"conv": [R.pool(2), R.flatten, lambda value: value * 2], "head": "max", "norm": [R.pca(3), R.pca(2)]}
    store = tl.extract(network(), images(), ["conv", "norm", "head"], tmp_path / "acts", reduce=reduce)
    whole = tl.extract(network(), images(), ["conv", "head"], tmp_path / "whole")
    expected = torch.nn.functional.adaptive_avg_pool2d(whole["conv"].torch(), 2).flatten(1) * 2
    assert torch.equal(store["conv"].torch(), expected) and store["norm"].shape == (20, 2)
    assert torch.equal(store["head"].torch(), whole["head"].torch())
    assert store["conv"].plan.reduce.startswith("pool(size=2), flatten(), ")


def test_by_the_selector_that_chose_the_layers(tmp_path: Path) -> None:
    store = tl.extract(network(), images(), ["norm", "re*"], tmp_path / "acts", reduce={"re*": R.mean()})
    assert [store[name].shape for name in store] == [(20, 8, 6, 6), (20, 8)]


@pytest.mark.parametrize(
    ("reduce", "message"),
    [
        ("maen", "there is no 'maen'; did you mean 'mean'"),
        (3, "3 is not a function of a batch"),
        (lambda value: value.sum(), "they are not along its first dimension"),
        (lambda value: value.numpy(), "returned ndarray for conv, not a tensor"),
    ],
)
def test_what_is_no_reduction(tmp_path: Path, reduce: Any, message: str) -> None:
    with pytest.raises(tl.ArgumentError, match=message):
        tl.extract(network(), images(), "conv", tmp_path / "acts", reduce=reduce)
    assert not (tmp_path / "acts").exists()


def test_a_token_that_is_not_there() -> None:
    with pytest.raises(tl.ArgumentError, match="needs .rows, tokens, features. with enough tokens"):
        R.token(9)(SEQUENCES)


def test_a_projection_never_makes_more_of_a_layer() -> None:
    value = torch.rand(3, 2, 4)
    assert torch.equal(R.random_projection(8)(value), value.flatten(1))
    assert torch.equal(R.random_projection()(value), value.flatten(1))
    assert R.random_projection(7)(value).shape == (3, 7)


@pytest.mark.parametrize(
    "make",
    [
        lambda: R.random_projection(True),
        lambda: R.random_projection(3, seed=-1),
        lambda: R.random_projection(eps=0),
        lambda: R.random_projection(eps=2.0),
        lambda: R.pca(0),
        lambda: R.pca(2.5),  # type: ignore[arg-type]
        lambda: R.pca(2, samples=0),
    ],
)
def test_numbers_that_mean_nothing(make: Any) -> None:
    with pytest.raises(tl.ArgumentError):
        make()


def test_what_needs_a_number_says_so(tmp_path: Path) -> None:
    with pytest.raises(tl.ArgumentError, match=r"pca needs a number, such as tl.reduce.pca\(50\)"):
        tl.extract(network(), images(4), "conv", tmp_path / "acts", reduce=R.pca)


@pytest.mark.parametrize("reduction", [R.random_projection(2), R.pca(1)], ids=repr)
def test_complex_numbers_are_not_made_real(tmp_path: Path, reduction: Any) -> None:
    class Complex(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.complex(x, x)

    with pytest.raises(tl.ArgumentError, match="complex numbers can't be projected"):
        tl.extract(Complex(), torch.rand(4, 3), "complex", tmp_path / "acts", reduce=reduction)


@pytest.mark.parametrize("reduction", [R.random_projection(2), R.pca(1)], ids=repr)
def test_rows_of_other_shapes_can_not_be_projected(tmp_path: Path, reduction: Any) -> None:
    tokens = [torch.zeros(length, dtype=torch.long) for length in (3, 3, 5, 5)]
    with pytest.raises(tl.ArgumentError, match="needs rows of one shape"):
        tl.extract(Tokens(), tokens, "tanh", tmp_path / "acts", ragged=True, reduce=reduction, batch_size=2)


def test_an_exception_of_a_reduction_says_where(tmp_path: Path) -> None:
    with pytest.raises(IndexError) as raised:
        tl.extract(network(), images(4), "conv", tmp_path / "acts", reduce=R.mean(9))
    assert "reducing conv, of shape [4, 8, 6, 6], by mean(dim=9)" in raised.value.__notes__[0]


def test_components_without_samples_that_raise(tmp_path: Path) -> None:
    x = torch.rand(8, 3)
    x[5] = float("nan")
    store = tl.extract(Fragile(), x, "add", tmp_path / "acts", batch_size=4, on_error="skip", reduce=R.pca(2))
    assert list(store.skipped) == [5] and store["add"][store.rows].shape == (7, 2)
    with pytest.raises(ValueError, match="a number was expected"):
        tl.extract(Fragile(), x, "add", tmp_path / "raises", batch_size=4, reduce=R.pca(2))
