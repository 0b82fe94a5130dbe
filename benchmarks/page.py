"""The interactive page in a real browser: size, time to ready, time to open everything, frame times.

    python -m benchmarks.page [--largest N]

Wanted: 10,000 operations in less than 1 MB without values, ready within 1 s, everything open within 0.5 s, frames while
panning and zooming at a median of 16.7 ms and a 95th percentile under 35 ms; 50,000 operations open in 3 s. Chromium
runs headless here, without a graphics card. "ready" is the wall time from asking for the file to the first painted
frame; "written", "work", "open all" and "per frame" are CPU time, which other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from benchmarks.draw import MODELS
from tests.page.browser import CHROMIUM
from tests.torchvision_models import torchvision_models
from torch import nn

import torchlens as tl

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


def models(largest: int) -> Iterator[tuple[str, Callable[[], tuple[nn.Module, Any]]]]:
    vision = torchvision_models()
    yield "swin_v2_b", lambda: (vision.swin_v2_b().eval(), torch.rand(1, 3, 64, 64))
    for size in (10_000, 50_000):
        if size <= largest:
            for kind in ("nested", "nested, hub"):
                yield f"{kind} {size}", lambda kind=kind, size=size: (MODELS[kind](size), torch.rand(3, 4))  # type: ignore[misc]


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


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--largest", type=int, default=50_000, metavar="N")
    largest = parser.parse_args().largest
    names = ("operations", "written", "size", "ready", "work", "open all", "frame", "p95", "per frame")
    print(f"{'model':20}" + "".join(f"{name:>11}" for name in names))
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, build in models(largest):
            torch.manual_seed(0)
            log = tl.get_model_metadata(*build())
            begin = time.process_time()
            path = log.to_html(Path(folder) / "page.html")
            wrote = time.process_time() - begin
            size = f"{path.stat().st_size / 1e3:.0f} KB"
            columns = [f"{len(log):,}", f"{wrote:.1f} s", size, *measured(browser, path)]
            print(f"{name:20}" + "".join(f"{column:>11}" for column in columns), flush=True)
        browser.close()


if __name__ == "__main__":
    main()
