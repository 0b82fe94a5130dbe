"""What a call depends on besides its arguments: grad mode, inference mode, autocast."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import torch

from .private_name import private

T = TypeVar("T")

set_grad_enabled = private("torch._C._set_grad_enabled", instead=torch.set_grad_enabled)

#: Inside this context inference mode is on or off; when it ends, grad mode and autocast are as they were, too. It is
#: not written in Python, so that no signal can interrupt its beginning or its end.
inference_scope = private("torch._C._InferenceMode", instead=torch.inference_mode)


def default_device() -> torch.device:
    """Where a tensor is made if nobody says where. Torch 2.4 can't tell after `torch.set_default_device(None)`."""
    try:
        return torch.get_default_device()
    except AttributeError:
        return torch.device("cpu")


def grad_scope() -> Any:
    """A context in which grad mode may be set: when it ends, that is as before.

        with grad_scope():
            set_grad_enabled(False)
            ...

    Unlike `with torch.no_grad():`, whose beginning and end are written in Python, no signal leaves it changed.
    """
    return inference_scope(torch.is_inference_mode_enabled())


def call_with_grad(enabled: bool, func: Callable[..., T], *args: Any) -> T:
    """Call a function with autograd on or off. Unlike `torch.no_grad()`, no signal leaves that changed."""
    before = torch.is_grad_enabled()
    try:
        set_grad_enabled(enabled)
        return func(*args)
    finally:
        set_grad_enabled(before)


#: The kinds of devices that torch itself has besides the CPU, and that compute.
ACCELERATORS = ("cuda", "mps", "xpu")

#: The kind of device that another package has brought, if one has: "npu", for example.
others_accelerator: Callable[[], str] = private(
    "torch._C._get_privateuse1_backend_name", instead=lambda: "privateuseone"
)


def autocast_state() -> tuple[tuple[str, torch.dtype], ...]:
    """The devices for which autocast is on, each with its dtype."""
    return tuple((d, torch.get_autocast_dtype(d)) for d in _autocast_devices() if torch.is_autocast_enabled(d))


def set_autocast(state: tuple[tuple[str, torch.dtype], ...]) -> None:
    """Let autocast be on for these devices and no others. What it has cast before is forgotten."""
    wanted = dict(state)
    for device in _autocast_devices():
        torch.set_autocast_enabled(device, device in wanted)
    set_autocast_dtypes(wanted)


def autocast_dtypes() -> dict[str, torch.dtype]:
    return {device: torch.get_autocast_dtype(device) for device in _autocast_devices()}


def set_autocast_dtypes(dtypes: dict[str, torch.dtype]) -> None:
    for device, dtype in dtypes.items():
        torch.set_autocast_dtype(device, dtype)
    torch.clear_autocast_cache()


def _autocast_devices() -> tuple[str, ...]:
    """The kinds of devices that autocast knows in this torch."""
    return tuple(device for device in ("cpu", *ACCELERATORS, others_accelerator()) if _knows_autocast(device))


@lru_cache
def _knows_autocast(device: str) -> bool:
    try:
        torch.is_autocast_enabled(device)
    except RuntimeError:
        return False
    return True


def _autocast_anywhere() -> bool:
    return any(torch.is_autocast_enabled(device) for device in _autocast_devices())


#: Is autocast on, for any device?
any_autocast = private("torch._C._is_any_autocast_enabled", instead=_autocast_anywhere)
