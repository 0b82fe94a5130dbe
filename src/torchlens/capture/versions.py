"""The versions that a log was made with: Python, torch and the packages that the model's classes come from."""

from __future__ import annotations

import platform
import sys

import torch

from .records import Trace


def versions_of(trace: Trace) -> dict[str, str]:
    """
    >>> versions_of(log._trace)["torch"] == torch.__version__
    True

    They are not recorded: a log that was made in this process was made with what is imported here, and what `tl.save`
    writes has them.
    """
    if trace.versions is not None:
        return trace.versions
    packages = sorted({name.partition(".")[0] for info in trace.modules for name in (info.class_qualname, *info.bases)})
    found = {name: getattr(sys.modules.get(name), "__version__", None) for name in packages}
    named = {name: version for name, version in found.items() if isinstance(version, str)}
    return {"Python": platform.python_version(), **named, "torch": str(torch.__version__)}
