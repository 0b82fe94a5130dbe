"""Replaying the recorded functions gives what the model returned; with other values, what the model would return."""

from __future__ import annotations

import dataclasses
import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from tests.models import Case
from tests.test_oracle import WITH_GRAD, assert_same, content, every_run, prepared, surroundings, tensors_in
from tests.torchvision_models import torchvision_models
from torch import Tensor, nn

import torchlens as tl
from torchlens.capture.containers import tensors_in as paths
from torchlens.replay.downstream import Downstream, Edits


@every_run
def test_replay_gives_what_the_model_returned(case: Case, mode: str) -> None:
    run = prepared(case, mode)
    handle = run.model.register_forward_hook(lambda module, args, result: setattr(run, "output", result))
    with surroundings(case, mode):
        log = tl.log_forward_pass(run.model, run.args, run.kwargs)
    handle.remove()
    expected = [content(tensor) for tensor in tensors_in(run.output)]
    rng = torch.get_rng_state()
    for again in (torch.no_grad(), torch.enable_grad()):
        with again, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                replayed = log.replay()
            except tl.ReplayError as reason:
                report = log.validate(perturb=False)
                custom = "custom autograd function" in str(reason)
                assert report.unverified or report.problems or custom or mode not in WITH_GRAD, reason
                continue
        assert isinstance(run.output, type(replayed))  # a tensor of a class of its own comes back as a plain one
        as_logged = mode in WITH_GRAD or isinstance(again, torch.no_grad)  # kernels may depend on it
        if case.repeatable and not case.warns and as_logged:
            assert [content(tensor) for tensor in tensors_in(replayed)] == expected
    assert torch.equal(torch.get_rng_state(), rng)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> dict[str, Any]:
        hidden = self.drop(torch.relu_(self.first(x)))
        total = hidden.sum()
        hidden[0] = 0
        return {"scores": self.second(hidden) * total, "hidden": (hidden, 3)}


def logged(**arguments: Any) -> tuple[Network, Tensor, tl.ModelLog]:
    torch.manual_seed(0)
    model, x = Network(), torch.rand(3, 4)
    return model, x, tl.log_forward_pass(model, x, random_seed=5, **arguments)


def rest(model: Network, dropped: Tensor) -> Tensor:
    """What the model computes from the output of its dropout."""
    total = dropped.sum()
    mask = torch.ones(3, 1)
    mask[0] = 0
    return model.second(dropped * mask) * total


def test_only_what_comes_of_a_change_is_computed() -> None:
    _, _, log = logged()
    run = Downstream(log.graph, {log["second"]._value: None})
    assert [log.graph.label(log.graph.place[value.index]) for value, _ in run.values()] == ["mul_1_7", "output_1_8"]


def test_other_values() -> None:
    model, x, log = logged()
    value = torch.rand(3, 4)
    result = log.replay(values={"drop": value})
    assert torch.equal(result["scores"], rest(model, value)) and result["hidden"][1] == 3
    assert torch.equal(log.replay(from_layer="drop")["scores"], log["mul"].activation)
    other = torch.rand(3, 4)
    torch.manual_seed(5)
    assert_same(log.replay(values={"input_1": other})["scores"].detach(), model(other)["scores"].detach())
    assert torch.equal(log["input_1"].activation, x)


class Swapped(Edits):
    """One result is another, and one call gets another tensor from one of its parents."""

    def __init__(self, log: tl.ModelLog) -> None:
        self.edited, self.parent = log["first"]._value, log["setitem"]._value
        self.child = log["second"]._value.call

    def argument(self, call: int, value: Any, tensor: Tensor) -> Tensor:
        return tensor * 0 if (call, value) == (self.child, self.parent) else tensor

    def result(self, value: Any, tensor: Tensor) -> Tensor:
        return tensor.abs() + 1 if value is self.edited else tensor


def test_edits_of_results_and_along_one_edge() -> None:
    model, x, log = logged()
    edits = Swapped(log)
    run = Downstream(log.graph, {}, calls={edits.edited.call, edits.child}, edits=edits)
    new = dict(run.values())
    assert torch.equal(new[edits.edited], model.first(x).abs() + 1)
    dropped = new[log["drop"]._value]
    assert torch.equal(run.output()["hidden"][0][1:], dropped[1:])  # what the other child of that parent got
    assert torch.equal(run.output()["scores"], model.second(torch.zeros(3, 4)) * dropped.sum())
    assert log["first"].activation is not new[edits.edited]


def test_an_edge_alone() -> None:
    model, _, log = logged()
    edits = Swapped(log)
    run = Downstream(log.graph, {}, calls={edits.child}, edits=edits)
    assert len(list(run.values())) == 3
    assert torch.equal(run.output()["scores"], model.second(torch.zeros(3, 4)) * log["sum"].activation)


def test_a_parameter_can_be_given() -> None:
    model, _, log = logged()
    (weight,) = [param for param in log.graph.trace.params if param.address == "second.weight"]
    run = Downstream(log.graph, {weight: torch.zeros(2, 4)})
    assert len(list(run.values())) == 3
    assert torch.equal(run.output()["scores"], model.second.bias.expand(3, 2) * log["sum"].activation)


def test_in_autograd() -> None:
    model, _, log = logged()
    value = torch.rand(3, 4, requires_grad=True)
    log.replay(values={"drop": value})["scores"].sum().backward()
    gradients = [value.grad, model.second.weight.grad]
    value.grad = model.second.weight.grad = None
    rest(model, value).sum().backward()
    assert torch.allclose(gradients[0], value.grad) and torch.allclose(gradients[1], model.second.weight.grad)
    with torch.no_grad():
        assert not log.replay(values={"drop": value})["scores"].requires_grad


def test_everything_in_autograd_trains_the_whole_model() -> None:
    model, x, log = logged()
    log.replay()["scores"].square().sum().backward()
    replayed = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    torch.manual_seed(5)
    model(x)["scores"].square().sum().backward()
    assert all(torch.equal(p.grad, r) for p, r in zip(model.parameters(), replayed, strict=True))


def test_a_log_made_without_grad_can_be_replayed_with_it() -> None:
    for mode in (torch.no_grad(), torch.inference_mode()):
        model = Network()
        with mode:
            log = tl.log_forward_pass(model, torch.rand(3, 4))
        log.replay()["scores"].square().sum().backward()
        assert all(p.grad is not None for p in model.parameters())


def test_from_a_connected_log() -> None:
    """What is not computed again keeps its own history."""
    model, _, log = logged(train_mode=True)
    log.replay(values={"sum": torch.tensor(2.0)})["scores"].sum().backward()
    assert model.first.weight.grad is not None


def test_what_is_given_away_is_not_the_logs() -> None:
    _, _, log = logged()
    before = log["output_2"].activation.clone()
    result = log.replay(from_layer="mul")
    result["hidden"][0].zero_()
    log.replay(values={"mul": torch.ones(3, 2)})["scores"].zero_()
    assert torch.equal(log["output_2"].activation, before)


def test_parameters_are_the_models() -> None:
    model, x, log = logged()
    with torch.no_grad():
        model.second.weight.mul_(2)
    torch.manual_seed(5)
    assert torch.equal(log.replay()["scores"], model(x)["scores"])


def test_without_saved_values() -> None:
    model, x, log = logged(layers_to_save=None)
    torch.manual_seed(5)
    assert torch.equal(log.replay(values={"input_1": x})["scores"], model(x)["scores"])
    with pytest.raises(tl.ReplayError, match=r"linear_1_1 \(.*test_downstream.py:\d+\) can't be recomputed: the input"):
        log.replay()


def test_misuse() -> None:
    _, _, log = logged()
    with pytest.raises(tl.ReplayError, match=r"linear_2_6 \(.*test_downstream.py:\d+\) raised .*expected device"):
        log.replay(values={"dropout": torch.rand(3, 4).to("meta")})
    with pytest.raises(tl.ArgumentError, match="must map layers to tensors; 'drop' is mapped to int"):
        log.replay(values={"drop": 3})
    with pytest.raises(tl.LayerNotFoundError):
        log.replay(from_layer="third")


def test_custom_gradients_are_refused_rather_than_lost() -> None:
    class Reversed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return -gradient

    class Custom(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return Reversed.apply(x.exp()).sin()

    log = tl.log_forward_pass(Custom(), torch.rand(3))
    x = torch.rand(3, requires_grad=True)
    with pytest.raises(tl.ReplayError, match="custom autograd function"):
        log.replay(values={"exp": x})
    with torch.no_grad():
        assert torch.equal(log.replay(values={"exp": x}), x.sin())


@pytest.mark.filterwarnings("ignore:The default weight initialization of GoogleNet")  # torchvision's, for its users
@pytest.mark.parametrize("name", ["resnet18", "googlenet", "vit_b_16"])
def test_known_models(name: str) -> None:
    model = getattr(torchvision_models(), name)()
    log = tl.log_forward_pass(model, torch.rand(2, 3, 224, 224))
    outputs = [log[label].activation for label in log.output_layers]
    with torch.no_grad():
        for result in (log.replay(), log.replay(from_layer=len(log) // 2)):
            assert [content(tensor) for tensor in tensors_in(result)] == [content(tensor) for tensor in outputs]


# ---- what the model returned ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    scores: Tensor
    name: str


class Plain:
    def __init__(self, scores: Tensor) -> None:
        self.scores, self.parent = scores, self


class Uncopyable(Plain):
    def __copy__(self) -> None:
        raise TypeError("one is enough")


class Pair(NamedTuple):
    first: Tensor
    second: list[Tensor]


class Wrapping(nn.Module):
    def __init__(self, wrap: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.wrap = wrap

    def forward(self, x: Tensor) -> Any:
        return self.wrap(x * 2)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda t: Frozen(t, "a"),
        Plain,
        lambda t: OrderedDict(a=t, b=[t, None]),
        lambda t: Pair(t, [t]),
        lambda t: torch.distributions.Normal(t, 1.0),
        lambda t: torch.max(t, 0),
        lambda t: [{"a": (t, 3)}],
        lambda t: None,
    ],
)
def test_any_structure_comes_back(wrap: Callable[[Tensor], Any]) -> None:
    x = torch.rand(4, 3)
    log = tl.log_forward_pass(Wrapping(wrap), torch.zeros(4, 3))
    replayed, expected = log.replay(values={"input_1": x}), wrap(x * 2)
    assert type(replayed) is type(expected)
    assert [(path, content(t)) for path, t in paths(replayed)] == [(path, content(t)) for path, t in paths(expected)]
    assert [content(t) for _, t in paths(log.replay())] != [content(t) for _, t in paths(expected)] or wrap(x) is None


def test_what_can_not_be_copied_is_told() -> None:
    log = tl.log_forward_pass(Wrapping(Uncopyable), torch.rand(3))
    assert len(log) == 3
    with pytest.raises(tl.ReplayError, match="Uncopyable can't be copied: TypeError: one is enough"):
        log.replay()


def test_a_forward_pass_that_raised_can_not_be_replayed() -> None:
    with pytest.raises(RuntimeError) as raised:
        tl.log_forward_pass(nn.Linear(3, 3), torch.rand(2, 8))
    with pytest.raises(tl.ReplayError, match="the forward pass raised"):
        raised.value.partial_log.replay()


def test_what_was_not_saved_is_named(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()
    log = tl.log_forward_pass(model, torch.rand(2, 3))
    tl.save(log, tmp_path / "without", include_arguments=False)
    with pytest.raises(
        tl.ReplayError, match=r"linear_1_1 .* can't be recomputed: the parameter 0.weight was not saved"
    ):
        tl.load(tmp_path / "without").replay()
    some = tl.log_forward_pass(model, torch.rand(2, 3), layers_to_save=["0", "output"])
    with pytest.raises(tl.ReplayError, match="the buffer 1.running_mean was not saved"):
        some.replay(from_layer="0")
    with pytest.raises(tl.ReplayError, match=r"the input \[0\] was not saved"):
        some.replay()


@pytest.mark.parametrize(
    "again",
    [
        lambda log: log.replay(from_layer="0"),
        lambda log: log.intervene({"0": tl.edits.zero()}),
        lambda log: tl.sweep(log, sites="0", edit=tl.edits.zero(), metric=torch.sum),
    ],
    ids=["replay", "intervene", "sweep"],
)
def test_a_loaded_log_names_the_buffer_that_it_lacks(again: Any, tmp_path: Path) -> None:
    model = nn.Sequential(nn.ReLU(), nn.BatchNorm1d(3, affine=False)).eval()
    tl.save(tl.log_forward_pass(model, torch.rand(2, 3), layers_to_save=["0", "output"]), tmp_path / "some")
    with pytest.raises(tl.ReplayError, match=r"batchnorm_1_4 .* the buffer 1.running_mean was not saved"):
        again(tl.load(tmp_path / "some"))


class WritesBehindAnExpandedTensor(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        row = x[:1].clone()
        expanded = row.expand(3, 4)
        row.add_(1)
        return expanded * 2


def test_a_write_behind_an_expanded_tensor() -> None:
    x = torch.rand(3, 4)
    log = tl.log_forward_pass(WritesBehindAnExpandedTensor(), x)
    report = log.validate()
    assert report, report
    assert log.replay(values={"input": x + 1}).equal(((x[:1] + 1 + 1) * 2).expand(3, 4))


def test_an_expanded_value_is_replaced_by_a_full_one() -> None:
    class Expands(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x[:1].expand(3, 4) * 2

    full = torch.rand(3, 4)
    log = tl.log_forward_pass(Expands(), torch.rand(3, 4))
    assert log.replay(values={"expand": full}).equal(full * 2)
