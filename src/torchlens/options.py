"""Options travel as one frozen object, checked once at the door."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .errors import ArgumentError


@dataclass(frozen=True)
class Options:
    """What to do while the model runs."""

    layers_to_save: str | None = "all"
    random_seed: int | None = None
    check_completeness: bool = False
    save_gradients: Any = False
    gradient_postfunc: Callable[[Tensor], Any] | None = None
    train_mode: bool = False
    detach_saved_tensors: bool = True

    @property
    def follows_autograd(self) -> bool:
        """Do saved values stay connected to autograd? A backward pass to be logged must begin somewhere, too."""
        return bool(self.train_mode or self.save_gradients or not self.detach_saved_tensors)

    @classmethod
    def checked(cls, layers_to_save: Any, random_seed: Any, check_completeness: bool = False, **rest: Any) -> Options:
        if layers_to_save == "none":
            layers_to_save = None
        if layers_to_save is not None and layers_to_save != "all":
            raise ArgumentError(f'layers_to_save is "all" or None, not {layers_to_save!r}')
        if random_seed is not None and (isinstance(random_seed, bool) or not isinstance(random_seed, int)):
            raise ArgumentError(f"random_seed is an int or None, not {random_seed!r}")
        options = cls(layers_to_save, random_seed, bool(check_completeness), **rest)
        check_autograd(options)
        return options


    def again(self, layers_to_save: Any, random_seed: Any, train_mode: bool | None) -> Options:
        """These options for another run; None for what stays as it was."""
        return Options.checked(
            self.layers_to_save if layers_to_save is None else layers_to_save,
            random_seed,
            self.check_completeness,
            save_gradients=self.save_gradients,
            gradient_postfunc=self.gradient_postfunc,
            train_mode=self.train_mode if train_mode is None else train_mode,
            detach_saved_tensors=self.detach_saved_tensors,
        )


def check_autograd(options: Options) -> None:
    """Refuse what could never be differentiated, before the model runs."""
    asked = "train_mode=True" if options.train_mode else "save_gradients" if options.save_gradients else None
    if options.gradient_postfunc is not None and not options.save_gradients:
        raise ArgumentError("gradient_postfunc is a function of the saved gradients; ask for them with save_gradients")
    if asked is None:
        return
    if torch.is_inference_mode_enabled() or not torch.is_grad_enabled():
        mode = "torch.inference_mode()" if torch.is_inference_mode_enabled() else "torch.no_grad()"
        raise ArgumentError(f"{asked} needs autograd, which {mode} has switched off; call it outside of that")
    if options.train_mode and options.layers_to_save is None:
        raise ArgumentError("train_mode=True connects what is saved to autograd, but layers_to_save is None")
