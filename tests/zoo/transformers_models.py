"""Every model type of transformers, from a configuration shrunk by the names of its fields."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from tests.torchvision_models import torchvision_models

torchvision_models()  # which transformers imports

import transformers
from tests.zoo.build import Built, NotBuilt, first_that_runs, one_line
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES, model_type_to_module_name

VOCABULARY, TOKENS, PICTURE = 128, 7, 32
LARGEST = 80_000_000  # parameters

#: Fields that count layers.
_LAYERS = {
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers", "num_encoder_layers",
    "num_decoder_layers", "num_blocks", "depth", "num_hidden_blocks", "encoder_num_hidden_layers",
    "decoder_num_hidden_layers", "num_latent_layers", "num_conv_layers", "num_refinement_layers",
}  # fmt: skip

#: Fields that say how wide something is, with what they become.
_WIDTHS = {
    """hidden_size d_model n_embd dim embed_dim encoder_hidden_size decoder_hidden_size embedding_size hidden_dim
    projection_dim d_embed decoder_hidden_dim model_dim encoder_hidden_dim emb_dim out_hidden_size
    word_embed_proj_dim output_channels text_embed_dim vision_embed_dim encoder_embed_dim decoder_embed_dim""": 32,
    """intermediate_size n_inner ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff d_inner ffn_hidden_size mlp_dim
    moe_intermediate_size shared_expert_intermediate_size encoder_intermediate_size decoder_intermediate_size
    dim_feedforward feed_forward_size""": 64,
    "rotary_dim": 4,
    "head_dim d_kv d_head v_head_dim qk_nope_head_dim qk_rope_head_dim q_lora_rank kv_lora_rank attention_head_dim": 8,
}
_WIDTHS_BY_NAME = {name: size for names, size in _WIDTHS.items() for name in names.split()}

#: Fields that count something.
_COUNTS = {
    """num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads num_experts
    num_local_experts n_routed_experts encoder_num_attention_heads attention_heads decoder_num_attention_heads
    moe_num_experts""": 4,
    """num_key_value_heads num_experts_per_tok n_group topk_group moe_topk num_experts_per_token
    encoder_key_value_heads decoder_key_value_heads""": 2,
    "num_queries num_query_tokens": 8,
    """max_position_embeddings n_positions max_source_positions max_target_positions seq_length max_seq_len n_ctx
    sliding_window max_sequence_length local_attention""": 128,
    "image_size img_size": PICTURE,
    "patch_size": 8,
}
_COUNTS_BY_NAME = {name: size for names, size in _COUNTS.items() for name in names.split()}
_VOCABULARIES = {"vocab_size", "decoder_vocab_size", "encoder_vocab_size", "text_vocab_size", "codebook_size"}


def names() -> list[str]:
    return sorted(CONFIG_MAPPING_NAMES)


def build(name: str) -> Built:
    """The model with the smallest configuration with which it runs."""
    reasons = []
    for shrink in (_narrow, partial(_narrow, times=2), _fewer_layers):
        try:
            config = _config(name, shrink)
            kind = _model_class(name, type(config))
            if shrink is _fewer_layers:
                _refuse_giant(kind, config)
            model = kind(config).eval()
            return first_that_runs(model, _inputs(model, config))
        except Exception as error:  # sizes that do not fit together: try others
            reasons.append(str(error) if isinstance(error, NotBuilt) else one_line(error))
    raise NotBuilt(reasons[-1])  # of the sizes it comes with; the others may not fit together


# ---- configuration ----------------------------------------------------------------------------------------------


def _config(name: str, shrink: Any) -> PretrainedConfig:
    module = importlib.import_module(f"transformers.models.{model_type_to_module_name(name)}")
    kind = getattr(module, CONFIG_MAPPING_NAMES[name], None) or getattr(transformers, CONFIG_MAPPING_NAMES[name])
    return kind(**shrink(kind()))


def _narrow(config: PretrainedConfig, times: int = 1) -> dict[str, Any]:
    """What to make smaller: everything whose name is known."""
    fields = _fewer_layers(config, partial(_narrow, times=times))
    for name, value in vars(config).items():
        if name in _WIDTHS_BY_NAME and type(value) is int:
            fields[name] = min(value, times * _WIDTHS_BY_NAME[name])
        elif name == "num_key_value_heads" and value == getattr(config, "num_attention_heads", None):
            fields[name] = min(value, _COUNTS_BY_NAME["num_attention_heads"])
        elif name in _COUNTS_BY_NAME and type(value) is int:
            fields[name] = min(value, _COUNTS_BY_NAME[name])
        elif name in ("num_heads", "num_attention_heads") and isinstance(value, (list, tuple)):
            fields[name] = [2] * len(value)
        elif (
            name == "rope_parameters" and isinstance(value, dict) and "rope_type" in value
        ):  # a head is divided among time, height, width
            fields[name] = {**value, "mrope_section": [2 * times, times, times]}
    return fields


def _fewer_layers(config: PretrainedConfig, shrink: Any = None) -> dict[str, Any]:
    """What to make smaller: the number of layers and of tokens."""
    fields: dict[str, Any] = {}
    tokens = 3
    for name, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            fields[name] = {**(shrink or _fewer_layers)(value), "model_type": value.model_type}
        elif name in _LAYERS and type(value) is int:
            fields[name] = min(value, 2)
        elif name in ("image_size", "img_size") and type(value) is int:
            fields[name] = min(value, 2 * PICTURE)
        elif name in _VOCABULARIES and type(value) is int:
            fields[name] = min(value, VOCABULARY)
        elif name.endswith(("token_id", "token_index")) and type(value) is int and value >= VOCABULARY:
            tokens += 1
            fields[name] = tokens
        elif name in ("layer_types", "mlp_layer_types") and isinstance(value, list):
            fields[name] = _some_of_each(value)
        elif name == "depths" and isinstance(value, (list, tuple)):
            fields[name] = [1] * len(value)
    return fields


def _some_of_each(kinds: list[str]) -> list[str]:
    """Two layers, of different kinds if there are any."""
    different = list(dict.fromkeys(kinds))
    return (different if len(different) > 1 else kinds)[:2]


def _refuse_giant(kind: type[PreTrainedModel], config: PretrainedConfig) -> None:
    """Some are large however few layers they have; counted without allocating them."""
    try:
        with torch.device("meta"):
            parameters = sum(parameter.numel() for parameter in kind(config).parameters())
    except Exception:  # it asks for values while it is built: then only building it can tell
        return
    if parameters > LARGEST:
        raise NotBuilt(f"{parameters / 1e6:.0f} million parameters with two layers")


# ---- model ------------------------------------------------------------------------------------------------------


def _model_class(name: str, kind: type[PretrainedConfig]) -> type[PreTrainedModel]:
    """The bare model of a type if there is one, otherwise one with a head, otherwise what has this configuration."""
    tables = sorted(
        table for table in dir(modeling_auto) if table.endswith("MAPPING_NAMES") and table.startswith("MODEL")
    )
    tables.sort(key=lambda table: table != "MODEL_MAPPING_NAMES")
    for table in tables:
        found = getattr(modeling_auto, table).get(name)
        for class_name in (found,) if isinstance(found, str) else found or ():
            if hasattr(transformers, class_name):
                return getattr(transformers, class_name)
    module = importlib.import_module(kind.__module__.replace(".configuration_", ".modeling_"))
    for thing in vars(module).values():
        if inspect.isclass(thing) and issubclass(thing, PreTrainedModel) and thing.config_class is kind:
            return thing
    raise NotBuilt("it is part of other models; none of its own is defined")


# ---- input ------------------------------------------------------------------------------------------------------


def _inputs(model: nn.Module, config: PretrainedConfig) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Inputs to try, by the names of what forward takes."""
    parameters = inspect.signature(model.forward).parameters
    known = {name: value for name, value in _values(config).items() if name in parameters}
    required = {
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    }
    main = {name for name in (model.main_input_name, "input_ids", "pixel_values") if name in known}
    decoder = {"decoder_input_ids"} & set(known)
    tried = []
    for wanted in (
        required,
        {model.main_input_name} | required,
        {model.main_input_name} | required | decoder,
        main | required,
        main | required | decoder,
        set(known) - {"inputs_embeds"},
    ):
        chosen = wanted & set(known)
        if chosen and required <= chosen and chosen not in tried:
            tried.append(chosen)
            yield [], {name: known[name] for name in sorted(chosen)}
    try:
        yield [], model.dummy_inputs
    except Exception as error:
        raise NotBuilt(f"forward takes {', '.join(sorted(required)) or 'nothing that is known here'}") from error


def _values(config: PretrainedConfig) -> dict[str, Any]:
    """A small tensor for every name of an input that models use."""
    tokens = torch.randint(10, 90, (1, TOKENS))
    side = _field(config, ("image_size", "img_size"), PICTURE)
    height, width = (side, side) if isinstance(side, int) else tuple(side)[:2]
    height, width = (n if isinstance(n, int) else PICTURE for n in (height, width))
    channels = _field(config, ("num_channels", "in_channels", "in_chans"), 3)
    channels = channels if isinstance(channels, int) else 3
    width_of_text = _field(config, ("hidden_size", "d_model", "dim", "embed_dim"), 32)
    mels = _field(config, ("num_mel_bins", "feature_size", "input_feat_per_channel", "n_mels"), 80)
    frames = _field(config, ("num_frames",), 2)
    length = _field(config, ("max_source_positions",), 32)
    picture = torch.rand(1, channels, height, width)
    film = torch.rand(1, frames, channels, height, width)
    spectrum = torch.rand(1, _field(config, ("max_length",), 64), mels)
    wave = torch.rand(1, 4000)
    return {
        "input_ids": tokens,
        "decoder_input_ids": torch.randint(10, 90, (1, 5)),
        "attention_mask": torch.ones(1, TOKENS, dtype=torch.long),
        "pixel_values": film if _field(config, ("num_frames", "tubelet_size"), None) else picture,
        "pixel_values_videos": film,
        "input_values": spectrum if _field(config, ("frequency_stride",), None) else wave,
        "input_features": torch.rand(1, mels, 2 * length)
        if _field(config, ("max_source_positions",), None)
        else spectrum,
        "image": picture,
        "query_embeds": torch.rand(1, 8, width_of_text),
        "bbox": torch.zeros(1, TOKENS, 4, dtype=torch.long),
        "inputs_embeds": torch.rand(1, TOKENS, width_of_text),
        "hidden_states": torch.rand(1, TOKENS, width_of_text),
        "encoder_hidden_states": torch.rand(1, TOKENS, width_of_text),
        "position_ids": torch.arange(TOKENS)[None],
        "inputs": torch.rand(1, 16, _field(config, ("d_model",), 32)),
        "past_values": torch.rand(1, _field(config, ("context_length", "prediction_length"), 32), 1),
    }


def _field(config: PretrainedConfig, names: tuple[str, ...], default: Any) -> Any:
    """The first of these fields that the configuration, or one inside it, has."""
    inner = [value for value in vars(config).values() if isinstance(value, PretrainedConfig)]
    for holder in (config, *inner):
        for name in names:
            if getattr(holder, name, None) is not None:
                return getattr(holder, name)
    return default
