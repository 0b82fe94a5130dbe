"""One model of every architecture family of timm, the smallest by its name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
from tests.torchvision_models import torchvision_models
from tests.zoo.build import Built, NotBuilt, first_that_runs

#: What small models are called, the smallest first.
_SMALL = "test zepto atto femto pico nano xxt xxs xt xs ti mini tiny s0 b0 t0 small m0 050 18 16 s t 11 26 101".split()


def names() -> list[str]:
    timm = _timm()
    return [min(timm.list_models(module=family), key=_size) for family in timm.list_modules()]


def build(name: str) -> Built:
    timm = _timm()
    reasons = []
    millions = re.search(r"_(\d+)m(_|$)", name)
    fewer = {"depth": 2} if millions and int(millions[1]) > 100 else {}
    for options in ({"img_size": 64, **fewer}, {"input_size": (3, 64, 64)}, {}):
        try:
            model = timm.create_model(name, pretrained=False, **options).eval()
            return first_that_runs(model, _pictures(model.default_cfg["input_size"]))
        except Exception as error:  # not every model takes every option
            reasons.append(str(error))  # not the error itself, which would hold on to the model
    raise NotBuilt(reasons[-1])


def _timm() -> Any:
    torchvision_models()  # which timm imports
    import timm

    return timm


def _size(name: str) -> tuple[int, int]:
    parts = name.split("_") + re.findall(r"[a-z]+|\d+", name)
    return min([_SMALL.index(part) for part in parts if part in _SMALL] or [len(_SMALL)]), len(name)


def _pictures(size: tuple[int, ...]) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    for side in (64, 96, 128, size[-1]):
        yield [torch.rand(1, 3, side, side)], {}
