"""Environments of the other tools, each in `.venv-peers/<name>`.

Each has the tool and what it needs beyond torch; torch itself, torchvision and transformers are those of this
environment, which a path file adds behind its own packages. So nothing is ever replaced here, and all use one torch.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
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
    package, needed = PEERS[peer]
    pip = [sys.executable, "-m", "pip", "--python", python(peer), "install", "--quiet"]
    pip += ["--constraint", str(ROOT / "constraints.txt")]
    commands = [
        [sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder(peer))],
        [*pip, *needed],
        [*pip, "--no-deps", package],
    ]
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            return "setting it up took more than 5 minutes"
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            return next((line for line in reversed(lines) if "ERROR" in line), f"{command[-1]}: {lines[-1:]}")
    (_packages(peer) / "this-environment.pth").write_text(sysconfig.get_path("purelib") + "\n")
    ready.touch()
    return None


def _packages(peer: str) -> Path:
    return next((folder(peer) / "lib").glob("python*/site-packages"))
