"""Tiny models, each one hard case of logging, with what is known about its log beforehand.

    @case(taps="relu_1_1", edges={"relu_1_1": "input_1_0"})
    def relu_function(x):
        '''One line that says what is hard.'''
        return tap(F.relu(x))

A case is a plain function of the inputs, or an nn.Module where there is state. `tap` marks the tensors whose
values an oracle records in a plain run; `taps` names, in the same order, the log entries that must hold them.
"""

from __future__ import annotations

import copy
import functools
import pickle
import threading
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from tests.torch_version import torch_is_at_least
from torch import Tensor, nn, relu
from torch.nn.utils import parametrizations
from torch.utils.flop_counter import FlopCounterMode

clamp_held_in_a_partial = functools.partial(torch.clamp, min=0.1)

# ---- the oracle's probe ---------------------------------------------------------------------------------------

_probes: list[Callable[[Tensor], Tensor | None]] = []


def tap(tensor: Tensor) -> Tensor:
    """The tensor itself, or what a probe that is active answers. Calls no torch function else."""
    for probe in _probes:
        answer = probe(tensor)
        tensor = tensor if answer is None else answer
    return tensor


@contextmanager
def probed(probe: Callable[[Tensor], Tensor | None]) -> Iterator[None]:
    """Show every tapped tensor to `probe`."""
    _probes.append(probe)
    try:
        yield
    finally:
        _probes.remove(probe)


@contextmanager
def recorded_taps() -> Iterator[list[Tensor]]:
    """Collect a copy of every tapped tensor, in order."""
    record: list[Tensor] = []
    with probed(lambda tensor: record.append(tensor.detach().clone())):
        yield record


# ---- cases ----------------------------------------------------------------------------------------------------

Inputs = Callable[[], list[Any]]
ByMode = str | Mapping[str, str]

WITH_GRAD, WITHOUT_GRAD = ("train", "eval"), ("train-nograd", "eval-nograd", "eval-inference")


@dataclass(frozen=True)
class Case:
    """A model, what to call it with, and what its log must say.

    `taps` and the parents in `edges` are labels separated by spaces. `taps` may differ between modes: a dict by
    the mode, by "train" or "eval", or by "" for all others.
    """

    name: str
    about: str
    build: Callable[[], nn.Module]
    inputs: Inputs
    kwargs: Callable[[], dict[str, Any]] = dict
    taps: ByMode = ""
    edges: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)  # the parameters that operations work with
    origins: Mapping[str, str] = field(default_factory=dict)  # what must be among the ancestors, parameters included
    input_grad: bool = True  # inputs require grad in the runs with grad
    backward: bool = True  # the outputs can be differentiated twice over, once in each run
    modes: tuple[str, ...] = (*WITH_GRAD, *WITHOUT_GRAD)
    hooks: bool = True  # a forward hook on each submodule sees each of its calls and changes no path
    warns: bool = False
    repeatable: bool = True  # no random numbers, uninitialised memory or caches of torch's in the log

    def tap_labels(self, mode: str) -> list[str]:
        if isinstance(self.taps, str):
            return self.taps.split()
        keys = (mode, mode.partition("-")[0], "")
        return next(self.taps[key] for key in keys if key in self.taps).split()


CASES: list[Case] = []


#: Models that the installed torch can't run, with the version that can.
TOO_NEW: dict[str, str] = {}


def case(inputs: Inputs | None = None, *, since: str = "2.4", **facts: Any) -> Callable[[Any], Any]:
    """Register a function or module class as a case; `since` is the first torch that runs it, without us."""

    def register(model: Any) -> Any:
        if not torch_is_at_least(since):
            TOO_NEW[model.__name__] = since
            return model
        build = model if isinstance(model, type) else functools.partial(Forward, model)
        about = (model.__doc__ or "").strip()
        CASES.append(Case(model.__name__, about, build, inputs or one_matrix, **facts))
        return model

    return register


class Forward(nn.Module):
    """A model without state: its forward is a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def one_matrix() -> list[Any]:
    return [torch.randn(2, 3)]


def normal(*shapes: tuple[int, ...], dtype: torch.dtype | None = None) -> Inputs:
    return lambda: [torch.randn(*shape, dtype=dtype) for shape in shapes]


# ---- plain ----------------------------------------------------------------------------------------------------


@case(taps="linear_1_1 relu_1_2 linear_2_3", edges={"linear_2_3": "relu_1_2", "output_1_4": "linear_2_3"})
class PlainChain(nn.Module):
    """Nothing special."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.second = nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return tap(self.second(tap(self.act(tap(self.first(x))))))


@case(taps="relu_1_1 exp_1_2 relu_2_3 tanh_1_4 relu_3_5 sin_1_6 clamp_1_7")
def relu_in_every_spelling(x: Tensor) -> Tensor:
    """From nn.functional, from torch, imported by name, held in a partial."""
    x = tap(tap(F.relu(x)).exp())
    x = tap(tap(torch.relu(x)).tanh())
    x = tap(tap(relu(x)).sin())
    return tap(clamp_held_in_a_partial(x))


@case(
    taps="add_1_1 sub_1_2 mul_1_3 truediv_1_4 floordivide_1_5 remainder_1_6 pow_1_7 t_1_8 matmul_1_9",
    edges={"matmul_1_9": "pow_1_7 t_1_8", "truediv_1_4": "mul_1_3"},
    backward=False,
)
def operators(x: Tensor) -> Tensor:
    """Arithmetic operators."""
    x = tap(tap(tap(tap(x + 3) - 1) * 5) / 2)
    x = tap(tap(tap(x // 0.1) % 7) ** 2)
    return tap(x @ tap(x.T))


@case(taps="mul_1_2 rsub_1_3 pow_1_4 mul_2_5 add_1_6", edges={"mul_1_2": "reciprocal_1_1", "rsub_1_3": "mul_1_2"})
def reversed_operators(x: Tensor) -> Tensor:
    """A number on the left: 1 / x is a reciprocal and a product, as torch computes it."""
    return tap(2 + tap(3 * tap(2 ** tap(1 - tap(1 / x)))))


@case(taps="gt_1_1 le_1_2 invert_1_3 and_1_4 eq_1_5 or_1_6 xor_1_7 ne_1_8 mul_1_9")
def comparisons_and_logic(x: Tensor) -> Tensor:
    """Comparisons and the operators of bool tensors."""
    above, below = tap(x > 0), tap(x <= 1)
    both = tap(tap(~above) & below)
    either = tap(both | tap(x == 0))
    return tap(x * tap(tap(either ^ above) != below))


@case(normal((2, 3), dtype=torch.complex64), taps="t_1_1 mt_1_2 real_1_3 imag_1_4 add_1_5 h_1_7 matmul_1_8")
def tensor_properties(z: Tensor) -> Tensor:
    """Properties that give tensors, of complex numbers."""
    z = tap(tap(z.T).mT)
    total = tap(tap(z.real) + tap(z.imag))
    return total.sum() * tap(tap(z.H) @ z)


@case(taps="complex_1_2 fftfft_1_3 abs_1_4 angle_1_5 fftirfft_1_7")
def complex_and_fft(x: Tensor) -> Tensor:
    """Complex numbers and functions of torch.fft."""
    z = tap(torch.fft.fft(tap(torch.complex(x, -x))))
    return tap(torch.fft.irfft(tap(z.abs()) + tap(z.angle()), n=4))


@case(
    normal((2, 6)),
    taps="chunk_1_1 chunk_2_2 splitwithsizes_1_3 splitwithsizes_2_4 unbind_1_5 unbind_2_6 "
    "topk_1_7 topk_2_8 max_1_9 max_2_10 sort_2_12",
    edges={"chunk_2_2": "input_1_0", "topk_2_8": "input_1_0", "add_1_13": "chunk_1_1 chunk_2_2"},
)
def several_outputs(x: Tensor) -> Any:
    """Functions that return tuples, lists and named tuples: one entry for each tensor."""
    a, b = x.chunk(2, dim=1)
    c, d = x.split([2, 4], dim=1)
    e, f = x.unbind(0)
    top, biggest = x.topk(2), x.max(dim=1)
    order = torch.sort(x, dim=0).indices
    for part in (a, b, c, d, e, f, top.values, top.indices, biggest.values, biggest.indices, order):
        tap(part)
    return a + b, c.sum() + d.sum(), (e, f), top, biggest, order


# ---- writing in place -----------------------------------------------------------------------------------------


@case(
    taps="linear_1_1 relu_1_2 linear_2_3",
    edges={"relu_1_2": "linear_1_1", "linear_2_3": "relu_1_2"},
)
class InPlaceReluModule(nn.Module):
    """nn.ReLU(inplace=True): the value before it must survive."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.second = nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return tap(self.second(tap(self.act(tap(self.first(x))))))


@case(
    taps="mul_1_1 relu_1_2 add_1_3 setitem_1_5 exp_1_6",
    backward=False,
    edges={"add_1_3": "relu_1_2", "setitem_1_5": "add_1_3 getitem_1_4", "exp_1_6": "setitem_1_5"},
)
def writes_in_a_chain(x: Tensor) -> Tensor:
    """relu_, += and item assignment on the same tensor: each makes a new value."""
    y = tap(x * 2)
    tap(y.relu_())
    y += 1
    tap(y)
    y[0] = x[1]
    tap(y)
    return tap(y.exp())


@case(
    taps="mul_1_1 getitem_1_2 add_1_3 setitem_1_5",
    edges={"add_1_3": "getitem_1_2", "aliasupdate_1_4": "mul_1_1 add_1_3", "setitem_1_5": "aliasupdate_1_4 add_1_3"},
)
def augmented_assignment_to_a_part(x: Tensor) -> Tensor:
    """`y[:, 1] += 2` reads, adds in place through the view, and assigns."""
    y = tap(x * 2)
    part = tap(y[:, 1])
    part += 2
    tap(part)
    y[:, 1] = part
    return tap(y).exp()


@case(
    taps="mul_1_1 getitem_1_2 add_1_3 aliasupdate_1_4 sum_1_5",
    edges={"aliasupdate_1_4": "mul_1_1 add_1_3", "sum_1_5": "aliasupdate_1_4"},
)
def write_through_a_view(x: Tensor) -> Tensor:
    """A view is overwritten, then the base is used: the base has changed."""
    y = tap(x * 2)
    row = tap(y[0])
    tap(row.add_(1))
    return tap(tap(y).sum())


@case(
    taps="mul_1_1 getitem_1_2 add_1_3 aliasupdate_1_4 exp_1_5",
    edges={"aliasupdate_1_4": "getitem_1_2 add_1_3", "exp_1_5": "aliasupdate_1_4"},
)
def write_to_the_base(x: Tensor) -> Tensor:
    """The base is overwritten, then an older view of it is used: the view has changed."""
    y = tap(x * 2)
    row = tap(y[0])
    y.add_(1)
    tap(y)
    return tap(tap(row).exp())


@case(
    normal((3, 2)),
    taps="mul_1_1 getitem_1_2 getitem_2_3 zero_1_4 aliasupdate_1_5 exp_1_6",
    edges={"aliasupdate_1_5": "getitem_2_3 zero_1_4", "exp_1_6": "aliasupdate_1_5"},
)
def overlapping_views(x: Tensor) -> Tensor:
    """Two views share a row; one is overwritten, the other used."""
    y = tap(x * 2)
    top, bottom = tap(y[:2]), tap(y[1:])
    tap(top.zero_())
    return tap(tap(bottom).exp())


@case(
    normal((2, 4)),
    taps="mul_1_1 getitem_1_2 getitem_2_3 add_1_4 exp_1_5",
    edges={"add_1_4": "getitem_1_2", "exp_1_5": "getitem_2_3"},
)
def disjoint_views(x: Tensor) -> tuple[Tensor, Tensor]:
    """Two views share nothing; overwriting one does not change the other."""
    y = tap(x * 2)
    left, right = y[:, :2], y[:, 2:]
    tap(left), tap(right)
    tap(left.add_(1))
    return left, tap(right.exp())


@case(
    taps="mul_1_1 view_1_2 t_1_3 getitem_1_4 fill_1_5 aliasupdate_1_6",
    edges={"fill_1_5": "getitem_1_4", "aliasupdate_1_6": "mul_1_1 fill_1_5"},
)
def write_through_a_view_of_a_view(x: Tensor) -> Tensor:
    """Three views deep."""
    y = tap(x * 2)
    deep = tap(tap(tap(y.view(3, 2)).t())[1])
    tap(deep.fill_(7))
    return tap(y).cos()


@case(
    taps="mul_1_1 detach_1_2 add_1_3 aliasupdate_1_4",
    edges={"add_1_3": "detach_1_2", "aliasupdate_1_4": "mul_1_1 add_1_3"},
)
def write_to_a_detached_alias(x: Tensor) -> Tensor:
    """`detach()` shares memory and the version counter."""
    y = tap(x * 2)
    tap(tap(y.detach()).add_(1))
    return tap(y) + 0


@case(
    taps="mul_1_1 data_1_2 add_1_3 aliasupdate_1_4",
    edges={"add_1_3": "data_1_2", "aliasupdate_1_4": "mul_1_1 add_1_3", "sin_1_5": "aliasupdate_1_4"},
)
def write_through_data(x: Tensor) -> Tensor:
    """`.data` shares memory, but writes through it are not counted by torch."""
    y = tap(x * 2)
    tap(tap(y.data).add_(1))
    return tap(y).sin()


@case(
    taps="mul_1_1 add_1_3 mul_2_4",
    edges={"zeroslike_1_2": "mul_1_1", "add_1_3": "mul_1_1 input_1_0", "mul_2_4": "add_1_3"},
    modes=WITHOUT_GRAD,
)
def out_argument(x: Tensor) -> Tensor:
    """`out=` into a tensor of the right size: what was in it is no parent."""
    y = tap(x * 2)
    z = torch.zeros_like(y)
    torch.add(y, x, out=z)
    tap(z)
    return tap(z * 3)


@case(taps="mul_1_1 add_1_2 exp_1_3", modes=WITHOUT_GRAD)
def out_argument_that_grows(x: Tensor) -> Tensor:
    """`out=` into an empty tensor, which torch resizes, of which a value is kept."""
    y = tap(x * 2)
    z = torch.empty(0)
    tap(torch.add(y, x, out=z))
    return tap(z.exp())


@case(
    taps="mul_1_1 topk_1_2 topk_2_3 add_1_4",
    edges={"topk_1_2": "mul_1_1", "topk_2_3": "mul_1_1", "add_1_4": "topk_1_2 topk_2_3"},
    modes=WITHOUT_GRAD,
)
def two_out_arguments(x: Tensor) -> Tensor:
    """`out=` with a tuple."""
    y = tap(x * 2)
    values, indices = torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.int64)
    torch.topk(y, 2, out=(values, indices))
    return tap(tap(values) + tap(indices))


@case(taps="mul_1_1 indexput_1_5 maskedfill_1_7 scatter_1_9 copy_1_11")
def index_writes(x: Tensor) -> Tensor:
    """index_put_, masked_fill_, scatter_ and copy_."""
    y = tap(x * 2)
    tap(y.index_put_((torch.tensor([0, 1]), torch.tensor([1, 2])), torch.tensor(9.0)))
    tap(y.masked_fill_(x > 0, -1.0))
    tap(y.scatter_(1, torch.tensor([[0], [2]]), 4.0))
    return tap(y.copy_(x.flip(0)))


@case(taps="mul_1_1 transpose_1_2 add_1_3", edges={"add_1_3": "transpose_1_2"})
def geometry_changed_in_place(x: Tensor) -> Tensor:
    """transpose_ changes a tensor's shape, not its memory."""
    y = tap(x * 2)
    tap(y.transpose_(0, 1))
    return tap(y + 1)


@case(input_grad=False, taps="mul_1_1 exp_1_2", edges={"exp_1_2": "mul_1_1", "mul_1_1": "input_1_0"})
def writes_to_its_input(x: Tensor) -> Tensor:
    """The caller's tensor is overwritten; the input's entry keeps what was given."""
    tap(x.mul_(2))
    return tap(x.exp())


@case(input_grad=False, taps="getitem_1_1 zero_1_2 aliasupdate_1_3 exp_1_4")
def writes_to_a_part_of_its_input(x: Tensor) -> Tensor:
    """The caller's tensor is overwritten through a view."""
    tap(tap(x[0]).zero_())
    return tap(tap(x).exp())


@case(taps="mul_1_1 exp_1_2 add_1_3", edges={"add_1_3": "mul_1_1"}, modes=WITHOUT_GRAD)
def numpy_view_then_torch_writes(x: Tensor) -> Tensor:
    """A NumPy array over a tensor's memory sees what torch writes there."""
    y = tap(x * 2)
    array = y.numpy()
    z = tap(y.exp())
    tap(y.add_(1))
    return z + float(array.sum())


@case(taps="mul_1_1 aliasupdate_1_2 cos_1_3", edges={"cos_1_3": "aliasupdate_1_2"}, modes=WITHOUT_GRAD, warns=True)
def numpy_view_then_numpy_writes(x: Tensor) -> Tensor:
    """NumPy writes into a tensor's memory: the value before must survive, the next use sees the new one."""
    y = tap(x * 2)
    y.numpy()[0] = 100.0
    return tap(tap(y).cos())


@case(taps="mul_1_2 exp_1_4 data_1_5 cos_1_6", edges={"cos_1_6": "data_1_5"}, backward=False)
def data_replaced(x: Tensor) -> Tensor:
    """`y.data = z`: another tensor's memory under the same name."""
    y, z = tap(x.detach() * 2), tap(x.detach().exp())
    y.data = z
    return tap(tap(y).cos()) + x


@case(taps="mul_1_2 sin_1_4", origins={"output_1": "add_1"}, backward=False)
def data_replaced_then_written(x: Tensor) -> Tensor:
    """After `y.data = z` the two share memory, but each counts its own writes: writing to y changes z."""
    y, z = tap(x.detach() * 2), tap(x.detach().sin())
    y.data = z
    y.add_(1)
    return z.exp()


@case(
    taps="aliasupdate_1_3 mul_1_4",
    edges={"sum_1_2": "input_1_0", "aliasupdate_1_3": "zeros_1_1 sum_1_2"},
    modes=WITHOUT_GRAD,
)
def out_argument_that_is_a_view(x: Tensor) -> Tensor:
    """`out=` into a row: the whole has changed."""
    rows = torch.zeros(3, 3)
    torch.sum(x, 0, out=rows[0])
    return tap(tap(rows) * 2)


@case(taps="foreachadd_1_3 foreachadd_2_4", edges={"add_1_5": "foreachadd_1_3 foreachadd_2_4"})
def writes_to_a_list(x: Tensor) -> Tensor:
    """One call overwrites every tensor of a list."""
    a, b = x * 2, x.sin()
    torch._foreach_add_([a, b], 1.0)
    return tap(a) + tap(b)


@case(taps="mul_1_1 exp_1_2", modes=WITHOUT_GRAD)
def memory_freed(x: Tensor) -> Tensor:
    """The storage is emptied by hand after its last use, as sharded training does."""
    y = tap(x * 2)
    z = tap(y.exp())
    y.untyped_storage().resize_(0)
    return z + 1


@case(taps="mul_1_1 resize_1_2 fill_1_4 exp_1_5", modes=WITHOUT_GRAD, repeatable=False)
def resized(x: Tensor) -> Tensor:
    """resize_ to fewer elements, then to more."""
    y = tap(x * 2)
    tap(y.resize_(1, 2))
    y.resize_(3, 3)
    y.fill_(2.0)
    return tap(tap(y).exp())


@case(
    normal((2, 3), dtype=torch.complex64),
    taps="mul_1_1 conj_1_2 add_1_3 aliasupdate_1_4",
    edges={"aliasupdate_1_4": "mul_1_1 add_1_3"},
)
def write_through_a_conjugate(z: Tensor) -> Tensor:
    """A conjugate is a view with a flag."""
    y = tap(z * 2)
    tap(tap(y.conj()).add_(1))
    return tap(y) * 2


@case(edges={"output_1_5": "aliasupdate_1_4"}, modes=WITHOUT_GRAD)
def output_overwritten_through_a_view(x: Tensor) -> Tensor:
    """The returned tensor was last changed through another one."""
    y = x * 2
    row = y[0]
    row.zero_()
    return y


@case(
    taps="mul_1_1 aliasupdate_1_3 exp_1_4",
    edges={"aliasupdate_1_3": "mul_1_1 add_1_2", "exp_1_4": "aliasupdate_1_3"},
    modes=WITHOUT_GRAD,
)
def dlpack_alias(x: Tensor) -> Tensor:
    """The same memory in a tensor that torch takes for another one's."""
    y = tap(x * 2)
    torch.from_dlpack(y).add_(1)
    return tap(tap(y).exp())


@case(modes=WITHOUT_GRAD, origins={"output_1": "input_1_0"})
def there_and_back_through_numpy(x: Tensor) -> Tensor:
    """The same memory again, by way of NumPy."""
    y = x * 2
    return torch.from_numpy(y.numpy()).exp()


def views_of_one_tensor() -> list[Any]:
    x = torch.randn(2, 3)
    return [x, x[0]]


@case(
    views_of_one_tensor, edges={"aliasupdate_1_3": "input_1_0 add_1_2", "mul_1_4": "aliasupdate_1_3"}, input_grad=False
)
def inputs_that_share_memory(x: Tensor, row: Tensor) -> Tensor:
    """One input is a view of the other, and is overwritten."""
    row.add_(1)
    return x * 2


@case(
    lambda: [torch.from_numpy(np.ones((2, 3), dtype=np.float32))],
    taps="add_1_1 exp_1_2",
    edges={"exp_1_2": "add_1_1"},
    input_grad=False,
)
def numpy_memory_as_input(x: Tensor) -> Tensor:
    """The input's memory belongs to NumPy and is overwritten."""
    tap(x.add_(1))
    return tap(x.exp())


@case(normal((1, 3)), taps="mul_1_1 expand_1_2")
def output_is_an_expanded_view(x: Tensor) -> Tensor:
    """Elements that share memory with each other."""
    return tap(tap(x * 2).expand(4, 3))


# ---- buffers and constants ------------------------------------------------------------------------------------


@case(
    normal((4, 3)),
    taps={"train": "batchnorm_1_3 relu_1_6", "eval": "batchnorm_1_3 relu_1_4"},
    edges={"batchnorm_1_3": "input_1_0 buffer_1_1 buffer_2_2"},
    params={"batchnorm_1_3": "norm.weight norm.bias"},
)
class BatchNormOnce(nn.Module):
    """Running statistics: read in eval, overwritten without being returned in training."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        return tap(F.relu(tap(self.norm(x))))


@case(normal((4, 3)), taps="batchnorm_1_3:1 batchnorm_1_3:2")
class BatchNormTwice(nn.Module):
    """The second call starts from the statistics that the first one left."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        return tap(self.norm(tap(self.norm(x)) * 2))


@case(normal((2, 3, 4)), taps="instancenorm_1_3", edges={"instancenorm_1_3": "input_1_0 buffer_1_1 buffer_2_2"})
class InstanceNormWithStatistics(nn.Module):
    """Like batch norm, by another function."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm1d(3, track_running_stats=True, affine=True)

    def forward(self, x: Tensor) -> Tensor:
        return tap(self.norm(x))


@case(taps="add_1_2 mul_1_3", edges={"add_1_2": "input_1_0 buffer_1_1", "mul_1_3": "add_1_2 buffer_1_1"})
class BufferUsedTwice(nn.Module):
    """One buffer, two uses, one entry."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        return tap(tap(x + self.shift) * self.shift)


@case(
    taps="add_1_2 mul_1_3 mul_2_4",
    edges={"add_1_2": "input_1_0 buffer_1_1", "mul_1_3": "buffer_1_1", "mul_2_4": "add_1_2 mul_1_3"},
)
class BufferOverwritten(nn.Module):
    """Read, overwritten in place, read again; it stays changed."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        y = tap(x + self.shift)
        tap(self.shift.mul_(0.5))
        return tap(y * self.shift)


@case(taps="add_1_2 mul_1_3 add_2_4", edges={"mul_1_3": "buffer_1_1", "add_2_4": "add_1_2 mul_1_3"})
class BufferReassigned(nn.Module):
    """The name is given a new tensor in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        y = tap(x + self.shift)
        self.shift = tap(self.shift * 0.5)
        return tap(y + self.shift)


@case(origins={"output_1": "add_1"})
class BuffersThatShareMemory(nn.Module):
    """One buffer is a view of the other; written through one, read through the other."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("whole", torch.randn(4))
        self.register_buffer("part", self.whole[:2])

    def forward(self, x: Tensor) -> Tensor:
        self.part.add_(1)
        return x.sum() * self.whole


@case(
    taps="add_1_2:1 add_1_2:2 mul_1_3:2",
    params={"mul_1_3:2": "weight"},
    origins={"add_1_2:2": "add_2_5"},
    backward=False,
)
class StateWrittenThroughData(nn.Module):
    """A buffer and a parameter changed through `.data` between two uses."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.randn(3))
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Tensor:
        y = tap(x + self.shift) * self.weight
        self.shift.data.add_(1)
        self.weight.data.mul_(0.5)
        return tap(tap(y.sin() + self.shift) * self.weight)


@case(taps="ones_1_1 add_1_2 tensor_1_3 mul_1_4 arange_1_5 sub_1_6")
def constants_made_inside(x: Tensor) -> Tensor:
    """Tensors made from nothing."""
    y = tap(x + tap(torch.ones(3)))
    y = tap(y * tap(torch.tensor([1.0, 2.0, 3.0])))
    return tap(y - tap(torch.arange(3)))


@case(taps="add_1_2 mul_1_4", edges={"add_1_2": "input_1_0 source_1_1", "mul_1_4": "add_1_2 source_2_3"})
class ConstantsThatAreNoBuffers(nn.Module):
    """A tensor attribute, and one in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.constant, self.more = torch.randn(3), [torch.randn(3)]

    def forward(self, x: Tensor) -> Tensor:
        return tap(tap(x + self.constant) * self.more[0])


@case(taps="add_1_2", edges={"add_1_2": "input_1_0 source_1_1"})
def from_numpy_inside(x: Tensor) -> Tensor:
    """Memory that NumPy owns, changed by NumPy later."""
    array = np.arange(3, dtype=np.float32)
    y = tap(x + torch.from_numpy(array))
    array[:] = -1
    return y


@case(taps="mul_1_2 add_1_3", edges={"add_1_3": "mul_1_2"}, backward=False)
def parameter_made_inside(x: Tensor) -> Tensor:
    """nn.Parameter of a computed tensor: another object over the same memory, made by no recorded call."""
    y = tap(x.detach() * 2)
    return tap(nn.Parameter(y) + 1)


@case(taps="linear_1_2", params={"clamp_1_1": "weight", "linear_1_2": "weight"})
class WeightClampedInForward(nn.Module):
    """A parameter is overwritten before it is used; it stays a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.clamp_(-0.1, 0.1)
        return tap(F.linear(x, self.weight))


# ---- randomness -----------------------------------------------------------------------------------------------


@case(taps="dropout_1_1 linear_1_2 dropout_2_3")
class Dropouts(nn.Module):
    """Random in training; in eval the function returns its input, yet is an operation."""

    def __init__(self) -> None:
        super().__init__()
        self.drop, self.fc, self.drop_more = nn.Dropout(0.5), nn.Linear(3, 4), nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        return tap(self.drop_more(tap(self.fc(tap(self.drop(x))))))


@case(taps="rand_1_1 add_1_2 randnlike_1_3 mul_1_4 bernoulli_1_7", repeatable=False)
def noise_made_inside(x: Tensor) -> Tensor:
    """Random tensors made in forward, by torch and by NumPy."""
    y = tap(x + tap(torch.rand(3)))
    y = tap(y * tap(torch.randn_like(y))) * float(np.random.rand())
    return y * tap(torch.bernoulli(torch.full((3,), 0.5)))


# ---- calls that do not look like torch functions --------------------------------------------------------------


@case(taps="mul_1_1 relu_1_2 sigmoid_1_3", edges={"relu_1_2": "mul_1_1", "sigmoid_1_3": "relu_1_2"})
def torch_ops(x: Tensor) -> Tensor:
    """Operators called through torch.ops."""
    y = tap(torch.ops.aten.mul.Tensor(x, x))
    return tap(torch.ops.aten.sigmoid(tap(torch.ops.aten.relu_(y))))


@torch.library.custom_op("torchlens_tests::halve", mutates_args=(), schema="(Tensor x) -> Tensor")
def halve(x: Tensor) -> Tensor:
    return x * 0.5


@torch.library.custom_op("torchlens_tests::halve_in_place", mutates_args=("x",), schema="(Tensor(a!) x) -> ()")
def halve_in_place(x: Tensor) -> None:
    x.mul_(0.5)


halve.register_autograd(lambda ctx, grad: grad * 0.5)


@case(taps="add_1_1 halve_1_2 exp_1_3", edges={"halve_1_2": "add_1_1", "exp_1_3": "halve_1_2"})
def custom_op(x: Tensor) -> Tensor:
    """An operator of the user's own."""
    return tap(tap(halve(tap(x + 1))).exp())


@case(
    taps="add_1_1 halveinplace_1_2 exp_1_3",
    edges={"halveinplace_1_2": "add_1_1", "exp_1_3": "halveinplace_1_2"},
    modes=WITHOUT_GRAD,
)
def custom_op_that_writes(x: Tensor) -> Tensor:
    """An operator of the user's own that returns nothing and overwrites its argument."""
    y = tap(x + 1)
    halve_in_place(y)
    return tap(tap(y).exp())


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return tap(x * 2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


class Unchanged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return -grad


class AddedInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


@case(taps="add_1_1 mul_1_2 exp_1_3", edges={"mul_1_2": "add_1_1", "exp_1_3": "mul_1_2"})
def autograd_function(x: Tensor) -> Tensor:
    """A custom autograd function."""
    return tap(Doubled.apply(tap(x + 1)).exp())


@case(taps="add_1_1 exp_1_3")
def autograd_function_returning_its_input(x: Tensor) -> Tensor:
    """The result is another tensor in the same memory (a gradient reversal)."""
    y = tap(x + 1)
    return tap(Unchanged.apply(y).exp())


@case(taps="mul_1_1 add_1_2 exp_1_3", edges={"exp_1_3": "add_1_2", "add_1_2": "mul_1_1"})
def autograd_function_writing_in_place(x: Tensor) -> Tensor:
    """A custom autograd function that marks its input dirty."""
    y = tap(x * 2)
    return tap(tap(AddedInPlace.apply(y)).exp())


@case(normal((4, 3)), taps="mul_1", edges={"mul_1_6": "add_1_5"}, origins={"output_1": "input_1_0"})
def vmap_inside(x: Tensor) -> Tensor:
    """torch.vmap of a function of one row."""
    return tap(torch.vmap(lambda row: row.sin() + row.sum())(x) * 2)


@case(taps="sin_1_1 mul_1_4", edges={"linear_1_2": "sin_1_1", "relu_1_3": "linear_1_2", "mul_1_4": "relu_1_3"})
class Checkpointed(nn.Module):
    """Activation checkpointing: the block runs once forward, once more in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = tap(torch.sin(x))
        y = torch.utils.checkpoint.checkpoint(lambda t: self.fc(t).relu(), y, use_reentrant=False)
        return tap(y * 2)


@case(taps="linear_1_1 linear_2_2 mul_1_3")
class NoGradBlock(nn.Module):
    """A part of the forward runs without grad."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher, self.student = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            target = tap(self.teacher(x))
        return tap(tap(self.student(x)) * target)


@case(taps="linear_1_1 matmul_1_3 add_1_4", params={"linear_1_1": "fc.weight fc.bias"}, backward=False)
class AutocastBlock(nn.Module):
    """A part of the forward runs in bfloat16, with weights cast and cached by autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = tap(torch.matmul(tap(self.fc(x)), x.T))
        return tap(y + 1.0)


@case(taps="mul_1_1 add_1_2 getitem_1_3 mul_2_4 aliasupdate_1_5", modes=WITHOUT_GRAD)
def inference_mode_inside(x: Tensor) -> Tensor:
    """Tensors without version counters, written in place through a view."""
    with torch.inference_mode():
        y = tap(tap(x * 2).add_(1))
        part = tap(y[0])
        tap(part.mul_(3))
        return tap(y) - 1


@torch.jit.script
def scripted(x: Tensor) -> Tensor:
    return (x * 2).relu()


@case(taps="add_1_1 exp_1_4", origins={"output_1": "input_1_0"})
def scripted_function_inside(x: Tensor) -> Tensor:
    """TorchScript runs where no torch function mode sees it; the dispatcher does."""
    return tap(scripted(tap(x + 1)).exp())


class Measured:
    """No tensor, but torch functions take it."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls(func(*(a.tensor if isinstance(a, cls) else a for a in args), **(kwargs or {})))


@case(taps="exp_1_3", origins={"output_1": "input_1_0"})
def wrapper_with_torch_function(x: Tensor) -> Tensor:
    """An object that is no tensor and overrides torch functions, as a TensorDict does."""
    return tap(torch.add(Measured(x * 2), 1).tensor.exp())


@case(taps="exp_1_3", edges={"mul_1_1": "input_1_0", "relu_1_2": "mul_1_1", "exp_1_3": "relu_1_2"})
def thread_inside(x: Tensor) -> Tensor:
    """A part of the work is done in another thread."""
    results: list[Tensor] = []
    grad = torch.is_grad_enabled()

    def work() -> None:
        with torch.set_grad_enabled(grad):
            results.append((x * 2).relu())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return tap(results[0].exp())


@case(taps="sum_1_1 gt_1_2 add_1", edges={"mul_1_3": "input_1_0", "add_1_4": "mul_1_3"}, modes=WITHOUT_GRAD)
def conditional_operator(x: Tensor) -> Tensor:
    """torch.cond, which traces both branches with fake tensors before it runs one."""
    chosen = torch.cond(tap(tap(x.sum()) > 0), lambda t: t * 2, lambda t: t * 3, (x,))
    return tap(chosen + 1)


@case(taps="ones_1_1 add_1_2 t_1_3 matmul_1_4")
def modes_inside(x: Tensor) -> Tensor:
    """A device context is a torch function mode, a FLOP counter a dispatch mode."""
    with torch.device("cpu"):
        y = tap(x + tap(torch.ones(3)))
    with FlopCounterMode(display=False):
        return tap(y @ tap(x.T))


@case(taps="sum_1_4 grad_1_5 mul_1_6", edges={"grad_1_5": "sum_1_4 clone_1_2"}, backward=False)
def gradient_inside(x: Tensor) -> Tensor:
    """The forward takes a gradient, as models of energies and forces do."""
    with torch.inference_mode(False), torch.enable_grad():
        position = x.detach().clone().requires_grad_(True)
        energy = tap((position**2).sum())
        (force,) = torch.autograd.grad(energy, position)
    return tap(tap(force) * 2)


@case(taps="mul_1_1 exp_1_2", edges={"exp_1_2": "mul_1_1"})
def tensor_hook_inside(x: Tensor) -> Tensor:
    """A hook on a tensor is no operation."""
    y = tap(x * 2)
    if y.requires_grad:
        y.register_hook(lambda grad: grad * 10)
        y.retain_grad()
    return tap(y.exp())


# ---- recurrent and attention modules --------------------------------------------------------------------------


@case(normal((2, 5, 3)), taps="lstm_1_3 lstm_2_4 lstm_3_5 getitem_1_6")
class Lstm(nn.Module):
    """Two layers, both directions, batch first; the cell state is one of three results."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True, dropout=0.2)

    def forward(self, x: Tensor) -> Tensor:
        out, (hidden, cell) = self.rnn(x)
        tap(out), tap(hidden), tap(cell)
        return tap(out[:, -1]), cell


@case(normal((5, 2, 3)), taps="gru_1_2 rnnrelu_1_5 gru_2_3", edges={"rnnrelu_1_5": "gru_1_2 zeros_2_4"})
class GruThenRnn(nn.Module):
    """GRU with a given state, plain RNN without."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.rnn = nn.GRU(3, 4), nn.RNN(4, 2, nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        y, hidden = self.gru(x, torch.zeros(1, 2, 4))
        z, _ = self.rnn(tap(y))
        return tap(z).sum() + tap(hidden).sum()


@case(
    normal((2, 2, 4)),
    taps="getitem_1_3:1 lstmcell_1_4:1 lstmcell_2_5:1 getitem_1_3:2 lstmcell_1_4:2 lstmcell_2_5:2",
    edges={"lstmcell_2_5:2": "getitem_1_3:2 lstmcell_1_4:1 lstmcell_2_5:1"},
)
class LstmCellLoop(nn.Module):
    """A cell called at each step on x[:, t]."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        state = (torch.zeros(2, 5), torch.zeros(2, 5))
        for t in range(x.shape[1]):
            state = self.cell(tap(x[:, t]), state)
            tap(state[0]), tap(state[1])
        return state[0]


@case(lambda: [torch.randn(2, 4, 3), torch.tensor([4, 2])], taps="padpackedsequence_1_10 gru_2_9")
class PackedSequence(nn.Module):
    """Sequences of different lengths, packed into a named tuple and unpacked."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(3, 4, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        out, hidden = self.rnn(packed)
        padded, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
        return tap(padded) + tap(hidden).sum()


class Attention(nn.Module):
    def __init__(self, need_weights: bool, masked: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.need_weights, self.masked = need_weights, masked

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        mask = torch.tensor([[False, False, True], [False, False, False]]) if self.masked else None
        out, weights = self.attention(x, x, x, key_padding_mask=mask, need_weights=self.need_weights)
        tap(out)
        return out, weights


sequence = normal((2, 3, 8))


def fast_path(slow: str, fast: str) -> dict[str, str]:
    return {"": slow, "eval-nograd": fast, "eval-inference": fast}


@case(sequence, hooks=False, taps=fast_path("transpose_8", "nativemultiheadattention_1_1"))
class AttentionWithWeights(Attention):
    """Multihead attention that returns its weights; in eval without grad one fused kernel."""

    def __init__(self) -> None:
        super().__init__(need_weights=True, masked=False)


@case(sequence, hooks=False, taps=fast_path("transpose_6", "nativemultiheadattention_1_1"))
class AttentionWithoutWeights(Attention):
    """Multihead attention by scaled_dot_product_attention; the second result is None."""

    def __init__(self) -> None:
        super().__init__(need_weights=False, masked=False)


@case(sequence, hooks=False, taps=fast_path("transpose_6", "nativemultiheadattention_1_4"))
class AttentionWithMask(Attention):
    """Multihead attention with a key padding mask."""

    def __init__(self) -> None:
        super().__init__(need_weights=False, masked=True)


def encoder_layer(kind: type = nn.TransformerEncoderLayer) -> nn.TransformerEncoderLayer:
    return kind(8, 2, dim_feedforward=16, batch_first=True)


@case(sequence, hooks=False, taps=fast_path("layernorm_4", "transformerencoderlayerfwd_2_2"))
class TransformerFastPath(nn.Module):
    """nn.TransformerEncoder: in eval without grad one fused kernel per layer."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoder(encoder_layer(), num_layers=2)

    def forward(self, x: Tensor) -> Tensor:
        return tap(self.encoder(x))


@case(sequence, hooks=False, taps=fast_path("layernorm_4", "topaddedtensor_1_8"))
class TransformerFastPathWithMask(nn.Module):
    """With a padding mask the fast path computes with nested tensors, and other values than the slow one."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoder(encoder_layer(), num_layers=2, enable_nested_tensor=True)

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.tensor([[False, False, True], [False, False, False]])
        return tap(self.encoder(x, src_key_padding_mask=mask))


class ScaledLayer(nn.TransformerEncoderLayer):
    def forward(self, src: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return tap(tap(super().forward(tap(src * 2), *args, **kwargs)) + 1)


@case(
    sequence,
    hooks=False,
    taps=fast_path("mul_1_1 layernorm_2 add_3", "mul_1_1 transformerencoderlayerfwd_1_2 add_1_3"),
)
class SubclassOfTransformerLayer(nn.Module):
    """A layer that calls super().forward, fast path included."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = encoder_layer(ScaledLayer)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


# ---- single functions with something about them ---------------------------------------------------------------


@case(normal((2, 3), (3, 4)), taps="einsum_1_2 scaleddotproductattention_1_4")
def einsum_and_attention(x: Tensor, y: Tensor) -> Tensor:
    """einsum and scaled_dot_product_attention."""
    z = tap(torch.einsum("ij,jk->ik", x, y))
    q = z[None, None]
    return tap(F.scaled_dot_product_attention(q, q, q))


@case(
    normal((2, 3, 8, 8)),
    taps="upsamplebilinear2d_1_1 truediv_1_5 maxpool2dwithindices_1_6 maxpool2dwithindices_2_7 maxunpool2d_1_8 "
    "adaptiveavgpool2d_1_10 crossentropyloss_1_13 linalgvectornorm_2_17 meshgrid_1_16",
)
def python_composites(x: Tensor) -> Tensor:
    """Functions written in Python on top of others."""
    y = tap(F.interpolate(x, scale_factor=0.5, mode="bilinear"))
    y = tap(F.normalize(y, dim=1))
    pooled, places = F.max_pool2d(y, 2, return_indices=True)
    y = tap(F.max_unpool2d(tap(pooled), tap(places), 2))
    y = tap(F.adaptive_avg_pool2d(F.pad(y, (1, 1, 1, 1), mode="circular"), (None, 2))).flatten(1)
    loss = tap(F.cross_entropy(y, torch.tensor([0, 1])))
    grid = torch.meshgrid(torch.arange(2.0), torch.arange(2.0), indexing="ij")
    return tap(torch.norm(y, dim=1)) + loss + tap(grid[0]).sum()


@case(
    normal((3, 2)),
    taps="unbind_1_1 unbind_2_2 unbind_3_3 add_1_7 add_2_8",
    edges={"add_1_7": "unbind_4_4 unbind_5_5", "add_2_8": "add_1_7 unbind_6_6"},
)
def iteration(x: Tensor) -> Tensor:
    """`for row in x` and unpacking."""
    for row in x:
        tap(row)
    first, *rest = x
    return tap(tap(first + rest[0]) + rest[1])


@case(normal((3, 3)), taps="matmul_1_2 linalgqr_1_3 linalgqr_2_4 linalgsvd_2_6 linalgsolve_1_10", backward=False)
def linear_algebra(x: Tensor) -> Tensor:
    """QR, SVD and solve."""
    square = tap(x @ x.mT)
    q, r = torch.linalg.qr(square)
    tap(q), tap(r)
    values = tap(torch.linalg.svd(square).S)
    return tap(torch.linalg.solve(square + torch.eye(3), q)) * values + r


@case(
    lambda: [torch.tensor([[0, 2, 5], [1, 1, 3]])],
    taps="embedding_1_1 embedding_2_6",
    params={"embedding_1_1": "table.weight", "embedding_2_6": "bounded.weight"},
)
class Embeddings(nn.Module):
    """Integer inputs; max_norm rescales the weight in place during the lookup."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(6, 4, padding_idx=0)
        self.bounded = nn.Embedding(6, 4, max_norm=0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        return tap(self.table(tokens)) + tap(self.bounded(tokens))


@case(
    normal((4, 5)),
    taps="getitem_1 getitem_2 getitem_3 getitem_4 getitem_5 getitem_6 getitem_7 gather_1 indexselect_1 take_1",
)
def indexing(x: Tensor) -> Tensor:
    """Slices, lists, masks, None, ellipsis, gather, index_select, take."""
    rows = torch.tensor([0, 2])
    parts = [x[1], x[:, ::2], x[[0, 3]], x[rows], x[x > 0], x[..., None], x[None, 1:3, -1]]
    parts += [x.gather(1, torch.zeros(4, 1, dtype=torch.int64)), x.index_select(0, rows), x.take(rows)]
    for part in parts:
        tap(part)
    return sum(part.sum() for part in parts)


@case(
    taps="gt_1_1 zeros_1_2 where_1_3 lt_1_4 maskedfill_1_5 cat_1_6 stack_1_7",
    edges={"cat_1_6": "where_1_3 maskedfill_1_5"},
)
def selection_and_joining(x: Tensor) -> Tensor:
    """where, masked_fill, cat, stack: tensors inside lists."""
    chosen = tap(torch.where(tap(x > 0), x, tap(torch.zeros(()))))
    filled = tap(x.masked_fill(tap(x < 0), 1.5))
    both = tap(torch.cat([chosen, filled], dim=1))
    return tap(torch.stack([both, both]))


@case(
    taps="todense_1_5",
    modes=WITHOUT_GRAD,
    edges={"aliasupdate_1_4": "tosparse_1_1 mul_1_3", "todense_1_5": "aliasupdate_1_4"},
)
def sparse_values_written(x: Tensor) -> Tensor:
    """The values of a sparse tensor are overwritten through a view of them."""
    sparse = x.to_sparse()
    sparse._values().mul_(2)
    return tap(sparse.to_dense())


@case(taps="topaddedtensor_1", origins={"output_1": "input_1_0"}, backward=False, repeatable=False, since="2.5")
def jagged_tensors(x: Tensor) -> Tensor:
    """Nested tensors of the newer layout."""
    jagged = torch.nested.nested_tensor([x[0], x[1, :2]], layout=torch.jagged)
    return tap((jagged * 2).to_padded_tensor(0.0))


@case(taps="to_1_1 float_1_2 todense_1_6 to_2_9 matmul_1_12", modes=WITHOUT_GRAD)
def unusual_layouts_and_dtypes(x: Tensor) -> Tensor:
    """float8, uint16, MKL-DNN and compressed sparse rows."""
    y = tap(tap(x.to(torch.float8_e4m3fn)).float())
    y = y + tap((x.to_mkldnn() + x.to_mkldnn()).to_dense())
    z = tap(torch.arange(3).to(torch.uint16))
    return tap(x.to_sparse_csr() @ y.T) + z.float().sum()


@case(lambda: [torch.randint(0, 5, (3, 4)), torch.rand(3, 4) > 0.5], taps="bitwiseor_1_2 add_1_4 sum_1_5 any_1_6")
def integers_and_bools(numbers: Tensor, flags: Tensor) -> Tensor:
    """No floating-point tensor anywhere."""
    mixed = tap(torch.bitwise_or(numbers, 1))
    total = tap(tap(mixed + flags.int()).sum(dim=0))
    return total, tap(flags.any())


@case(lambda: [torch.tensor(3.0), torch.empty(0, 4)], taps="mul_1_2 sum_1_3 add_1_4 cat_1_5")
def scalars_and_empty_tensors(scalar: Tensor, empty: Tensor) -> Tensor:
    """No dimensions, no elements."""
    y = tap(tap(scalar * 2) + tap(empty.sum()))
    return y, tap(torch.cat([empty, empty]))


@case(
    lambda: [torch.diag(torch.arange(1.0, 4)).to_sparse(), torch.randn(3, 2)],
    taps="sparsemm_1_2 mv_1_5",
    edges={"sparsemm_1_2": "input_1_0 input_2_1"},
    input_grad=False,
)
def sparse_product(matrix: Tensor, x: Tensor) -> Tensor:
    """A sparse tensor has no storage."""
    y = tap(torch.sparse.mm(matrix, x))
    return y + tap(torch.mv(matrix.to_dense(), x[:, 0]))[:, None]


@case(lambda: [torch.tensor([[float("nan"), 1.0], [float("inf"), -0.0]])], taps="sub_1_1 sqrt_1_2 relu_1_3")
def not_a_number(x: Tensor) -> Tensor:
    """NaN, infinity and negative zero are values like others."""
    return tap(F.relu(tap(tap(x - x).sqrt())))


@case(lambda: [torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)], taps="conv2d_1_1 maxpool2d_1_2")
class ChannelsLast(nn.Module):
    """Another memory format is kept through the model and in the log."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.pool = nn.Conv2d(3, 4, 3), nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        return tap(self.pool(tap(self.conv(x)))).flatten(1)


@case(taps="to_1_1 mul_1_2 to_2_3 add_1_4 double_1_5 sin_1_6 half_1_7")
def precisions(x: Tensor) -> Tensor:
    """bfloat16, float16 and float64."""
    y = tap(tap(x.to(torch.bfloat16)) * 3)
    y = tap(tap(y.to(torch.float16)) + 1)
    return tap(tap(tap(y.double()).sin()).half())


@case(taps="to_1_1 contiguous_1_2 exp_1_3", edges={"contiguous_1_2": "to_1_1", "exp_1_3": "contiguous_1_2"})
def functions_that_return_their_input(x: Tensor) -> Tensor:
    """to and contiguous with nothing to do hand back the same tensor, yet are operations."""
    return tap(tap(tap(x.to(torch.float32)).contiguous()).exp())


# ---- inputs and outputs ---------------------------------------------------------------------------------------


class Pair(NamedTuple):
    left: Tensor
    right: Tensor


@dataclass
class Batch:
    images: Tensor
    labels: Tensor
    name: str = "batch"


class Result:
    """An object of no known kind, with tensors as attributes."""

    def __init__(self, logits: Tensor, features: list[Tensor]) -> None:
        self.logits, self.features, self.comment = logits, features, "fine"


@case(normal((2, 3), (3,), (2, 1)), edges={"add_1_3": "input_1_0 input_2_1", "mul_1_4": "add_1_3 input_3_2"})
def several_inputs(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """Three positional arguments."""
    return (x + y) * z


@case(
    list,
    kwargs=lambda: {"scale": torch.randn(3), "x": torch.randn(2, 3)},
    taps="mul_1_2",
    edges={"mul_1_2": "input_2_1 input_1_0"},
)
def keyword_inputs(*, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """Keyword arguments only, entered in the order given."""
    return tap(x * scale)


@case(
    lambda: [
        {"a": torch.randn(2), "b": [torch.randn(2), (torch.randn(2), None)]},
        Pair(torch.randn(2), torch.randn(2)),
    ],
    taps="add_1_5 mul_1_6 sub_1_7",
    edges={"add_1_5": "input_1_0 input_2_1", "mul_1_6": "add_1_5 input_3_2", "sub_1_7": "input_4_3 input_5_4"},
)
def nested_inputs(batch: dict[str, Any], pair: Pair) -> Any:
    """Dicts, lists, tuples and named tuples in each other; the same on the way out."""
    total = tap(tap(batch["a"] + batch["b"][0]) * batch["b"][1][0])
    difference = tap(pair.left - pair.right)
    return OrderedDict(total=total, rest=[Pair(difference, total), (None, "text", 3)])


@case(lambda: [Batch(torch.randn(2, 3), torch.tensor([0, 1]))], taps="mul_1_2 add_1_3", input_grad=False)
def dataclass_input(batch: Batch) -> Batch:
    """A dataclass in, a dataclass out."""
    return Batch(tap(batch.images * 2), tap(batch.labels + 1), batch.name)


@case(taps="exp_1_1 sin_1_2 cos_1_3", edges={"output_1_4": "cos_1_3", "output_2_5": "exp_1_1", "output_3_6": "sin_1_2"})
def object_output(x: Tensor) -> Result:
    """An object of no known kind, with tensors as attributes."""
    a, b, c = tap(x.exp()), tap(x.sin()), tap(x.cos())
    return Result(c, [a, b])


LooseTuple = namedtuple("LooseTuple", "first second")


@case(edges={"output_1_2": "mul_1_1", "output_2_3": "mul_1_1", "output_3_4": "input_1_0"})
def same_tensor_twice_in_outputs(x: Tensor) -> LooseTuple:
    """Two outputs are one tensor, a third is the input."""
    y = x * 2
    return LooseTuple(y, [y, x])


@case(taps="", edges={"output_1_1": "input_1_0"}, backward=False)
def output_is_the_input(x: Tensor) -> Tensor:
    """Nothing is computed."""
    return x


@case(taps="mul_1_1", edges={"output_2_3": "mul_1_1"}, params={"mul_1_1": "weight"}, backward=False)
class OutputIsAParameter(nn.Module):
    """A parameter is returned as it is, next to something computed."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x: Tensor) -> Any:
        return self.weight, tap(x * self.weight)


@case(taps="mul_1_2", edges={"output_1_3": "mul_1_2", "output_2_4": "buffer_1_1"})
class OutputIsABuffer(nn.Module):
    """A buffer is returned as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.randn(3))

    def forward(self, x: Tensor) -> Any:
        return tap(x * self.scale), self.scale


@case(taps="mul_1_1 sum_1_2")
def output_is_a_number(x: Tensor) -> float:
    """No tensor is returned."""
    return tap(tap(x * 2).sum()).item()


@case(taps="mul_1_1")
def output_is_none(x: Tensor) -> None:
    """Nothing is returned."""
    tap(x * 2)


def the_same_twice() -> list[Any]:
    x = torch.randn(2, 3)
    return [x, x]


@case(the_same_twice, taps="add_1_2 mul_1_3")
def same_tensor_given_twice(x: Tensor, y: Tensor) -> Tensor:
    """Two inputs are one tensor."""
    return tap(tap(x + 1) * y)


class Labelled(Tensor):
    """A tensor subclass that changes nothing."""


@case(lambda: [torch.randn(2, 3).as_subclass(Labelled)], taps="mul_1_1 relu_1_2 sum_1_3", input_grad=False)
def tensor_subclass(x: Labelled) -> Tensor:
    """Results keep the subclass."""
    return tap(tap(F.relu(tap(x * 2))).sum())


# ---- modules --------------------------------------------------------------------------------------------------


@case(taps="linear_1_1:1 tanh_1_2:1 linear_1_1:2 tanh_1_2:2 linear_1_1:3 tanh_1_2:3")
class CalledThreeTimes(nn.Module):
    """One module, three calls: a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = tap(torch.tanh(tap(self.fc(x))))
        return x


@case(
    taps="linear_1_1:1 tanh_1_2:1 linear_1_1:2 tanh_1_2:2 linear_2_3:1 sigmoid_1_4:1 "
    "linear_1_1:3 tanh_1_2:3 linear_1_1:4 tanh_1_2:4 linear_2_3:2 sigmoid_1_4:2"
)
class NestedLoops(nn.Module):
    """A loop in a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            for _ in range(2):
                x = tap(torch.tanh(tap(self.inner(x))))
            x = tap(torch.sigmoid(tap(self.outer(x))))
        return x


@case(taps="linear_1_1:1 relu_1_2 linear_1_1:2")
class SharedUnderTwoNames(nn.Module):
    """One module hangs in the model under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(3, 3)
        self.two = self.one

    def forward(self, x: Tensor) -> Tensor:
        return tap(self.two(tap(F.relu(tap(self.one(x))))))


class Recursive(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Tensor, depth: int) -> Tensor:
        x = tap(self.fc(x))
        return self(x.relu(), depth - 1) if depth else x


@case(taps="linear_1_1:1 linear_1_1:2 linear_1_1:3")
class RecursiveModule(nn.Module):
    """A module that calls itself."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Recursive()

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x, 2)


@case(taps="linear_1_1 exp_1_2", hooks=False)
class ForwardCalledDirectly(nn.Module):
    """`module.forward(x)`: no hooks run, yet it is a call of the module."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return tap(tap(self.fc.forward(x)).exp())


@case(taps="linear_1_1 relu_1_2 linear_2_3 linear_3_4")
class Containers(nn.Module):
    """ModuleList, ModuleDict, Sequential, and a module that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.ModuleList([nn.Linear(3, 3), nn.ReLU()])
        self.named = nn.ModuleDict({"head": nn.Sequential(nn.Linear(3, 2))})
        self.last, self.never = nn.Linear(2, 2), nn.Linear(9, 9)

    def forward(self, x: Tensor) -> Tensor:
        for item in self.items:
            x = tap(item(x))
        return tap(self.last(tap(self.named["head"](x))))


@case(taps="mul_1_1 linear_1_2 add_1_3 exp_1_4", edges={"linear_1_2": "mul_1_1", "add_1_3": "linear_1_2"})
class ModuleHooks(nn.Module):
    """A pre-hook changes the input, a hook replaces the output."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 4)
        self.fc.register_forward_pre_hook(lambda module, args: (tap(args[0] * 2),))
        self.fc.register_forward_hook(lambda module, args, result: tap(tap(result) + 1))

    def forward(self, x: Tensor) -> Tensor:
        return tap(self.fc(x).exp())


class Stash(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> None:
        self.last = tap(x.detach() * 2)


@case(taps="mul_1_2 add_1_3", edges={"add_1_3": "input_1_0 mul_1_2"})
class ModuleThatReturnsNothing(nn.Module):
    """Its result is picked up from an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.stash = Stash()

    def forward(self, x: Tensor) -> Tensor:
        self.stash(x)
        return tap(x + self.stash.last)


@case(taps="add_1_1 mul_1_2", edges={"mul_1_2": "add_1_1"})
class Identities(nn.Module):
    """nn.Identity makes no call at all."""

    def __init__(self) -> None:
        super().__init__()
        self.nothing = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.nothing(tap(self.nothing(tap(x + 1)) * 2))


@case(lambda: [torch.tensor([0, 3, 1])], taps="embedding_1_1 linear_1_2")
class TiedWeights(nn.Module):
    """One parameter in two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.decode = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.decode.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return tap(self.decode(tap(self.embed(tokens))))


@case(taps="linear_1_1 add_1_5", edges={"linear_2_4": "input_1_0 mul_1_2 mul_2_3"}, params={"mul_1_2": "fc.weight"})
class FunctionalCall(nn.Module):
    """torch.func.functional_call swaps the parameters of a submodule inside forward."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = tap(self.fc(x))
        doubled = {name: parameter * 2 for name, parameter in self.fc.named_parameters()}
        return tap(torch.func.functional_call(self.fc, doubled, (x,)) + y)


@case(taps={"train": "linear_1_2 linear_2_21", "eval": "linear_1_2 linear_2_11"})
class Parametrized(nn.Module):
    """weight_norm and spectral_norm: weights computed at each access, buffers overwritten in training."""

    def __init__(self) -> None:
        super().__init__()
        self.normed = parametrizations.weight_norm(nn.Linear(3, 4))
        self.spectral = parametrizations.spectral_norm(nn.Linear(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        return tap(self.spectral(tap(self.normed(x))))


@case(
    normal((4, 3)),
    taps="linear_1_3 batchnorm_1_10",
    params={"linear_1_3": "lazy.weight lazy.bias"},
    hooks=False,
    repeatable=False,
)
class LazyModules(nn.Module):
    """Parameters that get their shape in the first forward; the module changes its class."""

    def __init__(self) -> None:
        super().__init__()
        self.lazy, self.norm = nn.LazyLinear(4), nn.LazyBatchNorm1d()

    def forward(self, x: Tensor) -> Tensor:
        return tap(self.norm(tap(self.lazy(x))))


@case(taps="add_1_1 mul_1_5 add_2_6", edges={"add_2_6": "mul_1_5 setitem_1_4", "mul_1_5": "input_1_0 add_1_1"})
class CacheOnTheModel(nn.Module):
    """Tensors put aside on the model itself, as a KV cache is, and written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.cache.append(tap(x + 1))
            self.cache.append(torch.zeros(2, 3))
            self.cache[1][0] = self.cache[0][0]
        return tap(tap(x * self.cache[0]) + self.cache[1])


@case(taps="linear_1_5 linear_2_6", edges={"linear_2_6": "linear_1_5 clone_1_2 clone_2_4"}, hooks=False)
class CopiesItsModuleInside(nn.Module):
    """A deep copy of a submodule, made and called in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return tap(copy.deepcopy(self.fc)(tap(self.fc(x))))


@case(taps="linear_1 linear_2 add_1", hooks=False)
class CopiesItself(nn.Module):
    """The whole model copied in its own forward, a part of it pickled, and the copy called."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.is_copy = nn.Linear(3, 3), False

    def forward(self, x: Tensor) -> Tensor:
        if self.is_copy:
            return tap(self.fc(x))
        twin = copy.deepcopy(self)
        twin.fc, twin.is_copy = pickle.loads(pickle.dumps(self.fc)), True
        return tap(twin(x) + tap(self.fc(x)))


@case(taps="linear_1_5", hooks=False, backward=False, repeatable=False)
class ModuleMadeInside(nn.Module):
    """A submodule that is not there before the forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        self.late = nn.Linear(3, 2)
        return tap(self.late(x))


# ---- tensors that become Python values ------------------------------------------------------------------------


@case(taps="sum_1_1 gt_1_2 mul_1_3")
def condition(x: Tensor) -> Tensor:
    """`if` on a tensor."""
    if tap(tap(x.sum()) > -1000):
        return tap(x * 2)
    return x


@case(lambda: [torch.ones(2, 3)], taps="mul_1_3:1 mul_1_3:2 mul_1_3:3 mul_1_3:4 sub_1_4")
def while_loop(x: Tensor) -> Tensor:
    """`while` on a tensor."""
    while x.sum() < 50:
        x = tap(x * 2)
    return tap(x - 1)


@case(taps="mul_1_1 add_1_2", edges={"add_1_2": "mul_1_1"})
def printing(x: Tensor) -> Tensor:
    """repr, format and print make hundreds of torch calls that are no part of the model."""
    y = tap(x * 2)
    assert "tensor" in f"{y}" and "tensor" in repr(y)
    return tap(y + 1)


@case(taps="mul_1_1 deepcopy_1_2 add_1_3 add_2_4", input_grad=False)
def deepcopy_inside(x: Tensor) -> Tensor:
    """A deep copy is independent memory."""
    y = tap(x * 2)
    twin = tap(copy.deepcopy(y))
    tap(y.add_(1))
    return tap(twin + y)


@case(taps="sum_1_1 mul_1_2 add_1_4")
def item_and_tolist(x: Tensor) -> Tensor:
    """Python numbers taken out of tensors and put back in."""
    total = tap(x.sum()).item()
    return tap(tap(x * total) + x.detach().tolist()[0][0])


@case(taps="mul_1_1 exp_1_2 add_1_3")
def storage_taken(x: Tensor) -> Tensor:
    """The raw memory is asked for, then the tensor overwritten."""
    y = tap(x * 2)
    assert y.untyped_storage().nbytes() == 24
    pointer = y.data_ptr()
    z = tap(y.exp())
    with torch.no_grad():
        tap(y.add_(1))
    assert y.data_ptr() == pointer
    return z * 3
