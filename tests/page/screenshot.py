"""The picture of the page that the README shows: `python -m tests.page.screenshot` takes it anew."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from tests.page.browser import Tab, launched
from tests.torchvision_models import torchvision_models

import torchlens as tl

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "page.png"


def rings(size: int) -> torch.Tensor:
    """An image with something to see in it."""
    across = torch.linspace(-3, 3, size)
    x, y = torch.meshgrid(across, across, indexing="xy")
    away = (x**2 + y**2).sqrt()
    return torch.stack([(away * 4).cos(), (x * 3 + away).sin(), (y * 2 - away * 2).cos()])[None] * 0.5 + 0.5


def main() -> None:
    torch.manual_seed(0)
    model = torchvision_models().googlenet(init_weights=False, aux_logits=False).eval()
    log = tl.log_forward_pass(model, rings(128))
    with tempfile.TemporaryDirectory() as folder:
        path = log.to_html(Path(folder) / "page.html")
        for browser in launched():
            tab = Tab(browser, viewport={"width": 1360, "height": 720}, device_scale_factor=1.25)
            tab.open(path, "#depth=2")
            tab.run("""() => {
              const { pane } = torchlens;
              for (const name of ["inception3a", "inception3a.branch2"]) {
                pane.state.open.add(pane.mode.depth.findIndex((_, group) => pane.mode.name(group) === name));
              }
              pane.rebuild();
              pane.reveal(pane.model.placeOf.get("relu_4_22"));
              const group = pane.mode.depth.findIndex((_, each) => pane.mode.name(each) === "inception3a");
              const rect = pane.rectOfGroup(group);
              const { width, height } = pane.size;
              const k = Math.min(width / (rect.width + 60), height / (rect.height + 60), 0.8);
              pane.moveTo({ k, x: rect.x + rect.width / 2 - width / k / 2, y: rect.y - 75 / k }, false);
            }""")
            tab.page.wait_for_timeout(300)
            tab.page.screenshot(path=PICTURE)
            assert tab.closed() == []
    print(PICTURE, f"{PICTURE.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()
