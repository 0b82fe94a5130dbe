"""Which Python statement asked a value for its truth.

A bool is recorded with its call site, `(code object, f_lasti)`. From there:

    instruction -> columns in the source -> path through the syntax tree -> the innermost test on that path

Python 3.10 records no columns; there the innermost test on the instruction's line is taken.
"""

from __future__ import annotations

import ast
import dis
import linecache
import sys
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, Literal, TypeAlias

from .source import SavedCode, instruction_start, line_at, per_code

__all__ = ["Statement", "StatementKind", "find_statement"]

StatementKind = Literal[
    "if", "elif", "while", "assert", "ternary", "comprehension", "guard", "boolop", "call", "unknown"
]  # fmt: skip

# Line, column, end line, end column; columns count UTF-8 bytes, as in ast.
SourceSpan: TypeAlias = tuple[int, int, int, int]

# Syntax nodes, from a statement down to one of its expressions.
SyntaxPath: TypeAlias = list[Any]

# The truth of an expression if the recorded value is (true, false).
Truth: TypeAlias = tuple[bool | None, bool | None]

SAME: Truth = (True, False)
UNDECIDED: Truth = (None, None)

KINDS: dict[type, StatementKind] = {
    ast.If: "if",
    ast.While: "while",
    ast.Assert: "assert",
    ast.IfExp: "ternary",
    ast.comprehension: "comprehension",
    ast.match_case: "guard",
}

# Calls that return the recorded value itself. For any other call it is something seen on the way.
CONVERTING_CALLS = frozenset({"bool", "int", "float", "item", "tolist", "is_nonzero", "equal", "allclose"})
FILES_KEPT = 64
PYTHON: tuple[int, ...] = sys.version_info[:2]


@dataclass(frozen=True, slots=True)
class Statement:
    """The test (or other expression) in which a value became a bool.

        statement = find_statement(frame.f_code, frame.f_lasti)
        statement.kind, statement.source      # "if", "x.sum() > 0"
        statement.outcome(True)               # True: the body ran

    `kind` is "if", "elif", "while", "assert", "ternary", "comprehension" (its `if`) or "guard" (of a match
    case, or its pattern); outside any test "boolop" (and, or, not, a < b < c) or "call" (bool(t), max(t, u));
    and "unknown" without source. `line` is where the test begins.
    """

    kind: StatementKind
    file: str
    line: int
    source: str
    span: SourceSpan | None = None
    truth: Truth = UNDECIDED

    def outcome(self, value: bool) -> bool | None:
        """The truth of the whole test, given the recorded value; None if that value alone does not decide it.

        In `if not t` it is the opposite of t; in `if t and u` a false t decides, a true one does not.
        """
        return self.truth[0 if value else 1]


def find_statement(code: CodeType | SavedCode, lasti: int) -> Statement:
    """The statement that turned a value into a bool at this instruction.

        find_statement(frame.f_code, frame.f_lasti)

    The frame is the one that called `__bool__`, `item()` and the like, or a function that did.
    """
    if isinstance(code, SavedCode):
        known = code.statements.get(lasti)
        return known or Statement("unknown", code.co_filename, code.lines[lasti], "")
    event, text = _read_event(code, lasti), _read_source(code.co_filename)
    path, exact = text.path_to(event.span) if event.span else text.path_on_line(event)
    if not path:
        return Statement("unknown", code.co_filename, event.line, "")
    if event.converts:
        path = _down_to_operand(path, event)
    elif len(path) > 1 and isinstance(path[-2], ast.Call) and path[-1] is path[-2].func:
        path = path[:-1]  # from a function's name to the call
    top, kind = _find_test(path, text) or _find_expression(path, event)
    truth = _first_truth(path[-1], event) if exact else UNDECIDED
    for depth in range(len(path) - 1, top, -1):
        truth = _truth_through(path[depth - 1], path[depth], truth)
    node = path[top]
    if isinstance(node, ast.stmt):  # no expression was found in it
        return Statement(kind, code.co_filename, event.line, text.line(event.line))
    return Statement(kind, code.co_filename, node.lineno, text.of(node), _span_of(node), truth)


# --- the instruction ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Event:
    line: int
    span: SourceSpan | None  # of the expression whose value was asked; None where Python keeps no columns
    converts: bool  # the instruction itself asks for the truth, as opposed to a call that does so inside
    is_whole: bool  # the span is the instruction's own; if that is `not t`, it was t that was asked
    branches: bool  # it does so in a test for certain: unlike `f(not t)` or `f(t and u)`
    in_comprehension: bool


def _read_event(code: CodeType, lasti: int) -> _Event:
    at = instruction_start(code, max(lasti, 0))
    opcode, argument = code.co_code[at : at + 2]
    name = dis.opname[opcode]
    # Since 3.14 `any(...)` of a generator is a loop here that asks each value, and the columns are those of `any`.
    loops = dis.opname[code.co_code[_before(code, at)]] == "FOR_ITER"
    tests = not loops and (name in ("TO_BOOL", "UNARY_NOT") or "_IF_" in name)
    # Since 3.13 a comparison in a test turns its own result into a bool; bit 4 of the argument says so.
    compares = name == "COMPARE_OP" and PYTHON >= (3, 13) and bool(argument & 16)
    span = _operand_span(code, at) if tests else _span_at(code, at)
    return _Event(
        line=line_at(code, at),
        span=span,
        converts=tests or compares,
        is_whole=span == _span_at(code, at),
        branches=name.startswith("POP_JUMP") and PYTHON < (3, 12),  # since then, `and` and `or` use it too
        in_comprehension=code.co_name.endswith(("comp>", "genexpr>")),
    )


def _operand_span(code: CodeType, at: int) -> SourceSpan | None:
    """The columns of the operand that a testing instruction takes.

    The instruction before it computed the operand, so it has its columns. The instruction's own are those of
    the whole `a and b`, on 3.11 of some expression or statement nearby. From 3.12 on they serve as a check,
    because since 3.13 the instruction before may be a fused pair, which has the columns of its first half.
    """
    own, operand = _span_at(code, at), _span_at(code, _before(code, at))
    if PYTHON < (3, 12) or (own and operand and _contains(own, operand)):
        return operand
    return own


def _before(code: CodeType, at: int) -> int:
    """Where the instruction before begins, over those that compute nothing."""
    before = at - 2
    while before > 0 and dis.opname[code.co_code[before]] in ("CACHE", "COPY", "SWAP", "NOP", "EXTENDED_ARG"):
        before -= 2
    return max(before, 0)


def _span_at(code: CodeType, at: int) -> SourceSpan | None:
    spans = _spans(code)
    return spans[at // 2] if spans else None


@per_code
def _spans(code: CodeType) -> list[SourceSpan | None]:
    """The columns of each two-byte code unit."""
    if PYTHON < (3, 11):
        return []
    positions = ((line, column, end, end_column) for line, end, column, end_column in code.co_positions())
    return [None if None in span else span for span in positions]  # type: ignore[misc]


# --- the source -----------------------------------------------------------------------------------


class _SourceText:
    """One parsed file, with its statements in order, so that the one at a position is found by bisection."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self._parent = dict(_statements_under(_parse(lines), None))
        self._statements = list(self._parent)
        self._starts = [_span_of(statement)[:2] for statement in self._statements]

    def path_to(self, span: SourceSpan) -> tuple[SyntaxPath, bool]:
        """The innermost expression that contains a span, below its statement; and whether that is certain."""
        for statement in self._enclosing(bisect_right(self._starts, span[:2]) - 1):
            if _contains(_span_of(statement), span):
                return _path_within(statement, span), True
        return [], False

    def path_on_line(self, event: _Event) -> tuple[SyntaxPath, bool]:
        """The innermost test on a line; certain only if it is the only one."""
        first = bisect_left(self._starts, (event.line, 0))
        last = bisect_left(self._starts, (event.line + 1, 0)) - 1
        nearby = [*self._enclosing(last), *self._statements[first:last]]
        tests = [path for node in dict.fromkeys(nearby) for path in _tests_on_line([node], event.line)]
        if not tests:
            return nearby[:1], False
        fitting = [p for p in tests if isinstance(p[-2], ast.comprehension) == event.in_comprehension]
        return min(fitting or tests, key=_size), event.branches and len(tests) == 1

    def _enclosing(self, index: int) -> Iterator[ast.stmt]:
        statement = self._statements[index] if index >= 0 else None
        while statement is not None:
            yield statement
            statement = self._parent[statement]

    def line(self, number: int) -> str:
        return "".join(self.lines[number - 1 : number]).strip()

    def of(self, node: Any) -> str:
        """The text of an expression, on one line."""
        line, column, end, end_column = _span_of(node)
        if line == end:
            return self.lines[line - 1].encode()[column:end_column].decode()
        return " ".join(ast.unparse(node).split())


_sources: dict[str, _SourceText] = {}


def _read_source(file: str) -> _SourceText:
    # linecache also knows notebook cells. It hands out the same list until the text changes.
    lines = linecache.getlines(file)
    known = _sources.get(file)
    if known is None or known.lines is not lines:
        if len(_sources) >= FILES_KEPT:
            _sources.clear()
        known = _sources[file] = _SourceText(lines)
    return known


def _parse(lines: list[str]) -> ast.AST:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the user was warned when the code was first compiled
        try:
            return ast.parse("".join(lines))
        except (SyntaxError, ValueError, RecursionError):
            return ast.parse("")


def _statements_under(node: ast.AST, parent: ast.stmt | None) -> Iterator[tuple[ast.stmt, ast.stmt | None]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child, parent
            yield from _statements_under(child, child)
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            yield from _statements_under(child, parent)


# --- the syntax tree ------------------------------------------------------------------------------


def _span_of(node: Any) -> SourceSpan:
    first = node.decorator_list[0] if getattr(node, "decorator_list", None) else node
    return first.lineno, first.col_offset, node.end_lineno, node.end_col_offset


def _contains(outer: SourceSpan, inner: SourceSpan) -> bool:
    return outer[:2] <= inner[:2] and inner[2:] <= outer[2:]


def _size(path: SyntaxPath) -> tuple[bool, int, int]:
    """Small is innermost; but a guard comes before its pattern."""
    line, column, end, end_column = _span_of(path[-1])
    return isinstance(path[-1], ast.pattern), end - line, end_column - column


def _expressions(node: ast.AST) -> Iterator[Any]:
    """The children of a node, without the statements of a body (they are many, and found by bisection)."""
    for _, value in ast.iter_fields(node):
        children = value if isinstance(value, list) else [value]
        if children and not isinstance(children[0], ast.stmt):
            yield from (child for child in children if isinstance(child, ast.AST))


def _path_within(node: ast.AST, span: SourceSpan) -> SyntaxPath:
    placed = hasattr(node, "lineno")  # comprehensions and match cases have no position of their own
    if placed and not _contains(_span_of(node), span):
        return []
    for child in _expressions(node):
        if below := _path_within(child, span):
            return [node, *below]
    return [node] if placed else []


def _tests_on_line(path: SyntaxPath, line: int) -> Iterator[SyntaxPath]:
    parent = path[-1]
    for child in _expressions(parent):
        if _is_test(child, parent) and getattr(parent, "lineno", child.lineno) <= line <= child.end_lineno:
            yield [*path, child]
        yield from _tests_on_line([*path, child], line)


def _is_test(node: ast.AST, parent: ast.AST) -> bool:
    match parent:
        case ast.If() | ast.While() | ast.Assert() | ast.IfExp():
            return node is parent.test
        case ast.comprehension():
            return node in parent.ifs
        case ast.match_case():
            return node in (parent.guard, parent.pattern)
    return False


def _is_not(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _down_to_operand(path: SyntaxPath, event: _Event) -> SyntaxPath:
    """From a whole statement to its test, and from `not t` to t, since t is what was asked."""
    node = path[-1]
    if isinstance(node, ast.If | ast.While | ast.Assert):
        return _down_to_operand([*path, node.test], event)
    if _is_not(node) and event.is_whole:
        return _down_to_operand([*path, node.operand], event)
    return path


def _find_test(path: SyntaxPath, text: _SourceText) -> tuple[int, StatementKind] | None:
    """The depth and kind of the innermost test on the path."""
    for depth in range(len(path) - 1, 0, -1):
        node, parent = path[depth], path[depth - 1]
        if _is_test(node, parent):
            return depth, _kind(parent, text)
        if isinstance(parent, ast.Lambda):  # a function of its own, wherever it is written
            return None
    return None


def _kind(owner: Any, text: _SourceText) -> StatementKind:
    if isinstance(owner, ast.If) and text.lines[owner.lineno - 1].startswith("elif", owner.col_offset):
        return "elif"
    return KINDS[type(owner)]


def _find_expression(path: SyntaxPath, event: _Event) -> tuple[int, StatementKind]:
    """Outside any test: the whole of `a and not b`, or the call."""
    depth = len(path) - 1
    if not event.converts:
        return depth, "call"
    while depth > 0 and (isinstance(path[depth - 1], ast.BoolOp) or _is_not(path[depth - 1])):
        depth -= 1
    return depth, "boolop"


# --- what one value says about the whole test -----------------------------------------------------


def _first_truth(node: ast.AST, event: _Event) -> Truth:
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if not event.converts:
            return SAME if name in CONVERTING_CALLS else UNDECIDED
        case ast.Compare(ops=[_, _, *_]) if event.converts:
            return None, False  # a < b < c asks for each link; one that fails decides
        case ast.BoolOp() | ast.pattern():
            return UNDECIDED  # some operand, but not known which
    return SAME if event.converts else UNDECIDED


def _truth_through(parent: ast.AST, node: ast.AST, truth: Truth) -> Truth:
    """From the truth of an operand to that of the expression around it."""
    match parent:
        case ast.UnaryOp(op=ast.Not()):
            if_true, if_false = truth
            return None if if_true is None else not if_true, None if if_false is None else not if_false
        case ast.BoolOp(op=op, values=[*_, last]) if node is not last:
            decisive = isinstance(op, ast.Or)
            return tuple(one if one is decisive else None for one in truth)  # type: ignore[return-value]
        case ast.BoolOp() | ast.IfExp() | ast.NamedExpr():
            return truth
        case ast.Call(func=ast.Name(id="bool")) if node in parent.args:
            return truth
    return UNDECIDED
