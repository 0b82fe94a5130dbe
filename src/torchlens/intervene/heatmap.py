"""A heat map of effects as SVG, or as PNG where the extra is installed."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import ArgumentError

_CELL, _ROW, _FONT = 24, 20, 12
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
    left = 20 + int(6.9 * max(map(len, sites), default=0))
    largest = max((abs(row.effect) for row in rows), default=0) or 1.0
    bottom = _TOP + _ROW * len(sites)
    width = max(left + _CELL * len(indices) + 20, 20 + int(6.9 * len(title)), left + _BAR + 60)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom + 58}" '
        f'font-family="Helvetica, Arial, DejaVu Sans, sans-serif" font-size="{_FONT}">'
        f'<rect width="100%" height="100%" fill="white"/>{_text(10, 20, title, "start")}'
    ]
    if along:
        parts.append(_text(left, 40, along, "start", 'fill="#555"'))
    for row in rows:
        x, y = left + _CELL * indices[row.index], _TOP + _ROW * sites[row.site]
        tip = escape(f"{row.site}{'' if row.index is None else f' {_words(row.index)}'}: {row.effect:+.4g}")
        parts.append(
            f'<rect x="{x}" y="{y}" width="{_CELL - 1}" height="{_ROW - 1}" fill="{_colour(row.effect / largest)}">'
            f"<title>{tip}</title></rect>"
        )
    parts += [_text(left - 6, _TOP + 14 + _ROW * number, site, "end") for site, number in sites.items()]
    if along:
        step = 1 + max(len(_words(index)) for index in indices) * 6 // _CELL  # labels do not touch each other
        shown = [(index, number) for index, number in indices.items() if number % step == 0]
        parts += [
            _text(left + _CELL * (number + 0.5), _TOP - 6, _words(index), "middle", 'font-size="9"')
            for index, number in shown
        ]
    return "".join([*parts, *_colour_bar(left, bottom + 18, largest)]) + "</svg>\n"


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
    return ",".join(map(str, index))


def _colour(share: float) -> str:
    """Between the two nearest of the colours; `share` of the largest effect, from -1 to 1."""
    at = (min(max(share, -1.0), 1.0) + 1) / 2 * (len(_COLOURS) - 1)
    first = min(int(at), len(_COLOURS) - 2)
    mixed = [round(a + (b - a) * (at - first)) for a, b in zip(_COLOURS[first], _COLOURS[first + 1], strict=True)]
    return f"rgb({','.join(map(str, mixed))})"
