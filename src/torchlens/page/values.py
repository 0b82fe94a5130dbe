"""Values as a page shows them: a few statistics of each tensor, a histogram and a small picture.

A picture is one or more tiles of bytes: an image, feature maps, attention heads, a matrix, a line. The bytes of all
pictures are in one array, which the page decompresses when it first shows a value. `viewer/values.js` is the reader.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .._torch import call_with_grad
from ..capture.records import Value, fetched
from ..capture.tensor_memory import version_of
from ..graph.graph import Graph
from ..words import human_size

BINS = 32
_FEW = 64  # numbers that are always shown one by one
_TINY = 20_000  # numbers in all values and parameters of a tiny model, of which every one is shown
_WIDE = (torch.float64, torch.int64)  # hold numbers that float32 can't
_LARGEST_PARAMETER = 8_000_000  # elements; computing the statistics of billions would take too long
_SAMPLE = 4_000_000  # elements; for larger tensors, mean and histogram are those of a part


@dataclass
class PageValues:
    """The values of a log within a budget."""

    stats: list[dict[str, Any] | None]
    gradients: list[dict[str, Any] | None] | None
    before: dict[str, dict[str, Any] | None]  # by number of the entry: the value before the edit
    params: dict[str, dict[str, Any] | None]  # by address; without those that were written to since the forward pass
    note: str
    bytes: bytes

    def as_data(self) -> dict[str, Any]:
        return {
            "stats": self.stats,
            "gradients": self.gradients,
            "before": self.before,
            "params": self.params,
            "note": self.note,
        }


@dataclass
class _Pictures:
    """The bytes of histograms and tiles; tiles beyond the budget are dropped, the largest first."""

    stored: bytearray = field(default_factory=bytearray)
    tiles: list[tuple[bytes, dict[str, Any]]] = field(default_factory=list)

    def add(self, data: bytes) -> int:
        self.stored += data
        return len(self.stored) - len(data)

    def add_tiles(self, budget: int) -> int:
        """Store as many tiles as the budget allows, the smallest first; return how many were left out."""
        left_out = 0
        for data, stats in sorted(self.tiles, key=lambda tile: len(tile[0])):
            if len(self.stored) + len(data) <= budget:
                stats["tiles"]["at"] = self.add(data)
            else:
                del stats["tiles"]
                left_out += 1
        self.tiles.clear()
        return left_out


def page_values(
    graph: Graph, budget: int, before_edits: Mapping[int, Tensor | None] | None = None
) -> PageValues | None:
    """The saved values of a log, as many as fit into `budget` bytes; None if there are none, or none fits."""
    saved = [value.kept is not None for value in graph.entries]
    if budget <= 0 or not any(saved):
        return None
    return call_with_grad(False, _page_values, graph, budget, before_edits or {})


def _page_values(graph: Graph, budget: int, before_edits: Mapping[int, Tensor | None]) -> PageValues:
    pictures = _Pictures()
    numbers = sum(_numel(value.shape) for value in (*graph.entries, *graph.trace.params))
    few = _TINY if numbers <= _TINY else _FEW
    stats = [
        _described(value.saved, graph.layer_types[graph.layers[place]], value.role, few, pictures, budget)
        for place, value in enumerate(graph.entries)
    ]
    gradients = [
        _described(_gradient(graph, place), "", "gradient", few, pictures, budget) for place in range(len(stats))
    ]
    before = {
        str(place): _described(tensor, "", "before", few, pictures, budget) for place, tensor in before_edits.items()
    }
    left_out = pictures.add_tiles(budget)
    params = {
        str(param.address): _described(_parameter(graph, param), "", "param", few, pictures, budget)
        for param in graph.trace.params
    }
    left_out += pictures.add_tiles(budget)
    counts = [f"{_count(stats)} of {len(stats):,} values"]
    counts += [f"{_count(params.values())} of {len(params):,} parameters"] if params else []
    note = f"{' and '.join(counts)} are in this page ({human_size(len(pictures.stored))})"
    if left_out:
        note += f"; {left_out:,} pictures of values are not: with them it would exceed {human_size(budget)}"
    return PageValues(stats, gradients if any(gradients) else None, before, params, f"{note}.", bytes(pictures.stored))


def _count(described: Iterable[dict[str, Any] | None]) -> str:
    return f"{sum(each is not None for each in described):,}"


def _parameter(graph: Graph, param: Value) -> Tensor | None:
    """A parameter as the forward pass used it; None if it was written to since, or is too large."""
    kept = param.kept
    is_changed = isinstance(kept, Tensor) and version_of(kept) != graph.trace.param_versions[param.index]
    return None if is_changed or _numel(param.shape) > _LARGEST_PARAMETER else param.saved


def _numel(shape: torch.Size) -> int:
    return math.prod(int(size) for size in shape) if all(type(size) is int for size in shape) else 0


def _gradient(graph: Graph, place: int) -> Tensor | None:
    gradients = graph.trace.gradients
    if gradients is None:
        return None
    by_pass = gradients.received.get(graph.entries[place].index, {})
    last = next((by_pass[number] for number in sorted(by_pass, reverse=True) if by_pass[number] is not None), None)
    tensor: Tensor | None = fetched(last)
    return tensor


# ---- one tensor -----------------------------------------------------------------------------------------------


def _described(
    tensor: Tensor | None, layer_type: str, role: str, few: int, pictures: _Pictures, budget: int
) -> dict[str, Any] | None:
    """The statistics of a tensor; None if its numbers can't be read here."""
    plain = None if tensor is None else _plain(tensor)
    if plain is None or len(pictures.stored) + BINS > budget:
        return None
    flat = plain.reshape(-1)
    finite = _finite(flat)
    nan = 0 if finite is flat else int(torch.isnan(flat).sum())
    stats: dict[str, Any] = {
        "n": flat.numel(),
        "nan": nan,
        "inf": flat.numel() - finite.numel() - nan,
        "shape": list(plain.shape),
        **_amounts(finite),
    }
    if flat.numel() <= few:
        stats["numbers"] = [_number(value) for value in flat.tolist()]
    if flat.numel() > 8 and finite.numel():
        stats["hist"] = pictures.add(_histogram(finite))
        _add_tiles(stats, plain, layer_type, role, pictures)
    return stats


def _plain(tensor: Tensor) -> Tensor | None:
    """The numbers as real floats on the CPU; None if the tensor has none or can't be converted."""
    if tensor.is_meta or tensor.is_nested or not all(type(size) is int for size in tensor.shape):
        return None
    try:
        tensor = tensor.detach()
        if tensor.layout is not torch.strided:
            tensor = tensor.to_dense()
        if tensor.is_quantized:
            tensor = tensor.dequantize()
        tensor = tensor.abs() if tensor.is_complex() else tensor
        return tensor.to("cpu", torch.float64 if tensor.dtype in _WIDE else torch.float32)
    except (RuntimeError, NotImplementedError):  # a tensor of a kind that can't be converted
        return None


def _finite(tensor: Tensor) -> Tensor:
    """The numbers that are neither NaN nor infinite; the tensor itself if all are, as a finite sum proves."""
    return tensor if math.isfinite(float(tensor.sum())) else tensor[torch.isfinite(tensor)]


def _amounts(finite: Tensor) -> dict[str, Any]:
    if not finite.numel():
        return {"min": None, "max": None, "mean": None, "rms": None}
    low, high = finite.aminmax()
    part = finite[:: finite.numel() // _SAMPLE + 1]
    found = {"min": low, "max": high, "mean": part.mean(), "rms": part.square().mean().sqrt()}
    rounded: dict[str, Any] = {name: _number(value.item()) for name, value in found.items()}
    rounded = {name: value if isinstance(value, float) else None for name, value in rounded.items()}
    return rounded | ({"sampled": True} if part.numel() < finite.numel() else {})


def _number(value: float) -> float | str:
    """A number with six digits; NaN and infinity, which JSON lacks, as a string."""
    return float(f"{value:.6g}") if math.isfinite(value) else str(value)


def _histogram(finite: Tensor) -> bytes:
    part = finite[:: finite.numel() // _SAMPLE + 1].float()
    counts = torch.histc(part, bins=BINS, min=float(part.min()), max=float(part.max()))
    shares = (counts / counts.max() * 255).ceil()  # rounded up, so that a bin that is not empty is visible
    return bytes(shares.to(torch.uint8).tolist())


# ---- pictures -------------------------------------------------------------------------------------------------


def _add_tiles(stats: dict[str, Any], plain: Tensor, layer_type: str, role: str, pictures: _Pictures) -> None:
    kind, what, whole = _tiles(plain.float(), layer_type, role)
    if whole is None:
        return
    finite = _finite(whole)
    if not finite.numel():
        return
    low, high = (float(end) for end in finite.aminmax())
    tiles = _smaller(kind, whole, finite)
    scaled = (tiles - low) / ((high - low) or 1.0)
    if kind == "image":
        data = (scaled.nan_to_num(0).clamp(0, 1) * 255).round().permute(1, 2, 0)
        count, height, width = 1, tiles.shape[1], tiles.shape[2]
    else:
        data = (scaled.nan_to_num(0, posinf=1, neginf=0).clamp(0, 1) * 254).round() + 1
        data[torch.isnan(tiles)] = 0
        count, height, width = tiles.shape
    stats["tiles"] = {
        "kind": kind,
        "what": what,
        "width": width,
        "height": height,
        "count": count,
        "columns": min(count, 4),
        "low": _number(low),
        "high": _number(high),
    }
    pictures.tiles.append((bytes(data.to(torch.uint8).contiguous().numpy().tobytes()), stats))


def _tiles(plain: Tensor, layer_type: str, role: str) -> tuple[str, str, Tensor | None]:
    """The kind of picture for a tensor, its caption, and its tiles: (tiles, height, width), or (3, height, width)."""
    shape = list(plain.shape)
    sizes = [size for size in shape if size > 1]
    if not sizes:
        return "", "", None
    if len(sizes) == 1:
        return "line", f"{sizes[0]} numbers", plain.reshape(1, 1, -1)
    first = plain
    while first.dim() > 4 or (first.dim() > 2 and first.shape[0] == 1):
        first = first[0]
    if first.dim() == 4:
        first = first[0]
    if first.dim() == 2:
        return "matrix", f"{shape[-2]} x {shape[-1]}" + _of_first(shape, 2), first[None]
    channels, height, width = first.shape
    if role in ("input", "output") and channels == 3 and min(height, width) >= 8:
        return "image", f"image, {height} x {width}" + _of_first(shape, 3), first
    count = min(channels, 8)
    kind = "attention" if "softmax" in layer_type else "channels"
    names = {"attention": "heads", "channels": "channels" if len(shape) == 4 else "slices"}
    what = f"{kind if kind == 'attention' else 'maps'}: {count} of {channels} {names[kind]}, each {height} x {width}"
    return kind, what, first[:count]


def _of_first(shape: list[int], dims: int) -> str:
    return f", the first of {math.prod(shape[:-dims])}" if math.prod(shape[:-dims]) > 1 else ""


#: The largest picture of each kind, as (height, width).
_LARGEST = {"line": (1, 132), "matrix": (48, 64), "image": (64, 64), "channels": (32, 32), "attention": (32, 32)}


def _smaller(kind: str, tiles: Tensor, finite: Tensor) -> Tensor:
    """Tiles reduced to the size of a picture. Images are averaged; in other pictures outliers and NaNs stay visible."""
    height, width = _LARGEST[kind]
    size = min(tiles.shape[-2], height), min(tiles.shape[-1], width)
    if size == tuple(tiles.shape[-2:]):
        return tiles
    if kind == "image":
        return F.adaptive_avg_pool2d(tiles[None], size)[0]
    if kind == "line":
        return _extremes(tiles, width // 2)
    return _picked(tiles, _largest_at((tiles - finite.mean()).abs_(), size))


def _extremes(line: Tensor, bins: int) -> Tensor:
    """The smallest and the largest number of each bin, in their order."""
    largest, smallest = (_largest_at(each, (1, bins)) for each in (line, -line))
    both = torch.stack([largest, smallest], dim=-1).sort(dim=-1).values
    return _picked(line, both.reshape(1, 1, -1))


def _largest_at(tiles: Tensor, size: tuple[int, int]) -> Tensor:
    """Where the largest number of each cell is, as an index into the flat tile; a NaN counts as the largest."""
    _, at = F.adaptive_max_pool2d(tiles[None], size, return_indices=True)
    return at[0]


def _picked(tiles: Tensor, at: Tensor) -> Tensor:
    return tiles.flatten(1).gather(1, at.flatten(1)).reshape(at.shape)
