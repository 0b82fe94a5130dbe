"""Data flows one way: each folder imports only what lies before it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

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
    "_torch",
    "capture",
    "graph",
    "bundle",
    "validate",
    "rerun",
    "draw",
    "log",
    "fastlog",
    "api",
    "cli",
    "__init__",
    "__main__",
]


def place(path: Path) -> int:
    return FLOW.index(path.relative_to(SOURCE).with_suffix("").parts[0])


def without_type_checking(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker sees."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from without_type_checking(child)


def imports(path: Path) -> list[tuple[str, int]]:
    """The package's own modules that a file imports, with the line."""
    package = ["torchlens", *path.relative_to(SOURCE).parts[:-1]]
    found = []
    for node in without_type_checking(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            names = [*base, *(node.module or "").split(".")] if node.module else [*base, node.names[0].name]
            found.append((names[1], node.lineno))
    return found


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_with_the_flow(path: Path) -> None:
    against = [f"line {line}: {name}" for name, line in imports(path) if FLOW.index(name) > place(path)]
    assert against == []


def test_private_torch_names_live_in_one_file() -> None:
    private = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch"
            if named and re.match("_[^_]", node.attr) and path.name != "_torch.py":  # type: ignore[union-attr]
                private.append(f"{path.name}:{node.lineno}")
    assert private == []


def test_the_flow_names_every_place() -> None:
    assert {path.relative_to(SOURCE).with_suffix("").parts[0] for path in FILES} == set(FLOW)
