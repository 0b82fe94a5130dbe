"""Options travel as one frozen object, checked once at the door."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .errors import ArgumentError


@dataclass(frozen=True)
class Options:
    """What to do while the model runs."""

    layers_to_save: str | None = "all"
    random_seed: int | None = None
    check_completeness: bool = False

    @classmethod
    def checked(cls, layers_to_save: Any, random_seed: Any, check_completeness: bool = False) -> Options:
        if layers_to_save == "none":
            layers_to_save = None
        if layers_to_save is not None and layers_to_save != "all":
            raise ArgumentError(f'layers_to_save is "all" or None, not {layers_to_save!r}')
        if random_seed is not None and (isinstance(random_seed, bool) or not isinstance(random_seed, int)):
            raise ArgumentError(f"random_seed is an int or None, not {random_seed!r}")
        return cls(layers_to_save, random_seed, bool(check_completeness))
