"""Environments of the other tools, each in `.venv-peers/<name>`.

Each has the tool and what it needs beyond torch; torch itself, torchvision and transformers are those of this
environment, which a path file adds behind its own packages. So nothing is ever replaced here, and all use one torch.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".venv-peers"

#: The tool itself, which comes without its dependencies, and those that this environment may not have.
PEERS: dict[str, tuple[str, list[str]]] = {
    "torchlens 2.15.0": ("torchlens==2.15.0", ["ipython", "graphviz", "tqdm", "pandas"]),
    "torchlens newest": ("torchlens", ["graphviz", "tqdm", "packaging"]),
    "nnsight": (
        "nnsight",
        ["greenlet", "cloudpickle", "websocket-client", "zstandard", "httpx", "pydantic", "pyyaml", "tqdm"],
    ),
    "torchview": ("torchview", ["graphviz"]),
}

#: Those that `benchmarks.extract` runs besides; what is named first would bring another torch with it.
EXTRACTORS: dict[str, tuple[str, list[str]]] = {
    "thingsvision": (
        "thingsvision timm open-clip-torch torchtyping ftfy regex wcwidth",
        [
            "numpy<2",
            "pandas<3",
            "tensorflow-cpu<2.18",
            "typeguard<3",
            "h5py",
            "matplotlib",
            "numba",
            "scikit-image",
            "tqdm",
        ],
    ),
}

#: Those that `benchmarks.against` compares edits with, besides nnsight; version 4 of TransformerLens needs the hub.
EDITORS: dict[str, tuple[str, list[str]]] = {
    "pyvene": ("pyvene", ["matplotlib", "networkx", "seaborn", "tqdm"]),
    "TransformerLens": (
        "transformer-lens<4 accelerate better-abc sentencepiece",
        ["einops", "fancy-einsum", "jaxtyping", "beartype", "rich", "typeguard", "datasets"],
    ),
}

#: Those whose pages `benchmarks.page` opens besides.
VIEWERS: dict[str, tuple[str, list[str]]] = {
    "netron": ("netron", ["onnx", "onnxscript"]),
    "model explorer": (
        "ai-edge-model-explorer ai-edge-model-explorer-adapter",
        ["dacite", "flask", "ipython", "portpicker", "requests", "termcolor", "watchdog"],
    ),
    "torchvista": ("torchvista", ["ipython"]),
}


def folder(peer: str) -> Path:
    return FOLDER / peer.replace(" ", "-")


def python(peer: str) -> str:
    return str(folder(peer) / "bin" / "python")


def prepare(peer: str) -> str | None:
    """Make the environment of a tool, if it isn't there. Returns why that failed, if it did."""
    ready = folder(peer) / ".ready"
    if ready.exists():
        return None
    print(f"setting up {peer} ...", flush=True)
    packages, needed = {**PEERS, **EXTRACTORS, **EDITORS, **VIEWERS}[peer]
    pip = [sys.executable, "-m", "pip", "--python", python(peer), "install", "--quiet"]
    if peer not in EXTRACTORS:
        pip += ["--constraint", str(ROOT / "constraints.txt")]
    commands = [
        [sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder(peer))],
        [*pip, *needed],
        [*pip, "--no-deps", *packages.split()],
    ]
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        except subprocess.TimeoutExpired:
            return "setting it up took more than 15 minutes"
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            return next((line for line in reversed(lines) if "ERROR" in line), f"{command[-1]}: {lines[-1:]}")
    shutil.rmtree(_packages(peer) / "tests", ignore_errors=True)  # some wheels carry one, which would hide ours
    (_packages(peer) / "this-environment.pth").write_text(sysconfig.get_path("purelib") + "\n")
    ready.touch()
    return None


def version(peer: str) -> str:
    """Of the tool itself, in its environment."""
    name = re.split("[<>= ]", {**PEERS, **EXTRACTORS, **EDITORS, **VIEWERS}[peer][0])[0]
    found = metadata.distributions(name=name, path=[str(_packages(peer))])
    return next((each.version for each in found), "")


def _packages(peer: str) -> Path:
    return next((folder(peer) / "lib").glob("python*/site-packages"))
