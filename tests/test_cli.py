"""The command line: what it prints, what it writes, what it returns, and how it fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args, get_type_hints
from xml.etree import ElementTree

import pytest
import torch
from tests.torchvision_models import torchvision_models

import torchlens as tl
from torchlens.cli import _parser, main
from torchlens.draw.draw_options import DrawOptions

NETS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, depth=2, limit=None):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(4, 4) for _ in range(depth)), nn.Dropout())
        self.limit = limit

    def forward(self, x, scale=None):
        x = self.layers(x)
        if self.limit is not None:
            raise ValueError("over the limit")
        return x if scale is None else x * scale

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(2, 3)

    def forward(self, input_ids, mask=None):
        x = self.table(input_ids)
        return x if mask is None else x * mask[..., None]

class Liar(nn.Module):  # adds up what was given before: a second run differs from the first
    count = 0

    def forward(self, x):
        Liar.count += 1
        return x + Liar.count

def build(depth=2):
    return Net(depth)

def needy(size):
    return Net(size)

def broken():
    raise RuntimeError("out of order")

class inside:
    ready = Net()

number = 3
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in a folder with a module `nets`; returns the exit code and what was printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "nets", raising=False)
    (tmp_path / "nets.py").write_text(NETS)

    def run(*words: str) -> tuple[int, str, str]:
        try:
            code = main(words)
        except SystemExit as end:  # of the argument parser
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    yield run  # type: ignore[misc]
    sys.modules.pop("nets", None)


# ---- what it does -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["svg", "pdf", "dot"])
def test_show_writes_the_picture(run: Run, ending: str) -> None:
    code, out, err = run("show", "nets:Net", "--input", "2,4", "--out", f"net.{ending}")
    assert (code, out, err) == (0, f"net.{ending}\n", "")
    begins = {"svg": b"<", "pdf": b"%PDF", "dot": b"digraph"}[ending]
    assert Path(f"net.{ending}").read_bytes().lstrip().startswith(begins)


def test_show_passes_the_drawing_options_on(run: Run) -> None:
    words = "show nets:Net --arg depth=3 --input 2,4 --mode rolled --depth 1 --direction leftright --theme dark"
    assert run(*words.split(), "--out", "shallow.dot")[0] == 0
    shallow = Path("shallow.dot").read_text()
    assert "rankdir=LR" in shallow.replace('"', "") and shallow.count("linear") == 0
    assert run("show", "nets:Net", "--arg", "depth=3", "--input", "2,4", "--out", "deep.dot")[0] == 0
    assert Path("deep.dot").read_text().count("linear_") >= 3


def test_show_offers_what_drawing_offers() -> None:
    hints = get_type_hints(DrawOptions)
    text = _parser().format_help() + _help_of("show")
    for field in ("vis_mode", "vis_direction", "vis_theme"):
        assert "{" + ",".join(get_args(hints[field])) + "}" in text


def _help_of(command: str) -> str:
    (subparsers,) = [action for action in _parser()._actions if action.dest == "==SUPPRESS=="]
    return str(subparsers.choices[command].format_help())  # type: ignore[index, union-attr]


def test_the_example_of_the_help(run: Run) -> None:
    torchvision_models()  # so that torchvision can be imported on any build of torch
    words = "show torchvision.models:resnet18 --input 1,3,224,224 --out resnet18.svg"
    assert words in _parser().format_help()
    assert run(*words.split())[0] == 0
    texts = " ".join(ElementTree.parse("resnet18.svg").getroot().itertext())
    assert "ResNet" in texts and "layer4" in texts


def test_summary(run: Run) -> None:
    code, out, _ = run("summary", "nets:Net", "--input", "2,4")
    assert code == 0
    expected = tl.get_model_metadata(sys.modules["nets"].Net().eval(), torch.rand(2, 4)).summary()
    assert out.splitlines()[:-1] == expected.splitlines()[:-1]  # but for the time


def test_summary_columns_and_depth(run: Run) -> None:
    _, out, _ = run("summary", "nets:Net", "--input", "2,4", "--columns", "passes,trainable", "--depth", "1")
    assert out.splitlines()[1].split() == ["Module", "Calls", "Trainable"]
    assert "Linear" not in out and "layers: Sequential" in out
    code, _, err = run("summary", "nets:Net", "--input", "2,4", "--columns", "param")
    assert code == 2 and "no column 'param'" in err


def test_validate(run: Run) -> None:
    code, out, _ = run("validate", "nets:build", "--arg", "depth=3", "--input", "2,4")
    assert code == 0 and out.startswith("Valid: 4 operations replayed")
    code, out, _ = run("validate", "nets:Liar", "--input", "3")
    assert code == 1 and out.startswith("NOT valid")


def test_inputs_by_keyword_and_of_other_types(run: Run) -> None:
    words = "summary nets:Words --kwarg input_ids=1,16:int64 --kwarg mask=1,16:bool --columns input_shape,output_shape"
    code, out, _ = run(*words.split())
    assert code == 0 and "1x16, 1x16" in out and "1x16x3" in out
    assert run("summary", "nets:Words", "--input", "1,5:int32", "--input", "1,5:bfloat16")[0] == 0
    assert run("summary", "nets:Net", "--input", "2,4", "--kwarg", "scale=4:complex64")[0] == 0


def test_the_seed_decides_weights_and_inputs(run: Run) -> None:
    def values(seed: str) -> list[torch.Tensor]:
        seen = []
        monkeypatch = pytest.MonkeyPatch()
        with monkeypatch.context() as patch:
            patch.setattr(
                "torchlens.cli.get_model_metadata",
                lambda model, args, kwargs: seen.extend([model(*args), *args]) or tl.get_model_metadata(model, args),
            )
            assert run("summary", "nets:Net", "--input", "2,4", "--seed", seed)[0] == 0
        return seen

    first, again, other = values("1"), values("1"), values("2")
    assert all(map(torch.equal, first, again)) and not any(map(torch.equal, first, other))


def test_evaluation_mode_unless_training_is_asked_for(run: Run) -> None:
    run("summary", "nets:inside.ready", "--input", "2,4")
    assert not sys.modules["nets"].inside.ready.training
    run("summary", "nets:inside.ready", "--input", "2,4", "--train")
    assert sys.modules["nets"].inside.ready.training


def test_inspect_a_log(run: Run) -> None:
    log = tl.log_forward_pass(torch.nn.Sequential(*(torch.nn.ReLU() for _ in range(30))), torch.rand(2, 3))
    tl.save(log, "run1", include_activations=False)
    code, out, err = run("inspect", "run1")
    assert (code, err) == (0, "")
    assert out.startswith("Log of Sequential forward pass:\n")
    assert "\tinput_1_0    float32 2x3 (24 B), not saved\n" in out and "... and 12 more: --all lists them" in out
    assert "relu_1_1:30" in run("inspect", "run1", "--all")[1]


@pytest.mark.parametrize("include", [True, False])
def test_inspect_says_whether_the_weights_are_there(run: Run, include: bool) -> None:
    log = tl.log_forward_pass(torch.nn.Linear(8, 4, bias=False), torch.rand(2, 8))
    tl.save(log, "run1", include_arguments=include)
    last = run("inspect", "run1")[1].splitlines()[-1]
    assert last.endswith(" in 3 files; the model's weights are among them, 128 B" if include else " in 3 files")


def test_inspect_reads_no_tensor(run: Run) -> None:
    tl.save(tl.log_forward_pass(torch.nn.ReLU(), torch.rand(2, 3)), "run1")
    (shard,) = Path("run1").glob("*.safetensors")
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)  # reading the tensor would fail
    assert run("inspect", "run1")[0] == 0


def test_inspect_a_recording(run: Run) -> None:
    with tl.fastlog.Recorder(torch.nn.ReLU(), keep_op="relu", save_to="relus") as recorder:
        recorder.log(torch.rand(2, 3), sample_id="first")
    code, out, _ = run("inspect", "relus")
    assert code == 0 and out.startswith("Recording of ReLU: 1 record of 1 pass, 24 B")
    assert "Record(relu_1_1  f32[2,3]  pass 0, sample 'first')" in out


def test_inspect_what_was_cut_short(run: Run) -> None:
    net = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(9, 9))
    with pytest.raises(RuntimeError):
        tl.log_forward_pass(net, torch.rand(2, 3), save_activations_to="model")
    code, out, _ = run("inspect", "model")
    assert code == 0 and "(cut short by an exception)" in out and "relu_1_1" in out
    with pytest.raises(KeyboardInterrupt), tl.fastlog.Recorder(torch.nn.ReLU(), keep_op="relu", save_to="writing") as r:
        r.log(torch.rand(2, 3))
        raise KeyboardInterrupt
    code, out, _ = run("inspect", "writing")
    assert code == 0 and "Record(relu_1_1" in out


def test_a_saved_log_in_place_of_a_model(run: Run) -> None:
    torch.manual_seed(0)
    log = tl.log_forward_pass(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LSTM(4, 2)), torch.rand(5, 3))
    tl.save(log, "run1")
    code, out, _ = run("show", "run1", "--out", "run1.dot", "--mode", "rolled")
    assert (code, out) == (0, "run1.dot\n") and "linear_1_1" in Path("run1.dot").read_text()
    code, out, _ = run("summary", "run1", "--columns", "passes,trainable")
    assert code == 0 and out.splitlines()[:-1] == log.summary(["passes", "trainable"]).splitlines()[:-1]
    code, out, _ = run("validate", "run1")
    assert code == 0 and out.startswith("Valid as far as checked") and "torch.lstm" in out
    code, out, _ = run("validate", "run1", "--trust")
    assert code == 0 and out.startswith("Valid: ")
    code, out, _ = run("page", "run1", "--out", "run1.html")
    assert (code, out) == (0, "run1.html\n")
    for command in ("show", "summary", "validate", "page"):
        code, _, err = run(command, "run1", "--input", "5,3")
        assert code == 2 and "run1 is a folder, so a saved log: --input is for a model" in err


def test_a_folder_that_is_no_saved_log(run: Run) -> None:
    tl.extract(torch.nn.ReLU(), torch.rand(4, 3), ["self"], "acts")
    code, _, err = run("summary", "acts")
    assert code == 1 and "not a saved log" in err


# ---- how it fails -----------------------------------------------------------------------------------------------

WRONG = {
    "nets": "'nets' is neither of the form MODULE:NAME, such as torchvision.models:resnet18, nor a folder that tl.save",
    "torch.nn.Linear": "'torch.nn.Linear' is not of the form MODULE:NAME; did you mean torch.nn:Linear?",
    "nest:Net": "no module 'nest' is installed or in this folder; did you mean",
    "torch.nm:Linear": "no module 'torch.nm'; did you mean",
    "nets:Nett": "nets has no 'Nett'; did you mean 'Net'?",
    "nets:number": "neither a model nor callable: it is of type int",
    "builtins:dict": "dict() is not an nn.Module: it is of type dict",
    "nets.py:Net": "is a file: name it as in an import, nets:NAME",
    "nets:inside.ready --arg depth=3": "is already a model",
    "nets:Net --arg depth=many": "write --arg \"depth='many'\"",
    "nets:Net --arg depth": "the form NAME=VALUE, such as --arg depth=4",
    "nets:Net --kwarg 1,4": "the form NAME=VALUE, such as --kwarg input_ids=1,16:int64",
    "nets:Net --input 2x4": "'2x4' is not a shape",
    "nets:Net --input 2,,4": "'2,,4' is not a shape",
    "nets:Net --input=-1,4": "'-1,4' is not a shape",
    "nets:Net --input 2,4:flaot16": "no dtype 'flaot16'; did you mean 'float16'",
    "nets:Net --input 99999999999,99999999999": "can't make an input of shape [99999999999, 99999999999]",
    "nets:Net --color red": "unrecognized arguments: --color red",
}


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_command(run: Run, words: str) -> None:
    code, out, err = run("summary", *words.split())
    assert (code, out) == (2, "") and WRONG[words] in err


RAISES = {
    "nets:needy --input 2,4": ["missing 1 required positional argument: 'size'", "--arg name=value gives it"],
    "nets:broken": [
        "calling nets:broken raised RuntimeError: out of order",
        "nets.py:",
        'RuntimeError("out of order")',
    ],
    "nets:Net": ["missing 1 required positional argument: 'x'", "--input 1,3,224,224 gives it an input"],
    "nets:Net --input 2,5": ["running nets:Net raised RuntimeError", "x = self.layers(x)", " after 0 operations"],
    "nets:Net --arg limit=1 --input 2,4": [
        "ValueError: over the limit",
        "after 3 operations; the last one was",
    ],
}


@pytest.mark.parametrize("words", RAISES)
def test_the_model_raises(run: Run, words: str) -> None:
    code, out, err = run("summary", *words.split())
    assert (code, out) == (1, "")
    assert [part for part in RAISES[words] if part not in err] == []
    assert "Traceback" not in err


def test_no_command_shows_the_help(run: Run) -> None:
    code, out, err = run()
    assert (code, out) == (2, "") and "show      draw the graph of a model" in err


def test_a_module_that_can_not_be_imported(run: Run) -> None:
    Path("needs.py").write_text("import what_is_not_there")
    code, _, err = run("summary", "needs:Net")
    assert code == 1 and "importing needs raised ModuleNotFoundError: No module named 'what_is_not_there'" in err


def test_pictures_that_can_not_be_written(run: Run) -> None:
    code, _, err = run("show", "nets:Net", "--input", "2,4", "--out", "net.jpg")
    assert code == 2 and "end in .svg, .pdf, .png or .dot" in err
    code, _, err = run("show", "nets:Net", "--input", "2,4", "--mode", "folded")
    assert code == 2 and "invalid choice: 'folded'" in err


def test_bundles_that_can_not_be_read(run: Run) -> None:
    code, _, err = run("inspect", "nothing")
    assert code == 1 and "nothing does not exist" in err
    Path("empty").mkdir()
    code, _, err = run("inspect", "empty")
    assert code == 1 and "empty is not a saved log, a recording or the beginning of one" in err and "tl.save" in err
    tl.save(tl.log_forward_pass(torch.nn.ReLU(), torch.rand(2, 3)), "run1")
    Path("run1/metadata.json").write_text("{}")
    code, _, err = run("inspect", "run1")
    assert code == 1 and "truncated or was altered" in err


@pytest.mark.filterwarnings("default::torchlens.errors.DrawingWarning")
def test_warnings_are_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchlens.draw.show.make_view", _warning)
    _, _, err = run("show", "nets:Net", "--input", "2,4", "--out", "net.svg")
    assert err == "torchlens: warning: look here\ntorchlens: no picture\n"


def _warning(*_: object) -> None:
    import warnings

    warnings.warn("look here", tl.DrawingWarning, stacklevel=1)
    raise tl.DrawingError("no picture")


# ---- the program ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["show", "summary", "validate", "inspect"])
def test_help_has_examples_that_parse(command: str) -> None:
    text = _help_of(command)
    examples = [line.split("  ")[1].split()[1:] for line in text.partition("examples:\n")[2].splitlines()]
    assert len(examples) >= 2
    for words in examples:
        assert _parser().parse_args(words).run.__name__ == f"_{command}"


def test_as_a_program(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(NETS)
    words = [sys.executable, "-m", "torchlens", "validate", "nets:Net", "--input", "2,4"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("Valid")


# ---- extract --------------------------------------------------------------------------------------------------


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of images, and a model in the folder from which the command is run."""
    from PIL import Image

    (tmp_path / "photos").mkdir()
    for number in range(5):
        Image.new("RGB", (8, 8), (number * 40, 0, 0)).save(tmp_path / "photos" / f"{number}.png")
    (tmp_path / "small.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def build(width=4):\n    return nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU())\n"
        "def prepare(image):\n    return torch.ones(3, *image.size) * image.getpixel((0, 0))[0]\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_extract_and_inspect(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "extract",
        "small:build",
        "--arg",
        "width=6",
        "--data",
        "photos",
        "--layers",
        "0,relu_1",
        "--out",
        "acts",
    ]
    command += ["--preprocess", "small:prepare", "--batch-size", "2", "--reduce", "mean", "--dtype", "float16"]
    assert main([*command, "--part", "0/2"]) == 0
    assert main(command) == 0
    assert "Store of Sequential: 2 layers, 5 rows, complete" in capsys.readouterr().out
    store = tl.open_store("acts")
    assert list(store.ids) == [f"{number}.png" for number in range(5)] and store["0"].shape == (5, 6)
    assert main(["inspect", "acts"]) == 0
    out = capsys.readouterr().out
    assert "relu_1  float16 x6  12 B a row  mean(dim=None)" in out and "missing" not in out
    (photos / "acts" / "shards" / "000000.safetensors").unlink()
    assert main(["inspect", "acts"]) == 0 and "rows 0 to 1 are missing" in capsys.readouterr().out
    (photos / "photos" / "broken.png").write_text("no image")
    assert main([*command[:-6], "--layers", "0", "--out", "skipped", "--on-error", "skip"]) == 0
    assert "skipped broken.png: UnidentifiedImageError" in capsys.readouterr().out


def test_wrong_commands_to_extract(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["extract", "small:build", "--data", "photos", "--layers", "0", "--out", "acts"]
    for more, code, message in [
        (["--part", "3"], 2, "it must have the form 3/16"),
        (["--part", "2/2"], 2, "the last is (n - 1, n)"),
        (["--layers", "relu_7"], 1, "relu_7"),
        (["--reduce", "maen"], 2, "did you mean 'mean'"),
        (["--data", "nowhere"], 2, "'nowhere' does not exist; give a folder"),
    ]:
        assert main([*command, *more]) == code
        assert message in capsys.readouterr().err
