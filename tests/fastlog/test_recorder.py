"""Recorder and record: what is chosen, what a record knows, how it ends, what it leaves behind."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.test_memory import peak
from torch import Tensor, nn

import torchlens as tl
from torchlens.fastlog import CaptureSpec, RecordContext, Recorder, record


class Net(nn.Module):
    """Convolutions, an in-place activation, a buffer, a module that returns several tensors, one called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True), nn.Conv2d(2, 2, 3))
        self.rnn = nn.GRU(4, 4, batch_first=True)
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.features(x))
        x, _ = self.rnn(x.mean(1))
        return self.head(F.relu(self.head(x))) / 2


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return Net().eval()


X = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def labels(records: Any) -> list[str]:
    return [record.label for record in records]


def both(model: nn.Module, x: Tensor, **chosen: Any) -> list[str]:
    """What is kept by `record` and by a `Recorder`, which must agree."""
    once = record(model, x, **chosen)
    with Recorder(model, **chosen) as recorder:
        recorder.log(x)
    counts_operations = recorder._tracer is not None and recorder._tracer._sees_calls
    for one, other in zip(once, recorder.recording, strict=True):
        assert torch.equal(one.activation, other.activation)
        known = {} if counts_operations else {"event_index": other.context.event_index}
        assert facts(one.context) | known == facts(other.context)
    return labels(once)


def facts(context: RecordContext) -> dict[str, Any]:
    return {name: getattr(context, name) for name in dir(RecordContext) if not name.startswith(("_", "recent"))}


# ---- choosing -------------------------------------------------------------------------------------------------

RELUS = ["relu_1_5", "relu_2_7", "relu_3_13"]
CHOICES: list[tuple[dict[str, Any], list[str]]] = [
    ({"keep_op": "relu"}, RELUS),
    ({"keep_op": "relu_2"}, ["relu_2_7"]),
    ({"keep_op": ["relu_2_7", "conv2d_1"]}, ["conv2d_1_1", "relu_2_7"]),
    ({"keep_op": 7}, ["relu_2_7"]),
    ({"keep_op": "_7"}, ["relu_2_7"]),
    ({"keep_op": "features.0"}, ["features.0:1"]),
    ({"keep_op": ["head:2", "input"]}, ["input_1_0", "head:2"]),
    ({"keep_op": "truediv"}, ["truediv_1_15"]),
    ({"keep_module": "head"}, ["head:1", "head:2"]),
    ({"keep_module": "rnn"}, ["rnn:1", "rnn:1"]),
    ({"keep_module": "self"}, ["self:1"]),
    ({"keep_op": lambda ctx: ctx.layer_type == "relu" and ctx.recent_ops[-1].layer_type == "conv2d"}, ["relu_2_7"]),
    ({"keep_op": lambda ctx: ctx.kind == "buffer"}, ["buffer_1_2", "buffer_2_3"]),
    ({"keep_op": lambda ctx: None, "default_op": True, "keep_module": "head:1"}, None),
    ({"keep_module": lambda ctx: ctx.kind == "module_exit" and ctx.module_type == "Linear"}, ["head:1", "head:2"]),
    ({"keep_module": lambda ctx: ctx.kind == "module_enter" and ctx.module_address == "head"}, ["head:1", "head:2"]),
    ({"keep_op": lambda ctx: ctx.module_stack[1:2] == ("features:1",) and ctx.parent_labels == ("conv2d_1_1",)}, []),
    ({"keep_op": lambda ctx: ctx.func_name == "__truediv__"}, ["truediv_1_15"]),
    ({"keep_op": lambda ctx: "features.1:1" in ctx.module_stack and ctx.kind == "op"}, ["batchnorm_1_4"]),
]  # fmt: skip


@pytest.mark.parametrize(("chosen", "expected"), CHOICES, ids=lambda thing: str(thing).split(" at 0x")[0][:50])
def test_choices(net: nn.Module, chosen: dict[str, Any], expected: list[str] | None) -> None:
    found = both(net, X, **chosen)
    assert found == expected if expected is not None else len(found) == 17


class ManyWays(nn.Module):
    """Calls with keyword arguments, with constants that nothing made, in lists and behind names; with many results."""

    def __init__(self) -> None:
        super().__init__()
        self.constants = [[torch.rand(2, 4) for _ in range(3)] for _ in range(2)]
        self.register_buffer("scale", torch.rand(4))

    def forward(self, x: Tensor) -> Tensor:
        for one, two, three in self.constants:  # the first call of a kind is met on the long way
            x = torch.cat([x[:, :4], one], dim=-1)[..., :4]
            x = torch.mul(input=x, other=two)
            left, right = x.chunk(2, dim=-1)
            x = torch.cat((left, right.clone()), -1).mul(self.scale)
            x = torch.sigmoid(three).softmax(dim=-1).max(dim=-1, keepdim=True).values.mul(x)
        return torch.relu(x)


def test_calls_that_nobody_wants_are_counted_as_all_others() -> None:
    model, x = ManyWays(), torch.rand(2, 4)
    with Recorder(model, keep_op=True) as everything:
        model(x)
    with Recorder(model, keep_op="relu") as one_kind:  # not at the same time: then there is no short way
        model(x)
    kept, same = one_kind.recording[0], everything.recording[-1]
    assert kept.label == same.label and kept.label.startswith("relu_1_")
    assert kept.context.parent_labels == same.context.parent_labels
    assert torch.equal(kept.activation, model(x))


def test_labels_are_those_of_a_log_where_nothing_repeats() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(inplace=True), nn.Linear(3, 3)).eval()
    x = torch.rand(2, 3)
    log = tl.log_forward_pass(model, x)
    assert both(model, x, keep_op=True) == log.op_labels[:-1]


@pytest.mark.parametrize(
    ("chosen", "error", "words"),
    [
        ({}, tl.ArgumentError, "nothing is chosen"),
        ({"keep_op": []}, tl.ArgumentError, "nothing is chosen"),
        ({"keep_op": 1.5}, tl.ArgumentError, "can't choose"),
        ({"keep_op": -1}, tl.ArgumentError, "when the whole graph is known"),
        ({"keep_op": "linear_1_1:2"}, tl.ArgumentError, "layers_to_save"),
        ({"keep_op": "nonsense"}, tl.LayerNotFoundError, "nothing is chosen by 'nonsense'"),
        ({"keep_module": "heat"}, tl.LayerNotFoundError, "did you mean 'head'"),
        ({"keep_op": "relu", "default_op": "yes"}, tl.ArgumentError, "default_op"),
        ({"keep_op": "relu", "history_size": -1}, tl.ArgumentError, "history_size"),
        ({"keep_op": lambda ctx: 1}, tl.ArgumentError, r"<lambda> \(.*returned 1 for input_1_0.*CaptureSpec"),
        ({"keep_op": lambda ctx: ctx.layertype}, tl.ArgumentError, "keep_op <lambda>.*for input_1_0.*'layer_type'"),
        ({"keep_op": lambda ctx: CaptureSpec(device="cuda:77")}, tl.ArgumentError, "for input_1_0|cuda:77"),
    ],
)
def test_errors_say_what_is_wrong(net: nn.Module, chosen: dict[str, Any], error: type, words: str) -> None:
    before = dict(vars(net))
    with pytest.raises(error, match=words):
        record(net, X, **chosen)
    if "nonsense" not in str(chosen):
        with pytest.raises(error, match=words), Recorder(net, **chosen) as recorder:
            recorder.log(X)
    assert vars(net) == before and not torch.overrides._get_current_function_mode_stack()


def test_a_predicate_that_fails_does_not_disturb_the_pass(net: nn.Module) -> None:
    outputs: list[Tensor] = []
    net.register_forward_hook(lambda module, args, result: outputs.append(result))
    with pytest.raises(tl.ArgumentError, match="ZeroDivisionError for conv2d_1_1") as caught:
        record(net, X, keep_op=lambda ctx: 1 / 0 if ctx.layer_type == "conv2d" else False)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert torch.equal(outputs[0], net(X))


def test_what_was_never_seen_is_reported(net: nn.Module) -> None:
    with (
        pytest.warns(tl.FidelityWarning, match="nothing was chosen by 'nonsense'"),
        Recorder(net, keep_op=["relu", "nonsense"]) as recorder,
    ):
        recorder.log(X)
    assert len(recorder.recording) == 3 and "nonsense" in recorder.recording.summary()


# ---- contexts -------------------------------------------------------------------------------------------------


def test_every_field_of_a_context(net: nn.Module) -> None:
    with Recorder(net, keep_op=lambda ctx: ctx.label == "relu_2_7", history_size=3) as recorder:
        recorder.log(X)
        recorder.log(X, sample_id="second")
    context = recorder.recording[1].context
    assert facts(context) == {
        "kind": "op",
        "label": "relu_2_7",
        "layer_type": "relu",
        "layer_type_num": 2,
        "func_name": "relu",
        "module_address": "self",
        "module_type": "Net",
        "module_pass_index": 1,
        "module_stack": ("self:1",),
        "parent_labels": ("conv2d_2_6",),
        "tensor_shape": (3, 2, 4, 4),
        "tensor_dtype": torch.float32,
        "tensor_device": torch.device("cpu"),
        "output_index": None,
        "pass_index": 1,
        "event_index": 18,
        "sample_id": "second",
    }
    assert [c.label for c in context.recent_ops] == ["batchnorm_1_4", "relu_1_5", "conv2d_2_6"]
    assert [(c.kind, c.label) for c in context.recent_events] == [
        ("op", "conv2d_2_6"),
        ("module_exit", "features.3:1"),
        ("module_exit", "features:1"),
    ]
    assert context.recent_events[0].tensor_shape == (3, 2, 4, 4)


def test_a_context_is_frozen_and_teaches(net: nn.Module) -> None:
    context = record(net, X, keep_op="relu")[0].context
    for name in ("label", "tensor_shape", "mine"):
        with pytest.raises(AttributeError):
            setattr(context, name, "x")
    with pytest.raises(AttributeError):
        del context.label
    with pytest.raises(AttributeError, match="'tensorshape'; did you mean 'tensor_shape'"):
        context.tensorshape
    assert context == context and hash(context) and "relu_1_5" in repr(context)


class Reshaping(nn.Module):
    """Changes the shape of tensors in place between calls of a module that passes them on."""

    def __init__(self) -> None:
        super().__init__()
        self.passing = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = x + 1
        self.passing(y.t_())
        y.data = torch.rand(7)
        self.passing(y)
        self.passing(y.unsqueeze_(0))
        y.resize_(3)
        return self.passing(y) + 1


def test_module_events_know_the_shape_of_the_moment() -> None:
    shapes: list[list[Any]] = []

    def ask(context: tl.fastlog.RecordContext) -> bool:
        shapes.append([event.tensor_shape for event in context.recent_events if event.label.startswith("passing")])
        return False

    with tl.fastlog.Recorder(Reshaping(), keep_op=ask, history_size=50) as recorder:
        recorder.log(torch.rand(2, 5))
    assert shapes[-1] == [(5, 2), (5, 2), (7,), (7,), (1, 7), (1, 7), (3,), (3,)]


def test_history_begins_anew_in_each_pass(net: nn.Module) -> None:
    seen: list[int] = []

    def look(ctx: RecordContext) -> bool:
        seen.append(len(ctx.recent_events))
        return False

    with Recorder(net, keep_op=look) as recorder:
        recorder.log(X)
        half = len(seen)
        recorder.log(X)
    assert seen[:half] == seen[half:] and seen[0] == 0 and max(seen) == 8


# ---- specs ----------------------------------------------------------------------------------------------------


def test_specs(net: nn.Module) -> None:
    answers = {
        "relu": CaptureSpec(dtype=torch.float16),
        "conv2d": CaptureSpec(save_activation=False),
        "linear": CaptureSpec(save_metadata=False),
        "mean": True,
    }
    recording = record(net, X, keep_op=lambda ctx: answers.get(ctx.layer_type, False))
    relu, conv, linear, mean = (recording[name] for name in ("relu_1", "conv2d_1", "linear_1", "mean_1"))
    assert relu.activation.dtype == torch.float16 and relu.context.tensor_dtype == torch.float32
    assert conv.activation is None and conv.context.tensor_shape == (3, 2, 6, 6) and conv.nbytes == 0
    assert linear.context is None and linear.activation.shape == (3, 4, 4) and linear.label == "linear_1_12"
    assert mean.activation.dtype == torch.float32


@pytest.mark.parametrize(
    "wrong",
    [{"save_activation": False, "save_metadata": False}, {"dtype": torch.int8}, {"dtype": "half"},
     {"device": "nowhere"}, {"keep_grad": True, "save_activation": False}],
)  # fmt: skip
def test_specs_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(tl.ArgumentError):
        CaptureSpec(**wrong)


# ---- training -------------------------------------------------------------------------------------------------


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x).mul_(2).add_(1)


@pytest.mark.parametrize("many", [False, True])
def test_what_is_kept_in_training_is_connected(many: bool) -> None:
    torch.manual_seed(0)
    model, x = InPlace(), torch.rand(4, 3)
    if many:
        with Recorder(model, keep_op=["linear", "mul"], train_mode=True) as recorder:
            recorder.log(x)
        recording = recorder.recording
    else:
        recording = record(model, x, keep_op=["linear", "mul"], train_mode=True)
    loss = recording["linear_1"].activation.square().sum() + recording["mul_1"].activation.sum()
    loss.backward()
    found = model.fc.weight.grad.clone()
    model.zero_grad()
    linear = model.fc(x)
    (linear.square().sum() + (linear * 2).sum()).backward()
    assert torch.equal(found, model.fc.weight.grad)


def test_one_record_can_stay_connected(net: nn.Module) -> None:
    recording = record(net, X, keep_op=lambda ctx: CaptureSpec(keep_grad=True) if ctx.label == "relu_2_7" else True)
    assert recording["relu_2"].activation.requires_grad and not recording["relu_3"].activation.requires_grad


def test_converted_values_stay_connected(net: nn.Module) -> None:
    spec = CaptureSpec(keep_grad=True, dtype=torch.float64)
    value = record(net, X, keep_op=lambda ctx: spec if ctx.layer_type == "conv2d" else False)[0].activation
    value.sum().backward()
    assert value.dtype == torch.float64 and net.features[0].weight.grad is not None


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_training_needs_autograd(net: nn.Module, off: Any) -> None:
    with off(), pytest.raises(tl.ArgumentError, match="train_mode=True needs autograd"):
        record(net, X, keep_op="relu", train_mode=True)
    with Recorder(net, keep_op="relu", train_mode=True) as recorder:
        with off(), pytest.raises(tl.ArgumentError, match="train_mode=True needs autograd"):
            recorder.log(X)
        recorder.log(X)
    assert recorder.recording.num_passes == 1 and recorder.recording[0].activation.requires_grad


# ---- early stop -----------------------------------------------------------------------------------------------


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(4)])
        self.ran: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x).relu()
            self.ran.append(number)
        return x


@pytest.mark.parametrize(
    ("after", "ran"),
    [
        ("layers.1", [0]),
        ("relu_2", [0]),
        (["relu", "layers.2"], [0, 1]),
        (lambda ctx: ctx.label == "linear_4_7", [0, 1, 2]),
    ],
)
def test_the_pass_stops_once_all_that_is_wanted_has_happened(after: Any, ran: list[int]) -> None:
    model, x = Counting(), torch.rand(2, 3)
    plain = dict(vars(model))
    once = record(model, x, keep_op=True, stop_after=after)
    assert model.ran == ran
    model.ran.clear()
    with Recorder(model, keep_op=True, stop_after=after) as recorder:
        assert recorder.log(x) is None
        assert recorder.log(x) is None
    assert model.ran == ran * 2 and labels(recorder.recording) == labels(once) * 2
    model.ran.clear()
    assert vars(model) == plain and model(x).shape == x.shape
    log = once.to_log()
    assert not log.is_complete and [op.has_saved_activation for op in log] == [True] * len(once)


def test_stopping_leaves_hooks_clean() -> None:
    model, x = Counting(), torch.rand(2, 3)
    ended: list[str] = []
    model.layers[1].register_forward_hook(lambda *_: ended.append("inner"), always_call=True)
    with torch.no_grad(), Recorder(model, keep_module="layers.1", stop_after="layers.1") as recorder:
        recorder.log(x)
        with pytest.raises(tl.ArgumentError, match="recorder.log"):
            model(x)
    assert ended == ["inner"] and not torch.overrides._get_current_function_mode_stack() and gc.isenabled()


def test_a_stop_that_never_comes_is_reported(net: nn.Module) -> None:
    with pytest.warns(tl.FidelityWarning, match="stop_after: nothing was chosen by 'relu_9'"):
        recording = record(net, X, keep_op="relu", stop_after="relu_9")
    assert len(recording) == 3


def test_a_model_that_catches_everything_runs_on() -> None:
    class Stubborn(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            try:
                x = x.relu()
            except BaseException:
                x = x + 1
            return x * 2

    with Recorder(Stubborn(), keep_op=True, stop_after="relu") as recorder:
        result = recorder.log(torch.ones(2))
    assert result.tolist() == [4.0, 4.0] and labels(recorder.recording) == ["input_1_0", "relu_1_1"]


# ---- many passes ----------------------------------------------------------------------------------------------


def test_every_call_of_the_model_is_a_pass(net: nn.Module) -> None:
    with Recorder(net, keep_op="relu") as recorder:
        first = recorder.log(X, sample_id=1)
        second = net(X * 2)
        outside = torch.relu(second)
        net.head(torch.rand(4))
        net(x=X)
    recording = recorder.recording
    assert torch.equal(first, net(X)) and outside.shape == second.shape
    assert [record.pass_index for record in recording] == [0] * 3 + [1] * 3 + [2] * 3
    assert [record.sample_id for record in recording.by_pass[0]] == [1, 1, 1] and recording[3].sample_id is None
    assert torch.equal(recording.by_pass[2]["relu_1"].activation, recording.by_pass[0]["relu_1"].activation)
    assert len(recording.by_label["relu_1_5"]) == 3 and recording.num_passes == 3


def test_forward_called_directly_is_a_pass_too(net: nn.Module) -> None:
    with Recorder(net, keep_op="relu") as recorder:
        net.forward(X)
    assert labels(recorder.recording) == RELUS


def test_an_input_given_twice_is_the_first() -> None:
    class Sum(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x + y

    x = torch.rand(3)
    with Recorder(Sum(), keep_op="add") as recorder:
        recorder.log([x, x])
    assert recorder.recording[0].context.parent_labels == ("input_1_0",)
    assert record(Sum(), [x, x], keep_op="add")[0].context.parent_labels == ("input_1_0",)


def test_a_recorder_is_for_one_block_and_one_thread(net: nn.Module) -> None:
    recorder = Recorder(net, keep_op="relu")
    with pytest.raises(tl.ArgumentError, match="inside its with-block"):
        recorder.log(X)
    errors: list[Exception] = []

    def elsewhere() -> None:
        net(X)
        try:
            recorder.log(X)
        except tl.ArgumentError as error:
            errors.append(error)

    with recorder:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        with pytest.raises(tl.ArgumentError, match="only after the Recorder's with-block"):
            recorder.recording
        assert len(recorder) == 0
    assert "thread" in str(errors[0]) and len(recorder.recording) == 0
    with pytest.raises(tl.ArgumentError, match="entered only once"):
        recorder.__enter__()


def test_two_recorders_and_a_log_at_once(net: nn.Module) -> None:
    with Recorder(net, keep_op="relu") as outer, Recorder(net, keep_op="conv", stop_after="features") as inner:
        inner.log(X)
    assert labels(outer.recording) == ["relu_1_5"] and labels(inner.recording) == ["conv2d_1_1", "conv2d_2_6"]
    with Recorder(net, keep_op="relu") as recorder:
        log = tl.log_forward_pass(net, X)
    assert labels(recorder.recording) == RELUS and tl.lint(log) == []


def test_an_error_in_the_model_is_the_models_own(net: nn.Module) -> None:
    with Recorder(net, keep_op="conv") as recorder:
        with pytest.raises(RuntimeError, match="size"):
            recorder.log(torch.rand(3, 1, 8, 9))
        recorder.log(X)
    assert [record.pass_index for record in recorder.recording] == [0, 0, 1, 1]
    with pytest.raises(RuntimeError, match="size"):
        record(net, torch.rand(3, 1, 8, 9), keep_op="conv")
    assert not torch.overrides._get_current_function_mode_stack() and gc.isenabled()


def test_a_model_that_starts_threads() -> None:
    class Threads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            results: list[Tensor] = []
            thread = threading.Thread(target=lambda: results.append(self.fc(x).relu()))
            thread.start()
            thread.join()
            return results[0] + x

    model, x = Threads(), torch.rand(2, 3)
    with torch.no_grad(), Recorder(model, keep_op=True, keep_module="fc") as recorder:
        recorder.log(x)
        recorder.log(x)
    for step in recorder.recording.by_pass:
        assert labels(step) == ["input_1_0", "linear_1_1", "fc:1", "relu_1_2", "add_1_3"]
    assert step["relu_1"].context.parent_labels == ("linear_1_1",)
    assert labels(record(model, x, keep_op="relu")) == ["relu_1_2"]


def test_records_are_freed_with_the_recording(net: nn.Module) -> None:
    gc.collect()
    gc.disable()
    try:
        recording = record(net, X, keep_op=lambda ctx: True)
        with Recorder(net, keep_op=True) as recorder:
            recorder.log(X)
        kept = [weakref.ref(record.activation) for record in [*recording, *recorder.recording]]
        del recording, recorder
        assert [reference for reference in kept if reference() is not None] == []
    finally:
        gc.enable()


def test_many_rollouts_take_no_more_memory_than_one() -> None:
    """Kilobytes by which the process grows in 10,000 rollouts that keep one small tensor each."""
    run = """
    small, y = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), torch.rand(2, 4)
    with tl.fastlog.Recorder(small, keep_op="nothing_9") as recorder:
        for _ in range(10_000): recorder.log(y)
    """
    import textwrap

    script = textwrap.dedent(run).strip().replace("\n", "\n    ")
    warm = script.replace("10_000", "100")
    assert peak(script) - peak(warm) < 3000


# ---- recordings -----------------------------------------------------------------------------------------------


def test_a_recording_is_found_by_number_name_module_and_pass(net: nn.Module) -> None:
    recording = record(net, X, keep_op="relu", keep_module=["features.0", "rnn"])
    assert labels(recording) == ["features.0:1", "relu_1_5", "relu_2_7", "rnn:1", "rnn:1", "relu_3_13"]
    assert recording[0].label == "features.0:1" and recording[-1] is recording["relu_3"]
    assert recording["features.0"] is recording[0] and recording["features.2"] is recording[1]
    assert labels(recording[1:3]) == ["relu_1_5", "relu_2_7"] and len(recording) == 6
    assert [r.context.output_index for r in recording.by_module_address["rnn"]] == [0, 1]
    with pytest.raises(tl.PassNeededError, match=r"by_label\['rnn:1'\]"):
        recording["rnn"]
    with pytest.raises(tl.LayerNotFoundError, match="no record 'relu_7'; did you mean"):
        recording["relu_7"]
    with pytest.raises(tl.LayerNotFoundError, match="no record 6: there are 6"):
        recording[6]
    with pytest.raises(TypeError, match="indexed by"):
        recording[1.5]


def test_summary_and_table(net: nn.Module) -> None:
    recording = record(net, X, keep_op="relu", keep_module="head")
    assert recording.summary().splitlines() == [
        "Recording of Net: 5 records of 1 pass, 1.8 KB",
        "\trelu              3  1.4 KB",
        "\tmodule_exit       2  384 B",
        "\tfirst: relu_1_5, relu_2_7, head:1, relu_3_13, head:2",
    ]
    table = recording.to_pandas()
    assert list(table["label"]) == labels(recording) and list(table["nbytes"]) == [864, 384, 192, 192, 192]
    assert table["parent_labels"][1] == ("conv2d_2_6",)


def test_a_log_of_a_recording(net: nn.Module) -> None:
    recording = record(net, X, keep_op="relu", keep_module="features.0")
    log = recording.to_log()
    assert [op.layer_type for op in log] == ["conv2d", "relu", "relu", "relu"] and tl.lint(log) == []
    for op, kept in zip(log, recording, strict=True):
        assert torch.equal(op.activation, kept.activation)
    assert len(log.all_ops) > 15 and log["features.0"].parent_layers == ["input_1_0"]
    with Recorder(net, keep_op="relu") as recorder:
        recorder.log(X)
    with pytest.raises(tl.ArgumentError, match="only a recording that fastlog.record returned"):
        recorder.recording.to_log()


def test_a_seed_makes_a_run_repeatable() -> None:
    model, x = nn.Dropout(), torch.ones(20)
    first, second = (record(model, x, keep_op="dropout", random_seed=3)[0].activation for _ in range(2))
    assert torch.equal(first, second)


def test_an_input_that_hides_tensors_is_a_warning_once() -> None:
    class Walks(nn.Module):
        def forward(self, tensors: Any) -> Tensor:
            return torch.stack(list(tensors)).relu()

    with (
        pytest.warns(tl.FidelityWarning, match="can't be looked into"),
        tl.fastlog.Recorder(Walks(), keep_op="relu") as recorder,
    ):
        for _ in range(2):
            recorder.log([iter([torch.rand(3)])])
    assert len(recorder.recording.warnings) == 1


def test_records_by_a_short_label() -> None:
    recording = tl.fastlog.record(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.rand(2, 3), keep_module=["0", "1"])
    assert recording.by_label["1"] == recording.by_label["1:1"]
    with pytest.raises(tl.LayerNotFoundError, match="no record '2'"):
        recording.by_label["2"]
