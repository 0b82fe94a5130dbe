"""Put the viewer's modules and the data into one HTML file, without a build step and without anything to load.

The viewer is written as plain ES modules. Browsers refuse to load modules from a local file, so each module becomes
the body of a function, and the functions follow each other in one script, in the order of their imports.
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
    """Add a module after those it imports, as one constant that holds its exports."""
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
    """Remove indentation and comments that have their own lines, a third of the bytes.

    This would change template literals that span lines; the only ones in the viewer are tables of numbers, where
    indentation does not matter.
    """
    source = re.sub(r"^\s*/\*\*.*?\*/\n?", "", source, flags=re.DOTALL | re.MULTILINE)
    lines = (line.strip() for line in source.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


@cache
def style() -> str:
    return (VIEWER / "page.css").read_text(encoding="utf-8")


def packed(data: Any) -> str:
    """Data as gzipped JSON in base64, which needs no escaping in HTML."""
    return packed_bytes(json.dumps(data, separators=(",", ":"), allow_nan=False).encode())


def packed_bytes(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, compresslevel=7, mtime=0)).decode("ascii")


def page(title: str, data: str) -> str:
    """The whole file. Its content security policy allows this script and this style sheet, and forbids all loading."""
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
    """The hash by which a content security policy allows an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
