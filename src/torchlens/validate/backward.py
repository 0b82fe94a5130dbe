"""Prove the gradients of a log right: compare them with those of a plain run, and with those that autograd gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .._torch import call_with_grad
from ..capture import rng
from ..capture.containers import flat_tensors, tensors_in
from ..capture.modules import distinct_modules, distinct_parameters
from ..errors import ArgumentError
from ..replay.same import difference, same
from ..words import counted
from .report import Problem, Report
from .two_runs import Copies

if TYPE_CHECKING:
    from ..log.model_log import ModelLog


@dataclass(repr=False)
class BackwardReport(Report):
    """The answer to "are the gradients right?": true or false, and `print` says why.

    >>> report = tl.validate_backward_pass(model, x)
    >>> bool(report)
    True
    >>> print(report)
    Valid: gradients of 2 parameters, 0 inputs and 7 layers are right, bit for bit.
    """

    params: list[str] = field(default_factory=list)  # compared with a plain run
    inputs: list[str] = field(default_factory=list)
    layers: list[str] = field(default_factory=list)  # compared with what hooks see in a plain run, or with autograd

    def compare(self, check: str, name: str, expected: Tensor | None, found: Tensor | None) -> None:
        """Note whether a gradient is what it should be."""
        if expected is None and found is None:
            return
        known = {"params": self.params, "inputs": self.inputs}.get(check, self.layers)
        if name not in known:
            known.append(name)
        if expected is None or found is None:
            what = "there should be no gradient" if expected is None else "there is no gradient"
            self.problems.append(Problem(check, name, what))
        elif not same(expected, found):
            self.problems.append(Problem(check, name, f"the gradient is wrong: {difference(expected, found)}"))

    def __str__(self) -> str:
        params, inputs, layers = len(self.params), len(self.inputs), len(self.layers)
        counts = f"{counted(params, 'parameter')}, {counted(inputs, 'input')} and {counted(layers, 'layer')}"
        if self:
            return f"Valid: gradients of {counts} are right, bit for bit."
        return "\n".join([f"{self._verdict()} with the gradients of {counts}:", *self._listed()])


def compare_backward_passes(
    model: nn.Module,
    args: Any,
    kwargs: Any,
    loss_of: Callable[[Any], Tensor],
    seed: int | None,
    logged: Callable[..., ModelLog],
) -> BackwardReport:
    """Compare the gradients of a logged run with those of a plain run with hooks, and with those autograd gives.

    `logged` is `log_forward_pass` with gradients.
    """

    def run_twice() -> tuple[Copies, Copies, ModelLog, dict[str, Tensor], dict[str, Tensor]]:
        used = rng.seed_generators(seed)
        plain = Copies.of(model, args, kwargs)
        hooked = hooked_gradients(plain.model, lambda: _checked_loss(loss_of(plain.run())))
        twin = Copies.of(model, args, kwargs)
        log = logged(twin.model, twin.args, twin.kwargs, random_seed=used)
        loss = _checked_loss(loss_of(log.output))
        tensors = {op.label: op.activation for op in log if op.activation is not None and op.activation.requires_grad}
        given = autograd_gradients(loss, tensors)
        log.log_backward(loss)
        return plain, twin, log, hooked, given

    plain, twin, log, hooked, given = rng.restoring(partial(call_with_grad, True, run_twice))
    report = BackwardReport()
    _compare_leaves(report, plain, twin, log)
    for address, gradient in hooked.items():
        if address in log:
            report.compare("hooks", log[address].label, gradient, log[address].gradient)
    for label, gradient in given.items():
        report.compare("autograd", label, gradient, log[label].gradient)
    return report


def _compare_leaves(report: BackwardReport, plain: Copies, twin: Copies, log: ModelLog) -> None:
    """Compare the gradients of parameters and inputs, which autograd leaves in the tensors themselves."""
    for (name, param), (_, other) in zip(
        distinct_parameters(plain.model), distinct_parameters(twin.model), strict=True
    ):
        report.compare("params", name, param.grad, other.grad)
    inputs = zip(tensors_in([plain.args, plain.kwargs]), tensors_in([twin.args, twin.kwargs]), strict=True)
    for label, ((_, one), (_, same_input)) in zip(log.input_layers, inputs, strict=True):
        if one.is_leaf and one.requires_grad:
            report.compare("inputs", label, one.grad, same_input.grad)
            report.compare("inputs", label, one.grad, log[label].gradient)


def _checked_loss(loss: Any) -> Tensor:
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise ArgumentError(f"the loss must be a tensor with one element, not {loss!r}")
    if not loss.requires_grad:
        raise ArgumentError("the loss depends on nothing that requires a gradient: no parameter and no input")
    return loss


def default_loss(output: Any) -> Tensor:
    """A number that depends on every floating point output, in a way that no softmax or normalisation cancels out."""
    weights = torch.Generator("cpu").manual_seed(0)
    total = torch.zeros((), device="cpu")
    for _, tensor in tensors_in(output):
        if tensor.requires_grad:
            flat = (tensor.abs() if tensor.is_complex() else tensor).flatten()
            total = total + (flat * torch.rand(flat.shape, generator=weights, device="cpu").to(flat)).sum().cpu()
    return total


def hooked_gradients(model: nn.Module, run: Callable[[], Tensor]) -> dict[str, Tensor]:
    """What hooks see, in a plain run, of the gradients of the tensors that modules return: `fc:2` for the second call.

    The first tensor of each call, and each tensor once: the hooks of one that is overwritten stay with what it was.
    """
    found: dict[str, Tensor] = {}
    for address, module in distinct_modules(model):
        if address:
            module.register_forward_hook(_OutputHook(address, found))
    run().backward()  # type: ignore[no-untyped-call]
    return found


class _OutputHook:
    """A forward hook that puts a hook on what the module returns. No closure, so that a model can pickle itself."""

    def __init__(self, address: str, found: dict[str, Tensor]) -> None:
        self.address = address
        self.found = found
        self.calls = 0

    def __call__(self, module: nn.Module, args: Any, result: Any) -> None:
        self.calls += 1
        for tensor in flat_tensors([result])[:1]:
            if tensor.grad_fn is not None and tensor._backward_hooks is None:
                tensor.register_hook(partial(self._keep, f"{self.address}:{self.calls}"))  # type: ignore[no-untyped-call]

    def _keep(self, label: str, gradient: Tensor) -> None:
        self.found[label] = gradient.clone()


def autograd_gradients(loss: Tensor, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What autograd itself gives, without hooks, as the gradients of tensors; those it can't reach are left out.

    So are those with hooks of the user's: autograd gives their gradient without what the hooks make of it.
    """
    tensors = {name: tensor for name, tensor in tensors.items() if tensor._backward_hooks is None}
    found = torch.autograd.grad(loss, list(tensors.values()), retain_graph=True, allow_unused=True)
    return {name: gradient for name, gradient in zip(tensors, found, strict=True) if gradient is not None}
