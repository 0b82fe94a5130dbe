"""The size of text, from the widths of Helvetica's characters; needs no font file.

Arial, Liberation Sans and the PDF base font have the same widths. Where another font is shown, the printers fit the
text into the width measured here.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import truediv

from ..view.elements import Text

#: Widths of the characters from space to ~, in thousandths of the font size.
_REGULAR = """
278 278 355 556 556 889 667 191 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556 556 556 278 278 584 584
584 556 1015 667 667 722 722 667 611 778 722 278 500 667 556 833 722 778 667 778 722 667 611 722 667 944 667 667 611 278
278 278 469 556 333 556 556 500 556 556 278 556 556 222 222 500 222 833 556 556 556 556 333 500 278 556 500 722 500 500
500 334 260 334 584
"""
_BOLD = """
278 333 474 556 556 889 722 238 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556 556 556 333 333 584 584
584 611 975 722 722 722 722 667 611 778 722 278 556 722 611 833 722 778 667 778 722 667 611 722 667 944 667 667 611 333
278 333 584 556 333 556 611 556 611 556 333 611 611 278 278 556 278 889 611 611 611 611 389 556 333 611 556 778 556 556
500 389 280 389 584
"""


class _Table(dict[str, float]):
    """The widths of all characters; those beyond ASCII are computed on demand."""

    def __missing__(self, character: str) -> float:
        width = self[character] = _width_beyond_ascii(character)
        return width


def _table(widths: str) -> _Table:
    return _Table({chr(32 + index): int(width) / 1000 for index, width in enumerate(widths.split())})


_WIDTHS = {False: _table(_REGULAR), True: _table(_BOLD)}

NODE_SIZE, EDGE_SIZE, GROUP_SIZE, TITLE_SIZE, NOTE_SIZE = 11.0, 9.5, 11.0, 14.0, 10.0
LEADING = 1.22  # height of a line, in font sizes
BASELINE = 0.92  # from a line's top to its baseline, in font sizes
WIDEST = 420.0  # longer lines are wrapped


@lru_cache(maxsize=50_000)
def text_width(text: str, size: float, bold: bool = False) -> float:
    """The width of a line of text.

    >>> text_width("relu", 10) < text_width("conv2d", 10) < text_width("conv2d", 10, bold=True)
    True
    """
    return size * sum(map(_WIDTHS[bold].__getitem__, text))


def _width_beyond_ascii(character: str) -> float:
    if unicodedata.combining(character):
        return 0.01
    return 1.0 if unicodedata.east_asian_width(character) in "WF" else 0.75


def block_size(lines: Iterable[Text], size: float) -> tuple[float, float]:
    """Width and height of lines set one under the other."""
    widths = [text_width(line.text, size, line.bold) for line in lines]
    return max(widths, default=0.0), len(widths) * size * LEADING


def wrapped(lines: Sequence[Text], size: float, widest: float = WIDEST) -> tuple[Text, ...]:
    """The same lines, with long ones wrapped; no character is lost."""
    for text, _ in lines:
        if len(text) * size >= widest or "\n" in text:
            return tuple(Text(part, line.bold) for line in lines for part in _wrap(line, size, widest))
    return tuple(lines)


def _wrap(line: Text, size: float, widest: float) -> list[str]:
    """
    >>> _wrap(Text("a list of parameters"), 10, 60)
    ['a list of', 'parameters']
    """
    parts = []
    for rest in line.text.splitlines() or [""]:
        while text_width(rest, size, line.bold) > widest:
            cut = _cut(rest, size, line.bold, widest)
            parts.append(rest[:cut].rstrip())
            rest = rest[cut:].lstrip()
        parts.append(rest)
    return parts


def _cut(text: str, size: float, bold: bool, widest: float) -> int:
    """Where to break a long line: after a space or punctuation, else anywhere."""
    room, fits = widest, 0
    while fits < len(text) and room > 0:
        room -= text_width(text[fits], size, bold)
        fits += room > 0
    fits = max(1, fits)
    for cut in range(fits, fits // 2, -1):
        if text[cut - 1] in " ,.;/_-)":
            return cut
    return fits


DEPTH = 7.0  # of a box3d's sides


def node_size(lines: Sequence[Text], shape: str) -> tuple[float, float]:
    """Width and height of a node with room for its text."""
    widths = [text_width(text, NODE_SIZE, bold) for text, bold in lines]
    height = len(widths) * NODE_SIZE * LEADING
    if shape == "box":
        return max([20.0, *widths]) + 16, height + 10
    if shape == "box3d":
        return max([20.0, *widths]) + 16 + DEPTH, height + 10 + DEPTH
    # the ellipse that holds the corners of every line; a short first or last line lets it be narrower
    half, shares = _ellipse(len(widths))
    return max([36.0, *map(truediv, widths, shares)]) + 10, 2 * half


@lru_cache(maxsize=1_000)
def _ellipse(lines: int) -> tuple[float, list[float]]:
    """Half the height of an ellipse around so many lines, and how much of its width each line can use."""
    line_height = NODE_SIZE * LEADING
    height = lines * line_height
    half = height * 0.66 + 3
    edges = [abs(index * line_height - height / 2) for index in range(lines + 1)]
    return half, [(1 - (max(pair) / half) ** 2) ** 0.5 for pair in itertools.pairwise(edges)]
