"""Watch a Hugging Face model generate: every step of `generate()` is a pass of its own.

The model is a small GPT-2 with random weights; any other works the same way. Needs transformers.
"""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import torchlens as tl


def small_gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=100, n_positions=64, bos_token_id=0, eos_token_id=0)
    return GPT2LMHeadModel(config).eval()


def generate(model: GPT2LMHeadModel, prompt: torch.Tensor, steps: int) -> tuple[torch.Tensor, tl.fastlog.Recording]:
    """The tokens, and what the last block and the head returned in each step."""
    with torch.no_grad(), tl.fastlog.Recorder(model, keep_module=["transformer.h.1", "lm_head"]) as recorder:
        tokens = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=steps, min_new_tokens=steps, do_sample=False
        )
    return tokens, recorder.recording


if __name__ == "__main__":
    tokens, recording = generate(small_gpt2(), torch.tensor([[1, 2, 3]]), steps=6)
    print(recording.summary(), "\n")
    for number, step in enumerate(recording.by_pass):
        hidden, logits = step["transformer.h.1"].activation, step["lm_head"].activation
        chosen = logits[0, -1].argmax().item()
        print(f"step {number}: {hidden.shape[1]} position(s), norm {hidden.norm():.2f}, most likely token {chosen}")
    print("generated:", tokens[0, 3:].tolist())
