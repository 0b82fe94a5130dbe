"""One line for each operation: in `print(log)`, in its repr, in lists."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from torchlens.log.listing import MOST_LINES


class Repeating(nn.Module):
    """The same linear layer many times, then a list that grows."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps, self.fc = steps, nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.steps):
            x = self.fc(x).relu()
        return x


class Chain(nn.Module):
    """So many different layers in a row."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def forward(self, x: Tensor) -> Tensor:
        for number in range(self.length):
            x = torch.cat([x, x[:1]]) if number % 2 else x + number
        return x


def _layers(log: tl.ModelLog) -> list[str]:
    return str(log).partition("\tLayers:\n\t\t")[2].split("\n\t\t")


def test_shape_and_module_are_columns() -> None:
    log = tl.log_forward_pass(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), torch.rand(2, 3))
    assert _layers(log) == [
        "0: input_1_0   f32[2,3]",
        "1: linear_1_1  f32[2,4]  0",
        "2: relu_1_2    f32[2,4]  1",
        "3: output_1_3  f32[2,4]",
    ]


def test_a_short_listing_has_every_pass_and_a_long_one_each_layer() -> None:
    lines = _layers(tl.log_forward_pass(Repeating(2), torch.rand(1, 3)))
    assert [line.split("  ")[0] for line in lines[1:3]] == [
        "1: linear_1_1:1 (1/2 passes)",
        "2: relu_1_2:1 (1/2 passes)",
    ]
    lines = _layers(tl.log_forward_pass(Repeating(MOST_LINES), torch.rand(1, 3)))
    assert lines == [
        "0: input_1_0                f32[1,3]",
        "1: linear_1_1 (200 passes)  f32[1,3]  fc",
        "2: relu_1_2 (200 passes)    f32[1,3]",
        "401: output_1_3             f32[1,3]",
    ]
    log = tl.log_forward_pass(Repeating(500), torch.rand(1, 3), layers_to_save=lambda op: op.pass_num > 100)
    assert _layers(log)[0].startswith("0: linear_1_1 (400/500 passes)")
    assert "recurrent (at most 500 loops)" in str(log) and "1,002 tensors (" in str(log)


def test_the_middle_of_a_long_listing_is_left_out() -> None:
    log = tl.log_forward_pass(Chain(MOST_LINES), torch.rand(2))
    lines = _layers(log)
    assert len(lines) == MOST_LINES + 1
    left_out = len(log.layer_labels) - MOST_LINES
    assert lines[100].startswith(f"... {left_out} more layers: log.layer_list has every operation, log[100:150] some")
    assert lines[0].startswith("0: input_1_0") and lines[-1].startswith(f"{len(log) - 1}: output_1_")
    assert repr(log.layer_list).count("\n") == len(log) - 1 and repr(log[100:150]).count("\n") == 49
    whole = tl.log_forward_pass(nn.Sequential(*[nn.Sequential(nn.ReLU()) for _ in range(150)]), torch.rand(2))
    assert "\t\t... 100 more lines: log.modules has every module" in str(whole)


def test_the_middle_of_very_many_passes_is_left_out() -> None:
    log = tl.log_forward_pass(Repeating(300), torch.rand(1, 3))
    lines = str(log["fc"]).splitlines()
    assert lines[0] == "Layer linear_1_1, 300 passes:"
    assert lines[1:3] == ["\t1: operation 2, 1x3 (12 B)  <- input_1_0", "\t2: operation 4, 1x3 (12 B)  <- relu_1_2:1"]
    assert lines[11] == "\t... 280 more: layer.passes lists all"
    assert lines[12] == "\t291: operation 582, 1x3 (12 B)  <- relu_1_2:290"
    assert len(lines) == 23 and lines[-1] == "\tAsk one pass for more: log['linear_1_1:1'] or layer.passes[1]"
    assert str(tl.log_forward_pass(Repeating(20), torch.rand(1, 3))["fc"]).count("\n") == 21


def test_a_line_for_each_pass() -> None:
    log = tl.log_forward_pass(Repeating(300), torch.rand(1, 3))
    lines = repr(log["fc"].passes).splitlines()
    assert lines[:2] == [
        "{1: OpLog(linear_1_1:1  f32[1,3]  <- input_1_0),",
        " 2: OpLog(linear_1_1:2  f32[1,3]  <- relu_1_2:1),",
    ]
    assert len(lines) == 300 and lines[-1].endswith("}")
    assert repr(log.modules["fc"].passes).splitlines()[0] == "{1: ModulePassLog(fc:1  -> linear_1_1:1),"
    assert list(log["fc"].passes) == list(range(1, 301))


def test_a_line_for_an_operation_and_for_a_layer() -> None:
    log = tl.log_forward_pass(Repeating(3), torch.rand(1, 3))
    assert repr(log["relu_1_2:2"]) == "OpLog(relu_1_2:2  f32[1,3]  <- linear_1_1:2)"
    assert repr(log["input"]) == "OpLog(input_1_0  f32[1,3])"
    assert repr(log["relu_1_2"]) == "LayerLog(relu_1_2  3 passes  f32[1,3]  <- linear_1_1)"
    assert str(log["relu_1_2"]).startswith("Layer relu_1_2, 3 passes:\n")
    assert repr(log[:2]) == "[OpLog(input_1_0  f32[1,3]),\n OpLog(linear_1_1:1  f32[1,3]  <- input_1_0)]"
    assert repr(log.select("input")) == "[OpLog(input_1_0  f32[1,3])]"


def test_very_many_parents() -> None:
    class Fan(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x + i for i in range(6)])

    assert repr(tl.log_forward_pass(Fan(), torch.rand(1))["cat"]).endswith("add_4_4, ... 2 more)")


@pytest.mark.parametrize("shapes, words", [([(2, 1), (3, 1)], "f32[?,1]"), ([(2,), ()], "f32[...]")])
def test_passes_of_several_shapes(shapes: list[tuple[int, ...]], words: str) -> None:
    fc = nn.PReLU(1)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = fc

        def forward(self, xs: list[Tensor]) -> list[Tensor]:
            return [self.fc(x) for x in xs]

    log = tl.log_forward_pass(Model(), [[torch.rand(shape) for shape in shapes]])
    assert words in repr(log["prelu"])


class Backwards(nn.Module):
    """Modules that are called in another order than they are defined in, one of them never, one in a container."""

    def __init__(self) -> None:
        super().__init__()
        self.unused, self.last = nn.ReLU(), nn.ReLU()
        self.box = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2).half()])
        self.first = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.box[0](self.first(x)))


def test_modules_are_in_the_order_of_their_first_calls_and_then_those_that_were_not_called() -> None:
    log = tl.log_forward_pass(Backwards(), torch.rand(1, 2))
    modules = str(log).partition("\tModule Hierarchy:\n\t\t")[2].partition("\n\tLayers:")[0]
    assert modules.split("\n\t\t") == ["first", "box:", "    box.0, box.1", "last", "unused"]
    assert (log.total_params, log.total_params_memory) == (12, 6 * 4 + 6 * 2)
