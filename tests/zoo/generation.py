"""Text written token by token: the whole `generate()` loop as one forward pass, with its cache."""

from __future__ import annotations

from typing import Any

from tests.zoo.build import Built
from tests.zoo.transformers_models import Shrink, _config, _in_proportion, _narrow, _values, transformers
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.auto import modeling_auto

_TYPES = (
    "gpt2 gptj gpt_neo gpt_neox opt bloom falcon llama mistral mixtral qwen2 qwen3 qwen3_moe gemma gemma2 gemma3_text "
    "phi phi3 olmo2 stablelm starcoder2 cohere granite deepseek_v3 mamba mamba2 falcon_mamba jamba recurrent_gemma "
    "rwkv t5 bart mbart pegasus marian whisper"
).split()

_WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampled": {"do_sample": True, "top_k": 20},
    "beams": {"do_sample": False, "num_beams": 2},
    "static_cache": {"do_sample": False, "cache_implementation": "static"},
}


class Writer(nn.Module):
    """Calls `generate`, which calls the model once for every token."""

    def __init__(self, model: nn.Module, options: dict[str, Any]) -> None:
        super().__init__()
        self.model = model
        self.options = options

    def forward(self, prompt: Tensor) -> Tensor:
        return self.model.generate(prompt, max_new_tokens=4, min_new_tokens=4, use_cache=True, **self.options)


def names() -> list[str]:
    return [f"{kind} greedy" for kind in _TYPES] + [f"llama {way}" for way in _WAYS if way != "greedy"]


def build(name: str) -> Built:
    kind, way = name.split()
    try:
        model = _writer(kind, _narrow)
    except Exception:  # the sizes do not fit together
        model = _writer(kind, _in_proportion)
    prompt = _values(model.config)[model.main_input_name][0]
    return Built(Writer(model, _WAYS[way]), [prompt])


def _writer(kind: str, shrink: Shrink) -> PreTrainedModel:
    config = _config(kind, shrink)
    if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = 0
    return _writer_class(kind)(config).eval()


def _writer_class(kind: str) -> Any:
    for table in ("CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ"):
        found = getattr(modeling_auto, f"MODEL_FOR_{table}_MAPPING_NAMES").get(kind)
        if found and not (table == "CAUSAL_LM" and kind in ("bart", "mbart", "pegasus", "marian", "whisper")):
            return getattr(transformers, found)
    raise LookupError(kind)
