"""A few networks of diffusers: UNets, autoencoders, transformers, each as small as it gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tests.torchvision_models import torchvision_models
from tests.zoo.build import Built

torchvision_models()  # which transformers imports, which diffusers imports

import diffusers

_DOWN, _UP = ("DownBlock2D", "AttnDownBlock2D"), ("AttnUpBlock2D", "UpBlock2D")
_CROSS = {
    "block_out_channels": (8, 16),
    "layers_per_block": 1,
    "sample_size": 8,
    "norm_num_groups": 4,
    "cross_attention_dim": 16,
    "attention_head_dim": 4,
}
_HALVES = {
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
}
_VAE = {"block_out_channels": (8, 16), "norm_num_groups": 4, "latent_channels": 4}
_TIME = torch.tensor([3])


def _picture(channels: int = 3, side: int = 16) -> torch.Tensor:
    return torch.rand(1, channels, side, side)


_MODELS: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "UNet2DModel": lambda: (
        diffusers.UNet2DModel(
            sample_size=16, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, attention_head_dim=4,
            down_block_types=_DOWN, up_block_types=_UP,
        ),
        {"sample": _picture(), "timestep": _TIME},
    ),
    "UNet2DConditionModel": lambda: (
        diffusers.UNet2DConditionModel(**_CROSS, **_HALVES),
        {"sample": _picture(4, 8), "timestep": _TIME, "encoder_hidden_states": torch.rand(1, 5, 16)},
    ),
    "UNet1DModel": lambda: (
        diffusers.UNet1DModel(
            block_out_channels=(32, 32), in_channels=2, out_channels=2, extra_in_channels=64,
            down_block_types=("DownBlock1DNoSkip", "DownBlock1D"), up_block_types=("UpBlock1D", "UpBlock1DNoSkip"),
        ),
        {"sample": torch.rand(1, 2, 32), "timestep": _TIME},
    ),
    "UNet3DConditionModel": lambda: (
        diffusers.UNet3DConditionModel(
            **_CROSS, down_block_types=("DownBlock3D", "CrossAttnDownBlock3D"),
            up_block_types=("CrossAttnUpBlock3D", "UpBlock3D"),
        ),
        {"sample": torch.rand(1, 4, 2, 8, 8), "timestep": _TIME, "encoder_hidden_states": torch.rand(1, 5, 16)},
    ),
    "ControlNetModel": lambda: (
        diffusers.ControlNetModel(
            block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4, cross_attention_dim=16,
            attention_head_dim=4, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            conditioning_embedding_out_channels=(8, 16),
        ),
        {
            "sample": _picture(4, 8), "timestep": _TIME, "encoder_hidden_states": torch.rand(1, 5, 16),
            "controlnet_cond": _picture(3, 16),
        },
    ),
    "AutoencoderKL": lambda: (
        diffusers.AutoencoderKL(
            **_VAE, down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2
        ),
        {"sample": _picture(), "sample_posterior": True},
    ),
    "AsymmetricAutoencoderKL": lambda: (
        diffusers.AsymmetricAutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 2, down_block_out_channels=(8, 16), norm_num_groups=4,
            up_block_types=("UpDecoderBlock2D",) * 2, up_block_out_channels=(8, 16),
        ),
        {"sample": _picture(), "mask": torch.ones(1, 1, 16, 16)},
    ),
    "AutoencoderTiny": lambda: (
        diffusers.AutoencoderTiny(
            encoder_block_out_channels=(8, 8), decoder_block_out_channels=(8, 8), num_encoder_blocks=(1, 1),
            num_decoder_blocks=(1, 1),
        ),
        {"sample": _picture()},
    ),
    "VQModel": lambda: (
        diffusers.VQModel(
            block_out_channels=(8, 16), norm_num_groups=4, num_vq_embeddings=16,
            down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        ),
        {"sample": _picture()},
    ),
    "Transformer2DModel": lambda: (
        diffusers.Transformer2DModel(
            num_attention_heads=2, attention_head_dim=4, in_channels=8, num_layers=2, norm_num_groups=4,
            cross_attention_dim=16,
        ),
        {"hidden_states": _picture(8, 8), "encoder_hidden_states": torch.rand(1, 5, 16)},
    ),
    "DiTTransformer2DModel": lambda: (
        diffusers.DiTTransformer2DModel(
            num_attention_heads=2, attention_head_dim=4, in_channels=4, num_layers=2, sample_size=8,
        ),
        {"hidden_states": _picture(4, 8), "timestep": _TIME, "class_labels": torch.tensor([5])},
    ),
    "PixArtTransformer2DModel": lambda: (
        diffusers.PixArtTransformer2DModel(
            num_attention_heads=2, attention_head_dim=4, num_layers=2, sample_size=8, cross_attention_dim=8,
            caption_channels=16, out_channels=8, use_additional_conditions=False,
        ),
        {"hidden_states": _picture(4, 8), "timestep": _TIME, "encoder_hidden_states": torch.rand(1, 5, 16)},
    ),
    "SD3Transformer2DModel": lambda: (
        diffusers.SD3Transformer2DModel(
            sample_size=8, in_channels=4, num_layers=2, attention_head_dim=4, num_attention_heads=2,
            joint_attention_dim=16, caption_projection_dim=8, pooled_projection_dim=16, out_channels=4,
        ),
        {
            "hidden_states": _picture(4, 8), "timestep": _TIME, "encoder_hidden_states": torch.rand(1, 5, 16),
            "pooled_projections": torch.rand(1, 16),
        },
    ),
    "FluxTransformer2DModel": lambda: (
        diffusers.FluxTransformer2DModel(
            in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
            joint_attention_dim=16, pooled_projection_dim=16, axes_dims_rope=(4, 4, 8),
        ),
        {
            "hidden_states": torch.rand(1, 16, 4), "timestep": torch.tensor([0.5]),
            "encoder_hidden_states": torch.rand(1, 5, 16), "pooled_projections": torch.rand(1, 16),
            "txt_ids": torch.zeros(5, 3), "img_ids": torch.rand(16, 3),
        },
    ),
    "UViT2DModel": lambda: (
        diffusers.UVit2DModel(
            hidden_size=16, cond_embed_dim=16, micro_cond_encode_dim=4, micro_cond_embed_dim=20,
            encoder_hidden_size=16, vocab_size=32, codebook_size=32, num_hidden_layers=1, num_attention_heads=2,
            in_channels=16, block_out_channels=16, num_res_blocks=1, block_num_heads=2,
        ),
        {
            "input_ids": torch.randint(0, 32, (1, 4, 4)), "encoder_hidden_states": torch.rand(1, 5, 16),
            "pooled_text_emb": torch.rand(1, 16), "micro_conds": torch.rand(1, 5),
        },
    ),
    "PriorTransformer": lambda: (
        diffusers.PriorTransformer(
            num_attention_heads=2, attention_head_dim=4, num_layers=2, embedding_dim=8, num_embeddings=5,
            additional_embeddings=4,
        ),
        {
            "hidden_states": torch.rand(1, 8), "timestep": _TIME, "proj_embedding": torch.rand(1, 8),
            "encoder_hidden_states": torch.rand(1, 5, 8),
        },
    ),
}  # fmt: skip


def names() -> list[str]:
    return list(_MODELS)


def build(name: str) -> Built:
    model, kwargs = _MODELS[name]()
    return Built(model.eval(), [], kwargs)
