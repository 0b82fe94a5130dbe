"""Capture and its one seam: with an observer that only notes, and with ones that answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
import torch
from tests.capture.test_tracer import told
from tests.models import Case
from tests.test_oracle import RUNS, prepared, surroundings
from torch import Tensor, nn

from torchlens.capture.functions import Function
from torchlens.capture.keeping import Keeper
from torchlens.capture.observer import Arguments, Observer
from torchlens.capture.records import ModuleCall, Trace, Value
from torchlens.capture.session import run_traced
from torchlens.options import Options


class Notes(Observer):
    """Writes down what it is told."""

    def begin(self, trace: Trace, keeper: Keeper) -> None:
        self.trace = trace
        self.told: list[str] = ["begin"]

    def value(self, value: Value, tensor: Tensor, module_call: int) -> Tensor | None:
        name = self.trace.calls[value.call].function.name if value.call >= 0 else value.role
        self.told.append(f"value {name} in {module_call}")
        return None

    def before_call(
        self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], stored: Arguments
    ) -> Arguments | None:
        self.told.append(f"before {function.name}")
        return None

    def before_write(self, tensor: Tensor) -> None:
        self.told.append("before write")

    def module_enter(self, call: ModuleCall, place: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.told.append(f"enter {self.trace.modules[call.module].address or 'self'}")

    def module_exit(self, call: ModuleCall, returned: list[tuple[Value, Tensor]]) -> list[Tensor] | None:
        self.told.append(f"exit {self.trace.modules[call.module].address or 'self'} with {len(returned)}")
        return None


class Changes(Observer):
    """Answers with what a function makes of each result of some torch functions, or of what some modules return."""

    def __init__(self, change: Callable[[Tensor], Tensor], functions: Iterable[str] = (), modules: str = "") -> None:
        self.change, self.functions, self.modules = change, functions, modules.split()

    def begin(self, trace: Trace, keeper: Keeper) -> None:
        self.trace = trace

    def value(self, value: Value, tensor: Tensor, module_call: int) -> Tensor | None:
        if value.call < 0 or self.trace.calls[value.call].function.name not in self.functions:
            return None
        return self.change(tensor)

    def module_exit(self, call: ModuleCall, returned: list[tuple[Value, Tensor]]) -> list[Tensor] | None:
        if self.trace.modules[call.module].address not in self.modules:
            return None
        return [self.change(tensor) for _, tensor in returned]


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        y.add_(1)
        return torch.relu(y)


def traced(model: nn.Module, x: Tensor, *observers: Observer, **options: Any) -> Trace:
    run = run_traced(model, [x], {}, Options.checked(**options), observers=observers)
    if run.error is not None:
        raise run.error
    return run.trace


def output(trace: Trace) -> Tensor:
    saved = trace.output.saved
    assert isinstance(saved, Tensor)
    return saved


def test_when_each_method_is_called() -> None:
    notes = Notes()
    traced(Small(), torch.rand(2, 3), notes)
    assert notes.told == [
        "begin",
        "value input in -1",
        "enter self",
        "enter fc",
        "before linear",
        "value linear in 1",
        "exit fc with 1",
        "before add_",
        "before write",
        "value add_ in 0",
        "before relu",
        "value relu in 0",
        "exit self with 1",
        "value output in -1",
    ]


class Picky(Notes):
    """Wants to be told of some functions and modules."""

    def __init__(self, functions: Iterable[str] = (), modules: Iterable[int] = ()) -> None:
        self.functions, self.modules_asked, self.only_modules = functions, set(modules), not functions

    def asks_of(self, function: Function) -> bool:
        return function.name in self.functions


def test_who_asks_for_some_functions_is_told_of_these_and_of_what_no_function_made(recorded_by: str) -> None:
    notes = Picky(["relu"])
    traced(Small(), torch.rand(2, 3), notes)
    told = ["begin", "value input in -1", "before write", "before relu", "value relu in 0", "value output in -1"]
    if recorded_by == "python":  # which tells of every call
        assert len(notes.told) > len(told)
        notes.told = [note for note in notes.told if "linear" not in note and "add_" not in note]
    assert notes.told == told


def test_who_asks_for_some_modules_is_told_of_nothing_else() -> None:
    notes = Picky(modules=[1])
    traced(Small(), torch.rand(2, 3), notes)
    assert notes.told == ["begin", "enter fc", "exit fc with 1"]


@pytest.mark.parametrize(("case", "mode"), [run for run in RUNS if run.values[0].repeatable])
def test_observers_that_answer_nothing_change_nothing(case: Case, mode: str) -> None:
    found = []
    for observers in ((), (Notes(), Changes(torch.neg, set()))):
        run = prepared(case, mode)
        with surroundings(case, mode):
            done = run_traced(run.model, run.args, run.kwargs, Options(), observers=observers)
        found.append((told(done.trace), done.error))
    assert found[0] == found[1]


def test_an_answer_takes_the_place_of_a_result() -> None:
    model, x = Small(), torch.rand(2, 3)
    trace = traced(model, x, Changes(torch.neg, {"relu"}))
    plain = torch.relu(model.fc(x) + 1)
    assert output(trace).equal(-plain)
    relu = trace.calls[-2].outputs[0]
    assert relu.saved is not None and relu.saved.equal(-plain)


def test_an_answer_to_an_in_place_call_reaches_every_alias() -> None:
    model, x = Small(), torch.rand(2, 3)
    trace = traced(model, x, Changes(lambda tensor: tensor * 0 + 5, {"add_"}))
    assert output(trace).equal(torch.full((2, 3), 5.0))
    assert x.equal(x.clone()) and not trace.warnings


def test_an_answer_to_a_module_goes_to_its_caller() -> None:
    model, x = Small(), torch.rand(2, 3)
    trace = traced(model, x, Changes(lambda tensor: tensor * 2, modules="fc"))
    assert output(trace).equal(torch.relu(model.fc(x) * 2 + 1))
    assert [call.function.name for call in trace.calls] == ["linear", "add_", "relu", "output"]


class Shared(nn.Module):
    """A module that returns what others use as well: its argument, and what it has kept."""

    def __init__(self) -> None:
        super().__init__()
        self.nothing = nn.Identity()
        self.inner = Keeping()

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(x)
        z = self.nothing(y)
        w = self.inner(x)
        return y + z * 10 + w * 100 + self.inner.kept[0] * 1000


class Keeping(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        self.kept = [x.exp()]
        return self.kept[0]


def test_what_others_have_as_it_was_stays_so() -> None:
    x = torch.rand(3)
    trace = traced(Shared(), x, Changes(lambda tensor: tensor * 0, modules="nothing inner"))
    assert output(trace).equal(torch.relu(x) + 0 + 0 + x.exp() * 1000)
    names = [call.function.name for call in trace.calls]
    assert names.count("edit") == 1 and names.count("unedited") == 1


def test_a_function_that_returns_its_argument_changes_only_its_result() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.relu(x)
            return y + y.contiguous() * 10

    x = torch.rand(3)
    trace = traced(Model(), x, Changes(torch.zeros_like, {"contiguous"}))
    assert output(trace).equal(torch.relu(x))
    assert trace.calls[-2].function.name == "add" and trace.calls[-2].args[0] is trace.calls[0].outputs[0]


def test_an_answer_to_a_view_does_not_leak_into_its_base() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x + 1
            return y[0] * 10 + y.sum()

    x = torch.rand(3, 3)
    trace = traced(Model(), x, Changes(torch.zeros_like, {"__getitem__"}))
    assert output(trace).equal(torch.zeros(3) + (x + 1).sum())


def test_answers_in_containers() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Any:
            found = x.max(dim=0)
            one, two = x.chunk(2)
            return {"values": found.values + 1, "chunks": [one, two]}

    x = torch.rand(2, 3)
    trace = traced(Model(), x, Changes(torch.zeros_like, {"max", "chunk"}))
    assert trace.output["values"].saved.equal(torch.ones(3))
    assert trace.output["chunks"][1].saved.equal(torch.zeros(1, 3))


def test_other_arguments_for_one_call() -> None:
    class Doubled(Observer):
        may_change = True

        def before_call(
            self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any], stored: Arguments
        ) -> Arguments | None:
            return ((args[0] * 2, *args[1:]), kwargs) if function.name == "relu" else None

    model, x = Small(), torch.rand(2, 3)
    assert output(traced(model, x, Doubled())).equal(torch.relu((model.fc(x) + 1) * 2))


def test_what_is_kept_by_choice_is_what_was_answered() -> None:
    model, x = Small(), torch.rand(2, 3)
    trace = traced(model, x, Changes(torch.neg, {"relu"}, modules="fc"), layers_to_save=["relu", "fc"])
    linear, relu = trace.calls[0].outputs[0], trace.calls[-2].outputs[0]
    assert linear.saved is not None and linear.saved.equal(-model.fc(x))
    assert relu.saved is not None and relu.saved.equal(-torch.relu(-model.fc(x) + 1))


def test_gradients_flow_through_answers() -> None:
    model, x = Small(), torch.rand(2, 3, requires_grad=True)
    trace = traced(model, x, Changes(lambda tensor: tensor * 3, {"relu"}, modules="fc"), train_mode=True)
    assert trace.connections is not None
    made = trace.connections.tensor(trace.output)
    assert made is not None
    (gradient,) = torch.autograd.grad(made.sum(), x)
    twin = torch.relu(model.fc(x) * 3 + 1) * 3
    assert made.equal(twin) and gradient.equal(torch.autograd.grad(twin.sum(), x)[0])


def test_what_an_observer_raises_the_forward_raises() -> None:
    def refuse(tensor: Tensor) -> Tensor:
        raise ZeroDivisionError("no")

    with pytest.raises(ZeroDivisionError):
        traced(Small(), torch.rand(2, 3), Changes(refuse, modules="fc"))


def test_several_observers_are_asked_in_their_order() -> None:
    model, x = Small(), torch.rand(2, 3)
    trace = traced(model, x, Changes(lambda t: t + 1, {"relu"}), Changes(lambda t: t * 2, {"relu"}))
    assert output(trace).equal((torch.relu(model.fc(x) + 1) + 1) * 2)
