"""Messages name what one wanted."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from torchlens.errors import near

OPTIONS = ["vis_opt", "vis_mode", "vis_nesting_depth", "vis_fold_repeats", "save_gradients", "gradient_postfunc"]
LAYERS = ["conv1", "layer1.0.conv1", "layer1.0.conv2", "layer4.0.conv1", "fc", "relu_1_5", "relu_2_9", "h.0.attn"]


@pytest.mark.parametrize(
    ("name", "names", "wanted"),
    [
        ("vis_depth", OPTIONS, ["vis_nesting_depth"]),
        ("vis_dept", OPTIONS, ["vis_nesting_depth"]),
        ("save_gradient", OPTIONS, ["save_gradients"]),
        ("layer1.0.conv", LAYERS, ["layer1.0.conv1", "layer1.0.conv2"]),
        ("Relu_1_5", LAYERS, ["relu_1_5"]),
        ("FC", LAYERS, ["fc"]),
        ("attn", LAYERS, ["h.0.attn"]),
        ("fcc", LAYERS, ["fc"]),
        ("softmax", LAYERS, []),
        ("softmax_1", ["tanh_1", "split_1", "add_1"], []),
        ("softmax_9", ["softmax_2", "softmax_1", "tanh_1"], ["softmax_2", "softmax_1"]),
        ("nope", ["opcode", "inspect", "compare"], []),
        ("relu_99", ["relu_1", "relu_2", "gelu_1"], ["relu_2", "relu_1"]),
    ],
)
def test_near_names(name: str, names: list[str], wanted: list[str]) -> None:
    expected = f"; did you mean {', '.join(map(repr, wanted))}?" if wanted else ""
    assert near(name, [*names, *names]) == expected


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.fc = nn.LSTM(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(self.lstm(x)[0])
        return out


@pytest.fixture
def log() -> tl.ModelLog:
    return tl.log_forward_pass(Net(), torch.rand(5, 3))


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda log: log["-1"], r"no layer or module '-1'; a number is asked for without quotes: log\[-1\]"),
        (lambda log: log["fc:0"], r"no call 'fc:0': the module was called once, and calls are counted from 1"),
        (lambda log: log.activation, r"no attribute 'activation'; a layer has: log\['linear_1.*'\].activation"),
        (lambda log: log.tensor_contents, r"a layer has: log\["),
        (lambda log: tl.edits.ablate, r"tl.edits has no 'ablate'; there are add, .* zero"),
        (lambda log: tl.edits.zero(unit=3), r"no argument 'unit'; did you mean 'units'\? It takes units=, at="),
        (lambda log: tl.edits.add(1, strength=2), r"no argument 'strength'\. It takes value, scale, units=, at="),
        (lambda log: tl.edits.zero(3), r"zero: too many positional arguments\. It takes units=, at="),
        (lambda log: tl.edits.scale(), r"scale: missing a required argument: 'factor'"),
        (lambda log: tl.edits.mean(), r"mean needs over="),
        (lambda log: tl.edits.gradient(0, at=1), r"gradient has no argument 'at'. It takes edit"),
    ],
)  # fmt: skip
def test_messages(log: tl.ModelLog, ask: Callable[[tl.ModelLog], Any], says: str) -> None:
    with pytest.raises((tl.TorchLensError, AttributeError), match=says):
        ask(log)


def test_a_path_is_named_once(log: tl.ModelLog, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for write in (
        lambda path: log.draw(vis_outpath=path, vis_save_only=True),
        lambda path: log.to_html(path),
        lambda path: tl.compare(log, log).draw(path),
    ):
        with pytest.raises(tl.ArgumentError) as raised:
            write(tmp_path / "file" / "x.svg")
        assert str(raised.value).count(str(tmp_path)) == 1


def test_a_page_is_a_file(log: tl.ModelLog, tmp_path: Path) -> None:
    with pytest.raises(tl.ArgumentError, match="is a folder; give the name of a file"):
        log.to_html(tmp_path)
    assert list(tmp_path.parent.glob(f"{tmp_path.name}*")) == [tmp_path]


def test_a_store_takes_no_other_place(log: tl.ModelLog, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    tl.save(log, tmp_path / "log")
    for name, says in (("file", "save_to is a file"), ("log", "holds a saved log or recording")):
        with pytest.raises(tl.TorchLensError, match=says):
            tl.extract(Net(), torch.rand(2, 5, 3), ["fc"], save_to=tmp_path / name, progress=False)
    assert (tmp_path / "file").read_text() == "mine" and not (tmp_path / "log" / "plan.json").exists()
    assert tl.load(tmp_path / "log").model_name == "Net"


def test_a_folder_that_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(tl.BundleError, match="is not a saved log: manifest.json is missing"):
        tl.load(tmp_path)


def two(output: Tensor) -> Tensor:
    return output


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda log, x: tl.pluck(Net(), "fc", x), r"layers .*pluck\(model, input, layers\)"),
        (lambda log, x: tl.sweep(Net(), sites="fc", edit=0.0, metric=torch.sum), "tl.sweep takes a log, .* not Net"),
        (lambda log, x: tl.sweep(log, sites="fc", edit=0.0, metric="acc"), "metric must be a function of .* not 'acc'"),
        (
            lambda log, x: tl.sweep(log, sites="fc", edit=0.0, metric=two),
            "metric 'two' returned .*Tensor.* not a number",
        ),
        (
            lambda log, x: tl.log_forward_pass(Net(), x, interventions={"fc": tl.edits.zero(units=[7])}),
            r"zero\(units=\[7\]\) does not fit a tensor of shape \(5, 2\), which has units 0 to 1",
        ),
        (lambda log, x: log.draw(vis_gather="no"), "vis_gather must be True or False, not 'no'"),
        (lambda log, x: log.draw(vis_fold_repeats=3), "vis_fold_repeats must be True or False, not 3"),
    ],
)
def test_wrong_arguments(log: tl.ModelLog, ask: Callable[..., Any], says: str) -> None:
    with pytest.raises(tl.ArgumentError, match=says):
        ask(log, torch.rand(5, 3))


def test_one_column_needs_no_list(log: tl.ModelLog) -> None:
    assert list(log.to_pandas("flops").columns) == ["flops"]


def test_what_is_written_while_running_is_not_replaced_by_save(log: tl.ModelLog, tmp_path: Path) -> None:
    tl.save(log, tmp_path / "log")
    with pytest.raises(tl.BundleError, match="exists already; give another path$"):
        tl.log_forward_pass(Net(), torch.rand(5, 3), save_activations_to=tmp_path / "log")


def test_a_store_is_no_log(tmp_path: Path) -> None:
    tl.extract(Net(), torch.rand(2, 5, 3), ["fc"], save_to=tmp_path / "acts", progress=False)
    with pytest.raises(tl.BundleError, match=r"is a store of tl.extract, not a saved log; tl.open_store\('.*acts'\)"):
        tl.load(tmp_path / "acts")


# ---- wrong arguments ----------------------------------------------------------------------------------------------


def test_an_argument_that_is_not_there_names_the_near_one(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU()), torch.rand(2, 3)
    log = tl.log_forward_pass(model, x)
    zero: Any = tl.edits.zero()
    wrong: dict[str, Callable[[], Any]] = {
        "extract: no argument 'bach_size'; did you mean 'batch_size'?": lambda: tl.extract(
            model, x, ["0"], tmp_path / "acts", bach_size=3
        ),
        "sweep: no argument 'site'; did you mean 'sites'?": lambda: tl.sweep(
            log, site="0", edit=zero, metric=torch.sum
        ),
        "pluck: no argument 'intervention'; did you mean 'interventions'?": lambda: tl.pluck(
            model, x, "0", intervention={}
        ),
        "Recorder: no argument 'keep_modul'; did you mean 'keep_module'?": lambda: tl.fastlog.Recorder(
            model, keep_modul="0"
        ),
        "replay: no argument 'value'; did you mean 'values'?": lambda: log.replay(value={}),
        "pca: no argument 'sample'; did you mean 'samples'?": lambda: tl.reduce.pca(3, sample=5),
        "tl.reduce has no 'poool'; did you mean 'pool'": lambda: tl.reduce.poool,
    }
    for message, call in wrong.items():
        with pytest.raises((tl.ArgumentError, AttributeError), match=re.escape(message)):
            call()


def test_all_is_no_layer(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU()), torch.rand(2, 3)
    with pytest.raises(tl.LayerNotFoundError, match=r"no layer or module 'all'; '\*\*' matches every one"):
        tl.extract(model, x, "all", tmp_path / "acts")
    assert {"linear_1_1", "relu_1_2"} <= {op.label for op in tl.log_forward_pass(model, x).select("**")}


def test_a_new_input_for_replay_is_given_by_name() -> None:
    log = tl.log_forward_pass(nn.Linear(3, 4), torch.rand(2, 3))
    with pytest.raises(tl.ArgumentError, match="from_layer names a layer; a new input is a value: .*'input_1_0'"):
        log.replay(torch.rand(2, 3))
    with pytest.raises(tl.DivergenceError, match=r"input_1_0 now has shape \(5, 3\) instead of \(2, 3\)"):
        log.replay(values={"input_1": torch.rand(5, 3)})
    assert log.replay(values={"input_1": torch.rand(2, 3)}).shape == (2, 4)


def test_a_picture_takes_its_options_by_name(tmp_path: Path) -> None:
    log = tl.log_forward_pass(nn.Linear(3, 4), torch.rand(2, 3))
    with pytest.raises(tl.ArgumentError, match=r"by name: log.draw\(vis_outpath='net.svg', vis_save_only=True\)"):
        log.draw("net.svg")


def test_columns_are_not_a_path() -> None:
    log = tl.log_forward_pass(nn.Linear(3, 4), torch.rand(2, 3))
    for write in (log.to_csv, log.to_json, log.to_parquet):
        with pytest.raises(tl.ArgumentError, match=r"the first argument is a path; columns=\[.*\] chooses columns"):
            write(["layer_label", "flops"])
    assert "Time" in log.summary("time").splitlines()[1]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes before Python 3.11")
def test_inputs_that_can_not_be_what_was_meant() -> None:
    model, x = nn.Linear(3, 4), torch.rand(2, 3)
    with pytest.raises(TypeError) as raised:
        tl.log_forward_pass(model, (x for _ in range(1)))
    assert any("an input is a generator" in note for note in raised.value.__notes__)
    with pytest.raises(TypeError) as raised:
        tl.log_forward_pass(model, (x, x))
    assert any("2 inputs were given: a tuple or list is taken as" in note for note in raised.value.__notes__)
    with pytest.raises(RuntimeError) as wrong_size:
        tl.log_forward_pass(model, torch.rand(2, 5))
    assert not any("inputs were given" in note for note in wrong_size.value.__notes__)
