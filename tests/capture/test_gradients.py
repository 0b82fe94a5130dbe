"""Gradients in a log are those of a plain run: for every hard case and every operation, bit for bit.

The reference is a plain run in which a small mode notes where each result stands in the autograd graph; autograd itself
then gives the gradients of those places. Nothing of the library takes part in it, and no hook.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.models import Case, probed
from tests.test_oracle import Run, content, differentiable_runs, logged_run, prepared, surroundings, tensors_in
from tests.torch_version import needs_torch, torch_is_at_least
from tests.torchvision_models import torchvision_models
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import torchlens as tl


class NotingEdges(TorchFunctionMode):
    """Notes the value of every result and where it stands in the autograd graph."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[tuple[Any, ...], GradientEdge]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tensors_in(result):
            if tensor.grad_fn is not None:
                self.seen.append((content(tensor), get_gradient_edge(tensor)))
        return result


def losses(output: Any) -> list[Tensor]:
    return [tensor.abs().sum() for tensor in tensors_in(output) if tensor.grad_fn is not None]


def run_backward(output: Any, **arguments: Any) -> None:
    ends = losses(output)
    if ends:
        torch.autograd.backward(ends, **arguments)


def followed_run(case: Case, mode: str) -> Run:
    run = prepared(case, mode)
    handle = run.model.register_forward_hook(lambda module, args, result: setattr(run, "output", result))
    try:
        with surroundings(case, mode):
            run.log = tl.log_forward_pass(run.model, run.args, run.kwargs, save_gradients=True)
    finally:
        handle.remove()
    return run


def gradient_content(gradient: Tensor | None) -> tuple[Any, ...] | None:
    return None if gradient is None else content(gradient)


# ---- every hard case --------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the gradient is None, since no backward pass:torchlens.errors.FidelityWarning")
@differentiable_runs
def test_every_operation_has_the_gradient_that_autograd_gives(case: Case, mode: str) -> None:
    plain = prepared(case, mode)
    with surroundings(case, mode), NotingEdges() as noted:
        plain.output = plain.model(*plain.args, **plain.kwargs)
    ends = losses(plain.output)
    expected = set()
    if ends and noted.seen:
        edges = [edge for _, edge in noted.seen]
        found = torch.autograd.grad(ends, edges, allow_unused=True)
        expected = {(value, content(g)) for (value, _), g in zip(noted.seen, found, strict=True) if g is not None}

    logged = followed_run(case, mode)
    run_backward(logged.output)
    held = {(content(op._value.saved), content(op.gradient)) for op in logged.log if op.gradient is not None}
    if not case.warns and case.repeatable:
        assert expected <= held
    leaves = [tensor for tensor in tensors_in(logged.inputs) if tensor.is_leaf and tensor.requires_grad]
    inputs = [logged.log[label] for label in logged.log.input_layers]
    given = [op for op, t in zip(inputs, tensors_in(logged.inputs), strict=True) if t.is_leaf and t.requires_grad]
    assert [gradient_content(op.gradient) for op in given] == [gradient_content(leaf.grad) for leaf in leaves]


@differentiable_runs
def test_tapped_tensors_have_the_gradient_that_their_hook_gets(case: Case, mode: str) -> None:
    hooked: list[tuple[Tensor, list[Tensor]]] = []

    def hook(tensor: Tensor) -> None:
        hooked.append((tensor, []))
        if tensor.requires_grad and tensor._backward_hooks is None:  # a second hook would still be the old value's
            tensor.register_hook(lambda gradient, kept=hooked[-1][1]: kept.append(gradient.clone()))

    plain = prepared(case, mode)
    with surroundings(case, mode), probed(hook):
        plain.output = plain.model(*plain.args, **plain.kwargs)
    run_backward(plain.output)
    logged = followed_run(case, mode)
    run_backward(logged.output)
    labels = case.tap_labels(mode)
    if len(set(labels)) == len(labels):
        for label, (tensor, expected) in zip(labels, hooked, strict=True):
            if expected:
                gradient = tensor.grad if tensor.retains_grad else expected[-1]
                assert gradient_content(logged.log[label].gradient) == gradient_content(gradient), label


@differentiable_runs
def test_saving_gradients_changes_nothing(case: Case, mode: str) -> None:
    plain, logged = logged_run(case, mode), followed_run(case, mode)
    run_backward(plain.output)
    run_backward(logged.output)
    for one, other in ((plain.model.named_parameters(), logged.model.named_parameters()),):
        for (name, first), (_, second) in zip(one, other, strict=True):
            assert gradient_content(first.grad) == gradient_content(second.grad), name
            assert first.requires_grad == second.requires_grad
    assert plain.log.layer_labels == logged.log.layer_labels
    assert logged.log.validate(perturb=False).problems == plain.log.validate(perturb=False).problems


# ---- known models -----------------------------------------------------------------------------------------------

VISION = ["alexnet", "resnet18", "googlenet", "densenet121", "mobilenet_v3_small", "shufflenet_v2_x0_5", "vit_b_16"]


def vision_model(name: str) -> tuple[nn.Module, Any]:
    arguments: dict[str, Any] = {"googlenet": {"aux_logits": False, "init_weights": False}}.get(name, {})
    size = 224 if name in ("alexnet", "vit_b_16") else 64
    return getattr(torchvision_models(), name)(**arguments), torch.rand(2, 3, size, size)


def language_model(name: str) -> tuple[nn.Module, Any]:
    torchvision_models()  # transformers imports it
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    if name == "GPT2":
        config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=99)
    else:
        config = getattr(transformers, f"{name}Config")(vocab_size=99, **sizes)
    return getattr(transformers, f"{name}Model")(config), torch.randint(0, 99, (2, 7))


MODELS = [*[(name, vision_model) for name in VISION], *[(name, language_model) for name in ("Bert", "GPT2", "Llama")]]


@pytest.mark.parametrize(("name", "build"), MODELS, ids=[name for name, _ in MODELS])
def test_known_models_have_the_gradients_that_hooks_get(
    name: str, build: Callable[[str], tuple[nn.Module, Any]]
) -> None:
    torch.manual_seed(0)
    model, x = build(name)
    seen: dict[str, list[Tensor]] = {}

    def hook(address: str) -> Callable[..., None]:
        def keep(module: nn.Module, args: Any, result: Any) -> None:
            first = next(iter(tensors_in(result)), None)
            if first is not None and first.requires_grad and first._backward_hooks is None:
                kept = seen.setdefault(address, [])
                first.register_hook(lambda gradient: kept.append(gradient.clone()))

        return keep

    handles = [m.register_forward_hook(hook(address)) for address, m in model.named_modules() if address]
    torch.manual_seed(1)
    output = model(x)
    for handle in handles:
        handle.remove()
    run_backward(output)
    expected = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad()

    log = tl.log_forward_pass(model, x, random_seed=1, save_gradients=True)
    run_backward([log[label].activation for label in log.output_layers])
    compared = [address for address, grads in seen.items() if len(grads) == 1 and f"{address}:1" in log]
    assert len(compared) > 10
    for address in compared:
        assert gradient_content(log[f"{address}:1"].gradient) == content(seen[address][0]), address
    for address, parameter in model.named_parameters():
        assert gradient_content(parameter.grad) == gradient_content(expected[address]), address


# ---- passes -----------------------------------------------------------------------------------------------------


class Branching(nn.Module):
    """Two outputs, an operation overwritten in place, a tuple of views, a single number."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.fc(x)
        left, right = y.chunk(2, dim=1)
        total = left.sum()
        y = y * 3
        y.add_(total)
        return y, right.exp()


def branching(**arguments: Any) -> tuple[tl.ModelLog, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.rand(2, 6, requires_grad=True)
    log = tl.log_forward_pass(Branching(), x, save_gradients=True, **arguments)
    first, second = (log[label].activation for label in log.output_layers)
    return log, x, first, second


def test_several_backward_passes_are_told_apart() -> None:
    log, x, first, second = branching()
    assert log["fc"].gradients == [] and log.backward_passes == []
    first.sum().backward(retain_graph=True)
    one = log["fc"].gradient
    second.sum().backward(retain_graph=True)
    two = log["fc"].gradient
    (first.sum() + second.sum()).backward()
    assert len(log.backward_passes) == 3
    assert torch.equal(torch.stack(log["fc"].gradients[:2]), torch.stack([one, two]))
    assert torch.allclose(log["fc"].gradient, one + two)
    assert log["fc"].grad is log["fc"].gradients[2]
    assert [gradient is None for gradient in log["exp"].gradients] == [True, False, False]
    assert [gradient is None for gradient in log["mul"].gradients] == [False, True, False]
    assert torch.allclose(sum(log["input_1"].gradients), x.grad)


@pytest.mark.parametrize("options", [{}, {"train_mode": True}])
@pytest.mark.parametrize("name", ["gradient", "grad", "transformed_gradient"])
def test_a_log_without_gradients_says_so_when_asked_for_one(options: dict[str, Any], name: str) -> None:
    log = tl.log_forward_pass(Branching(), torch.rand(2, 6), **options)
    with pytest.warns(tl.FidelityWarning, match="no gradients: make it with save_gradients=True") as told:
        assert getattr(log["fc"], name) is None
    assert told[0].filename == __file__ and log["fc"].gradients == []


@pytest.mark.parametrize("name", ["gradient", "transformed_gradient"])
def test_a_gradient_that_is_not_there_says_why(name: str) -> None:
    log = tl.log_forward_pass(Branching(), torch.rand(2, 6), save_gradients=["fc"])
    with pytest.warns(tl.FidelityWarning, match="the gradient is None, since no backward pass has come"):
        assert getattr(log["fc"], name) is None
    assert "\tGradient: none, since no backward pass has come" in str(log["fc"])
    log.output[1].sum().backward()
    assert getattr(log["mul"], name) is None  # it was not asked for
    assert "\tGradient: none, since save_gradients did not choose this" in str(log["mul"])


def test_print_shows_the_gradient() -> None:
    log, _, first, second = branching()
    first.sum().backward(retain_graph=True)
    assert "\tGradient: none, since no backward pass reached it\n\tParams" in str(log["exp"])
    assert log["exp"].gradient is None  # without a word: a backward pass has run
    lines = str(log["fc"]).splitlines()
    at = lines.index("\tGradient: of the backward pass")
    assert lines[at + 1].startswith("\t\ttensor([[") and "Gradient: of the backward pass" in str(log["fc"])
    second.sum().backward()
    assert "\tGradient: of the last of 2 backward passes\n\t\ttensor(" in str(log["fc"])
    assert "Gradient" not in str(tl.log_forward_pass(Branching(), torch.rand(2, 6))["fc"])
    assert "<th>Gradient</th><td>of the last of 2 backward passes</td>" in log["fc"]._repr_html_()
    assert log["fc"]._repr_html_().count("<summary>Gradient</summary>") == 1


def test_single_numbers_views_and_what_is_overwritten() -> None:
    log, _, first, second = branching()
    (first.sum() + second.sum()).backward()
    assert log["sum"].gradient.shape == ()
    assert torch.equal(log["sum"].gradient, torch.tensor(12.0))
    assert torch.equal(log["mul"].gradient, torch.ones(2, 6))
    assert torch.equal(log["add"].gradient, torch.ones(2, 6))
    left, right = (op for op in log if op.layer_type == "chunk")
    assert torch.equal(left.gradient, log["sum"].gradient.expand(2, 3))
    assert torch.equal(right.gradient, log["exp"]._value.saved)
    assert torch.equal(log["output_1"].gradient, log["add"].gradient)


def test_a_backward_pass_can_begin_at_any_layer() -> None:
    log, *_ = branching()
    log["mul"].activation.square().sum().backward()
    assert log["add"].gradient is None
    assert torch.equal(log["mul"].gradient, 2 * log["mul"]._value.saved)
    assert log["input_1"].gradient is not None


def test_a_backward_pass_can_end_at_any_layer() -> None:
    log, x, first, second = branching()
    activation = log["fc"].activation
    (gradient,) = torch.autograd.grad(first.sum() + second.sum(), activation, retain_graph=True)
    assert torch.equal(log["fc"].gradient, gradient)
    assert log["input_1"].gradient is None and log["mul"].gradient is not None
    (gradient,) = torch.autograd.grad(first.sum() + second.sum(), x)
    assert torch.equal(log["input_1"].gradient, gradient) and x.grad is None
    assert len(log.backward_passes) == 2


def test_gradients_of_gradients() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    plain_x = torch.rand(2, 3, requires_grad=True)
    hidden = model[1](model[0](plain_x))
    (gradient,) = torch.autograd.grad(model[2](hidden).sum(), hidden, create_graph=True)
    (gradient.square().sum() + hidden.square().sum()).backward()
    expected = {name: p.grad.clone() if p.grad is not None else None for name, p in model.named_parameters()}
    model.zero_grad()

    log = tl.log_forward_pass(model, plain_x.detach().requires_grad_(), save_gradients=True)
    log.log_backward(log[-1].activation.sum(), create_graph=True, inputs=[log["1"].activation])
    assert log["1"].gradient.requires_grad
    for parameter in model.parameters():
        parameter.grad = None
    (log["1"].gradient.square().sum() + log["1"].activation.square().sum()).backward()
    for name, parameter in model.named_parameters():
        assert gradient_content(parameter.grad) == gradient_content(expected[name]), name
    assert len(log.backward_passes) == 2


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_blocks(reentrant: bool) -> None:
    class Checkpointing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.out = nn.Linear(3, 3), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(checkpoint(lambda t: torch.tanh(self.fc(t)), x.exp(), use_reentrant=reentrant))

    model = Checkpointing()
    x = torch.rand(2, 3, requires_grad=True)
    hidden = checkpoint(lambda t: torch.tanh(model.fc(t)), x.exp(), use_reentrant=reentrant)
    hidden.retain_grad()
    model.out(hidden).square().sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()

    log = tl.log_forward_pass(model, x, save_gradients=True)
    log.log_backward(log[-1].activation.square().sum())
    assert torch.equal(log["tanh"].gradient, hidden.grad)
    assert all(torch.equal(p.grad, e) for p, e in zip(model.parameters(), expected, strict=True))
    assert (log["linear_1"].gradient is None) is reentrant  # it ran without grad, and again in the backward pass
    # The block's values are put away, and not fetched back; the older kind of checkpoint keeps the block's input.
    if torch_is_at_least("2.9"):
        assert log["tanh"].saved_for_backward_memory == (2 * 3 * 4 if reentrant else 0)


def test_gradients_changed_by_hooks_are_kept_as_changed() -> None:
    log, _, first, second = branching()
    log["fc"].activation.register_hook(lambda gradient: gradient * 10)
    (first.sum() + second.sum()).backward(retain_graph=True)
    changed = log["fc"].gradient
    plain, _, first, second = branching()
    (first.sum() + second.sum()).backward()
    assert torch.equal(changed, plain["fc"].gradient * 10)
    assert torch.equal(log["input_1"].gradient, changed @ log.params["fc.weight"].value)


# ---- what is asked for ------------------------------------------------------------------------------------------


def test_only_the_gradients_that_are_asked_for() -> None:
    torch.manual_seed(0)
    x = torch.rand(2, 6, requires_grad=True)
    log = tl.log_forward_pass(Branching(), x, save_gradients=["fc", "exp"])
    log.log_backward(log["output_1"].activation.sum() + log["output_2"].activation.sum())
    assert [op.label for op in log if op.gradient is not None] == ["linear_1_1", "exp_1_7"]
    log = tl.log_forward_pass(Branching(), x, save_gradients=lambda op: op.tensor_shape == ())
    log.log_backward(log["output_1"].activation.sum())
    assert [op.label for op in log if op.gradient is not None] == ["sum_1_4"]
    for nothing in (["exq"], lambda op: False):
        with pytest.raises(tl.LayerNotFoundError, match="exq|nothing is chosen by <lambda>"):
            tl.log_forward_pass(Branching(), x, save_gradients=nothing)


def test_gradients_of_layers_that_are_not_saved() -> None:
    log = tl.log_forward_pass(Branching(), torch.rand(2, 6), layers_to_save=["exp"], save_gradients=["fc"])
    log["exp"].activation.sum().backward()
    assert log["fc"].activation is None and log["fc"].gradient is not None and log["exp"].gradient is None


def test_metadata_and_gradients_without_values() -> None:
    log, _, first, second = branching(layers_to_save=None)
    (first.sum() + second.sum()).backward()
    assert log["fc"].activation is None and log["fc"].gradient is not None


def test_a_function_of_each_gradient() -> None:
    log, _, first, second = branching(gradient_postfunc=lambda gradient: gradient.norm().item())
    (first.sum() + second.sum()).backward()
    assert log["fc"].transformed_gradient == log["fc"].gradient.norm().item()
    assert log["fc"].transformed_gradients == [log["fc"].transformed_gradient]
    with pytest.raises(tl.ArgumentError, match="save_gradients"):
        tl.log_forward_pass(Branching(), torch.rand(2, 6), gradient_postfunc=torch.norm)


def test_layers_of_several_passes() -> None:
    fc = nn.Linear(3, 3)

    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = fc

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(self.fc(x))

    log = tl.log_forward_pass(Loop(), torch.rand(2, 3), save_gradients=True)
    log.log_backward(log[-1].activation.sum())
    assert torch.equal(log["fc:1"].gradient, log["fc:2"].gradient @ fc.weight)
    with pytest.raises(tl.PassNeededError):
        log["fc"].gradient


def test_log_backward_needs_a_loss_of_this_log() -> None:
    log, *_ = branching()
    for nothing in (torch.ones(1), 3.0):
        with pytest.raises(tl.ArgumentError, match="not connected to autograd"):
            log.log_backward(nothing)
        with pytest.raises(tl.ArgumentError, match="not connected to autograd"):
            tl.log_backward(nothing)
    with pytest.raises(tl.ArgumentError, match="not computed from this forward pass"):
        log.log_backward(torch.ones(1, requires_grad=True).sum())
    with pytest.raises(tl.ArgumentError, match="save_gradients=True"):
        tl.log_forward_pass(Branching(), torch.rand(2, 6)).backward_passes


@pytest.mark.filterwarnings("ignore:the gradient is None, since no backward pass:torchlens.errors.FidelityWarning")
def test_log_backward_finds_the_logs_that_take_part() -> None:
    log, _, first, second = branching()
    other, *_ = branching()
    (taken,) = tl.log_backward(first.sum() + second.sum())
    assert repr(taken) == "BackwardPass(1: 7 nodes of 6 layers)"
    assert log["fc"].gradient is not None and other["fc"].gradient is None
    with pytest.raises(tl.ArgumentError, match="not computed from a log"):
        tl.log_backward(torch.ones(1, requires_grad=True).sum())


def test_custom_autograd_functions() -> None:
    class Added(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.mark_dirty(x)
            return x.add_(1)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * 10

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.exp() * 2

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            return gradient * 100

    class Custom(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return Doubled.apply(Added.apply(x * 3)) * 2

    log = tl.log_forward_pass(Custom(), torch.ones(2, requires_grad=True), save_gradients=True)
    log.log_backward(log[-1].activation.sum())
    found = [None if op.gradient is None else op.gradient[0].item() for op in log]
    assert found == [6000, 2000, 200, None, 2, 1, 1]  # the one inside a function has none
    assert [node.name for node in log[4].grad_fns] == ["DoubledBackward"]


# ---- whose gradient is it? --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the gradient is None, since no backward pass:torchlens.errors.FidelityWarning")
@pytest.mark.parametrize("leaf", [True, False])
def test_two_logs_of_one_input(leaf: bool) -> None:
    model = nn.Sequential(nn.Dropout(0.0), nn.Tanh()).eval()  # eval dropout returns its input
    x = torch.rand(2, 3, requires_grad=True)
    x = x if leaf else x * 1
    one = tl.log_forward_pass(model, x, save_gradients=True)
    two = tl.log_forward_pass(model, x, save_gradients=True)
    one[-1].activation.sum().backward(retain_graph=True)
    assert one["input_1"].gradient is not None and two["input_1"].gradient is None
    (3 * two[-1].activation).sum().backward()
    assert len(one["input_1"].gradients) == len(two["input_1"].gradients) == 1
    assert torch.allclose(two["input_1"].gradient, 3 * one["input_1"].gradient)


def test_an_input_that_is_returned() -> None:
    class Returning(nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return x, x.exp()

    x = torch.rand(3, requires_grad=True)
    log = tl.log_forward_pass(Returning(), x, save_gradients=True)
    (2 * log["output_1"].activation).sum().backward()
    assert torch.equal(log["input_1"].gradient, torch.full((3,), 2.0))
    assert torch.equal(log["output_1"].gradient, log["input_1"].gradient)


def test_a_gradient_does_not_change_when_gradients_add_up() -> None:
    log, x, first, second = branching()
    loss = first.sum() + second.sum()
    loss.backward(retain_graph=True)
    before = [op.gradient.clone() for op in log if op.gradient is not None]
    loss.backward(retain_graph=True)
    x.grad.zero_()
    assert all(torch.equal(g, b) for g, b in zip((op.gradients[0] for op in log), before, strict=True))


# ---- harmless ---------------------------------------------------------------------------------------------------


def test_hooks_go_away_with_the_log() -> None:
    calls = []
    log, x, first, second = branching(gradient_postfunc=lambda gradient: calls.append(1))
    loss = first.sum() + second.sum()
    loss.backward(retain_graph=True)
    assert calls and x._backward_hooks
    calls.clear()
    del log
    assert x._backward_hooks is None
    loss.backward()
    assert calls == []


def test_nothing_is_left_on_the_tensors_of_the_model() -> None:
    seen: list[Tensor] = []
    model = Branching()
    model.fc.register_forward_hook(lambda module, args, result: seen.append(result))
    log = tl.log_forward_pass(model, torch.rand(2, 6), save_gradients=True)
    assert seen[0]._backward_hooks is None and not seen[0].retains_grad
    assert seen[0] is log["fc"].activation
    assert all(p._backward_hooks is None and p.grad is None for p in model.parameters())


def test_an_input_with_a_hook_of_its_own_keeps_it() -> None:
    x = torch.rand(2, 6, requires_grad=True)
    calls = []
    x.register_hook(lambda gradient: calls.append(1))
    log = tl.log_forward_pass(Branching(), x, save_gradients=True)
    loss = log["output_1"].activation.sum()
    del log
    loss.backward()
    assert calls == [1] and len(x._backward_hooks) == 1


def test_saving_an_input_does_not_warn(tmp_path: Any) -> None:
    log, x, *_ = branching()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.save(x, tmp_path / "x.pt")
    assert len(log)


def test_a_model_that_raises_leaves_what_was_logged() -> None:
    class Failing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x.exp()
            return y @ torch.rand(7, 7)

    x = torch.rand(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError) as raised:
        tl.log_forward_pass(Failing(), x, save_gradients=True)
    partial = raised.value.partial_log
    partial["exp"].activation.sum().backward()
    assert torch.equal(partial["input_1"].gradient, x.grad)


# ---- autograd's graph -------------------------------------------------------------------------------------------


def test_the_graph_of_autograd() -> None:
    log, _, first, second = branching()
    assert [node.name for node in log["fc"].grad_fns] == ["AddmmBackward0", "TBackward0"]
    assert all(node.layer == "linear_1_1" for node in log["fc"].grad_fns)
    (total,) = log["add"].grad_fns
    assert {str(node) for node in total.next_grad_fns} == {
        "GradFnLog(MulBackward0 of mul_1_5)", "GradFnLog(SumBackward0 of sum_1_4)",
    }  # fmt: skip
    assert {node.param for node in log.grad_fns if node.param} == {"fc.weight", "fc.bias"}
    for node in log.grad_fns:
        assert node.layer is not None or node.param is not None
    taken = log.log_backward(first.sum() + second.sum())
    assert taken.layers[-1] == "linear_1_1" and set(taken.layers) == {
        "add_1_6", "exp_1_7", "mul_1_5", "sum_1_4", "chunk_1_2", "linear_1_1",
    }  # fmt: skip
    assert len(taken.times) == len(taken.grad_fns) and all(time > 0 for time in taken.times)
    assert 0 < sum(taken.times) <= taken.time_total


@pytest.mark.skipif(torch_is_at_least("2.9"), reason="about torch before 2.9, which does not tell what autograd keeps")
def test_memory_kept_for_the_backward_pass_is_not_known_to_an_older_torch() -> None:
    log = tl.log_forward_pass(nn.Linear(2, 3), torch.rand(1, 2), save_gradients=True)
    with pytest.raises(tl.TorchVersionError, match="does not tell what autograd keeps"):
        _ = log.saved_for_backward_memory


@needs_torch("2.9", "tells what autograd keeps")
def test_memory_kept_for_the_backward_pass() -> None:
    log, *_ = branching()
    assert log["fc"].saved_for_backward_memory == 2 * 6 * 4  # the input; the weight is the model's
    assert log["exp"].saved_for_backward_memory == 2 * 3 * 4  # its result
    assert log["sum"].saved_for_backward_memory == 0
    assert {saved.name: saved.is_param for saved in log["fc"].grad_fns[0].saved_tensors} == {
        "mat1": False,
        "mat2": True,
    }
    assert log["mul"].saved_for_backward_memory == 8  # the number 3
    assert log.saved_for_backward_memory_str == "80 B"
    doubled = tl.log_forward_pass(Squaring(), torch.rand(5, requires_grad=True), save_gradients=True)
    assert doubled["mul"].saved_for_backward_memory == 5 * 4  # the same tensor twice
    assert doubled.saved_for_backward_memory == 5 * 4  # and it is what tanh keeps


class Squaring(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(x)
        return y * y
