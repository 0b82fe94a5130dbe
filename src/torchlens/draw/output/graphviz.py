"""Let Graphviz lay out and draw a view: its `dot` program, or the pygraphviz package, which brings its own."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys

from ...errors import DrawingError

_PYGRAPHVIZ = """
import sys, pygraphviz
graph = pygraphviz.AGraph(string=sys.stdin.buffer.read().decode("utf-8"))
sys.stdout.buffer.write(graph.draw(format=sys.argv[1], prog="dot"))
"""


def is_there() -> bool:
    """Can Graphviz be used here?"""
    return shutil.which("dot") is not None or importlib.util.find_spec("pygraphviz") is not None


def run_graphviz(dot: str, fileformat: str, seconds: float | None = None) -> bytes:
    """The picture of a graph in DOT. Raises `DrawingError` if Graphviz is missing, fails or takes too long.

    Both run in a subprocess, so that they can be stopped.
    """
    program = shutil.which("dot")
    if program is not None:
        command = [program, f"-T{fileformat}"]
    elif importlib.util.find_spec("pygraphviz") is not None:
        command = [sys.executable, "-c", _PYGRAPHVIZ, fileformat]
    else:
        raise DrawingError("Graphviz is not installed: neither its program dot nor the package pygraphviz was found")
    try:
        done = subprocess.run(command, input=dot.encode(), capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise DrawingError(f"Graphviz took longer than {seconds:g} s") from None
    except OSError as error:
        raise DrawingError(f"Graphviz could not be started: {error}") from None
    if done.returncode or not done.stdout:
        complaint = done.stderr.decode(errors="replace").strip().splitlines()
        raise DrawingError(f"Graphviz failed: {complaint[-1] if complaint else f'exit code {done.returncode}'}")
    return done.stdout
