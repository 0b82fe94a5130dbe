"""A picture as PNG, painted from its SVG by resvg."""

from __future__ import annotations

from ...errors import ArgumentError, DrawingError, DrawingWarning, warn
from .picture import Picture
from .svg import FONTS, print_svg

ZOOM = 2.0  # sharp on screens and in print
LONGEST = 32_000.0  # pixels along a side
MOST = 120e6  # pixels in all

_PROBE = (
    f'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><text y="9" font-family="{FONTS}">M</text></svg>'
)


def print_png(picture: Picture) -> bytes:
    try:
        import resvg_py
    except ImportError:
        raise ArgumentError(
            "Writing PNG needs the extra `png`: pip install 'forwardlens[png]'; svg and pdf need no extra"
        ) from None
    if resvg_py.svg_to_bytes(svg_string=_PROBE, dpi=96) == resvg_py.svg_to_bytes(
        svg_string=_PROBE.replace(">M<", "> <"), dpi=96
    ):
        raise DrawingError(
            "no font was found for the text of a PNG: install one (such as the system package "
            "fonts-dejavu), or write svg or pdf, which need none"
        )
    zoom = min(ZOOM, LONGEST / max(picture.width, picture.height), (MOST / (picture.width * picture.height)) ** 0.5)
    if zoom < 0.5:
        warn(
            f"the picture is {picture.width:.0f} x {picture.height:.0f} points, too large for a PNG at full size: "
            "the text may be too small to read; svg and pdf keep it sharp",
            DrawingWarning,
        )
    return bytes(resvg_py.svg_to_bytes(svg_string=print_svg(picture).decode(), zoom=zoom, dpi=96))
