"""Colours: two themes, the scale for numbers, and what users may write."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from ...errors import ArgumentError, near


@dataclass(frozen=True)
class Theme:
    """The colours of the visual code."""

    background: str
    font: str
    line: str
    node: str  # an operation without parameters
    input: str
    output: str
    trainable: str  # an operation with trainable parameters
    frozen: str
    buffer: str
    condition: str  # the single bool that decided something
    backward: str  # where gradients flowed
    edited: str  # around what an intervention edited


THEMES = {
    "light": Theme(
        background="#FFFFFF",
        font="#000000",
        line="#000000",
        node="#FFFFFF",
        input="#98FB98",
        output="#FF9999",
        trainable="#D9D9D9",
        frozen="#B0B0B0",
        buffer="#EFEFEF",
        condition="#F7D460",
        backward="#9197F6",
        edited="#B8007F",
    ),
    "dark": Theme(
        background="#16191D",
        font="#F2F2F2",
        line="#B9C0C8",
        node="#22272D",
        input="#1F6B33",
        output="#8C2F36",
        trainable="#474D55",
        frozen="#33383F",
        buffer="#2B3138",
        condition="#7A5F00",
        backward="#9197F6",
        edited="#F06BC0",
    ),
}

#: How thick the line around or along what was edited is.
EDITED_PEN = 2.5

#: Names in place of colours, for what chooses its colours later, such as a page that can be light or dark.
ROLES = Theme(**{each.name: each.name for each in fields(Theme)})

#: From little to much: pale to dark, so that it also reads in grey.
SCALE = ("#FFF7EC", "#FEE0B5", "#FDBB84", "#F98355", "#D7301F", "#8B0000")

_NAMED = {
    "aqua": "#00FFFF", "beige": "#F5F5DC", "black": "#000000", "blue": "#0000FF", "brown": "#A52A2A",
    "coral": "#FF7F50", "cyan": "#00FFFF", "darkblue": "#00008B", "darkgreen": "#006400", "darkred": "#8B0000",
    "gold": "#FFD700", "gray": "#808080", "green": "#008000", "grey": "#808080", "indigo": "#4B0082",
    "khaki": "#F0E68C", "lavender": "#E6E6FA", "lightblue": "#ADD8E6", "lightgray": "#D3D3D3",
    "lightgreen": "#90EE90", "lightgrey": "#D3D3D3", "lightyellow": "#FFFFE0", "lime": "#00FF00",
    "magenta": "#FF00FF", "maroon": "#800000", "navy": "#000080", "olive": "#808000", "orange": "#FFA500",
    "orchid": "#DA70D6", "pink": "#FFC0CB", "plum": "#DDA0DD", "purple": "#800080", "red": "#FF0000",
    "salmon": "#FA8072", "silver": "#C0C0C0", "skyblue": "#87CEEB", "steelblue": "#4682B4", "tan": "#D2B48C",
    "teal": "#008080", "tomato": "#FF6347", "turquoise": "#40E0D0", "violet": "#EE82EE", "wheat": "#F5DEB3",
    "white": "#FFFFFF", "yellow": "#FFFF00",
}  # fmt: skip


def color(name: object) -> str:
    """A colour as `#RRGGBB`.

    >>> color("#abc"), color("Tomato")
    ('#AABBCC', '#FF6347')
    """
    text = str(name).strip().lower()
    if re.fullmatch("#[0-9a-f]{6}", text):
        return text.upper()
    if re.fullmatch("#[0-9a-f]{3}", text):
        return "#" + "".join(digit * 2 for digit in text[1:]).upper()
    if text not in _NAMED:
        raise ArgumentError(f"no colour {name!r}: write it as '#RRGGBB'{near(text, _NAMED)}")
    return _NAMED[text]


def on_scale(share: float) -> str:
    """The colour at a place between 0 and 1 on the scale.

    >>> on_scale(0), on_scale(1)
    ('#FFF7EC', '#8B0000')
    """
    place = min(max(share, 0.0), 1.0) * (len(SCALE) - 1)
    low = min(int(place), len(SCALE) - 2)
    mixed = [a + (b - a) * (place - low) for a, b in zip(_rgb(SCALE[low]), _rgb(SCALE[low + 1]), strict=True)]
    return "#" + "".join(f"{round(part):02X}" for part in mixed)


def readable_on(fill: str) -> str:
    """Black or white, whichever can be read on this colour.

    >>> readable_on("#FFF7EC"), readable_on("#8B0000")
    ('#000000', '#FFFFFF')
    """
    red, green, blue = ((part / 255) ** 2.2 for part in _rgb(fill))
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 else "#FFFFFF"


def _rgb(text: str) -> tuple[int, int, int]:
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)
