"""The notebooks run in a real kernel, and show what they say."""

from __future__ import annotations

import os
import re
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from tests.pages import timeless
from tests.torch_version import same_as_shown

DOCS = Path(__file__).parents[1] / "docs"
PATHS = sorted((DOCS / "notebooks").glob("*.ipynb"))
NOTEBOOKS = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.handover] if path.stem == "rdms" else [])  # needs rsatoolbox
    for path in PATHS
]
A_CELL = re.compile(r"/[^\s\"]*ipykernel_\d+/\d+\.py")  # how a kernel names the file that a cell is not in
WITHOUT_GRAPHVIZ = "from torchlens.draw.output import graphviz\ngraphviz.is_there = lambda: False\ndel graphviz\n"


def texts(notebook: Any) -> list[list[str]]:
    """What each cell shows, as text; a picture by its kind alone."""
    shown = []
    for cell in notebook.cells:
        outputs = [output.get("data", {"text/plain": output.get("text", "")}) for output in cell.get("outputs", [])]
        shown.append(["picture" if "image/svg+xml" in data else timeless(data["text/plain"]) for data in outputs])
    return shown


@pytest.mark.parametrize("path", NOTEBOOKS)
def test_notebook(path: Path, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    startup = tmp_path / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "same_pictures_everywhere.py").write_text(WITHOUT_GRAPHVIZ)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    before = nbformat.read(path, as_version=4)
    after = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": tmp_path}}
    NotebookClient(after, timeout=120, resources=place, record_timing=False, coalesce_streams=True).execute()
    if request.config.getoption("--update-golden"):
        after.metadata = before.metadata
        path.write_text(A_CELL.sub("a cell of this notebook", nbformat.writes(after)) + "\n", encoding="utf-8")
    else:
        same_as_shown(texts(before), texts(after), "pytest --update-golden accepts the change")
    assert any("picture" in shown for shown in texts(after))
    assert gettempdir() + os.sep not in A_CELL.sub("", nbformat.writes(after)), "a path of this machine is shown"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_no_path_of_the_machine_where_it_ran_is_shown(path: Path) -> None:
    assert not re.findall(r"(?:/tmp|/home|/root|/Users)/[\w./-]+", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", sorted((DOCS / "start").glob("*.md")), ids=lambda page: page.stem)
def test_a_start_page_begins_with_a_notebook(page: Path) -> None:
    found = re.search(
        r"\*\*Begin with the notebook\*\* \[.+?\]\(\.\./notebooks/(\S+)\.md\)", page.read_text(encoding="utf-8")
    )
    assert found is not None and found[1] in [path.stem for path in PATHS]
