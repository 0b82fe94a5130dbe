"""The same graphs in other viewers and in ours, opened, measured and moved about in one browser by the same means.

A page is ready when something is drawn and nothing has happened for a while: no change of the document, nothing drawn
on a canvas, nothing awaited from a worker, and a main thread that keeps up with a clock. The time is that of the last
thing that happened. Frames are the intervals between animation frames while the mouse drags and the wheel turns.

From the model to a page with everything open each viewer has `LIMIT` seconds; the step that it is at by then is one
that it did not finish, and those after it are empty.
"""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import environment_of
from playwright.sync_api import TimeoutError

from benchmarks import peers

LIMIT = 75.0  # seconds for one graph in one viewer, from the model to everything open
MOVE_LIMIT = 10.0  # seconds of dragging, and of turning the wheel
UNFINISHED = f"did not finish in {LIMIT:.0f} s"

# Runs in each page before its own scripts; says when the page has settled. (Asking it would block as long as it does.)
WATCH = """(() => {
  const seen = (window.watched = { last: 0, quiet: 0, asked: 0, answered: 0, drawn: 0, told: 0, frames: [] });
  const note = () => { seen.last = performance.now(); seen.quiet = 0; };
  const wrap = (type, name, also) => {
    const original = type.prototype[name];
    type.prototype[name] = function (...args) { note(); also?.(); return original.apply(this, args); };
  };
  for (const name of ["drawElements", "drawArrays", "drawElementsInstanced", "drawArraysInstanced"]) {
    wrap(WebGL2RenderingContext, name, () => seen.drawn++);
  }
  for (const name of ["fillRect", "stroke", "fillText"]) wrap(CanvasRenderingContext2D, name, () => seen.drawn++);
  wrap(Worker, "postMessage", () => { seen.asked = performance.now(); });
  window.Worker = class extends Worker {
    constructor(...args) {
      super(...args);
      this.addEventListener("message", () => { note(); seen.answered = performance.now(); });
    }
  };
  new MutationObserver(note).observe(document, { subtree: true, childList: true, attributes: true });
  setInterval(() => {
    const still = ++seen.quiet >= 20 && seen.answered >= seen.asked;
    if (still && !seen.told && (DRAWN)) console.info(`settled ${(seen.told = seen.last)}`);
  }, 100);
  let before = 0;
  const step = (now) => { if (before) seen.frames.push(now - before); before = now; requestAnimationFrame(step); };
  requestAnimationFrame(step);
})()"""


@dataclass(frozen=True)
class Viewer:
    drawn: str  # an expression: is something drawn?
    open_all: str = ""  # an expression that opens everything
    shows_all: bool = False  # from the beginning


VIEWERS = {
    "torchlens": Viewer(
        "window.torchlens?.pane.times.paint !== undefined",
        "torchlens.pane.state.folded = new Set(), torchlens.pane.setDepth(999), torchlens.pane.paint()",
    ),
    "netron": Viewer("document.querySelector('#target .node, #canvas .node')", shows_all=True),
    "model explorer": Viewer(
        "watched.drawn && document.querySelector('.expand-all')", "document.querySelector('.expand-all').click()"
    ),
    "torchvista": Viewer("document.querySelector('svg text')"),
}


class Page:
    """A tab that watches itself. Everything is asked through the debugger: some pages forbid scripts to evaluate."""

    def __init__(self, browser: Any, viewer: Viewer, url: str, end: float) -> None:
        """`end`: when to stop waiting for it, on the monotonic clock."""
        self._viewer, self._url, self._end = viewer, url, end
        self._context = browser.new_context(viewport={"width": 1500, "height": 900})
        self._context.add_init_script(WATCH.replace("DRAWN", viewer.drawn))
        if url.startswith("http"):  # Netron's question about cookies, answered
            self._context.add_cookies([{"name": "consent", "value": "1", "url": url}])
        self._context.route("**/*", lambda route: route.continue_() if _is_local(route.request.url) else route.abort())
        self.tab = self._context.new_page()
        self._debugger = self._context.new_cdp_session(self.tab)
        self._loaded: list[float] = []
        self._debugger.send("Network.enable")
        self._debugger.on("Network.loadingFinished", lambda event: self._loaded.append(event["encodedDataLength"]))

    def ask(self, expression: str) -> Any:
        answer = self._debugger.send("Runtime.evaluate", {"expression": expression, "returnByValue": True})
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "it raised"))
        return answer["result"].get("value")

    def opened(self) -> float | None:
        """Seconds from asking for the page until it was ready; None if it was not within the limit."""
        return self._settled(lambda: self.tab.goto(self._url, wait_until="commit"))

    def all_opened(self) -> float | None:
        begin = self.ask("watched.told = watched.quiet = 0, performance.now()") / 1000
        ended = self._settled(lambda: self.ask(f"setTimeout(() => {{ {self._viewer.open_all} }})"))
        return None if ended is None else max(ended - begin, 0.0)

    def _settled(self, begin: Callable[[], Any]) -> float | None:
        try:
            is_said = lambda message: message.text.startswith("settled ")  # noqa: E731
            left = max(self._end - time.monotonic(), 0.001)
            with self.tab.expect_console_message(is_said, timeout=1000 * left) as said:
                begin()
            return float(said.value.text.split()[1]) / 1000
        except TimeoutError:
            return None

    @property
    def size(self) -> float:
        """Bytes that were loaded."""
        if self._url.startswith("file:"):
            return Path(self._url.removeprefix("file://")).stat().st_size
        return sum(self._loaded)

    def frames(self) -> list[float]:
        """Milliseconds between frames while it is moved about."""
        mouse, begin = self.tab.mouse, time.perf_counter()
        self.ask("watched.frames.length = 0")
        mouse.move(520, 300)
        mouse.down()
        for step in range(120):
            mouse.move(520 + 2 * (step % 60), 300 + 3 * (step % 90))
            if time.perf_counter() - begin > MOVE_LIMIT:
                break
        mouse.up()
        for step in range(60):
            mouse.wheel(0, 30 if step % 30 < 15 else -30)
            if time.perf_counter() - begin > 2 * MOVE_LIMIT:
                break
        return sorted(self.ask("watched.frames"))

    def close(self) -> None:
        self._context.close()


def _is_local(url: str) -> bool:
    return url.startswith(("http://127.0.0.1", "file:", "data:", "blob:"))


def measured(browser: Any, viewer: Viewer, urls: list[str], end: float) -> list[str]:
    """What is loaded, seconds to ready, seconds to open everything, median and 95th percentile of frames."""
    page = Page(browser, viewer, urls[0], end)
    ready = page.opened()
    found = [f"{page.size / 1e3:,.0f} KB", _seconds(ready)]
    if ready is None:
        return found
    if viewer.shows_all:
        found.append("shows all")
    else:
        if not viewer.open_all:
            page.close()
            page = Page(browser, viewer, urls[1], end)
        opened = page.all_opened() if viewer.open_all else page.opened()
        found.append(_seconds(opened))
        if opened is None:
            return found
    frames = page.frames()
    return found + [f"{frames[int(len(frames) * share)]:,.1f} ms" for share in (0.5, 0.95) if frames]


def _seconds(taken: float | None) -> str:
    return UNFINISHED if taken is None else f"{taken:.2f} s"


@contextmanager
def served(viewer: str, graph: str, folder: Path, end: float) -> Iterator[dict[str, Any] | None]:
    """A process of the tool that has prepared a graph and serves it; None if it has not by the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [peers.python(viewer), "-m", "benchmarks.page_peer", viewer, graph, str(folder), str(port)]
    errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (it is read when the process has ended)
    process = subprocess.Popen(
        command,
        cwd=peers.ROOT,
        env=environment_of(viewer),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
    )
    try:
        yield _answer(process, errors, end)
    finally:
        process.kill()
        process.wait()


def _answer(process: Any, errors: Any, end: float) -> dict[str, Any] | None:
    """The first line of JSON that it prints."""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(max(end - time.monotonic(), 0)):
            line = process.stdout.readline()
            if line.startswith(b"{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
            if not line:
                process.wait()
                errors.seek(0)
                raise RuntimeError((errors.read().strip().splitlines() or ["nothing said"])[-1][:200])
    return None


def compare(
    launch: Callable[[], Any], graph: str, ours: Path, seconds: float, folder: Path
) -> Iterator[tuple[str, list[str]]]:
    """One row for each viewer: its name, and CPU seconds to prepare, followed by what was measured; or why not.

    Each has a browser of its own: one that is still busy with a page disturbs nobody.
    """
    with launch() as browser:
        found = measured(browser, VIEWERS["torchlens"], [ours.as_uri()], time.monotonic() + LIMIT)
        yield "this page", [f"{seconds:.1f} s", *found]
    for viewer in peers.VIEWERS:
        why = peers.prepare(viewer)
        if why is not None:
            yield viewer, [f"could not be set up: {why}"]
            continue
        name, end = f"{viewer} {peers.version(viewer)}", time.monotonic() + LIMIT
        try:
            with tempfile.TemporaryDirectory(dir=folder) as place, served(viewer, graph, Path(place), end) as answer:
                if answer is None:
                    yield name, [UNFINISHED]
                    continue
                with launch() as browser:
                    found = measured(browser, VIEWERS[viewer], answer["urls"], end)
                yield name, [f"{answer['seconds']:.1f} s", *found]
        except Exception as error:
            yield name, [f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"]
