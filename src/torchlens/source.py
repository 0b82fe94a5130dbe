"""Call sites for people: where in the user's code an operation was called, and with which operator.

A call site is recorded as `(code object, f_lasti)`, two references and nothing else. This file turns such a
pair into a file, a line and the text around it, but only when somebody asks.
"""

from __future__ import annotations

import dis
import linecache
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import CodeType
from typing import Any, Generic, TypeVar

__all__ = ["FuncCallLocation", "SavedCode", "instruction_start", "line_at", "operator_name", "per_code"]

LINES_BEFORE, LINES_AFTER = 4, 1
KEYS = ("call_fname", "call_linenum", "function", "code_context")

T = TypeVar("T")


class per_code(Generic[T]):
    """Compute something once per code object.

        @per_code
        def line_table(code): ...

    Code objects hash and compare by content: slow, and two equal ones may come from two files (a notebook
    cell run twice). So the key is the identity, which stays valid because the object is kept with its value.
    """

    def __init__(self, compute: Callable[[CodeType], T], limit: int = 256) -> None:
        self._compute, self._limit = compute, limit
        self._known: dict[int, tuple[CodeType, T]] = {}

    def __call__(self, code: CodeType) -> T:
        hit = self._known.get(id(code))
        if hit is None:
            if len(self._known) >= self._limit:
                self._known.clear()
            hit = self._known[id(code)] = (code, self._compute(code))
        return hit[1]


@dataclass(frozen=True, slots=True, eq=False)
class SavedCode:
    """What a saved log knows of a code object: the answers to what would be asked of the code itself.

    It stands in a loaded log where the code object stands in a new one. Nothing of it can be run.
    """

    co_filename: str
    co_name: str
    co_qualname: str | None
    is_library: bool  # torch's or this package's own, on the machine where it ran
    lines: dict[int, int] = field(default_factory=dict)  # by instruction
    operators: dict[int, str] = field(default_factory=dict)  # the dunder names, by instruction
    statements: dict[int, Any] = field(default_factory=dict)  # which asked a value for its truth, by instruction
    source: dict[int, str] = field(default_factory=dict)  # lines of the file that are worth showing, by number

    def context(self, line: int) -> tuple[str, ...]:
        around = range(max(1, line - LINES_BEFORE), line + LINES_AFTER + 1)
        return tuple(self.source[number] for number in around if number in self.source)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class FuncCallLocation:
    """One line of the user's code from which something was called.

    >>> where = log["fc"].func_call_stack[0]
    >>> where.function, where["call_linenum"] == where.line     # the older dict form has four keys
    ('forward', True)

    `print(where)` shows a few lines of the code, with an arrow.

    It is plain data: the code object is not kept, and the source is read when it is asked for.
    """

    file: str
    line: int
    function: str
    qualname: str | None = field(compare=False)
    _saved_context: tuple[str, ...] | None = field(compare=False)

    def __init__(self, code: CodeType | SavedCode, lasti: int) -> None:
        qualname = getattr(code, "co_qualname", None)  # since 3.11
        line = line_at(code, lasti)
        context = code.context(line) if isinstance(code, SavedCode) else None
        self._fill(code.co_filename, line, code.co_name, qualname, context)

    @classmethod
    def from_fields(
        cls,
        file: str,
        line: int,
        function: str,
        code_context: Sequence[str] | None = None,
        qualname: str | None = None,
    ) -> FuncCallLocation:
        """Rebuild a location from saved data.

            FuncCallLocation.from_fields(loc.file, loc.line, loc.function, loc.code_context)

        Without `code_context`, the text is read from `file` when it is asked for.
        """
        location = cls.__new__(cls)
        location._fill(file, line, function, qualname, None if code_context is None else tuple(code_context))
        return location

    def _fill(self, *values: Any) -> None:
        for name, value in zip(self.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, name, value)

    @property
    def code_context(self) -> list[str]:
        """The source lines around the call, as they stand in the file; empty if there is no source."""
        if self._saved_context is not None:
            return list(self._saved_context)
        return linecache.getlines(self.file)[max(0, self.line - 1 - LINES_BEFORE) : self.line + LINES_AFTER]

    @property
    def code(self) -> str:
        """The same lines, dedented, with an arrow at the call."""
        at = min(self.line - 1, LINES_BEFORE)
        context = self.code_context
        lines = textwrap.dedent("".join(context)).split("\n")[: len(context)]
        return "\n".join(f"{'--->' if i == at else '':6}{line}".rstrip() for i, line in enumerate(lines))

    def keys(self) -> tuple[str, ...]:
        return KEYS

    def __getitem__(self, key: str) -> Any:
        if key not in KEYS:
            raise KeyError(f"FuncCallLocation has no key {key!r}; its keys are {', '.join(KEYS)}")
        return dict(zip(KEYS, (self.file, self.line, self.function, self.code_context), strict=True))[key]

    def __repr__(self) -> str:
        code = "\n" + textwrap.indent(self.code, "    ") if self.code else " (source not available)"
        fields = f"file: {self.file}", f"line: {self.line}", f"function: {self.function}", f"code:{code}"
        return "\n  ".join(("FuncCallLocation:", *fields))

    def __reduce__(self) -> tuple[Any, ...]:
        # The text travels along: the reader of a saved log may not have the file.
        saved = self.file, self.line, self.function, self.code_context, self.qualname
        return FuncCallLocation.from_fields, saved


@per_code
def _line_table(code: CodeType) -> list[int | None]:
    """The line of each two-byte code unit."""
    return [line for start, end, line in code.co_lines() for _ in range(start, end, 2)]


def line_at(code: CodeType | SavedCode, lasti: int) -> int:
    """The line of an instruction; of one that has none, the first line of its function."""
    if isinstance(code, SavedCode):
        return code.lines[lasti]
    table = _line_table(code)
    line = table[lasti // 2] if 0 <= lasti < 2 * len(table) else None
    return code.co_firstlineno if line is None else line


def instruction_start(code: CodeType, lasti: int) -> int:
    """The offset of the instruction itself that `lasti` points at or near.

    While a Python function runs that was called without C in between, `lasti` of its caller may point at the
    inline cache (opcode 0) behind the instruction; on 3.10, at the EXTENDED_ARG before it.
    """
    units = code.co_code
    while lasti > 0 and units[lasti] == 0:
        lasti -= 2
    while units[lasti] == dis.EXTENDED_ARG:
        lasti += 2
    return lasti


def operator_name(code: CodeType | SavedCode, lasti: int) -> str | None:
    """The dunder method of the operator executed at an instruction, or None if it is not an operator.

        operator_name(frame.f_code, frame.f_lasti)     # a + b: "__add__", a += b: "__iadd__", f(a): None

    It is the operator as written: `1 + t` is "__add__", though Python ends up calling `t.__radd__`.
    """
    if isinstance(code, SavedCode):
        return code.operators.get(lasti)
    # Two bytes and a dict lookup: quicker than any cache. co_code is free of specialised opcodes, and an
    # operator's argument is below 256 on every Python, so EXTENDED_ARG never comes in.
    if lasti < 0:
        return None
    at = instruction_start(code, lasti)
    return _operators().get((code.co_code[at], code.co_code[at + 1]))


_BINARY = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod",
    "**": "pow", "@": "matmul", "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
}  # fmt: skip
_COMPARE = {
    "<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge",
    "in": "contains", "not in": "contains",
}  # fmt: skip
_OTHER = {
    "-a": "neg", "+a": "pos", "~a": "invert",
    "a[b]": "getitem", "a[b:c]": "getitem", "a[b] = c": "setitem", "a[b:c] = d": "setitem",
    "del a[b]": "delitem",
}  # fmt: skip


def _examples() -> Iterator[tuple[str, str]]:
    """(statement using one operator, name of its method)."""
    for symbol, name in _BINARY.items():
        yield f"a {symbol} b", name
        yield f"a {symbol}= b", "i" + name
    for symbol, name in _COMPARE.items():
        yield f"a {symbol} b", name
        yield f"if a {symbol} b: c", name  # since 3.13 a comparison in a test is encoded differently
    yield from _OTHER.items()


@cache
def _operators() -> dict[tuple[int, int], str]:
    """(opcode, argument) -> dunder name.

    Every Python encodes operators in its own way, so the running one is asked: it compiles an example of
    each, and what is in there beyond loading, storing and jumping is the operator.
    """
    plain = {i.opcode for text in ("a = b", "a", "del a", "if a: b") for i in _instructions(text)}
    return {
        (instruction.opcode, instruction.arg or 0): f"__{name}__"
        for text, name in _examples()
        for instruction in _instructions(text)
        if instruction.opcode not in plain and instruction.opname != "BUILD_SLICE"
    }


def _instructions(text: str) -> Iterator[dis.Instruction]:
    return dis.get_instructions(compile(text, "<example>", "exec"))
