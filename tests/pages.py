"""The examples of a page: its blocks run one after another, and what they show is what the page says.

A block ends like a cell of a notebook: if its last line is an expression, its value is shown. What a block shows stands
in the plain block that follows it; a block may show nothing. An expression with a comment `# -> value` has that value.
If the block is to raise, the last thing that it shows is the exception. In blocks for the shell, `torchlens` is run.

In a table whose second column is headed `one line` or `here`, the code in that column runs too, row by row, with the
names of the blocks above it.
"""

from __future__ import annotations

import ast
import difflib
import io
import re
import shlex
import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.torch_version import is_pinned, same_as_shown

from torchlens.cli import main
from torchlens.errors import TorchVersionError

_BLOCK = re.compile(
    r"^```(?P<language>python|sh)\n(?P<code>.*?)^```\n(\n*^```(text)?\n(?P<shown>.*?)^```\n)?", re.MULTILINE | re.DOTALL
)
_VALUE = re.compile(r"(?<=# -> ).*$")
_TABLE = re.compile(r"^\|[^|\n]*\| (?:one line|here) \|\n\|[-|]+\|\n(?P<rows>(?:\|.*\n)+)", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of a page, with where its code and what it shows stand in the text."""

    language: str
    code: str
    line: int
    code_span: tuple[int, int]
    shown: str | None
    shown_span: tuple[int, int]

    def may_raise(self, error: Exception) -> bool:
        return re.search(rf"^{type(error).__name__}\b", self.shown or "", re.MULTILINE) is not None


def blocks_of(text: str) -> list[Block]:
    """The blocks of a page that can be run."""
    blocks = [
        Block(
            language=match["language"],
            code=match["code"],
            line=text.count("\n", 0, match.start()) + 2,
            code_span=match.span("code"),
            shown=match["shown"],
            shown_span=match.span("shown"),
        )
        for match in _BLOCK.finditer(text)
    ]
    python = [block for block in blocks if block.language == "python"]
    assert len(python) == text.count("```python"), "a Python block that is indented would not be run"
    return blocks


def rows_of(text: str) -> list[tuple[int, list[str]]]:
    """The rows of the tables that run: where each stands in the text, and the pieces of code in its second cell."""
    rows = []
    for table in _TABLE.finditer(text):
        for row in re.finditer(r"^\|.* \| (.*) \|$", table["rows"], re.MULTILINE):
            rows.append((table.start("rows") + row.start(), re.findall("`(.+?)`", row[1])))
    return rows


def run_line(line: str, names: dict[str, Any]) -> Any:
    """The value of a line of Python; of a statement, or of one of our commands, None."""
    if line.startswith("torchlens "):
        in_shell(line)
        return None
    try:
        return eval(line, names)
    except SyntaxError:
        exec(line, names)
        return None


def timeless(text: str) -> str:
    """Without what differs from run to run, or from machine to machine: times, and sizes of files that hold paths."""
    return re.sub(r"(Time elapsed|Time): .*|\S+ KB(?= in \d+ files)", r"\1", text).strip()


def in_shell(code: str) -> str:
    """What our own commands print; others are for the reader."""
    shown = io.StringIO()
    with redirect_stdout(shown):
        for line in code.splitlines():
            if line.startswith("torchlens "):
                assert main(shlex.split(line)[1:]) == 0, line
    return shown.getvalue()


class Page:
    """Runs the blocks of a page in the current folder, as if they were one script of the page's name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text(encoding="utf-8")
        self.script = Path(path.stem.lower().replace("-", "_") + ".py")
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self._source = ""

    def check(self, update: bool) -> None:
        """Run all blocks; compare what they show with the page, or rewrite it."""
        changes = []
        rows = rows_of(self.text)
        for block in blocks_of(self.text):
            while rows and rows[0][0] < block.code_span[0]:
                self._run_row(rows.pop(0)[1])
            code, shown = self._run(block) if block.language == "python" else (block.code, in_shell(block.code))
            if code != block.code:
                changes.append((block.code_span, code))
            if block.shown is not None and timeless(shown) != timeless(block.shown):
                changes.append((block.shown_span, shown.rstrip() + "\n"))
        for _, lines in rows:
            self._run_row(lines)
        text = self.text
        for (start, stop), new in reversed(changes):
            text = text[:start] + new + text[stop:]
        if update and changes:
            self.path.write_text(text, encoding="utf-8")
        difference = "\n".join(
            difflib.unified_diff(self.text.splitlines(), text.splitlines(), "page", "run", n=1, lineterm="")
        )
        advice = f"{self.path.name}: pytest --update-golden accepts the change\n{difference}"
        same_as_shown("", "" if update else difference, advice)

    def _run(self, block: Block) -> tuple[str, str]:
        """The code of a block with the values that its expressions really have, and what it shows."""
        first = self._source.count("\n")
        self._source += block.code
        self.script.write_text(self._source, encoding="utf-8")  # for whoever shows a line of it
        lines = block.code.splitlines()
        shown = io.StringIO()
        with redirect_stdout(shown), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                for statement in ast.parse("\n" * first + block.code).body:
                    value = self._execute(statement)
                    last = (statement.end_lineno or 1) - first - 1
                    if _VALUE.search(lines[last]):
                        lines[last] = _VALUE.sub(lambda _, value=value: repr(value), lines[last])
                        value = None
                if value is not None:
                    print(repr(value))
            except TorchVersionError:
                if not is_pinned():
                    pytest.skip("the page shows something that this torch can't do, and an error says so")
                raise
            except Exception as error:
                if not block.may_raise(error):
                    where = f"{self.path.name}:{block.line}"
                    raise AssertionError(f"{where} raised {type(error).__name__}: {error}") from error
                print(f"{type(error).__name__}: {error}")
        said = "".join(f"{warning.category.__name__}: {warning.message}\n" for warning in warned)
        assert not said or block.shown is not None, f"{self.path.name}:{block.line} warned: {said}"
        return "\n".join(lines) + "\n", said + shown.getvalue()

    def _run_row(self, lines: list[str]) -> None:
        with redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("error")
            for line in lines:
                try:
                    run_line(line, self.names)
                except Exception as error:
                    raise AssertionError(
                        f"{self.path.name}: `{line}` raised {type(error).__name__}: {error}"
                    ) from error

    def _execute(self, statement: ast.stmt) -> Any:
        """The value of an expression; None for other statements."""
        if isinstance(statement, ast.Expr):
            expression = compile(ast.Expression(statement.value), str(self.script), "eval", dont_inherit=True)
            return eval(expression, self.names)
        exec(compile(ast.Module([statement], []), str(self.script), "exec", dont_inherit=True), self.names)
        return None
