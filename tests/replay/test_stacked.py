"""Many forward passes at once are the forward passes one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torchlens as tl
from torchlens.replay import stacked as stacking
from torchlens.replay import stacked_functions

E = tl.edits


class Of(nn.Module):
    """A function as a model, with parameters of several shapes at hand."""

    def __init__(self, function: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.function = function
        self.square, self.row = nn.Parameter(torch.rand(3, 3)), nn.Parameter(torch.rand(3))
        self.fc, self.norm, self.batch_norm = nn.Linear(3, 3), nn.LayerNorm(3), nn.BatchNorm1d(3)
        self.conv, self.drop = nn.Conv1d(3, 3, 2), nn.Dropout(0.4)
        self.cell, self.gru, self.lstm = nn.GRUCell(3, 3), nn.GRU(3, 3), nn.LSTM(3, 3)
        self.table = nn.Embedding(9, 3)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: Tensor) -> Any:
        return self.function(self, torch.sin(x))


def weighed(output: Any) -> Tensor:
    """Every element counts, each with a weight of its own."""
    tensors = [output] if isinstance(output, Tensor) else list(output.values() if isinstance(output, dict) else output)
    return sum([(t.double().abs() * torch.arange(1, t.numel() + 1).view(t.shape).sqrt()).sum() for t in tensors])  # type: ignore


#: Each is computed in the simple way for all cells; the dimensions are all of one size, so that a mistake fits.
AT_ONCE: dict[str, Callable[[Of, Tensor], Any]] = {
    "linear": lambda m, y: m.fc(y),
    "linear without bias": lambda m, y: F.linear(y, m.square),
    "layer norm": lambda m, y: m.norm(y),
    "layer norm of two dimensions": lambda m, y: F.layer_norm(y, (3, 3), m.square, m.square),
    "root mean square norm": lambda m, y: F.rms_norm(y, (3,), m.row),
    "gelu": lambda m, y: F.gelu(y, approximate="tanh"),
    "relu": lambda m, y: F.relu(y - 0.5),
    "silu": lambda m, y: F.silu(y),
    "exp": lambda m, y: y.exp() + y.tanh() + y.sigmoid() + torch.neg(y),
    "contiguous": lambda m, y: y.transpose(0, 1).contiguous().clone(),
    "plus a parameter": lambda m, y: y + m.square,
    "parameter minus": lambda m, y: m.row - y,
    "number minus": lambda m, y: 1 - y,
    "number over": lambda m, y: 1 / (y + 2),
    "divided": lambda m, y: y / (m.square + 1),
    "more dimensions in the other": lambda m, y: y.reshape(27)[:3].mul(torch.ones(3, 3, 3)),
    "itself, transposed": lambda m, y: y * y.transpose(0, 1),
    "fewer dimensions in one": lambda m, y: y + y.reshape(9, 3)[0],
    "transpose": lambda m, y: y.transpose(0, 1).transpose(-1, 1),
    "transpose by name": lambda m, y: torch.transpose(y, dim0=2, dim1=0),
    "permute": lambda m, y: y.permute(2, 0, -2),
    "permute by a tuple": lambda m, y: torch.permute(y, (1, 2, 0)),
    "view": lambda m, y: y.view(-1, 3).view((3, 9)),
    "reshape of a view": lambda m, y: torch.reshape(y.transpose(0, 2), (9, 3)),
    "chunk": lambda m, y: y.chunk(3, 1)[1] * y.chunk(3, dim=-1)[2],
    "attention": lambda m, y: F.scaled_dot_product_attention(y[None], y[None] * 2, y[None], is_causal=True),
    "attention with a scale": lambda m, y: F.scaled_dot_product_attention(y[None], y[None], y[None], scale=0.3),
    "attention to what is fixed": lambda m, y: F.scaled_dot_product_attention(
        y[None], m.square.expand(1, 3, 3, 3), m.square.expand(1, 3, 3, 3)
    ),
    "attention with a mask": lambda m, y: F.scaled_dot_product_attention(y[None], y[None], y[None], m.square),
    "attention with a mask that changes": lambda m, y: F.scaled_dot_product_attention(
        y[None], y[None], y[None], y[None]
    ),
}


def written_through_a_view(model: Of, y: Tensor) -> Tensor:
    base = y * 2
    base[0].add_(1)
    return base + 1


def written_in_place(model: Of, y: Tensor) -> Tensor:
    z = y * 2
    z += 1
    z.mul_(y)
    z[:, 0] = y[:, 1]
    return torch.relu_(z)


def written_to_a_constant(model: Of, y: Tensor) -> Tensor:
    z = torch.zeros(3, 3, 3)
    z[1] = y[0]
    return z + 1


def into_out(model: Of, y: Tensor) -> Tensor:
    made = torch.empty(3, 3, 3)
    torch.add(y, 1, out=made)
    return made * 2


def of_another_thing(model: Of, y: Tensor) -> Tensor:
    return y * 2 if bool(y.sum() > -1e9) else y


def recurrent(model: Of, y: Tensor) -> Tensor:
    state = torch.zeros(3, 3)
    for step in y:
        state = model.cell(step, state)
    return state


#: What makes batching hard. Some go through torch.vmap, some cell by cell, some can't be stacked.
HARD: dict[str, Callable[[Of, Tensor], Any]] = {
    "written in place": written_in_place,
    "written through a view": written_through_a_view,
    "written to a constant": written_to_a_constant,
    "into out": into_out,
    "samples are mixed": lambda m, y: y - y.mean(0, keepdim=True),
    "batch norm": lambda m, y: m.batch_norm(y),
    "dropout": lambda m, y: m.drop(y) + m.drop(y),
    "noise": lambda m, y: y + torch.randn_like(y) + torch.rand(3),
    "attention with dropout": lambda m, y: F.scaled_dot_product_attention(y[None], y[None], y[None], dropout_p=0.5),
    "attention of three dimensions": lambda m, y: F.scaled_dot_product_attention(y, y, y),
    "attention, grouped": lambda m, y: F.scaled_dot_product_attention(
        y[None].repeat(1, 2, 1, 1), y[None], y[None], enable_gqa=True
    ),
    "attention, samples masked": lambda m, y: F.scaled_dot_product_attention(
        y.expand(2, 3, 3, 3), y.expand(2, 3, 3, 3), y.expand(2, 3, 3, 3), y[:2, None] > 0.4
    ),
    "read": of_another_thing,
    "cell": recurrent,
    "gru": lambda m, y: m.gru(y)[0],
    "lstm": lambda m, y: m.lstm(y)[1][1],
    "convolution": lambda m, y: m.conv(y),
    "indices": lambda m, y: m.table((y * 4).abs().long()),
    "index put": lambda m, y: y.index_put((torch.tensor([0, 1]),), y[1]),
    "found": lambda m, y: y[y > -5],
    "largest": lambda m, y: y.topk(2, 1).values,
    "sorted": lambda m, y: y.sort(0),
    "argmax": lambda m, y: {"best": y.argmax(-1), "all": y},
    "whole numbers": lambda m, y: ((y * 9).long() // 2) * 3,
    "truth": lambda m, y: (y > 0.5) & (y < 0.8),
    "number in a tensor": lambda m, y: y.sum() * torch.ones(3, dtype=torch.float64) + y.mean() * torch.tensor(2),
    "number in a tensor times types": lambda m, y: torch.ones(3, dtype=torch.float16) * y.double().sum() ,
    "complex": lambda m, y: torch.view_as_real(torch.fft.fft(y)),
    "softmax": lambda m, y: y.softmax(0) @ y.softmax(-1),
    "list": lambda m, y: torch.stack([y, y * 2], 1),
    "expanded": lambda m, y: y[:, :1].expand(3, 3, 3) + y[0].expand_as(y),
    "expanded and written": lambda m, y: (y[:, :1].expand(3, 3, 3).clone().add_(y)),
    "two at once": lambda m, y: (y * 2, torch.ones(2)),
    "parts": lambda m, y: [each.mul(number + 1) for number, each in enumerate(y.unbind(1))],
    "buffer": lambda m, y: m.seen.copy_(y[0, 0]) + y,
    "einsum": lambda m, y: torch.einsum("abc,cd->abd", y, m.square),
    "sparse": lambda m, y: torch.sparse.mm(m.square.detach().to_sparse(), y[0]),
    "view as another type": lambda m, y: y.contiguous().view(torch.int32) % 1000,
    "skip": lambda m, y: m.fc(y) + y * m.norm(y) + m.fc(m.fc(y)),
}  # fmt: skip


def base_of(function: Callable[[Of, Tensor], Any], **options: Any) -> tuple[Of, Tensor, Any]:
    torch.manual_seed(0)
    model, x = Of(function), torch.rand(3, 3, 3)
    return model, x, tl.log_forward_pass(model, x, **options)


def check(base: Any, site: str = "sin", over: Any = (1, 2), edit: Any = None) -> None:
    options = {"sites": site, "edit": edit or E.scale(1.5), "over": over, "metric": weighed}
    together, alone = tl.sweep(base, **options), tl.sweep(base, batch=1, **options)
    some = tl.sweep(base, batch=4, **options)
    assert len(together) == len(alone) == len(some) and any(row.effect for row in alone)
    for one, other, third in zip(together, alone, some, strict=True):
        assert (one.site, one.index) == (other.site, other.index)
        assert one.metric == pytest.approx(other.metric, rel=1e-5), one
        assert third.metric == pytest.approx(other.metric, rel=1e-5), third


@pytest.mark.parametrize("name", AT_ONCE)
def test_functions_that_are_computed_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, base = base_of(AT_ONCE[name])
    check(base)
    ways: list[str] = []
    compute = stacking.computed_at_once

    def watched(call: Any, *given: Any) -> Any:
        found = compute(call, *given)
        ways.extend([call.function.name] if found is None else [])
        return found

    monkeypatch.setattr(stacking, "computed_at_once", watched)
    tl.sweep(base, sites="sin", edit=E.scale(1.5), over=1, metric=weighed)
    assert not set(ways) - {"__getitem__"}


def test_every_function_that_is_computed_at_once_is_tried() -> None:
    called = {call.function.name for name in AT_ONCE for call in base_of(AT_ONCE[name])[2].graph.trace.calls}
    assert called >= set(stacked_functions._FUNCTIONS)


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("name", HARD)
def test_what_is_hard_to_batch(name: str) -> None:
    model, x, base = base_of(HARD[name])
    check(base)
    found = tl.sweep(base, sites="sin", edit=E.scale(1.5), over=1, metric=weighed)
    for row in found:
        at = (slice(None), row.index[0])
        live = tl.log_forward_pass(
            model, x, interventions={"sin": E.scale(1.5, at=at)}, random_seed=base.random_seed_used
        )
        assert row.metric == pytest.approx(float(weighed(live.output)), rel=1e-5), row


# ---- where and what -------------------------------------------------------------------------------------------


class Branches(nn.Module):
    """Sites of several shapes, beside each other and after each other, one of them seen through a view."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.last = nn.Linear(3, 4), nn.Linear(3, 5), nn.Linear(9, 2)
        self.scale = nn.Parameter(torch.rand(4))

    def forward(self, x: Tensor) -> dict[str, Any]:
        left, right = self.left(x), self.right(x)
        turned = (left * self.scale).transpose(0, 1)
        flat = turned.transpose(0, 1).view(6, 2, 2)
        one, two, three = right.split(2, 1)
        joined = torch.cat([left, right], 1)
        return {
            "last": self.last(joined),
            "flat": flat.flatten(1) + left,
            "one": one * two * three,
            "x": x.sum(0),
            "fixed": one.new_ones(2),
        }


@pytest.fixture
def branches() -> tuple[Branches, Tensor]:
    torch.manual_seed(1)
    return Branches(), torch.rand(6, 3)


@pytest.mark.parametrize("over", [0, -1, (0, 1), None])
def test_sites_of_several_shapes_beside_each_other(branches: tuple[Branches, Tensor], over: Any) -> None:
    model, x = branches
    base = tl.log_forward_pass(model, x)
    sites = ["input_1", "left", "right", "transpose", "mul_1", "split", "cat", "last", "mul_2"]
    check(base, tl.any_of(*sites), over)
    for row in tl.sweep(base, sites=sites, edit=E.scale(1.5), over=over, metric=weighed):
        at = (...,) if over is None else (slice(None),) * (over == -1) + row.index
        live = tl.log_forward_pass(model, x, interventions={row.site: E.scale(1.5, at=at)}, base=base)
        assert row.metric == pytest.approx(float(weighed(live.output)), rel=1e-5), row


def test_parameters(branches: tuple[Branches, Tensor]) -> None:
    model, x = branches
    base = tl.log_forward_pass(model, x)
    options = {"sites": ["left.weight", "scale", "last.bias"], "edit": E.zero(), "over": 0, "metric": weighed}
    together, alone = tl.sweep(base, **options), tl.sweep(base, batch=1, **options)
    assert len(together) == 4 + 4 + 2
    for one, other in zip(together, alone, strict=True):
        assert one.metric == pytest.approx(other.metric, rel=1e-5)


def test_a_log_that_was_edited(branches: tuple[Branches, Tensor]) -> None:
    model, x = branches
    earlier = {"right": E.add(1.0, at=(2,)), ("left", "cat_1_9"): E.zero(units=[1]), "left": E.clamp(max=0.2)}
    label = tl.log_forward_pass(model, x)["cat"].label
    earlier = {("linear_1_1", label) if isinstance(key, tuple) else key: edit for key, edit in earlier.items()}
    base = tl.log_forward_pass(model, x, interventions=earlier)
    check(base, "input_1", (0, 1))
    check(base, "left", (0, 1))
    row = tl.sweep(base, sites="input_1", edit=E.zero(), over=0, metric=weighed)[3]
    live = tl.log_forward_pass(model, x, interventions={"input_1": E.zero(at=3), **earlier})
    assert row.metric == pytest.approx(float(weighed(live.output)), rel=1e-5)


@pytest.mark.parametrize("around", ["autocast", "inference mode", "no grad"])
def test_logs_from_other_modes(branches: tuple[Branches, Tensor], around: str) -> None:
    model, x = branches
    modes = {
        "autocast": torch.autocast("cpu", dtype=torch.bfloat16),
        "inference mode": torch.inference_mode(),
        "no grad": torch.no_grad(),
    }
    with modes[around]:
        base = tl.log_forward_pass(model, x)
    check(base, "left", (0, 1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check(base, "left", (0, 1))
    if around == "inference mode":
        with torch.inference_mode():
            check(base, "left", (0, 1))


def test_a_log_from_a_file(branches: tuple[Branches, Tensor], tmp_path: Any) -> None:
    model, x = branches
    base = tl.log_forward_pass(model, x)
    tl.save(base, tmp_path / "log")
    loaded = tl.load(tmp_path / "log")
    options = {"sites": ["left", "right"], "edit": E.zero(), "over": 1, "metric": weighed}
    assert [row.metric for row in tl.sweep(loaded, **options)] == [row.metric for row in tl.sweep(base, **options)]


def test_what_is_read_is_compared_in_every_cell() -> None:
    def function(model: Of, y: Tensor) -> Tensor:
        return y * 2 if bool(y[1].sum() > 0.1) else y

    _, _, base = base_of(function)
    check(base, over=(1, 2))
    with pytest.raises(tl.DivergenceError, match="would now read False"):
        tl.sweep(base, sites="sin", edit=E.zero(), over=0, metric=weighed)


def test_memory_of_what_is_not_used_any_more_is_given_back() -> None:
    def long(model: Of, y: Tensor) -> Tensor:
        for _ in range(50):
            y = torch.sin(y)
        return y

    _, _, base = base_of(long)
    graph = base.graph
    plan = stacking.Stacked(graph, [value for value in graph.trace.values if value.role == "output"])
    assert plan.cell_bytes(0) == 2 * 27 * 4
    runs: list[int] = []
    step = stacking._Run.step

    def watched(self: Any, number: int, call: Any) -> None:
        step(self, number, call)
        runs.append(len(self.new))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stacking._Run, "step", watched)
        tl.sweep(base, sites="sin_1", edit=E.zero(), over=0, metric=weighed)
    assert max(runs) == 1


def test_what_nothing_depends_on_is_not_computed() -> None:
    def function(model: Of, y: Tensor) -> Tensor:
        torch.linalg.inv(y)
        return y * 2

    _, _, base = base_of(function)
    called: list[str] = []
    put = stacking._Run._put
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            stacking._Run, "_put", lambda self, call, made: called.append(call.function.name) or put(self, call, made)
        )
        tl.sweep(base, sites="sin", edit=E.scale(2), over=0, metric=weighed)
    assert called == ["mul", "output"]
