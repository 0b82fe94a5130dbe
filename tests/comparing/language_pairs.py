"""GPT-2, Llama and BERT of transformers, against each other and against ports by hand."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from tests.torchvision_models import torchvision_models
from torch import Tensor, nn

torchvision_models()  # transformers imports torchvision, which needs help where it has no compiled part

from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM  # noqa: E402

import torchlens as tl  # noqa: E402

from .pairs import Logs, pair  # noqa: E402

WIDTH, HEADS, WORDS = 48, 4, 97
IDS = torch.arange(40).reshape(2, 20) * 7 % WORDS


def noised(model: nn.Module) -> Any:
    """Trained models have no biases of zeros and no gains of ones."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for param in model.parameters():
            param.add_(0.05 * torch.randn(param.shape, generator=generator))
    return model.eval()


def log_ids(model: nn.Module, ids: Tensor = IDS) -> tl.ModelLog:
    return tl.log_forward_pass(model, None, {"input_ids": ids})


# ---- GPT-2 ----------------------------------------------------------------------------------------------------------


def gpt2(attention: str = "eager", **config: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": WORDS, "n_positions": 32, "n_embd": WIDTH, "n_layer": 3, "n_head": HEADS}
    settings = {**config, "bos_token_id": 0, "eos_token_id": 0, "attn_implementation": attention, "use_cache": False}
    return noised(GPT2LMHeadModel(GPT2Config(**sizes, **settings)))


class PortBlock(nn.Module):
    """A block of GPT-2, with what may be wrong with it as options."""

    def __init__(self, **wrong: Any) -> None:
        super().__init__()
        self.wrong = wrong
        eps = wrong.get("eps", 1e-5)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=eps), nn.LayerNorm(WIDTH, eps=eps)
        if wrong.get("fused"):
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        else:
            self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.proj, self.up, self.down = (
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, 4 * WIDTH),
            nn.Linear(4 * WIDTH, WIDTH),
        )
        self.drop = nn.Dropout(0.1)

    def heads(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        return x.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)

    def attend(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).split(WIDTH, 2) if self.wrong.get("fused") else (self.q(x), self.k(x), self.v(x))
        bad_view = self.wrong.get("bad_view")
        q = q.view(batch, HEADS, length, WIDTH // HEADS) if bad_view else self.heads(q)
        k, v = self.heads(k), self.heads(v)
        if self.wrong.get("sdpa"):
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mixed = self.drop(self.pattern(q @ k.transpose(-2, -1), length)) @ v
        return self.drop(self.proj(mixed.transpose(1, 2).reshape(batch, length, WIDTH)))  # type: ignore[no-any-return]

    def pattern(self, scores: Tensor, length: int) -> Tensor:
        if not self.wrong.get("unscaled"):
            scores = scores * (1 / math.sqrt(WIDTH // HEADS))
        seen = torch.tril(torch.ones(length, length, dtype=torch.bool), diagonal=self.wrong.get("diagonal", 0))
        scores = scores.masked_fill(~seen, float("-inf"))
        dim = self.wrong.get("softmax_dim", -1)
        return F.softmax(scores, dim=dim) if dim == -1 else torch.nan_to_num(F.softmax(scores, dim=dim))

    def mlp(self, x: Tensor) -> Tensor:
        return self.drop(self.down(F.gelu(self.up(x), approximate=self.wrong.get("gelu", "tanh"))))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        if self.wrong.get("post_norm"):
            x = self.norm1(x + self.attend(x))
            return self.norm2(x + self.mlp(x))  # type: ignore[no-any-return]
        x = x + self.attend(self.norm1(x))
        update = self.mlp(self.norm2(x))
        return update if self.wrong.get("no_residual") else x + update


class Port(nn.Module):
    """GPT-2 by hand; `only` says in which block it is wrong."""

    def __init__(self, only: int | None = None, **wrong: Any) -> None:
        super().__init__()
        right = {name: value for name, value in wrong.items() if name in ("fused", "sdpa")}
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(32, WIDTH)
        self.blocks = nn.ModuleList(PortBlock(**(wrong if only in (None, number) else right)) for number in range(3))
        self.norm, self.head = nn.LayerNorm(WIDTH, eps=wrong.get("eps", 1e-5)), nn.Linear(WIDTH, WORDS, bias=False)
        self.drop = nn.Dropout(0.1)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.drop(self.words(ids) + self.places(torch.arange(ids.shape[1]))[None])
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


def ported(model: Any, skip: str = "", swapped: bool = False, **wrong: Any) -> Port:
    """The port with the weights of a GPT-2; `skip` names one that is forgotten."""
    torch.manual_seed(5)
    port = Port(**wrong)
    source = model.transformer
    weights: dict[str, Tensor] = {"words.weight": source.wte.weight, "places.weight": source.wpe.weight}
    weights |= {"norm.weight": source.ln_f.weight, "norm.bias": source.ln_f.bias, "head.weight": model.lm_head.weight}
    for number, block in enumerate(source.h):
        layers = {"norm1": (block.ln_1.weight, block.ln_1.bias), "norm2": (block.ln_2.weight, block.ln_2.bias)}
        wide, bias = block.attn.c_attn.weight.t(), block.attn.c_attn.bias
        names = "kqv" if swapped and number == 1 else "qkv"
        layers |= {name: (w, b) for name, w, b in zip(names, wide.chunk(3), bias.chunk(3), strict=True)}
        layers |= {"qkv": (wide, bias)} if wrong.get("fused") else {}
        for name, layer in (("proj", block.attn.c_proj), ("up", block.mlp.c_fc), ("down", block.mlp.c_proj)):
            layers[name] = layer.weight.t(), layer.bias
        for name, (w, b) in layers.items():
            weights |= {f"blocks.{number}.{name}.weight": w, f"blocks.{number}.{name}.bias": b}
    known = port.state_dict()
    chosen = {name: w.detach().clone() for name, w in weights.items() if name in known and name != skip}
    port.load_state_dict(chosen, strict=False)
    return port.eval()


def gpt2_and_port(attention: str = "eager", **wrong: Any) -> Logs:
    model = gpt2(attention)
    return log_ids(model), tl.log_forward_pass(ported(model, **wrong), IDS)


def two_ports(one: dict[str, Any], other: dict[str, Any]) -> Logs:
    model = gpt2()
    ports = [tl.log_forward_pass(ported(model, **wrong), IDS) for wrong in (one, other)]
    return ports[0], ports[1]


@pair()
def gpt2_eager_and_sdpa() -> Logs:
    return log_ids(gpt2("eager")), log_ids(gpt2("sdpa"))


@pair()
def gpt2_and_its_port() -> Logs:
    return gpt2_and_port()


@pair()
def gpt2_sdpa_and_fused_port() -> Logs:
    return gpt2_and_port("sdpa", fused=True)


@pair()
def fused_and_separate_projections() -> Logs:
    return two_ports({"fused": True}, {"sdpa": True})


@pair(at="gelu tanh mul", module="h.0.mlp", says="gelu")
def gpt2_port_with_exact_gelu() -> Logs:
    return gpt2_and_port(gelu="none")


@pair(at="gelu", module="blocks.0", says="approximate is 'tanh' in A and 'none' in B")
def ports_with_two_gelus() -> Logs:
    return two_ports({}, {"gelu": "none"})


@pair(at="layer_norm", module="h.0.ln_1", says="eps is 1e-05 in A and 1e-06 in B")
def gpt2_port_with_other_eps() -> Logs:
    return gpt2_and_port(eps=1e-6)


@pair(at="mul matmul masked_fill", module="h.1.attn", says="0.2887")
def gpt2_port_without_scale_in_one_block() -> Logs:
    return gpt2_and_port(unscaled=True, only=1)


@pair(at="scaled_dot_product_attention", module="h.0.attn", says="scaled_dot_product_attention")
def gpt2_sdpa_port_without_scale() -> Logs:
    return gpt2_and_port("sdpa", unscaled=True)


@pair(at="masked_fill softmax tril invert add dropout", module="h.0.attn", says="masked_fill|tril")
def gpt2_port_that_sees_one_ahead() -> Logs:
    return gpt2_and_port(diagonal=1)


@pair(at="tril", module="blocks.2", says="diagonal is 0 in A and 1 in B")
def port_that_sees_one_ahead_in_one_block() -> Logs:
    return two_ports({}, {"diagonal": 1, "only": 2})


@pair(at="addmm linear", module="h.1.mlp.c_fc", says="blocks.1.up.weight")
def gpt2_port_with_a_weight_not_loaded() -> Logs:
    return gpt2_and_port(skip="blocks.1.up.weight")


@pair(at="addmm linear", module="h.2.mlp.c_proj", says="blocks.2.down.bias")
def gpt2_port_with_a_bias_not_loaded() -> Logs:
    return gpt2_and_port(skip="blocks.2.down.bias")


@pair(at="linear addmm matmul", module="h.1.attn", says="swapped|weights")
def gpt2_port_with_query_and_key_swapped() -> Logs:
    return gpt2_and_port(swapped=True)


@pair(at="view transpose", module="h.1.attn", says="order")
def gpt2_port_with_heads_viewed_wrongly() -> Logs:
    return gpt2_and_port(bad_view=True, only=1)


@pair(at="layer_norm linear", module="blocks.0", says="layer_norm")
def norm_before_and_after() -> Logs:
    return two_ports({}, {"post_norm": True})


@pair(at="add layer_norm", module="h.1", says="add")
def gpt2_port_without_a_residual() -> Logs:
    return gpt2_and_port(no_residual=True, only=1)


@pair(at="softmax nan_to_num", module="h.0.attn", says="softmax")
def gpt2_port_with_softmax_over_queries() -> Logs:
    return gpt2_and_port(softmax_dim=-2, only=0)


@pair(at="dropout", module="drop", says="train")
def port_in_training_mode() -> Logs:
    model = gpt2()
    return tl.log_forward_pass(ported(model), IDS), tl.log_forward_pass(ported(model).train(), IDS)


@pair(at="dropout", module="transformer.drop", says="train")
def gpt2_in_training_mode() -> Logs:
    return log_ids(gpt2()), log_ids(gpt2().train())


@pair()
def gpt2_in_bfloat16() -> Logs:
    return log_ids(gpt2()), log_ids(gpt2().bfloat16())


@pair()
def gpt2_sdpa_in_bfloat16_and_port() -> Logs:
    model = gpt2("sdpa")
    port = ported(model)
    return log_ids(model.bfloat16()), tl.log_forward_pass(port, IDS)


@pair(at="layer_norm", module="h.0.ln_1", says="eps is 1e-05 in A and 0.001 in B")
def gpt2_in_bfloat16_and_port_with_other_eps() -> Logs:
    model = gpt2()
    port = ported(model, eps=1e-3)
    return log_ids(model.bfloat16()), tl.log_forward_pass(port, IDS)


class Autocast(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return self.model(ids)


@pair()
def port_under_autocast() -> Logs:
    port = ported(gpt2())
    return tl.log_forward_pass(port, IDS), tl.log_forward_pass(Autocast(port), IDS)


@pair(at="input", says="the inputs differ: 1 of 40 elements")
def another_token() -> Logs:
    model, other = gpt2(), IDS.clone()
    other[0, 3] = 5
    return log_ids(model), tl.log_forward_pass(ported(model), other)


# ---- Llama ----------------------------------------------------------------------------------------------------------


def llama(attention: str = "eager", **config: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": WORDS, "hidden_size": WIDTH, "intermediate_size": 96, "num_hidden_layers": 2}
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": 2, "bos_token_id": 0, "eos_token_id": 0}
    settings = LlamaConfig(**sizes, **heads, attn_implementation=attention, use_cache=False, **config)
    return noised(LlamaForCausalLM(settings))


class LlamaPort(nn.Module):
    """Llama by hand, with the weights of the original."""

    def __init__(
        self, source: Any, halves: bool = True, plus_one: bool = False, eps: float = 1e-6, base: float = 1e4
    ) -> None:
        super().__init__()
        self.source, self.halves, self.plus_one, self.eps, self.base = source, halves, plus_one, eps, base

    def norm(self, x: Tensor, gain: Tensor) -> Tensor:
        x = x / torch.sqrt((x**2).mean(-1, keepdim=True) + self.eps)
        return x * (1 + gain) if self.plus_one else x * gain

    def rotate(self, x: Tensor) -> Tensor:
        size, length = x.shape[-1], x.shape[-2]
        angles = torch.arange(length).float()[:, None] * self.base ** (-torch.arange(0, size, 2).float() / size)
        cos, sin = angles.cos(), angles.sin()
        if self.halves:
            u, v = x[..., : size // 2], x[..., size // 2 :]
            return torch.cat([u * cos - v * sin, v * cos + u * sin], -1)
        u, v = x[..., ::2], x[..., 1::2]
        return torch.stack([u * cos - v * sin, v * cos + u * sin], -1).flatten(-2)

    def forward(self, ids: Tensor) -> Tensor:
        body = self.source.model
        x = F.embedding(ids, body.embed_tokens.weight)
        batch, length, width = x.shape
        for layer in body.layers:
            h, attention = self.norm(x, layer.input_layernorm.weight), layer.self_attn
            q, k, v = (
                getattr(attention, name)(h).view(batch, length, heads, width // HEADS).transpose(1, 2)
                for name, heads in (("q_proj", HEADS), ("k_proj", 2), ("v_proj", 2))
            )
            q, k = self.rotate(q), self.rotate(k)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + attention.o_proj(mixed.transpose(1, 2).reshape(batch, length, width))
            h = self.norm(x, layer.post_attention_layernorm.weight)
            x = x + layer.mlp.down_proj(F.silu(layer.mlp.gate_proj(h)) * layer.mlp.up_proj(h))
        return F.linear(self.norm(x, body.norm.weight), self.source.lm_head.weight)


def llama_and_port(**wrong: Any) -> Logs:
    model = llama()
    return log_ids(model), tl.log_forward_pass(LlamaPort(model, **wrong), IDS)


@pair()
def llama_and_its_port() -> Logs:
    return llama_and_port()


@pair()
def llama_eager_and_sdpa_in_bfloat16() -> Logs:
    return log_ids(llama().bfloat16()), log_ids(llama("sdpa").bfloat16())


@pair(at="getitem cat stack", module="layers.0.self_attn", says="slice|stack|order")
def llama_port_with_interleaved_rotation() -> Logs:
    return llama_and_port(halves=False)


@pair(at="cos sin mul pow rpow matmul cat add buffer", module="rotary", says="500000|buffer|cos|pow")
def llama_port_with_another_base() -> Logs:
    return llama_and_port(base=5e5)


@pair(at="mul", module="layers.0.input_layernorm", says="add|mul")
def llama_port_with_gain_plus_one() -> Logs:
    return llama_and_port(plus_one=True)


@pair(at="add", module="layers.0.input_layernorm", says="1e-05")
def llama_port_with_other_eps() -> Logs:
    return llama_and_port(eps=1e-5)


# ---- further ones ---------------------------------------------------------------------------------------------------


@pair(at="add", module="input_layernorm", says="other is 1e-06 in A and 1e-05 in B")
def llama_configured_with_other_eps() -> Logs:
    return log_ids(llama()), log_ids(llama(rms_norm_eps=1e-5))


@pair(at="silu gelu", module="layers.0.mlp", says="different functions")
def llama_configured_with_gelu() -> Logs:
    return log_ids(llama()), log_ids(llama(hidden_act="gelu"))


@pair(at="linear", module="layers.1.self_attn.k_proj", says="different weights")
def llama_with_one_changed_weight() -> Logs:
    changed = llama()
    with torch.no_grad():
        changed.model.layers[1].self_attn.k_proj.weight[3, 5] += 0.5
    return log_ids(llama()), log_ids(changed)


def bert(attention: str = "eager", **config: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": WORDS, "hidden_size": WIDTH, "intermediate_size": 96, "num_hidden_layers": 2}
    settings = BertConfig(**sizes, num_attention_heads=HEADS, attn_implementation=attention, **config)
    return noised(BertModel(settings, add_pooling_layer=False))


@pair()
def bert_eager_and_sdpa() -> Logs:
    return log_ids(bert()), log_ids(bert("sdpa"))


@pair(at="gelu tanh mul", module="encoder.layer.0.intermediate", says="gelu")
def bert_with_two_gelus() -> Logs:
    return log_ids(bert()), log_ids(bert(hidden_act="gelu_new"))


@pair(at="layer_norm", module="embeddings.LayerNorm", says="eps is 1e-12 in A and 1e-05 in B")
def bert_with_other_eps() -> Logs:
    return log_ids(bert()), log_ids(bert(layer_norm_eps=1e-5))


@pair(at="linear", module="encoder.layer.1.attention.output.dense", says="different weights")
def bert_with_a_layer_initialised_anew() -> Logs:
    changed = bert()
    torch.manual_seed(9)
    changed.encoder.layer[1].attention.output.dense.reset_parameters()
    return log_ids(bert()), log_ids(changed)


@pair()
def bert_copied() -> Logs:
    model = bert()
    return log_ids(model), log_ids(copy.deepcopy(model))
