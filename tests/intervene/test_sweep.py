"""A sweep is the loop of single runs; on a linear network the estimate is exact."""

from __future__ import annotations

import re
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from torchlens.intervene import sweep as sweeping

E = tl.edits


class Attention(nn.Module):
    """A small transformer block, with what makes batching hard: reshapes to fixed sizes, masks, in-place."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.view(*x.shape[:2], 2, -1).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        scores = q @ k.transpose(-1, -2)
        mask = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
        scores = scores.masked_fill(mask, -1e9).softmax(-1)
        mixed = (scores @ v).transpose(1, 2).reshape(x.shape)
        mixed += 1
        return x + self.out(mixed)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(Attention(), nn.Dropout(), Attention()).eval()


X = torch.rand(1, 6, 8)


def metric(output: Tensor) -> Tensor:
    return output[0, -1].square().sum()


def alone(model: nn.Module, site: Any, edit: Any, at: Any) -> float:
    """The metric in a run of the model with one edit."""

    def put(tensor: Tensor) -> Tensor:
        tensor[at] = edit(tensor)[at]
        return tensor

    with torch.no_grad():
        return float(metric(tl.log_forward_pass(model, X, interventions={site: put})[-1].activation))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("batch", ["auto", 1, 4])
def test_a_sweep_is_the_loop_of_single_runs(model: nn.Module, batch: Any) -> None:
    base = tl.log_forward_pass(model, X)
    found = tl.sweep(base, sites=["0", "softmax", "2.norm"], edit=E.zero(), over=1, metric=metric, batch=batch)
    assert len(found) == 6 + 2 * 2 + 6
    for row in found:
        at = (slice(None), row.index[0])
        expected = alone(model, row.site, torch.zeros_like, at)
        assert row.metric == pytest.approx(expected, rel=1e-4), row
        assert row.effect == pytest.approx(expected - found.base_metric, abs=1e-4)


def test_patching_by_a_donor(model: nn.Module) -> None:
    base, donor = tl.log_forward_pass(model, X), tl.log_forward_pass(model, torch.rand(1, 6, 8))
    found = tl.sweep(base, sites="2", donor=donor, metric=metric)
    assert found[0].metric == pytest.approx(float(metric(donor[-1].activation)))


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = (nn.Linear(4, 4, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.one(x)
        return self.two(hidden) + self.three(hidden) * 2


def test_on_a_linear_network_the_estimate_is_exact_and_edges_add_up() -> None:
    torch.manual_seed(0)
    model, x = Linear(), torch.rand(3, 4)
    base = tl.log_forward_pass(model, x)
    options: dict[str, Any] = {"sites": ["one", "two", "three"], "edit": E.zero(), "over": -1}
    exact = tl.sweep(base, metric=torch.sum, **options)
    estimate = tl.sweep(base, metric=torch.sum, method="gradient", **options)
    assert estimate.estimated and not exact.estimated
    for one, other in zip(exact, estimate, strict=True):
        assert (one.site, one.index) == (other.site, other.index) and one.effect == pytest.approx(
            other.effect, abs=1e-5
        )
    label = base["one"].label
    whole = base.intervene({label: E.zero()})[-1].activation - base[-1].activation
    parts = [
        base.intervene({(label, child): E.zero()})[-1].activation - base[-1].activation for child in ("two", "three")
    ]
    assert whole.allclose(sum(parts))


def test_what_can_not_be_batched_is_done_one_by_one() -> None:
    class Reading(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.relu(x)
            return y * 2 if bool(y.sum() > -1) else y

    base = tl.log_forward_pass(Reading(), X)
    found = tl.sweep(base, sites="relu", edit=E.zero(), over=1, metric=torch.sum)
    assert len(found) == 6 and found[0].effect == pytest.approx(-2 * X[:, 0].sum().item(), rel=1e-4)
    with pytest.raises(tl.DivergenceError):
        tl.sweep(base, sites="relu", edit=E.replace(-9.0), metric=torch.sum)


def test_tables_and_pictures(model: nn.Module, tmp_path: Path) -> None:
    found = tl.sweep(tl.log_forward_pass(model, X), sites=["0", "2"], edit=E.zero(), over=1, metric=metric)
    assert list(found.to_pandas().columns) == ["site", "index", "metric", "effect", "estimated"]
    assert "0[5]" in repr(found) or "2[5]" in repr(found)
    assert found.draw(tmp_path / "sweep.svg").read_text().count("<title>") == 12
    with pytest.raises(tl.ArgumentError, match="svg"):
        found.draw(tmp_path / "sweep.gif")
    assert list(found.to_pandas()["index"][:6]) == [0, 1, 2, 3, 4, 5]
    words = found.draw(tmp_path / "sweep.svg").read_text()
    assert "effect on metric" in words and "index along dimension 1" in words


@pytest.mark.parametrize(("units", "widest", "numbers"), [(6, 400, 6), (300, 1100, 30), (768, 1100, 16)])
def test_pictures_of_many_units_are_of_an_ordinary_width(tmp_path: Path, units: int, widest: int, numbers: int) -> None:
    base = tl.log_forward_pass(nn.Linear(8, units), X)
    found = tl.sweep(base, sites="linear", edit=E.zero(), over=-1, metric=torch.sum)
    words = found.draw(tmp_path / "sweep.svg").read_text()
    width = int(re.search(r'width="(\d+)"', words)[1])  # type: ignore[index]
    drawn = re.findall(r'<rect x="(\d+)" y="\d+" width="(\d+)"[^>]*><title>', words)
    cells = [(int(x), int(wide)) for x, wide in drawn]
    assert len({x for x, _ in cells}) == units and max(x + wide for x, wide in cells) < width <= widest
    middles = [float(x) for x in re.findall(r'<text x="([\d.]+)" [^>]*font-size="9"', words)]
    assert len(middles) == numbers
    assert all(after - before > 6 * len(str(units)) for before, after in pairwise(middles))


def test_in_a_notebook_a_sweep_shows_itself(
    model: nn.Module, notebook: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = tl.sweep(tl.log_forward_pass(model, X), sites="0", edit=E.zero(), metric=lambda output: output.sum())
    found.draw()
    assert not list(tmp_path.iterdir()) and "effect on the metric" in notebook[0]._repr_svg_()


def test_wrong_arguments(model: nn.Module) -> None:
    base = tl.log_forward_pass(model, X)
    for given in ({}, {"edit": 0, "donor": base}, {"edit": 0, "method": "guess"}, {"edit": 0, "over": 7}):
        with pytest.raises(tl.ArgumentError):
            tl.sweep(base, sites="2", metric=metric, **given)
    with pytest.raises(tl.LayerNotFoundError):
        tl.sweep(base, sites="conv", edit=0, metric=metric)


# ---- attention ------------------------------------------------------------------------------------------------


class FusedAttention(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.qkv, self.out, self.options = nn.Linear(6, 18), nn.Linear(6, 2), options

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (part.unflatten(-1, (2, 3)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, **self.options)
        return self.out(mixed.transpose(1, 2).flatten(2))


@pytest.mark.parametrize(
    "options",
    [
        {"is_causal": True},
        {"attn_mask": None, "dropout_p": 0.0, "scale": 0.5},
        {"attn_mask": torch.ones(4, 4).tril().bool()},
        {"attn_mask": torch.rand(1, 2, 4, 4)},
        {"attn_mask": torch.rand(3, 2, 4, 4)},
    ],
    ids=lambda options: "-".join(options),
)
@torch.no_grad()
def test_attention_is_batched_and_gives_what_single_runs_give(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model, x = FusedAttention(**options), torch.rand(3, 4, 6)
    base = tl.log_forward_pass(model, x)
    metric = lambda output: output.pow(2).sum()  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if options.get("attn_mask") is not None and len(options["attn_mask"]) == 3:
            warnings.simplefilter("ignore")  # torch says that it computes one sample after the other
        batched = tl.sweep(base, sites="qkv", edit=tl.edits.scale(2), over=1, metric=metric)
    alone = tl.sweep(base, sites="qkv", edit=tl.edits.scale(2), over=1, metric=metric, batch=1)
    for one, other in zip(batched, alone, strict=True):
        assert one.metric == pytest.approx(other.metric, rel=1e-6)


def test_a_batch_is_as_large_as_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = FusedAttention(is_causal=True), torch.rand(3, 4, 6)
    base, sizes = tl.log_forward_pass(model, x), []
    metrics = sweeping._Sweep._metrics
    monkeypatch.setattr(
        sweeping._Sweep, "_metrics", lambda self, cells: sizes.append(len(cells)) or metrics(self, cells)
    )
    effects = tl.sweep(base, sites="qkv", edit=tl.edits.scale(2), over=(1, 2), metric=lambda output: output.sum())
    assert sizes == [72] and len(effects) == 72
    sizes.clear()
    monkeypatch.setattr(sweeping, "_MEMORY", 1)
    tl.sweep(base, sites="qkv", edit=tl.edits.scale(2), over=1, metric=lambda output: output.sum())
    assert sizes == [1, 1, 1, 1]
