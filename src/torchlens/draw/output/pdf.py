"""A picture as PDF, with the standard fonts that every PDF reader has."""

from __future__ import annotations

import zlib
from functools import lru_cache

from ..layout.measure import text_width
from ..view.theme import color as as_hex
from .picture import Curve, Ellipse, Mark, Picture, Rectangle, Shape, Style, Words

LARGEST = 14_400.0  # of a page, in its units; larger ones get larger units


def print_pdf(picture: Picture) -> bytes:
    unit = max(1.0, -(-max(picture.width, picture.height) // LARGEST))
    shadings: dict[tuple[str, str], str] = {}
    page = f"0 0 {picture.width / unit:.3f} {picture.height / unit:.3f}"
    left, top = picture.origin
    lines = [f"{1 / unit:.6f} 0 0 {-1 / unit:.6f} 0 {picture.height / unit:.3f} cm"]  # y downwards from the top
    if _painted(picture.background):
        lines.append(f"{_rgb(picture.background)} rg 0 0 {picture.width:.1f} {picture.height:.1f} re f")
    _print_mark(picture.heading, lines, shadings)
    lines.append(f"1 0 0 1 {left:.1f} {top:.1f} cm")
    for mark in picture.graph:
        _print_mark(mark, lines, shadings)
    content = zlib.compress("\n".join(lines).encode("ascii"))

    shading = " ".join(f"/{name} {_shading(first, second)}" for (first, second), name in shadings.items())
    font = "<</Type/Font/Subtype/Type1/Encoding/WinAnsiEncoding/BaseFont/"
    return _file(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            f"<</Type/Page/Parent 2 0 R/MediaBox[{page}]/UserUnit {unit:g}/Contents 4 0 R"
            f"/Resources<</Font<</F1 5 0 R/F2 6 0 R>>/Shading<<{shading}>>>>>>".encode(),
            b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(content), content),
            f"{font}Helvetica>>".encode(),
            f"{font}Helvetica-Bold>>".encode(),
        ]
    )


def _file(objects: list[bytes]) -> bytes:
    """The objects, numbered from 1, and the table of where each begins."""
    parts, at, begins = [b"%PDF-1.6\n%\xe2\xe3\xcf\xd3\n"], 15, []
    for number, body in enumerate(objects, start=1):
        begins.append(at)
        parts.append(b"%d 0 obj\n%s\nendobj\n" % (number, body))
        at += len(parts[-1])
    entries = b"".join(b"%010d 00000 n \n" % begin for begin in begins)
    count = len(objects) + 1
    parts.append(b"xref\n0 %d\n0000000000 65535 f \n%s" % (count, entries))
    parts.append(b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (count, at))
    return b"".join(parts)


def _print_mark(mark: Mark, lines: list[str], shadings: dict[tuple[str, str], str]) -> None:
    for shape in mark.shapes:
        _print_shape(shape, lines, shadings)
    for words in mark.words:
        lines.append(_words(words))


def _print_shape(shape: Shape, lines: list[str], shadings: dict[tuple[str, str], str]) -> None:
    style, outline = shape.style, _outline(shape)
    fill = style.fill if _painted(style.fill) else None
    line = style.line if _painted(style.line) else None
    if fill and style.fill2:
        name = shadings.setdefault((fill, style.fill2), f"S{len(shadings) + 1}")
        left, width = _span(shape)
        lines.append(f"q {outline} W n {width:.2f} 0 0 1 {left:.2f} 0 cm /{name} sh Q")
        fill = None
    elif fill:
        lines.append(f"{_rgb(fill)} rg")
    if line:
        lines.append(_pen(style))
    if fill or line:
        lines.append(f"{outline} {'B' if fill and line else 'f' if fill else 'S'}")


@lru_cache(maxsize=10_000)
def _pen(style: Style) -> str:
    return f"{_rgb(style.line or '')} RG {style.pen:g} w {'[5 3]' if style.dashed else '[]'} 0 d"


def _outline(shape: Shape) -> str:
    if isinstance(shape, Curve):
        start, *rest = shape.route
        parts = ["{:.2f} {:.2f} m".format(*start)]
        for command in rest:
            parts.append(("%.2f %.2f l" if len(command) == 2 else "%.2f %.2f %.2f %.2f %.2f %.2f c") % command)
        return " ".join(parts) + (" h" if shape.closed else "")
    x, y, width, height = shape.rect.x, shape.rect.y, shape.rect.width, shape.rect.height
    if isinstance(shape, Rectangle):
        return f"{x:.2f} {y:.2f} {width:.2f} {height:.2f} re"
    return _ellipse(x + width / 2, y + height / 2, width / 2, height / 2)


def _ellipse(x: float, y: float, rx: float, ry: float) -> str:
    """An ellipse out of four curves."""
    kx, ky = rx * 0.5523, ry * 0.5523
    return (
        f"{x + rx:.2f} {y:.2f} m {x + rx:.2f} {y + ky:.2f} {x + kx:.2f} {y + ry:.2f} {x:.2f} {y + ry:.2f} c "
        f"{x - kx:.2f} {y + ry:.2f} {x - rx:.2f} {y + ky:.2f} {x - rx:.2f} {y:.2f} c "
        f"{x - rx:.2f} {y - ky:.2f} {x - kx:.2f} {y - ry:.2f} {x:.2f} {y - ry:.2f} c "
        f"{x + kx:.2f} {y - ry:.2f} {x + rx:.2f} {y - ky:.2f} {x + rx:.2f} {y:.2f} c h"
    )


def _span(shape: Shape) -> tuple[float, float]:
    """The start and end points of a gradient."""
    if isinstance(shape, Rectangle | Ellipse):
        return shape.rect.x, shape.rect.width
    lefts = [command[-2] for command in shape.route]
    return min(lefts), max(lefts) - min(lefts)


def _shading(first: str, second: str) -> str:
    function = f"<</FunctionType 2/Domain[0 1]/N 1/C0[{_rgb(first)}]/C1[{_rgb(second)}]>>"
    return f"<</ShadingType 2/ColorSpace/DeviceRGB/Coords[0 0 1 0]/Extend[true true]/Function {function}>>"


def _words(words: Words) -> str:
    """A line of text. Characters that the font lacks are written as Python escapes, squeezed into the width."""
    try:
        text = words.text.encode("cp1252")
        squeeze = 100.0
    except UnicodeEncodeError:
        text = words.text.encode("cp1252", errors="backslashreplace")
        squeeze = 100.0 * words.width / text_width(text.decode("cp1252"), words.size, words.bold)
    x = words.x - words.width / 2 if words.centred else words.x
    return (
        f"BT /F{2 if words.bold else 1} {words.size:g} Tf {squeeze:.1f} Tz {_rgb(words.color)} rg "
        f"1 0 0 -1 {x:.2f} {words.y:.2f} Tm <{text.hex()}> Tj ET"
    )


def _painted(color: str | None) -> bool:
    return bool(color) and color not in ("none", "transparent")


@lru_cache(maxsize=10_000)
def _rgb(color: str) -> str:
    """
    >>> _rgb("#ff8000")
    '1 0.502 0'
    """
    digits = as_hex(color)
    return " ".join(f"{int(digits[at : at + 2], 16) / 255:.3g}" for at in (1, 3, 5))
