"""All models of torchvision: classification, segmentation, detection, video, optical flow, quantized."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import torch
from tests.torchvision_models import torchvision_models
from tests.zoo.build import Built, first_that_runs
from torch import nn

#: Small pictures and few boxes; and scores low enough that a model with random weights finds something.
_DETECTION = {
    "min_size": 96,
    "max_size": 128,
    "box_score_thresh": 0.005,
    "box_detections_per_img": 8,
    "rpn_pre_nms_top_n_test": 40,
    "rpn_post_nms_top_n_test": 16,
    "score_thresh": 0.005,
    "topk_candidates": 20,
    "detections_per_img": 8,
}
_ACCEPTS = {  # the detection models that take these as free keyword arguments
    "fasterrcnn": ("min_size", "max_size", "box", "rpn"),
    "maskrcnn": ("min_size", "max_size", "box", "rpn"),
    "keypointrcnn": ("min_size", "max_size", "box", "rpn"),
    "retinanet": ("min_size", "max_size", "score", "topk", "detections"),
    "fcos": ("min_size", "max_size", "score", "topk", "detections"),
    "ssd": ("score", "topk", "detections"),
}


DETECTION = tuple(_ACCEPTS)


def names() -> list[str]:
    return list(torchvision_models().list_models())


def build(name: str) -> Built:
    return first_that_runs(model(name).eval(), _inputs(name))


def model(name: str) -> nn.Module:
    """A model with random weights, made for small pictures where it can be."""
    models = torchvision_models()
    options: dict[str, Any] = {"weights": None}
    parameters = inspect.signature(models.get_model_builder(name)).parameters
    if "weights_backbone" in parameters:
        options["weights_backbone"] = None
    if name in ("googlenet", "inception_v3"):
        options["init_weights"] = False
    if name.startswith("quantized_"):
        options["quantize"] = True
    for family, prefixes in _ACCEPTS.items():
        if name.startswith(family):
            options |= {key: value for key, value in _DETECTION.items() if key.startswith(prefixes)}
    if name.startswith("vit_"):
        options["image_size"] = 28 if name == "vit_h_14" else 32
    if name.startswith("mvit_"):  # their sizes are fixed one call further in
        maker = partial(_smaller_mvit, models.video.mvit._mvit)
        with mock.patch.object(models.video.mvit, "_mvit", maker):
            return models.get_model(name, **options)
    return models.get_model(name, **options)


def _smaller_mvit(make: Callable[..., nn.Module], **options: Any) -> nn.Module:
    return make(**{**options, "spatial_size": (64, 64), "temporal_size": 8})


def _inputs(name: str) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    if name.startswith(DETECTION):
        yield [[torch.rand(3, 96, 112)]], {}
    elif name.startswith("raft"):
        yield [torch.rand(1, 3, 128, 128), torch.rand(1, 3, 128, 128)], {"num_flow_updates": 3}
    else:
        for size in (28,) if name == "vit_h_14" else (32, 64, 96, 224):
            yield [torch.rand(1, 3, size, size)], {}
        for frames, size in ((8, 64), (16, 64), (16, 224)):
            yield [torch.rand(1, 3, frames, size, size)], {}
