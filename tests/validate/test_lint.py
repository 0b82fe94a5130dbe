"""Every log is consistent with itself, and lint notices when one is not."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from tests.models import CASES, Case
from tests.test_documented import RecurrentNetwork

import torchlens as tl


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_model_gives_a_sound_log(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tl.FidelityWarning)
        log = tl.log_forward_pass(case.build(), case.inputs(), case.kwargs())
    assert tl.lint(log) == []


def swap_parents(log: tl.ModelLog) -> None:
    log.graph.parents[2], log.graph.parents[3] = log.graph.parents[3], log.graph.parents[2]


def lose_a_child(log: tl.ModelLog) -> None:
    log.graph.children[1].clear()


def turn_an_edge(log: tl.ModelLog) -> None:
    log.graph.parents[1] = (2,)


def rename_a_layer(log: tl.ModelLog) -> None:
    log.graph.layer_labels[2] = log.graph.layer_labels[1]


def misnumber_a_pass(log: tl.ModelLog) -> None:
    log.graph.passes[4] = 3


def merge_layers(log: tl.ModelLog) -> None:
    graph = log.graph
    graph.layers[2] = graph.layers[1]
    graph.layer_entries[1] = [1, 2, 4, 7]


def move_a_module_call(log: tl.ModelLog) -> None:
    log.graph.trace.module_calls[1].stop = 10**6


def save_something_else(log: tl.ModelLog) -> None:
    log.graph.entries[3].saved = torch.zeros(2)


def misattribute_an_entry(log: tl.ModelLog) -> None:
    log.graph.entries[3].call += 1


@pytest.mark.parametrize(
    "break_it",
    [
        swap_parents, lose_a_child, turn_an_edge, rename_a_layer, misnumber_a_pass, merge_layers, move_a_module_call,
        save_something_else, misattribute_an_entry,
    ],
)  # fmt: skip
def test_a_broken_log_is_noticed(break_it: Callable[[tl.ModelLog], None]) -> None:
    log = tl.log_forward_pass(RecurrentNetwork(), torch.rand(5, 5))
    assert tl.lint(log) == []
    break_it(log)
    assert tl.lint(log) != []
