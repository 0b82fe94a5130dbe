"""The interactive page in a real browser: size, time to ready, time to open everything, frame times.

    python -m benchmarks.page [--largest N] [--peers]

Wanted: 10,000 operations in less than 1 MB without values, ready within 1 s, everything open within 0.5 s, frames while
panning and zooming at a median of 16.7 ms and a 95th percentile under 35 ms; 50,000 operations open in 3 s. Chromium
runs headless here, without a graphics card. "ready" is the wall time from asking for the file to the first painted
frame; "written", "work", "open all" and "per frame" are CPU time, which other programs on the machine disturb less.

With --peers: the same graphs, up to 10,000 operations, in Netron (exported to ONNX), Model Explorer (by torch.export)
and torchvista beside ours, all by the same means (see `other_pages.py`): CPU time to prepare what is shown, bytes
loaded, and wall times. It takes about ten minutes: each viewer has 75 seconds for each graph, and what it has not
done by then it did not finish.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmarks.page_peer import GRAPHS
from tests.page.browser import CHROMIUM

import torchlens as tl
from benchmarks import other_pages

MOST_FOR_PEERS = 10_000

# Open all modules, unfold all repeats, and paint.
OPEN_ALL = """() => {
  torchlens.pane.state.folded = new Set();
  torchlens.pane.setDepth(999);
  torchlens.pane.paint();
}"""

# Pan and zoom for a while; returns the intervals between frames, in milliseconds.
FRAMES = """(frames) => new Promise((resolve) => {
  const { pane } = torchlens;
  const times = [];
  pane.lookAt(Math.floor(pane.model.size / 2), true);
  let last = 0;
  const step = (now) => {
    if (last) times.push(now - last);
    last = now;
    if (times.length >= frames) return resolve(times);
    const zooming = Math.floor(times.length / 30) % 2;
    if (zooming) pane.zoom(times.length % 60 < 45 ? 0.95 : 1.05);
    else pane.pan(times.length % 2 ? 11 : 5, -17);
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})"""


def measured(browser: Any, path: Path) -> list[str]:
    page = browser.new_page(viewport={"width": 1500, "height": 900})
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def cpu_seconds() -> float:
        found = session.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in found if each["name"] == "TaskDuration"))

    begin = time.perf_counter()
    page.goto(path.as_uri())
    page.wait_for_function("() => window.torchlens?.pane.times.paint !== undefined")
    ready = time.perf_counter() - begin
    work = cpu_seconds()
    page.evaluate(OPEN_ALL)
    opened = cpu_seconds() - work
    before = cpu_seconds()
    frames = sorted(page.evaluate(FRAMES, 240))
    per_frame = (cpu_seconds() - before) / 240
    page.close()
    return [
        f"{ready:.2f} s",
        f"{work:.2f} s",
        f"{opened:.2f} s",
        f"{frames[len(frames) // 2]:.1f} ms",
        f"{frames[int(len(frames) * 0.95)]:.1f} ms",
        f"{1000 * per_frame:.1f} ms",
    ]


def written(graph: str, folder: Path) -> tuple[int, Path, float, float]:
    """How many operations it has, its page, and the CPU seconds that logging and writing took."""
    torch.manual_seed(0)
    model, x = GRAPHS[graph][1]()
    begin = time.process_time()
    log = tl.get_model_metadata(model, x)
    logged = time.process_time()
    path = log.to_html(folder / "page.html")
    return len(log), path, logged - begin, time.process_time() - logged


def ours(browser: Any, graphs: list[str], folder: Path) -> None:
    names = ("operations", "written", "size", "ready", "work", "open all", "frame", "p95", "per frame")
    print(f"{'model':20}" + "".join(f"{name:>11}" for name in names))
    for graph in graphs:
        operations, path, _, seconds = written(graph, folder)
        size = f"{path.stat().st_size / 1e3:.0f} KB"
        columns = [f"{operations:,}", f"{seconds:.1f} s", size, *measured(browser, path)]
        print(f"{graph:20}" + "".join(f"{column:>11}" for column in columns), flush=True)


def peers(launch: Callable[[], Any], graphs: list[str], folder: Path) -> None:
    """A table in Markdown, as it stands in docs/guides/page.md."""
    names = ("model", "viewer", "prepared", "loaded", "ready", "open all", "frames: median", "95 %")
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    for graph in graphs:
        _, path, *seconds = written(graph, folder)
        for viewer, columns in other_pages.compare(launch, graph, path, sum(seconds), folder):
            row = [graph, viewer, *columns]
            print(f"| {' | '.join(row + [''] * (len(names) - len(row)))} |", flush=True)


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=50_000, metavar="N")
    parser.add_argument("--peers", action="store_true")
    given = parser.parse_args()
    largest = min(given.largest, MOST_FOR_PEERS) if given.peers else given.largest
    graphs = [graph for graph, (size, _) in GRAPHS.items() if size <= largest]
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        launch = partial(playwright.chromium.launch, executable_path=CHROMIUM, args=["--no-sandbox"])
        if given.peers:
            peers(launch, graphs, Path(folder))
        else:
            with launch() as browser:
                ours(browser, graphs, Path(folder))


if __name__ == "__main__":
    main()
