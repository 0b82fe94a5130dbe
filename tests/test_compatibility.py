"""The hard corners of PyTorch, one test for each row of docs/compatibility.md."""

from __future__ import annotations

import _thread
import copy
import itertools
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.distributed
from tests.torch_version import needs_torch, torch_is_at_least
from tests.torchvision_models import torchvision_models
from torch import Tensor, nn
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.while_loop import while_loop
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils import parametrizations
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

import torchlens as tl

DOCUMENT = Path(__file__).parents[1] / "docs" / "compatibility.md"


class Model(nn.Module):
    """Whatever a function does, with a linear layer at hand."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function, self.fc = function, nn.Linear(4, 4)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))


def rows(**options: Any) -> Tensor:
    return torch.rand(3, 4, generator=torch.Generator().manual_seed(0), **options)


def types(log: tl.ModelLog) -> list[str]:
    return [op.layer_type for op in log if not op.is_input_layer and not op.is_output_layer]


UNSEEN = r"a tensor of shape \(3, 4\), used at .*test_compatibility.py:\d+, was computed by code that can't be"


def sound(model: nn.Module, *inputs: Any, verified: bool | None = True, stance: str = "default") -> tl.ModelLog:
    """The log of a model, after making sure that it is right: nothing missed, nothing doubtful, the model's output."""
    torch.manual_seed(1)
    with stance_of_compile(stance):
        plain = model(*inputs)
    log = tl.log_forward_pass(model, list(inputs), random_seed=1, check_completeness=True)
    report = log.validate()
    assert log.completeness, str(log.completeness)
    assert report, str(report)
    assert not log.warnings
    assert verified is None or bool(report.unverified) is not verified, report.unverified
    if isinstance(plain, Tensor) and not plain.is_meta and not plain.is_nested:
        activation = log[log.output_layers[0]].activation
        assert activation is not None and torch.equal(comparable(activation), comparable(plain))
    return log


def comparable(tensor: Tensor) -> Tensor:
    """`torch.equal` of torch 2.4 does not know float8."""
    return tensor.float() if tensor.dtype.is_floating_point and tensor.itemsize == 1 else tensor


@contextmanager
def stance_of_compile(stance: str) -> Iterator[None]:
    if torch_is_at_least("2.6"):
        with torch.compiler.set_stance(stance):
            yield
    elif stance == "default":
        yield
    else:
        frame = torch._dynamo.eval_frame
        choose, frame.set_eval_frame = frame.set_eval_frame, lambda _: choose(None)  # type: ignore[attr-defined]
        try:
            yield
        finally:
            frame.set_eval_frame = choose  # type: ignore[attr-defined]


def agree_in_gradient(model: nn.Module, x: Tensor) -> None:
    """Logging leaves the output as differentiable as it is."""
    torch._dynamo.reset()  # what it has compiled for others counts against a limit
    found: list[Tensor] = []
    handle = model.register_forward_hook(lambda module, args, output: found.append(output))
    model(x)
    tl.log_forward_pass(model, x)
    handle.remove()
    plain, logged = [torch.autograd.grad(output.sum(), list(model.parameters()), allow_unused=True) for output in found]
    assert [gradient is None for gradient in plain] == [gradient is None for gradient in logged]
    assert all(torch.equal(a, b) for a, b in zip(plain, logged, strict=True) if a is not None and b is not None)


# ---- compiled and exported models -----------------------------------------------------------------------------


def test_a_log_in_compiled_code_is_a_graph_break() -> None:
    model, x = small(), rows()

    def logged(x: Tensor) -> Tensor:
        activation = tl.log_forward_pass(model, x * 2)["1"].activation
        assert activation is not None
        plucked: Tensor = tl.pluck(model, x * 2, "1")
        return activation.sum() + plucked.sum()

    def recorded(x: Tensor) -> None:
        with tl.fastlog.Recorder(model, keep_op="relu"):
            model(x)

    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = torch.compile(logged, backend="eager")
        assert torch.equal(compiled(x), logged(x)) and torch.equal(compiled(x + 1), logged(x + 1))
    if torch_is_at_least("2.6"):
        with pytest.raises(tl.ArgumentError, match="decorate that function with @torch.compiler.disable"):
            torch.compile(recorded, backend="eager")(x)
        recorded(x)
    assert torch.equal(torch.compile(model, backend="eager")(x), model(x))


def test_compiled() -> None:
    compiled = torch.compile(small())
    part = nn.Sequential(torch.compile(nn.Linear(4, 4)), nn.ReLU())
    in_place = small()
    in_place.compile()
    squashed = torch.compile(lambda x: x.sin().cos())
    assert types(sound(compiled, rows(), stance="force_eager")) == ["linear", "relu", "linear"]
    assert types(sound(part, rows(), stance="force_eager")) == ["linear", "relu"]
    assert types(sound(in_place, rows(), stance="force_eager")) == ["linear", "relu", "linear"]
    function = Model(lambda self, x: squashed(self.fc(x)))
    assert types(sound(function, rows(), stance="force_eager")) == ["linear", "sin", "cos"]
    assert tl.validate_model_activations(function, rows())  # compared with the eager source, not with generated code


@torch.jit.script
def scripted(x: Tensor, times: int) -> Tensor:
    parts = []
    for i in range(times):
        parts.append(x * i)
    return torch.stack(parts)


def test_torchscript() -> None:
    seen = ["t", "addmm", "relu", "t", "addmm"]
    assert types(sound(torch.jit.script(small()), rows())) == seen
    assert types(sound(torch.jit.trace(small(), rows()), rows())) == seen
    assert types(sound(nn.Sequential(torch.jit.script(small()), nn.Tanh()), rows())) == [*seen, "tanh"]
    function = Model(lambda self, x: scripted(self.fc(x), 2).sum())
    assert types(sound(function, rows())) == ["linear", "mul", "mul", "stack", "sum"]
    frozen = sound(torch.jit.freeze(torch.jit.script(small().eval())), rows())
    assert "source" in types(frozen) and "addmm" in types(frozen)  # freezing has made constants of the parameters


def test_exported_and_fx() -> None:
    exported = torch.export.export(small(), (rows(),)).module()
    assert types(sound(exported, rows())) == ["linear", "relu", "linear"]
    traced = torch.fx.symbolic_trace(small())
    log = sound(traced, rows())
    assert types(log) == ["linear", "relu", "linear"] and log.modules["0"].num_passes == 1
    assert types(sound(_Interpreted(traced), rows())) == ["linear", "relu", "linear"]


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_programs_made_in_forward(grad: bool) -> None:
    def checked(make: Callable[[nn.Module, Tensor], Any]) -> list[str]:
        made = []

        def forward(self: Model, x: Tensor) -> Any:
            made.append(make(self.fc, x))
            return made[-1](x) + 1

        with torch.set_grad_enabled(grad):
            found = types(sound(Model(forward), rows()))
        graphs = [re.sub(r"___torch_mangle_\d+\.", "", str(program.graph)) for program in made]
        assert graphs[0] == graphs[1]  # the capture is not in the program
        return found

    seen = ["t", "addmm", "add"]
    assert checked(lambda module, x: torch.jit.trace(module, (x,))) == seen
    assert checked(lambda module, x: torch.jit.trace(module, (x,), check_trace=False)) == seen
    assert checked(lambda module, x: torch.jit.trace_module(module, {"forward": (x,)})) == seen
    assert checked(lambda module, x: torch.jit.trace(lambda y: y.relu() * 2, (x,))) == ["relu", "mul", "add"]
    assert checked(lambda module, x: torch.jit.script(module)) == seen
    assert checked(lambda module, x: torch.fx.symbolic_trace(module)) == ["linear", "add"]
    assert checked(lambda module, x: torch.export.export(module, (x,)).module()) == ["linear", "add"]
    assert checked(lambda module, x: make_fx(lambda y: y * 2)(x)) == ["mul", "add"]


class _Interpreted(nn.Module):
    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Any:
        return torch.fx.Interpreter(self.module).run(x)


# ---- transforms and higher-order operators --------------------------------------------------------------------


@pytest.mark.parametrize("grad", [True, False])
def test_vmap(grad: bool) -> None:
    with torch.set_grad_enabled(grad):
        log = sound(Model(lambda self, x: torch.vmap(lambda row: (row * 2).sum())(self.fc(x)) + 1), rows())
        assert types(log) == ["linear", "mul", "sum", "add"]
        assert log["mul"].tensor_shape == (3, 4) and log["mul"].parent_layers == ["linear_1_1"]
        modules = sound(Model(lambda self, x: torch.vmap(self.fc)(x).relu()), rows())
        assert modules["relu_1"].parent_layers == ["add_1_7"] and modules.modules["fc"].num_passes == 1
        assert {"fc.weight", "fc.bias"} == {address for op in modules for address in op.param_addresses}
        noisy = Model(lambda self, x: torch.vmap(lambda row: row + torch.rand_like(row), randomness="different")(x))
        assert types(sound(noisy, rows())) == ["randlike", "add"]
        sound(Model(lambda self, x: torch.vmap(torch.vmap(torch.sin), chunk_size=2)(self.fc(x))), rows())
    followed = tl.log_forward_pass(
        Model(lambda self, x: torch.vmap(torch.sin)(self.fc(x)) * 2), rows(), train_mode=True
    )
    assert followed["sin"].activation.grad_fn is not None  # type: ignore[union-attr]


@pytest.mark.parametrize("grad", [True, False])
def test_torch_func_gradients(grad: bool) -> None:
    def pullback(self: Model, x: Tensor) -> Tensor:
        out, function = torch.func.vjp(torch.sin, self.fc(x))
        return function(x)[0] + out

    def per_sample(self: Model, x: Tensor) -> Tensor:
        def loss(parameters: dict[str, Tensor], row: Tensor) -> Tensor:
            return torch.func.functional_call(self.fc, parameters, (row,)).square().sum()

        parameters = dict(self.fc.named_parameters())
        return torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)["weight"]

    with torch.set_grad_enabled(grad):
        log = sound(Model(lambda self, x: torch.func.grad(lambda y: self.fc(y).square().sum())(x) + 1), rows())
        assert log["add_1"].parent_layers == [types_and_labels(log, "mm")[-1]]
        assert types(sound(Model(pullback), rows())) == ["linear", "sin", "cos", "mul", "add"]
        assert "fc.weight" in {a for op in sound(Model(per_sample), rows()) for a in op.param_addresses}
        sound(Model(lambda self, x: torch.func.jacrev(lambda y: y.sin().sum(0))(self.fc(x))), rows())
        sound(Model(lambda self, x: torch.func.hessian(lambda y: y.sin().sum())(self.fc(x))), rows())
        sound(Model(lambda self, x: torch.func.functionalize(lambda y: y.mul(2).add_(1))(self.fc(x))), rows())
    agree_in_gradient(Model(pullback), rows())
    agree_in_gradient(Model(per_sample), rows())


def types_and_labels(log: tl.ModelLog, layer_type: str) -> list[str]:
    return [op.label for op in log if op.layer_type == layer_type]


@pytest.mark.parametrize("grad", [True, False])
def test_forward_mode(grad: bool) -> None:
    def dual(self: Model, x: Tensor) -> Tensor:
        with forward_ad.dual_level():
            pair = forward_ad.make_dual(x, torch.ones_like(x))
            return forward_ad.unpack_dual(pair.sin()).tangent + 1

    with torch.set_grad_enabled(grad):
        log = sound(Model(lambda self, x: torch.func.jvp(torch.sin, (self.fc(x),), (x,))[1]), rows())
        assert types(log) == ["linear", "sin", "cos", "mul"]
        assert log["mul_1"].parent_layers == ["input_1_0", "cos_1_3"]
        assert "cos" in types(sound(Model(dual), rows()))
        sound(Model(lambda self, x: torch.func.jacfwd(lambda y: y.sin().sum(0))(self.fc(x))), rows())


@pytest.mark.parametrize("grad", [True, False])
def test_control_flow_operators(grad: bool) -> None:
    def chosen(self: Model, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda t: self.fc(t).sin(), lambda t: t.cos(), (self.fc(x),))

    def nested(self: Model, x: Tensor) -> Tensor:
        def inner(t: Tensor) -> Tensor:
            return torch.cond(t.sum() > 100, lambda u: u + 1, lambda u: u * 3, (t,))

        return torch.cond(x.sum() > 0, inner, lambda t: t.cos(), (x * 1,))

    def repeated(self: Model, x: Tensor) -> Tensor:
        return while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t * 2), (torch.tensor(0), x * 1))[1]

    with torch.set_grad_enabled(grad):
        log = sound(Model(chosen), rows())
        seen = [each for each in types(log) if each != "detach"]  # torch 2.4 can't differentiate it
        assert seen == ["sum", "gt", "linear", "linear", "sin"] and log["sin"].parent_layers == ["linear_1_3:2"]
        assert types(sound(Model(nested), rows())) == ["sum", "gt", "mul", "sum", "gt", "mul"]
        assert types(sound(Model(repeated), rows())).count("mul") == 4
        assert types(sound(Model(lambda self, x: torch_map(torch.sin, self.fc(x))), rows())).count("sin") == 3
    if torch_is_at_least("2.5"):
        agree_in_gradient(Model(chosen), rows())
    agree_in_gradient(Model(lambda self, x: torch_map(torch.sin, self.fc(x))), rows())
    assert tl.validate_model_activations(Model(chosen), rows())


@needs_torch("2.8", "has scans that can be differentiated")
@pytest.mark.parametrize("grad", [True, False])
def test_scans(grad: bool) -> None:
    from torch._higher_order_ops.associative_scan import associative_scan
    from torch._higher_order_ops.scan import scan

    with torch.set_grad_enabled(grad):
        sound(Model(lambda self, x: scan(lambda c, t: (c + t, (c * t).clone()), x[0] * 0, self.fc(x))[1]), rows())
        sound(Model(lambda self, x: associative_scan(torch.add, self.fc(x), 0, combine_mode="generic")), rows())
    agree_in_gradient(Model(lambda self, x: associative_scan(torch.add, self.fc(x), 0, combine_mode="generic")), rows())
    if torch_is_at_least("2.13"):  # the gradient that an older one gives is wrong
        agree_in_gradient(Model(lambda self, x: scan(lambda c, t: (c + t, c * t), x[0] * 0, self.fc(x))[1]), rows())


@needs_torch("2.5", "has flex attention")
def test_flex_attention() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    def attention(self: Model, x: Tensor) -> Tensor:
        return flex_attention(x, x * 2, x * 3, score_mod=lambda score, b, h, q, k: score + (q - k))

    log = sound(Model(attention), torch.rand(1, 2, 16, 8))
    assert types(log).count("matmul") == 2
    assert log[log.output_layers[0]].has_input_ancestor


def test_checkpointing() -> None:
    for reentrant in (True, False):

        def forward(self: Model, x: Tensor, reentrant: bool = reentrant) -> Tensor:
            return checkpoint(lambda t: self.fc(t).sin(), x, use_reentrant=reentrant) + 1

        assert types(sound(Model(forward), rows().requires_grad_())) == ["linear", "sin", "add"]


def test_autograd_in_forward() -> None:
    def gradient(self: Model, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(self.fc(x).sin().sum(), x, create_graph=True)[0] * 2

    def backward(self: Model, x: Tensor) -> Any:
        x = x.detach().requires_grad_()
        self.fc(x).sin().sum().backward()
        return x.grad * 2  # type: ignore[operator]

    for function in (gradient, backward):
        log = sound(Model(function), rows(), verified=False)
        assert types(log) == ["detach", "linear", "sin", "sum", "grad", "mul"]
        assert "Not verified: grad_1_5: grad depends on more than its arguments" in str(log.validate())


# ---- circumstances and kinds of tensors -----------------------------------------------------------------------


def test_autocast() -> None:
    def forward(self: Model, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.fc(x) + 1

    log = sound(Model(forward), rows())
    assert log["linear"].tensor_dtype == torch.bfloat16


def test_inference_mode() -> None:
    def forward(self: Model, x: Tensor) -> Tensor:
        with torch.inference_mode():
            y = self.fc(x)
            return y.relu_() + y

    assert types(sound(Model(forward), rows())) == ["linear", "relu", "add"]
    with torch.inference_mode():
        assert types(sound(small(), rows())) == ["linear", "relu", "linear"]


def test_channels_last() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    image = torch.rand(2, 3, 8, 8).to(memory_format=torch.channels_last)
    log = sound(model.to(memory_format=torch.channels_last), image)
    assert log["conv2d"].activation.is_contiguous(memory_format=torch.channels_last)  # type: ignore[union-attr]


def test_dtypes() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float64, torch.complex64, torch.complex128):
        log = sound(small().to(dtype) if not dtype.is_complex else Model(lambda self, x: x * 2 @ x.T), rows().to(dtype))
        assert log[1].tensor_dtype == dtype
    assert types(sound(Model(lambda self, x: x * 2 // 3 + (x > 2)), torch.arange(12))) == [
        "mul",
        "floordivide",
        "gt",
        "add",
    ]
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        log = sound(Model(lambda self, x, dtype=dtype: (x.to(dtype).to(torch.float32) * 2).to(dtype)), rows())
        assert log[1].tensor_dtype == dtype


def test_scalars_and_empty_tensors() -> None:
    log = sound(Model(lambda self, x: torch.cat([x[:0] * x.sum(), x[:, :0].T @ x])), rows())
    assert log["sum"].tensor_shape == () and log["mul_1"].tensor_shape == (0, 4)


def test_sparse() -> None:
    coo = Model(lambda self, x: torch.sparse.mm((x.T @ x).to_sparse(), x.T).relu())
    assert "sparsemm" in types(sound(coo, rows()))
    csr = Model(lambda self, x: ((x.T @ x).to_sparse_csr() @ x.T).relu())
    assert "tosparsecsr" in types(sound(csr, rows()))
    assert types(sound(Model(lambda self, x: (x * 2).to_dense() + 1), rows().to_sparse())) == ["mul", "todense", "add"]


WRITES: dict[str, Callable[[Tensor], Any]] = {
    "mul_": lambda t: t.mul_(2),
    "div_": lambda t: t.div_(2),
    "neg_": lambda t: t.neg_(),
    "zero_": lambda t: t.zero_(),
    "add_": lambda t: t.add_(t.clone()),
    "copy_": lambda t: t.copy_(t * 2),
    "sin_": lambda t: t.sin_(),
    "__imul__": lambda t: t.__imul__(3),
    "relu_": lambda t: t.relu_(),
    "through its values": lambda t: t.values().mul_(2),
    "sparse_resize_": lambda t: t.sparse_resize_((4, 4), 2, 0),
    "out": lambda t: torch.mul(t.clone(), t.clone(), out=t),
}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "coo": lambda x: x.to_sparse().coalesce(),
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "bsr": lambda x: x.to_sparse_bsr((1, 1)),
    "mkldnn": lambda x: x.to_mkldnn(),
    "nested": lambda x: torch.nested.nested_tensor([x, x]),
    "quantized": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:Sparse")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("write", WRITES)
def test_writes_to_tensors_that_are_not_dense(layout: str, write: str) -> None:
    def forward(self: Model, x: Tensor) -> tuple[Tensor, ...]:
        made = LAYOUTS[layout](x - 0.5)
        held = [made.values()] if layout in ("coo", "csr", "csc", "bsr") else []
        WRITES[write](made)
        return (dense(made), *[each + 1 for each in held])

    x = (rows().T @ rows())[:4]
    try:
        plain = forward(Model(forward), x)
    except (RuntimeError, TypeError, IndexError) as error:
        with pytest.raises(type(error)):  # torch can't do it: that must look the same
            tl.log_forward_pass(Model(forward), x)
        return
    log = tl.log_forward_pass(Model(forward), x)
    for label, tensor in zip(log.output_layers, plain, strict=True):
        activation = log[label].activation
        assert activation is not None and torch.equal(activation, tensor)
    assert log.validate() and not log.warnings


def dense(tensor: Tensor) -> Tensor:
    if tensor.is_quantized:
        return tensor.dequantize()
    return tensor.to_padded_tensor(0.0) if tensor.is_nested else tensor.to_dense()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested() -> None:
    def strided(self: Model, x: Tensor) -> Tensor:
        both = torch.nested.nested_tensor([x, x[:2]])
        return torch.nested.to_padded_tensor(self.fc(both), 0.0)

    def jagged(self: Model, x: Tensor) -> Tensor:
        both = torch.nested.nested_tensor_from_jagged(x * 2, torch.tensor([0, 2, 3]))
        made = self.fc(both) * 2
        return made.to_padded_tensor(0.0) if torch_is_at_least("2.5") else made.values()  # torch 2.4 can't pad it

    assert types(sound(Model(strided), rows())) == [
        "getitem", "nestedtensorfromtensorlist", "linear", "nestedtopaddedtensor",
    ]  # fmt: skip
    log = sound(Model(jagged), rows())
    assert log["linear"].activation.layout is torch.jagged  # type: ignore[union-attr]
    assert log[log.output_layers[0]].has_input_ancestor


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_quantized() -> None:
    dynamic = torch.ao.quantization.quantize_dynamic(small(), {nn.Linear})
    assert "lineardynamic" in types(sound(dynamic, rows()))

    def round_trip(self: Model, x: Tensor) -> Tensor:
        return torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize() + 1

    log = sound(Model(round_trip), rows())
    assert log["quantizepertensor"].activation.is_quantized  # type: ignore[union-attr]


def test_meta() -> None:
    """A model that no machine could hold: all shapes, no memory."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(2**20, 2**20), nn.ReLU(), nn.Linear(2**20, 10))
    log = sound(model, torch.rand(2**10, 2**20, device="meta"))
    assert log["relu"].tensor_shape == (2**10, 2**20) and log["relu"].activation.is_meta  # type: ignore[union-attr]
    assert log.total_params > 2**40


def test_fake_tensors() -> None:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode() as mode:
        model = small()
        log = tl.log_forward_pass(model, torch.rand(3, 4))
    assert types(log) == ["linear", "relu", "linear"] and not log.warnings
    assert log["relu"].tensor_shape == (3, 4)
    with mode:
        assert log.validate()


# ---- classes of tensors, modes --------------------------------------------------------------------------------


class Marked(Tensor):
    """Does nothing special, by `__torch_function__`."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_function__(func, types, args, kwargs or {})


class Doubled(Tensor):
    """Has a sine of its own."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result * 2 if func is torch.sin else result


class Holder(Tensor):
    """Holds another tensor and works on that, by `__torch_dispatch__`."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Any:
        return Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, requires_grad=held.requires_grad)

    def __init__(self, held: Tensor) -> None:
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = tree_map(lambda t: t.held if isinstance(t, cls) else t, (args, kwargs or {}))
        return tree_map(lambda t: cls(t) if isinstance(t, Tensor) else t, func(*args, **kwargs))


class OpenHolder(Holder):
    """Says what it holds, as torch asks of such a class that is to be compiled."""

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["held"], None

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, Tensor], context: None, size: Any, stride: Any) -> OpenHolder:
        return OpenHolder(parts["held"])


def test_torch_function_subclasses() -> None:
    log = sound(small(), rows().as_subclass(Marked))
    assert types(log) == ["linear", "relu", "linear"] and isinstance(log["relu"].activation, Marked)
    doubled = sound(Model(lambda self, x: torch.sin(x.as_subclass(Doubled)) + 1), rows())
    assert torch.equal(doubled["sin"].activation, rows().sin() * 2)  # type: ignore[arg-type]


def test_torch_dispatch_subclasses() -> None:
    log = sound(Model(lambda self, x: (OpenHolder(self.fc(x)).sin() * 2).held.exp()), rows())
    assert types(log) == ["linear", "wrap", "sin", "mul", "unwrap", "exp"]
    assert [op.parent_layers for op in log][3:5] == [["wrap_1_2"], ["sin_1_3"]]


def test_torch_dispatch_subclasses_that_hide() -> None:
    model = Model(lambda self, x: (Holder(self.fc(x)).sin() * 2).held.exp())
    with torch.no_grad(), pytest.warns(tl.FidelityWarning, match=UNSEEN):
        log = tl.log_forward_pass(model, rows(), check_completeness=True)
    assert types(log).count("source") == 1 and not log.completeness and not log.validate()
    assert re.search(UNSEEN, str(log.completeness))


class _Doubling(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.sin else result


class _DoublingBelow(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.ops.aten.sin.default else result


def test_modes_of_the_model() -> None:
    def above(self: Model, x: Tensor) -> Tensor:
        with _Doubling():
            return torch.sin(x) + 1

    def below(self: Model, x: Tensor) -> Tensor:
        with _DoublingBelow():
            return torch.sin(x) + 1

    assert types(sound(Model(above), rows())) == ["sin", "mul", "add"]
    log = tl.log_forward_pass(Model(below), rows())
    assert torch.equal(log["sin"].activation, rows().sin() * 2)  # type: ignore[arg-type]
    assert "replay: sin_1_1: differs from what its parents give" in str(log.validate())


# ---- modules --------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_parametrizations() -> None:
    model = nn.Sequential(
        parametrizations.weight_norm(nn.Linear(4, 4)),
        parametrizations.spectral_norm(nn.Linear(4, 4)),
        parametrizations.orthogonal(nn.Linear(4, 4)),
    ).eval()
    log = sound(model, rows())
    assert "parametrizations.weight.original0" in " ".join(a for op in log for a in op.param_addresses)
    older = nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 4)))
    assert types(sound(older, rows())) == ["weightnorm", "linear"]
    assert tl.validate_model_activations(older, rows())  # though such a module can't be copied as it is


def test_lazy_modules() -> None:
    torch.manual_seed(0)
    log = tl.log_forward_pass(nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyLinear(2)), rows())
    assert [t for t in types(log) if t in ("linear", "relu")] == ["linear", "relu", "linear"] and log.validate()
    assert log.params["0.weight"].shape == (5, 4)


def test_functional_call() -> None:
    def forward(self: Model, x: Tensor) -> Tensor:
        doubled = {name: parameter * 2 for name, parameter in self.fc.named_parameters()}
        return torch.func.functional_call(self.fc, doubled, (x,))

    log = sound(Model(forward), rows())
    assert types(log) == ["mul", "mul", "linear"] and log["mul_1"].param_addresses == ["fc.weight"]


def test_data_parallel() -> None:
    log = sound(nn.DataParallel(small()), rows())
    assert types(log) == ["linear", "relu", "linear"] and log["module.0"].layer_label == "linear_1_1"


@contextmanager
def one_process() -> Iterator[Any]:
    """A process group of one."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    try:
        yield torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    finally:
        torch.distributed.destroy_process_group()


def test_distributed_data_parallel() -> None:
    with one_process():
        model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
        log = tl.log_forward_pass(model, rows(), check_completeness=True)
        report = log.validate()
        assert log.completeness and report and not log.warnings
        assert [reason for _, reason in report.unverified] == ["broadcast_ communicates with other processes"]
        assert log.modules["module.0"].num_passes == 1 and "broadcast" in types(log)
        evaluated = model.eval()
        with torch.no_grad():
            assert types(sound(evaluated.module, rows()))[-1] == "batchnorm"


@needs_torch("2.8", "can shard on a CPU")
def test_fully_sharded() -> None:
    from torch.distributed.fsdp import fully_shard

    with one_process() as mesh:
        model = small()
        fully_shard(model[0], mesh=mesh)  # type: ignore[index]
        fully_shard(model, mesh=mesh)
        log = sound(model, rows(), verified=False)
        reasons = {reason for _, reason in log.validate().unverified}
        known = r"a parent of shape .* was not saved|.* communicates with other processes"
        assert all(re.fullmatch(known, reason) for reason in reasons)
        assert [t for t in types(log) if t in ("linear", "relu")] == ["linear", "relu", "linear"]
        assert "0.weight" in {address for op in log for address in op.param_addresses}
        with pytest.raises(tl.ArgumentError, match="FSDP does not support deepcopy.*check_completeness=True.*validate"):
            tl.validate_model_activations(model, rows())


@needs_torch("2.5", "has DTensor under its public name")
def test_dtensor() -> None:
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    with one_process() as mesh:
        parallel = parallelize_module(small(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        log = sound(parallel, rows(), verified=None)  # an older torch communicates with nobody, too
        assert all("communicates with other processes" in reason for _, reason in log.validate().unverified)
        assert [t for t in types(log) if t in ("linear", "relu")] == ["linear", "relu", "linear"]
        assert log[log.output_layers[0]].has_input_ancestor
        with torch.no_grad():
            spread = Model(lambda self, x: (distribute_tensor(self.fc(x), mesh, [Shard(0)]).sin() * 2).to_local().exp())
            assert types(sound(spread, rows(), verified=False))[-4:] == ["sin", "mul", "unwrap", "exp"]


def test_collectives() -> None:
    def forward(self: Model, x: Tensor) -> Tensor:
        y = self.fc(x) * 1
        torch.distributed.all_reduce(y, async_op=True).wait()
        gathered = [torch.empty_like(y)]
        torch.distributed.all_gather(gathered, y)
        return y + gathered[0]

    with one_process(), torch.no_grad():
        log = sound(Model(forward), rows(), verified=False)
        assert types(log) == ["linear", "mul", "allreduce", "emptylike", "allgather", "add"]
        assert log["add"].parent_layers == ["allreduce_1_3", "allgather_1_5"]


@pytest.mark.frameworks
def test_accelerate() -> None:
    accelerate = pytest.importorskip("accelerate")

    class Shifted(accelerate.hooks.ModelHook):  # type: ignore[misc, name-defined]
        def pre_forward(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return (args[0] + 1,), kwargs

        def post_forward(self, module: nn.Module, output: Tensor) -> Tensor:
            return output * 2

    model = small()
    accelerate.hooks.add_hook_to_module(model[0], Shifted())  # type: ignore[index]
    assert types(sound(model, rows())) == ["add", "linear", "mul", "relu", "linear"]
    log = sound(accelerate.cpu_offload(small(), execution_device=torch.device("cpu")), rows())
    assert [t for t in types(log) if t not in ("to", "source")] == ["linear", "relu", "linear"]


@pytest.mark.frameworks
def test_lightning() -> None:
    torchvision_models()
    lightning = pytest.importorskip("pytorch_lightning")

    class Lit(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x).relu()

    log = sound(Lit(), rows())
    assert types(log) == ["linear", "relu"] and log["fc"].layer_label == "linear_1_1"
    assert tl.validate_model_activations(Lit(), rows())


def test_hooks_that_change_values() -> None:
    model = small()
    model[0].register_forward_hook(lambda module, args, output: output * 2)  # type: ignore[index]
    model[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,))  # type: ignore[index]
    model[2].register_forward_hook(lambda module, args, output: (output.mul_(3), None)[1])  # type: ignore[index]
    log = sound(model, rows())
    assert types(log) == ["add", "linear", "mul", "relu", "linear", "mul"]
    assert log["0"].layer_label == "mul_1_3"  # what the module's caller gets


def test_copies_in_forward() -> None:
    log = sound(Model(lambda self, x: copy.deepcopy(self.fc)(x) + copy.deepcopy(x)), rows())
    assert types(log) == ["data", "clone", "data", "clone", "linear", "deepcopy", "add"]
    assert log["linear"].parent_layers == ["input_1_0", "clone_1_2", "clone_2_4"]


def test_generators() -> None:
    class Steps(nn.Module):
        def forward(self, x: Tensor) -> Iterator[Tensor]:
            for i in range(3):
                yield x * i

    model = Model(lambda self, x: sum(itertools.islice(self.steps(x), 2)) + sum(r.sum() for r in x))
    model.steps = Steps()
    log = sound(model, rows())
    assert types(log).count("mul") == 2 and types(log).count("unbind") == 3


def test_compiled_internals() -> None:
    """Layers whose work is done in C++: one operation, as deep as Python goes."""
    with torch.no_grad():
        attention = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()
        assert types(sound(attention, rows()[None])) == ["transformerencoderlayerfwd"]
        recurrent = Model(lambda self, x: self.lstm(x)[0])
        recurrent.lstm = nn.LSTM(4, 4)
        assert "lstm" in types(sound(recurrent, rows()))


def test_operations_nobody_sees() -> None:
    """Code in C++ that calls operations without passing Python, here by switching Python's way off."""

    def forward(self: Model, x: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            hidden = self.fc(x).sin()
        return hidden + 1

    with pytest.warns(tl.FidelityWarning, match=UNSEEN):
        tl.log_forward_pass(Model(forward), rows())
    with torch.no_grad(), pytest.warns(tl.FidelityWarning, match=UNSEEN):
        log = tl.log_forward_pass(Model(forward), rows(), check_completeness=True)
    assert types(log) == ["source", "add"] and not log.completeness and not log.validate()
    assert [missed.operation for missed in log.completeness.missed][-1] == "aten.sin.default"  # type: ignore[union-attr]


# ---- threads --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grad", [True, False])
def test_threads(grad: bool) -> None:
    pool = ThreadPoolExecutor(2)
    pool.submit(time.sleep, 0).result()  # its threads are there before the forward pass

    def forward(self: Model, x: Tensor) -> Tensor:
        results: list[Tensor] = []

        def work() -> None:
            with torch.set_grad_enabled(grad):
                results.append(self.fc(x).relu())

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        with ThreadPoolExecutor(2) as own:
            results += own.map(lambda function: function(x), [torch.sin, torch.cos])
        return torch.stack([*results, *pool.map(lambda function: function(x), [torch.exp, torch.tan])])

    with torch.set_grad_enabled(grad), _not_copied(Model(forward)) as model:
        log = sound(model, rows())
    assert sorted(types(log)) == ["cos", "exp", "linear", "relu", "sin", "stack", "tan"]
    assert log["stack"].parent_layers[0] == log["relu"].label and log["fc"].layer_type == "linear"
    assert log["linear"].containing_module == "fc"
    pool.shutdown()


@contextmanager
def _not_copied(model: nn.Module) -> Iterator[nn.Module]:
    yield model


def test_threads_that_outlive_the_forward_pass() -> None:
    go_on, done = threading.Event(), threading.Event()
    after: list[Tensor] = []

    def forward(self: Model, x: Tensor) -> Tensor:
        def work() -> None:
            go_on.wait(10)
            after.append(x.sin())
            done.set()

        threading.Thread(target=work).start()
        return x * 2

    log = tl.log_forward_pass(Model(forward), rows(), check_completeness=True)
    before = types(log)
    go_on.set()
    assert done.wait(10) and torch.equal(after[0], rows().sin())
    assert before == types(log) == ["mul"] and log.completeness and log.validate()


def test_threads_of_other_libraries() -> None:
    """A thread that Python's threading does not know of; with no gradient nothing gives its result away."""

    def forward(self: Model, x: Tensor) -> Tensor:
        results: list[Tensor] = []
        done = threading.Event()

        def work() -> None:
            with torch.no_grad():
                results.append((x * 2).sin())
            done.set()

        _thread.start_new_thread(work, ())
        done.wait(10)
        return results[0].exp()

    with pytest.warns(tl.FidelityWarning, match=UNSEEN):
        log = tl.log_forward_pass(Model(forward), rows(), check_completeness=True)
    assert types(log) == ["source", "exp"] and not log.completeness
    report = tl.validate_model_activations(Model(forward), rows())
    assert not report and re.search(UNSEEN, str(report))


# ---- memory behind torch's back -------------------------------------------------------------------------------


def test_numpy_writes() -> None:
    def forward(self: Model, x: Tensor) -> Tensor:
        y = x * 2
        y.numpy()[0] = 7
        return y + 1

    with pytest.warns(tl.FidelityWarning, match="was overwritten by code that can't be observed"):
        log = tl.log_forward_pass(Model(forward), rows())
    assert types(log) == ["mul", "aliasupdate", "add"] and not log.validate()
    assert torch.equal(log["mul"].activation, rows() * 2)  # type: ignore[arg-type]
    assert log["aliasupdate"].activation[0].tolist() == [7, 7, 7, 7]  # type: ignore[index]


def test_by_way_of_numpy() -> None:
    def forward(self: Model, x: Tensor) -> Tensor:
        return torch.from_numpy(np.sin((x * 2).numpy())) + 1

    with pytest.warns(tl.FidelityWarning, match="came from outside torch after a tensor was handed out"):
        log = tl.log_forward_pass(Model(forward), rows(), check_completeness=True)
    assert types(log) == ["mul", "source", "add"] and not log.completeness and not log.validate()
    assert "came from outside torch after a tensor was handed out" in str(log.completeness)
    numbers = Model(lambda self, x: torch.tensor((x * 2).tolist()) + 1)
    with pytest.warns(tl.FidelityWarning, match="was made of numbers that had been read from tensors"):
        assert not tl.log_forward_pass(numbers, rows()).validate()
    brought_in = Model(lambda self, x: x + torch.from_numpy(np.ones(4, np.float32)) + torch.Tensor([1, 2, 3, 4]))
    assert types(sound(brought_in, rows())) == ["source", "add", "source", "add"]
    same_memory = Model(lambda self, x: torch.from_numpy((x * 2).numpy()) + 1)
    assert types(sound(same_memory, rows())) == ["mul", "add"]


def test_memory_of_numpy() -> None:
    def forward(self: Model, x: Tensor) -> Tensor:
        array = np.zeros(4, np.float32)
        held = torch.from_numpy(array)
        y = x + held
        array += 1
        return y * held

    with pytest.warns(tl.FidelityWarning, match="was overwritten by code that can't be observed"):
        log = tl.log_forward_pass(Model(forward), rows())
    assert types(log) == ["source", "add", "aliasupdate", "mul"] and not log.validate()
    assert torch.equal(log["output_1"].activation, rows())  # type: ignore[arg-type]


def test_other_names_for_a_tensor() -> None:
    def forward(self: Model, x: Tensor) -> Tensor:
        return copy.copy(x * 2) + torch.autograd.Variable(x * 3) + (x * 4).as_subclass(Tensor)

    with torch.no_grad():
        log = sound(Model(forward), rows())
    assert [types(log).count(kind) for kind in ("mul", "add", "source")] == [3, 2, 0]


def test_constants() -> None:
    table, constant = {"kept": [torch.ones(4)]}, torch.ones(4)
    model = Model(lambda self, x: x + table["kept"][0] + constant + torch.FloatTensor([1.0]))
    assert types(sound(model, rows())) == ["source", "add"] * 3


def test_dlpack() -> None:
    def forward(self: Model, x: Tensor) -> Tensor:
        y = x * 2
        other = torch.from_dlpack(y[1:])
        other[0].mul_(3)
        z = y + 1
        y.add_(1)
        return z + other.sum()

    log = sound(Model(forward), rows())
    assert "aliasupdate" in types(log) and types(log).count("mul") == 2


def test_data_attribute() -> None:
    def forward(self: Model, x: Tensor) -> Tensor:
        y = x * 2
        y.data.mul_(3)
        z = y + 1
        y.data = torch.ones(3, 4)
        return z + y

    assert types(sound(Model(forward), rows())) == ["mul", "data", "mul", "aliasupdate", "add", "ones", "data", "add"]


def test_set() -> None:
    def forward(self: Model, x: Tensor) -> Tensor:
        y, z = x * 2, x * 3
        y.set_(z)  # type: ignore[call-overload]
        w = y + 1
        z.add_(1)
        y.mul_(2)
        return w + y + z

    log = sound(Model(forward), rows())
    assert types(log).count("set") == 1 and types(log).count("aliasupdate") == 2


def test_swapped_tensors() -> None:
    def swapped(self: Model, x: Tensor) -> Tensor:
        y, z = x * 2, x * 3
        torch.utils.swap_tensors(y, z)
        return y - z

    def converted(self: Model, x: Tensor) -> Tensor:
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            return self.fc.double()(x.double())
        finally:
            self.fc.float()
            torch.__future__.set_swap_module_params_on_conversion(False)

    log = sound(Model(swapped), rows())
    assert log["sub"].parent_layers == ["mul_2_2", "mul_1_1"]
    assert types(sound(Model(converted), rows())) == ["double", "double", "double", "linear"]


def test_parameters_changed_afterwards() -> None:
    model, x = small(), rows()
    log = tl.log_forward_pass(model, x)
    assert log.validate()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(x).sum().backward()
    optimizer.step()
    report = log.validate()
    assert not report and not [p for p in report.problems if p.check == "replay"]
    assert "parameters: 0.weight has been written to since the forward pass" in str(report)
    assert [label for label, _ in report.unverified] == ["linear_1_1", "linear_2_3"]


# ---- operators of others --------------------------------------------------------------------------------------


@torch.library.custom_op("compatibility::doubled", mutates_args=(), schema="(Tensor x) -> Tensor")
def doubled(x: Tensor) -> Tensor:
    return x * 2


@torch.library.custom_op("compatibility::raise_", mutates_args=("x",), schema="(Tensor(a!) x) -> ()")
def raise_(x: Tensor) -> None:
    x.add_(1)


library = torch.library.Library("compatibility", "FRAGMENT")
library.define("liar(Tensor x) -> Tensor")
library.impl("liar", lambda x: x.add_(1).clone(), "CPU")


def test_custom_operators() -> None:
    def forward(self: Model, x: Tensor) -> Tensor:
        y = torch.ops.compatibility.doubled(x)
        row = y[0]
        raise_(y)
        return y + row

    with torch.no_grad():
        log = sound(Model(forward), rows())
    assert types(log) == ["doubled", "getitem", "raise", "aliasupdate", "add"]


def test_custom_operators_that_lie() -> None:
    def forward(self: Model, x: Tensor) -> Tensor:
        y = x * 2
        return torch.ops.compatibility.liar(y) + y

    with torch.no_grad(), pytest.warns(tl.FidelityWarning, match="overwritten by code that can't be observed"):
        log = tl.log_forward_pass(Model(forward), rows())
    assert torch.equal(log["mul"].activation, rows() * 2)  # type: ignore[arg-type]
    assert not log.validate()
    assert torch.equal(log["mul"].activation, rows() * 2)  # type: ignore[arg-type]  # validation leaves it alone


# ---- the document ---------------------------------------------------------------------------------------------


def documented() -> list[str]:
    return re.findall(r"\| `(test_\w+)` \|$", DOCUMENT.read_text(), re.MULTILINE)


def names_of_tests() -> list[str]:
    return [name for name in globals() if name.startswith("test_") and name not in _ABOUT_THE_DOCUMENT]


_ABOUT_THE_DOCUMENT = {"test_every_row_has_a_test_and_every_test_a_row", "test_no_row_is_a_bare_refusal"}


def test_every_row_has_a_test_and_every_test_a_row() -> None:
    assert sorted(documented()) == sorted(names_of_tests())
    lines = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("|")]
    assert len([line for line in lines if not re.match(r"\|( -+ \||-+\||.*\| Test \|)", line)]) == len(documented())


def test_no_row_is_a_bare_refusal() -> None:
    """Whatever is not simply logged quotes the words that the user meets."""
    for line in DOCUMENT.read_text().splitlines():
        if line.startswith("|") and re.search(r"unsupported|not supported|can't be", line):
            assert re.search(r"\"[^\"]+\"", line), line
