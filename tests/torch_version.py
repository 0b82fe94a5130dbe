"""Which torch is installed, for tests of what only some versions have."""

from __future__ import annotations

import pytest
import torch


def torch_is_at_least(version: str) -> bool:
    return _numbers(torch.__version__) >= _numbers(version)


def needs_torch(version: str, what: str) -> pytest.MarkDecorator:
    """Skip a test with an older torch: `@needs_torch("2.9", "tells what autograd keeps")`."""
    return pytest.mark.skipif(
        not torch_is_at_least(version), reason=f"torch {torch.__version__}; {version} is the first that {what}"
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2])
