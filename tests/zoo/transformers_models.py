"""Every model type of transformers, from a configuration shrunk by the names of its fields."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice, product
from typing import Any

import torch
from tests.torchvision_models import torchvision_models

torchvision_models()  # which transformers imports

import transformers
from tests.zoo.build import Built, NotBuilt, accepted, first_that_runs, one_line
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES, model_type_to_module_name

VOCABULARY, TOKENS, PICTURE = 128, 7, 32
LARGEST = 100_000_000  # parameters

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


#: What fields become that are None, in models that can't do with that.
_MISSING = {
    "vocab_size": VOCABULARY, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 1,
    "topk_group": 1, "prediction_length": 8, "context_length": 16, "pad_token_id": 0, "num_experts": 4,
    "top_k_experts": 2, "moe_intermediate_size": 32, "image_token_id": 4, "image_token_index": 4,
    "backbone": "resnet18",
}  # fmt: skip

#: What no rule finds out, by the type of the model; also where that is a part of another.
_SPECIAL: dict[str, dict[str, Any]] = {
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "chameleon": {"vocabulary_map": {"<image>": 4, "IMGIMGAZ": 5}},
    "emu3": {"vocabulary_map": {"<image>": 4, "<|visual token 000001|>": 5}},
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}}
    },
    "dbrx": {"attn_config": {"rope_theta": 1e4, "kv_n_heads": 2, "clip_qkv": 8.0}},
    "deepseek_ocr2_text": {"mlp_layer_types": ["dense", "sparse"]},
    "donut-swin": {"window_size": 2},
    "emu3_vqgan": {"base_channels": 32, "channel_multiplier": [1, 1], "num_res_blocks": 1, "hidden_size": 32},
    "gemma3": {"mm_tokens_per_image": 4},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1, "num_hidden_layers": 2},
    "perceiver": {"num_latents": 8, "d_latents": 32, "num_self_attends_per_block": 2},
    "qwen3_omni_moe_talker_text": {"shared_expert_intermediate_size": 32},
    "pix2struct_text_model": {"initializer_range": 0.02},
    "sam_prompt_encoder": {"image_embedding_size": 4},
    "sam_hq_prompt_encoder": {"image_embedding_size": 4},
    "sam2_vision_model": {"backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]]},
    "slanet": {"max_text_length": 4},
    "slanext": {"max_text_length": 4},
    "t5gemma2_decoder": {"dropout_rate": 0.0},
    "t5gemma2_text": {"dropout_rate": 0.0},
    "step3p5": {"sliding_window": 8},
    "step3p7_text": {"sliding_window": 8},
    "vitmatte": {"fusion_hidden_sizes": [32, 16, 8, 4], "convstream_hidden_sizes": [4, 8, 16]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"], "num_hidden_layers": 2},
    "zamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "zamba2": {"layers_block_type": ["mamba", "hybrid"], "num_hidden_layers": 2},
    "xmod": {"default_language": "en_XX"},
    "moonshine_streaming": {"num_key_value_heads": 4},
    "blt": {"num_hidden_layers": 2},
    "ernie4_5_moe": {"moe_k": 2},
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "bamba": {"attn_layer_indices": [1]},
}

_IS_WIDTH = re.compile(
    r"(^|_)(size|sizes|dim|dims|channels|rank|width|embd|filters|features|inner|model|ff|kv|head|hidden)$"
)
_IS_NO_WIDTH = re.compile(
    r"vocab|image|img|patch|kernel|window|chunk|merge|pool|stride|batch|beam|codebook_size|group|context|position|tile"
    r"|block|crop|spec|bins|token|sequence|shuffle|mel|spatial|hop|buffer|dilation|num_|n_head|max_"
)


def names() -> list[str]:
    return sorted(CONFIG_MAPPING_NAMES)


def build(name: str) -> Built:
    """The model with the smallest configuration with which it runs."""
    reasons = []
    for shrink in (_narrow, _in_proportion, partial(_narrow, times=2), _fewer_layers):
        try:
            config = _config(name, shrink)
            return _first_model(_classes(name, type(config)), config)
        except Exception as error:  # sizes that do not fit together: try others
            reasons.append(str(error) if isinstance(error, NotBuilt) else one_line(error))
    raise NotBuilt(f"made small, {reasons[0]}; as it comes, {reasons[-1]}" if reasons[0] != reasons[-1] else reasons[0])


# ---- configuration ----------------------------------------------------------------------------------------------

Shrink = Callable[[PretrainedConfig], dict[str, Any]]


def _config(name: str, shrink: Shrink) -> PretrainedConfig:
    module = importlib.import_module(f"transformers.models.{model_type_to_module_name(name)}")
    kind = getattr(module, CONFIG_MAPPING_NAMES[name], None) or getattr(transformers, CONFIG_MAPPING_NAMES[name])
    special = _SPECIAL.get(name, {})
    return kind(**{**shrink(kind(**special)), **special})


def _narrow(config: PretrainedConfig, times: int = 1) -> dict[str, Any]:
    """What to make smaller: everything whose name is known, to sizes that mostly fit together."""
    fields = _fewer_layers(config, partial(_narrow, times=times))
    for name, value in vars(config).items():
        if name in _WIDTHS_BY_NAME and type(value) is int:
            fields[name] = min(value, times * _WIDTHS_BY_NAME[name])
        elif name == "num_key_value_heads" and value in (None, vars(config).get("num_attention_heads")):
            fields[name] = min(value or 4, _COUNTS_BY_NAME["num_attention_heads"])
        elif name in _COUNTS_BY_NAME and type(value) is int:
            fields[name] = min(value, _COUNTS_BY_NAME[name])
        elif name in ("num_heads", "num_attention_heads") and isinstance(value, (list, tuple)):
            fields[name] = [2] * len(value)
        elif name == "rope_parameters" and isinstance(value, dict) and "rope_type" in value:
            fields[name] = _rotation(value, 8 * times)
        elif name == "head_dim" and value is None:
            fields[name] = 8 * times
    return fields


def _rotation(rope: dict[str, Any], head: int) -> dict[str, Any]:
    """The part of a head that is rotated, divided among time, height and width."""
    pairs = int(head * rope.get("partial_rotary_factor", 1)) // 2
    return {**rope, "mrope_section": [pairs - 2 * (pairs // 4), pairs // 4, pairs // 4]}


def _in_proportion(config: PretrainedConfig, by: int | None = None) -> dict[str, Any]:
    """What to make smaller: all widths by the same factor, so that those that must agree still do."""
    by = by or _factor(config)
    fields = _fewer_layers(config, partial(_in_proportion, by=by))
    for name, value in vars(config).items():
        if _is_width(name):
            fields[name] = _divided(fields.get(name, value), by)
        elif name == "rope_parameters" and isinstance(value, dict) and "mrope_section" in value:
            fields[name] = {**value, "mrope_section": _divided(value["mrope_section"], by)}
    return {name: value for name, value in fields.items() if value is not None}


def _is_width(name: str) -> bool:
    if name.startswith(("num_", "n_", "max_")):
        return False
    return bool(_IS_WIDTH.search(name)) and ("hidden" in name or "embed" in name or not _IS_NO_WIDTH.search(name))


def _factor(config: PretrainedConfig) -> int:
    """By how much the narrowest part of a model can be made narrower: to a width of 64, and 4 for each head."""
    inner = [_factor(value) for value in vars(config).values() if isinstance(value, PretrainedConfig)]
    fields = vars(config)
    widths = [fields.get(name) for name in ("hidden_size", "d_model", "dim", "embed_dim", "n_embd")]
    heads = [fields.get(name) for name in ("head_dim", "mamba_d_head", "d_kv", "dim_head", "d_head")]
    counts = [fields.get(name) for name in ("num_attention_heads", "num_heads", "n_head")]
    own = [width // 64 for width in widths if type(width) is int and width > 64]
    heads += [w // n for w in widths for n in counts if type(w) is int and type(n) is int and n and w % n == 0]
    own += [(width & -width) // 2 for width in heads if type(width) is int and width > 4]
    return 1 << max(min(own + inner, default=1).bit_length() - 1, 0)


def _divided(value: Any, by: int) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_divided(part, by) for part in value)
    return max(value // by, 2) if type(value) is int and value >= 16 else value


def _fewer_layers(config: PretrainedConfig, shrink: Shrink | None = None) -> dict[str, Any]:
    """What to make smaller: the number of layers and of tokens."""
    fields: dict[str, Any] = {}
    tokens = 3
    layers = _stages(config)
    before = {
        value for name, value in vars(config).items() if name in _LAYERS and type(value) is int and value > layers
    }
    for name, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            special = _SPECIAL.get(value.model_type, {})
            inner = (shrink or _fewer_layers)(value)
            given = value.to_dict() if value.model_type.startswith("timm") else value.to_diff_dict()
            fields[name] = {**given, **inner, **special, "model_type": value.model_type}
        elif name in _LAYERS and type(value) is int and not hasattr(config, "depths"):
            fields[name] = min(value, layers)
        elif name in ("image_size", "img_size") and isinstance(value, (int, list, tuple)):
            fields[name] = min(value, 2 * PICTURE) if isinstance(value, int) else [2 * PICTURE] * len(value)
        elif name == "backbone" and value == "resnet50":
            fields[name] = "resnet18"
        elif (("vocab" in name and "type_vocab" not in name) or name == "codebook_size") and type(value) is int:
            fields[name] = min(value, VOCABULARY)
        elif name.endswith(("token_id", "token_index")) and type(value) is int and value >= VOCABULARY:
            tokens += 1
            fields[name] = tokens
        elif name in ("layer_types", "mlp_layer_types") and isinstance(value, list):
            fields[name] = _some_of_each(value)
        elif name in ("depths", "num_block_repeats") and isinstance(value, (list, tuple)):
            fields[name] = [1] * len(value)
        elif isinstance(value, (list, tuple)) and len(value) > 6 and len(value) in before and name[0] != "_":
            fields[name] = type(value)(value[:layers])
        elif value is None and name in _MISSING:
            fields[name] = _MISSING[name]
    taken = getattr(config, "_out_indices", None) or ()
    if taken and max(taken) > 2 and not hasattr(config, "depths") and not hasattr(config, "backbone"):
        indices = list(range(1, layers + 1)) if len(taken) > 1 else [layers]
        fields |= {"out_indices": indices, "out_features": [f"stage{index}" for index in indices]}
    return fields


def _stages(config: PretrainedConfig) -> int:
    """How many layers to have: two, or as many as there are from which something is taken."""
    taken = getattr(config, "_out_indices", None) or ()
    return len(taken) if len(taken) > 1 and max(taken) > 2 and not hasattr(config, "depths") else 2


def _some_of_each(kinds: list[str]) -> list[str]:
    """Two layers, of different kinds if there are any."""
    different = list(dict.fromkeys(kinds))
    return (different if len(different) > 1 else kinds)[:2]


# ---- model ------------------------------------------------------------------------------------------------------


def _classes(name: str, kind: type[PretrainedConfig]) -> list[Callable[[PretrainedConfig], nn.Module]]:
    """The bare model of a type first, then those with a head, then what else is made of this configuration."""
    tables = sorted(
        table for table in dir(modeling_auto) if table.endswith("MAPPING_NAMES") and table.startswith("MODEL")
    )
    tables.sort(key=lambda table: table != "MODEL_MAPPING_NAMES")
    found: list[Any] = []
    for table in tables:
        listed = getattr(modeling_auto, table).get(name)
        for class_name in (listed,) if isinstance(listed, str) else listed or ():
            found.append(getattr(transformers, class_name, None))
    module = importlib.import_module(kind.__module__.replace(".configuration_", ".modeling_"))
    own = [thing for thing in vars(module).values() if inspect.isclass(thing) and issubclass(thing, nn.Module)]
    found += [thing for thing in own if issubclass(thing, PreTrainedModel) and thing.config_class is kind]
    found += [thing for thing in own if issubclass(thing, PreTrainedModel) and _made_of(thing, kind)]
    stem = kind.__name__.removesuffix("Config")
    found += [thing for thing in own if thing.__name__ in (stem, f"{stem}Model")]
    found = [thing for thing in dict.fromkeys(found) if thing is not None]
    classes = [thing for thing in found if thing.forward is not nn.Module.forward]
    classes += [partial(Encoding, thing) for thing in found if thing not in classes and hasattr(thing, "encode")]
    if not classes:
        raise NotBuilt("it has no forward" if found else "it is part of other models; none of its own is defined")
    return classes


class Encoding(nn.Module):
    """Calls `encode` of a model that has no forward."""

    def __init__(self, kind: type[nn.Module], config: PretrainedConfig) -> None:
        super().__init__()
        self.model = kind(config)

    def forward(self, pixel_values: Tensor) -> Any:
        sizes = torch.tensor([pixel_values.shape[-2:]])
        return self.model.encode(pixel_values, **accepted(self.model.encode, image_sizes=sizes))


def _made_of(model: type[nn.Module], kind: type[PretrainedConfig]) -> bool:
    parameter = inspect.signature(model.__init__).parameters.get("config")
    return parameter is not None and parameter.annotation in (kind, kind.__name__)


def _first_model(classes: list[Callable[[PretrainedConfig], nn.Module]], config: PretrainedConfig) -> Built:
    """The first of the models that builds and runs; if none does, why not the first."""
    reasons = []
    for kind in classes[:6]:
        try:
            _refuse_giant(kind, config)
            model = kind(config).eval()
            return first_that_runs(model, _inputs(model, config))
        except Exception as error:
            reasons.append(str(error) if isinstance(error, NotBuilt) else one_line(error))
    raise NotBuilt(reasons[0])


def _refuse_giant(kind: Callable[[PretrainedConfig], nn.Module], config: PretrainedConfig) -> None:
    """Some are large however few layers they have; counted without allocating them."""
    try:
        with torch.device("meta"):
            parameters = sum(parameter.numel() for parameter in kind(config).parameters())
    except Exception:  # it asks for values while it is built: then only building it can tell
        return
    if parameters > LARGEST:
        raise NotBuilt(f"{parameters / 1e6:.0f} million parameters with two layers")


# ---- input ------------------------------------------------------------------------------------------------------


def _inputs(model: nn.Module, config: PretrainedConfig) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Inputs to try, by the names of what forward takes."""
    parameters = inspect.signature(model.forward).parameters
    known = {name: values for name, values in _values(config, "grid_thw" in parameters).items() if name in parameters}
    required = {
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    }
    if required - set(known):
        raise NotBuilt(f"no small input is known for {', '.join(sorted(required - set(known)))}")
    yield from _with_picture(model, config, parameters)
    main = {getattr(model, "main_input_name", "input_ids")}
    decoder, memory = {"decoder_input_ids"}, {"encoder_hidden_states"}
    both = main | {"input_ids", "pixel_values"}
    everything = set(known) - {"inputs_embeds", "encoder_hidden_states", "hidden_states"}
    tried = []
    for wanted in (required, main, main | decoder, {"input_ids"}, main | memory, both, both | decoder, everything):
        chosen = (wanted | required) & set(known)
        if chosen and chosen not in tried:
            tried.append(chosen)
            for values in islice(product(*(known[name] for name in sorted(chosen))), 8):
                yield [], dict(zip(sorted(chosen), values, strict=True))
    try:
        yield [], model.dummy_inputs
    except Exception as error:
        raise NotBuilt(f"forward takes {', '.join(sorted(required)) or 'nothing that is known here'}") from error


def _with_picture(
    model: nn.Module, config: PretrainedConfig, parameters: Mapping[str, Any]
) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Text with a picture in it, which takes the place of as many tokens as the model says."""
    token = _field(config, ("image_token_id", "image_token_index"), None)
    if token is None or not {"input_ids", "pixel_values"} <= set(parameters):
        return
    values = _values(config, "image_grid_thw" in parameters)
    words = values["input_ids"][0]
    width = values["inputs_embeds"][0].shape[-1]  # some count numbers, not tokens
    for picture, sizes in product(values["pixel_values"][:2], ((), ("image_sizes",))):
        places = [1]  # tokens that the picture may take, to be tried from the end
        while places:
            text = torch.cat([words[:, :3], torch.full((1, places[-1]), token), words[:, 3:]], 1)
            given = {
                "input_ids": text,
                "pixel_values": picture,
                "attention_mask": torch.ones_like(text),
                "mm_token_type_ids": (text == token).long(),
                "image_grid_thw": values["grid_thw"][0],
                **{name: torch.tensor([picture.shape[-2:]]) for name in sizes},
            }
            given = {name: value for name, value in given.items() if name in parameters}
            try:
                with torch.no_grad():
                    model(**given)
            except Exception as error:
                said = re.search(r"features:? ?(\d+)", str(error))
                count = int(said[1]) if said and places == [1] else 0
                places = places[:-1] + [number for number in (count // width, count) if 0 < number <= 300]
            else:
                yield [], given
                return


def _values(config: PretrainedConfig, in_patches: bool = False) -> dict[str, list[Any]]:
    """Small tensors for every name of an input that models use, the likeliest first."""
    width = _number(config, ("hidden_size", "d_model", "hidden_dim", "dim", "embed_dim"), 32)
    values = {
        **_texts(config, width),
        **_pictures(config, width, in_patches),
        **_sounds(config),
        **_series(config),
        **_prompts(width),
    }
    values["hidden_states"] += values["image"]  # the first states of some parts of models are pictures
    return values


def _texts(config: PretrainedConfig, width: int) -> dict[str, list[Any]]:
    tokens = torch.randint(10, 90, (1, TOKENS))
    several = [tokens]
    for codes in _numbers(config, ("num_codebooks", "n_codebooks"), 0):  # sound as several tokens at a time
        if codes:
            several += [
                torch.randint(10, 90, shape)
                for shape in ((1, TOKENS, codes), (1, codes, TOKENS), (codes, TOKENS), (1, TOKENS, codes + 1))
            ]
    states = torch.rand(1, TOKENS, width)
    given = torch.ones(1, TOKENS, dtype=torch.long)
    return {
        "input_ids": several,
        "decoder_input_ids": [value[..., :5] if value.shape[-1] == TOKENS else value[:, :5] for value in several],
        "qformer_input_ids": [tokens],
        "attention_mask": [given],
        "qformer_attention_mask": [given],
        "position_ids": [torch.arange(TOKENS)[None]],
        "inputs_embeds": [states],
        "hidden_states": [
            torch.rand(1, TOKENS, size) for size in _numbers(config, ("input_dim", "hidden_size", "d_model"), 32)
        ],
        "encoder_hidden_states": [states],
        "query_embeds": [torch.rand(1, 8, width)],
        "bbox": [torch.zeros(1, TOKENS, 4, dtype=torch.long)],
        "context": [states],
        "last_hidden_state": [states],
        "visual_feats": [torch.rand(1, 4, _number(config, ("visual_feat_dim",), 32))],
        "visual_pos": [torch.rand(1, 4, 4)],
    }


def _pictures(config: PretrainedConfig, width: int, in_patches: bool) -> dict[str, list[Any]]:
    sizes = [_sides(config)] if _field(config, ("image_size", "img_size"), None) else [(64, 64), (128, 128)]
    channels = _number(config, ("num_channels", "in_channels", "in_chans", "image_channels"), 3)
    channels = channels if channels in (1, 2, 3, 4) else 3
    pictures = [torch.rand(1, channels, *size) for size in sizes]
    frames = _number(config, ("num_frames", "frames_per_clip"), 2)
    films = [torch.rand(1, frames, channels, *size) for size in sizes]
    apart = [torch.rand(frames, channels, *size) for size in sizes]
    patch = _number(config, ("patch_size",), 8)
    together = _number(config, ("temporal_patch_size",), 1)
    side = 2 * _number(config, ("spatial_merge_size",), 2)
    pixels = channels * patch * patch
    cut = [torch.rand(side * side, together * pixels), torch.rand(side * side, pixels)]
    cut += [torch.rand(side * side, 2 * pixels), torch.rand(side * side, channels, patch, patch)]
    cut += [torch.rand(1, side * side, channels, patch, patch)]
    first = _field(config, ("num_frames", "tubelet_size"), None)
    grid = torch.tensor([[1, side, side]])
    rows = [torch.rand(1, (size[0] // patch) * (size[1] // patch), pixels) for size in sizes]
    tiles = [torch.rand(1, 1, _number(config, ("max_num_tiles",), 4), channels, *size) for size in sizes]
    return {
        "pixel_values": cut if in_patches else films + pictures + apart if first else pictures + films + rows + tiles,
        "pixel_values_videos": films,
        "image": pictures,
        "pixel_mask": [torch.ones(1, *size, dtype=torch.long) for size in sizes],
        "grid_thw": [grid],
        **({"hidden_states": [*cut, torch.rand(side * side, width)]} if in_patches else {}),
        "merge_sizes": [torch.tensor([2])],
        "flattened_patches": [torch.rand(1, 9, 2 + _number(config, ("patch_embed_hidden_size",), pixels))],
        "pixel_attention_mask": [torch.ones(rows[0].shape[:2], dtype=torch.long)],
        "spatial_shapes": [torch.tensor([[sizes[0][0] // patch, sizes[0][1] // patch]])],
        "prompt_pixel_values": pictures,
        "prompt_masks": pictures,
        "aspect_ratio_ids": [torch.ones(1, 1, dtype=torch.long)],
        "aspect_ratio_mask": [torch.ones(1, 1, 4, dtype=torch.long)],
    }


def _sides(config: PretrainedConfig) -> tuple[int, int]:
    side = _field(config, ("image_size", "img_size"), PICTURE)
    height, width = (side, side) if isinstance(side, int) else tuple(side)[:2]
    return height if isinstance(height, int) else PICTURE, width if isinstance(width, int) else PICTURE


def _sounds(config: PretrainedConfig) -> dict[str, list[Any]]:
    names = (
        "num_mel_bins",
        "feature_size",
        "input_feat_per_channel",
        "n_mels",
        "input_dim",
        "mel_bins",
        "input_channels",
        "model_in_dim",
        "feature_projection_input_dim",
    )
    mels = _numbers(config, names, 80)
    mels = list(dict.fromkeys([*mels, 128, 4 * mels[0]]))  # some have no name for it, some take four at a time
    length = _number(config, ("max_source_positions",), 32)
    window = _number(config, ("n_window",), 0)
    steps = 2 * window or _number(config, ("max_length",), 64)
    spectra = [torch.rand(1, steps, bins) for bins in mels]
    upright = [torch.rand(1, bins, 2 * window or 2 * length) for bins in mels]
    flat = [torch.rand(bins, steps) for bins in mels] if window else []
    waves = [torch.rand(1, 4000), torch.rand(1, 1, 4000)]
    features = upright + spectra if _field(config, ("max_source_positions",), None) else spectra + upright
    return {
        "input_values": spectra if _field(config, ("frequency_stride",), None) else waves + spectra,
        "feature_lens": [torch.tensor([steps])],
        "input_features": [*features, *flat, torch.rand(1, 1, _number(config, ("spec_size",), 64) * 4, mels[0])],
        "input_features_mask": [torch.ones(1, steps, dtype=torch.long), torch.ones(1, 2 * length, dtype=torch.long)],
        "audio_mel": spectra,
        "audio_mel_mask": [torch.zeros(1, steps, dtype=torch.bool)],
        "spectrogram": spectra,
        "mel_spectrogram": upright,
        "latents": [
            torch.rand(1, _number(config, ("hidden_size",), 32), 8),
            torch.rand(1, 8, _number(config, ("hidden_size",), 32)),
        ],
        "is_longer": [torch.zeros(1, 1, dtype=torch.bool)],
    }


def _series(config: PretrainedConfig) -> dict[str, list[Any]]:
    """Numbers over time."""
    ahead = _number(config, ("prediction_length",), 8)
    seen = _number(config, ("context_length",), 32)
    lags = _field(config, ("lags_sequence",), None)
    past = seen + (max(lags) if lags else 0)
    features = _number(config, ("num_time_features",), 0)
    inputs = _number(config, ("num_input_channels", "input_size"), 1)
    shape = (1, past) if lags and inputs == 1 else (1, past, inputs)
    acting = {name: _number(config, (name,), 4) for name in ("state_dim", "act_dim")}
    return {
        "past_values": [torch.rand(shape), torch.rand(1, past)],
        "past_time_features": [torch.rand(1, past, features)],
        "past_observed_mask": [torch.ones(shape)],
        "future_values": [torch.rand(1, ahead, *shape[2:])],
        "future_time_features": [torch.rand(1, ahead, features)],
        "past_values_padding": [torch.zeros(1, past, dtype=torch.long)],
        "freq": [torch.zeros(1, 1, dtype=torch.long)],
        "inputs": [torch.rand(1, 16, _number(config, ("d_model",), 32)), torch.rand(1, 4000)],
        "states": [torch.rand(1, TOKENS, acting["state_dim"])],
        "actions": [torch.rand(1, TOKENS, acting["act_dim"])],
        "rewards": [torch.rand(1, TOKENS, 1)],
        "returns_to_go": [torch.rand(1, TOKENS, 1)],
        "timesteps": [torch.arange(TOKENS)[None]],
    }


def _prompts(width: int) -> dict[str, list[Any]]:
    """What models that cut out what is pointed at take besides a picture."""
    field = torch.rand(1, width, 4, 4)
    return {
        "input_points": [torch.rand(1, 1, 2, 2) * 16],
        "input_labels": [torch.ones(1, 1, 2, dtype=torch.long)],
        "input_boxes": [torch.tensor([[[2.0, 2.0, 20.0, 20.0]]])],
        "input_masks": [None],
        "hq_token_only": [False],
        "image_embeddings": [field],
        "image_positional_embeddings": [field],
        "sparse_prompt_embeddings": [torch.rand(1, 1, 2, width)],
        "dense_prompt_embeddings": [field],
        "multimask_output": [True],
        "high_resolution_features": [[torch.rand(1, width // 8, 16, 16), torch.rand(1, width // 4, 8, 8)]],
    }


def _number(config: PretrainedConfig, names: tuple[str, ...], default: int) -> int:
    return _numbers(config, names, default)[0]


def _numbers(config: PretrainedConfig, names: tuple[str, ...], default: int) -> list[int]:
    """The different values of these fields in the configuration and those inside it, the default if there are none."""
    inner = [value for value in vars(config).values() if isinstance(value, PretrainedConfig)]
    found = [getattr(holder, name, None) for holder in (config, *inner) for name in names]
    numbers = [number[-1] if isinstance(number, (list, tuple)) and number else number for number in found]
    return list(dict.fromkeys(number for number in numbers if type(number) is int)) or [default]


def _field(config: PretrainedConfig, names: tuple[str, ...], default: Any) -> Any:
    """The first of these fields that the configuration, or one inside it, has."""
    inner = [value for value in vars(config).values() if isinstance(value, PretrainedConfig)]
    for holder in (config, *inner):
        for name in names:
            if getattr(holder, name, None) is not None:
                return getattr(holder, name)
    return default
