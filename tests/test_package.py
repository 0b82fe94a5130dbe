"""The package: what it is made of, what importing it costs, and that it works where nothing else is installed.

The wheel is built and installed into an environment that has torch, NumPy, safetensors, tqdm and xxhash, with what they
require, and no extra. torch is not copied there but linked, so that this takes seconds.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
import torch

import torchlens as tl

ROOT = Path(__file__).parents[1]
SMOKE = Path(__file__).parent / "package_smoke.py"
PYPROJECT = (ROOT / "pyproject.toml").read_text()
NAME = re.search(r'^name = "(\w+)"', PYPROJECT, flags=re.MULTILINE)[1]  # type: ignore[index]


def run(*command: str | Path, **options: object) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return str(done.stdout)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def empty(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with nothing but the package and what it requires."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in required(["torch", "numpy", "safetensors", "tqdm", "xxhash"]):
        link(importlib.metadata.distribution(name), packages)
    programs = folder / "bin"
    install = ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    run(sys.executable, "-m", "pip", "--python", programs / "python", *install, built[1])
    return programs


def required(names: list[str]) -> set[str]:
    """These distributions and what they require, as far as it is installed."""
    found: set[str] = set()
    while names:
        name = names.pop()
        try:
            requirements = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # for another system, or another Python
            continue
        if name not in found:
            found.add(name)
            names += [re.split(r"[\s;<>=!~\[(]", line)[0] for line in requirements if "extra ==" not in line]
    return found


def link(distribution: importlib.metadata.Distribution, folder: Path) -> None:
    tops = {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}
    for top in tops:
        if not (folder / top).exists():
            (folder / top).symlink_to(Path(str(distribution.locate_file(top))).resolve())


def test_it_works_without_any_extra(empty: Path, tmp_path: Path) -> None:
    bare = {"PATH": str(empty), "CI": "1"}  # no Graphviz, no viewer
    assert run(empty / "python", "-I", SMOKE, cwd=tmp_path, env=bare).endswith("all is well\n")
    assert "torchlens show" in run(empty / "torchlens", "--help", cwd=tmp_path, env=bare)


def test_what_is_in_the_wheel(built: tuple[Path, Path]) -> None:
    names = zipfile.ZipFile(built[1]).namelist()
    assert {"torchlens/py.typed", f"{NAME}-{tl.__version__}.dist-info/licenses/LICENSE"} <= set(names)
    assert {name.partition("/")[0] for name in names} == {"torchlens", f"{NAME}-{tl.__version__}.dist-info"}
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests")]
    for path in (ROOT / "src" / "torchlens").rglob("*.py"):
        assert path.relative_to(ROOT / "src").as_posix() in names


def test_what_is_in_the_sdist(built: tuple[Path, Path]) -> None:
    """What is needed to build, to test and to read; no pictures of the gallery."""
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("README.md", "LICENSE", "CHANGELOG.md", "Makefile", "constraints.txt", "tests/models.py"):
        assert name in names
    assert [name for name in names if name.startswith(("docs/gallery", ".", "dist")) and name != ".gitignore"] == []
    assert built[0].stat().st_size < 1_800_000


def test_what_pypi_shows(built: tuple[Path, Path]) -> None:
    """The page of the package: Markdown without what only a repository can show."""
    with zipfile.ZipFile(built[1]) as wheel:
        metadata = wheel.read(f"{NAME}-{tl.__version__}.dist-info/METADATA").decode()
    head, _, page = metadata.partition("\n\n")
    assert {f"Name: {NAME}", "License-Expression: Apache-2.0", "Description-Content-Type: text/markdown"} <= {
        *head.splitlines()
    }
    assert page == (ROOT / "docs" / "pypi.md").read_text(encoding="utf-8")
    assert [link for link in re.findall(r"\]\((.+?)\)", page) if not link.startswith("https://")] == []
    assert f"pip install {NAME}" in page


def test_the_name_is_the_same_everywhere() -> None:
    for name in ("README.md", "docs/index.md", "docs/installing.md"):
        assert f"pip install {NAME}" in (ROOT / name).read_text(encoding="utf-8"), name


def test_the_version_is_stated_once_more() -> None:
    assert f'version = "{tl.__version__}"' in PYPROJECT


@pytest.mark.parametrize("module", [tl, tl.fastlog], ids=["torchlens", "fastlog"])
def test_public_names_are_listed(module: ModuleType) -> None:
    ours = [name for name, value in vars(module).items() if getattr(value, "__module__", "").startswith("torchlens")]
    assert {name for name in ours if not name.startswith("_")} <= set(module.__all__)
    assert module.__all__ == sorted(module.__all__)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_completion_offers_the_public_names_and_no_others() -> None:
    assert dir(tl) == tl.__all__


def test_importing_brings_nothing_heavy() -> None:
    """Beyond what `import torch` has brought, only what is listed here comes with the package or its command line."""
    code = """
import sys, torch
before = set(sys.modules)
import torchlens
print(*{name.split(".")[1] for name in sys.modules if name.startswith("torchlens.")})
import torchlens.cli
new = set(sys.modules) - before
print(*{name.partition(".")[0] for name in new} - sys.stdlib_module_names)
print(*new & {"torch.fx", "torch._dynamo", "torch._inductor", "torch.onnx", "torch.utils.tensorboard"})
"""
    places, tops, inner = run(sys.executable, "-c", code, env={**os.environ}).splitlines()
    assert not set(places.split()) & {"draw", "bundle", "validate", "rerun", "fastlog", "cli"}
    assert set(tops.split()) <= {"torchlens", "safetensors", "numpy"}
    assert inner == ""


EXTRAS = {
    "pandas": ("tables", "log.to_pandas()"),
    "pyarrow": ("tables", "log.to_parquet('x.parquet')"),
    "networkx": ("graphs", "log.to_networkx()"),
}


@pytest.mark.parametrize("package", EXTRAS)
def test_a_missing_package_is_named_with_its_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    extra, question = EXTRAS[package]
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not there
    log = tl.log_forward_pass(torch.nn.ReLU(), torch.rand(2))
    recording = tl.fastlog.record(torch.nn.ReLU(), torch.rand(2), keep_op="relu")
    with pytest.raises(ImportError, match=re.escape(f'pip install "{NAME}[{extra}]"')):
        eval(question, {"log": log})
    if package == "pandas":
        with pytest.raises(ImportError, match=re.escape(f'pip install "{NAME}[tables]"')):
            recording.to_pandas()


def test_every_extra_that_a_message_names_exists() -> None:
    section = PYPROJECT.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    extras = set(re.findall(r"^(\w+) =", section, flags=re.MULTILINE))
    texts = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    assert set(re.findall(rf"{NAME}\[(\w+)\]", texts)) == extras
    assert "torchlens[" not in texts  # the import name is not what pip knows
