"""Is this a notebook? There a picture is shown inline, and a file is left only if one was asked for."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory


def in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


def temporary_folder() -> Path:
    """A folder that is gone when the process ends."""
    return Path(_folder().name)


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="torchlens-")
