"""Options travel as one frozen object, checked once at the door."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from .errors import ArgumentError
from .selectors import Selection


@dataclass(frozen=True)
class Options:
    """What to do while the model runs."""

    layers_to_save: Literal["all"] | Selection | None = "all"
    random_seed: int | None = None
    check_completeness: bool = False
    activation_postfunc: Callable[[torch.Tensor], Any] | None = None
    save_raw_activation: bool = True
    output_device: torch.device | None = None
    output_dtype: torch.dtype | None = None
    save_activations_to: Path | None = None
    keep_activations_in_memory: bool = True

    @classmethod
    def checked(cls, **given: Any) -> Options:
        """Options as a user gave them."""
        given["layers_to_save"] = _layers(given.get("layers_to_save", "all"))
        seed = given.get("random_seed")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
            raise ArgumentError(f"random_seed is an int or None, not {seed!r}")
        postfunc = given.get("activation_postfunc")
        if postfunc is not None and not callable(postfunc):
            raise ArgumentError(f"activation_postfunc is a function of a tensor, not {postfunc!r}")
        if not given.get("save_raw_activation", True) and postfunc is None:
            raise ArgumentError("save_raw_activation=False leaves nothing to save without an activation_postfunc")
        if given.get("output_device") is not None:
            given["output_device"] = _device(given["output_device"])
        dtype = given.get("output_dtype")
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise ArgumentError(f"output_dtype is a floating point type such as torch.float16, not {dtype!r}")
        _check_streaming(given)
        return cls(**given)

    @property
    def transforms(self) -> bool:
        """Is anything but the value itself to be stored?"""
        return (self.activation_postfunc, self.output_device, self.output_dtype) != (None, None, None)

    @property
    def keeps_all(self) -> bool:
        """Are all values kept, as they are?"""
        return self.layers_to_save == "all" and not self.transforms

    @property
    def selection(self) -> Selection | None:
        """Which values to keep; None for all of them or for none."""
        return self.layers_to_save if isinstance(self.layers_to_save, Selection) else None


def _check_streaming(given: dict[str, Any]) -> None:
    path = given.get("save_activations_to")
    if path is not None:
        if given["layers_to_save"] is None:
            raise ArgumentError("save_activations_to has nothing to save with layers_to_save=None")
        given["save_activations_to"] = Path(path)
    elif not given.get("keep_activations_in_memory", True):
        raise ArgumentError("keep_activations_in_memory=False needs save_activations_to=..., or nothing would be saved")


def _layers(wanted: Any) -> Literal["all"] | Selection | None:
    if wanted is None or (isinstance(wanted, str) and wanted == "none"):
        return None
    if isinstance(wanted, str) and wanted == "all":
        return "all"
    selection = Selection.checked(wanted, "layers_to_save")
    return selection if selection.selectors else None


def _device(given: Any) -> torch.device:
    try:
        return torch.device(given)
    except (RuntimeError, TypeError) as error:
        raise ArgumentError(f"output_device: {error}") from None
