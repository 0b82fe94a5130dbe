"""Import torchvision where its compiled part can't be loaded.

On a CPU build of torch the wheel's library fails to load, and importing torchvision then fails because operators that
it registers fake implementations for do not exist. Their schemas are enough for every model that doesn't call them; the
two that detection models call are written here in plain PyTorch.
"""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor

_SCHEMAS = """
nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor
qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor
qroi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, \
int sampling_ratio, bool aligned) -> Tensor
roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, \
int sampling_ratio, bool aligned) -> Tensor
_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, \
SymInt batch_size, SymInt channels, SymInt height, SymInt width, int sampling_ratio, bool aligned) -> Tensor
ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, \
int sampling_ratio) -> (Tensor, Tensor)
_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, SymInt pooled_height, \
SymInt pooled_width, int sampling_ratio, SymInt batch_size, SymInt channels, SymInt height, SymInt width) -> Tensor
roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) \
-> (Tensor, Tensor)
_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, float spatial_scale, SymInt pooled_height, \
SymInt pooled_width, SymInt batch_size, SymInt channels, SymInt height, SymInt width) -> Tensor
ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) \
-> (Tensor, Tensor)
_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, SymInt pooled_height, \
SymInt pooled_width, SymInt batch_size, SymInt channels, SymInt height, SymInt width) -> Tensor
deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, \
SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, \
SymInt offset_groups, bool use_mask) -> Tensor
_deform_conv2d_backward(Tensor grad, Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, \
SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, \
SymInt offset_groups, bool use_mask) -> (Tensor, Tensor, Tensor, Tensor, Tensor)
_cuda_version() -> int
"""

_library: list[torch.library.Library] = []  # definitions last as long as the object that made them


def torchvision_models() -> ModuleType:
    """`torchvision.models`, on any build of torch."""
    if not _library and not _compiled_part_loads():
        library = torch.library.Library("torchvision", "DEF")
        for schema in _SCHEMAS.strip().splitlines():
            library.define(schema)
        library.impl("nms", _nms, "CPU")
        library.impl("roi_align", _roi_align, "CPU")
        _library.append(library)
    import torchvision

    if _library:
        torchvision.extension._has_ops = torchvision.ops.roi_align.__globals__["_has_ops"] = lambda: True
    return torchvision.models


def _nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Keep the best box, drop those that overlap it too much, and so on."""
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    order = scores.argsort(descending=True)
    kept = []
    while order.numel():
        best, order = order[0], order[1:]
        kept.append(best)
        corner = torch.minimum(boxes[best, 2:], boxes[order, 2:])
        overlap = (corner - torch.maximum(boxes[best, :2], boxes[order, :2])).clamp(min=0).prod(1)
        order = order[overlap / (areas[best] + areas[order] - overlap) <= threshold]
    return torch.stack(kept) if kept else order


def _roi_align(
    features: Tensor, rois: Tensor, scale: float, height: int, width: int, samples: int, aligned: bool
) -> Tensor:
    """Average bilinear samples in each cell of a grid laid over each region."""
    results = [features.new_zeros(0, features.shape[1], height, width)]
    for batch, *corners in rois:
        left, top, right, bottom = [float(corner) * scale - (0.5 if aligned else 0.0) for corner in corners]
        least = 0.0 if aligned else 1.0
        across, down = max(right - left, least), max(bottom - top, least)
        per_row = samples if samples > 0 else max(math.ceil(down / height), 1)
        per_column = samples if samples > 0 else max(math.ceil(across / width), 1)
        rows = _bilinear(features.shape[2], top + down * (torch.arange(height * per_row) + 0.5) / (height * per_row))
        columns = _bilinear(
            features.shape[3], left + across * (torch.arange(width * per_column) + 0.5) / (width * per_column)
        )
        values = rows.to(features) @ features[int(batch)] @ columns.to(features).T
        results.append(F.avg_pool2d(values, (per_row, per_column))[None])
    return torch.cat(results)


def _bilinear(size: int, points: Tensor) -> Tensor:
    """A matrix that takes linearly interpolated samples at these points of a line of `size` values, 0 outside."""
    inside = (points >= -1) & (points <= size)
    points = points.clamp(0, size - 1)
    below = points.floor().long().clamp(max=max(size - 2, 0))
    share = points - below
    matrix = torch.zeros(len(points), size)
    matrix.scatter_add_(1, below[:, None], (1 - share)[:, None])
    matrix.scatter_add_(1, (below + 1).clamp(max=size - 1)[:, None], share[:, None])
    return matrix * inside[:, None]


def _compiled_part_loads() -> bool:
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise ImportError("these models need torchvision: pip install --no-deps torchvision")
    libraries = [*Path(spec.origin).parent.glob("_C*.so"), *Path(spec.origin).parent.glob("_C*.pyd")]
    try:
        for library in libraries:
            torch.ops.load_library(str(library))
    except OSError:
        return False
    return bool(libraries)
