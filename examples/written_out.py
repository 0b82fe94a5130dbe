"""What happens inside attention and recurrent layers: the same functions, written out in plain operations.

`scaled_dot_product_attention`, `nn.LSTM` and `nn.GRU` are one call each, and a log has one entry for each. The
functions here take the same arguments and return the same, operation by operation. There are two ways to use them:

    with written_out():                                         # the inside is in the log, and can be edited
        log = tl.log_forward_pass(model, x, interventions={"softmax": tl.edits.zero(at=(slice(None), 2))})

    tl.log_forward_pass(model, x, interventions={"scaled": tl.edits.swap(attention)})       # only the result is
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`torch.nn.functional.scaled_dot_product_attention`."""
    if enable_gqa:
        key, value = (part.repeat_interleave(query.shape[-3] // part.shape[-3], -3) for part in (key, value))
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    weights = scores.softmax(-1)
    if attn_mask is not None:  # a query that may look nowhere gets zeros
        weights = weights.masked_fill((scores == -torch.inf).all(-1, keepdim=True), 0.0)
    if dropout_p:
        weights = F.dropout(weights, dropout_p)
    return weights @ value


def _lstm_step(x: Tensor, state: list[Tensor], weights: Sequence[Tensor], has_biases: bool) -> list[Tensor]:
    hidden, cell = state
    w_ih, w_hh, b_ih, b_hh, projection = _five(weights, has_biases)
    enter, forget, new, leave = (F.linear(x, w_ih, b_ih) + F.linear(hidden, w_hh, b_hh)).chunk(4, -1)
    cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
    hidden = torch.sigmoid(leave) * torch.tanh(cell)
    return [hidden if projection is None else F.linear(hidden, projection), cell]


def _gru_step(x: Tensor, state: list[Tensor], weights: Sequence[Tensor], has_biases: bool) -> list[Tensor]:
    (hidden,) = state
    w_ih, w_hh, b_ih, b_hh, _ = _five(weights, has_biases)
    from_x, from_hidden = F.linear(x, w_ih, b_ih).chunk(3, -1), F.linear(hidden, w_hh, b_hh).chunk(3, -1)
    reset, update = (torch.sigmoid(one + other) for one, other in zip(from_x[:2], from_hidden[:2], strict=True))
    new = torch.tanh(from_x[2] + reset * from_hidden[2])
    return [new + update * (hidden - new)]


def _five(weights: Sequence[Tensor], has_biases: bool) -> list[Tensor | None]:
    """Two matrices, two biases, a projection; None for what there is not."""
    biases = list(weights[2:4]) if has_biases else [None, None]
    return [*weights[:2], *biases, *(weights[4 if has_biases else 2 :] or [None])]


def _layers(
    step: Callable[..., list[Tensor]],
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """All layers and directions, step by step in time."""
    x = x.transpose(0, 1) if batch_first else x
    directions = 2 if bidirectional else 1
    each = len(weights) // (num_layers * directions)
    last: list[list[Tensor]] = []
    for layer in range(num_layers):
        sides = []
        for direction in range(directions):
            number = layer * directions + direction
            mine, state = weights[number * each : (number + 1) * each], [part[number] for part in states]
            outputs = []
            for now in x.flip(0) if direction else x:
                state = step(now, state, mine, has_biases)
                outputs.append(state[0])
            side = torch.stack(outputs)
            sides.append(side.flip(0) if direction else side)
            last.append(state)
        x = torch.cat(sides, -1) if bidirectional else sides[0]
        if dropout and train and layer < num_layers - 1:
            x = F.dropout(x, dropout)
    final = [torch.stack(parts) for parts in zip(*last, strict=True)]
    return (x.transpose(0, 1) if batch_first else x, *final)


def _refuse_packed(second: object) -> None:
    if isinstance(second, Tensor) and second.dim() == 1:
        raise NotImplementedError("packed sequences are not written out here; give the layer a padded tensor instead")


def lstm(x: Tensor, states: Sequence[Tensor], *rest: object) -> tuple[Tensor, ...]:
    """`torch.lstm`, which `nn.LSTM` calls."""
    _refuse_packed(states)
    return _layers(_lstm_step, x, states, *rest)


def gru(x: Tensor, state: Tensor, *rest: object) -> tuple[Tensor, ...]:
    """`torch.gru`, which `nn.GRU` calls."""
    _refuse_packed(state)
    return _layers(_gru_step, x, [state], *rest)


@contextmanager
def written_out() -> Iterator[None]:
    """In here, attention, `nn.MultiheadAttention`, `nn.LSTM` and `nn.GRU` are made of plain operations.

    Code that has imported the function itself, and TorchScript, keep the fused ones: the log shows it.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # of layers of transformers, whole
    try:
        with (
            mock.patch.object(F, "scaled_dot_product_attention", attention),
            mock.patch.object(torch._VF, "lstm", lstm),
            mock.patch.object(torch._VF, "gru", gru),
        ):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


class Reader(nn.Module):
    """A recurrent layer that reads, and attention over what it has read."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.attention = nn.LSTM(6, 8, batch_first=True), nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        read, _ = self.lstm(x)
        return self.attention(read, read, read, need_weights=False)[0]


def main() -> None:
    torch.manual_seed(0)
    model, x = Reader().eval(), torch.rand(1, 4, 6)
    fused = tl.log_forward_pass(model, x)
    with written_out():
        plain = tl.log_forward_pass(model, x)
        no_head = tl.log_forward_pass(model, x, interventions={"softmax": tl.edits.zero(at=(slice(None), 1))})
        no_forgetting = plain.intervene({"sigmoid_1_17:2": tl.edits.replace(1.0)})  # one gate, in the second step
    print(f"{len(fused)} entries, and written out {len(plain)}; the same output:", end=" ")
    print(fused.output.allclose(plain.output, atol=1e-6))
    for name, log in {"without a head": no_head, "without forgetting": no_forgetting}.items():
        print(f"{name}: the output changes by {(log[-1].activation - plain[-1].activation).abs().max():.3f}")


if __name__ == "__main__":
    main()
