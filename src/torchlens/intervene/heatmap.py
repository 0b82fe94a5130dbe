"""A heat map of effects as SVG, or as PNG where the extra is installed."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from ..errors import ArgumentError

_CELL, _ROW, _FONT = 22, 18, 11


def heat_map(rows: Sequence[Any], base_metric: float, path: Path, *, estimated: bool) -> Path:
    """Write the picture of rows with `site`, `index` and `effect`; return its path."""
    svg = _svg(rows, base_metric, estimated)
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
    return path


def _svg(rows: Sequence[Any], base_metric: float, estimated: bool) -> str:
    sites = list(dict.fromkeys(row.site for row in rows))
    indices = list(dict.fromkeys(row.index for row in rows))
    left = 10 + int(6.4 * max(map(len, sites), default=0))
    largest = max((abs(row.effect) for row in rows), default=0) or 1.0
    width, height = left + _CELL * len(indices) + 20, 60 + _ROW * len(sites)
    kind = "estimated effect" if estimated else "effect"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{max(width, 360)}" height="{height}" font-family="sans-serif" '
        f'font-size="{_FONT}"><rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="16">{kind} on the metric ({base_metric:.4g}); blue -{largest:.3g}, red +{largest:.3g}</text>',
    ]
    for row in rows:
        x, y = left + _CELL * indices.index(row.index), 40 + _ROW * sites.index(row.site)
        title = escape(f"{row.site} {'' if row.index is None else row.index}: {row.effect:+.4g}")
        parts.append(
            f'<rect x="{x}" y="{y}" width="{_CELL - 1}" height="{_ROW - 1}" fill="{_colour(row.effect / largest)}">'
            f"<title>{title}</title></rect>"
        )
    for number, site in enumerate(sites):
        parts.append(f'<text x="{left - 6}" y="{53 + _ROW * number}" text-anchor="end">{escape(site)}</text>')
    for number, index in enumerate(indices):
        if index is not None:
            label = ",".join(map(str, index))
            middle = left + _CELL * number + _CELL / 2
            parts.append(f'<text x="{middle}" y="34" text-anchor="middle" font-size="8">{label}</text>')
    return "".join(parts) + "</svg>\n"


def _colour(share: float) -> str:
    """White for nothing, red for more, blue for less."""
    faded = round(255 * (1 - min(abs(share), 1.0)))
    return f"rgb(255,{faded},{faded})" if share > 0 else f"rgb({faded},{faded},255)"
