"""A heat map of effects as SVG, or as PNG where the extra is installed."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from ..errors import ArgumentError

_CELL, _ROW, _FONT = 24, 20, 12
_WIDEST = 960  # pixels of all columns together; many columns are narrower, as far as that goes
_TOP, _BAR = 62, 200  # where the cells begin; the width of the colour bar

#: From the most negative effect over none to the most positive one.
_COLOURS = ((33, 102, 172), (146, 197, 222), (247, 247, 247), (244, 165, 130), (178, 24, 43))


def write_heat_map(svg: str, path: Path) -> None:
    if path.suffix == ".svg":
        path.write_text(svg, encoding="utf-8")
    elif path.suffix == ".png":
        try:
            resvg: Any = import_module("resvg_py")
        except ImportError as error:
            raise ImportError("Writing PNG needs the extra `png`: pip install 'forwardlens[png]'") from error
        path.write_bytes(bytes(resvg.svg_to_bytes(svg_string=svg, zoom=2)))
    else:
        raise ArgumentError(f"a heat map is written as .svg or .png, not {path.suffix or 'without an ending'!r}")


def heat_map(rows: Sequence[Any], title: str, along: str) -> str:
    """The SVG of rows with `site`, `index` and `effect`; `along` says what the columns are, "" if there is one."""
    sites = {site: number for number, site in enumerate(dict.fromkeys(row.site for row in rows))}
    indices = {index: number for number, index in enumerate(dict.fromkeys(row.index for row in rows))}
    cell = max(1, min(_CELL, _WIDEST // max(len(indices), 1)))
    gap = 1 if cell > 4 else 0
    left = 20 + int(6.9 * max(map(len, sites), default=0))
    largest = max((abs(row.effect) for row in rows), default=0) or 1.0
    bottom = _TOP + _ROW * len(sites)
    width = max(left + cell * len(indices) + 20, 20 + int(6.9 * len(title)), left + _BAR + 60)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom + 58}" '
        f'font-family="Helvetica, Arial, DejaVu Sans, sans-serif" font-size="{_FONT}">'
        f'<rect width="100%" height="100%" fill="white"/>{_text(10, 20, title, "start")}'
    ]
    if along:
        parts.append(_text(left, 40, along, "start", 'fill="#555"'))
    for row in rows:
        x, y = left + cell * indices[row.index], _TOP + _ROW * sites[row.site]
        tip = escape(f"{row.site}{'' if row.index is None else f' {_words(row.index)}'}: {row.effect:+.4g}")
        parts.append(
            f'<rect x="{x}" y="{y}" width="{cell - gap}" height="{_ROW - 1}" fill="{_colour(row.effect / largest)}">'
            f"<title>{tip}</title></rect>"
        )
    parts += [_text(left - 6, _TOP + 14 + _ROW * number, site, "end") for site, number in sites.items()]
    if along:
        parts += _numbers(list(indices), left, cell)
    return "".join([*parts, *_colour_bar(left, bottom + 18, largest)]) + "</svg>\n"


def _numbers(indices: Sequence[tuple[int, ...]], left: int, cell: int) -> list[str]:
    """What the columns are: every one, or every second, fifth, tenth ... so that they do not touch each other."""
    apart = 1 + (4 + 6 * max(len(_words(index)) for index in indices)) // cell
    step = next(step for power in count() for step in (10**power, 2 * 10**power, 5 * 10**power) if step >= apart)
    parts = []
    for number in range(0, len(indices), step):
        middle = left + cell * (number + 0.5)
        parts.append(_text(middle, _TOP - 6, _words(indices[number]), "middle", 'font-size="9"'))
        if step > 1:
            parts.append(f'<path d="M{middle:g} {_TOP - 4}v3" stroke="#555"/>')
    return parts


def _colour_bar(left: int, top: int, largest: float) -> list[str]:
    stops = "".join(
        f'<stop offset="{number / (len(_COLOURS) - 1):.0%}" stop-color="rgb{colour}"/>'
        for number, colour in enumerate(_COLOURS)
    )
    return [
        f'<linearGradient id="effects">{stops}</linearGradient>',
        f'<rect x="{left}" y="{top}" width="{_BAR}" height="10" fill="url(#effects)" stroke="#bbb"/>',
        _text(left, top + 24, f"-{largest:.3g}", "start", 'font-size="10"'),
        _text(left + _BAR / 2, top + 24, "0", "middle", 'font-size="10"'),
        _text(left + _BAR, top + 24, f"+{largest:.3g}", "end", 'font-size="10"'),
    ]


def _text(x: float, y: float, words: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" {more}>{escape(words)}</text>'


def _words(index: tuple[int, ...]) -> str:
    return ", ".join(map(str, index))


def _colour(share: float) -> str:
    """Between the two nearest of the colours; `share` of the largest effect, from -1 to 1."""
    at = (min(max(share, -1.0), 1.0) + 1) / 2 * (len(_COLOURS) - 1)
    first = min(int(at), len(_COLOURS) - 2)
    mixed = [round(a + (b - a) * (at - first)) for a, b in zip(_COLOURS[first], _COLOURS[first + 1], strict=True)]
    return f"rgb({','.join(map(str, mixed))})"
