"""What a notebook shows of a comparison: the answer, then the aligned table."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ..log.html import MOST_ROWS, block
from ..words import counted
from .comparison_text import HEADS, answer_lines, cells_of, rows_around
from .operation_pairs import Row

if TYPE_CHECKING:
    from .comparison import Comparison

_ROWS_BEFORE = 20
_DIFFERS = "background: rgba(213, 94, 0, .15)"


def comparison_html(comparison: Comparison) -> str:
    verdict, *more = answer_lines(comparison)
    lines = "".join(f"<div>{escape(line.strip())}</div>" for line in more)
    return block(f"<b>{escape(verdict)}</b>{lines}{_table(comparison)}")


def _table(comparison: Comparison) -> str:
    begin, shown = rows_around(comparison, _ROWS_BEFORE, MOST_ROWS - _ROWS_BEFORE)
    heads = "".join(f"<th>{head}</th>" for head in HEADS)
    rows = "".join(map(_row, shown))
    left_out = [(begin, "before"), (len(comparison.rows) - begin - len(shown), "after")]
    notes = ", ".join(f"... {counted(count, 'row')} {where}" for count, where in left_out if count)
    is_open = "" if comparison.status == "identical" else ' open=""'
    table = f'<div class="rows"><table><tr>{heads}</tr>{rows}</table><div>{notes}</div></div>'
    return f"<details{is_open}><summary>{counted(len(comparison.rows), 'row')}</summary>{table}</details>"


def _row(row: Row) -> str:
    style = "" if row.status == "equal" else f' style="{_DIFFERS}"'
    words = [f"<b>{escape(cell)}</b>" if row.status == "first difference" else escape(cell) for cell in cells_of(row)]
    return f"<tr{style}>{''.join(f'<td>{cell}</td>' for cell in words)}</tr>"
