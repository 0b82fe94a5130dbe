"""One HTML file out of the viewer's modules and the data: no build step, nothing loaded from anywhere.

The viewer is written as plain ES modules. A page that is opened from a disk can't load modules, so each becomes a
function's body, in the order of their imports, in one script.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

VIEWER = Path(__file__).with_name("viewer")
ENTRY = "app"

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function\*?|class|const)) (\w+)", re.MULTILINE)


@cache
def script() -> str:
    """The viewer as one script.

    >>> "import " in script() or "export " in script()
    False
    """
    parts: dict[str, str] = {}
    _add(ENTRY, parts)
    return '"use strict";\n' + "\n".join(parts.values())


def _add(name: str, parts: dict[str, str]) -> None:
    """A module after those it imports; each defines one constant with what it exports."""
    if name in parts:
        return
    source = (VIEWER / f"{name}.js").read_text(encoding="utf-8")
    for _, other in _IMPORT.findall(source):
        _add(other, parts)
    exported = [found[1] for found in _EXPORT.findall(source)]
    body = _IMPORT.sub(lambda match: f"const {{{match[1]}}} = {match[2]}_js;", source)
    body = _without_comments(_EXPORT.sub(r"\1 \2", body))
    parts[name] = f"const {name}_js = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();"


def _without_comments(source: str) -> str:
    """Without comments on lines of their own and without indentation, which is a third of the bytes.

    Lines inside template literals keep their text: none of the viewer's spans lines but tables of numbers.
    """
    source = re.sub(r"^\s*/\*\*.*?\*/\n?", "", source, flags=re.DOTALL | re.MULTILINE)
    lines = (line.strip() for line in source.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


@cache
def style() -> str:
    return (VIEWER / "page.css").read_text(encoding="utf-8")


def packed(data: Any) -> str:
    """JSON, compressed, in letters that mean nothing to HTML."""
    return packed_bytes(json.dumps(data, separators=(",", ":"), allow_nan=False).encode())


def packed_bytes(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, compresslevel=7, mtime=0)).decode("ascii")


def page(title: str, data: str) -> str:
    """The whole file. Only this script and this style sheet may act in it, and nothing may be loaded."""
    filled = {
        "title": html.escape(title),
        "style": style(),
        "script": script(),
        "style_hash": _hash(style()),
        "script_hash": _hash(script()),
        "data": data,
    }
    template = (VIEWER / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{(\w+)\}", lambda match: filled[match[1]], template)


def _hash(text: str) -> str:
    """As a content policy names an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
