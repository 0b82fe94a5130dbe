"""Examples in docstrings, which begin at once and need no heading, are shown as code."""

from __future__ import annotations

import re
from typing import Any

import griffe

#: From a line that begins with `>>>` to the next empty line.
_EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)


class Doctests(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            text = re.sub(r" *# doctest: .*", "", obj.docstring.value)
            obj.docstring.value = _EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", text)
