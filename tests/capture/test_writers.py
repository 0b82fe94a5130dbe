"""What a function writes to is known from torch's schemas, for every operator of the installed torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torchlens as tl
from torchlens._torch import function_namespaces, schemas_of
from torchlens.capture.containers import flat_tensors
from torchlens.capture.functions import KNOWN, Function, Treatment, classify
from torchlens.capture.writers import UNDECLARED

# ---- what is logged -------------------------------------------------------------------------------------------


class Writes(nn.Module):
    """Lets a function overwrite some of a few tensors of its own, then uses them all."""

    def __init__(self, write: Callable[..., Any], *sizes: int) -> None:
        super().__init__()
        self.write = write
        for number, size in enumerate(sizes):
            self.register_buffer(f"buffer{number}", torch.arange(1.0, size + 1))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        made = [buffer * 1 for buffer in self.buffers()]
        self.write(x * 1, *made)
        self.write(x * 1, *self.buffers())
        return tuple([tensor * 2 for tensor in [*made, *self.buffers()]])


def adam(x: Tensor, *state: Tensor) -> None:
    lists = [[tensor] for tensor in state]
    torch._fused_adam_(
        lists[0], lists[1], lists[2], lists[3], [], lists[4], lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.0, eps=1e-8,
        amsgrad=False, maximize=False,
    )  # fmt: skip


def sgd(x: Tensor, param: Tensor, grad: Tensor, momentum: Tensor) -> None:
    torch._fused_sgd_(
        [param], [grad], [momentum], weight_decay=0.0, momentum=0.9, lr=0.1, dampening=0.0, nesterov=False,
        maximize=False, is_first_step=False,
    )  # fmt: skip


def update_scale(x: Tensor, scale: Tensor, result: Tensor) -> None:
    tracker = torch.zeros(1, dtype=torch.int32)
    torch._amp_update_scale_(scale, tracker, torch.zeros(1), 2.0, 0.5, 10)
    result.copy_(tracker)


def unscale(x: Tensor, grad: Tensor, found: Tensor, scale: Tensor) -> None:
    found.zero_()
    torch._amp_foreach_non_finite_check_and_unscale_([grad / 0], found, scale)


def moving_average(x: Tensor, *state: Tensor) -> None:
    on = torch.ones(1, dtype=torch.int64)
    zero_point = torch.zeros(1, dtype=torch.int32)
    torch.fused_moving_avg_obs_fake_quant(x, on, on, state[0], state[1], state[2], zero_point, 0.1, 0, 255, 0)


@torch.library.custom_op(
    "torchlens_test_writers::double_second", mutates_args=("b",), schema="(Tensor a, Tensor(a!) b) -> Tensor"
)
def double_second(a: Tensor, b: Tensor) -> Tensor:
    b.mul_(2)
    return a + b.sum()


@torch.library.custom_op(
    "torchlens_test_writers::fill_by_name", mutates_args=("b",), schema="(Tensor a, Tensor(a!) b) -> ()"
)
def fill_by_name(a: Tensor, b: Tensor) -> None:
    b.copy_(a.sum())


WRITES: dict[str, Writes] = {
    "batch_norm_update_stats": Writes(lambda x, m, v: torch.batch_norm_update_stats(x, m, v, 0.1), 3, 3),
    "_native_batch_norm_legit": Writes(
        lambda x, m, v: torch._native_batch_norm_legit(x, None, None, m, v, True, 0.1, 1e-5), 3, 3
    ),
    "_batch_norm_with_update": Writes(
        lambda x, m, v: torch.ops.aten._batch_norm_with_update(x, None, None, m, v, 0.1, 1e-5), 3, 3
    ),
    "_batch_norm_impl_index": Writes(
        lambda x, m, v: torch._batch_norm_impl_index(x, None, None, m, v, True, 0.1, 1e-5, False), 3, 3
    ),
    "native_batch_norm": Writes(lambda x, m, v: torch.native_batch_norm(x, None, None, m, v, True, 0.1, 1e-5), 3, 3),
    "_fused_adam_": Writes(adam, 3, 3, 3, 3, 1),
    "_fused_sgd_": Writes(sgd, 3, 3, 3),
    "_amp_update_scale_": Writes(update_scale, 1, 1),
    "_amp_foreach_non_finite_check_and_unscale_": Writes(unscale, 3, 1, 1),
    "_foreach_add_": Writes(lambda x, a, b: torch._foreach_add_([a, b], 1.5), 3, 2),
    "_foreach_copy_": Writes(lambda x, a, b: torch._foreach_copy_([a, b], [b.clone(), a.clone()]), 3, 3),
    "fused_moving_avg_obs_fake_quant": Writes(moving_average, 1, 1, 1),
    "rrelu_with_noise": Writes(lambda x, noise: torch._C._nn.rrelu_with_noise(-x, noise.expand(4, 3).clone()), 3),
    "out": Writes(lambda x, a: torch.sum(x, 0, out=a), 3),
    "two outs": Writes(lambda x, a, b: torch.frexp(a, out=(b, torch.empty(3, dtype=torch.int32))), 3, 3),
    "out of an operator": Writes(lambda x, a: torch.ops.aten.sum.IntList_out(x, [0], out=a), 3),
    "outs of an operator": Writes(
        lambda x, a, b: torch.ops.aten.var_mean.correction_out(x, [0], correction=1, out0=a, out1=b), 3, 3
    ),
    "outs of an operator's packet": Writes(lambda x, a, b: torch.ops.aten.var_mean(x, [0], out0=a, out1=b), 3, 3),
    "by name": Writes(lambda x, a: torch.threshold_(threshold=2.0, value=-1.0, input=a), 3),
    "custom": Writes(lambda x, a: double_second(x, a), 3),
    "custom, by name": Writes(lambda x, a: fill_by_name(x, b=a), 3),
    "custom, packet": Writes(lambda x, a: torch.ops.torchlens_test_writers.double_second(x, b=a), 3),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_a_function_wrote_is_what_later_operations_use(name: str) -> None:
    if name == "_batch_norm_with_update" and not hasattr(torch.ops.aten, name):
        pytest.skip(f"this torch does not have the operator {name} yet")
    x = torch.rand(4, 3)
    plain = deepcopy(WRITES[name])(x)
    log = tl.log_forward_pass(deepcopy(WRITES[name]), x)
    assert not log.warnings
    for label, tensor in zip(log.output_layers, plain, strict=True):
        (parent,) = (log[each] for each in log[label].parent_layers)
        assert torch.equal(parent.activation, tensor)
        (used,) = (log[each] for each in parent.parent_layers)
        assert torch.equal(used.activation * 2, tensor), f"{parent.label} was computed from {used.label}"
    assert log.validate()


@pytest.mark.parametrize("name", WRITES)
def test_fastlog_sees_what_a_function_wrote(name: str) -> None:
    x = torch.rand(4, 3)
    plain = deepcopy(WRITES[name])(x)
    recording = tl.fastlog.record(deepcopy(WRITES[name]), x, keep_op=lambda op: True)
    found = [record.activation for record in recording if record.activation is not None]
    assert all(any(one.shape == t.shape and torch.equal(one, t) for one in found) for t in plain)


# ---- every schema of the installed torch -----------------------------------------------------------------------


def all_operators() -> Iterator[tuple[str, list[Any]]]:
    """Every operator that the dispatcher knows, with its schemas."""
    for name in sorted({schema.name for schema in torch._C._jit_get_all_schemas()}):
        schemas = schemas_of(name)
        if schemas:
            yield name, schemas


def declared(schema: Any) -> list[Any]:
    return [each for each in schema.arguments if each.alias_info is not None and each.alias_info.is_write]


def writes(function: Function, schema: Any) -> set[str]:
    """The arguments of an overload that are taken for written, by name."""
    markers = {each.name: torch.ones(1) for each in schema.arguments}
    args = [markers[each.name] for each in schema.arguments if not each.kwarg_only]
    kwargs = {each.name: markers[each.name] for each in schema.arguments if each.kwarg_only}
    found = [*(function.written(args, kwargs) if function.written else []), kwargs.get("out")]
    return {name for name, marker in markers.items() if any(marker is each for each in flat_tensors(found))}


HARMLESS = {"record_stream", "retain_grad", "requires_grad_"}  # marked as writing, though no value changes


def test_every_writer_is_known_as_such_in_torch_ops() -> None:
    checked = 0
    for name, schemas in all_operators():
        namespace, bare = name.split("::")
        for schema in schemas:
            if not declared(schema) or bare in HARMLESS:
                continue
            packet = getattr(getattr(torch.ops, namespace), bare)
            wanted = {each.name for each in declared(schema)}
            for func in (packet, getattr(packet, schema.overload_name or "default")):
                assert wanted <= writes(KNOWN.get(func) or classify(func), schema), f"{func} writes to {wanted}"
            checked += 1
    assert checked > 1000


def test_every_writer_is_known_as_such_in_python() -> None:
    checked = 0
    for space in function_namespaces().values():
        for name in dir(space):
            func = getattr(space, name)
            if name in HARMLESS or not callable(func) or isinstance(func, type):
                continue
            function = KNOWN.get(func) or classify(func)
            if function.treatment is not Treatment.RECORD:
                continue
            for schema in schemas_of(f"aten::{name}"):
                if declared(schema) and not any(each.kwarg_only for each in declared(schema)):
                    assert {each.name for each in declared(schema)} <= writes(function, schema), name
                    checked += 1
    assert checked > 400


def test_what_no_schema_declares_is_in_the_table_and_nothing_else() -> None:
    """Statistics are the one thing that torch updates without declaring it."""
    unexplained = {
        name.split("::")[1]
        for name, schemas in all_operators()
        for schema in schemas
        for each in schema.arguments
        if each.name in {name for names in UNDECLARED.values() for name in names}
        and each not in declared(schema)
        and not declared(schema)
    }
    pure = {name for name in unexplained if name.endswith(("_backward", "_functional", "_no_update", "_no_training"))}
    assert unexplained - pure | {"qconv2d_pointwise"} == set(UNDECLARED)


def test_functions_that_only_share_a_name_with_a_writer_of_lists_write_to_nothing() -> None:
    for func in (torch.sort, Tensor.sort):
        assert (KNOWN.get(func) or classify(func)).written is None
    packet: Any = torch.ops.aten.sort
    written = (KNOWN.get(packet) or classify(packet)).written
    assert written is not None and not written([torch.rand(3)], {})  # with `values` and `indices` it does


@pytest.mark.parametrize("func", [torch.native_batch_norm, torch.ops.aten.native_batch_norm, torch.batch_norm])
def test_running_statistics_are_written_in_training_only(func: Any) -> None:
    written = (KNOWN.get(func) or classify(func)).written
    mean, var = torch.zeros(3), torch.ones(3)
    args = [torch.rand(2, 3), None, None, mean, var]
    assert written is not None and not flat_tensors(written([*args, False, 0.1, 1e-5], {}))
    assert [id(each) for each in flat_tensors(written([*args, True, 0.1, 1e-5], {}))] == [id(mean), id(var)]


# ---- calls that write and then raise ----------------------------------------------------------------------------

BAD = [0, 1, 99]


class RaisesAfterWriting(nn.Module):
    """Catches what an operation raises that has written to a part of its target by then."""

    def __init__(self, write: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.write = write
        self.register_buffer("kept", torch.arange(12.0).reshape(4, 3))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        made = x * 2
        rows = [made.unbind()[0], self.kept[0]]
        for tensor in (made, self.kept):
            with contextlib.suppress(IndexError, RuntimeError):
                self.write(tensor)
        return tuple([tensor + 1 for tensor in (made, self.kept, *rows)])


def long(*numbers: int) -> Tensor:
    return torch.tensor(numbers)


RAISING: dict[str, Callable[[Tensor], Any]] = {
    "index_add_": lambda t: t.index_add_(0, long(*BAD), torch.full((3, 3), 5.0)),
    "index_copy_": lambda t: t.index_copy_(0, long(*BAD), torch.full((3, 3), 5.0)),
    "index_fill_": lambda t: t.index_fill_(0, long(*BAD), 5.0),
    "index_reduce_": lambda t: t.index_reduce_(0, long(*BAD), torch.full((3, 3), 5.0), "prod"),
    "scatter_": lambda t: t.scatter_(0, long(0, 1, 99)[:, None].expand(3, 3), torch.full((3, 3), 5.0)),
    "scatter_add_": lambda t: t.scatter_add_(0, long(0, 1, 99)[:, None].expand(3, 3), torch.full((3, 3), 5.0)),
    "put_": lambda t: t.put_(long(*BAD), torch.full((3,), 5.0)),
    "index_put_": lambda t: t.index_put_((long(*BAD),), torch.tensor(5.0)),
    "__setitem__": lambda t: t.__setitem__(long(*BAD), 5.0),
    "out": lambda t: torch.index_add(torch.ones(4, 3), 0, long(*BAD), torch.full((3, 3), 5.0), out=t),
    "a view": lambda t: t[:2].index_add_(0, long(*BAD), torch.full((3, 3), 5.0)),
    "before it writes": lambda t: t.add_(torch.ones(7)),
    "an operator": lambda t: torch.ops.aten.index_fill_.int_Scalar(t, 0, long(*BAD), 5.0),
    "custom": lambda t: write_and_raise(t),
}


@torch.library.custom_op("torchlens_test_writers::write_and_raise", mutates_args=("a",), schema="(Tensor(a!) a) -> ()")
def write_and_raise(a: Tensor) -> None:
    a[0].fill_(5)
    raise RuntimeError("after writing")


@pytest.mark.parametrize("chosen", ["all", "some"])
@pytest.mark.parametrize("name", RAISING)
def test_what_was_written_before_a_call_raised_is_seen(name: str, chosen: str) -> None:
    x = torch.rand(4, 3)
    plain = RaisesAfterWriting(RAISING[name])(x)
    layers: Any = "all" if chosen == "all" else ["add", "output"]
    log = tl.log_forward_pass(RaisesAfterWriting(RAISING[name]), x, layers_to_save=layers)
    assert not log.warnings
    assert all(
        torch.equal(log[label].activation, tensor) for label, tensor in zip(log.output_layers, plain, strict=True)
    )
    if chosen == "some":
        return
    for label in log.output_layers:
        (result,) = (log[each] for each in log[label].parent_layers)
        (used,) = (log[each] for each in result.parent_layers)
        assert torch.equal(used.activation + 1, result.activation), f"{result.label} was computed from {used.label}"
    assert log.validate(), log.validate()


def test_a_call_that_raises_before_it_writes_is_not_logged() -> None:
    log = tl.log_forward_pass(RaisesAfterWriting(RAISING["before it writes"]), torch.rand(4, 3))
    assert [op.layer_type for op in log].count("add") == 4


def test_what_a_module_returns_after_a_write_that_raised() -> None:
    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            made = x * 2
            with contextlib.suppress(IndexError):
                made.index_fill_(0, long(*BAD), 5.0)
            return made

    x = torch.rand(4, 3)
    log = tl.log_forward_pass(nn.Sequential(Inner()), x)
    assert torch.equal(log["0"].activation, Inner()(x))
