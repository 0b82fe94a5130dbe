"""Run by test_package.py where nothing is installed but the package and what it requires."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch
from torch import nn

import torchlens as tl

EXTRAS = ("pandas", "pyarrow", "pygraphviz", "resvg_py", "IPython", "PIL", "torchvision")


class TinyAlexNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 5, stride=2), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.classifier = nn.Sequential(nn.Dropout(), nn.Linear(4 * 3 * 3, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).flatten(1))  # type: ignore[no-any-return]


def refused(question: object, extra: str) -> None:
    try:
        question()  # type: ignore[operator]
    except (ImportError, tl.ArgumentError) as error:
        assert f"forwardlens[{extra}]" in str(error), error
    else:
        raise AssertionError(f"{extra} was not missed")


assert Path(sys.prefix) in Path(tl.__file__).parents, tl.__file__
assert (Path(tl.__file__).parent / "py.typed").exists()
assert [name for name in EXTRAS if importlib.util.find_spec(name)] == []

model, x = TinyAlexNet().eval(), torch.rand(2, 3, 16, 16)
log = tl.log_forward_pass(model, x)
assert "classifier.1" in str(log["classifier"]) and "TinyAlexNet" in str(log) and "Params: " in log.summary()
assert "<table>" in log._repr_html_()
assert log.validate() and tl.validate_model_activations(model, x) and tl.validate_backward_pass(model, x)
assert log.draw(vis_outpath="net.svg", vis_save_only=True).read_text().startswith("<")
assert log.draw(vis_outpath="net.pdf", vis_save_only=True).read_bytes().startswith(b"%PDF")
assert "</html>" in log.to_html("net.html").read_text(encoding="utf-8")
tl.save(log, "net")
assert tl.load("net").validate() and str(tl.load("net", lazy=True)["features"]) == str(log["features"])
assert "linear" in str(log.to_csv()) and len(tl.fastlog.record(model, x, keep_op="relu")) == 1

refused(log.to_pandas, "tables")
refused(lambda: log.to_parquet("net.parquet"), "tables")
refused(lambda: log.draw(vis_outpath="net.png", vis_save_only=True), "png")
refused(lambda: log.draw(vis_outpath="net.svg", vis_save_only=True, renderer="graphviz"), "graphviz")
print("all is well")
