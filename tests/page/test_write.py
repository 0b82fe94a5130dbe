"""What is written: one file, its data, its errors; in notebooks and from the command line."""

from __future__ import annotations

import base64
import gzip
import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models import CASES, Case
from torch import Tensor, nn

import torchlens as tl
from torchlens import cli
from torchlens.errors import ArgumentError
from torchlens.page import embed
from torchlens.page.inline import VIEWER, page, script
from torchlens.page.page_data import page_data
from torchlens.page.values import page_values
from torchlens.page.write import page_of, two_logs


@pytest.fixture(scope="module")
def log() -> tl.ModelLog:
    torch.manual_seed(0)
    return tl.log_forward_pass(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.rand(2, 4))


def unpacked(text: str) -> Any:
    found = re.search(r'class="log">([^<]*)<', text)
    assert found is not None
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def test_the_same_log_gives_the_same_file(log: tl.ModelLog) -> None:
    assert page_of(log) == page_of(log)


def test_every_module_of_the_viewer_is_in_the_page() -> None:
    names = {path.stem for path in VIEWER.glob("*.js")}
    assert set(re.findall(r"^const (\w+)_js = ", script(), flags=re.MULTILINE)) == names


def test_the_policy_names_this_script_and_no_host(log: tl.ModelLog) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page("", ""))
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    assert "http" not in policy[1] and "unsafe" not in policy[1]


def test_a_name_without_an_ending_gets_one(log: tl.ModelLog, tmp_path: Path) -> None:
    assert log.to_html(tmp_path / "new" / "model.v2") == tmp_path / "new" / "model.v2.html"
    with pytest.raises(ArgumentError, match="can't write"):
        log.to_html(tmp_path / "new" / "model.v2.html" / "page")


def test_wrong_arguments_are_named(log: tl.ModelLog, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="values must be True, False or a number of bytes"):
        log.to_html(tmp_path / "page", values="yes")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="no layer or module 'relu_1_9'.*relu_1_2"):
        log.to_html(tmp_path / "page", numbers={"score": {"relu_1_9": 1.0}})
    with pytest.raises(ArgumentError, match="not a number"):
        log.to_html(tmp_path / "page", numbers={"score": {"relu_1_2": "much"}})  # type: ignore[dict-item]
    with pytest.raises(ArgumentError, match="not a pair of operation numbers"):
        two_logs(log, log, [(0, 99)])
    with pytest.raises(ArgumentError, match="height"):
        log.explore(height=3)


def test_own_numbers_by_label_layer_module_and_function(log: tl.ModelLog) -> None:
    numbers = {"a": {"relu_1_2": 2.0, "0": 1.0}, "b": lambda op: op.operation_num if op.func_name else None}
    found = unpacked(page_of(log, numbers=numbers))["numbers"]
    assert found == {"a": [None, 1.0, 2.0, None], "b": [None, 2.0, 3.0, None]}


def test_values_stay_within_the_budget() -> None:
    log = tl.log_forward_pass(nn.Sequential(*[nn.Linear(64, 64) for _ in range(20)]), torch.rand(32, 64))
    whole, part = page_values(log.graph, 10**7), page_values(log.graph, 5000)
    assert whole is not None and part is not None
    assert len(part.bytes) <= 5000 < len(whole.bytes)
    assert "pictures of values are not" in part.note and "are not" not in whole.note
    assert all(stats is not None for stats in whole.stats)
    assert page_values(log.graph, 0) is None


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([float("nan"), float("inf"), 1.0]),
        torch.full((40,), float("nan")),
        torch.tensor([1e300, 2.0], dtype=torch.float64),
        torch.rand(3, 16, 16),
        torch.rand(2, 3, 16, 16) > 0.5,
        torch.rand(4, 5, dtype=torch.complex64),
        torch.arange(30),
        torch.rand(0, 3),
        torch.tensor(3.5),
        torch.rand(20, 20).to_sparse(),
        torch.rand(1, 1, 1, 50),
        torch.rand(2, 2, 3, 9, 9, dtype=torch.float16),
    ],
    ids=lambda tensor: f"{tensor.dtype} {tuple(tensor.shape)}",
)
def test_every_kind_of_value_is_described(tensor: torch.Tensor) -> None:
    class Same(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

    values = page_values(tl.log_forward_pass(Same(), [tensor]).graph, 10**6)
    assert values is not None
    json.dumps(values.as_data(), allow_nan=False)
    stats = values.stats[1]
    assert stats is not None and stats["n"] == tensor.numel()
    dense = tensor.to_dense() if tensor.layout is not torch.strided else tensor
    assert stats["nan"] == int(dense.isnan().sum()) and stats["inf"] == int(dense.isinf().sum())
    if "tiles" in stats:
        tiles = stats["tiles"]
        size = tiles["width"] * tiles["height"] * tiles["count"] * (3 if tiles["kind"] == "image" else 1)
        assert tiles["at"] + size <= len(values.bytes)


def test_values_that_were_not_saved_are_left_out() -> None:
    log = tl.log_forward_pass(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.rand(2, 4), layers_to_save=["relu"])
    values = page_values(log.graph, 10**6)
    assert values is not None
    assert [stats is not None for stats in values.stats] == [False, False, True, False]
    assert tl.get_model_metadata(nn.ReLU(), torch.rand(3)).to_html is not None


def test_every_number_of_a_tiny_model_is_there_and_of_its_parameters(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 2))
    log = tl.log_forward_pass(model, torch.rand(5, 30))
    tl.save(log, tmp_path / "run")
    for each in (log, tl.load(tmp_path / "run")):
        values = page_values(each.graph, 10**7)
        assert values is not None and "4 of 4 parameters" in values.note
        for stats, op in zip(values.stats, log, strict=True):
            assert stats is not None
            assert stats["numbers"] == pytest.approx(op.activation.flatten().tolist(), rel=1e-5)
        for address, param in model.named_parameters():
            stats = values.params[address]
            assert stats is not None and stats["numbers"] == pytest.approx(param.flatten().tolist(), rel=1e-5)


def test_a_parameter_that_was_changed_since_is_left_out() -> None:
    model = nn.Linear(3, 2)
    log = tl.log_forward_pass(model, torch.rand(5, 3))
    with torch.no_grad():
        model.weight.add_(1)
    values = page_values(log.graph, 10**6)
    assert values is not None and "1 of 2 parameters" in values.note
    assert values.params["weight"] is None and values.params["bias"] is not None


def test_the_data_of_a_loaded_log_is_the_same(log: tl.ModelLog, tmp_path: Path) -> None:
    tl.save(log, tmp_path / "run")
    loaded, fresh = page_data(tl.load(tmp_path / "run")), page_data(log)
    differ = [key for key in fresh if fresh[key] != loaded[key] and key not in ("source", "strings", "ops", "frames")]
    assert differ == []


def test_a_notebook_shows_the_page_over_a_picture(log: tl.ModelLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed, "in_notebook", lambda: True)
    shown = log.explore(height=400)
    found = shown._repr_mimebundle_()
    assert found["text/plain"] == "Exploration of Sequential: log.to_html(path) writes it to a file"
    assert 'sandbox="allow-scripts allow-downloads"' in found["text/html"]
    assert found["text/html"].count("<iframe") == 1 and 'height="400"' in found["text/html"]
    picture = re.search('base64,([^"]*)"', found["text/html"])
    assert picture is not None and base64.b64decode(picture[1]).startswith(b"<svg")


def test_a_script_opens_the_browser(log: tl.ModelLog, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []
    monkeypatch.setattr(embed, "open_in_viewer", seen.append)
    path = log.explore()
    assert seen == [path] and path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_pictures_of_values_keep_outliers_and_say_the_true_range() -> None:
    class Several(nn.Module):
        def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
            return tuple(tensor * 1 for tensor in tensors)

    line, matrix, maps = torch.zeros(1, 512), torch.zeros(200, 300), torch.zeros(1, 5, 100, 100)
    line[0, 100], line[0, 300] = 8.0, -5.0
    matrix[7, 9], matrix[150, 20] = 100.0, float("nan")
    maps[0, 2, 60, 71] = -3.0
    graph = tl.log_forward_pass(Several(), [line, matrix, maps]).graph
    values = page_values(graph, 10_000_000)
    assert values is not None
    for stats, low, high, cells in zip(values.stats, (-5, 0, -3), (8, 100, 0), ({1, 255}, {0, 255}, {1}), strict=False):
        assert stats is not None
        tiles = stats["tiles"]
        assert (tiles["low"], tiles["high"]) == (low, high)
        size = tiles["width"] * tiles["height"] * tiles["count"]
        assert cells <= set(values.bytes[tiles["at"] : tiles["at"] + size])


def test_from_the_command_line(log: tl.ModelLog, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = ["torch.nn:Linear", "--arg", "in_features=3", "--arg", "out_features=2", "--input", "4,3"]
    assert cli.main(["page", *built, "--out", str(tmp_path / "linear.html")]) == 0
    assert unpacked((tmp_path / "linear.html").read_text(encoding="utf-8"))["name"] == "Linear"
    tl.save(log, tmp_path / "run")
    assert cli.main(["page", str(tmp_path / "run"), "--out", str(tmp_path / "run.html"), "--no-values"]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "linear.html"), str(tmp_path / "run.html")]
    assert "values" not in unpacked((tmp_path / "run.html").read_text(encoding="utf-8"))


@pytest.mark.parametrize("viewer", ["app", "layout"])
def test_the_viewer_imports_only_what_is_there(viewer: str) -> None:
    source = (VIEWER / f"{viewer}.js").read_text(encoding="utf-8")
    assert set(re.findall(r'from "\./(\w+)\.js"', source)) <= {path.stem for path in VIEWER.glob("*.js")}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_tiny_model_has_a_page(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        log = tl.log_forward_pass(case.build().eval(), case.inputs(), case.kwargs())
    data = unpacked(page_of(log))
    assert len(data["ops"]["label"]) == len(log.all_ops)
    for mode in data["modes"].values():
        nodes = mode["nodes"]
        assert sum(len(others) + 1 for others in nodes["places"]) == len(log.all_ops)  # each is in one node
        assert len({len(column) for column in nodes.values()}) == 1


def test_a_run_that_was_cut_short_has_a_page() -> None:
    class Failing(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError(f"no {(x * 2).shape}")

    with pytest.raises(ValueError) as raised:
        tl.log_forward_pass(Failing(), torch.rand(3))
    data = unpacked(page_of(raised.value.partial_log))  # type: ignore[attr-defined]
    assert data["complete"] is False
