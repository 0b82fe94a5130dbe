"""A picture as SVG: self-contained, with no style sheet and no script, so that it can stand inside any page."""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape
from itertools import chain

from ..layout.measure import NODE_SIZE
from .picture import Curve, Mark, Picture, Rectangle, Shape, Style, Words

FONTS = "Helvetica, Arial, 'Liberation Sans', 'Nimbus Sans', 'DejaVu Sans', sans-serif"

_SPECIAL = re.compile("[&<>\"'\x00-\x1f\x7f-\U0010ffff]")
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML, even when escaped


def print_svg(picture: Picture) -> bytes:
    width, height = f"{picture.width:.0f}", f"{picture.height:.0f}"
    left, top = picture.origin
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {picture.width:.1f} {picture.height:.1f}" font-family="{FONTS}" font-size="{NODE_SIZE:g}" '
        'text-anchor="middle" xml:space="preserve">\n',
        _gradients(picture),
        f'<rect width="100%" height="100%" fill="{_text(picture.background)}"/>\n',
    ]
    _print_mark(picture.heading, parts)
    parts.append(f'<g transform="translate({left:.1f},{top:.1f})">\n')
    for mark in picture.graph:
        _print_mark(mark, parts)
    parts.append("</g>\n</svg>\n")
    return "".join(parts).encode()


def _print_mark(mark: Mark, parts: list[str]) -> None:
    if mark.tooltip:
        parts.append(_title(mark.tooltip))
    for shape in mark.shapes:
        parts.append(_shape(shape))
    for words in mark.words:
        parts.append(_words(words))
    parts.append("</g>\n" if mark.tooltip else "\n")


@lru_cache(maxsize=1_000)
def _title(tooltip: str) -> str:
    return f"<g><title>{_text(tooltip)}</title>"


def _shape(shape: Shape) -> str:
    if isinstance(shape, Curve):
        return f'<path d="{_commands(shape)}"{_style(shape.style)}/>'
    x, y, width, height = shape.rect
    if isinstance(shape, Rectangle):
        return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"{_style(shape.style)}/>'
    return f'<ellipse cx="{x + width / 2:.1f}" cy="{y + height / 2:.1f}"{_ellipse(width, height, shape.style)}'


@lru_cache(maxsize=10_000)
def _ellipse(width: float, height: float, style: Style) -> str:
    """All attributes of an ellipse but its position."""
    return f' rx="{width / 2:.1f}" ry="{height / 2:.1f}"{_style(style)}/>'


def _commands(path: Curve) -> str:
    return _pattern(tuple(map(len, path.route)), path.closed) % tuple(chain.from_iterable(path.route))


@lru_cache(maxsize=10_000)
def _pattern(lengths: tuple[int, ...], closed: bool) -> str:
    """How a route is written, from how many numbers each of its parts has.

    >>> _pattern((2, 2), False)
    'M%.1f %.1fL%.1f %.1f'
    """
    rest = ["L%.1f %.1f" if length == 2 else "C%.1f %.1f %.1f %.1f %.1f %.1f" for length in lengths[1:]]
    return "".join(["M%.1f %.1f", *rest, "Z" if closed else ""])


@lru_cache(maxsize=10_000)
def _style(style: Style) -> str:
    fill = f"url(#{_gradient_id(style.fill, style.fill2)})" if style.fill and style.fill2 else style.fill or "none"
    text = f' fill="{_text(fill)}"'
    if style.line:
        text += f' stroke="{_text(style.line)}"'
        if style.pen != 1.0:
            text += f' stroke-width="{style.pen:g}"'
        if style.dashed:
            text += ' stroke-dasharray="5,3"'
    return text


def _words(words: Words) -> str:
    # textLength keeps the text in its place where a font with other widths is shown
    x, y, text, width, size, bold, color, centred = words
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" textLength="{width:.1f}" lengthAdjust="spacingAndGlyphs"'
        f"{_font(size, bold, color, centred)}>{_text(text)}</text>"
    )


@lru_cache(maxsize=1_000)
def _font(size: float, bold: bool, color: str, centred: bool) -> str:
    """Only what differs from the text of most nodes, which is what the whole picture is set to."""
    return (
        ("" if size == NODE_SIZE else f' font-size="{size:g}"')
        + ("" if color == "#000000" else f' fill="{_text(color)}"')
        + (' font-weight="bold"' if bold else "")
        + ("" if centred else ' text-anchor="start"')
    )


def _text(text: str) -> str:
    """Text as XML; characters that XML can't hold are shown as missing."""
    if not _SPECIAL.search(text):
        return text
    return escape(_FORBIDDEN.sub("\ufffd", text))


def _gradients(picture: Picture) -> str:
    if not picture.gradients:
        return ""
    definitions = [
        f'<linearGradient id="{_gradient_id(first, second)}"><stop offset="0" stop-color="{_text(first)}"/>'
        f'<stop offset="1" stop-color="{_text(second)}"/></linearGradient>'
        for first, second in sorted(picture.gradients)
    ]
    return f"<defs>{''.join(definitions)}</defs>\n"


def _gradient_id(first: str, second: str) -> str:
    """A name made of the colours: pictures on one page may define it twice, with the same meaning."""
    return "gradient-" + re.sub(r"\W", "", f"{first}-{second}", flags=re.ASCII)
