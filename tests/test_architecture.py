"""Data flows one way: each folder imports only what lies before it."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "torchlens"

#: In the order of the flow. A file may import from its own place and from those before it.
FLOW = [
    "errors",
    "selectors",
    "options",
    "source",
    "statements",
    "aliases",
    "words",
    "notebook",
    "_torch",
    "capture",
    "graph",
    "replay",
    "intervene",
    "bundle",
    "validate",
    "rerun",
    "draw",
    "page",
    "log",
    "fastlog",
    "extraction",
    "comparing",
    "api",
    "cli",
    "__init__",
    "__main__",
]


def place(path: Path) -> int:
    return FLOW.index(path.relative_to(SOURCE).with_suffix("").parts[0])


def imports(path: Path) -> list[tuple[str, int]]:
    """The package's own modules that a file imports, for its types alone as well, with the line."""
    package = ["torchlens", *path.relative_to(SOURCE).parts[:-1]]
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            inner = [node.module] if node.module else [alias.name for alias in node.names]
            found += [([*base, *name.split(".")][1], node.lineno) for name in inner]
    return found


#: These name the log in annotations only: they are given one.
GIVEN_A_LOG = ("validate/lint.py", "validate/report.py", "validate/backward.py")

FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_with_the_flow(path: Path) -> None:
    allowed = ("log",) if str(path.relative_to(SOURCE)) in GIVEN_A_LOG else ()
    against = [f"line {line}: {name}" for name, line in imports(path) if FLOW.index(name) > place(path)]
    assert [each for each in against if each.split()[-1] not in allowed] == []


def test_private_torch_names_live_in_one_folder() -> None:
    private = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch"
            if named and re.match("_[^_]", node.attr) and path.parent.name != "_torch":  # type: ignore[union-attr]
                private.append(f"{path.name}:{node.lineno}")
    assert private == []


def test_the_flow_names_every_place() -> None:
    assert {path.relative_to(SOURCE).with_suffix("").parts[0] for path in FILES} == set(FLOW)


# ---- one noun, one meaning -------------------------------------------------------------------------------------

#: A user reads these names with the module before them: tl.load and tl.fastlog.load open two kinds of folders.
MEANT_TWICE = {"load", "recover"}


def public_definitions(path: Path) -> set[str]:
    """The classes, functions and type aliases at the top of a file that others may import."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name) and not target.id.isupper()}
    return {name for name in names if not name.startswith("_")}


def test_no_name_is_defined_twice() -> None:
    places: dict[str, list[str]] = {}
    for path in FILES:
        for name in public_definitions(path) - MEANT_TWICE:
            places.setdefault(name, []).append(str(path.relative_to(SOURCE)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_no_two_files_have_the_same_name() -> None:
    names = [path.name for path in FILES if not path.name.startswith("__")]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []


# ---- docs/architecture.md ---------------------------------------------------------------------------------------

PAGE = SOURCE.parents[1] / "docs" / "architecture.md"


def definition_lines(path: Path, name: str) -> int:
    """How many lines a function, method or class takes, with its decorators."""
    nodes: list[Any] = [ast.parse(path.read_text())]
    for part in name.split("."):
        nodes = [child for node in nodes for child in node.body if getattr(child, "name", None) == part]
    assert nodes, f"{path.name} has no {name}"
    starts = [min([node.lineno, *(each.lineno for each in node.decorator_list)]) for node in nodes]
    return sum(node.end_lineno - start + 1 for node, start in zip(nodes, starts, strict=True))


def arrows() -> dict[str, list[str]]:
    """The other places that each place imports, in the order of the flow."""
    found: dict[str, set[str]] = {name: set() for name in FLOW}
    for path in FILES:
        found[FLOW[place(path)]].update(name for name, _ in imports(path) if FLOW.index(name) <= place(path))
    return {name: sorted(others - {name}, key=FLOW.index) for name, others in found.items()}


def corrected(page: str) -> str:
    """The page, with the numbers and arrows that the code has."""
    counts: list[int] = []

    def reading(row: re.Match[str]) -> str:
        names = re.findall("`([^`]+)`", row[2])
        counts.append(sum(definition_lines(SOURCE / row[1], name) for name in names))
        return f"| `{row[1]}` | {row[2]} | {counts[-1]} |{row[3]}"

    page = re.sub(r"^\| `([^`]+\.py)` \| (.+?) \| \d+ \|(.*)$", reading, page, flags=re.MULTILINE)
    page = re.sub(r"\*\*\d+ files, \d+ lines\.\*\*", f"**{len(counts)} files, {sum(counts)} lines.**", page)
    for name, others in arrows().items():
        listed = ", ".join(f"`{other}`" for other in others)
        page = re.sub(rf"^(\| `{name}` \| [^|]+) \|.*\|$", rf"\1 | {listed} |", page, flags=re.MULTILINE)
    return page.replace("|  |", "| |")


def test_the_page_tells_the_truth(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text(encoding="utf-8")
    truth = corrected(page)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(truth, encoding="utf-8")
    else:
        assert page == truth, "pytest --update-golden tests/test_architecture.py corrects the page"
    _, _, places = truth.partition("## Who imports whom")
    assert re.findall(r"^\| `(\w+)` \|", places, flags=re.MULTILINE) == FLOW


def test_the_walks_lead_through_what_exists() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w/]+\.py)` \| (`[^|]+) \| [^|]+ \|$", page, flags=re.MULTILINE)
    assert len(rows) > 25
    for file, names in rows:
        for name in re.findall("`([^`]+)`", names):
            assert definition_lines(SOURCE / file, name) > 0


def test_the_way_to_a_finished_layer_is_short() -> None:
    found = re.search(r"\*\*(\d+) files, (\d+) lines", PAGE.read_text(encoding="utf-8"))
    assert found is not None and int(found[1]) <= 8 and int(found[2]) < 1000


@pytest.mark.parametrize("folder", ["capture", "draw"])
def test_the_parts_that_a_readme_names_exist(folder: str) -> None:
    named = set(re.findall(r"\b(\w+\.py)\b", (SOURCE / folder / "README.md").read_text(encoding="utf-8")))
    assert named <= {path.name for path in (SOURCE / folder).rglob("*.py")}


def test_in_draw_each_folder_knows_only_those_before_it() -> None:
    """view, then layout, then output; all know the elements of a view, and only the door knows the options of files."""
    order = ["view", "layout", "output", "draw_options", "show"]
    draw = SOURCE / "draw"
    for path in draw.glob("*/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 2 and node.module:
                assert order.index(node.module.split(".")[0]) < order.index(path.parent.name), f"{path}:{node.lineno}"
