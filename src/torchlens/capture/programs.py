"""A model that makes a program of a function or module while it runs: `torch.jit.trace`, `torch.jit.script`, `export`.

What runs while a program is made is not part of the forward pass: its results are thrown away, and an active capture
would become part of the program. So captures are switched off meanwhile. When the model calls the program, they record
it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from .._torch import Stance, dispatch_stack, mode_stack, program_makers, put_modes, remove_modes
from .changes import Change
from .dispatcher import Watcher
from .modules import hide_stand_ins, show_stand_ins
from .unseen import IsOurs, Told, Tracers


def programs_made_unseen(is_ours: IsOurs) -> list[Change]:
    """Let programs be made as if there were no capture."""
    return [Told(is_ours, owner, name, _unseen) for owner, name in program_makers]


def _unseen(make: Callable[..., Any], tracers_here: Tracers) -> Callable[..., Any]:
    @wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        tracers = tracers_here()
        if not tracers:
            return make(*args, **kwargs)
        modes, hidden = (mode_stack(), dispatch_stack()), hide_stand_ins()
        stance = Stance("default") if "torch._dynamo" in sys.modules else None  # importing it takes seconds
        try:
            for tracer in tracers:
                tracer.forget_last()
            remove_modes(partial(_is_one_of, tracers))
            if stance is not None:
                stance.set()
            return make(*args, **kwargs)
        finally:
            if stance is not None:
                stance.unset()
            put_modes(*modes)
            show_stand_ins(hidden)

    return made


def _is_one_of(tracers: list[Any], mode: Any) -> bool:
    return isinstance(mode, Watcher) or any(mode is tracer for tracer in tracers)
