"""Models of two libraries (timm, torchvision, transformers) with the same weights, and settings that change them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import torchlens as tl

from .language_pairs import HEADS, IDS, WIDTH, WORDS, bert, gpt2, llama, log_ids
from .pairs import Logs, pair
from .vision_pairs import IMAGES, models, noised, resnet, vision_transformer

import timm  # isort: skip  (after torchvision, which needs help where it has no compiled part)
from transformers import MistralConfig, MistralForCausalLM  # isort: skip

# ---- timm -----------------------------------------------------------------------------------------------------------


def timm_model(name: str, **settings: Any) -> Any:
    torch.manual_seed(0)
    return noised(timm.create_model(name, num_classes=10, **settings))


def two_logs(one: Any, other: Any, images: Tensor = IMAGES) -> Logs:
    return tl.log_forward_pass(one, images), tl.log_forward_pass(other, images)


#: Names of torchvision's vision transformer, each with timm's.
NAMES = {
    "class_token": "cls_token", "conv_proj": "patch_embed.proj", "encoder.pos_embedding": "pos_embed",
    "encoder.layers.encoder_layer_": "blocks.", "ln_1": "norm1", "ln_2": "norm2",
    "self_attention.in_proj_": "attn.qkv.", "self_attention.out_proj": "attn.proj",
    "mlp.0": "mlp.fc1", "mlp.3": "mlp.fc2", "encoder.ln": "norm", "heads.head": "head",
}  # fmt: skip


def both_vision_transformers(swapped: bool = False, **settings: Any) -> Logs:
    """torchvision's, and timm's with its weights; with those of queries and keys exchanged in the last block."""
    model = vision_transformer()
    state = {}
    for name, weight in model.state_dict().items():
        for old, new in NAMES.items():
            name = name.replace(old, new)
        state[name] = weight
    if swapped:
        q, k, v = state["blocks.1.attn.qkv.weight"].chunk(3)
        state["blocks.1.attn.qkv.weight"] = torch.cat([k, q, v])
    sizes = {"img_size": 64, "patch_size": 16, "embed_dim": 32, "depth": 2, "num_heads": 4, "mlp_ratio": 2}
    other = timm_model("vit_tiny_patch16_224", **sizes, **settings)
    other.load_state_dict(state)
    return two_logs(model, other)


@pair()
def vision_transformers_of_two_libraries() -> Logs:
    return both_vision_transformers()


@pair(at="layer_norm", module="blocks.0.norm1", says="eps is 1e-06 in A and 1e-05 in B")
def timm_vision_transformer_with_other_eps() -> Logs:
    return both_vision_transformers(norm_layer=torch.nn.LayerNorm)


@pair(at="gelu", module="blocks.0.mlp", says="approximate is 'none' in A and 'tanh' in B")
def timm_vision_transformer_with_another_gelu() -> Logs:
    return both_vision_transformers(act_layer="gelu_tanh")


@pair(at="linear matmul", module="blocks.1.attn", says="weights")
def timm_vision_transformer_with_queries_and_keys_swapped() -> Logs:
    return both_vision_transformers(swapped=True)


@pair()
def resnets_of_two_libraries() -> Logs:
    model, other = resnet(), timm_model("resnet18")
    other.load_state_dict(model.state_dict())
    return two_logs(model, other)


@pair(at="batch_norm", module="layer3.0.bn2", says="different weights")
def timm_resnet_with_a_gain_not_loaded() -> Logs:
    model, other = resnet(), timm_model("resnet18")
    other.load_state_dict({k: v for k, v in model.state_dict().items() if k != "layer3.0.bn2.weight"}, strict=False)
    return two_logs(model, other)


@pair(at="conv2d pad", module="conv_stem", says="pad")
def timm_mobilenet_padded_as_tensorflow_does() -> Logs:
    return two_logs(*(timm_model("mobilenetv3_small_050", pad_type=kind) for kind in ("", "same")))


@pair(at="gelu", module="stages.0.blocks.0", says="approximate is 'none' in A and 'tanh' in B")
def timm_convnext_with_another_gelu() -> Logs:
    sizes = {"depths": (1, 1, 1, 1), "dims": (8, 12, 16, 24)}
    return two_logs(*(timm_model("convnext_atto", act_layer=kind, **sizes) for kind in ("gelu", "gelu_tanh")))


# ---- torchvision ----------------------------------------------------------------------------------------------------


def swin() -> Any:
    torch.manual_seed(0)
    sizes = {"patch_size": [4, 4], "embed_dim": 16, "depths": [2], "num_heads": [2], "window_size": [4, 4]}
    return noised(models.SwinTransformer(**sizes, num_classes=10))


@pair(at="roll", module="features.1.1.attn", says="roll|order")
def swin_without_shifted_windows() -> Logs:
    changed = swin()
    changed.features[1][1].attn.shift_size = [0, 0]
    return two_logs(swin(), changed)


@pair(at="relu6 hardtanh relu", module="features.0", says="different functions")
def mobilenet_with_relu() -> Logs:
    nets = []
    for replaced in (False, True):
        torch.manual_seed(0)
        net = noised(models.mobilenet_v2(num_classes=10, width_mult=0.25))
        if replaced:
            net.features[0][2] = torch.nn.ReLU()
        nets.append(net)
    return two_logs(*nets, 20 * IMAGES)


# ---- transformers ---------------------------------------------------------------------------------------------------


def mistral(**settings: Any) -> Any:
    """Mistral with the weights of the Llama: but for its window it is the same model."""
    sizes = {"vocab_size": WORDS, "hidden_size": WIDTH, "intermediate_size": 96, "num_hidden_layers": 2}
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": 2, "bos_token_id": 0, "eos_token_id": 0}
    options = {"attn_implementation": "eager", "use_cache": False, "sliding_window": None}
    model = MistralForCausalLM(MistralConfig(**{**sizes, **heads, **options, **settings}))
    model.load_state_dict(llama().state_dict())
    return model.eval()


@pair()
def llama_and_mistral() -> Logs:
    return log_ids(llama("sdpa")), log_ids(mistral())


@pair(at="add where and le gt", module="", says="add|different operands|constants|different operations")
def mistral_with_a_window() -> Logs:
    return log_ids(mistral()), log_ids(mistral(sliding_window=4))


@pair(at="mul div matmul", module="h.1.attn", says="div|mul|0.")
def gpt2_scaled_by_layer() -> Logs:
    return log_ids(gpt2()), log_ids(gpt2(scale_attn_by_inverse_layer_idx=True))


@pair(at="input", says="the inputs differ")
def bert_with_another_mask() -> Logs:
    masks = torch.ones_like(IDS), torch.ones_like(IDS)
    masks[1][:, -3:] = 0
    logs = [tl.log_forward_pass(bert(), None, {"input_ids": IDS, "attention_mask": mask}) for mask in masks]
    return logs[0], logs[1]
