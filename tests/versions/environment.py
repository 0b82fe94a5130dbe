"""One environment: make it, run the tests in it, remove it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

#: What the tests need besides the package and its extras.
TOOLS = "pytest pytest-xdist hypothesis pillow expecttest scipy nbclient nbformat ipykernel xarray pygraphviz".split()


#: What is not run here, and why; `make test` runs it.
LEFT_OUT = {
    "tests/page": "the viewer is JavaScript, and is tried in a browser",
    "tests/draw/layout": "the layout of pictures knows nothing of torch",
    "tests/benchmarks": "nothing that a user runs",
    "tests/bundle/test_replace.py": "about file systems",
    "tests/fuzz": "about damaged files",
    "tests/test_architecture.py": "reads the source",
    "tests/test_contributing.py": "reads the source",
    "tests/test_notebooks.py": "show what the pinned torch gives",
    "tests/test_package.py": "about the wheel",
    "tests/test_private_names.py": "simulates a torch that lacks a name",
}


@dataclass(frozen=True)
class Environment:
    """A version of torch, and a Python by name or path; `lowest`: the oldest dependencies that pyproject.toml names."""

    torch: str
    python: str
    lowest: bool = False

    @property
    def name(self) -> str:
        return f"torch {self.torch}, {Path(self.python).name}" + (", lowest" if self.lowest else "")

    @property
    def folder(self) -> Path:
        """Where it is while it lasts."""
        return Path(tempfile.gettempdir(), "torchlens-versions", re.sub(r"[, ]+", "-", self.name))

    @property
    def minor(self) -> int:
        return int(self.torch.split(".")[1])

    def requirements(self) -> list[list[str]]:
        """What is installed, in order: the arguments of pip, each time."""
        # torchvision names the one build of torch that it belongs to; not every torch has one on the day it appears.
        vision = ["--no-deps", f"torchvision<=0.{self.minor + 15}.99"]
        transformers = "transformers<5" if self.minor < 6 else "transformers"
        return [[f"torch=={self.torch}"], [".[tables,graphs,png]"], vision, [transformers, *TOOLS]]


#: The extras that the tests use; of the others, the tests are run by commands of their own.
EXTRAS = ("tables", "graphs", "png", "graphviz", "images", "xarray")


def lowest_requirements(root: Path) -> list[str]:
    """`name==version` for every dependency, and those of the extras that the tests use, at its lower bound."""
    import tomllib  # with Python 3.11

    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    named = project["dependencies"] + [each for extra in EXTRAS for each in project["optional-dependencies"][extra]]
    return [each.replace(">=", "==") for each in named if not each.startswith("torch")]


def run(environment: Environment, root: Path, before: dict[str, Any] | None, *, keep: bool) -> dict[str, Any]:
    """What came of the tests in this environment; of those alone that had failed before, if that is given.

    An environment that was kept is used again.
    """
    interpreter = interpreter_named(environment.python)
    if interpreter is None:
        return {"verdict": "missing", "summary": f"{environment.python} is not on this machine"}
    folder, failure = environment.folder, None
    try:
        if not (folder / "ready").exists():
            failure = install(environment, interpreter, root)
        return failure or tested(folder, root, before)
    finally:
        if not keep:
            shutil.rmtree(folder)


def interpreter_named(name: str) -> str | None:
    """The interpreter on the path, or one of pyenv's; None if there is none that runs."""
    installed = sorted(Path.home().glob(f".pyenv/versions/*/bin/{name}"))
    for candidate in [shutil.which(name), *map(str, installed)]:
        if candidate and subprocess.run([candidate, "--version"], capture_output=True).returncode == 0:
            return candidate
    return None


def install(environment: Environment, interpreter: str, root: Path) -> dict[str, Any] | None:
    """Install everything; what pip said if it failed."""
    folder = environment.folder
    subprocess.run([interpreter, "-m", "venv", folder / "venv"], check=True)
    pins = folder / "constraints.txt"
    pins.write_text("\n".join(constraints(environment, root)))
    settings = {**os.environ, "PIP_CONSTRAINT": str(pins), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    for requirements in environment.requirements():
        pip = [folder / "venv/bin/python", "-m", "pip", "install", "--quiet", *requirements]
        done = subprocess.run(pip, cwd=root, env=settings, capture_output=True, text=True)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            return {"verdict": "not installed", "summary": " ".join(said)[:300] or "pip failed"}
    (folder / "ready").touch()
    return None


def constraints(environment: Environment, root: Path) -> list[str]:
    """The project's pins, but for what this environment chooses itself."""
    lowest = lowest_requirements(root) if environment.lowest else []
    free = {"torch", "sympy", "torchvision", "transformers", "huggingface_hub", "tokenizers"}
    free |= {"scipy", *(each.split("==")[0] for each in lowest)} if lowest else set()
    pins = (root / "constraints.txt").read_text().splitlines()
    return [*lowest, *[line for line in pins if re.split("[=<>; ]", line)[0] not in free]]


def tested(folder: Path, root: Path, before: dict[str, Any] | None) -> dict[str, Any]:
    report = folder / "report.xml"
    report.unlink(missing_ok=True)  # of an environment that was kept
    python = folder / "venv/bin/python"
    settings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root / "src")}
    chosen = [f"--ignore={path}" for path in LEFT_OUT] if before is None else before["failures"]
    options = ["-n", "2", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    pytest = [python, "-m", "pytest", *options, *chosen]
    output = folder / "output.txt"  # can be watched while the tests run
    with output.open("w") as lines:
        subprocess.run(pytest, cwd=root, env=settings, stdout=lines, stderr=subprocess.STDOUT)
    said = output.read_text()
    if not report.exists():
        return {"verdict": "failed", "failed": 1, "summary": said[-1000:]}
    found = {
        **counted(report),
        "python": said_by(python, "--version"),
        "summary": said.strip().splitlines()[-1],
        "commit": said_by("git", "-C", root, "describe", "--always", "--dirty"),
        "date": date.today().isoformat(),
    }
    return found if before is None else together(before, found)


def together(before: dict[str, Any], again: dict[str, Any]) -> dict[str, Any]:
    """What came of all tests, if those that had failed were run again."""
    reasons = Counter(before["skipped"]) + Counter(again["skipped"])
    passed = before["passed"] + again["passed"]
    earlier = [*before.get("earlier", []), [before["commit"], len(before["failures"])]]
    return {**before, **again, "passed": passed, "skipped": dict(reasons), "earlier": earlier}


def counted(report: Path) -> dict[str, Any]:
    """How many tests passed, which failed, and why the others were skipped."""
    failed, reasons, passed = [], Counter[str](), 0
    for test in ElementTree.parse(report).iter("testcase"):
        skipped = test.find("skipped")
        if test.find("failure") is not None or test.find("error") is not None:
            failed.append(_id_of(test.get("classname", ""), test.get("name", "")))
        elif skipped is not None:
            reasons[skipped.get("message", "")] += 1
        else:
            passed += 1
    verdict = "failed" if failed else "passed"
    return {"verdict": verdict, "passed": passed, "failed": len(failed), "failures": failed, "skipped": dict(reasons)}


def _id_of(module: str, test: str) -> str:
    """What pytest is told to run this test; a module that could not be imported stands for all of its tests."""
    return f"{module.replace('.', '/')}.py::{test}" if module else f"{test.replace('.', '/')}.py"


def said_by(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
