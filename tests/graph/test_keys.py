"""Equal calls share a number: compared with tuples that spell out what is compared, on random calls."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlens.capture.functions import Function
from torchlens.capture.records import NO_KWARGS, Call, Value
from torchlens.graph.argument_row import ArgumentRow
from torchlens.graph.keys import call_keys, functions_in

FACTS = (torch.Size(()), torch.float32, torch.device("cpu"))
FUNCTIONS = [Function("add"), Function("cat"), Function("add")]

simple = st.sampled_from([0, 1, True, 1.0, None, "x", torch.float32])
tensors = st.builds(lambda index: Value(index, "op", -1, None, None, FACTS, None, None), st.integers(0, 9))
arguments = st.recursive(
    st.one_of(simple, tensors, st.builds(slice, simple, simple)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.lists(inner, max_size=2).map(tuple)),
    max_leaves=4,
)
some = st.one_of(st.lists(arguments, max_size=3), st.lists(simple, min_size=11, max_size=14))
keywords = st.dictionaries(st.sampled_from("ab"), arguments, max_size=1)
calls = st.builds(
    lambda function, args, kwargs: Call(function, tuple(args), kwargs or NO_KWARGS, (), (), -1, (), 0, None, ()),
    st.sampled_from(FUNCTIONS),
    some,
    keywords,
)


def spelled_out(thing: Any) -> Any:
    if isinstance(thing, Value):
        return "any tensor"
    if isinstance(thing, (list, tuple)):
        return (type(thing), *map(spelled_out, thing))
    if isinstance(thing, slice):
        return (slice, spelled_out((thing.start, thing.stop, thing.step)))
    return (type(thing), thing)


def keys_of(made: list[Call]) -> list[int]:
    row = ArgumentRow.of([call.args for call in made], [call.kwargs for call in made])
    keys: list[int] = call_keys(made, row, *functions_in([call.function for call in made])).tolist()
    return keys


@settings(deadline=None)
@given(st.lists(calls, max_size=12))
def test_calls_share_a_number_if_and_only_if_they_are_equal(made: list[Call]) -> None:
    kwargs = [tuple((name, spelled_out(argument)) for name, argument in call.kwargs.items()) for call in made]
    full = [(call.function.name, spelled_out(call.args), rest) for call, rest in zip(made, kwargs, strict=True)]
    keys = keys_of(made)
    assert [[one == other for other in keys] for one in keys] == [[one == other for other in full] for one in full]


def test_very_many_different_arguments_do_not_run_into_each_other() -> None:
    """Twelve columns of a thousand different numbers each are more than fits into 64 bits."""
    rows = [tuple((row * step) % 1009 for step in range(1, 13)) for row in range(2_000)]
    made = [Call(FUNCTIONS[0], row, NO_KWARGS, (), (), -1, (), 0, None, ()) for row in rows]
    keys = keys_of(made)
    assert len(set(keys)) == len(set(rows)) == len(set(zip(keys, rows, strict=True)))
