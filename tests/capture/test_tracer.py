"""What calls leave in a trace: values that are written to, swapped, seen through views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from tests.test_oracle import content
from torch import Tensor, nn

import torchlens as tl
from torchlens._torch import UninitializedTensorMixin
from torchlens.capture.naming import frames, is_library_code
from torchlens.capture.records import Site, Trace, Value


def told(trace: Trace) -> dict[str, list[Any]]:
    """Everything in a trace but what differs from run to run."""
    calls = [
        {**named(call._asdict()), "function": call.function.name, "site": users(call.site), "time": 0}
        for call in trace.calls
    ]
    values = [
        (named(value), value.role, value.call, value.position, value.address, value.grad_fn)
        + ((value.facts, content(value.kept)) if is_there(value.kept) else ())
        for value in [*trace.values, *trace.params]
    ]
    modules = [
        {name: getattr(call, name) for name in ("module", "number", "parent", "start", "stop")}
        | {"site": users(call.site), "entered": named(call.entered), "exited": named(call.exited)}
        for call in trace.module_calls
    ]
    return {"calls": calls, "values": values, "modules": modules, "warnings": trace.warnings}


def named(thing: Any) -> Any:
    """Arguments with names in place of values, and of what can't be compared."""
    if isinstance(thing, Value):
        return f"{thing.role} {thing.index}"
    if isinstance(thing, Mapping):
        return {name: named(member) for name, member in thing.items()}
    if isinstance(thing, (tuple, list)):
        return [named(member) for member in thing]
    return thing if isinstance(thing, (int, float, str, type(None))) else type(thing).__name__


def users(site: Site) -> list[Any]:
    """The frames that are neither torch's, nor the library's, nor of this file."""
    return [frame for frame in frames(site) if not is_library_code(frame[0]) and frame[0].co_filename != __file__]


def is_there(kept: Any) -> bool:
    return isinstance(kept, Tensor) and not isinstance(kept, UninitializedTensorMixin)


class Scaled(nn.Module):
    """A parameter that is written to between two uses, in a way that is given."""

    def __init__(self, write: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.write = write

    def forward(self, x: Tensor) -> Tensor:
        before = x * self.weight
        self.write(self.weight)
        return before + x * self.weight


@pytest.mark.parametrize(
    ("write", "after_writing"),
    [
        (lambda weight: weight.mul_(2), [2.0, 2.0, 2.0]),
        (lambda weight: weight[:1].mul_(2), [2.0, 1.0, 1.0]),
        (lambda weight: weight.data.mul_(2), [2.0, 2.0, 2.0]),
    ],
    ids=["itself", "a view", "its data"],
)
def test_a_parameter_that_was_written_to_has_a_new_value(write: Any, after_writing: list[float]) -> None:
    with torch.no_grad():
        log = tl.log_forward_pass(Scaled(write), torch.ones(2, 3))
    before, after = (log[label].activation for label in log["add_1"].parent_layers)
    assert torch.equal(before, torch.ones(2, 3))
    assert torch.equal(after, torch.tensor(after_writing).expand(2, 3))
    assert log.validate()


@pytest.mark.parametrize("options", [{}, {"layers_to_save": None}, {"save_gradients": True}], ids=str)
def test_a_view_of_a_parameter_made_and_written_to_without_grad(options: dict[str, Any]) -> None:
    """Torch refuses to say where such a view stands in the autograd graph."""

    def write(weight: Tensor) -> None:
        with torch.no_grad():
            weight[:1].mul_(2)

    model = Scaled(write)
    log = tl.log_forward_pass(model, torch.ones(2, 3), **options)
    assert torch.equal(model.weight, torch.tensor([2.0, 1.0, 1.0]))
    assert log["mul_2_3"].tensor_shape == (1,)


def test_a_parameter_written_to_by_something_unseen_is_told() -> None:
    def unseen(weight: Tensor) -> None:
        with torch._C.DisableTorchFunction():
            weight.mul_(2)

    with torch.no_grad(), pytest.warns(tl.FidelityWarning, match="the parameter weight was overwritten by code"):
        tl.log_forward_pass(Scaled(unseen), torch.ones(2, 3))


class Swaps(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        other, result = x.exp(), x.sin()
        torch.utils.swap_tensors(other, result)
        return result


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Swaps()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).cos()


def test_a_module_returns_what_was_swapped_into_its_result() -> None:
    """The tensor that the last call returned holds something else by then."""
    trace = tl.log_forward_pass(Around(), torch.rand(2))._trace
    (returned,) = trace.module_calls[1].exited
    assert trace.calls[returned.call].function.name == "exp"
    assert torch.equal(returned.saved, trace.values[0].saved.exp())


class FilledBefore(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = x + 1
        y[0] = 5.0
        return self.inner(y) * 2


def test_a_module_gets_what_was_written_just_before() -> None:
    for _ in range(2):  # a function that is met for the first time is recorded in several pieces
        trace = tl.log_forward_pass(FilledBefore(), torch.rand(2, 3))._trace
    written = next(call for call in trace.calls if call.function.name == "__setitem__").outputs
    assert trace.module_calls[1].entered == trace.module_calls[1].exited == written


def views_of(x: Tensor) -> list[Tensor]:
    """Views of `x`, of new memory, of a conjugate, of a negative; then what they show is overwritten."""
    y = x + 1
    turned = torch.complex(y, y).conj().transpose(0, 1)
    views = [x.view(-1), y.view(-1), y[1:].transpose(0, 1), turned, turned.imag.reshape(2, 2)]
    return [*views, y.mul_(10)]


class Views(nn.Module):
    def forward(self, x: Tensor) -> list[Tensor]:
        return views_of(x)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_views_hold_what_they_showed_when_they_were_made(mode: Any) -> None:
    x = torch.ones(2, 2)
    address = x.data_ptr()  # others may have it, and read and write there
    with mode():
        for _ in range(2):  # a function that is met for the first time is recorded in several pieces
            log = tl.log_forward_pass(Views(), x)
        y = torch.full((2, 2), 2.0)
        turned = torch.complex(y, y).conj().transpose(0, 1)
    assert x.data_ptr() == address
    x.fill_(7)  # the values are the log's own
    found = {entry.layer_type: entry.activation for entry in log.layer_list if entry.layer_type != "output"}
    assert torch.equal(log["view_1"].activation, torch.ones(4))
    assert torch.equal(log["view_2"].activation, torch.full((4,), 2.0))
    assert torch.equal(log["transpose_2"].activation, torch.full((2, 1), 2.0))
    assert torch.equal(log["transpose_1"].activation, turned) and log["transpose_1"].activation.is_conj()
    assert torch.equal(found["reshape"], turned.imag.reshape(2, 2)) and found["reshape"].is_neg()
    assert torch.equal(found["mul"], torch.full((2, 2), 20.0))


class RunsNewCode(nn.Module):
    """Each call is in a function of its own, which is gone before the next one is made."""

    def forward(self, x: Tensor) -> Tensor:
        for number in range(50):
            names: dict[str, Any] = {}
            exec(compile(f"def step{number}(x):\n    return x + {number}", "<made>", "exec"), names)
            x = names.pop(f"step{number}")(x)
        return x


def test_each_call_has_the_site_that_it_was_made_from() -> None:
    for _ in range(2):
        trace = tl.log_forward_pass(RunsNewCode(), torch.rand(2))._trace
    added = [call for call in trace.calls if call.function.name == "add"]
    assert [next(frames(call.site))[0].co_name for call in added] == [f"step{call.args[1]}" for call in added]
    assert len(added) == 50


class Again(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(4):
            x = x.sin()
        return x


def test_equal_shapes_and_types_are_kept_once() -> None:
    for _ in range(2):
        trace = tl.log_forward_pass(Again(), torch.rand(2), layers_to_save=None)._trace
    calls = [call for call in trace.calls if call.function.name == "sin"]
    assert len({id(value.facts) for call in calls for value in call.outputs}) == 1


def test_keyword_arguments_are_recorded_as_they_were() -> None:
    def keywords(x: Tensor) -> Tensor:
        given = {"dim": -1}
        y = torch.softmax(x, **given)
        given["dim"] = 0
        return torch.cat(tensors=[y, x], dim=given["dim"])

    class Keywords(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return keywords(x)

    for _ in range(2):
        log = tl.log_forward_pass(Keywords(), torch.rand(2, 2))
    softmax, cat = (call for call in log._trace.calls if call.function.name in ("softmax", "cat"))
    assert softmax.kwargs == {"dim": -1} and cat.kwargs["dim"] == 0
    assert log["cat_1"].parent_layers == [log["softmax_1"].layer_label, log["input_1"].layer_label]
