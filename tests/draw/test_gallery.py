"""The gallery: every picture is there, is an SVG, and is small; the models of our own can be drawn again."""

from __future__ import annotations

import runpy
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

import torchlens as tl

ROOT = Path(__file__).parents[2]
GALLERY: dict[str, Any] = runpy.run_path(str(ROOT / "examples" / "gallery.py"))
PICTURES = {picture.name: picture for picture in GALLERY["PICTURES"]}
OWN = [name for name, picture in PICTURES.items() if isinstance(picture.build, type)]


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_is_there(name: str) -> None:
    path = ROOT / "docs" / "gallery" / f"{name}.svg"
    assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert path.stat().st_size < 150_000


def test_the_index_shows_all() -> None:
    folder = ROOT / "docs" / "gallery"
    assert (folder / "README.md").read_text() == GALLERY["index"](GALLERY["PICTURES"])
    assert {path.stem for path in folder.glob("*.svg")} == set(PICTURES)


@pytest.mark.parametrize("name", OWN)
def test_models_of_our_own(name: str, tmp_path: Path) -> None:
    picture = PICTURES[name]
    path = tl.show_model_graph(
        picture.build(), picture.inputs(), vis_outpath=tmp_path / "x", vis_save_only=True, **picture.arguments
    )
    assert path.stat().st_size > 3000
