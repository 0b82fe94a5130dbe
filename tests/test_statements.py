"""Every way to ask for the truth of a value, on a stand-in for a tensor that notes who asks."""

from __future__ import annotations

import linecache
import random
import re
import sys
import textwrap
import time
from types import CodeType
from typing import Any

import pytest

from torchlens import statements
from torchlens.statements import Statement, find_statement

HAS_COLUMNS = sys.version_info >= (3, 11)

# T is true, F is false. Each comment names the events of its line: kind, source of the test, and the outcome
# that each recorded value decides. "needs columns" marks what cannot be told from the line alone.
TORTURE = """\
def torture(T, F, countdown, later):
    if T: pass                                  # if `T` True
    if T > 0: pass                              # if `T > 0` True
    if F.sum() > 0: pass                        # if `F.sum() > 0` False
    elif T.any(): pass                          # elif `T.any()` True
    if T.item() > 0: pass                       # if `T.item() > 0` None
    if F.item(): pass                           # if `F.item()` False
    if bool(F): pass                            # if `bool(F)` False
    if not F: pass                              # if `not F` True
    if not bool(T): pass                        # if `not bool(T)` False
    if not not T: pass                          # if `not not T` True
    if F and T: pass                            # if `F and T` False
    if T and F: pass                            # if `T and F` None False
    if F or T: pass                             # if `F or T` None True
    if T or F: pass                             # if `T or F` True
    if not T or F: pass                         # if `not T or F` None False
    if not (T and F): pass                      # if `not (T and F)` None True
    if F > 1 and T or T: pass                   # if `F > 1 and T or T` None True
    if None is None and T: pass                 # if `None is None and T` True
    if T < 2 < F: pass                          # if `T < 2 < F` None False
    if F < 2 < T: pass                          # if `F < 2 < T` False
    if (n := T): pass                           # if `n := T` True
    if (n := T.sum()) and n > 2: pass           # if `(n := T.sum()) and n > 2` None True
    if any([F, T]): pass                        # if `any([F, T])` None None
    if max(T, F) is T: pass                     # if `max(T, F) is T` None
    if bool(T and F): pass                      # if `bool(T and F)` None False
    if T in [F]: pass                           # if `T in [F]` None
    if f"{bool(T)}" == "": pass                 # if `f"{bool(T)}" == ""` None
    if int(T) == 3: pass                        # if `int(T) == 3` None
    if T: y = F or 1                            # if `T` True; boolop `F or 1` None; needs columns
    if T: y = bool(F)                           # if `T` True; call `bool(F)` False; needs columns
    if (T                                       # if `T > 5` True
          > 5                                   # a comment inside
       ): pass
    if (
        T.sum()                                 # if `T.sum() and F.sum().item()` None
        and F                                   # if `T.sum() and F.sum().item()` False at 36
        .sum()
        .item()
    ): pass
    "é"; y = "é" if F else "ü"; y = 1 if T else 2  # ternary `F` False; ternary `T` True; needs columns
    y = 1 if T and F else 2                     # ternary `T and F` None False
    if (T if F else F): pass                    # ternary `F` False; if `T if F else F` False; needs columns
    y = 1 if T else 2 if F else 3               # ternary `T` True
    while countdown: pass                       # while `countdown` True False
    while countdown.item() > 0 and T: break     # while `countdown.item() > 0 and T` None True
    while not T and F: pass                     # while `not T and F` False
    assert T                                    # assert `T` True
    assert T > 1, bool(F)                       # assert `T > 1` True
    assert not F and T, "message"               # assert `not F and T` None True
    y = [a for a in [T, F] if a]                # comprehension `a` True False
    y = {a for a in [T] if not a if a}          # comprehension `not a` False; needs columns
    [a for a in [T] if T if not a]  # comprehension `T` True; comprehension `not a` False; needs columns
    y = [a for a in [F] if a > 0 or F]          # comprehension `a > 0 or F` None False
    if [a for a in [F] if a]: pass              # comprehension `a` False; needs columns
    if any(bool(a) for a in [T]): pass          # if `any(bool(a) for a in [T])` None
    if all(a > 1 for a in [T, T]): pass         # if `all(a > 1 for a in [T, T])` None None
    match 1:
        case 2: pass
        case 1 if F: pass                       # guard `F` False
        case x if not F: pass                   # guard `not F` True
    match T:
        case 1: pass                            # guard `1` None
    try: raise ValueError
    except (ValueError if T else KeyError): pass  # ternary `T` True
    y = T and F                                 # boolop `T and F` None
    y = not (T and F)                           # boolop `not (T and F)` None True
    y = not T                                   # boolop `not T` False
    y = F < 2 < T                               # boolop `F < 2 < T` False
    y = bool(T)                                 # call `bool(T)` True
    y = bool(T) and 3                           # call `bool(T)` True
    y = max(T, F)                               # call `max(T, F)` None
    later(F and 1, not T)                       # boolop `F and 1` False; boolop `not T` False
    y = {**{}, "key": T and 1}                  # boolop `T and 1` None
    any(a for a in [T])                         # call `any(a for a in [T])` None
    y = f"{T and 1}"                            # boolop `T and 1` None; needs columns
    y = (lambda a: 1 if a else 2)(F)            # ternary `a` False
    if (lambda a: bool(a))(F): pass             # call `bool(a)` False; needs columns
    if (lambda a: a)(F): pass                   # if `(lambda a: a)(F)` False
    @later(1 if T else 2)                       # ternary `T` True
    @later(T and 3)                             # boolop `T and 3` None
    def inner(a=1, *, b=2, c=bool(F)):          # call `bool(F)` False
        if a: pass
        if F: return 1                          # if `F` False
        return 2 if T else 3                    # ternary `T` True
    inner()
    class Body:
        if T:                                   # if `T` True
            z = not F                           # boolop `not F` True
    for a in [T]:
        if F: pass                              # if `F` False
        elif not a: pass                        # elif `not a` False
        else:
            if a: pass                          # if `a` True
    with open("/dev/null") if T else later: pass  # ternary `T` True
    return T and F or later                     # boolop `T and F or later` None None
"""


class Value:
    """A stand-in for a tensor: all it computes is again a Value of the same truth."""

    def __init__(self, truth: bool | list[bool], sites: list[tuple[CodeType, int, bool]]) -> None:
        self.truth, self.sites = truth, sites

    def _ask(self) -> bool:
        truth = self.truth.pop(0) if isinstance(self.truth, list) else self.truth
        frame = sys._getframe(2)
        self.sites.append((frame.f_code, frame.f_lasti, truth))
        return truth

    def __bool__(self) -> bool:
        return self._ask()

    def item(self) -> int:
        return int(self._ask())

    __int__ = item

    def same(self, *_: Any) -> Value:
        return self

    sum = any = same
    __gt__ = __lt__ = __eq__ = same  # type: ignore[assignment]
    __hash__ = object.__hash__


def run(source: str, file: str, *args: Any) -> None:
    """Call the function `torture` of some source text, known to linecache as a notebook cell is."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {}
    exec(compile(source, file, "exec"), namespace)
    namespace["torture"](*args)


def keep(*_: Any) -> Any:
    """Serves as any function or decorator factory."""
    return lambda function: function


def events(source: str, file: str, function: Any = keep) -> list[tuple[Statement, bool]]:
    """Run some source text and find the statement of every event."""
    sites: list[tuple[CodeType, int, bool]] = []
    values = Value(True, sites), Value(False, sites), Value([True, False, True], sites)
    run(source, file, *values, function)
    return [(find_statement(code, lasti), value) for code, lasti, value in sites]


def expectations(source: str) -> list[tuple[int, str, str, bool | None, bool]]:
    """(line, kind, source, outcome, whether columns are needed) of every event, from the comments."""
    expected = []
    for number, line in enumerate(source.splitlines(), 1):
        comment = line.partition("  # ")[2]
        for kind, text, outcomes, at in re.findall(r"(\w+) `([^`]+)`((?: [TFN]\w+)+)(?: at (\d+))?", comment):
            for outcome in outcomes.split():
                result = {"True": True, "False": False, "None": None}[outcome]
                expected.append((int(at or number), kind, text, result, "needs columns" in comment))
    return expected


@pytest.mark.skipif(not HAS_COLUMNS, reason="Python 3.10 does not record the columns of instructions")
def test_every_kind_of_test() -> None:
    found = [(s.line, s.kind, s.source, s.outcome(value)) for s, value in events(TORTURE, "<torture>")]
    assert found == [expected[:4] for expected in expectations(TORTURE)]
    assert len(found) > 100  # the comments were understood


def test_without_columns_the_line_is_enough_for_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "_spans", lambda code: [])
    found = events(TORTURE, "<torture by line>")
    expected = expectations(TORTURE)
    assert len(found) == len(expected)
    for (statement, value), (line, kind, source, outcome, needs_columns) in zip(found, expected, strict=True):
        if needs_columns:
            continue
        assert (statement.kind, statement.line) == (kind, line), source
        assert statement.outcome(value) in (outcome, None), source
        if kind not in ("boolop", "call"):
            assert statement.source == source


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="since Python 3.12 comprehensions have no code object of their own"
)
def test_without_columns_a_comprehension_differs_from_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "_spans", lambda code: [])
    source = "def torture(T, F, *_):\n    if [a for a in [F] if a] or T > 1: pass\n"
    assert [(s.kind, s.source) for s, _ in events(source, "<comprehension>")] == [
        ("comprehension", "a"),
        ("if", "[a for a in [F] if a] or T > 1"),
    ]


@pytest.mark.skipif(
    sys.version_info >= (3, 12),
    reason="since Python 3.12 `and` can't be told from `if` without the columns of instructions",
)
def test_without_columns_a_test_of_one_value_has_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "_spans", lambda code: [])
    source = "def torture(T, F, *_):\n    if T: pass\n    while not T: pass\n    if max(T and F, 1): pass\n"
    outcomes = [(s.kind, s.outcome(value)) for s, value in events(source, "<outcomes by line>")]
    assert outcomes[:3] == [("if", True), ("while", False), ("if", None)]


def random_test(rng: random.Random, depth: int) -> str:
    if depth == 0:
        return rng.choice(["T", "F", "T > 1", "F.sum()", "F < 2 < T", "bool(T)", "F.item()", "(n := F)"])
    a, b, c = (random_test(rng, depth - 1) for _ in range(3))
    shapes = [a, f"not {a}", f"bool({a})", f"({a} and {b})", f"({a} or {b} or {c})", f"({a} if {b} else {c})"]
    return rng.choice(shapes)


@pytest.mark.skipif(not HAS_COLUMNS, reason="Python 3.10 does not record the columns of instructions")
def test_an_outcome_is_never_wrong_and_the_last_value_decides() -> None:
    rng = random.Random(0)
    for i in range(500):
        test = random_test(rng, 3)
        arms: list[bool] = []
        source = f"def torture(T, F, _, arm):\n    if {test}: arm(True)\n    else: arm(False)\n"
        found = [(s, s.outcome(value)) for s, value in events(source, f"<random {i}>", arms.append)]
        outcomes = [outcome for statement, outcome in found if statement.kind == "if"]
        assert set(outcomes) <= {None, *arms}, test
        if "< 2 <" not in test:  # the last link of a chain cannot be told from the others
            assert outcomes[-1] == arms[0], test


def test_arms_are_told_from_outcome() -> None:
    source = "def torture(T, F, *_):\n    if not T: pass\n"
    ((statement, value),) = events(source, "<arms>")
    assert statement.kind == "if"
    assert statement.outcome(value) in (False, None)
    if HAS_COLUMNS:
        assert statement.span == (2, 7, 2, 12)
        assert (statement.outcome(True), statement.outcome(False)) == (False, True)


def test_an_assert_that_pytest_rewrote_is_still_an_assert() -> None:
    sites: list[tuple[CodeType, int, bool]] = []
    T, F = Value(True, sites), Value(False, sites)
    assert T > 1
    assert not F
    found = [(find_statement(code, lasti), value) for code, lasti, value in sites[:]]
    assert [(s.kind, s.source) for s, _ in found] == [("assert", "T > 1"), ("assert", "not F")]
    if HAS_COLUMNS:
        assert [s.outcome(value) for s, value in found] == [True, True]


def test_without_source_the_kind_is_unknown() -> None:
    code = compile("x = 1 if y else 2", "<never registered>", "exec")
    assert find_statement(code, 2) == Statement("unknown", "<never registered>", 1, "")


def test_text_that_does_not_parse_is_as_good_as_none() -> None:
    code = compile("\nif 1 > y: pass", "<magic>", "exec")
    linecache.cache["<magic>"] = (1, None, ["%timeit\n", "if 1 > y: pass\n"], "<magic>")
    assert find_statement(code, len(code.co_code) - 2).kind == "unknown"


def test_a_file_that_became_shorter_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    code = compile("\n\n\ny = max(1, 2)", "<shorter>", "exec")
    linecache.cache["<shorter>"] = (1, None, ["y = 1\n"], "<shorter>")
    assert find_statement(code, len(code.co_code) - 2).source == ""
    monkeypatch.setattr(statements, "_spans", lambda code: [])
    assert find_statement(code, len(code.co_code) - 2).source == ""


def test_a_file_whose_text_changed_is_read_again() -> None:
    first = events("def torture(T, F, *_):\n    if T: pass\n", "<cell>")
    second = events("def torture(T, F, *_):\n    while F: pass\n", "<cell>")
    assert [s.kind for s, _ in first + second] == ["if", "while"]


def test_equal_code_in_two_files_is_not_confused() -> None:
    source = "def torture(T, F, *_):\n    assert T\n"
    found = events(source, "<cell 1>") + events(source, "<cell 2>")
    assert [s.file for s, _ in found] == ["<cell 1>", "<cell 2>"]


def test_a_caller_of_python_code_is_found_too() -> None:
    # In a warm loop, calling a Python function leaves f_lasti in the inline cache behind the call.
    source = """\
        def torture(ask):
            for _ in range(50):
                if ask() > 3: pass
    """
    sites: list[tuple[CodeType, int]] = []

    def ask() -> int:
        caller = sys._getframe(1)
        sites.append((caller.f_code, caller.f_lasti))
        return 0

    run(textwrap.dedent(source), "<warm>", ask)
    assert {(s.kind, s.source) for s in (find_statement(*site) for site in sites)} == {("if", "ask() > 3")}


def test_thousands_of_events_in_a_long_file_are_quick() -> None:
    body = "".join(f"    if T > {i}: x = [{i}, T.sum()]\n" for i in range(5_000))
    start = time.perf_counter()
    found = events("def torture(T, F, *_):\n" + body, "<long>")
    assert len(found) == 5_000
    assert found[-1][0].line == 5_001
    assert time.perf_counter() - start < 20
