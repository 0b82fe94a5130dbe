"""Attention and recurrent layers in plain operations give what the fused ones give, and their inside can be edited."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl

E = tl.edits

_spec = importlib.util.spec_from_file_location("written_out", Path(__file__).parents[2] / "examples" / "written_out.py")
assert _spec is not None and _spec.loader is not None
example: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(example)


class Calls(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, **self.options)


LOWER = torch.ones(5, 5).tril().bool()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.3},
        {"attn_mask": LOWER},
        {"attn_mask": torch.randn(2, 1, 5, 5)},
        {"attn_mask": LOWER & (torch.arange(5) != 0)},  # the first query may look nowhere
        {"attn_mask": torch.zeros(5, 5).masked_fill(torch.arange(5)[:, None] == 2, -torch.inf)},
    ],
)
@pytest.mark.parametrize("shape", [(2, 4, 5, 3), (4, 5, 3), (2, 1, 4, 5, 3)])
def test_attention(options: dict[str, Any], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    mask = options.get("attn_mask")
    if mask is not None and mask.dim() == 4 and len(shape) != 4:
        options = {"attn_mask": mask[0]}
    given = [torch.randn(shape) for _ in range(3)]
    fused = F.scaled_dot_product_attention(*given, **options)
    assert example.attention(*given, **options).allclose(fused, atol=1e-6)
    swapped = tl.log_forward_pass(Calls(**options), given, interventions={"scaled": E.swap(example.attention)})
    assert swapped.output.allclose(fused, atol=1e-6) and swapped.validate()
    with example.written_out():
        log = tl.log_forward_pass(Calls(**options), given)
        none = tl.log_forward_pass(Calls(**options), given, interventions={"softmax": E.zero()})
    assert log.output.allclose(fused, atol=1e-6) and log.validate()
    weights = log["softmax"].activation
    assert weights.shape == (*shape[:-1], shape[-2]) and not none.output.any() and none.validate()


def test_attention_of_other_lengths_and_with_groups() -> None:
    query, key, value = torch.randn(2, 6, 4, 3), torch.randn(2, 2, 7, 3), torch.randn(2, 2, 7, 5)
    fused = F.scaled_dot_product_attention(query, key, value, enable_gqa=True)
    assert example.attention(query, key, value, enable_gqa=True).allclose(fused, atol=1e-6)
    key, value = torch.randn(2, 6, 7, 3), torch.randn(2, 6, 7, 5)
    fused = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    assert example.attention(query, key, value, is_causal=True).allclose(fused, atol=1e-6)


RECURRENT = [
    {},
    {"num_layers": 3},
    {"bidirectional": True},
    {"bidirectional": True, "num_layers": 2, "batch_first": True},
    {"bias": False, "batch_first": True},
    {"proj_size": 2},
    {"proj_size": 2, "bias": False, "bidirectional": True, "num_layers": 2},
]


@pytest.mark.filterwarnings("ignore:.*changed no element")  # often they agree to the last bit
@pytest.mark.parametrize("options", RECURRENT)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("shape", [(5, 3, 4), (1, 1, 4), (5, 4)])
def test_recurrent_layers(kind: Any, options: dict[str, Any], shape: tuple[int, ...]) -> None:
    if kind is nn.GRU and "proj_size" in options:
        return
    torch.manual_seed(0)
    model, x = kind(4, 6, **options), torch.randn(shape)
    fused = _flat(model(x))
    plain: Any = example.lstm if kind is nn.LSTM else example.gru
    name = plain.__name__
    swapped = tl.log_forward_pass(model, x, interventions={name: E.swap(plain)})
    with example.written_out():
        log = tl.log_forward_pass(model, x)
        edited = tl.log_forward_pass(model, x, interventions={"sigmoid": E.zero(), "tanh": E.zero()})
    for found in (swapped, log):
        assert found.validate()
        assert all(one.allclose(other, atol=1e-6) for one, other in zip(_flat(found.output), fused, strict=True))
    steps = shape[1 if options.get("batch_first") and len(shape) == 3 else 0]
    rounds = steps * options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    gates = [op for op in log if op.func_name == "sigmoid"]
    assert len(gates) == rounds * (3 if kind is nn.LSTM else 2)
    assert edited.validate() and not _flat(edited.output)[0].any()


def _flat(output: Any) -> list[Tensor]:
    return [output] if isinstance(output, Tensor) else [tensor for member in output for tensor in _flat(member)]


def test_a_swap_of_one_result_leaves_the_others() -> None:
    model, x = nn.LSTM(4, 6), torch.randn(5, 3, 4)
    negative = lambda *args: tuple(-tensor for tensor in example.lstm(*args))  # noqa: E731
    base = tl.log_forward_pass(model, x)
    label = next(op.label for op in base if op.func_name == "lstm" and op.tensor_shape == (1, 3, 6))
    log = tl.log_forward_pass(model, x, interventions={label: E.swap(negative)})
    output, (hidden, cell) = model(x)
    found, (found_hidden, found_cell) = log.output
    assert found.equal(output) and found_cell.equal(cell) and found_hidden.allclose(-hidden, atol=1e-6)
    assert log.validate() and base.intervene({label: E.swap(negative)}).output[1][0].allclose(-hidden, atol=1e-6)
    with pytest.raises(tl.ArgumentError, match="gave 1 tensors"):
        tl.log_forward_pass(model, x, interventions={"lstm": E.swap(lambda *args: [-model(x)[0]])})


def test_packed_sequences_are_refused() -> None:
    packed = nn.utils.rnn.pack_sequence([torch.randn(3, 4), torch.randn(2, 4)])
    for kind in (nn.LSTM, nn.GRU):
        with example.written_out(), pytest.raises(NotImplementedError, match="packed sequences"):
            kind(4, 6)(packed)
        with pytest.raises(NotImplementedError, match="packed sequences"):
            swap = E.swap(example.lstm if kind is nn.LSTM else example.gru)
            tl.log_forward_pass(kind(4, 6), packed, interventions={kind.__name__.lower(): swap})


@pytest.mark.parametrize("grad", [False, True])
def test_attention_in_torchs_own_modules(grad: bool) -> None:
    torch.manual_seed(0)
    fast = torch.backends.mha.get_fastpath_enabled()
    layer, x = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), torch.rand(2, 3, 8)
    before = F.scaled_dot_product_attention, torch._VF.lstm
    with torch.set_grad_enabled(grad):
        fused = layer(x)
        with example.written_out():
            log = tl.log_forward_pass(layer, x, interventions={"softmax": E.scale(1.001)})
            other = tl.log_forward_pass(layer, x, interventions={"softmax": E.zero(at=(slice(None), 0))})
        assert log.output.allclose(fused, atol=1e-3) and not other.output.allclose(fused, atol=1e-3)
    assert (F.scaled_dot_product_attention, torch._VF.lstm) == before
    assert torch.backends.mha.get_fastpath_enabled() == fast


@pytest.mark.parametrize("site", ["softmax", "sigmoid", ("sigmoid", "lstm"), lambda op: op.func_name == "softmax"])
def test_who_asks_for_the_inside_is_told_how_to_get_there(site: Any) -> None:
    model, x = example.Reader(), torch.rand(1, 4, 6)
    words = "inside lstm and scaled_dot_product_attention can't be reached.*examples/written_out.py"
    with pytest.raises(tl.LayerNotFoundError, match=words):
        tl.log_forward_pass(model, x, interventions={site: E.zero()})
    with pytest.raises(tl.LayerNotFoundError, match=words):
        tl.log_forward_pass(model, x).intervene({site: E.zero()})
    with pytest.raises(tl.LayerNotFoundError) as raised:
        tl.log_forward_pass(nn.Linear(6, 2), x, interventions={site: E.zero()})
    assert "inside" not in str(raised.value)
