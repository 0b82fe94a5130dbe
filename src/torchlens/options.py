"""Options as one frozen object, checked once, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
    save_gradients: bool | Selection = False
    gradient_postfunc: Callable[[torch.Tensor], Any] | None = None
    train_mode: bool = False
    detach_saved_tensors: bool = True

    @classmethod
    def checked(cls, **given: Any) -> Options:
        """Options as a user gave them."""
        given["layers_to_save"] = _layers(given.get("layers_to_save", "all"))
        seed = given.get("random_seed")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
            raise ArgumentError(f"random_seed must be an int or None, not {seed!r}")
        postfunc = given.get("activation_postfunc")
        if postfunc is not None and not callable(postfunc):
            raise ArgumentError(f"activation_postfunc must be a function of a tensor, not {postfunc!r}")
        if not given.get("save_raw_activation", True) and postfunc is None:
            raise ArgumentError("save_raw_activation=False needs an activation_postfunc, or nothing would be saved")
        if given.get("output_device") is not None:
            given["output_device"] = _device(given["output_device"])
        dtype = given.get("output_dtype")
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise ArgumentError(f"output_dtype must be a floating point type such as torch.float16, not {dtype!r}")
        _check_streaming(given)
        wanted = given.get("save_gradients", False)
        given["save_gradients"] = _gradients(wanted)
        options = cls(**given)
        _check_autograd(options)
        return options

    def again(self, layers_to_save: Any, random_seed: int | None, train_mode: bool | None) -> Options:
        """These options for another run of the model; None for what stays as it was."""
        options = replace(self, random_seed=random_seed)
        if layers_to_save is not None:
            options = replace(options, layers_to_save=_layers(layers_to_save))
        if train_mode is not None:
            options = replace(options, train_mode=train_mode, detach_saved_tensors=not train_mode)
        _check_autograd(options)
        return options

    @property
    def follows_autograd(self) -> bool:
        """Do saved values stay connected to autograd? A backward pass to be logged must begin somewhere, too."""
        return bool(self.train_mode or self.save_gradients or not self.detach_saved_tensors)

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
        if given.get("train_mode") or given.get("save_gradients") or not given.get("detach_saved_tensors", True):
            raise ArgumentError(
                "values written to disk while the model runs can't stay connected to autograd: train_mode, "
                "save_gradients and "
                "detach_saved_tensors=False need the values in memory; tl.save the log after the backward pass"
            )
        given["save_activations_to"] = Path(path)
    elif not given.get("keep_activations_in_memory", True):
        raise ArgumentError("keep_activations_in_memory=False needs save_activations_to=..., or nothing would be saved")


def _layers(wanted: Any) -> Literal["all"] | Selection | None:
    if wanted is None or (isinstance(wanted, str) and wanted == "none"):
        return None
    if isinstance(wanted, str) and wanted == "all":
        return "all"
    selection = wanted if isinstance(wanted, Selection) else Selection.checked(wanted, "layers_to_save")
    return selection if selection.selectors else None


def _gradients(wanted: Any) -> bool | Selection:
    if wanted is None or isinstance(wanted, bool):
        return bool(wanted)
    if isinstance(wanted, str) and wanted in ("all", "none"):
        return wanted == "all"
    selection = Selection.checked(wanted, "save_gradients")
    return selection if selection.selectors else False


def _check_autograd(options: Options) -> None:
    """Refuse what could never be differentiated, before the model runs."""
    asked = "train_mode=True" if options.train_mode else "save_gradients" if options.save_gradients else None
    if options.gradient_postfunc is not None and not options.save_gradients:
        raise ArgumentError("gradient_postfunc needs save_gradients: it is applied to saved gradients")
    if asked is None:
        return
    if torch.is_inference_mode_enabled() or not torch.is_grad_enabled():
        mode = "torch.inference_mode()" if torch.is_inference_mode_enabled() else "torch.no_grad()"
        raise ArgumentError(f"{asked} needs autograd, which {mode} has switched off; call it outside of that")
    if options.train_mode and options.layers_to_save is None:
        raise ArgumentError("train_mode=True connects what is saved to autograd, but layers_to_save is None")


def _device(given: Any) -> torch.device:
    try:
        return usable_device(given)
    except (RuntimeError, TypeError, AssertionError) as error:
        raise ArgumentError(f"output_device={given!r} can't be used: {error}") from None


def usable_device(given: Any) -> torch.device:
    """The device, if something can be put there; otherwise what torch raises."""
    device = torch.device(given)
    torch.empty(0, device=device)
    return device
