"""Which operations are passes of one layer: a table of tiny programs, a slow reference, and invariances.

Two ways of writing a program down, both of which state the expected answer:

* a chain, where every operation reads the one before it: `"WrWr"`, expected `"0101"`. Capitals have parameters;
* statements `layer.pass = function(operands)`: operations whose names agree before the dot are to be one layer.
  Functions with a capital have parameters. `input` and `output` are never grouped.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.graph.reference import reference_layers

from torchlens.graph import loops
from torchlens.graph.recurrence import find_layers

Program = tuple[list[int], list[int], list[list[int]]]


def chain(word: str | list[str]) -> Program:
    """An input, then one operation per symbol, each reading the one before it."""
    number = {name: i for i, name in enumerate(sorted(set(word)))}
    keys = [-1, *(number[name] for name in word)]
    param_keys = [-1, *(number[name] if name[0].isupper() else -1 for name in word)]
    return keys, param_keys, [[], *([i] for i in range(len(word)))]


def chain_layers(word: str | list[str]) -> list[int]:
    return [layer - 1 for layer in find_layers(*chain(word))[1:]]


def program(text: str) -> tuple[Program, list[int]]:
    """Read statements; return the program and the layers its names ask for."""
    numbers: dict[str, int] = {}
    functions: list[str] = []
    wanted: list[str] = []
    keys, param_keys, parents = [], [], []
    for statement in filter(None, re.split(r"[;\n]\s*", text.strip())):
        match = re.fullmatch(r"(\S+) = (\S+?)\((.*)\)", statement.strip())
        assert match, f"cannot read {statement!r}"
        name, function, operands = match.groups()
        if function not in functions:
            functions.append(function)
        assert name not in numbers, f"{name} is assigned twice"
        numbers[name] = len(keys)
        keys.append(-1 if function in ("input", "output") else functions.index(function))
        param_keys.append(functions.index(function) if function[0].isupper() else -1)
        parents.append([numbers[operand] for operand in operands.replace(",", " ").split()])
        wanted.append(name.split(".")[0])
    order = list(dict.fromkeys(wanted))
    return (keys, param_keys, parents), [order.index(layer) for layer in wanted]


def loop(body: str, passes: int, start: int = 1) -> str:
    """Repeat statements; `@` is the pass and `<` the pass before it."""
    return "\n".join(body.replace("@", str(t)).replace("<", str(t - 1)) for t in range(start, start + passes))


CHAINS = {
    "empty": ("", ""),
    "single operation": ("x", "0"),
    "feed-forward": ("AxBxCx", "012345"),
    "figure 3A: cos, fc, + around a sin": ("cWascWa", "0123012"),
    "figure 3B: a separate repetition stays separate": ("crmcrmtcrm", "0120123456"),
    "recurrent network of the paper: 3 x fc, +, *": ("WamWamWam", "012012012"),
    "back to back": ("xyzxyzxyz", "012012012"),
    "not back to back": ("xyzaxyzbxyz", "0123456789A"),
    "two passes are a loop": ("xyxy", "0101"),
    "a single operation repeated": ("xxxx", "0000"),
    "rule 1 alone": ("WW", "00"),
    "rule 1 however far apart": ("WabcWdefW", "012304560"),
    "rule 1 in two functions is two layers": ("EaH", "012"),
    "body ends with the operation it starts with": ("xyxxyxxyx", "012012012"),
    "loop in a loop": ("yxxyxxyxx", "011011011"),
    "loop in a loop in a loop": ("axyyxyybaxyyxyyb", "0122122301221223"),
    "same symbol twice in a body": ("xyxzxyxzxyxz", "012301230123"),
    "last pass incomplete": ("xyzxyzx", "0120120"),
    "last pass incomplete, next loop starts with the same operation": ("xyxyxyxzxzxz", "010101232323"),
    "two different loops in a row": ("xyxyxyzwzwzw", "010101232323"),
    "loop with an operation ahead of it": ("axyxyxy", "0121212"),
    "parameters end a loop": ("xyxyWxyxy", "010123434"),
    "distinct parameters make a sequence feed-forward": ("AxyBxyCxy", "012345678"),
    "growth on both sides": ("abWcdxabWcd", "01234501234"),
    "growth stops at the first difference": ("paWbqraWbs", "0123451236"),
    "growth does not skip a difference": ("WaxbcWaybc", "0123401567"),
    "recurrent body with a loop inside": ("WscscWscsc", "0121201212"),
    "inner loop of varying length": ("WscscscWscscWsc", "012121201212012"),
    "leading activation, none trailing": ("rWrWrW", "010101"),
    "trailing activation, none leading": ("WrWrWr", "010101"),
    "two layers share an activation function": ("ArBrArBrArBr", "012301230123"),
    "fc, relu, add, relu: two relus": ("WrarWrarWrar", "012301230123"),
    "relu, fc, relu: two relus in a row are different places": ("arWrbarWrb", "0123401234"),
    "an extra operation after the first pass": ("WrxWrerxWrerx", "0120134201342"),
    "one relu first, then two in one pass": ("WrWrxrWrxr", "0101230123"),
    "relu next to relu is a loop in the body": ("WrWrrWrr", "01011011"),
    "shared module in unrelated places": ("aWbcdeWfg", "012345167"),
    "shared module, same activation only once": ("aWrcdeWfg", "012345167"),
    "loops around a separate head": ("WrWrWrHs", "01010123"),
    "data-dependent number of passes: one": ("Wr", "01"),
    "tanh after a recurrent layer used in two loops": ("WtWtxWtWt", "010120101"),
}


@pytest.mark.parametrize(("word", "expected"), CHAINS.values(), ids=CHAINS.keys())
def test_chain(word: str, expected: str) -> None:
    assert chain_layers(word) == [int(digit, 36) for digit in expected]


GRAPHS = {
    "two-input cell: h = tanh(W x_t + U h)": "x = input(); start = zeros()\n"
    + "x_t.1 = select(x); w.1 = W(x_t.1); u.1 = U(start); sum.1 = add(w.1 u.1); h.1 = tanh(sum.1)\n"
    + loop("x_t.@ = select(x); w.@ = W(x_t.@); u.@ = U(h.<); sum.@ = add(w.@ u.@); h.@ = tanh(sum.@)", 3, 2),
    "skip connection": "first = input()\nf.1 = F(first); r.1 = relu(f.1); s.1 = add(r.1 first)\n"
    + loop("f.@ = F(s.<); r.@ = relu(f.@); s.@ = add(r.@ s.<)", 3, 2),
    "hidden state starts as the input": "x = input(); f.1 = F(x); r.1 = relu(f.1)\n"
    + loop("f.@ = F(r.<); r.@ = relu(f.@)", 2, 2),
    "if t > 0: one more operation": "x = input(); f.1 = F(x); r.1 = relu(f.1)\n"
    + loop("f.@ = F(r.<); extra.@ = mul(f.@); r.@ = relu(extra.@)", 3, 2),
    "last pass has no trailing operation": "x = input(); f.1 = F(x); r.1 = relu(f.1)\n"
    + loop("f.@ = F(r.<); r.@ = relu(f.@)", 2, 2)
    + "; f.9 = F(r.3); out = output(f.9)",
    "siamese twins merged by a difference": """
        a = input(); b = input()
        f.1 = F(a); r.1 = relu(f.1); p.1 = pool(r.1)
        f.2 = F(b); r.2 = relu(f.2); p.2 = pool(r.2)
        d = sub(p.1 p.2)""",
    "siamese twins in lockstep": """
        a = input(); b = input(); f.1 = F(a); f.2 = F(b); r.1 = relu(f.1); r.2 = relu(f.2)
        p.1 = pool(r.1); p.2 = pool(r.2); d = cat(p.1 p.2)""",
    "twins on the same input": "x = input(); r = relu(x); f.1 = F(r); f.2 = F(r); d = sub(f.1 f.2)",
    "siblings in one pass are two layers": "x = input(); start = zeros(x)\n"
    + loop("f.@ = F(start); one.@ = relu(f.@); two.@ = relu(f.@); s.@ = add(one.@ two.@)", 3),
    "siblings without recurrence": "x = input(); f = F(x); one = relu(f); two = relu(f); s = add(one two)",
    "same function at another argument position": """
        x = input(); y = input(); f.1 = F(x); one = sub(f.1 y); f.2 = F(one); two = sub(y f.2)""",
    "q, k, v branches": """
        x = input(); q = Q(x); k = K(x); v = V(x)
        qv = view(q); qp = permute(qv); kv = view(k); kp = permute(kv); vv = view(v); vp = permute(vv)
        att = matmul(qp kp); out = matmul(att vp)""",
    "q, k, v branches without parameters": """
        x = input(); a = view(x); b = permute(a); c = view(x); d = permute(c); e = view(x); f = permute(e)""",
    "a map over steps carries nothing": """
        x = input(); a = select(x); b = sin(a); c = select(x); d = sin(c); s = stack(b d)""",
    "handed over once is not carried on": """
        x = input(); y = input(); a = sin(x); b = cos(y); c = sin(b); d = cos(y)""",
    "two chains in lockstep are two layers": "x = input(); y = input(); a.1 = sin(x); b.1 = sin(y)\n"
    + loop("a.@ = sin(a.<); b.@ = sin(b.<)", 3, 2),
    "accumulating over steps": "x = input(); start = input()\n"
    + "x_t.1 = select(x); s.1 = sin(x_t.1); acc.1 = add(start s.1)\n"
    + loop("x_t.@ = select(x); s.@ = sin(x_t.@); acc.@ = add(acc.< s.@)", 3, 2),
    "a sum of many tensors": "x = input(); y = input(); z = input(); s = add(x y); t = add(s z); u = add(t x)",
    "adding the same tensor again and again": """
        x = input(); c = input(); s.1 = add(x c); s.2 = add(s.1 c); s.3 = add(s.2 c)""",
    "operand changes its position": "x = input(); c = input(); s = sub(x c); t = sub(c s)",
    "second loop right after the first, from another start": "x = input(); y = input()\n"
    + "a.1 = sin(x); b.1 = cos(a.1)\n"
    + loop("a.@ = sin(b.<); b.@ = cos(a.@)", 2, 2)
    + "\nc.1 = sin(y); d.1 = cos(c.1)\n"
    + loop("c.@ = sin(d.<); d.@ = cos(c.@)", 2, 2),
    "data flow breaks in the third pass": """
        x = input(); a.1 = sin(x); b.1 = cos(a.1); a.2 = sin(b.1); b.2 = cos(a.2)
        c = sin(b.1); d = cos(c); s = add(d b.2)""",
    "the skip of the third pass reaches elsewhere": """
        x = input(); y = input(); a.1 = sin(x); b.1 = mul(a.1 y); a.2 = sin(b.1); b.2 = mul(a.2 y)
        a.3 = sin(b.2); c = mul(a.3 a.2)""",
    "loop that remembers two passes": """
        x = input(); y = input(); n.1 = neg(x); h.1 = add(n.1 y); n.2 = neg(h.1); h.2 = add(n.2 x)
        n.3 = neg(h.2); h.3 = add(n.3 h.1); n.4 = neg(h.3); h.4 = add(n.4 h.2)""",
    "hand-written lstm": "x = input(); h0 = zeros(); c0 = zeros_like(x)\n"
    + "g.1 = G(x h0); i.1 = chunk0(g.1); f.1 = chunk1(g.1); o.1 = chunk2(g.1); "
    + "si.1 = sigmoid(i.1); sf.1 = sigmoid(f.1); so.1 = sigmoid(o.1); m.1 = mul(sf.1 c0); n.1 = mul(si.1 x); "
    + "c.1 = add(m.1 n.1); tc.1 = tanh(c.1); h.1 = mul(so.1 tc.1)\n"
    + loop(
        "g.@ = G(x h.<); i.@ = chunk0(g.@); f.@ = chunk1(g.@); o.@ = chunk2(g.@); "
        "si.@ = sigmoid(i.@); sf.@ = sigmoid(f.@); so.@ = sigmoid(o.@); m.@ = mul(sf.@ c.<); n.@ = mul(si.@ x); "
        "c.@ = add(m.@ n.@); tc.@ = tanh(c.@); h.@ = mul(so.@ tc.@)",
        3,
        2,
    ),
    "tied embedding and head": "x = input(); e = Embed(x); r = relu(e); h = Head(r); out = output(h)",
    "decoder meets encoder": """
        x = input(); e.1 = E(x); r.1 = relu(e.1); e.2 = E(r.1); r.2 = relu(e.2)
        mid = Mid(r.2); d.1 = D(mid); c.1 = cat(d.1 r.2); d.2 = D(c.1); c.2 = cat(d.2 r.1); out = output(c.2)""",
    "collected outputs are one operation": "x = input(); f.1 = F(x)\n"
    + loop("f.@ = F(f.<)", 3, 2)
    + "\nall = cat(f.1 f.2 f.3 f.4)",
    "operand used twice": "x = input(); f.1 = F(x); q.1 = mul(f.1 f.1); f.2 = F(q.1); q.2 = mul(f.2 f.2)",
    "growth into equal code after the loop": """
        x = input(); f.1 = F(x); r.1 = relu(f.1); s.1 = sin(r.1); odd = neg(s.1)
        f.2 = F(odd); r.2 = relu(f.2); s.2 = sin(r.2); far = cos(s.2)""",
    "parameters used once stop the growth": """
        x = input(); f.1 = F(x); a = A(f.1); r = relu(a); f.2 = F(r); b = B(f.2); s = relu(b)""",
    "layers seeded apart grow together": """
        x = input(); a.1 = A(x); t.1 = tanh(a.1); z.1 = Z(t.1); a.2 = A(z.1); t.2 = tanh(a.2); z.2 = Z(t.2)
        b.1 = B(z.2); t.3 = tanh(b.1); z.3 = Z(t.3); b.2 = B(z.3); t.4 = tanh(b.2); z.4 = Z(t.4)""",
    "shared layer between different pairs": """
        x = input(); a.1 = A(x); r.1 = relu(a.1); b.1 = B(r.1); s.1 = relu(b.1)
        a.2 = A(s.1); r.2 = relu(a.2); b.2 = B(r.2); s.2 = relu(b.2); out = output(s.2)""",
    "outputs are never grouped": "x = input(); f.1 = F(x); one = output(f.1); f.2 = F(x); two = output(f.2)",
    "fresh constant in every pass": "x = input(); c.1 = rand(); h.1 = mul(x c.1)\n"
    + loop("c.@ = rand(); h.@ = mul(h.< c.@)", 3, 2),
    "side output in every pass": "x = input(); h.1 = sin(x); o.1 = tanh(h.1)\n"
    + loop("h.@ = sin(h.<); o.@ = tanh(h.@)", 3, 2),
}


@pytest.mark.parametrize("text", GRAPHS.values(), ids=GRAPHS.keys())
def test_graph(text: str) -> None:
    operations, expected = program(text)
    assert find_layers(*operations) == expected


# Random programs ---------------------------------------------------------------------------------------------


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Nested blocks of calls, repeated or not; a call reads recent results, mostly the last one."""
    keys, param_keys, parents = [-1], [-1], [[]]
    block = st.recursive(
        st.tuples(st.just("call"), st.integers(0, 3), st.sampled_from([-1, -1, -1, 0, 1])),
        lambda inner: st.tuples(st.just("loop"), st.integers(1, 3), st.lists(inner, min_size=1, max_size=4)),
        max_leaves=6,
    )
    reads = st.lists(st.sampled_from([1, 1, 1, 1, 1, 2, 3, 5, 100]), min_size=1, max_size=2)

    def run(item: tuple[Any, ...], back: list[int]) -> None:
        if item[0] == "loop":
            offsets = [draw(reads) for _ in item[2]]
            for _ in range(item[1]):
                for part, distances in zip(item[2], offsets, strict=True):
                    run(part, distances)
        elif len(keys) < 26:
            parents.append([max(0, len(keys) - distance) for distance in back])
            keys.append(item[1])
            param_keys.append(item[1] * 2 + item[2] if item[2] >= 0 else -1)

    for item in draw(st.lists(block, min_size=1, max_size=5)):
        run(item, draw(reads))
    return keys, param_keys, parents


def lags(*parents: list[int]) -> Program:
    """The same parameter-free function everywhere."""
    return [-1, *[0] * (len(parents) - 1)], [-1] * len(parents), list(parents)


# An incomplete last pass that would run into the pass of a longer loop.
TAIL_AT_THE_END_OF_A_PASS = lags([], [0], [1], [1], [2], [3], [4], [6], [6], [7], [8], [10])
# Periods 4 and 6 both repeat, their common divisor 2 does not; three whole passes of 6 cover more than four of 4.
TWO_LAGS = lags(*[[]] * 6, *([i - 4, i - 6] for i in range(6, 24)))
# A folded loop that reads the same neighbour in each of its passes.
SAME_NEIGHBOUR = (
    [-1, *[0] * 15],
    [*[-1] * 10, 0, *[-1] * 4, 0],
    [[], [0, 0], [1, 0], [2], [3, 0], [4], [5, 1], [6], [7, 3], [8], [9], [10, 5], [11, 6], [12, 7], [9], [8]],
)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(programs())
@example(TAIL_AT_THE_END_OF_A_PASS)
@example(TWO_LAGS)
@example(SAME_NEIGHBOUR)
def test_agrees_with_the_rules_spelled_out(operations: Program) -> None:
    assert find_layers(*operations) == reference_layers(*operations)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.text("xyzW", max_size=20))
@example("xyyyxyyyyxyy")
@example("xyxxyxyxxyxyx")
def test_chains_agree_with_the_rules_spelled_out(word: str) -> None:
    assert find_layers(*chain(word)) == reference_layers(*chain(word))


@settings(max_examples=250, deadline=None, derandomize=True)
@given(programs())
@example(SAME_NEIGHBOUR)
def test_looking_at_all_passes_at_once_agrees_as_well(operations: Program) -> None:
    with patch("torchlens.graph.growth.MANY_PASSES", 0):
        assert find_layers(*operations) == reference_layers(*operations)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.booleans(), st.lists(st.integers(1, 7), max_size=2)), min_size=1, max_size=5
    )
)
def test_many_passes_agree_with_one_after_the_other(body: list[tuple[int, bool, list[int]]]) -> None:
    """A body that runs 14 times, each operation with its key, whether it has parameters, and how far back it reads."""
    keys, param_keys, parents = [-1], [-1], [[]]
    for _ in range(14):
        for number, (key, has_params, back) in enumerate(body):
            parents.append([max(0, len(keys) - distance) for distance in back])
            keys.append(key)
            param_keys.append(number if has_params else -1)
    with patch("torchlens.graph.growth.MANY_PASSES", 0):
        together = find_layers(keys, param_keys, parents)
    assert together == find_layers(keys, param_keys, parents)


def test_an_unrolled_rnn_is_looked_at_at_once() -> None:
    keys, param_keys, parents = [-1], [-1], [[]]
    for step in range(200):  # tanh(inward(x) + onward(hidden))
        first = len(keys)
        keys += [0, 0, 1, 2]
        param_keys += [0, 1, -1, -1]
        parents += [[0], [first - 1 if step else 0], [first, first + 1], [first + 2]]
    with patch("torchlens.graph.growth.grow_in_turn", side_effect=AssertionError("one after the other")):
        assert find_layers(keys, param_keys, parents) == [0, *[1, 2, 3, 4] * 200]


# What the answer may and may not depend on -------------------------------------------------------------------


@settings(max_examples=80, deadline=None, derandomize=True)
@given(programs(), st.permutations(range(10, 20)))
def test_only_equality_of_keys_matters(operations: Program, names: list[int]) -> None:
    keys, param_keys, parents = operations
    renamed = [-1 if key < 0 else names[key] * 2**58 for key in keys]
    renamed_params = [-1 if key < 0 else names[key] for key in param_keys]
    assert find_layers(renamed, renamed_params, parents) == find_layers(*operations)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(programs())
def test_an_unrelated_operation_at_the_end_changes_nothing(operations: Program) -> None:
    keys, param_keys, parents = operations
    before = find_layers(*operations)
    after = find_layers([*keys, 99], [*param_keys, -1], [*parents, [len(keys) - 1]])
    assert after == [*before, max(before) + 1]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(programs())
def test_layers_are_made_of_equal_operations_and_keep_parameters_together(operations: Program) -> None:
    keys, param_keys, _ = operations
    layers = find_layers(*operations)
    assert list(dict.fromkeys(layers)) == list(range(max(layers) + 1))
    first_of = {layer: layers.index(layer) for layer in layers}
    for i, layer in enumerate(layers):
        first = first_of[layer]
        assert (keys[i], param_keys[i]) == (keys[first], param_keys[first])
        assert i == first or keys[i] >= 0
        if param_keys[i] >= 0:
            assert first == param_keys.index(param_keys[i])


def test_one_more_pass_joins_the_loop() -> None:
    assert chain_layers("axyxy") == [0, 1, 2, 1, 2]
    assert chain_layers("axyxyxy") == [0, 1, 2, 1, 2, 1, 2]


def test_rule_1_does_not_ask_for_the_key() -> None:
    assert find_layers([-1, -1, 3], [5, 5, 5], [[], [0], [1]]) == [0, 0, 0]


def test_keys_may_be_large() -> None:
    assert find_layers([-1, 1, 1 + 2**62, 5], [-1] * 4, [[], [0], [1], [2, 2, 2]]) == [0, 1, 2, 3]


# Long programs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("period", [64, 65, 100, 129, 1000])
@pytest.mark.parametrize("passes", [2, 5])
def test_long_bodies(period: int, passes: int) -> None:
    body = [f"f{i % 50}.{i // 50 % 3}" if i % 7 else f"g{i}" for i in range(period)]
    layers = chain_layers(["start", *body * passes, "end"])
    assert layers == [0, *[1 + i for i in range(period)] * passes, period + 1]


def test_guessed_periods_find_what_the_exhaustive_search_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = random.Random(0)
    for _ in range(20):
        body = [numbers.choice("abcdefgh") for _ in range(numbers.randint(65, 300))]
        noise = [numbers.choice("abcdefgh") for _ in range(200)]
        operations = chain([*noise, "x", *body * numbers.randint(2, 4), "y", *noise])
        guessed = find_layers(*operations)
        with monkeypatch.context() as patch:
            patch.setattr(loops, "EXHAUSTIVE_PERIOD", 10**6)
            assert guessed == find_layers(*operations)


def test_many_carried_values_are_followed_up_to_a_limit() -> None:
    width = loops.FOLLOWED_VALUES + 44
    parents: list[list[int]] = [[] for _ in range(width)]
    parents += [[i] for i in range(3 * width)]  # that many independent chains in lockstep
    keys = [-1] * width + list(range(width)) * 3
    expected = list(range(width)) + list(range(width, 2 * width)) * 3
    assert find_layers(keys, [-1] * len(keys), parents) == expected


def test_multiples_of_a_known_period_are_not_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    examined = []
    feeds_itself = loops._LoopFinder._feeds_itself

    def spy(self: loops._LoopFinder, start: int, period: int) -> bool:
        examined.append(period)
        return feeds_itself(self, start, period)

    monkeypatch.setattr(loops._LoopFinder, "_feeds_itself", spy)
    find_layers(*chain("xyz" * 1000))
    assert examined == [3]


def lattice(size: int) -> Program:
    """The same two-operand function everywhere, reading at random distances: nothing fits, all of it nearly does."""
    numbers = random.Random(1)
    parents = [[max(0, i - numbers.randint(1, 5)), max(0, i - numbers.randint(1, 9))] for i in range(1, size)]
    return [-1] + [0] * (size - 1), [-1] * size, [[], *parents]


def crowded_cell(size: int) -> Program:
    """A recurrent layer whose passes all see the same equal siblings, read back by one operation each."""
    keys, param_keys, parents = [-1], [-1], [[]]
    state = 0
    while len(keys) < size:
        cell = len(keys)
        keys += [0, *[1] * 50, *[2] * 50, 3]
        param_keys += [0] + [-1] * 101
        parents += [[state], *([cell] for _ in range(50)), *([cell + 1 + i, cell] for i in range(50))]
        parents.append([cell + 51 + i for i in range(50)])
        state = len(keys) - 1
    return keys, param_keys, parents


def symbols(size: int, kinds: int) -> Program:
    numbers = random.Random(2)
    return chain([f"s{numbers.randrange(kinds)}" for _ in range(size)])


SCALING: dict[str, Callable[[int], Program]] = {
    "feed-forward": lambda n: (
        [-1, *[0, 1] * (n // 2)],
        [-1, *(key for i in range(n // 2) for key in (i, -1))],
        [[], *([i] for i in range(n // 2 * 2))],
    ),
    "recurrent": lambda n: chain("Wamr" * (n // 4)),
    "recurrent, long body": lambda n: chain(["W", *(f"s{i}" for i in range(100))] * (n // 101)),
    "period 1": lambda n: chain("x" * n),
    "period 3": lambda n: chain("xyz" * (n // 3)),
    "period 1000": lambda n: chain([f"s{i}" for i in range(1000)] * (n // 1000)),
    "two random symbols": lambda n: symbols(n, 2),
    "six random symbols": lambda n: symbols(n, 6),
    "nested": lambda n: chain(("x" + "yz" * 20 + "w") * (n // 42)),
    "nested in a recurrent layer": lambda n: chain(("W" + "yz" * 20 + "w") * (n // 42)),
    "two long twins": lambda n: chain(["W", *(f"s{i}" for i in range(n // 2)), "q"] * 2),
    "lattice": lattice,
    "crowded cell": crowded_cell,
}


@pytest.mark.parametrize("build", SCALING.values(), ids=SCALING.keys())
def test_time_is_nearly_linear(build: Callable[[int], Program]) -> None:
    """Eight times the operations take well below eight times eight; generous, since machines are busy."""

    def seconds(operations: Program) -> float:
        start = time.process_time()
        find_layers(*operations)
        return time.process_time() - start

    small, large = build(4_000), build(32_000)
    quick = min(seconds(small) for _ in range(2)) / len(small[0])
    slow = min(seconds(large) for _ in range(2)) / len(large[0])
    assert slow < 3 * quick + 3e-6
    assert slow < 40e-6
