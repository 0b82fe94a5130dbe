"""Why a call can't be computed again."""

from __future__ import annotations

from ..errors import TorchLensError


class NotReplayable(TorchLensError):
    """A call can't be computed again from what was saved; the message says why."""
