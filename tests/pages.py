"""The examples of a page: its Python blocks run one after another, and what they show is what the page says.

A block ends like a cell of a notebook: if its last line is an expression, its value is shown. What a block shows stands
in the plain block that follows it; a block may show nothing. An expression with a comment `# -> value` has that value.
If the block is to raise, the last line of what it shows is the exception.
"""

from __future__ import annotations

import ast
import io
import re
import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(\n*^```(text)?\n(?P<shown>.*?)^```\n)?", re.MULTILINE | re.DOTALL)
_VALUE = re.compile(r"# -> (.*)$")


@dataclass(frozen=True)
class Block:
    code: str
    line: int  # in the page
    shown: str | None
    span: tuple[int, int]  # where the text shown is in the page


def blocks_of(text: str) -> list[Block]:
    """The Python blocks of a page."""
    blocks = [
        Block(match["code"], text.count("\n", 0, match.start()) + 2, match["shown"], match.span("shown"))
        for match in _BLOCK.finditer(text)
    ]
    assert len(blocks) == text.count("```python"), "a Python block that is indented would not be run"
    return blocks


def timeless(text: str) -> str:
    """Without what differs from run to run."""
    return re.sub(r"Time elapsed: .*", "Time elapsed:", text).strip()


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
        new, end, wrong = "", 0, []
        for block in blocks_of(self.text):
            shown = self._run(block)
            if block.shown is not None and timeless(shown) != timeless(block.shown):
                wrong.append(f"{self.path.name}:{block.line} shows\n{shown}\nand not\n{block.shown}")
                start, stop = block.span
                new, end = new + self.text[end:start] + shown.rstrip() + "\n", stop
        if wrong and update:
            self.path.write_text(new + self.text[end:], encoding="utf-8")
        assert update or not wrong, "\n".join(wrong) + "\npytest --update-golden accepts the change"

    def _run(self, block: Block) -> str:
        """What a block prints, and the value of its last expression."""
        lines_before = self._source.count("\n")
        self._source += block.code
        self.script.write_text(self._source, encoding="utf-8")  # for whoever shows a line of it
        statements = ast.parse("\n" * lines_before + block.code).body
        source = self._source.splitlines()
        shown = io.StringIO()
        with redirect_stdout(shown), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                for statement in statements:
                    value = self._execute(statement)
                    expected = _VALUE.search(source[(statement.end_lineno or 1) - 1])
                    if expected is not None:
                        assert repr(value) == expected[1], f"{source[statement.lineno - 1]}: it is {value!r}"
                if value is not None and not expected:
                    print(repr(value))
            except Exception as error:
                line = f"{type(error).__name__}: {error}"
                if block.shown is None or not block.shown.rstrip().splitlines()[-1].startswith(type(error).__name__):
                    raise AssertionError(f"{self.path.name}:{block.line} raised {line}") from error
                print(line)
        said = [f"{warning.category.__name__}: {warning.message}\n" for warning in warned]
        if said and block.shown is None:
            raise AssertionError(f"{self.path.name}:{block.line} warned {said}")
        return "".join(said) + shown.getvalue()

    def _execute(self, statement: ast.stmt) -> Any:
        """The value of an expression; None for other statements."""
        if isinstance(statement, ast.Expr):
            return eval(compile(ast.Expression(statement.value), str(self.script), "eval"), self.names)
        exec(compile(ast.Module([statement], []), str(self.script), "exec"), self.names)
        return None
