"""Edits of what modules return, made by another tool in that tool's environment; see `against.py`.

    python -m benchmarks.against_peer pyvene outputs.pt

writes what each model returns with each edit, and prints what else was tried as one line of JSON. Nothing of this
library is imported here.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib import metadata
from typing import Any

import torch
from tests.torchvision_models import torchvision_models
from torch import Tensor, nn

Change = Callable[[Tensor], Tensor]
Run = Callable[[nn.Module, Tensor, str, Change], Tensor]  # with what a module returns changed


# ---- models and edits -----------------------------------------------------------------------------------------


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.down(torch.relu(self.up(self.norm(x))))
        return y


class Perceptrons(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Residual(8) for _ in range(3)])
        self.config = _transformers().PretrainedConfig()  # pyvene asks every model for one

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def _transformers() -> Any:
    torchvision_models()  # transformers imports torchvision, which may need help
    import transformers

    return transformers


def perceptrons() -> tuple[nn.Module, Tensor, Tensor]:
    return Perceptrons(), torch.rand(2, 4, 8), torch.rand(2, 4, 8)


def gpt2(layers: int = 2, width: int = 32) -> tuple[nn.Module, Tensor, Tensor]:
    shape = {"n_layer": layers, "n_embd": width, "n_head": 2, "vocab_size": 50, "n_positions": 32}
    model = _transformers().GPT2LMHeadModel(_transformers().GPT2Config(**shape, use_cache=False))
    return model, torch.randint(50, (2, 16)), torch.randint(50, (2, 16))


MODELS: dict[str, tuple[Callable[[], tuple[nn.Module, Tensor, Tensor]], list[str]]] = {
    "perceptrons": (perceptrons, ["blocks.0", "blocks.1.norm", "blocks.1.up", "blocks.2.down"]),
    "GPT-2": (gpt2, ["transformer.wte", "transformer.h.0.ln_1", "transformer.h.0.mlp", "transformer.h.1.attn.c_proj"]),
}


def built(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    """A model, an input, and another one whose values are patched in."""
    torch.manual_seed(0)
    model, x, other = MODELS[name][0]()
    return model.eval(), x, other


def _without_units(tensor: Tensor) -> Tensor:
    tensor = tensor.clone()
    tensor[..., [1, 3]] = 0
    return tensor


#: What is done to a tensor, given what another input leads to at the same place.
CHANGES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "zero": lambda tensor, donor: torch.zeros_like(tensor),
    "zero two units": lambda tensor, donor: _without_units(tensor),
    "scale by 0.5": lambda tensor, donor: tensor * 0.5,
    "add a direction": lambda tensor, donor: tensor + torch.linspace(-1, 1, tensor.shape[-1]),
    "clamp": lambda tensor, donor: tensor.clamp(max=0.01),
    "patch": lambda tensor, donor: donor.clone(),
}


def cases() -> list[tuple[str, str, str]]:
    return [(model, site, edit) for model, (_, sites) in MODELS.items() for site in sites for edit in CHANGES]


# ---- tools ----------------------------------------------------------------------------------------------------


def tensor_of(output: Any) -> Tensor:
    found: Tensor = output if isinstance(output, Tensor) else output[0]
    return found


def with_hook(model: nn.Module, x: Tensor, site: str, change: Change) -> Tensor:
    handle = model.get_submodule(site).register_forward_hook(lambda module, args, result: change(result))
    try:
        return tensor_of(model(x))
    finally:
        handle.remove()


def with_nnsight(model: nn.Module, x: Tensor, site: str, change: Change) -> Tensor:
    from nnsight import NNsight

    wrapped = NNsight(model)
    envoy = wrapped
    for part in site.split("."):
        envoy = envoy[int(part)] if part.isdigit() else getattr(envoy, part)
    with wrapped.trace(x):
        envoy.output = change(envoy.output)
        output = wrapped.output.save()
    return tensor_of(output)


def with_pyvene(model: nn.Module, x: Tensor, site: str, change: Change) -> Tensor:
    import pyvene

    parts = [f"[{part}]" if part.isdigit() else f".{part}" for part in site.split(".")]
    component = "".join(parts).removeprefix(".") + ".output"
    wrapped = pyvene.IntervenableModel(
        {"component": component, "intervention": lambda base, source: change(base)}, model=model
    )
    given = {"input_ids" if x.dtype == torch.int64 else "x": x}
    return tensor_of(wrapped(base=given)[1])


TOOLS: dict[str, Run] = {"hooks": with_hook, "nnsight": with_nnsight, "pyvene": with_pyvene}


def outputs(run: Run) -> dict[str, Tensor]:
    """What the models return with each edit."""
    found = {}
    for model_name, site, edit in cases():
        model, x, other = built(model_name)
        donor: list[Tensor] = []
        with_hook(model, other, site, lambda tensor, donor=donor: donor.append(tensor) or tensor)  # type: ignore[misc]
        output = run(model, x, site, partial(CHANGES[edit], donor=donor[0])).clone()
        if output.equal(tensor_of(model(x))):
            raise RuntimeError(f"{edit} at {site} of {model_name} changes nothing, so it proves nothing")
        found[f"{model_name}: {site}: {edit}"] = output
    return found


# ---- what is refused, and what it costs -----------------------------------------------------------------------


def outcome(attempt: Callable[[], Any]) -> str:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        try:
            attempt()
        except Exception as error:
            return type(error).__name__
    return ", ".join(["accepted", *(warning.category.__name__ for warning in warned)])


def refusals(run: Run) -> dict[str, str]:
    """What becomes of edits that can't be meant."""
    model, x, _ = built("perceptrons")
    return {
        "a module that there isn't": outcome(lambda: run(model, x, "blocks.7", torch.zeros_like)),
        "a value of shape (2, 4, 1)": outcome(lambda: run(model, x, "blocks.2.down", lambda tensor: tensor[..., :1])),
        "a value of another type": outcome(lambda: run(model, x, "blocks.2", torch.Tensor.double)),
        "the value itself": outcome(lambda: run(model, x, "blocks.1", torch.clone)),
    }


def cost(run: Run, rounds: int = 15) -> float:
    """The time of a forward pass with one edit, plain forward = 1: the median of interleaved runs."""
    torch.manual_seed(0)
    model, x, _ = gpt2(layers=12, width=256)
    model.eval()
    ratios = []
    for _ in range(rounds):
        plain = _time(lambda: model(x))
        ratios.append(_time(lambda: run(model, x, "transformer.h.5.mlp", lambda tensor: tensor * 0.5)) / plain)
    return statistics.median(ratios[2:])


def _time(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


# ---- TransformerLens, which has models of its own -------------------------------------------------------------


def transformer_lens_refusals() -> dict[str, str]:
    torchvision_models()
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    shape = {"n_layers": 2, "d_model": 8, "n_ctx": 8, "d_head": 4, "d_vocab": 10, "act_fn": "relu"}
    model = HookedTransformer(HookedTransformerConfig(**shape)).eval()
    tokens = torch.randint(10, (2, 6))

    def run(site: Any, change: Change) -> Any:
        return model.run_with_hooks(tokens, fwd_hooks=[(site, lambda tensor, hook: change(tensor))])

    return {
        "a module that there isn't": outcome(lambda: run("blocks.7.hook_resid_post", torch.zeros_like)),
        "a condition that nothing meets": outcome(lambda: run(lambda name: "nothing" in name, torch.zeros_like)),
        "a value of shape (2, 6, 1)": outcome(lambda: run("blocks.0.hook_mlp_out", lambda tensor: tensor[..., :1])),
        "a value of another type": outcome(lambda: run("blocks.1.hook_mlp_out", torch.Tensor.double)),
        "the value itself": outcome(lambda: run("blocks.0.hook_mlp_out", torch.clone)),
    }


@torch.no_grad()
def main() -> None:
    tool, path = sys.argv[1:]
    torch.set_num_threads(1)
    if tool == "TransformerLens":
        told: dict[str, Any] = {"refusals": transformer_lens_refusals()}
    else:
        run = TOOLS[tool]
        torch.save(outputs(run), path)
        told = {"refusals": refusals(run), "cost": cost(run)}
    package = {"TransformerLens": "transformer-lens", "hooks": "torch"}.get(tool, tool)
    print(json.dumps({**told, "version": metadata.version(package)}))


if __name__ == "__main__":
    main()
