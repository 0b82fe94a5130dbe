"""Costs agree with torch.utils.flop_counter, and say so when they do not know."""

from __future__ import annotations

import doctest
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.torch_version import needs_torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.rnn import pack_padded_sequence
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from torchlens.graph import cost as cost_module
from torchlens.graph.cost import Cost, count, register_formula, unregister_formula

Run = Callable[[], Any]


def T(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def shapes_only(value: Any) -> Any:
    """Tensors replaced by stand-ins that have nothing but shape and dtype."""
    if isinstance(value, torch.Tensor):
        return SimpleNamespace(shape=tuple(value.shape), dtype=value.dtype)
    if isinstance(value, (list, tuple)):
        return type(value)(shapes_only(item) for item in value)
    return value


def output_shapes(value: Any) -> list[tuple[int, ...]]:
    if isinstance(value, torch.Tensor):
        return [tuple(value.shape)]
    return [shape for item in value for shape in output_shapes(item)] if isinstance(value, (list, tuple)) else []


class Leaves(TorchFunctionMode):
    """Counts every call that reaches torch's compiled functions."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.costs: list[Cost] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        light = {key: shapes_only(value) for key, value in kwargs.items()}
        self.names.append(func.__name__)
        self.costs.append(count(func.__name__, shapes_only(args), light, output_shapes(out)))
        return out


@pytest.fixture(autouse=True)
def python_functions_are_not_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions written in Python hand themselves to a mode whole; let them run down to compiled ones."""
    for module in (F, torch.functional, torch._tensor, torch.overrides):
        for name in ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"):
            monkeypatch.setattr(module, name, lambda *_: False, raising=False)


@pytest.fixture(autouse=True)
def registry_stays_as_it_was() -> Iterator[None]:
    before = dict(cost_module._formulas)
    yield
    assert cost_module._formulas == before


def measured(run: Run) -> tuple[Cost, list[str]]:
    with torch.no_grad(), Leaves() as leaves:
        run()
    return sum(leaves.costs, Cost()), leaves.names


def flop_counter(run: Run) -> int:
    """What torch counts, with kernels that it can see into."""
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        counter = stack.enter_context(FlopCounterMode(display=False))
        run()
    return int(counter.get_total_flops())


def assert_agrees(run: Run) -> Cost:
    cost, names = measured(run)
    assert cost.flops is not None, names
    assert 2 * cost.macs == flop_counter(run), names
    assert cost.flops >= 2 * cost.macs
    return cost


PRODUCTS: dict[str, Run] = {
    "mm": lambda: torch.mm(T(2, 3), T(3, 4)),
    "mm keywords": lambda: torch.mm(mat2=T(3, 4), input=T(2, 3)),
    "mm aten": lambda: torch.ops.aten.mm.default(T(2, 3), T(3, 4)),
    "mm empty inner": lambda: torch.mm(T(2, 0), T(0, 4)),
    "mm empty outer": lambda: torch.mm(T(0, 3), T(3, 4)),
    "bmm": lambda: torch.bmm(T(5, 2, 3), T(5, 3, 4)),
    "matmul 2x2": lambda: torch.matmul(T(2, 3), T(3, 4)),
    "matmul 1x2": lambda: torch.matmul(T(3), T(3, 4)),
    "matmul 1x3": lambda: torch.matmul(T(3), T(5, 3, 4)),
    "matmul 3x2": lambda: torch.matmul(T(5, 2, 3), T(3, 4)),
    "matmul 2x3": lambda: torch.matmul(T(2, 3), T(5, 3, 4)),
    "matmul broadcast": lambda: torch.matmul(T(7, 1, 2, 3), T(5, 3, 4)),
    "matmul operator": lambda: T(2, 3) @ T(3, 4),
    "matmul method": lambda: T(2, 3).matmul(other=T(3, 4)),
    "matmul reflected": lambda: T(3, 4).__rmatmul__(T(2, 3)),
    "linalg.matmul": lambda: torch.linalg.matmul(T(2, 3), T(3, 4)),
    "inner": lambda: torch.inner(T(2, 3), T(4, 3)),
    "inner with a number": lambda: torch.inner(torch.tensor(2.0), T(4, 3)),
    "linear": lambda: F.linear(T(8, 3), T(4, 3), T(4)),
    "linear bias keyword": lambda: F.linear(T(8, 3), T(4, 3), bias=T(4)),
    "linear no bias": lambda: F.linear(T(8, 3), T(4, 3)),
    "linear 3-D": lambda: F.linear(T(2, 8, 3), T(4, 3), T(4)),
    "linear 1-D": lambda: F.linear(T(3), T(4, 3), T(4)),
    "linear empty": lambda: F.linear(T(0, 3), T(4, 3), T(4)),
    "addmm": lambda: torch.addmm(T(2, 4), T(2, 3), T(3, 4)),
    "addmm row": lambda: torch.addmm(T(4), T(2, 3), T(3, 4), beta=2, alpha=3),
    "addmm number": lambda: torch.addmm(torch.tensor(1.0), T(2, 3), T(3, 4)),
    "addmm keywords": lambda: torch.addmm(T(4), mat2=T(3, 4), mat1=T(2, 3)),
    "baddbmm": lambda: torch.baddbmm(T(5, 2, 4), T(5, 2, 3), T(5, 3, 4)),
    "baddbmm broadcast": lambda: torch.baddbmm(T(1, 1, 4), batch1=T(5, 2, 3), batch2=T(5, 3, 4)),
    "chain_matmul": lambda: torch.chain_matmul(T(10, 2), T(2, 30), T(30, 3)),
    "multi_dot of 5": lambda: torch.linalg.multi_dot([T(4, 9), T(9, 2), T(2, 8), T(8, 3), T(3, 7)]),
    "multi_dot with vectors": lambda: torch.linalg.multi_dot([T(3), T(3, 40), T(40)]),
    "tensordot number": lambda: torch.tensordot(T(2, 3, 4), T(3, 4, 5)),
    "tensordot one": lambda: torch.tensordot(T(2, 3, 4), T(4, 3, 5), dims=1),
    "tensordot outer": lambda: torch.tensordot(T(2), T(3), dims=0),
    "tensordot lists": lambda: torch.tensordot(T(2, 3, 4), T(4, 3, 5), dims=([1, 2], [1, 0])),
    "tensordot broadcast": lambda: torch.tensordot(T(2, 1), T(4, 3), dims=([1], [1])),
    "scaled_mm": lambda: torch._scaled_mm(
        T(16, 32).to(torch.float8_e4m3fn),
        T(48, 32).to(torch.float8_e4m3fn).t(),
        torch.ones(()),
        torch.ones(()),
    ),
    "complex": lambda: torch.mm(T(2, 3) + 0j, T(3, 4) + 0j),
}

CONVOLUTIONS: dict[str, Run] = {
    "conv1d": lambda: F.conv1d(T(2, 4, 10), T(6, 4, 3), T(6)),
    "conv2d": lambda: F.conv2d(T(2, 3, 9, 8), T(6, 3, 3, 2), T(6)),
    "conv2d keywords": lambda: F.conv2d(weight=T(6, 3, 3, 2), input=T(2, 3, 9, 8), bias=T(6)),
    "conv3d": lambda: F.conv3d(T(2, 3, 5, 6, 7), T(4, 3, 2, 3, 1)),
    "unbatched": lambda: F.conv2d(T(3, 9, 8), T(6, 3, 3, 3)),
    "groups": lambda: F.conv2d(T(2, 4, 9, 8), T(6, 2, 3, 3), groups=2),
    "depthwise": lambda: F.conv2d(T(2, 4, 9, 8), T(4, 1, 3, 3), None, 1, 1, 1, 4),
    "stride, dilation": lambda: F.conv2d(T(2, 4, 19, 18), T(6, 4, 3, 3), stride=(2, 3), dilation=2),
    "padding same": lambda: F.conv2d(T(2, 4, 9, 8), T(6, 4, 3, 3), padding="same"),
    "no batch": lambda: F.conv2d(T(0, 4, 9, 8), T(6, 4, 3, 3)),
    "transposed 1d": lambda: F.conv_transpose1d(T(2, 4, 5), T(4, 3, 3), stride=2),
    "transposed 2d": lambda: F.conv_transpose2d(T(2, 4, 5, 6), T(4, 3, 3, 3), T(6), stride=2, groups=2),
    "transposed 3d": lambda: F.conv_transpose3d(T(2, 4, 3, 3, 3), T(4, 3, 2, 2, 2), output_padding=0),
    "transposed unbatched": lambda: F.conv_transpose1d(T(4, 5), T(4, 3, 3)),
    "torch.convolution": lambda: torch.convolution(T(1, 3, 9), T(4, 3, 3), None, [1], [0], [1], False, [0], 1),
    "transposed by flag": lambda: torch.convolution(T(1, 3, 9), T(3, 4, 3), T(4), [2], [0], [1], True, [0], 1),
    "_convolution": lambda: torch._convolution(
        T(1, 3, 9), T(3, 4, 3), T(4), [2], [0], [1], True, [0], 1, False, False, True, True
    ),
}

ATTENTION: dict[str, Run] = {
    "plain": lambda: F.scaled_dot_product_attention(T(2, 4, 6, 8), T(2, 4, 7, 8), T(2, 4, 7, 8)),
    "keywords": lambda: F.scaled_dot_product_attention(value=T(4, 7, 9), key=T(4, 7, 8), query=T(4, 6, 8)),
    "causal": lambda: F.scaled_dot_product_attention(T(2, 4, 6, 8), T(2, 4, 7, 8), T(2, 4, 7, 8), is_causal=True),
    "mask": lambda: F.scaled_dot_product_attention(T(2, 4, 6, 8), T(2, 4, 7, 8), T(2, 4, 7, 8), T(6, 7)),
    "dropout": lambda: F.scaled_dot_product_attention(T(2, 4, 6, 8), T(2, 4, 7, 8), T(2, 4, 7, 8), dropout_p=0.5),
    "2-D": lambda: F.scaled_dot_product_attention(T(6, 8), T(7, 8), T(7, 8)),
    "3-D": lambda: F.scaled_dot_product_attention(T(4, 6, 8), T(4, 7, 8), T(4, 7, 8)),
    "5-D": lambda: F.scaled_dot_product_attention(T(1, 2, 4, 6, 8), T(1, 2, 4, 7, 8), T(1, 2, 4, 7, 8)),
    "wider values": lambda: F.scaled_dot_product_attention(T(2, 4, 6, 8), T(2, 4, 7, 8), T(2, 4, 7, 9)),
    "broadcast batch": lambda: F.scaled_dot_product_attention(T(2, 4, 6, 8), T(1, 4, 7, 8), T(1, 4, 7, 8)),
    "grouped queries": lambda: F.scaled_dot_product_attention(
        T(2, 4, 6, 8), T(2, 2, 7, 8), T(2, 2, 7, 8), enable_gqa=True
    ),
    "no keys": lambda: F.scaled_dot_product_attention(T(2, 4, 6, 8), T(2, 4, 0, 8), T(2, 4, 0, 8)),
}

SINCE = {
    "scaled_mm": needs_torch("2.8", "multiplies scaled matrices on a CPU"),
    "grouped queries": needs_torch("2.5", "has attention with grouped queries"),
}


def where_there(runs: dict[str, Run]) -> list[Any]:
    return [pytest.param(name, marks=SINCE.get(name, ())) for name in runs]


EINSUMS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ij,jk->ik", [(2, 3), (3, 4)]),
    ("ij,jk", [(2, 3), (3, 4)]),
    (" i j , j k -> k i ", [(2, 3), (3, 4)]),
    ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("...ij,...jk->...ik", [(7, 2, 3), (7, 3, 4)]),
    ("...ij,...jk", [(1, 2, 3), (7, 3, 4)]),
    ("...ij,jk->...ik", [(5, 2, 3), (3, 4)]),
    ("...i,...i->i", [(5, 2, 3), (2, 3)]),
    ("i,i->", [(3,), (3,)]),
    ("i,j->ij", [(3,), (4,)]),
    ("ij,ij->ij", [(3, 4), (3, 4)]),
    ("ij,ij->i", [(3, 4), (3, 4)]),
    ("ij,kl->ik", [(2, 3), (4, 5)]),
    ("ij,jk->ik", [(2, 1), (3, 4)]),
    ("ij,jk->ik", [(2, 0), (0, 4)]),
    ("ii,ij->j", [(3, 3), (3, 4)]),
    ("ij->ji", [(3, 4)]),
    ("ij->", [(3, 4)]),
    ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
    ("bn,anm,bm->ba", [(2, 5), (3, 5, 4), (2, 4)]),
    ("a,ab,b,bc->c", [(2,), (2, 3), (3,), (3, 4)]),
]


@pytest.mark.parametrize("name", where_there(PRODUCTS))
def test_products(name: str) -> None:
    assert_agrees(PRODUCTS[name])


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str) -> None:
    assert_agrees(CONVOLUTIONS[name])


@pytest.mark.parametrize("name", where_there(ATTENTION))
def test_attention(name: str) -> None:
    assert_agrees(ATTENTION[name])


@pytest.mark.parametrize(("equation", "shapes"), EINSUMS, ids=str)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    operands = [T(*shape) for shape in shapes]
    assert_agrees(lambda: torch.einsum(equation, *operands))
    assert_agrees(lambda: torch.einsum(equation, operands))


def test_einsum_follows_a_given_path() -> None:
    operands = [T(2, 3), T(3, 40), T(40, 5)]
    last_two_first = assert_agrees(lambda: torch._VF.einsum("ij,jk,kl->il", operands, path=[1, 2, 0, 1]))
    assert last_two_first.macs == 3 * 40 * 5 + 2 * 3 * 5


def test_einsum_of_lists_runs_as_an_equation_and_is_unknown_otherwise() -> None:
    a, b = T(2, 3), T(3, 4)
    assert assert_agrees(lambda: torch.einsum(a, [0, 1], b, [1, 2], [0, 2])).macs == 24
    assert count("einsum", (a, [0, 1], b, [1, 2], [0, 2]), {}, [(2, 4)]).flops is None


SAME_PRODUCT: dict[str, tuple[Run, Run]] = {
    "addmm in place": (lambda: T(2, 4).addmm_(T(2, 3), T(3, 4)), lambda: T(2, 3) @ T(3, 4)),
    "baddbmm in place": (
        lambda: T(5, 2, 4).baddbmm_(T(5, 2, 3), T(5, 3, 4)),
        lambda: T(5, 2, 3) @ T(5, 3, 4),
    ),
    "mv": (lambda: torch.mv(T(3, 4), T(4)), lambda: T(3, 4) @ T(4, 1)),
    "dot": (lambda: torch.dot(T(4), T(4)), lambda: T(1, 4) @ T(4, 1)),
    "vdot": (lambda: torch.vdot(T(4), T(4)), lambda: T(1, 4) @ T(4, 1)),
    "matmul 1x1": (lambda: torch.matmul(T(4), T(4)), lambda: T(1, 4) @ T(4, 1)),
    "matmul 3x1": (lambda: torch.matmul(T(2, 3, 4), T(4)), lambda: T(6, 4) @ T(4, 1)),
    "linear vector": (lambda: F.linear(T(2, 4), T(4)), lambda: T(2, 4) @ T(4, 1)),
    "addmv": (lambda: torch.addmv(T(3), mat=T(3, 4), vec=T(4)), lambda: T(3, 4) @ T(4, 1)),
    "addbmm": (lambda: torch.addbmm(T(3, 5), T(2, 3, 4), T(2, 4, 5)), lambda: T(2, 3, 4) @ T(2, 4, 5)),
    "bilinear": (
        lambda: F.bilinear(T(2, 4), T(2, 5), T(3, 4, 5), T(3)),
        lambda: torch.einsum("boj,bj->bo", torch.einsum("bi,oij->boj", T(2, 4), T(3, 4, 5)), T(2, 5)),
    ),
}


@pytest.mark.parametrize("name", SAME_PRODUCT)
def test_kernels_unknown_to_flop_counter_cost_the_same_product(name: str) -> None:
    run, as_matrices = SAME_PRODUCT[name]
    assert 2 * measured(run)[0].macs == flop_counter(as_matrices)
    assert flop_counter(run) == 0


RECURRENT: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "lstm": (nn.LSTM(3, 5), (7, 2, 3)),
    "lstm deep": (nn.LSTM(3, 5, num_layers=2, bidirectional=True), (7, 2, 3)),
    "lstm projected": (nn.LSTM(3, 5, num_layers=2, bidirectional=True, proj_size=2), (7, 2, 3)),
    "lstm batch first": (nn.LSTM(3, 5, batch_first=True), (2, 7, 3)),
    "lstm unbatched": (nn.LSTM(3, 5), (7, 3)),
    "lstm no bias": (nn.LSTM(3, 5, bias=False), (7, 2, 3)),
    "gru": (nn.GRU(3, 5, num_layers=2, bidirectional=True), (7, 2, 3)),
    "rnn tanh": (nn.RNN(3, 5), (7, 2, 3)),
    "rnn relu": (nn.RNN(3, 5, nonlinearity="relu"), (7, 2, 3)),
    "lstm cell": (nn.LSTMCell(3, 5), (2, 3)),
    "gru cell": (nn.GRUCell(3, 5), (2, 3)),
    "rnn cell": (nn.RNNCell(3, 5), (2, 3)),
    "cell unbatched": (nn.GRUCell(3, 5, bias=False), (3,)),
}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers(name: str) -> None:
    module, shape = RECURRENT[name]
    assert_agrees(lambda: module(T(*shape)))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_packed_sequences_cost_their_real_steps(kind: type[nn.Module]) -> None:
    module, packed = kind(3, 5, 2, bidirectional=True), pack_padded_sequence(T(7, 2, 3), torch.tensor([7, 4]))
    weights = sum(p.numel() for p in module.parameters() if p.dim() == 2)
    assert assert_agrees(lambda: module(packed)).macs == (7 + 4) * weights


def test_pointwise_work_of_an_lstm_equals_its_cells() -> None:
    lstm, lstm_cell = nn.LSTM(3, 5), nn.LSTMCell(3, 5)
    layer, _ = measured(lambda: lstm(T(7, 2, 3)))
    cell, _ = measured(lambda: lstm_cell(T(2, 3)))
    assert layer.flops == 7 * (2 * 2 * 20 * (3 + 5) + 2 * (40 + 13 * 5))
    assert layer == sum([cell] * 7, Cost())


def test_fused_attention_and_encoder_layers_cost_what_their_parts_cost() -> None:
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    x = T(3, 5, 8)
    for module, run in [(attention, lambda: attention(x, x, x)), (encoder, lambda: encoder(x))]:
        in_parts = flop_counter(run)
        module.eval()
        cost, names = measured(run)
        assert {"_native_multi_head_attention", "_transformer_encoder_layer_fwd"} & set(names)
        assert 2 * cost.macs == in_parts
        assert cost.flops is not None


def convnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.GroupNorm(2, 8),
        nn.SiLU(),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 5),
        nn.Softmax(-1),
    )


def encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False)


MODELS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "mlp": (nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout()), (3, 4)),
    "convnet": (convnet(), (2, 3, 16, 16)),
    "encoder": (encoder(), (5, 3, 8)),
    "decoder": (nn.TransformerDecoderLayer(8, 2, 16), (5, 3, 8)),
}


@pytest.mark.parametrize("name", MODELS)
def test_whole_models_have_no_unknown_calls(name: str) -> None:
    module, shape = MODELS[name]
    inputs = [T(*shape)] * (2 if name == "decoder" else 1)
    assert_agrees(lambda: module(*inputs))


EXTRA_FLOPS: dict[str, tuple[Run, int]] = {
    "bias": (lambda: F.linear(T(2, 3), T(4, 3), T(4)), 2 * 24 + 8),
    "add broadcast": (lambda: T(2, 1).add(T(3)), 6),
    "add zero-dim": (lambda: torch.tensor(1.0) + 1, 1),
    "reflected": (lambda: 1 - T(2, 3), 6),
    "in place": (lambda: T(2, 3).mul_(2), 6),
    "inplace operator": (lambda: T(2, 3).__iadd__(1), 6),
    "comparison": (lambda: T(2, 3) > 0, 6),
    "special": (lambda: torch.special.expit(T(2, 3)), 6),
    "addcmul": (lambda: torch.addcmul(T(2, 3), T(2, 3), T(2, 3)), 12),
    "sum": (lambda: T(2, 3).sum(), 6),
    "sum of nothing": (lambda: torch.zeros(0).sum(), 0),
    "mean over dim": (lambda: torch.mean(dim=1, input=T(2, 3)), 6),
    "var": (lambda: T(2, 3).var(dim=0), 24),
    "max": (lambda: T(2, 3).max(dim=0), 6),
    "max of two": (lambda: torch.max(T(2, 1), T(3)), 6),
    "cumsum": (lambda: T(2, 3).cumsum(0), 6),
    "softmax": (lambda: F.softmax(T(2, 3), dim=-1), 30),
    "layer norm": (lambda: F.layer_norm(T(2, 3), (3,), T(3), T(3)), 42),
    "rms norm": (lambda: F.rms_norm(T(2, 3), (3,), T(3)), 24),
    "batch norm": (lambda: F.batch_norm(T(2, 3), torch.zeros(3), torch.ones(3), T(3), T(3)), 24),
    "batch norm training": (lambda: F.batch_norm(T(2, 3), None, None, training=True), 30),
    "dropout": (lambda: F.dropout(T(2, 3), training=True), 6),
    "dropout off": (lambda: F.dropout(T(2, 3), training=False), 0),
    "max pool": (lambda: F.max_pool2d(T(1, 1, 4, 4), 2), 16),
    "avg pool window": (lambda: F.avg_pool2d(T(1, 1, 4, 6), kernel_size=(2, 3)), 24),
    "avg pool 1d": (lambda: F.avg_pool1d(T(1, 6), 3), 6),
    "pool of indices": (lambda: F.max_pool2d(T(1, 1, 4, 4), 2, return_indices=True), 16),
    "adaptive pool": (lambda: F.adaptive_avg_pool2d(T(1, 2, 4, 4), 1), 32),
    "bilinear upsampling": (lambda: F.interpolate(T(1, 1, 2, 2), scale_factor=2, mode="bilinear"), 8 * 16),
    "nearest upsampling": (lambda: F.interpolate(T(1, 1, 2, 2), scale_factor=2), 0),
    "grid sample": (lambda: F.grid_sample(T(1, 1, 4, 4), T(1, 3, 3, 2), align_corners=False), 8 * 9),
    "fft": (lambda: torch.fft.fft(T(2, 8)), 5 * 16 * 3),
    "rfft": (lambda: torch.fft.rfft(T(2, 8)), 5 * 16 * 3 // 2),
    "fft2": (lambda: torch.fft.fft2(T(3, 4, 4)), 5 * 48 * 4),
    "fftn over dim": (lambda: torch.fft.fftn(T(4, 3), dim=0), 5 * 12 * 2),
    "sort": (lambda: T(2, 8).sort(), 16 * 3),
    "sort of a number": (lambda: torch.tensor(1.0).sort(), 0),
    "scatter_add": (lambda: torch.zeros(9).scatter_add(0, torch.tensor([1, 1]), T(2)), 2),
    "index_add keyword": (lambda: torch.zeros(9).index_add(0, torch.tensor([1, 1]), source=T(2)), 2),
    "embedding": (lambda: F.embedding(torch.tensor([1, 2]), T(5, 4)), 0),
    "embedding_bag": (lambda: F.embedding_bag(torch.tensor([[1, 2]]), T(5, 4)), 8),
    "cross entropy": (lambda: F.cross_entropy(T(2, 3), torch.tensor([0, 1])), 36),
    "mse": (lambda: F.mse_loss(T(2, 3), T(2, 3)), 18),
    "views": (lambda: T(2, 3).view(3, 2).t()[0].unsqueeze(0).expand(4, 3).reshape(-1), 0),
    "copies": (lambda: torch.cat([T(2, 3).clone(), T(2, 3).to(torch.float64).float()]).contiguous(), 0),
    "factories": (lambda: torch.zeros_like(T(2, 3)).fill_(1), 0),
    "einsum sum": (lambda: torch.einsum("ij->i", T(2, 3)), 6),
    "einsum outer": (lambda: torch.einsum("i,j->ij", T(2), T(3)), 6),
}


@pytest.mark.parametrize("name", EXTRA_FLOPS)
def test_flops_beside_the_matrix_part(name: str) -> None:
    run, flops = EXTRA_FLOPS[name]
    assert measured(run)[0].flops == flops
    assert_agrees(run)


def test_attention_counts_scores_and_mask() -> None:
    q, k = T(2, 4, 6, 8), T(2, 4, 7, 8)
    plain, _ = measured(lambda: F.scaled_dot_product_attention(q, k, k))
    masked, _ = measured(lambda: F.scaled_dot_product_attention(q, k, k, attn_mask=T(6, 7)))
    scores = 2 * 4 * 6 * 7
    assert plain.flops == 2 * plain.macs + 6 * scores
    assert masked.flops == 2 * masked.macs + 7 * scores


@pytest.mark.parametrize("name", ["relu", "relu_", "__relu__", "_relu", "relu.default"])
def test_spellings_share_a_formula(name: str) -> None:
    assert count(name, (T(2, 3),), {}, [(2, 3)]) == Cost(flops=6)


def test_reflected_product_reads_its_left_side() -> None:
    assert count("__rmatmul__", (T(3, 4), T(2, 3)), {}, [(2, 4)]).macs == 24


def test_unknown_is_none_and_not_zero() -> None:
    assert count("linalg_svd", (T(3, 3),), {}, [(3, 3), (3,), (3, 3)]) == Cost(macs=0, flops=None)
    for name in ("linear", "lstm", "einsum", "_native_multi_head_attention"):
        assert count(name, (), {}, [(2, 2)]) == Cost(macs=0, flops=None)
    assert (Cost(3, 6) + Cost(flops=None)) == Cost(3, None)


def test_own_formula_is_used_until_it_is_removed() -> None:
    @register_formula("my_op", "my_other_op")
    def own(call: cost_module.Call) -> Cost:
        scale = call.arg(1, "scale", default=1)
        return Cost(macs=scale * math.prod(call.input.shape), flops=call.size)

    assert count("my_op", (T(2, 3), 5), {}, [(4,)]) == Cost(30, 4)
    assert count("my_op_", (T(2, 3),), {"scale": 5}, [(4,)]) == Cost(30, 4)
    assert count("my_other_op", (), {"input": T(2, 3)}, [(4,)]) == Cost(6, 4)
    unregister_formula("my_op")
    unregister_formula("my_other_op")
    assert count("my_op", (T(2, 3), 5), {}, [(4,)]).flops is None
    with pytest.raises(KeyError, match="my_op"):
        unregister_formula("my_op")


@pytest.mark.parametrize("names", [("conv2d",), ("fresh", "relu"), ("twice", "twice")])
def test_duplicates_are_refused_and_leave_no_trace(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=f"already a formula for '{names[-1]}'"):
        register_formula(*names)(lambda call: Cost())
    assert count("conv2d", (T(1, 1, 2), T(1, 1, 2)), {}, [(1, 1, 1)]).macs == 2


def test_examples_in_docstrings() -> None:
    assert doctest.testmod(cost_module).failed == 0
