"""Every way in which an edit could silently not happen, or happen elsewhere than meant: told, refused, or right.

One test for each rule; each of them fails without the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import torchlens as tl
from torchlens.replay import stacked as stacking

E = tl.edits
X = torch.rand(4, 5) + 0.1


class Of(nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[[Any, Tensor], Any], **modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.fc, self.same = nn.Linear(5, 5), nn.Identity()
        self.register_buffer("kept", torch.ones(5))
        for name, module in modules.items():
            self.add_module(name, module)

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def two(model: Any, x: Tensor) -> Tensor:
    return torch.relu(model.fc(x)) * 2 + 1


def live(function: Any, site: Any, edit: Any = None, x: Tensor = X, **options: Any) -> Any:
    model = function if isinstance(function, nn.Module) else Of(function)
    return tl.log_forward_pass(model, x, interventions={site: E.zero() if edit is None else edit}, **options)


def afterwards(function: Any, site: Any, edit: Any = None, x: Tensor = X) -> Any:
    model = function if isinstance(function, nn.Module) else Of(function)
    return tl.log_forward_pass(model, x).intervene({site: E.zero() if edit is None else edit})


def recorded(function: Any, site: Any, edit: Any = None, x: Tensor = X, **options: Any) -> Any:
    model = function if isinstance(function, nn.Module) else Of(function)
    edits = {site: E.zero() if edit is None else edit}
    with tl.fastlog.Recorder(model, interventions=edits, **options) as recorder:
        return recorder.log(x)


EVERYWHERE = pytest.mark.parametrize("way", [live, afterwards, recorded])
AS_LOGS = pytest.mark.parametrize("way", [live, afterwards])

# ---- where ------------------------------------------------------------------------------------------------------


@EVERYWHERE
@pytest.mark.parametrize("site", ["tanh", "fd", nn.Conv2d, lambda op: op.func_name == "tanh"])
def test_a_selector_that_matches_nothing(way: Any, site: Any) -> None:
    with pytest.raises(tl.LayerNotFoundError):
        way(two, site)


def test_a_recorder_knows_before_the_model_runs_that_there_is_no_such_module() -> None:
    with pytest.raises(tl.LayerNotFoundError, match="no such module"):
        tl.fastlog.Recorder(Of(two), interventions={nn.Conv2d: E.zero()})


@AS_LOGS
@pytest.mark.parametrize("site", ["relu_1_7", "relu_1_2:3"])
def test_a_label_that_is_not_there(way: Any, site: str) -> None:
    with pytest.raises(tl.LayerNotFoundError, match="relu"):
        way(two, site)


@AS_LOGS
@pytest.mark.parametrize(
    ("site", "said"),
    [
        (("tanh", "mul_1_3"), "no layer or module 'tanh'"),
        (("relu_1_2", "tanh"), "no layer or module 'tanh'"),
        (("linear_1_1", "add_1_4"), "no edge"),
        (("relu_1_2", "fc"), "no edge"),
    ],
)
def test_an_edge_that_is_not_there(way: Any, site: Any, said: str) -> None:
    with pytest.raises(tl.LayerNotFoundError, match=said):
        way(two, site)


@EVERYWHERE
def test_a_module_that_is_never_called(way: Any) -> None:
    with pytest.raises(tl.LayerNotFoundError, match="never"):
        way(two, "same")


def test_a_parameter_that_is_never_used() -> None:
    with pytest.raises(tl.LayerNotFoundError, match="never reached"):
        live(lambda model, x: x * 2, "fc.weight")


def test_no_site_at_all() -> None:
    for given in ({}, [], "fc", {("fc",): 0}, {("fc", "relu", "mul"): 0}):
        with pytest.raises(tl.ArgumentError, match="interventions"):
            tl.log_forward_pass(Of(two), X, interventions=given)
    with pytest.raises(tl.ArgumentError, match="any_of"):
        tl.log_forward_pass(Of(two), X, interventions={frozenset({"fc", "relu"}): 0})


def test_a_condition_that_asks_for_what_is_not_known_yet() -> None:
    with pytest.raises(tl.ArgumentError, match="base=log"):
        live(two, lambda op: op.label == "relu_1_2")


@EVERYWHERE
def test_one_of_several_results_must_be_named(way: Any) -> None:
    class Both(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return x + 1, x * 2

    with pytest.raises(tl.ArgumentError, match="say which"):
        way(Of(lambda model, x: sum(model.both(x)), both=Both()), "both")


@AS_LOGS
def test_what_stands_for_a_change_through_an_alias(way: Any) -> None:
    def function(model: Any, x: Tensor) -> Tensor:
        y = x * 2
        y[0].add_(1)
        return y + 1

    label = next(op.label for op in tl.log_forward_pass(Of(function), X) if op.func_name == "alias_update")
    with pytest.raises(tl.ArgumentError, match="not a call that the model made"):
        way(function, label)


def test_another_path_than_the_base_before_the_edit() -> None:
    model = Of(lambda model, x: torch.relu(model.fc(x) if x.sum() > 0 else x + 1) * 2)
    base = tl.log_forward_pass(model, X)
    with pytest.raises(tl.DivergenceError, match="another path"):
        tl.log_forward_pass(model, -X, interventions={base["relu"].label: E.zero()}, base=base)
    model = Of(lambda model, x: torch.relu((a := x + 1) * (a if x.sum() > 0 else x)) * 2)
    base = tl.log_forward_pass(model, X)
    with pytest.raises(tl.DivergenceError, match="another path"):  # the same calls, on other tensors
        tl.log_forward_pass(model, -X, interventions={base["relu"].label: E.zero()}, base=base)


@pytest.mark.parametrize("step", [lambda y: y + 1, lambda y: y])
def test_another_path_after_the_edit_is_told(step: Any) -> None:
    def function(model: Any, x: Tensor) -> Tensor:
        y = torch.relu(model.fc(x))
        return (torch.sigmoid(y) * 2 if y.any() else step(y)) + y

    label = tl.log_forward_pass(Of(function), X)["relu"].label
    with pytest.warns(tl.FidelityWarning):
        log = live(function, label)
    assert any("another path" in each or "the run ended before" in each for each in log.warnings)


def test_a_run_that_ends_early_is_told() -> None:
    def function(model: Any, x: Tensor) -> Any:
        y = torch.relu(x)
        z = y * 2
        return (y, z) if y.any() else (y,)

    label = tl.log_forward_pass(Of(function), X)["relu"].label
    with pytest.warns(tl.FidelityWarning, match="the run ended before output"):
        live(function, label)


# ---- what -------------------------------------------------------------------------------------------------------


class Kind(Tensor):
    pass


@EVERYWHERE
@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda t: t[:1], "has shape"),
        (torch.ones(5), "has shape"),
        (lambda t: t.double(), "has dtype"),
        (lambda t: t > 0, "has dtype"),
        (lambda t: t.to("meta"), "has device"),
    ],
)
def test_another_shape_type_or_device(way: Any, edit: Any, said: str) -> None:
    with pytest.raises(tl.ArgumentError, match=f"{said}.*allow_change=True"):
        way(two, "fc", edit)


def test_another_class() -> None:
    def function(model: Any, x: Tensor) -> Tensor:
        return (x * 2).as_subclass(Kind) + 1

    with pytest.raises(tl.ArgumentError, match="has class Tensor; the value has Kind"):
        live(function, "add", lambda t: t.as_subclass(Tensor))


@EVERYWHERE
def test_another_type_for_a_part(way: Any) -> None:
    with pytest.raises(tl.ArgumentError, match="a part of a torch.float32 tensor"):
        way(two, "fc", E.replace(torch.ones(4, 1, dtype=torch.float64), units=[0]))


@EVERYWHERE
@pytest.mark.parametrize("edit", [E.scale(0.5), E.add(0.5)])
def test_integers_and_truth_values_keep_their_type(way: Any, edit: Any) -> None:
    for site in ("int", "gt"):
        with pytest.raises(tl.ArgumentError, match=r"torch\.(int32|bool)"):
            way(lambda model, x: ((x * 9).int(), x > 0.5), site, edit)


@EVERYWHERE
@pytest.mark.parametrize("at", [{"units": [9]}, {"at": (9,)}, {"at": (0, 0, 0)}])
def test_an_index_that_does_not_fit(way: Any, at: Any) -> None:
    with pytest.raises(tl.ArgumentError, match="does not fit a tensor of shape"):
        way(two, "fc", E.zero(**at))


@EVERYWHERE
def test_a_function_that_returns_no_tensor(way: Any) -> None:
    with pytest.raises(tl.ArgumentError, match="returned NoneType"):
        way(two, "fc", lambda tensor: None)


@EVERYWHERE
@pytest.mark.parametrize("x", [X, torch.empty(0, 5)], ids=["values", "empty"])
def test_an_edit_that_changes_no_element_is_told(way: Any, x: Tensor) -> None:
    with pytest.warns(tl.FidelityWarning, match=r"fc: scale\(1\) changed no element"):
        way(two, "fc", E.scale(1), x)


@EVERYWHERE
def test_an_edit_that_changes_something_is_not_complained_of(way: Any, recwarn: pytest.WarningsRecorder) -> None:
    way(two, "fc", E.scale(2))
    assert not [each for each in recwarn if issubclass(each.category, tl.FidelityWarning)]


@AS_LOGS
def test_an_edit_that_nothing_returned_depends_on_is_told(way: Any) -> None:
    with pytest.warns(tl.FidelityWarning, match="nothing that the model returned depends"):
        way(lambda model, x: (torch.tanh(x), x * 2)[1], "tanh")


def test_donors() -> None:
    other = tl.log_forward_pass(Of(lambda model, x: x * 2), X)
    some = tl.log_forward_pass(Of(two), X, layers_to_save=["relu"])
    for way in (live, afterwards):
        with pytest.raises(tl.LayerNotFoundError, match="nothing to take from it"):
            way(two, "relu", E.patch(other))
        with pytest.raises((tl.ArgumentError, tl.LayerNotFoundError), match="not saved|nothing to take"):
            way(two, "fc", E.patch(some))


@AS_LOGS
def test_swap_needs_a_call(way: Any) -> None:
    with pytest.raises((tl.ArgumentError, tl.ReplayError), match="call"):
        way(two, "input_1", E.swap(torch.tanh))


def test_swap_of_a_module_afterwards_and_in_a_recorder() -> None:
    with pytest.raises(tl.ReplayError, match="those of modules are not logged"):
        afterwards(two, "fc", E.swap(torch.tanh))
    with pytest.raises(tl.ArgumentError, match="does not keep the arguments"):
        recorded(two, "fc", E.swap(torch.tanh))


def test_a_gradient_that_is_not_there() -> None:
    with torch.no_grad(), pytest.raises(tl.ArgumentError, match="nothing requires a gradient"):
        live(two, "fc", E.gradient(E.zero()))
    with pytest.raises(tl.ArgumentError, match="needs a run of the model"):
        afterwards(two, "fc", E.gradient(E.zero()))


@pytest.mark.parametrize("way", [live, recorded])
def test_what_an_edit_raises_although_the_model_catches_it(way: Any) -> None:
    def function(model: Any, x: Tensor) -> Tensor:
        try:
            return model.fc(x)
        except Exception:
            return x

    with pytest.raises(tl.ArgumentError, match="has shape"):
        way(function, "fc", lambda t: t[:1])


@pytest.mark.parametrize("way", [live, recorded])
@pytest.mark.parametrize("edit", [lambda t: t + torch.rand(()), E.where(lambda t: torch.rand(()) > 2, E.zero())])
@pytest.mark.filterwarnings("ignore:.*changed no element")
def test_random_numbers_of_an_edit_do_not_shift_those_of_the_model(way: Any, edit: Any) -> None:
    drawn: list[Tensor] = []

    def function(model: Any, x: Tensor) -> Tensor:
        y = model.fc(x)
        drawn.append(torch.rand(3))
        return y

    model = Of(function)
    for run in (lambda: model(X), lambda: way(model, "fc", edit)):
        torch.manual_seed(0)
        run()
    assert drawn[0].equal(drawn[-1])


def test_random_numbers_of_swap_do_not_shift_those_of_the_model() -> None:
    model = Of(lambda model, x: (torch.relu(x), torch.rand(3))[1] + 0 * x.sum())
    torch.manual_seed(0)
    expected = model(X)
    torch.manual_seed(0)
    with pytest.warns(tl.FidelityWarning, match="nothing that the model returned"):
        log = live(model, "relu", E.swap(lambda x: x + torch.rand(())))
    assert log.output.equal(expected)


# ---- in place, aliased, viewed, returned unchanged ----------------------------------------------------------------


def discarded(model: Any, x: Tensor) -> Tensor:
    y = x * 2
    view = y[0]
    y.add_(1)  # nobody takes what this returns
    return y + view


@EVERYWHERE
def test_what_a_call_wrote_in_place_is_edited_for_every_alias(way: Any) -> None:
    found = way(discarded, "add_1_3" if way is not recorded else lambda op: op.func_name == "add_")
    output = found if isinstance(found, Tensor) else found.output
    assert not output.any()


@pytest.mark.parametrize("way", [live, recorded])
def test_what_a_call_wrote_in_place_keeps_its_shape(way: Any) -> None:
    with pytest.raises(tl.ArgumentError, match="written in place must keep its shape"):
        way(discarded, lambda op: op.func_name == "add_", lambda t: t[:1], allow_change=True)


@EVERYWHERE
@pytest.mark.parametrize("edit", [E.zero(units=[1]), E.zero(), lambda t: t.zero_()])
def test_an_edit_of_a_view_does_not_leak_into_its_base(way: Any, edit: Any) -> None:
    found = way(lambda model, x: ((y := x * 2)[0:2] * 3, y + 0), "getitem", edit)
    _, base = found if isinstance(found, tuple) else found.output
    assert base.equal(X * 2)


def returned_unchanged(model: Any, x: Tensor) -> Any:
    y = x * 2
    return model.same(y) + 1, y + 2


@pytest.mark.parametrize("way", [live, recorded])
def test_what_a_module_returns_unchanged_stays_as_it_was_for_others(way: Any) -> None:
    found = way(returned_unchanged, "same")
    changed, others = found if isinstance(found, tuple) else found.output
    assert changed.equal(torch.ones(4, 5)) and others.equal(X * 2 + 2)
    if way is live:
        assert found.validate() and not found["same"].activation.any()
        assert found[1].activation.equal(X * 2) and found[1].edit is None  # what the others have is what was made
    found = way(lambda model, x: (model.same(x) + 1, x + 2), "same")  # no operation made it
    changed, others = found if isinstance(found, tuple) else found.output
    assert changed.equal(torch.ones(4, 5)) and others.equal(X + 2)
    if way is live:
        assert found.validate() and found[0].activation.equal(X) and found[0].edit is None


def test_what_a_module_used_before_it_returned_it_stays_as_it_was_there() -> None:
    class Uses(nn.Module):
        def forward(self, x: Tensor) -> Any:
            y = x * 2
            self.seen = y + 1
            return y

    model = Of(lambda model, x: model.uses(x) + 3 + 0 * model.uses.seen, uses=Uses())
    log = live(model, "uses")
    assert model.uses.seen.equal(X * 2 + 1) and log.validate()
    assert log[-1].activation.equal(torch.full((4, 5), 3.0))
    assert log[1].activation.equal(X * 2)  # the operation, not what the module returned


@pytest.mark.parametrize("way", [live, recorded])
def test_what_returns_its_argument_is_edited_once(way: Any) -> None:
    found = way(lambda model, x: (model.same(model.same(x * 2)), x + 1), "same", E.add(1.0))
    first, _ = found if isinstance(found, tuple) else found.output
    assert first.allclose(X * 2 + 2)
    found = way(lambda model, x: ((y := x * 2).contiguous() + y, x), "contiguous", E.add(1.0))
    first, _ = found if isinstance(found, tuple) else found.output
    assert first.allclose(X * 4 + 1)


def test_afterwards_it_is_refused_where_the_log_does_not_tell_who_has_a_tensor() -> None:
    with pytest.raises(tl.ReplayError, match="also used elsewhere"):
        afterwards(returned_unchanged, "same")

    def under_two_names(model: Any, x: Tensor) -> Tensor:
        y = x * 2
        return y.contiguous() + y

    with pytest.raises(tl.ReplayError, match="under two names"):
        afterwards(under_two_names, "contiguous")

    def handed_out(model: Any, x: Tensor) -> Tensor:
        y = x * 2
        y.numpy()
        return y.add_(1) * 2

    with pytest.raises(tl.ReplayError, match="not logged"):
        afterwards(handed_out, "add_1_2")

    def written_later(model: Any, x: Tensor) -> Tensor:
        y = x * 2
        view = y[0]
        y.add_(1)
        return view + y

    with pytest.raises(tl.ReplayError, match="share memory with what the model writes to later"):
        afterwards(written_later, "getitem")


def test_what_a_call_overwrites_is_not_edited_on_its_way_in() -> None:
    def function(model: Any, x: Tensor) -> Tensor:
        y = x * 2
        y.add_(1)
        return y

    with pytest.raises(tl.ArgumentError, match="writes to this argument in place"):
        live(function, ("mul_1_1", "add_1_2"))


# ---- sparse, nested, several ---------------------------------------------------------------------------------------


def test_sparse_and_nested_values_are_right_or_refused() -> None:
    def sparse(model: Any, x: Tensor) -> Tensor:
        return (x * 2).to_sparse().coalesce().to_dense() + 1

    assert live(sparse, "tosparse", E.scale(3)).output.allclose(X * 6 + 1)

    def nested(model: Any, x: Tensor) -> Tensor:
        return torch.nested.to_padded_tensor(torch.nested.as_nested_tensor([x[0], x[1, :3]]) * 2, 0.0)

    assert live(nested, "mul", E.scale(3)).output[0].allclose(X[0] * 6)
    for function, site in ((sparse, "tosparse"), (nested, "mul")):
        with pytest.raises(tl.ArgumentError):
            live(function, site, lambda t: t.to_dense()[:1] if t.is_sparse else torch.ones(2))


def test_a_result_in_a_named_tuple_is_put_back_where_it_was() -> None:
    log = live(lambda model, x: (found := x.max(1)).values * 2 + found.indices, "max_1_1", E.zero())
    values, indices = X.max(1)
    assert log.output.equal(indices.float()) or log.output.equal(values * 2)


# ---- where an edit would not reach everything ----------------------------------------------------------------------


@pytest.mark.parametrize("way", [live, recorded])
def test_torchscript_with_gradients(way: Any) -> None:
    scripted = torch.jit.trace(torch.relu, X, check_trace=False)
    model = Of(lambda model, x: scripted(model.fc(x)))
    with pytest.raises(tl.ArgumentError, match=r"TorchScript.*no_grad"):
        way(model, "relu")


@pytest.mark.parametrize("way", [live, recorded])
def test_transforms_that_take_derivatives(way: Any) -> None:
    with torch.no_grad(), pytest.raises(tl.ArgumentError, match="takes derivatives"):
        way(lambda model, x: torch.func.grad(lambda t: torch.sin(t).sum())(x), "sin")


def test_a_module_inside_a_transform() -> None:
    with pytest.raises(tl.ArgumentError, match="can't be edited"):
        live(lambda model, x: torch.vmap(model.fc)(x), "fc")


@pytest.mark.parametrize("way", [live, recorded])
def test_checkpoints_with_gradients(way: Any) -> None:
    with pytest.raises(tl.ArgumentError, match=r"torch\.utils\.checkpoint"):
        way(lambda model, x: checkpoint(lambda t: torch.relu(model.fc(t)), x, use_reentrant=False), "relu")


# ---- afterwards: what the model would have done --------------------------------------------------------------------


def reading(how: Callable[[Tensor], Any]) -> Any:
    def function(model: Any, x: Tensor) -> Tensor:
        y = torch.relu(x)
        how(y)
        return y * 2

    return function


@pytest.mark.parametrize("how", [lambda y: bool(y.sum() > 0), lambda y: y.sum().item(), lambda y: y.tolist()])
def test_what_was_read_and_would_be_another(how: Any) -> None:
    base = tl.log_forward_pass(Of(reading(how)), X)
    with pytest.raises(tl.DivergenceError):
        base.intervene({"relu": E.zero()})
    with pytest.raises(tl.DivergenceError):
        tl.sweep(base, sites="relu", edit=E.replace(-3.0), over=0, metric=torch.sum)
    run = stacking.Stacked(base.graph, [value for value in base.graph.trace.values if value.role == "output"])
    with pytest.raises(tl.DivergenceError):
        run.outputs({base["relu"]._value: torch.zeros(3, 4, 5)})


def test_a_shape_that_would_be_another() -> None:
    base = tl.log_forward_pass(Of(lambda model, x: torch.relu(x - 0.5)[x > 0.2].sum() + (x * 2)[x * 2 > 0.9].sum()), X)
    with pytest.raises(tl.DivergenceError, match="shape"):
        base.intervene({"input_1": E.zero()})
    run = stacking.Stacked(base.graph, [value for value in base.graph.trace.values if value.role == "output"])
    with pytest.raises(tl.DivergenceError, match="shape"):
        run.outputs({base["input_1"]._value: torch.zeros(3, 4, 5)})


def test_what_an_edit_put_there_is_no_operation_to_be_edited() -> None:
    """The identity's caller gets a value of its own, which a predicate for all operations does not mean."""

    class Returns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.same = nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            return y + self.same(y)

    edits = {"same": E.add(1), (lambda op: True): E.add(10)}
    log = tl.log_forward_pass(Returns(), torch.ones(3), interventions=edits)
    y = (1 + 10) * 2 + 10  # the input and what the model returns are edited, too
    assert log.output.tolist() == [y + (y + 1) + 10 + 10] * 3


def test_an_edit_of_a_view_that_changes_nothing_leaves_it_a_view() -> None:
    class Views(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            y.view(-1).add_(1)
            return y * 1

    x = torch.rand(2, 3)
    with torch.no_grad(), pytest.warns(tl.FidelityWarning, match="changed no element"):
        log = tl.log_forward_pass(Views(), x, interventions={"view": E.scale(1)})
    assert torch.equal(log.output, x * 2 + 1)
