"""A model whose insides are known: what edits say about it is what theory says.

Two layers of attention learn to continue a sequence that repeats itself. That takes two steps. A previous-token head of
layer 0 writes into each position which token came before; an induction head of layer 1 looks for a position that came
after the token at hand, and copies what it finds there. So layer 1 needs the first step in its keys, and nowhere else.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl

E = tl.edits
TOKENS, LENGTH, WIDTH, HEADS = 24, 24, 64, 4


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            project(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for project in (self.query, self.key, self.value)
        )
        future = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        pattern = (q @ k.mT / (WIDTH // HEADS) ** 0.5).masked_fill(future, -torch.inf).softmax(-1)
        return self.out((pattern @ v).transpose(1, 2).flatten(-2))


class AttentionOnly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(TOKENS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList([Attention(), Attention()])
        self.unembed = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position.weight
        for layer in self.layers:
            x = x + layer(x)
        return self.unembed(x)


def sequences(count: int) -> tuple[Tensor, Tensor]:
    """Random sequences, repeated with a period of 6 to 14; and at which positions the next token can be known."""
    period = torch.randint(6, 15, (count, 1))
    tokens = torch.rand(count, TOKENS).argsort(-1).gather(1, torch.arange(LENGTH) % period)
    return tokens, torch.arange(LENGTH - 1) >= period


class Trained:
    """The trained model, a log of it, and how well it copies."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = AttentionOnly().double()  # so that rounding does not decide what is learned
        optimizer = torch.optim.Adam(self.model.parameters(), lr=5e-3)
        for _ in range(300):
            tokens = sequences(32)[0]
            loss = F.cross_entropy(self.model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        self.tokens, self.known = sequences(128)
        with torch.no_grad():
            self.log = tl.log_forward_pass(self.model, self.tokens)
        first = self.log["softmax_1"].activation.diagonal(-1, -2, -1)  # by sample, head and position
        copied_from = slice(0, 12)  # the positions that most second readings copy from
        self.previous = (first[..., copied_from].mean((0, 2)) > 0.4).nonzero().flatten().tolist()
        self.others = [head for head in range(HEADS) if head not in self.previous]

    def accuracy(self, interventions: dict[Any, Any] | None = None) -> float:
        """How often the next token is right where it can be known; the same while the model runs and afterwards."""
        output = self.log.output
        if interventions is not None:
            output = self.log.intervene(interventions).output
            with torch.no_grad():
                live = tl.log_forward_pass(self.model, self.tokens, interventions=interventions, base=self.log)
            assert output.equal(live.output)
        right = output[:, :-1].argmax(-1) == self.tokens[:, 1:]
        return right[self.known].double().mean().item()


@pytest.fixture(scope="module")
def trained() -> Trained:
    with torch.random.fork_rng():
        return Trained(seed=1)


def without(heads: list[int]) -> Any:
    return E.zero(at=(slice(None), heads))


def test_it_has_learned_to_copy_with_previous_token_heads(trained: Trained) -> None:
    assert trained.accuracy() > 0.9
    assert trained.previous and trained.others


def test_without_its_previous_token_heads_it_does_not_copy(trained: Trained) -> None:
    assert trained.accuracy({"softmax_1": without(trained.previous)}) < 0.5
    assert trained.accuracy({"softmax_1": without(trained.others)}) > 0.9


def test_without_layer_1_it_does_not_copy(trained: Trained) -> None:
    assert trained.accuracy({"layers.1": E.zero()}) < 0.5


@pytest.mark.parametrize(("part", "matters"), [("key", True), ("query", False), ("value", False)])
def test_layer_1_needs_the_previous_token_in_its_keys_alone(trained: Trained, part: str, matters: bool) -> None:
    (residual,) = trained.log[f"layers.1.{part}"].parent_layers
    ablated = trained.log.intervene({"softmax_1": without(trained.previous)})
    accuracy = trained.accuracy({(residual, f"layers.1.{part}"): E.patch(ablated)})
    assert accuracy < 0.5 if matters else accuracy > 0.9


def test_a_sweep_finds_the_heads(trained: Trained) -> None:
    def loss(output: Tensor) -> Tensor:
        return F.cross_entropy(output[:, :-1][trained.known], trained.tokens[:, 1:][trained.known])

    effects = tl.sweep(trained.log, sites="softmax_1", edit=E.zero(), over=1, metric=loss)
    largest = max(effects, key=lambda row: row.effect)
    assert largest.index is not None and largest.index[0] in trained.previous
    assert all(row.effect < largest.effect / 2 for row in effects if row.index[0] in trained.others)
