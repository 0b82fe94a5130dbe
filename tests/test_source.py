"""Call sites and operators, on code that notes where it was called from."""

from __future__ import annotations

import dis
import gc
import linecache
import pickle
import sys
import weakref
from types import CodeType
from typing import Any

import pytest

from torchlens.source import FuncCallLocation, operator_name, per_code

ALEXNET = """\
class AlexNet:
    def forward(self, x):
        x = self.features(x)

        x = self.avgpool(x)
        x = self.classifier(x)
        return x
"""


def call_site(file: str) -> FuncCallLocation:
    """Where `AlexNet.forward` calls `classifier`."""
    linecache.cache[file] = (len(ALEXNET), None, ALEXNET.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {}
    exec(compile(ALEXNET, file, "exec"), namespace)
    model = namespace["AlexNet"]()
    model.features = model.avgpool = lambda x: x
    model.classifier = lambda x: FuncCallLocation(sys._getframe(1).f_code, sys._getframe(1).f_lasti)
    return model.forward(1)


def test_a_location_shows_where_it_is() -> None:
    location = call_site("/path/to/alexnet.py")
    assert repr(location) == (
        "FuncCallLocation:\n"
        "  file: /path/to/alexnet.py\n"
        "  line: 6\n"
        "  function: forward\n"
        "  code:\n"
        "          def forward(self, x):\n"
        "              x = self.features(x)\n"
        "\n"
        "              x = self.avgpool(x)\n"
        "    --->      x = self.classifier(x)\n"
        "              return x"
    )
    if sys.version_info >= (3, 11):
        assert location.qualname == "AlexNet.forward"


def test_the_arrow_is_right_at_the_top_of_a_file() -> None:
    source = "\ndef f(): return 1\n"
    linecache.cache["<top>"] = (1, None, source.splitlines(keepends=True), "<top>")
    location = FuncCallLocation.from_fields("<top>", 2, "f")
    assert location.code == "\n--->  def f(): return 1"


def test_the_older_keys_work() -> None:
    location = call_site("/path/to/alexnet.py")
    assert dict(location) == {
        "call_fname": "/path/to/alexnet.py",
        "call_linenum": 6,
        "function": "forward",
        "code_context": ALEXNET.splitlines(keepends=True)[1:7],
    }
    with pytest.raises(KeyError, match=r"no key 'lineno'.* call_fname, call_linenum, function, code_context"):
        location["lineno"]


def test_without_source_the_context_is_empty() -> None:
    location = FuncCallLocation(compile("f(x)", "<nowhere>", "eval"), 0)
    assert location.code_context == []
    assert location.code == ""
    assert repr(location).endswith("function: <module>\n  code: (source not available)")


def test_a_location_is_a_value() -> None:
    location = call_site("/path/to/alexnet.py")
    same = FuncCallLocation.from_fields("/path/to/alexnet.py", 6, "forward")
    assert location == same
    assert len({location, same}) == 1
    assert location != FuncCallLocation.from_fields("/path/to/alexnet.py", 7, "forward")
    with pytest.raises(AttributeError):
        location.line = 3  # type: ignore[misc]


def test_a_saved_location_keeps_its_text() -> None:
    location = call_site("/path/to/saved.py")
    saved = pickle.dumps(location)
    rebuilt = FuncCallLocation.from_fields(*(location[key] for key in location.keys()))  # noqa: SIM118
    del linecache.cache["/path/to/saved.py"]
    assert location.code == ""
    assert pickle.loads(saved).code == rebuilt.code != ""
    assert pickle.loads(saved).qualname == location.qualname


class Recorder:
    """Answers every operator, and notes which one the bytecode of its caller shows."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str | None]] = []


def _recording(name: str) -> Any:
    def method(self: Recorder, *_: Any) -> Any:
        caller = sys._getframe(1)
        self.seen.append((name, operator_name(caller.f_code, caller.f_lasti)))
        return True if name in ("__contains__", "__bool__") else self

    return method


SYMBOLS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow",
    "@": "matmul", "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
}  # fmt: skip
OPERATORS = {
    **{f"t {symbol} 1": f"__{name}__" for symbol, name in SYMBOLS.items()},
    **{f"t {symbol}= 1": f"__i{name}__" for symbol, name in SYMBOLS.items()},
    "t < 1": "__lt__", "t <= 1": "__le__", "t == 1": "__eq__", "t != 1": "__ne__", "t > 1": "__gt__",
    "t >= 1": "__ge__", "1 in t": "__contains__", "-t": "__neg__", "+t": "__pos__", "~t": "__invert__",
    "t[0]": "__getitem__", "t[0] = 1": "__setitem__", "del t[0]": "__delitem__",
}  # fmt: skip
for _name in [*OPERATORS.values(), "__bool__", "__radd__", "__call__", "method"]:
    setattr(Recorder, _name, _recording(_name))


@pytest.mark.parametrize("text", OPERATORS)
def test_every_operator_is_named(text: str) -> None:
    t = Recorder()
    # Often enough for the interpreter to specialise the instruction.
    exec(f"for _ in range(50): {text}", {"t": t})
    assert t.seen == [(OPERATORS[text], OPERATORS[text])] * 50


def test_operators_are_named_in_tests_slices_and_reflected() -> None:
    t = Recorder()
    if t > 1 and 1 not in t:
        pass
    t[1:2], 1 + t
    t[1:2] = 3
    operators = [operator for method, operator in t.seen if method != "__bool__"]
    assert operators == ["__gt__", "__contains__", "__getitem__", "__add__", "__setitem__"]


def test_what_is_no_operator_has_no_name() -> None:
    t = Recorder()
    t(1), t.method(2), t.method(t), not t
    assert t.seen == [("__call__", None), ("method", None), ("method", None), ("__bool__", None)]
    assert operator_name(_recording.__code__, -1) is None


def test_an_operator_far_into_a_function_is_named() -> None:
    # So many constants that loading them takes EXTENDED_ARG instructions in front.
    body = "".join(f"    t.method({i}.5)\n" for i in range(300)) + "    t - 0.123\n"
    namespace: dict[str, Any] = {}
    exec("def f(t):\n" + body, namespace)
    assert dis.EXTENDED_ARG in namespace["f"].__code__.co_code[::2]
    t = Recorder()
    namespace["f"](t)
    assert t.seen[-2:] == [("method", None), ("__sub__", "__sub__")]


def test_per_code_goes_by_identity_and_does_not_grow() -> None:
    asked: list[str] = []

    def compute(code: CodeType) -> str:
        asked.append(code.co_filename)
        return code.co_filename

    remember = per_code(compute, limit=2)
    one, twin = compile("1", "<one>", "eval"), compile("1", "<twin>", "eval")
    assert one == twin
    assert [remember(code) for code in (one, one, twin, one)] == ["<one>", "<one>", "<twin>", "<one>"]
    assert asked == ["<one>", "<twin>"]
    released = weakref.ref(one)
    del one
    remember(compile("2", "<two>", "eval"))
    gc.collect()
    assert released() is None
