"""Image files as inputs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch

from ..errors import ArgumentError

ENDINGS = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"}


def is_image_file(thing: Any) -> bool:
    """Is it the name of an image?"""
    return isinstance(thing, (str, PurePath)) and PurePath(thing).suffix.lower() in ENDINGS


def image_files(folder: Path) -> list[Path]:
    """The images in a folder and the folders in it, sorted by path."""
    if not folder.is_dir():
        what = "is a file, not a folder of images" if folder.exists() else "does not exist"
        raise ArgumentError(f"inputs: {str(folder)!r} {what}; give a folder or a list of image files")
    files = sorted((path for path in folder.rglob("*") if is_image_file(path)), key=lambda path: path.as_posix())
    if not files:
        raise ArgumentError(f"inputs: there is no image in {str(folder)!r} ({', '.join(sorted(ENDINGS))})")
    return files


def relative_ids(files: Sequence[Any]) -> list[str]:
    """What tells the files apart: their paths from the folder that they have in common."""
    paths = [os.path.abspath(path) for path in files]
    common = os.path.commonpath([os.path.dirname(path) for path in paths])
    return [PurePath(os.path.relpath(path, common)).as_posix() for path in paths]


def load_image(path: Path) -> Any:
    """A Pillow image, in RGB; without `preprocess` it becomes a tensor by `to_tensor`."""
    try:
        pillow: Any = import_module("PIL.Image")
    except ImportError as error:
        raise ImportError('reading images needs Pillow: pip install "forwardlens[images]"') from error
    with pillow.open(path) as image:
        if image.mode.startswith("I") or image.mode == "F":
            raise ValueError(
                f"it has more than 8 bits a channel (mode {image.mode}), which Pillow would clip: read it with a "
                "Dataset that scales it as the model needs"
            )
        return image.convert("RGB")


def to_tensor(image: Any) -> torch.Tensor:
    """An image as a tensor of shape [3, height, width] with values from 0 to 1."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
