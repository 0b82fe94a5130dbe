"""The documentation: every example runs and shows what the page says; every error and older name has its entry."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.pages import Page, blocks_of, rows_of

import torchlens as tl
from torchlens import aliases, errors

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
IMAGES = DOCS / "images"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
PICTURE = re.compile(r"images/([\w-]+\.(?:svg|png))")


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples(path: Path, update: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "examples")  # a reader has copied what the page imports from there
    monkeypatch.setenv("CI", "1")  # no viewer
    monkeypatch.setattr("torchlens.draw.output.graphviz.is_there", lambda: False)  # the same pictures everywhere
    page = Page(path)
    page.check(update)
    for name in set(PICTURE.findall(page.text)):
        drawn, shown = tmp_path / name, IMAGES / name
        if drawn.exists() and update:
            shown.write_bytes(drawn.read_bytes())
        assert shown.exists(), f"{name} is shown and not drawn by the page"
        assert not drawn.exists() or drawn.read_bytes() == shown.read_bytes(), f"{name}: pytest --update-golden"


def test_the_code_of_the_first_page_fits_its_box() -> None:
    """Longer lines would run out of it, on a screen of usual width."""
    blocks = blocks_of((DOCS / "index.md").read_text(encoding="utf-8"))
    assert [line for block in blocks for line in block.code.splitlines() if len(line) > 90] == []


def test_forty_lines_of_the_cookbook_run() -> None:
    assert len(rows_of((DOCS / "cookbook.md").read_text(encoding="utf-8"))) == 40


def test_ten_calls_of_each_other_tool_have_a_line_that_runs() -> None:
    sections = (DOCS / "coming-from.md").read_text(encoding="utf-8").split("\n## ")[1:]
    assert [len(rows_of(section)) for section in sections] == [10] * 6


def test_every_image_is_shown() -> None:
    shown = {name for path in PAGES for name in PICTURE.findall(path.read_text(encoding="utf-8"))}
    assert {path.name for path in IMAGES.iterdir()} == shown


PUBLIC_ERRORS = [
    name for name, thing in vars(errors).items() if isinstance(thing, type) and issubclass(thing, Exception)
]


@pytest.mark.parametrize("name", PUBLIC_ERRORS)
def test_every_error_has_an_entry(name: str) -> None:
    assert hasattr(tl, name)
    entries = re.findall(r"^## (\w+)\n\n(.+?)(?=^## |\Z)", (DOCS / "errors.md").read_text(), re.MULTILINE | re.DOTALL)
    assert "**What to do" in dict(entries).get(name, ""), f"docs/errors.md says nothing about {name}"


def test_every_public_name_is_in_the_reference() -> None:
    reference = "".join(path.read_text(encoding="utf-8") for path in sorted((DOCS / "api").glob("*.md")))
    shown = {name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)$", reference, re.MULTILINE)}
    elsewhere = {"fastlog", "reduce", *PUBLIC_ERRORS, *aliases.FUNCTIONS, *aliases.CLASSES}
    assert {*tl.__all__, *tl.fastlog.__all__} <= shown | elsewhere


def test_older_names(update: bool) -> None:
    path = DOCS / "older-names.md"
    head, line, _ = path.read_text(encoding="utf-8").partition("<!-- from here on written by the test -->\n")
    text = head + line + "\n" + older_names()
    if update:
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, "pytest --update-golden writes the table"


def older_names() -> str:
    tables = {
        "Functions": aliases.FUNCTIONS,
        "Arguments": aliases.ARGUMENTS,
        "Classes": aliases.CLASSES,
        "Attributes of a log": aliases.MODEL_ATTRIBUTES,
        "Attributes of a layer": aliases.LAYER_ATTRIBUTES,
    }
    sections = []
    for title, names in tables.items():
        rows = "".join(f"| `{older}` | `{name}` |\n" for older, name in names.items())
        sections.append(f"## {title}\n\n| older | now |\n|---|---|\n{rows}")
    return "\n".join(sections)
