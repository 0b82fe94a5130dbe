"""Every kind of selector means the same operations wherever operations are chosen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from torchlens import selectors
from torchlens.fastlog import Recorder, dry_run, load, record
from torchlens.selectors import NO, YES, Modules, Seen, Selection, compile, matcher, selection


class Attention(nn.Module):
    """Returns what it computed and the weights it used."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.out = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        weights = torch.softmax(self.query(x) @ x.transpose(0, 1), -1)
        return self.out(weights @ x), weights


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = Attention()
        self.mlp = nn.Sequential(nn.Linear(4, 4), nn.GELU())

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(x)[0]
        return x + self.mlp(x)


class Small(nn.Module):
    """Blocks with attention, a dictionary as the result; nothing repeats."""

    def __init__(self) -> None:
        super().__init__()
        self.h = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> dict[str, Any]:
        for block in self.h:
            x = block(x)
        return {"logits": self.head(x), "hidden": [x.sigmoid()]}


X = torch.rand(2, 4, generator=torch.Generator().manual_seed(0))
ATTENTION = ["linear_2_6", "linear_5_16"]
WEIGHTS = ["softmax_1_4", "softmax_2_14"]

#: A selector, and the labels of the operations it means.
KINDS: list[tuple[Any, list[str]]] = [
    ("gelu_2", ["gelu_2_19"]),
    ("gelu_2_19", ["gelu_2_19"]),
    (4, ["softmax_1_4"]),
    ("soft", WEIGHTS),
    ("head", ["linear_7_21"]),
    ("head:1", ["linear_7_21"]),
    ("h.1.attn[1]", ["softmax_2_14"]),
    ("h.0.attn", ["softmax_1_4", "linear_2_6"]),
    ("h.*.attn[0]", ATTENTION),
    ("h.*.attn", sorted([*WEIGHTS, *ATTENTION])),
    ("**.mlp", ["gelu_1_9", "gelu_2_19"]),
    ("gelu*", ["gelu_1_9", "gelu_2_19"]),
    ("linear_?", [f"linear_{n}" for n in ("1_1", "2_6", "3_8", "4_11", "5_16", "6_18", "7_21")]),
    (re.compile(r"attn\.out|softmax"), sorted([*WEIGHTS, *ATTENTION])),
    (nn.GELU, ["gelu_1_9", "gelu_2_19"]),
    (Attention, sorted([*WEIGHTS, *ATTENTION])),
    (tl.all_of("linear", "**.attn.out"), ATTENTION),
    (tl.all_of(Attention, "linear"), ATTENTION),
    (tl.all_of(Attention, nn.Linear), ATTENTION),
    (tl.all_of("linear", "h.0.**", nn.Linear), ["linear_1_1", "linear_2_6", "linear_3_8"]),
    (tl.all_of("softmax", ~tl.any_of("softmax_1")), ["softmax_2_14"]),
    (tl.all_of("linear", lambda op: op.tensor_shape[-1] == 3), ["linear_7_21"]),
    (tl.any_of("gelu_1", "head"), ["gelu_1_9", "linear_7_21"]),
    (["gelu_1", nn.GELU, "softmax_1_4"], ["gelu_1_9", "gelu_2_19", "softmax_1_4"]),
    ("logits", ["output_1_23"]),
    ("['logits']", ["output_1_23"]),
    ("hidden[0]", ["output_2_24"]),
    ("hidden", ["output_2_24"]),
    ("output", ["output_1_23", "output_2_24"]),
    (lambda op: op.layer_type == "gelu", ["gelu_1_9", "gelu_2_19"]),
]  # fmt: skip

#: What only the whole graph can decide.
LATER: list[tuple[Any, list[str]]] = [
    (-1, ["output_2_24"]),
    ("gelu_2_19:1", ["gelu_2_19"]),
    (tl.all_of("gelu", ~tl.any_of("h.0.**")), ["gelu_2_19"]),
    (tl.all_of(nn.GELU, ~tl.any_of("h.0.mlp.*")), ["gelu_2_19"]),
    (~tl.any_of("*_*_*"), []),
]


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return Small()


@pytest.fixture(scope="module")
def full(model: nn.Module) -> tl.ModelLog:
    return tl.log_forward_pass(model, X)


def named(thing: Any) -> str:
    return str(thing).split(" at 0x")[0][:50]


def values(full: tl.ModelLog, labels: list[str]) -> list[Tensor]:
    return [full[label].activation for label in labels]


def labels_of(full: tl.ModelLog, tensors: list[Tensor], *, outputs: bool) -> list[str]:
    """The labels of the operations with these values; an output has the value of the operation it comes from."""
    ops = [op for op in full.all_ops if op.is_output_layer == outputs]
    return sorted({op.label for tensor in tensors for op in ops if torch.equal(op.activation, tensor)})


@pytest.mark.parametrize(("selector", "expected"), [*KINDS, *LATER[:-1]], ids=named)
def test_with_a_whole_log(model: nn.Module, full: tl.ModelLog, selector: Any, expected: list[str]) -> None:
    """Lookup, saving and gradients."""
    expected = sorted(expected)
    selectors = selector if isinstance(selector, list) else [selector]
    assert sorted(op.label for op in full.select(*selectors)) == expected
    log = tl.log_forward_pass(model, X, layers_to_save=selector)
    assert sorted(log.op_labels) == expected
    assert sorted(op.label for op in log.all_ops if op.has_saved_activation) == expected
    for op in log:
        assert torch.equal(op.activation, full[op.label].activation)
    graded = tl.log_forward_pass(model, X, save_gradients=selector)
    sum(graded[label].activation.sum() for label in graded.output_layers).backward()
    assert sorted(op.label for op in graded.all_ops if op.gradient is not None) == expected
    if isinstance(selector, list):
        return
    if len(expected) == 1 and not isinstance(selector, int):
        assert full[selector] is full[expected[0]]
    elif not isinstance(selector, int) and selector != "h.0.attn":
        with pytest.raises(tl.LayerNotFoundError, match=expected[0]):
            full[selector]


@pytest.mark.parametrize(("selector", "expected"), KINDS, ids=named)
def test_while_the_model_runs(
    model: nn.Module, full: tl.ModelLog, selector: Any, expected: list[str], tmp_path: Path
) -> None:
    """fastlog, with both of its tracers, and pluck."""
    outputs = expected[0].startswith("output")
    expected = sorted(expected)
    once = record(model, X, keep_op=selector)
    assert labels_of(full, [r.activation for r in once], outputs=outputs) == expected
    with Recorder(model, keep_op=selector) as recorder:
        recorder.log(X)
        recorder.log(X)
    kept = recorder.recording.by_pass[1]
    assert [r.label for r in kept] == [r.label for r in once]
    assert [r.context.output_index for r in kept] == [r.context.output_index for r in once]
    assert labels_of(full, [r.activation for r in kept], outputs=outputs) == expected
    if len(expected) == 1 and not callable(selector) and "lambda" not in repr(selector):
        assert torch.equal(tl.pluck(model, X, selector), full[expected[0]].activation)
    preview = dry_run(model, X, keep_op=selector)
    assert {context.label for context in preview.kept} == {r.label for r in once}
    assert (preview.nbytes > 0) and f"{len(preview.kept)} of" in repr(preview)
    saved = record(model, X, keep_op=selector, save_to=tmp_path / "records")
    loaded = load(tmp_path / "records")
    assert [r.label for r in loaded] == [r.label for r in saved]
    assert record(model, X, keep_op=selector, stop_after=selector).warnings == []


@pytest.mark.parametrize(("selector", "expected"), LATER, ids=named)
def test_what_only_the_graph_decides_is_refused_while_the_model_runs(
    model: nn.Module, selector: Any, expected: list[str]
) -> None:
    if selector is LATER[-1][0]:
        with pytest.raises(tl.LayerNotFoundError, match=r"nothing is chosen by ~tl.any_of\('\*_\*_\*'\)"):
            tl.log_forward_pass(model, X, layers_to_save=selector)
        return
    with pytest.raises(tl.ArgumentError, match="only after the run, when the whole graph is known"):
        record(model, X, keep_op=selector)


@pytest.mark.parametrize(
    ("selector", "addresses"),
    [
        ("h.0", ["h.0"]),
        ("h.*", ["h.0", "h.1"]),
        ("h.*.attn", ["h.0.attn", "h.1.attn"]),
        (Attention, ["h.0.attn", "h.1.attn"]),
        (re.compile("query$"), ["h.0.attn.query", "h.1.attn.query"]),
        (tl.all_of(nn.Linear, "h.0.**"), ["h.0.attn.query", "h.0.attn.out", "h.0.mlp.0"]),
        (tl.all_of(Block, ~tl.any_of("h.1")), ["h.0"]),
    ],
    ids=named,
)
def test_where_modules_are_chosen(model: nn.Module, full: tl.ModelLog, selector: Any, addresses: list[str]) -> None:
    recording = record(model, X, keep_module=selector)
    assert list(dict.fromkeys(r.context.module_address for r in recording)) == sorted(
        addresses, key=[c.address for c in full.modules].index
    ) or {r.context.module_address for r in recording} == set(addresses)
    with Recorder(model, keep_module=selector) as recorder:
        recorder.log(X)
    assert [r.label for r in recorder.recording] == [r.label for r in recording]
    assert full.to_dot(vis_collapse=selector) == full.to_dot(vis_collapse=addresses)
    assert full.to_dot(vis_expand=selector, vis_nesting_depth=1) == full.to_dot(
        vis_expand=addresses, vis_nesting_depth=1
    )


# ---- names that are not meant ---------------------------------------------------------------------------------


class Namesake(nn.Module):
    """Its module `relu_1` is the second relu, and its module `linear_1` the first linear."""

    def __init__(self) -> None:
        super().__init__()
        self.relu_1 = nn.ReLU()
        self.linear_1 = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.relu_1(self.linear_1(x.relu()))


@pytest.mark.parametrize("name", ["relu_1", "relu_1:1"])
def test_a_name_that_means_two_things_is_an_error_that_says_both(name: str) -> None:
    model, x = Namesake(), torch.rand(2, 3)
    log = tl.log_forward_pass(model, x)
    says_both = f"'{name}' is the module 'self.{name}' and the layer"
    for ask in (
        lambda: log[name],
        lambda: log.select(name),
        lambda: tl.log_forward_pass(model, x, layers_to_save=name),
        lambda: tl.log_forward_pass(model, x, save_gradients=name),
        lambda: tl.pluck(model, x, name),
        lambda: record(model, x, keep_op=name),
    ):
        with pytest.raises(tl.LayerNotFoundError, match=says_both):
            ask()
    with pytest.raises(tl.LayerNotFoundError, match=says_both), Recorder(model, keep_op=name) as recorder:
        recorder.log(x)
    assert (log["self.relu_1"].label, log["relu_1_1"].label) == ("relu_2_3", "relu_1_1")
    assert "self.relu_1" in log["relu_2_3"].lookup_keys and tl.lint(log) == []
    assert torch.equal(tl.pluck(model, x, "self.relu_1"), log["relu_2_3"].activation)


def test_a_name_that_means_the_same_twice_is_fine() -> None:
    model, x = Namesake(), torch.rand(2, 3)
    log = tl.log_forward_pass(model, x)
    assert log["linear_1"].label == "linear_1_2"
    assert tl.log_forward_pass(model, x, layers_to_save="linear_1").op_labels == ["linear_1_2"]
    assert len(record(model, x, keep_op="linear_1")) == 1
    assert torch.equal(tl.pluck(model, x, "linear_1"), log["linear_1_2"].activation)


def test_an_output_and_a_module_of_the_same_name() -> None:
    class Both(nn.Module):
        def __init__(self, change: bool) -> None:
            super().__init__()
            self.logits, self.change = nn.Linear(3, 3), change

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            logits = self.logits(x)
            return {"logits": logits * 2 if self.change else logits}

    x = torch.rand(2, 3)
    assert tl.log_forward_pass(Both(False), x)["logits"].label == "linear_1_1"
    log = tl.log_forward_pass(Both(True), x)
    with pytest.raises(tl.LayerNotFoundError, match=r"the module 'self.logits' and the output \"\['logits'\]\""):
        log["logits"]
    assert (log["self.logits"].label, log["['logits']"].label) == ("linear_1_1", "output_1_3")
    assert "self.logits" in log["self.logits"].lookup_keys
    assert "['logits']" in log[-1].lookup_keys
    assert log.validate()


def test_digits_name_modules_and_not_the_outputs_of_a_tuple() -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LSTM(4, 2)), torch.rand(5, 3)
    log = tl.log_forward_pass(model, x)
    assert log["0"].label == "linear_1_1"
    assert log["[1][0]"].is_output_layer
    assert log.validate()
    assert tl.log_forward_pass(model, x, layers_to_save="0").op_labels == ["linear_1_1"]
    assert torch.equal(tl.pluck(model, x, "0"), log["0"].activation)
    assert log.intervene({"0": tl.edits.zero()})["0"].activation.eq(0).all()


def test_an_output_and_part_of_a_label_of_the_same_name() -> None:
    class Keys(nn.Module):
        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"relu": x.relu() + 1}

    log = tl.log_forward_pass(Keys(), torch.rand(2))
    with pytest.raises(tl.LayerNotFoundError, match="is the output .* and part of the label 'relu_1_1'"):
        log["relu"]
    assert (log["['relu']"].label, log["*relu*"].label) == ("output_1_3", "relu_1_1")


@pytest.mark.parametrize("digits", ["2", "10"])
def test_digits_are_no_part_of_a_label(digits: str) -> None:
    model, x = Namesake(), torch.rand(2, 3)
    log = tl.log_forward_pass(model, x)
    for ask in (
        lambda: log[digits],
        lambda: tl.log_forward_pass(model, x, layers_to_save=digits),
        lambda: tl.pluck(model, x, digits),
        lambda: record(model, x, keep_op=digits),
    ):
        with pytest.raises(tl.LayerNotFoundError, match=digits):
            ask()


def test_a_label_is_no_part_of_another() -> None:
    model = nn.Sequential(nn.LeakyReLU(), nn.ReLU6())
    log = tl.log_forward_pass(model, torch.rand(2))
    with pytest.raises(tl.LayerNotFoundError, match="no layer or module 'relu_1'"):
        log["relu_1"]
    with pytest.raises(tl.LayerNotFoundError, match="'relu_1'"):
        tl.log_forward_pass(model, torch.rand(2), layers_to_save="relu_1")


# ---- modules with several outputs -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["h.0.attn", "h.0.attn:1"])
def test_one_of_several_outputs_is_said_to_be_one(model: nn.Module, full: tl.ModelLog, name: str) -> None:
    says = rf"module '{name}' returned 2 tensors, and this is the first; .*'{re.escape(name)}\[1\]'"
    with pytest.warns(tl.SeveralOutputsWarning, match=says):
        assert full[name].label == "linear_2_6"
    with pytest.warns(tl.SeveralOutputsWarning, match=says):
        assert torch.equal(tl.pluck(model, X, name), full["linear_2_6"].activation)
    assert name in full
    assert full["h.0.attn[1]"].label == "softmax_1_4" and "h.0.attn:1[1]" in full["softmax_1_4"].lookup_keys


def test_an_output_that_is_not_there(model: nn.Module, full: tl.ModelLog) -> None:
    with pytest.raises(tl.LayerNotFoundError, match="the module returned 2 tensors, counted from 0"):
        full["h.0.attn[2]"]
    with pytest.raises(tl.LayerNotFoundError, match="returned 2 tensors"):
        tl.pluck(model, X, "h.0.attn[2]")
    with pytest.raises(tl.LayerNotFoundError, match=r"h.0.attn\[2\]"):
        record(model, X, keep_op="h.0.attn[2]")


# ---- what can't choose ----------------------------------------------------------------------------------------


def test_what_can_not_choose(model: nn.Module, full: tl.ModelLog) -> None:
    with pytest.raises(tl.ArgumentError, match="by its address or its class"):
        tl.log_forward_pass(model, X, layers_to_save=model.get_submodule("head"))
    with pytest.raises(tl.ArgumentError, match="at least one selector"):
        tl.all_of()
    with pytest.raises(tl.LayerNotFoundError, match="the class Conv2d: the model has no such module"):
        full.select(nn.Conv2d)
    with pytest.raises(tl.ArgumentError, match="must return True or False, but returned 1"):
        record(model, X, keep_op=tl.all_of("linear_?", lambda ctx: 1))


def test_the_nearest_names_are_each_named_once(full: tl.ModelLog) -> None:
    with pytest.raises(tl.LayerNotFoundError, match="did you mean 'h.0.attn', 'h.1.attn'"):
        full["attn"]
    with pytest.raises(tl.LayerNotFoundError) as caught:
        full["softmax_7"]
    assert str(caught.value).endswith("'softmax_7'; did you mean 'softmax_2', 'softmax_1'?")


def test_combinations_print_as_they_are_written() -> None:
    assert repr(tl.all_of("a", ~tl.any_of(3, nn.ReLU))) == "tl.all_of('a', ~tl.any_of(3, the class ReLU))"
    combined = tl.any_of("a")
    assert ~~combined is combined


def test_a_matcher_alone(full: tl.ModelLog) -> None:
    """It needs a table of modules, and no model."""
    matcher = compile(Selection.checked(["conv", "h.1.attn[1]"], "x"), Modules(full._trace.modules), "x")
    assert (matcher.answer(Seen("conv2d")), matcher.answer(Seen("relu"))) == (YES, NO)
    attention = matcher.modules_asked.pop()
    assert matcher.answer(Seen("softmax", returned=[(attention, 1, 1)])) == YES
    assert matcher.answer(Seen("softmax", returned=[(attention, 1, 0)])) == NO


def test_a_class_means_those_derived_from_it_too(tmp_path: Path) -> None:
    """Also one that is made at run time, and in a log that comes from a file."""
    model = nn.Sequential(
        nn.Conv1d(2, 2, 1), torch.nn.utils.parametrizations.weight_norm(nn.Conv1d(2, 2, 1)), nn.ReLU()
    )
    x = torch.rand(1, 2, 3)
    log = tl.log_forward_pass(model, x)
    assert log.module_types["1"] == "ParametrizedConv1d"
    tl.save(log, tmp_path / "log")
    for each in (log, tl.load(tmp_path / "log")):
        assert [op.layer_type for op in each.select(nn.Conv1d)] == ["conv1d", "conv1d"]
        assert [op.layer_type for op in each.select(type(model[1]))] == ["conv1d"]
        assert each.select(nn.modules.conv._ConvNd) == each.select(nn.Conv1d)
    assert len(record(model, x, keep_op=nn.Conv1d)) == 2
    assert {op.label for op in log.select(nn.Module)} >= {op.label for op in log.select("conv", "relu")}


def test_classes_of_a_loaded_log_are_known_by_name(full: tl.ModelLog, tmp_path: Path) -> None:
    tl.save(full, tmp_path / "log")
    loaded = tl.load(tmp_path / "log")
    for selector, expected in KINDS:
        if not callable(selector) and not isinstance(selector, list):
            assert sorted(op.label for op in loaded.select(selector)) == sorted(expected)
    assert [op.label for op in loaded.select(nn.GELU)] == ["gelu_1_9", "gelu_2_19"]


# ---- compiled models ------------------------------------------------------------------------------------------


def test_addresses_of_a_compiled_model_are_those_of_the_model_inside() -> None:
    plain = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 2)))
    x = torch.rand(2, 3)
    wanted = tl.log_forward_pass(plain, x)
    inner = nn.Sequential(plain[0], torch.compile(plain[1]))
    for model in (torch.compile(plain), inner, torch.compile(inner)):
        log = tl.log_forward_pass(model, x)
        assert log.module_addresses == wanted.module_addresses == ["0", "1", "1.0", "1.1"]
        assert log.op_labels == wanted.op_labels and log.model_name == "Sequential"
        assert [op.containing_modules for op in log] == [op.containing_modules for op in wanted]
        assert [p.address for p in log.params] == [p.address for p in wanted.params]
        assert log["0"].label == "linear_1_1" and log["1.0"].label == "relu_1_2"
        assert tl.log_forward_pass(model, x, layers_to_save="1.0").op_labels == ["relu_1_2"]
        assert torch.equal(tl.pluck(model, x, "0"), wanted["linear_1_1"].activation)
        assert [r.label for r in record(model, x, keep_op="1.0")] == ["1.0:1"]
        with Recorder(model, keep_op=["0", "relu"]) as recorder:
            recorder.log(x)
            assert torch.equal(model(x), wanted["output_1"].activation)
        assert [r.label for r in recorder.recording] == ["0:1", "relu_1_2"] * 2
        assert tl.log_forward_pass(model, x, module="1").op_labels[-2:] == ["linear_1_2", "output_1_3"]


def test_outputs_are_counted_with_those_that_no_record_tells_of(tmp_path: Path) -> None:
    """A constant, a parameter and an unused buffer among the results shift nothing."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.constant, self.weight = torch.full((2, 3), 7.0), nn.Parameter(torch.zeros(2, 3))
            self.register_buffer("table", torch.ones(2, 3))

        def forward(self, x: Tensor) -> tuple[Any, ...]:
            return self.constant, self.weight, [self.table, x.sin()], None, x

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Mixed()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)[2][1] + 1  # type: ignore[no-any-return]

    model, x = Outer(), torch.rand(2, 3)
    log = tl.log_forward_pass(model, x)
    for index, label in {3: "sin_1_1", 4: "input_1_0"}.items():
        name = f"inner[{index}]"
        assert log[name].label == label
        assert tl.log_forward_pass(model, x, layers_to_save=name).op_labels == [label]
        for value in (
            tl.pluck(model, x, name),
            record(model, x, keep_op=name)[0].activation,
        ):
            assert torch.equal(value, log[label].activation)
        with Recorder(model, keep_op=name) as recorder:
            recorder.log(x)
        assert torch.equal(recorder.recording[0].activation, log[label].activation)
    with pytest.raises(
        tl.LayerNotFoundError, match=r"'inner\[0\]' is a parameter or a constant, not a tensor of the graph"
    ):
        log["inner[0]"]
    tl.save(log, tmp_path / "log")
    assert tl.load(tmp_path / "log")["inner[3]"].label == "sin_1_1"
    with pytest.warns(tl.SeveralOutputsWarning, match=r"'inner\[3\]', 'inner\[4\]'"):
        log["inner"]
    assert "inner[3]" in log["sin_1"].lookup_keys


def test_a_new_kind_is_known_everywhere_once_the_folder_knows_it(
    model: nn.Module, full: tl.ModelLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The done-when of a new kind: nothing outside the folder `selectors` has to learn of it."""

    @dataclass(frozen=True)
    class Between:
        first: int
        last: int

    class Numbers(selectors.Kind):
        def answer(self, seen: Seen) -> selectors.Answer:
            between: Any = self.said
            return selectors.ASK if seen.number is None else YES if between.first <= seen.number < between.last else NO

        def places(self, graph: Any, asked: Any) -> set[int]:
            between: Any = self.said
            return set(range(between.first, between.last))

    check, kind_of = selection._checked, matcher.kind_of
    monkeypatch.setattr(selection, "_checked", lambda s, *given: s if type(s) is Between else check(s, *given))
    monkeypatch.setattr(matcher, "kind_of", lambda s, *by: Numbers(s) if type(s) is Between else kind_of(s, *by))
    few: Any = Between(3, 5)
    expected = ["matmul_1_3", "softmax_1_4"]
    assert [op.label for op in full.select(few)] == expected
    assert tl.log_forward_pass(model, X, layers_to_save=few).op_labels == expected
    graded = tl.log_forward_pass(model, X, save_gradients=few)
    graded["logits"].activation.sum().backward()
    assert [op.label for op in graded.all_ops if op.gradient is not None] == expected
    assert [r.label for r in record(model, X, keep_op=few)] == expected
    with Recorder(model, keep_op=tl.any_of(few)) as recorder:
        recorder.log(X)
    assert [r.label for r in recorder.recording] == expected
    one: Any = Between(4, 5)
    assert full[one].label == "softmax_1_4" and torch.equal(tl.pluck(model, X, one), full[4].activation)


def test_an_output_before_a_constant_that_is_returned_too() -> None:
    class Returns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.constant = torch.ones(2)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"first": x * 2, "constant": self.constant, "last": x * 3}

    log = tl.log_forward_pass(Returns(), torch.rand(2))
    assert [log[key].label for key in ("first", "constant", "last")] == log.output_layers
    assert log.validate()
