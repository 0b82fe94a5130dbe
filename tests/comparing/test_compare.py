"""Two runs of one model: every verdict in its words, the checks, logs from disk, and that the order does not matter."""

from __future__ import annotations

import copy
import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.comparing.small_pairs import other_scale, reordered
from tests.models import CASES, Case
from tests.torch_version import needs_torch
from torch import nn

import torchlens as tl
from torchlens.cli import main
from torchlens.comparing import side_by_side
from torchlens.page import embed


class Net(nn.Module):
    def __init__(self, activation: nn.Module | None = None, eps: float = 1e-5) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(8, 16)
        self.activation = activation or nn.GELU()
        self.norm = nn.LayerNorm(16, eps=eps)
        self.dropout = nn.Dropout(0.5)
        self.last = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.dropout(self.norm(self.activation(self.first(x)))))  # type: ignore[no-any-return]


X = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))


def logged(model: nn.Module | None = None, x: torch.Tensor = X, **options: Any) -> tl.ModelLog:
    return tl.log_forward_pass((Net() if model is None else model).eval(), x, **options)


def first(comparison: tl.Comparison) -> tl.Difference:
    assert comparison.first_difference is not None
    return comparison.first_difference


def check(comparison: tl.Comparison, name: str) -> Any:
    (found,) = (each for each in comparison.checks if each.name == name)
    return found


# ---- verdicts, in words -------------------------------------------------------------------------------------------


def test_identical() -> None:
    comparison = tl.compare(logged(), logged())
    assert repr(comparison) == "Identical: all 7 values of A and B agree bit for bit."
    assert comparison and comparison.status == "identical" and comparison.first_difference is None


def test_rounding_only() -> None:
    comparison = tl.compare(logged(), logged(Net().bfloat16(), X.bfloat16()))
    assert comparison and comparison.status == "rounding"
    assert comparison.verdict.startswith("Rounding only: the outputs differ by ")
    assert "and in float64 they agree exactly. Rounding alone changes them by " in comparison.verdict
    assert "Check types: A computes in float32, B in bfloat16." in repr(comparison)


def test_other_argument() -> None:
    comparison = tl.compare(logged(), logged(Net(nn.GELU(approximate="tanh"))))
    assert not comparison and comparison.status == "differs"
    assert comparison.verdict.startswith(
        "Different from gelu_1_2 on: different argument of gelu: approximate is 'none' in A and 'tanh' in B. "
    )
    difference = first(comparison)
    assert (difference.a, difference.b, difference.module_a, difference.kind) == (
        "gelu_1_2",
        "gelu_1_2",
        "activation",
        "operation",
    )
    assert difference.line_a.endswith(f"test_compare.py:{forward_line()}")
    assert "Proof: with " in repr(comparison) and "computed again, the outputs agree exactly" in repr(comparison)


def forward_line() -> int:
    return Net.forward.__code__.co_firstlineno + 1


def test_other_function() -> None:
    difference = first(tl.compare(logged(), logged(Net(nn.ReLU()))))
    assert difference.cause == "different functions: gelu in A, relu in B"


def test_smaller_than_rounding() -> None:
    halves = [Net(eps=eps).half() for eps in (1e-5, 2e-5)]
    comparison = tl.compare(*(logged(net, X.half()) for net in halves))
    assert not comparison and comparison.status == "hidden"
    assert comparison.verdict.startswith(
        "Different, by less than rounding: the runs differ from layernorm_1_3 on: different"
    )
    assert "eps is 1e-05 in A and 2e-05 in B" in comparison.verdict


def test_other_weights() -> None:
    net = Net()
    with torch.no_grad():
        net.last.bias.zero_()
    comparison = tl.compare(logged(), logged(net))
    assert first(comparison).cause.startswith("different weights: A's last.bias and B's last.bias")
    assert "B's is the same number throughout: was it loaded?" in first(comparison).cause
    assert (
        "Check weights: 1 of 6 in A and 1 of 6 in B have no equal on the other side; last.bias differs by 1.0e+00"
        in (" ".join(repr(comparison).split()))
    )


def test_all_weights_differ() -> None:
    net = Net()
    with torch.no_grad():
        for param in net.parameters():
            param.add_(0.1)
    (difference,) = tl.compare(logged(), logged(net)).differences
    assert difference.places == tuple((label, label) for label in ("linear_1_1", "layernorm_1_3", "linear_2_5"))


def test_a_model_that_was_trained_after_it_was_logged() -> None:
    net = Net()
    before = logged(net)
    with torch.no_grad():
        net.first.weight.add_(1)
    comparison = tl.compare(before, logged(net))
    assert first(comparison).a == "linear_1_1"
    assert "first.weight has been changed since log A was made; a log does not copy weights" in first(comparison).cause
    assert "changed since log A was made" in check(comparison, "weights").text
    assert not check(comparison, "weights").same


def test_training_mode() -> None:
    comparison = tl.compare(logged(), tl.log_forward_pass(Net().train(), X))
    assert "train is False in A and True in B: training mode against evaluation mode" in first(comparison).cause
    assert "Check mode: A ran in evaluation mode, B in training mode." in repr(comparison)


def test_other_seed() -> None:
    comparison = tl.compare(*(tl.log_forward_pass(Net().train(), X, random_seed=seed) for seed in (1, 2)))
    assert (
        first(comparison).cause
        == "dropout drew different random numbers: a different seed, or different draws before it"
    )
    assert "Check seeds: random numbers were drawn: seed 1 in A, 2 in B." in repr(comparison)


def test_other_input() -> None:
    comparison = tl.compare(logged(), logged(x=3 * X))
    assert first(comparison).cause == "the inputs differ: B's is 3 times A's"
    assert "Check inputs: [0] differs (relative difference 6.7e-01)." in repr(comparison)


def test_another_number_of_outputs() -> None:
    class Two(Net):
        def forward(self, x: torch.Tensor) -> Any:
            y = super().forward(x)
            return y, y + 1

    comparison = tl.compare(logged(), logged(Two()))
    assert "A returns 1 tensor, B 2; they were compared in order." in repr(comparison)


class Two(nn.Module):
    """Layers by name, and a forward pass that is given as a function of them and the input."""

    def __init__(self, forward: Any, **layers: nn.Module) -> None:
        super().__init__()
        self.way = forward
        torch.manual_seed(3)
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> Any:
        return self.way(self, self.first(x))


def printed(one: Any, other: Any) -> str:
    return " ".join(repr(tl.compare(logged(Two(one)), logged(Two(other)))).split())


def test_a_step_that_is_missing_on_one_edge() -> None:
    one, other = (lambda net, h: h + net.last(net.norm(h))), (lambda net, h: h + net.last(h))
    comparison = tl.compare(logged(Two(one)), logged(Two(other)))
    assert [difference.cause for difference in comparison.differences] == [
        "missing operation: B has no such step: layer_norm"
    ]
    words = "Proof: with A's value put into B here, for linear_2_2 alone, and 2 operations computed again, the outputs"
    assert f"{words} agree exactly." in " ".join(repr(comparison).split()) and comparison.is_proved


def test_what_can_not_be_proved() -> None:
    def reading(activation: Any) -> Any:
        def way(net: Any, h: torch.Tensor) -> Any:
            h = activation(h)
            return net.last(h) * h.mean().item()

        return way

    words = printed(reading(torch.relu), reading(torch.tanh))
    assert "different functions: relu in A, tanh in B" in words and " Not proved: " in words and " Proof: " not in words


def test_outputs_that_agree_while_the_rest_is_rounded() -> None:
    half = Two(lambda net, h: net.last(h) > -9)
    comparison = tl.compare(logged(half), logged(copy.deepcopy(half).bfloat16(), X.bfloat16()))
    assert comparison.verdict == (
        "Rounding only: the outputs agree bit for bit, and all that leads to them agrees but for rounding."
    )


def test_constants_that_were_rounded_in_another_way() -> None:
    tables = torch.arange(1, 17) / 3, torch.arange(1, 17) * torch.tensor(1 / 3)
    assert not tables[0].equal(tables[1])
    comparison = tl.compare(*(logged(Two(lambda net, h, t=table: net.last(h * t))) for table in tables))
    assert comparison.status == "rounding" and comparison.verdict.endswith(
        "; constants, such as tables or folded weights, were computed in a different order and rounded."
    )


def test_outputs_of_other_shapes() -> None:
    words = printed(lambda net, h: net.last(h), lambda net, h: net.last(h)[:, :3].exp())
    expected = "Different: the outputs differ in shape or kind, and the place where this begins was not found."
    assert words.startswith(expected)


def test_nothing_in_common() -> None:
    torch.manual_seed(0)
    other = nn.Sequential(nn.Linear(8, 12), nn.Softmax(-1), nn.Linear(12, 16), nn.Sigmoid())
    comparison = tl.compare(logged(Two(lambda net, h: net.last(net.norm(h.sin())).cumsum(0))), logged(other))
    assert not comparison and comparison.verdict.endswith(
        "The first operations of one function that differ are linear_1_1 in A, linear_2_3 in B, and nothing that was "
        "tried there makes the rest agree: different operations: from here on, A does linear; B does linear > softmax "
        "> linear."
    )


# ---- both ways ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other", [Net(nn.ReLU()), Net(eps=1e-3), Net(nn.Sequential(nn.GELU(), nn.Identity(), nn.Tanh()))]
)
def test_the_order_changes_nothing_but_the_names(other: nn.Module) -> None:
    one, two = logged(), logged(other)
    forth, back = tl.compare(one, two), tl.compare(two, one)
    assert [(d.a, d.b, d.kind, d.error) for d in forth.differences] == [
        (d.b, d.a, d.kind, d.error) for d in back.differences
    ]
    assert forth.status == back.status and forth.output_error == back.output_error
    letters = str.maketrans("AB", "BA")
    assert sorted(forth.verdict.translate(letters)) == sorted(back.verdict)


SAME = [case for case in CASES if not case.warns and "eval" in case.modes]


@pytest.mark.parametrize("case", SAME[::3], ids=lambda case: case.name)
def test_a_log_and_itself_are_identical(case: Case) -> None:
    torch.manual_seed(0)
    model = case.build().eval()
    log = tl.log_forward_pass(model, case.inputs(), case.kwargs())
    comparison = tl.compare(log, log)
    assert comparison.status == "identical", repr(comparison)


class Ragged(nn.Module):
    """Values without numbers: jagged ones have a symbol for a size, and torch makes some on the meta device."""

    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ragged = torch.nested.nested_tensor([x[0], x[1, :2]], layout=torch.jagged)
        parts = (ragged * self.factor).unbind()
        return parts[0].sum(0) - parts[1].sum(0) + torch.ones(3, device="meta").dim()  # type: ignore[no-any-return]


@needs_torch("2.5", "has the jagged layout of today")
def test_values_that_are_not_numbers() -> None:
    x = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    one, same, other = (tl.log_forward_pass(Ragged(factor), x) for factor in (2, 2, 3))
    assert tl.compare(one, same).status in ("identical", "rounding")
    assert tl.compare(one, other).status == "differs"


# ---- logs from elsewhere ------------------------------------------------------------------------------------------


def test_logs_from_disk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, net in (("one", Net()), ("two", Net(eps=1e-3)), ("again", Net())):
        tl.save(logged(net), tmp_path / name)
    one, two = (tl.load(tmp_path / name, lazy=True) for name in ("one", "two"))
    assert "eps is 1e-05 in A and 0.001 in B" in first(tl.compare(one, two)).cause
    assert main(["compare", str(tmp_path / "one"), str(tmp_path / "two")]) == 1
    assert capsys.readouterr().out.startswith("Different from layernorm_1_3 on: different argument of layer_norm: eps")
    assert main(["compare", str(tmp_path / "one"), str(tmp_path / "again")]) == 0
    assert capsys.readouterr().out == "Identical: all 7 values of A and B agree bit for bit.\n"


def test_logs_of_other_versions(tmp_path: Path) -> None:
    tl.save(logged(Net(eps=1e-3)), tmp_path / "run")
    here = check(tl.compare(logged(), tl.load(tmp_path / "run")), "versions")
    assert here.same and here.text.startswith("both Python 3.") and here.text.endswith(f"torch {torch.__version__}")
    old = tl.load(tmp_path / "run")
    old._trace.versions = {"Python": "3.9.1", "torch": "1.13", "numpy": "1.0"}
    comparison = tl.compare(old, logged())
    told = repr(comparison).splitlines()
    assert told[2].startswith("  Check versions: Python 3.9.1 in A, 3.")
    assert check(comparison, "versions").text.endswith(f"; torch 1.13 in A, {torch.__version__} in B")
    old._trace.versions = {}
    assert check(tl.compare(old, logged()), "versions").text == "not known"


def test_what_a_file_may_not_run_is_taken_as_saved(tmp_path: Path) -> None:
    class Strange(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.i0e(super().forward(x))

    net = Strange()
    tl.save(logged(net), tmp_path / "strange")
    changed = copy.deepcopy(net)
    changed.norm.eps = 1e-2
    comparison = tl.compare(tl.load(tmp_path / "strange"), logged(changed))
    assert first(comparison).a == "layernorm_1_3"
    printed = " ".join(repr(comparison).split())
    assert (
        "Not computed again in float64, so taken as saved: 1 operation of A (torch._C._special.special_i0e" in printed
    )
    trusted = tl.compare(tl.load(tmp_path / "strange", trust=True), logged(changed))
    assert "taken as saved" not in repr(trusted)


def test_logs_that_saved_too_little() -> None:
    with pytest.raises(tl.ArgumentError, match="log B did not save input_1_0: inputs and outputs are needed"):
        tl.compare(logged(), logged(layers_to_save=["gelu_1_2"]))
    with pytest.raises(tl.ArgumentError, match="takes two logs; B is of type str"):
        tl.compare(logged(), "run1")  # type: ignore[arg-type]


# ---- tables, pictures, pages --------------------------------------------------------------------------------------


def test_rows() -> None:
    comparison = tl.compare(logged(), logged(Net(nn.ReLU())))
    status = [(row.a, row.b, row.status) for row in comparison.rows]
    assert status[:4] == [
        ("input_1_0", "input_1_0", "equal"),
        ("linear_1_1", "linear_1_1", "equal"),
        ("gelu_1_2", "relu_1_2", "first difference"),
        ("layernorm_1_3", "layernorm_1_3", "differs"),
    ]
    assert comparison.rows[0].error == 0 and (comparison.rows[2].in_float64 or 0) > 0.1
    assert list(comparison.to_pandas().columns)[:2] == ["a", "b"]


def test_steps_of_one_side_have_rows_of_their_own() -> None:
    comparison = tl.compare(logged(), logged(Net(nn.Sequential(nn.GELU(), nn.Tanh()))))
    assert "missing operation: A has no such step: tanh" in comparison.verdict
    assert [row.b for row in comparison.rows if row.status == "first difference"] == ["tanh_1_3"]


@pytest.mark.parametrize("ending", ["svg", "pdf", "html"])
def test_pictures_and_pages(ending: str, tmp_path: Path) -> None:
    comparison = tl.compare(logged(), logged(Net(nn.Sequential(nn.GELU(), nn.Tanh()))))
    path = tmp_path / f"both.{ending}"
    written = comparison.to_html(path) if ending == "html" else comparison.draw(path)
    begins = {"svg": b"<svg", "pdf": b"%PDF", "html": b"<!DOCTYPE html>"}[ending]
    assert written == path and path.read_bytes().startswith(begins)
    if ending == "svg":
        assert path.read_text().count(">tanh_1_3  5x16<") == 1
    with pytest.raises(tl.ArgumentError, match=r"end in .svg, .pdf or .png"):
        comparison.draw(tmp_path / "both.gif")


def test_the_picture_says_the_cause(tmp_path: Path) -> None:
    comparison = tl.compare(logged(), logged(Net(nn.ReLU())))
    text = comparison.draw(tmp_path / "both.svg").read_text()
    words = " ".join(re.findall(">([^<>]+)</text>", text))
    assert f"A: Net   B: Net   differs {comparison.verdict} equal rounding" in words


def test_a_notebook_shows_the_picture_and_keeps_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shown: list[Any] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(side_by_side, "in_notebook", lambda: True)
    display = importlib.import_module("IPython.display")
    monkeypatch.setattr(display, "display", shown.append)
    comparison = tl.compare(logged(), logged(Net(nn.ReLU())))
    comparison.draw()
    assert shown[0]._repr_svg_().startswith("<svg") and repr(shown[0]) == "Picture of A: Net   B: Net   differs"
    assert list(tmp_path.iterdir()) == []
    comparison.draw("both.pdf")
    assert shown[1]._repr_svg_().startswith("<svg") and repr(shown[1]).endswith(": both.pdf")


def test_a_notebook_explores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed, "in_notebook", lambda: True)
    found = tl.compare(logged(), logged(Net(nn.ReLU()))).explore(height=300)
    assert repr(found) == "Exploration of A: Net | B: Net: comparison.to_html(path) writes it to a file"
    assert "<iframe" in found._repr_html_()


def test_what_a_notebook_shows() -> None:
    words = tl.compare(logged(), logged(Net(nn.ReLU())))._repr_html_()
    assert "<b>Different from gelu_1_2 in A, relu_1_2 in B, on: different functions" in words
    assert words.count("<tr") == 8 and "<td><b>&lt;- here</b></td>" in words
    assert "Identical: all 7 values" in tl.compare(logged(), logged())._repr_html_()


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("fill", [-1e4, -65504.0, -1e6, -1e9, -1e12, -1e14, -1e20, -1e30])
def test_a_huge_fill_value_does_not_hide_the_cause(fill: float, added: bool) -> None:
    comparison = tl.compare(*other_scale(fill, added))
    assert first(comparison).cause.endswith("other is 2.8284271247461903 in A and 8.0 in B")
    status = {row.a: row.status for row in comparison.rows}
    masked = next(label for label in status if label and label.startswith("add" if added else "masked"))
    assert status[first(comparison).a] == "first difference"
    assert status[masked] == "differs"
    assert tl.compare(*reordered(fill, added))


def test_one_more_is_in_the_singular() -> None:
    words = printed(lambda net, x: x.sin().sin().cos().sin().cos(), lambda net, x: x.sin().sin().sin().sin().sin())
    assert "The same 1 more time: at" in words
    words = printed(lambda net, x: x.sin().sin().sin().cos(), lambda net, x: x.sin().sin().sin().tan())
    assert words.endswith(" ... 1 row before")


def test_an_intervention_is_the_cause() -> None:
    edited = logged(interventions={"activation": tl.edits.scale(0.5)})
    comparison = tl.compare(logged(), edited)
    assert first(comparison).b == "gelu_1_2"
    assert first(comparison).cause.startswith("an intervention of B: scale(0.5) at activation")
    assert len(comparison.differences) == 1


# ---- memory -------------------------------------------------------------------------------------------------------


class Unwritten(nn.Module):
    """Adds memory that nothing was written to: to half of the outputs, unless it is overwritten before."""

    def __init__(self, overwritten: bool) -> None:
        super().__init__()
        self.overwritten = overwritten

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        memory = torch.empty_like(x)
        if self.overwritten:
            memory[:2] = 1
            memory[2:] = 2
        return x + memory


def with_memory(log: tl.ModelLog, number: float) -> tl.ModelLog:
    """As if the memory had held a number."""
    memory = log["emptylike_1_1"].activation
    assert memory is not None
    if "add_1_2" in log.layer_labels:
        for label in ("add_1_2", "output_1_3"):
            values = log[label].activation
            assert values is not None
            values.copy_(X + number)
    memory.fill_(number)
    return log


def test_memory_that_nothing_was_written_to_is_no_difference() -> None:
    one, two = (with_memory(logged(Unwritten(overwritten=True)), number) for number in (3.0, 4.0))
    comparison = tl.compare(one, two)
    assert comparison.status == "identical"
    words = "agree bit for bit, but for memory that nothing was written to yet, in "
    assert words in comparison.verdict and comparison.verdict.endswith((" 1 of them.", " 2 of them."))


def test_memory_that_reaches_the_outputs_is_one() -> None:
    one, two = (with_memory(logged(Unwritten(overwritten=False)), number) for number in (3.0, 4.0))
    comparison = tl.compare(one, two)
    assert comparison.status == "differs"
    assert first(comparison).cause == "empty_like is memory that nothing was written to, and reaches the outputs"
