"""Pairs of tiny models, one for each way to be different; quick enough for every run of the tests."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl

from .pairs import Logs, pair

X = torch.randn(3, 6, 8, generator=torch.Generator().manual_seed(1))
IMAGE = torch.randn(2, 4, 12, 12, generator=torch.Generator().manual_seed(2))
IDS = torch.arange(12).reshape(2, 6) * 5 % 17


def varied(model: nn.Module, seed: int = 0) -> nn.Module:
    """With weights as after training: no bias of zeros, no gain of ones."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for param in model.parameters():
            param.normal_(0.0, 0.4, generator=generator)
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.uniform_(0.5, 1.5, generator=generator)
    return model.eval()


class Ways(nn.Module):
    """Layers and a forward pass that is given as a function of them and the input."""

    def __init__(self, forward: Callable[[Any, Tensor], Any], **layers: nn.Module) -> None:
        super().__init__()
        self.way = forward
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Any:
        return self.way(self, x)


def two_ways(
    one: Callable[[Any, Tensor], Any], other: Callable[[Any, Tensor], Any], x: Tensor = X, **layers: nn.Module
) -> Logs:
    """The same layers with the same weights, used in two ways."""
    logs = [tl.log_forward_pass(varied(Ways(way, **copy.deepcopy(layers))), x) for way in (one, other)]
    return logs[0], logs[1]


def two_models(one: nn.Module, other: nn.Module, x: Tensor = X, y: Tensor | None = None) -> Logs:
    return tl.log_forward_pass(one, x), tl.log_forward_pass(other, x if y is None else y)


def mlp(**changed: nn.Module) -> dict[str, nn.Module]:
    layers: dict[str, nn.Module] = {"up": nn.Linear(8, 16), "norm": nn.LayerNorm(16), "down": nn.Linear(16, 8)}
    return layers | changed


def plain(net: Any, x: Tensor) -> Any:
    return net.down(net.norm(F.relu(net.up(x))))


# ---- functions and their arguments ----------------------------------------------------------------------------------


@pair(at="relu gelu", says="different functions")
def relu_against_gelu() -> Logs:
    return two_ways(plain, lambda net, x: net.down(net.norm(F.gelu(net.up(x)))), **mlp())


@pair(at="relu hardtanh relu6", says="different functions")
def relu_against_relu6() -> Logs:
    return two_ways(
        lambda net, x: net.down(F.relu(9 * net.up(x))), lambda net, x: net.down(F.relu6(9 * net.up(x))), **mlp()
    )


@pair(at="leaky_relu", says="negative_slope is 0.01 in A and 0.2 in B")
def other_slope() -> Logs:
    return two_ways(
        lambda net, x: net.down(F.leaky_relu(net.up(x))), lambda net, x: net.down(F.leaky_relu(net.up(x), 0.2)), **mlp()
    )


@pair(at="group_norm", module="norm", says="num_groups is 2 in A and 4 in B")
def other_groups() -> Logs:
    nets = [varied(nn.Sequential(nn.Conv2d(4, 8, 3), nn.GroupNorm(groups, 8))) for groups in (2, 4)]
    for net in nets:
        net.norm = net[1]
    nets = [Ways(lambda net, x: net.norm(net.conv(x)), conv=net[0], norm=net[1]).eval() for net in nets]
    return two_models(*nets, IMAGE)


@pair(at="avg_pool2d", says="count_include_pad is True in A and False in B")
def padding_counts_in_the_mean() -> Logs:
    return two_ways(
        lambda net, x: net.conv(F.avg_pool2d(x, 3, 2, 1)),
        lambda net, x: net.conv(F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
        IMAGE,
        conv=nn.Conv2d(4, 4, 1),
    )


@pair(at="upsample_bilinear2d interpolate _upsample_bilinear2d_aa", says="align_corners")
def aligned_corners() -> Logs:
    return two_ways(
        lambda net, x: net.conv(F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)),
        lambda net, x: net.conv(F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)),
        IMAGE,
        conv=nn.Conv2d(4, 4, 1),
    )


@pair(at="pad conv2d", module="conv", says="pad")
def circular_padding() -> Logs:
    convs = [varied(nn.Conv2d(4, 8, 3, padding=1, padding_mode=mode)) for mode in ("zeros", "circular")]
    nets = [Ways(lambda net, x: net.head(net.conv(x)), conv=conv, head=varied(nn.Conv2d(8, 2, 1))) for conv in convs]
    return two_models(nets[0].eval(), nets[1].eval(), IMAGE)


@pair(at="sum mean", says="different functions")
def sum_against_mean() -> Logs:
    return two_ways(lambda net, x: net.up(x.mean(1)), lambda net, x: net.up(x.sum(1)), **mlp())


@pair(at="std", says="correction|unbiased")
def biased_deviation() -> Logs:
    def normed(net: Any, x: Tensor, correction: int) -> Any:
        return net.up((x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, correction=correction))

    return two_ways(lambda net, x: normed(net, x, 0), lambda net, x: normed(net, x, 1), **mlp())


@pair(at="scaled_dot_product_attention", says="is_causal is True in A and False in B")
def causal_or_not() -> Logs:
    def attend(net: Any, x: Tensor, causal: bool) -> Any:
        return net.o(F.scaled_dot_product_attention(net.q(x), net.k(x), net.v(x), is_causal=causal))

    layers = {name: nn.Linear(8, 8) for name in "qkvo"}
    return two_ways(lambda net, x: attend(net, x, True), lambda net, x: attend(net, x, False), **layers)


# ---- steps that are missing, and those that do no harm --------------------------------------------------------------


@pair(at="mul add", says="missing operation")
def residual_scaled() -> Logs:
    return two_ways(
        lambda net, x: net.norm(net.up(x + net.same(x))),
        lambda net, x: net.norm(net.up(x + 0.5 * net.same(x))),
        same=nn.Linear(8, 8),
        **mlp(),
    )


@pair(at="layer_norm linear", says="layer_norm")
def no_norm() -> Logs:
    return two_ways(plain, lambda net, x: net.down(F.relu(net.up(x))), **mlp())


@pair(at="embedding add arange", says="add|weights|different operands")
def positions_shifted_by_two() -> Logs:
    def embed(net: Any, ids: Tensor, shift: int) -> Any:
        places = torch.arange(ids.shape[1]) + shift if shift else torch.arange(ids.shape[1])
        return net.head(net.words(ids) + net.places(places))

    layers = {"words": nn.Embedding(17, 8), "places": nn.Embedding(12, 8), "head": nn.Linear(8, 5)}
    return two_ways(lambda net, x: embed(net, x, 0), lambda net, x: embed(net, x, 2), IDS, **layers)


@pair()
def log_softmax_and_exp() -> Logs:
    return two_ways(
        lambda net, x: net.down(net.up(x).softmax(-1)),
        lambda net, x: net.down(net.up(x).log_softmax(-1).exp()),
        **mlp(),
    )


@pair()
def einsum_against_matmul() -> Logs:
    return two_ways(
        lambda net, x: net.up(x) @ net.up(x).transpose(1, 2),
        lambda net, x: torch.einsum("bic,bjc->bij", net.up(x), net.up(x)),
        **mlp(),
    )


@pair()
def stride_against_slicing() -> Logs:
    return two_ways(
        lambda net, x: net.head(F.conv2d(x, net.conv.weight, net.conv.bias, stride=2)),
        lambda net, x: net.head(F.conv2d(x, net.conv.weight, net.conv.bias)[:, :, ::2, ::2]),
        IMAGE,
        conv=nn.Conv2d(4, 8, 3),
        head=nn.Conv2d(8, 2, 1),
    )


@pair()
def masked_with_minus_infinity_or_a_billion() -> Logs:
    def attend(net: Any, x: Tensor, low: float) -> Any:
        mask = torch.ones(6, 6, dtype=torch.bool).triu(1)
        return net.down((net.up(x) @ net.up(x).transpose(1, 2)).masked_fill(mask, low).softmax(-1) @ net.up(x))

    return two_ways(lambda net, x: attend(net, x, -math.inf), lambda net, x: attend(net, x, -1e9), **mlp())


@pair()
def batch_norm_folded_into_the_convolution() -> Logs:
    conv, norm = varied(nn.Conv2d(4, 8, 3)), varied(nn.BatchNorm2d(8))
    folded = torch.nn.utils.fusion.fuse_conv_bn_eval(conv, norm)
    head = varied(nn.Conv2d(8, 2, 1))
    return two_models(nn.Sequential(conv, norm, head).eval(), nn.Sequential(folded, head).eval(), IMAGE)


@pair()
def relu_in_place() -> Logs:
    return two_models(
        varied(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))),
        varied(nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 4))),
    )


@pair()
def half_precision() -> Logs:
    net = varied(Ways(plain, **mlp()))
    return two_models(net, copy.deepcopy(net).half(), X, X.half())


@pair()
def double_precision() -> Logs:
    net = varied(Ways(plain, **mlp()))
    return two_models(net, copy.deepcopy(net).double(), X, X.double())


# ---- recurrence and attention, whole and by hand --------------------------------------------------------------------


def lstm_by_hand(order: str = "ifgo") -> Callable[[Any, Tensor], Any]:
    def run(net: Any, x: Tensor) -> Any:
        lstm = net.lstm
        h = c = x.new_zeros(x.shape[0], lstm.hidden_size)
        steps = []
        for t in range(x.shape[1]):
            gates = F.linear(x[:, t], lstm.weight_ih_l0, lstm.bias_ih_l0) + F.linear(
                h, lstm.weight_hh_l0, lstm.bias_hh_l0
            )
            named = dict(zip(order, gates.chunk(4, -1), strict=True))
            c = named["f"].sigmoid() * c + named["i"].sigmoid() * named["g"].tanh()
            h = named["o"].sigmoid() * c.tanh()
            steps.append(h)
        return net.head(torch.stack(steps, 1))

    return run


def lstm_layers() -> dict[str, nn.Module]:
    return {"lstm": nn.LSTM(8, 5, batch_first=True), "head": nn.Linear(5, 3)}


@pair()
def lstm_against_a_loop() -> Logs:
    return two_ways(lambda net, x: net.head(net.lstm(x)[0]), lstm_by_hand(), **lstm_layers())


@pair(at="lstm stack", says="lstm")
def lstm_with_gates_swapped() -> Logs:
    return two_ways(lambda net, x: net.head(net.lstm(x)[0]), lstm_by_hand("figo"), **lstm_layers())


def attention_by_hand(scaled: bool) -> Callable[[Any, Tensor], Any]:
    def run(net: Any, x: Tensor) -> Any:
        batch, length, width = x.shape
        q, k, v = F.linear(x, net.attention.in_proj_weight, net.attention.in_proj_bias).chunk(3, -1)
        q, k, v = (t.view(batch, length, 2, width // 2).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(-2, -1) / (math.sqrt(width // 2) if scaled else 1.0)
        return net.head(net.attention.out_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width)))

    return run


def attention_layers() -> dict[str, nn.Module]:
    return {"attention": nn.MultiheadAttention(8, 2, batch_first=True), "head": nn.Linear(8, 3)}


def whole_attention(net: Any, x: Tensor) -> Any:
    return net.head(net.attention(x, x, x, need_weights=False)[0])


@pair()
def attention_against_its_formula() -> Logs:
    return two_ways(whole_attention, attention_by_hand(True), **attention_layers())


@pair(at="scaled_dot_product_attention matmul truediv softmax", says="scaled_dot_product_attention")
def attention_without_its_scale() -> Logs:
    return two_ways(whole_attention, attention_by_hand(False), **attention_layers())


# ---- weights, mode, layout ------------------------------------------------------------------------------------------


def with_change(change: Callable[[Any], object]) -> Logs:
    net = varied(Ways(plain, same=nn.Linear(8, 8), other=nn.Linear(8, 8), **mlp()))
    net.way = lambda net, x: plain(net, net.other(net.same(x).tanh()))
    changed = copy.deepcopy(net)
    with torch.no_grad():
        change(changed)
    return two_models(net, changed)


@pair(at="linear", module="same", says="transposed")
def weight_not_transposed() -> Logs:
    return with_change(lambda net: net.same.weight.copy_(net.same.weight.t().clone()))


@pair(at="linear", module="same", says="B's is A's other.weight|A's is B's other.weight")
def weights_of_two_layers_swapped() -> Logs:
    def swap(net: Any) -> None:
        net.same.weight, net.other.weight = net.other.weight, net.same.weight

    return with_change(swap)


@pair(at="linear", module="other", says="bias")
def bias_left_out() -> Logs:
    return with_change(lambda net: setattr(net.other, "bias", None))


@pair(at="linear", module="same", says="different weights")
def one_step_of_training() -> Logs:
    return with_change(lambda net: [param.add_(1e-3 * torch.randn_like(param)) for param in net.parameters()])


@pair(at="dropout", module="drop", says="train")
def one_module_in_training_mode() -> Logs:
    nets = [varied(Ways(lambda net, x: net.down(net.drop(net.up(x))), drop=nn.Dropout(0.3), **mlp())) for _ in range(2)]
    nets[1].drop.train()  # type: ignore[union-attr,operator]
    return two_models(*nets)


@pair(at="flatten reshape transpose", says="order")
def flattened_in_another_order() -> Logs:
    return two_ways(
        lambda net, x: net.head(net.conv(x).flatten(1)),
        lambda net, x: net.head(net.conv(x).transpose(1, 3).reshape(2, -1)),
        IMAGE,
        conv=nn.Conv2d(4, 8, 3),
        head=nn.Linear(800, 5),
    )


@pair(at="buffer batch_norm", module="norm", says="buffers differ")
def running_statistics_not_loaded() -> Logs:
    nets = [
        varied(Ways(lambda net, x: net.norm(net.conv(x)), conv=nn.Conv2d(4, 8, 3), norm=nn.BatchNorm2d(8)))
        for _ in "ab"
    ]
    nets[1].norm.reset_running_stats()  # type: ignore[union-attr,operator]
    return two_models(nets[0], nets[1], IMAGE)


@pair(at="input", says="the inputs differ")
def input_not_normalised() -> Logs:
    net = varied(Ways(plain, **mlp()))
    return two_models(net, net, X, (X - 0.4) / 0.2)


# ---- masks filled with a huge number --------------------------------------------------------------------------------


def attention(fill: float, scale: float = 8**0.5, swapped: bool = False, added: bool = False) -> Callable[..., Any]:
    """Causal attention in small steps; `added` adds the mask to the scores in place of filling them."""

    def forward(net: Any, x: Tensor) -> Any:
        q, k = (net.k(x), net.q(x)) if swapped else (net.q(x), net.k(x))
        scores = q @ k.mT / 16 / scale
        mask = torch.ones(6, 6).triu(1)
        scores = scores + mask * fill if added else scores.masked_fill(mask.bool(), fill)
        return scores.softmax(-1) @ net.v(x)

    return forward


def heads() -> dict[str, nn.Module]:
    return {name: nn.Linear(8, 8) for name in "qkv"}


def other_scale(fill: float, added: bool = False) -> Logs:
    return two_ways(attention(fill, added=added), attention(fill, 8.0, added=added), **heads())


def reordered(fill: float, added: bool = False) -> Logs:
    """The same attention, with the batch in another order on the way."""
    forward = attention(fill, added=added)
    return two_ways(forward, lambda net, x: forward(net, x.flip(0)).flip(0).clone(), **heads())


@pair(at="div truediv __truediv__", says="other is 2.8284271247461903 in A and 8.0 in B")
def other_scale_under_a_mask() -> Logs:
    return other_scale(-1e9)


@pair(at="div truediv __truediv__", says="other is 2.8284271247461903 in A and 8.0 in B")
def other_scale_under_an_added_mask() -> Logs:
    return other_scale(-1e12, added=True)


@pair()
def right_scale_under_a_mask() -> Logs:
    return reordered(-1e9)


@pair(at="linear matmul", says="weights|operands")
def queries_and_keys_swapped_under_a_mask() -> Logs:
    return two_ways(attention(-1e9), attention(-1e9, swapped=True), **heads())


@pair(at="div truediv __truediv__ mul", says="different functions")
def other_scale_under_a_mask_in_another_graph() -> Logs:
    def other(net: Any, x: Tensor) -> Any:
        scores = (net.q(x) @ net.k(x).mT) / 16 * 0.125
        return torch.where(torch.ones(6, 6).tril().bool(), scores, torch.tensor(-1e9)).softmax(-1) @ net.v(x)

    return two_ways(attention(-1e9), other, **heads())


@pair(at="masked_fill", says="value")
def a_fill_value_that_matters() -> Logs:
    def filled(value: float) -> Callable[..., Any]:
        return lambda net, x: net.q(x).masked_fill(torch.ones(6, 8).triu(1).bool(), value)

    return two_ways(filled(-1e9), filled(-1e12), **heads())


# ---- a square weight used the wrong way round -----------------------------------------------------------------------


def by_linear(net: Any, x: Tensor) -> Any:
    return net.c(F.relu(net.b(F.relu(net.a(x)))))


Multiply = Callable[[Tensor, Tensor, "Tensor | None"], Tensor]


class Turned(nn.Module):
    """The layers of `by_linear` with transposed weights, multiplied by one function; `wrong` is not transposed."""

    def __init__(self, net: Any, multiply: Multiply, wrong: str, without_bias: str) -> None:
        super().__init__()
        self.multiply = multiply
        for name in "abc":
            weight, bias = getattr(net, name).weight.detach(), getattr(net, name).bias.detach()
            self.register_parameter(f"w{name}", nn.Parameter((weight if name == wrong else weight.T).clone()))
            self.register_parameter(f"b{name}", None if name == without_bias else nn.Parameter(bias.clone()))

    def forward(self, x: Tensor) -> Tensor:
        for name in "abc":
            x = self.multiply(x, getattr(self, f"w{name}"), getattr(self, f"b{name}"))
            x = x if name == "c" else F.relu(x)
        return x


def turned(multiply: Multiply, wrong: str = "b", without_bias: str = "") -> Logs:
    net = varied(Ways(by_linear, a=nn.Linear(8, 8), b=nn.Linear(8, 8), c=nn.Linear(8, 4)))
    return two_models(net, Turned(net, multiply, wrong, without_bias).eval(), X[0])


@pair(at="linear addmm", module="b", says="transpose of wb")
def a_weight_not_transposed_for_addmm() -> Logs:
    return turned(lambda x, w, b: torch.addmm(b, x, w))


@pair(at="add __add__", module="b", says="transpose of wb")
def a_weight_not_transposed_for_matmul_and_add() -> Logs:
    return turned(lambda x, w, b: x @ w + b)


@pair(at="add __add__", module="b", says="transpose of wb")
def a_weight_not_transposed_for_matmul_and_add_with_a_view_between() -> Logs:
    return turned(lambda x, w, b: b + (x @ w).view(-1, w.shape[1]))


@pair(at="add __add__", module="b", says="transpose of wb")
def a_weight_not_transposed_for_einsum() -> Logs:
    return turned(lambda x, w, b: torch.einsum("bi,ij->bj", x, w) + b)


@pair()
def weights_transposed_as_they_should_be() -> Logs:
    return turned(lambda x, w, b: x @ w + b, wrong="")


@pair(at="linear matmul", module="b", says="A uses b.bias, for which B has nothing here")
def a_bias_that_nobody_adds() -> Logs:
    return turned(lambda x, w, b: x @ w if b is None else x @ w + b, wrong="", without_bias="b")
