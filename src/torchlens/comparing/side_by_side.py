"""Two runs side by side: a row for each pair, a line where they meet."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike, fsdecode
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from ..draw.layout.layout import Rect
from ..draw.layout.measure import NODE_SIZE, text_width
from ..draw.output.formats import FORMATS
from ..draw.output.pdf import print_pdf
from ..draw.output.picture import Curve, Mark, Rectangle, Style, Words
from ..draw.output.png import print_png
from ..draw.output.svg import print_svg
from ..draw.show import open_in_viewer
from ..errors import ArgumentError
from ..notebook import in_notebook, show_inline, temporary_folder
from ..words import shape_words
from .operation_pairs import Row

if TYPE_CHECKING:
    from .comparison import Comparison

_MARGIN, _HEADING, _LINE, _ROW, _BOX, _GAP = 16.0, 64.0, 15.0, 26.0, 18.0, 90.0
_WIDTH = 90  # letters in a line of the verdict
_FONT, _MUTED = "#000000", "#606060"

#: Fill and line by what is known of a row; the words stand in the legend.
_COLORS = {
    "equal": ("#E6E6E6", "#8A8A8A"),
    "rounding": ("#CFE3F7", "#2C6CB0"),
    "differs": ("#F7CFCF", "#B02C2C"),
    "no partner": ("#FFFFFF", "#8A8A8A"),
}

_PRINTERS: dict[str, Any] = {"svg": print_svg, "pdf": print_pdf, "png": print_png}


@dataclass(frozen=True)
class TwoLanes:
    """A picture of rows, with all that the printers ask of one."""

    rows: list[Row]
    title: str
    answer: list[str]  # the verdict, in lines

    background = "#FFFFFF"
    gradients: frozenset[tuple[str, str]] = frozenset()

    @property
    def svg(self) -> bytes:
        made: bytes = _PRINTERS["svg"](self)
        return made

    @property
    def lane(self) -> float:
        """The width of the boxes."""
        names = [text for row in self.rows for text in _names(row)]
        return max([text_width(name, NODE_SIZE, False) for name in names], default=40.0) + 16

    @property
    def width(self) -> float:
        legend = sum(text_width(name, NODE_SIZE, False) + 34 for name in _COLORS)
        words = [text_width(self.title, NODE_SIZE, True), *(text_width(line, NODE_SIZE, False) for line in self.answer)]
        return 2 * _MARGIN + max(2 * self.lane + _GAP, legend, *words)

    @property
    def height(self) -> float:
        return 2 * _MARGIN + self._heading_height + len(self.rows) * _ROW

    @property
    def _heading_height(self) -> float:
        return _HEADING + len(self.answer) * _LINE

    @property
    def origin(self) -> tuple[float, float]:
        return _MARGIN, _MARGIN + self._heading_height

    @property
    def heading(self) -> Mark:
        """What is compared, what was found, and what the colours mean."""
        mark = Mark("heading", [], [_words(_MARGIN, _MARGIN + 12, self.title, _FONT, bold=True)])
        for number, line in enumerate(self.answer, 1):
            mark.words.append(_words(_MARGIN, _MARGIN + 12 + number * _LINE, line, _FONT))
        x, y = _MARGIN, _MARGIN + 26 + len(self.answer) * _LINE
        for name, (fill, line) in _COLORS.items():
            mark.shapes.append(Rectangle(Rect(x, y, 16.0, 12.0), Style(fill, line, dashed=name == "no partner")))
            mark.words.append(_words(x + 22, y + 10, name, _MUTED))
            x += text_width(name, NODE_SIZE, False) + 34
        return mark

    @property
    def graph(self) -> Iterator[Mark]:
        for number, row in enumerate(self.rows):
            yield from _marks(row, number * _ROW, self.lane)


def _marks(row: Row, y: float, lane: float) -> Iterator[Mark]:
    kind = _kind(row)
    fill, line = _COLORS[kind]
    first = row.status == "first difference"
    style = Style(fill, line, 2.5 if first else 1.0, kind == "no partner")
    if row.a and row.b:
        ends: list[tuple[float, ...]] = [(lane, y + _BOX / 2), (lane + _GAP, y + _BOX / 2)]
        error = "" if row.error is None else f"{row.error:.0e}" if row.error else "0"
        label = [_words(lane + _GAP / 2, y + _BOX / 2 - 2, error, line, centred=True)] if error else []
        yield Mark(f"{row.a} = {row.b}", [Curve(ends, Style(None, line, style.pen))], label)
    for x, name in zip((0.0, lane + _GAP), _names(row), strict=True):
        if name:
            box = Rectangle(Rect(x, y, lane, _BOX), style)
            words = [_words(x + lane / 2, y + _BOX - 5, name, _FONT, centred=True, bold=first)]
            yield Mark(f"{'A' if x == 0 else 'B'} {name}", [box], words, row.status)


def _kind(row: Row) -> str:
    if not row.a or not row.b:
        return "no partner"
    if row.status != "equal":
        return "differs"
    return "rounding" if row.error else "equal"


def _names(row: Row) -> tuple[str, str]:
    a = f"{row.a}  {shape_words(row.shape_a or ())}" if row.a else ""
    b = f"{row.b}  {shape_words(row.shape_b or ())}" if row.b else ""
    return a, b


def _words(x: float, y: float, text: str, color: str, *, centred: bool = False, bold: bool = False) -> Words:
    return Words(x, y, text, text_width(text, NODE_SIZE, bold), NODE_SIZE, bold, color, centred)


def draw_comparison(comparison: Comparison, path: str | PathLike[str] | None) -> FilePath:
    """Write the picture and show it: inline in a notebook, elsewhere in the system's viewer if no path was given."""
    inline = in_notebook()
    folder = temporary_folder() if inline else FilePath()
    file = folder / "comparison.svg" if path is None else FilePath(fsdecode(path))
    ending = file.suffix[1:].lower() or "svg"
    if ending not in _PRINTERS:
        raise ArgumentError(f"{str(file)!r}: the file must end in .svg, .pdf or .png")
    if not FORMATS[ending].is_available:
        raise ArgumentError(f"Writing {ending.upper()} needs the extra `png`: pip install 'forwardlens[png]'")
    file = file if file.suffix else file.with_suffix(".svg")
    picture = two_lanes(comparison)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_PRINTERS[ending](picture))
    except OSError as error:
        raise ArgumentError(
            f"can't write to {str(file)!r} ({getattr(error, 'strerror', None) or error}); give another path"
        ) from None
    if inline:
        return show_inline(picture.svg.decode(), f"Picture of {picture.title}", file)
    if path is None:
        open_in_viewer(file)
    return file


def two_lanes(comparison: Comparison) -> TwoLanes:
    """The picture of a comparison, with its verdict above."""
    title = f"A: {comparison._a.log.model_name}   B: {comparison._b.log.model_name}   {comparison.status}"
    return TwoLanes(comparison.rows, title, textwrap.wrap(comparison.verdict, _WIDTH))
