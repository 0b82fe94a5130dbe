"""Edits while the model runs: what each does, and that nothing about them is silent."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchlens as tl

E = tl.edits


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.relu(self.fc(x)) + 1
        if x.mean() > 0:
            x = x * 2
        return x


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return Recurrent()


X = torch.rand(4, 5)


def run(model: nn.Module, interventions: Any, x: Tensor = X, **options: Any) -> tl.ModelLog:
    return tl.log_forward_pass(model, x, interventions=interventions, **options)


def by_hand(model: Any, step: int, change: Any, x: Tensor = X, at: str = "relu") -> Tensor:
    """What the model returns with the result of one step changed."""
    for number in range(1, 4):
        x = model.fc(x)
        x = change(x) if (number, at) == (step, "fc") else x
        x = torch.relu(x)
        x = change(x) if (number, at) == (step, "relu") else x
        x = x + 1
    return x * 2 if x.mean() > 0 else x


# ---- what each edit does --------------------------------------------------------------------------------------


def zeroed(t: Tensor) -> Tensor:
    t = t.clone()
    t[:, [1, 3]] = 0
    return t


@pytest.mark.parametrize(
    ("edit", "change"),
    [
        (E.zero(), torch.zeros_like),
        (E.zero(units=[1, 3]), zeroed),
        (E.replace(0.5), lambda t: torch.full_like(t, 0.5)),
        (0.5, lambda t: torch.full_like(t, 0.5)),
        (torch.ones(4, 5), torch.ones_like),
        (E.add(torch.arange(5.0), scale=4), lambda t: t + torch.arange(5.0) * 4),
        (E.scale(0.5), lambda t: t * 0.5),
        (E.scale(3, at=(..., 2)), lambda t: torch.cat([t[:, :2], t[:, 2:3] * 3, t[:, 3:]], 1)),
        (E.clamp(max=0.2), lambda t: t.clamp(max=0.2)),
        (E.where(lambda t: t > 0.3, E.zero()), lambda t: t.where(t <= 0.3, torch.zeros(()))),
        (E.where(lambda t: t.sum() > 1e9, E.zero()), lambda t: t),
        ([E.add(1), E.scale(2)], lambda t: (t + 1) * 2),
        (lambda t: t.tanh(), torch.tanh),
        (lambda t, op: t * len(op.module_stack), lambda t: t * 1),
        (E.swap(F.gelu), None),
    ],
    ids=lambda each: repr(each).partition(" at 0x")[0],
)
@pytest.mark.filterwarnings("ignore")
def test_edits(model: nn.Module, edit: Any, change: Any) -> None:
    log = run(model, {"relu_1_2:2": edit})
    if change is None:
        before = tl.log_forward_pass(model, X)["fc:2"].activation
        change = lambda t: F.gelu(before)  # noqa: E731
    assert log[-1].activation.equal(by_hand(model, 2, change))
    assert log.validate()


def test_mean_patch_and_resample(model: nn.Module) -> None:
    other = tl.log_forward_pass(model, torch.rand(4, 5))
    seen = other["relu_1_2:2"].activation
    mean = seen.mean(0, keepdim=True).expand(4, 5)
    assert run(model, {"relu_1_2:2": E.mean(over=other)})[-1].activation.equal(by_hand(model, 2, lambda t: mean))
    patched = run(model, {"fc:2": E.patch(other, at=(..., 3))})
    assert patched["fc:2"].activation[:, 3].equal(other["fc:2"].activation[:, 3])
    resampled = run(model, {"fc:2": E.resample(other)})["fc:2"].activation
    assert all(any(row.equal(known) for known in other["fc:2"].activation) for row in resampled)
    both = run(model, {"fc:2": E.mean(over=[other, other])})["fc:2"].activation
    assert both[0].allclose(other["fc:2"].activation.mean(0))


def test_noise_leaves_the_random_numbers_of_the_model_alone() -> None:
    model = nn.Sequential(nn.Linear(5, 5), nn.Dropout(), nn.Linear(5, 5))
    plain = tl.log_forward_pass(model, X, random_seed=3)
    noisy = run(model, {"0": E.noise(0.1, seed=1), "2": lambda t: t + torch.rand(1)}, random_seed=3)
    mask = plain["dropout_1_2"].activation != 0
    assert mask.equal(noisy["dropout_1_2"].activation != 0)
    again = run(model, {"0": E.noise(0.1, seed=1)}, random_seed=3)
    assert again["0"].activation.equal(noisy["0"].activation) and not again["0"].activation.equal(plain["0"].activation)


def test_parameters_and_buffers_are_edited_for_one_run(model: nn.Module) -> None:
    weight = model.fc.weight.detach().clone()
    log = run(model, {"fc.weight": E.scale(0.5)})
    assert model.fc.weight.equal(weight)
    x = X
    for _ in range(3):
        x = torch.relu(F.linear(x, weight * 0.5, model.fc.bias)) + 1
    assert log[-1].activation.equal(x * 2) and log.validate()
    norm = nn.BatchNorm1d(5).eval()
    shifted = run(norm, {"running_mean": E.replace(1.0)})
    assert shifted[-1].activation.equal(F.batch_norm(X, torch.ones(5), norm.running_var, norm.weight, norm.bias))
    assert norm.running_mean.equal(torch.zeros(5))


def test_gradients_reach_an_edited_parameter(model: nn.Module) -> None:
    run(model, {"fc.weight": E.scale(0.5)}, train_mode=True)[-1].activation.sum().backward()
    got, model.fc.weight.grad = model.fc.weight.grad, None
    x = X
    for _ in range(3):
        x = torch.relu(F.linear(x, model.fc.weight * 0.5, model.fc.bias)) + 1
    (x * 2).sum().backward()
    assert got.allclose(model.fc.weight.grad)


def test_edges() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.relu(x)
            return torch.sigmoid(y) * 10 + torch.tanh(y)

    log = run(Model(), {("relu_1_1", "tanh"): E.zero()})
    assert log[-1].activation.equal(torch.sigmoid(torch.relu(X)) * 10 + torch.tanh(torch.zeros(4, 5)))
    assert log["relu_1_1"].activation.equal(torch.relu(X)) and log["relu_1_1"].edit is None
    assert log.interventions[0].layers == ["relu_1_1 -> tanh_1_4"] and log.validate()


def test_gradient_edits(model: nn.Module) -> None:
    x = X.clone().requires_grad_()
    log = run(model, {"fc:2": E.gradient(E.scale(3))}, x, train_mode=True)
    log[-1].activation.sum().backward()
    plain = X.clone().requires_grad_()
    model(plain).sum().backward()
    assert log[-1].activation.equal(model(X)) and x.grad.allclose(plain.grad * 3)
    with pytest.raises(tl.ArgumentError, match="requires a gradient"), torch.no_grad():
        run(model, {"fc:2": E.gradient(E.zero())})


def test_gradients_flow_through_edits(model: nn.Module) -> None:
    x, twin = X.clone().requires_grad_(), X.clone().requires_grad_()
    run(model, {"relu_1_2:2": E.scale(3), "fc:3": E.add(1.0)}, x, train_mode=True)[-1].activation.sum().backward()
    y = torch.relu(model.fc(twin)) + 1
    y = torch.relu(model.fc(y)) * 3 + 1
    ((torch.relu(model.fc(y) + 1) + 1) * 2).sum().backward()
    assert x.grad.allclose(twin.grad)


# ---- in place, views, returned unchanged ----------------------------------------------------------------------


def test_a_discarded_result_of_an_in_place_call_is_edited() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x * 2
            y.add_(1)
            return y.t()

    log = run(Model(), {"add_1_2": E.zero()})
    assert log[-1].activation.equal(torch.zeros(5, 4)) and log.validate()


def test_an_edit_of_a_view_does_not_leak() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x + 1
            return y[0] + y.sum(0)

    assert run(Model(), {"getitem": E.zero()})[-1].activation.equal((X + 1).sum(0))


def test_what_returns_its_input_is_edited_once() -> None:
    model = nn.Sequential(nn.ReLU(), nn.Dropout(), nn.Identity()).eval()
    for site in ("1", "2", "dropout_1_2"):
        log = run(model, {site: E.add(1)})
        assert log[-1].activation.equal(torch.relu(X) + 1), site
        assert log.interventions[0].num_applied == 1 and log.validate()


class ReturnsInput(nn.Module):
    """Uses what a function that returns its argument was given, beside what it returned."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout().eval()
        self.shift = nn.Parameter(torch.ones(5))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(x)
        z = self.drop(y)
        shift = self.drop(self.shift)
        return y * 10 + z + self.shift * shift


@pytest.mark.parametrize(
    ("site", "expected"),
    [
        ("drop:1", lambda y: y * 10 + (y + 1) + 1),
        ("dropout_1_2", lambda y: y * 10 + (y + 1) + 1),
        ("drop:2", lambda y: y * 10 + y + 2),
        ("dropout_2_3", lambda y: y * 10 + y + 2),
    ],
)
def test_what_was_given_to_a_function_that_returns_it_stays_as_it_was(site: str, expected: Any) -> None:
    model = ReturnsInput().eval()
    log = run(model, {site: E.add(1)})
    assert log[-1].activation.equal(expected(torch.relu(X))) and log.validate()
    assert log.layer_labels == tl.log_forward_pass(model, X).layer_labels  # nothing stands for what it was


# ---- nothing is silent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("site", "said"),
    [
        ("conv", "no layer or module 'conv'"),
        ("relu_7", "did you mean 'relu_1'"),
        ("fd", "did you mean 'fc'"),
        ("fc:9", "called 3 times"),
        (nn.Conv2d, "no such module"),
        (lambda op: False, "nothing is chosen"),
        (77, "77"),
        (("linear_1_1:1", "mul"), "no edge"),
        ("fc[1]", "1 tensor"),
    ],
)
def test_what_matches_nothing_is_an_error(model: nn.Module, site: Any, said: str) -> None:
    with pytest.raises((tl.LayerNotFoundError, IndexError), match=said):
        run(model, {site: E.zero()})


def test_a_site_that_is_never_reached_is_an_error() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.never = nn.Linear(5, 5)
            self.unused = nn.Parameter(torch.ones(5))

        def forward(self, x: Tensor) -> Tensor:
            return x * 2

    for site in ("never", "unused"):
        with pytest.raises(tl.LayerNotFoundError, match="never"):
            run(Model(), {site: E.zero()})


@pytest.mark.parametrize(
    "edit", [torch.ones(3), lambda t: t[:1], lambda t: t.double(), lambda t: t > 0, E.add(torch.ones(2, 4, 5))]
)
def test_another_shape_or_type_is_an_error_unless_allowed(model: nn.Module, edit: Any) -> None:
    with pytest.raises(tl.ArgumentError, match="allow_change"):
        run(model, {"fc:3": edit})


def test_only_what_differs_is_named(model: nn.Module) -> None:
    with pytest.raises(tl.ArgumentError, match=r"has shape \(1, 5\); the value has \(\d+, 5\); if"):
        run(model, {"fc:3": lambda t: t[:1]})
    with pytest.raises(tl.ArgumentError, match=r"has dtype torch.float64; the value has torch.float32; if"):
        run(model, {"fc:3": lambda t: t.double()})
    with pytest.raises(
        tl.ArgumentError, match=r"has shape \(1, 5\), dtype torch.bool; the value has shape \(\d+, 5\), dtype"
    ):
        run(model, {"fc:3": lambda t: t[:1] > 0})


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have notes since Python 3.11")
@pytest.mark.parametrize("offline", [False, True])
def test_what_an_edit_of_the_users_raises_names_the_intervention(model: nn.Module, offline: bool) -> None:
    def broken(tensor: Tensor, *others: Tensor) -> Tensor:
        raise KeyError("mine")

    for edit, text in ((broken, "linear_1_1:3: broken"), (E.swap(broken), "linear_1_1:3: swap(broken)")):
        with pytest.raises(KeyError, match="mine") as caught:
            if offline:
                tl.log_forward_pass(model, X).intervene({"linear_1_1:3": edit})
            else:
                run(model, {"linear_1_1:3": edit})
        assert f"torchlens: raised by an intervention, {text}" == caught.value.__notes__[0]  # type: ignore[attr-defined]


def test_an_allowed_change(model: nn.Module) -> None:
    log = run(model, {"fc:3": lambda t: t[:1]}, allow_change=True)
    assert log[-1].tensor_shape == (1, 5)


def test_integers_do_not_become_floats() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return (x * 10).int(), x > 0.5

    for site, edit in (("int", E.scale(0.5)), ("gt", E.scale(0))):
        with pytest.raises(tl.ArgumentError, match="torch"):
            run(Model(), {site: edit})
    assert not run(Model(), {"gt": E.zero(), "int": E.scale(2)})["gt"].activation.any()


def test_an_edit_that_changes_nothing_is_told(model: nn.Module) -> None:
    with pytest.warns(tl.FidelityWarning, match="changed no element"):
        log = run(model, {"fc:3": E.scale(1)})
    assert log.warnings == ["fc:3: scale(1) changed no element"] and log.validate()


def test_an_edit_without_consequence_is_told() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            torch.tanh(x)
            return x * 2

    with pytest.warns(tl.FidelityWarning, match="nothing that the model returned depends"):
        run(Model(), {"tanh": E.zero()})


@pytest.mark.filterwarnings("ignore:a tensor of shape:torchlens.errors.FidelityWarning")
def test_consequences_that_the_log_can_not_follow() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.from_numpy(np.tanh(torch.relu(x).numpy())) * 2

    told = "relu: whether what the model returned depends on what was edited is not known: it computes outside of torch"
    with pytest.warns(tl.FidelityWarning, match=told):
        log = run(Model(), {"relu": E.zero()})
    assert not log.output.any()


def test_an_edit_of_one_result_among_several_that_nobody_uses_is_told() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            used, _ = x.chunk(2, 0)
            return used * 2

    with pytest.warns(tl.FidelityWarning, match="nothing that the model returned depends"):
        run(Model(), {"chunk_2_2": E.add(1.0)})
    assert not run(Model(), {"chunk_1_1": E.add(1.0)}).warnings


def test_another_path_after_the_edit_is_told_and_before_it_is_an_error(model: nn.Module) -> None:
    with pytest.warns(tl.FidelityWarning, match="after the edits"):
        log = run(model, {"add_1_3:3": E.replace(-1.0)})
    assert [op.layer_type for op in log].count("mul") == 0
    with pytest.raises(tl.DivergenceError, match="another path"):
        run(model, {"mul_1_6": E.zero(), "add_1_3:3": E.replace(-1.0)})
    with pytest.raises(tl.DivergenceError, match="another path"):
        run(nn.Sequential(nn.Tanh(), nn.ReLU()), {"relu_1_2:3": E.zero()}, base=tl.log_forward_pass(model, X))


def test_a_module_with_several_outputs_must_be_named_exactly() -> None:
    model = nn.LSTM(5, 3)
    with pytest.raises(tl.ArgumentError, match=r"self\[0\]"):
        run(model, {"self": E.zero()})
    assert not run(model, {"self[0]": E.zero()}).graph.trace.output[0].saved.any()


def test_what_no_edit_is_is_refused(model: nn.Module) -> None:
    for given, said in (({}, "dict"), ({"fc": None}, "not an edit"), ({"fc": E.zero}, "class"), ({("a",): 1}, "pair")):
        with pytest.raises(tl.ArgumentError, match=said):
            run(model, given)
    with pytest.raises(tl.ArgumentError, match="returned NoneType"):
        run(model, {"fc": lambda t: None})
    with pytest.raises(tl.ArgumentError, match="none were given"):
        tl.log_forward_pass(model, X, allow_change=True)


def test_what_an_edit_raises_is_raised_although_the_model_catches_it() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            try:
                return torch.relu(x)
            except Exception:
                return x

    with pytest.raises(ZeroDivisionError):
        run(Model(), {"relu": lambda t: t / (1 // 0)})


# ---- what the log holds ---------------------------------------------------------------------------------------


def test_what_the_log_says(model: nn.Module) -> None:
    base = tl.log_forward_pass(model, X)
    log = run(model, {"relu_1_2:3": E.zero(units=[3, 4]), "fc:2": E.add(1.0)}, base=base)
    assert log.layer_labels == base.layer_labels
    layer = log["fc:2"]
    assert layer.activation.equal(layer.activation_before_edit + 1) and repr(layer.edit) == "add(1.0)"
    assert base["fc:2"].activation.equal(layer.activation_before_edit)
    assert log["relu_1_2:1"].edit is None and log["relu_1_2:1"].activation_before_edit is None
    assert [entry.site for entry in log.interventions] == ["relu_1_2:3", "fc:2"]
    assert log.interventions[1].largest_change == pytest.approx(1) and log.interventions[1].share_changed == 1
    assert "zero(units=[3, 4])" in str(log.interventions)


def test_a_validation_notices_a_wrong_edit(model: nn.Module) -> None:
    log = run(model, {"relu_1_2:3": E.scale(2)})
    assert log.validate()
    log["relu_1_2:3"]._value.saved.add_(1)
    assert not log.validate()


def test_saved_and_loaded(model: nn.Module, tmp_path: Path) -> None:
    other = tl.log_forward_pass(model, torch.rand(4, 5))
    sites = {
        "fc:1": [E.add(torch.ones(5), scale=2), E.clamp(min=-1)],
        "fc:2": E.patch(other, at=(slice(1, None), ..., 2)),
        "relu_1_2:3": lambda t: t + 1,
        "fc.weight": E.scale(0.5),
        ("linear_1_1:3", "relu_1_2:3"): E.where(lambda t: t > 0, 0.0),
    }
    log = run(model, sites)
    tl.save(log, tmp_path / "log")
    for lazy in (False, True):
        loaded = tl.load(tmp_path / "log", lazy=lazy)
        assert str(loaded.interventions) == str(log.interventions)
        assert loaded["fc:2"].activation_before_edit.equal(log["fc:2"].activation_before_edit)
        report = loaded.validate()
        assert report and "was not saved" in str(report.unverified)
    assert log.validate()


def test_with_chosen_layers_and_streaming(model: nn.Module, tmp_path: Path) -> None:
    whole = run(model, {"fc": E.scale(2), "relu_1_2:2": E.zero()})
    chosen = run(model, {"fc": E.scale(2), "relu_1_2:2": E.zero()}, layers_to_save=["linear", "relu_1_2:2"])
    streamed = run(model, {"fc": E.scale(2), "relu_1_2:2": E.zero()}, save_activations_to=tmp_path / "log")
    for label in ("linear_1_1:1", "linear_1_1:3", "relu_1_2:2"):
        assert chosen[label].activation.equal(whole[label].activation)
        assert streamed[label].activation.equal(whole[label].activation)
        assert tl.load(tmp_path / "log")[label].activation.equal(whole[label].activation)


def test_new_activations_for_an_edited_log_are_refused(model: nn.Module) -> None:
    with pytest.raises(tl.ArgumentError, match="interventions"):
        run(model, {"fc": E.zero()}).save_new_activations(model, X)


# ---- elsewhere ------------------------------------------------------------------------------------------------


def test_threads_of_the_model_are_edited() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            found: list[Tensor] = []
            thread = threading.Thread(target=lambda: found.append(torch.relu(x)))
            thread.start()
            thread.join()
            return found[0] * 2

    assert run(Model(), {"relu": E.replace(3.0)})[-1].activation.equal(torch.full((4, 5), 6.0))


def test_inside_a_submodule_alone(model: nn.Module) -> None:
    outer = nn.Sequential(nn.Tanh(), model)
    log = tl.log_forward_pass(outer, X, module="1", interventions={"relu_1_2:2": E.zero(), "fc.bias": E.zero()})
    assert log["relu_1_2:2"].activation.sum() == 0 and log.validate()


def test_the_model_is_left_alone(model: nn.Module) -> None:
    before = {name: param.clone() for name, param in model.named_parameters()}
    x = X.clone()
    run(model, {"fc": E.zero(), "input_1_0": E.add(1.0), "fc.weight": E.zero()}, x)
    assert x.equal(X) and all(param.equal(before[name]) for name, param in model.named_parameters())
    assert "forward" not in vars(model.fc) and model(X).equal(model(X))


def test_prints_and_tables_show_edits(model: nn.Module) -> None:
    log = run(model, {"fc:2": E.add(1.0)})
    assert "Interventions: fc:2: add(1.0)" in str(log) and "Edit: add(1.0)" in str(log["fc:2"])
    assert "Edit" not in str(log["fc:1"]) and "Interventions" not in str(tl.log_forward_pass(model, X))
    edits = log.to_pandas(["label", "edit"]).set_index("label")["edit"]
    assert edits["linear_1_1:2"] == "add(1.0)" and edits.isna().sum() == len(edits) - 1
    assert "activation_before_edit" not in log.to_pandas().columns
