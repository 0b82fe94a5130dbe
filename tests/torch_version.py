"""Which torch is installed, for tests of what only some versions have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

_PINS = (Path(__file__).parents[1] / "constraints.txt").read_text(encoding="utf-8")

#: The torch that `make test` installs, and whose output pages and golden files show.
PINNED = re.findall(r"^torch==(\S+)", _PINS, re.MULTILINE)[0]


def torch_is_at_least(version: str) -> bool:
    return _numbers(torch.__version__) >= _numbers(version)


def needs_torch(version: str, what: str) -> pytest.MarkDecorator:
    """Skip a test with an older torch: `@needs_torch("2.9", "tells what autograd keeps")`."""
    return pytest.mark.skipif(not torch_is_at_least(version), reason=f"torch {version} is the first that {what}")


def is_pinned() -> bool:
    """Is this the torch that pages and golden files were made with?"""
    return _numbers(torch.__version__) == _numbers(PINNED)


def same_as_shown(shown: object, found: object, advice: str) -> None:
    """Fail if what was found is not what a page shows; with another torch than it was made with, skip, and say so."""
    if shown != found and not is_pinned():
        pytest.skip(f"the page shows what torch {PINNED} prints, and this torch prints something else")
    assert shown == found, advice


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2])
