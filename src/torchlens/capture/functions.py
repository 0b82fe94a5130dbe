"""What kind of torch function is this? Decided once for each function, then looked up.

Nothing here is needed to find a function's results: they are what it returns. The tables below say only what can't
be seen from outside: which arguments it writes into, whether it draws random numbers, and what to leave alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from inspect import getattr_static
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import torch

from .._torch import HigherOrderOperator, OpOverload, OpOverloadPacket, schemas_of
from .descend import twin
from .writers import Written, argument, first, written_by_builtin, written_by_operator, written_in_python


class Treatment(Enum):
    RECORD = "a lowest-level call: log it"
    DESCEND = "written in Python: log the calls it makes"
    FOLLOW = "calls functions of the model, as torch.cond does: log what they do"
    IGNORE = "asks about a tensor without touching its values: let it pass"
    OPAQUE = "bookkeeping of Python's or autograd's own: run it unseen"


class Function:
    """A torch function and how to treat a call of it."""

    __slots__ = (
        "brings_in",
        "check",
        "communicates",
        "escapes",
        "foreign",
        "fresh",
        "func",
        "in_place",
        "is_metadata_query",
        "lasts",
        "layer_type",
        "may_be_operator",
        "name",
        "random",
        "reaches_beyond",
        "reads",
        "reshapes",
        "simple",
        "switch",
        "touches_memory",
        "treatment",
        "twin",
        "uncounted",
        "written",
    )

    def __init__(self, name: str, func: Any = None, treatment: Treatment = Treatment.RECORD) -> None:
        self.name = name
        self.func = func  # None for what no call made: a model output, a change through an alias
        self.treatment = treatment
        self.layer_type = name.replace("_", "").lower()
        self.may_be_operator = name.strip("_") in OPERATORS.values()  # is there a Python operator for it, such as `+`?
        self.check: Callable[[Any, Any], None] | None = None  # if a file named it: raises for an unsafe call
        self.twin: FunctionType | None = None
        self.written: Written | None = None  # which arguments it overwrites
        self.reshapes = name in _RESHAPES  # overwrites a tensor's geometry, not its memory
        self.random = name in _RANDOM
        self.reads = name in _READS  # turns a tensor into a Python value
        self.fresh = name in _FRESH  # its result lies in new memory, always
        self.communicates = False  # with other processes
        self.foreign = False  # a third-party operator: it may write to arguments that its schema does not declare
        self.uncounted = name in _UNCOUNTED  # lets two tensors share memory without counting each other's writes
        self.brings_in = name in _BRINGS_IN  # makes a tensor from data or memory outside torch
        self.reaches_beyond = name in _REACHES_BEYOND  # depends on memory that its argument does not show
        self.escapes = name in ESCAPES  # hands out the memory, so that later writes are invisible
        self.touches_memory = self.escapes or self.reaches_beyond
        self.switch: tuple[int, str] | None = None  # the argument without which it overwrites and draws nothing
        self.simple = False  # none of the above applies, unless `switch` is on
        self.in_place = False  # simple, except that it overwrites its first argument
        self.lasts = True  # as long as torch does
        self.is_metadata_query = False  # such as x.dim(): returns no tensor, calls no function, is not recorded

    def is_on(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Does this call do what the function does only if `switch` is on: overwrite arguments, draw random numbers?"""
        return self.switch is None or bool(argument(args, kwargs, *self.switch))

    def __deepcopy__(self, memo: Any) -> Function:
        return self  # there is one for each function of torch's

    def __repr__(self) -> str:
        return f"Function({self.name}, {self.treatment.name})"


#: The functions classified so far, as a torch function mode receives them; only those that live as long as torch does.
KNOWN: dict[Any, Function] = {}

#: `KNOWN.get` for the hot path: otherwise Python would make a new bound method for each call.
known_function = KNOWN.get


def classify(func: Any) -> Function:
    """Classify a torch function that is not in KNOWN, and put it there if it lasts."""
    function = _described(func)
    function.lasts = _lasts(func)
    if function.lasts:
        KNOWN[func] = function
    special = function.uncounted or function.foreign or function.touches_memory or function.communicates
    special = special or function.brings_in
    plain = function.treatment is Treatment.RECORD and not special and not (function.random and not function.switch)
    function.simple = plain and (function.written is None or function.switch is not None)
    function.is_metadata_query = function.treatment is Treatment.IGNORE and not isinstance(func, FunctionType)
    overwrites = function.written is first and function.name.endswith("_")
    function.in_place = plain and overwrites and not function.reshapes
    return function


_LASTING = (OpOverload, OpOverloadPacket, HigherOrderOperator, MethodDescriptorType, WrapperDescriptorType)


def _lasts(func: Any) -> bool:
    """Does this function live as long as torch? One made for a single call, with its closure, must not be kept."""
    if isinstance(func, _LASTING):
        return True
    owner = getattr(func, "__self__", None)
    if isinstance(func, MethodWrapperType):  # `Tensor.shape.__get__`
        return getattr_static(torch.Tensor, _name_of_property(owner), None) is owner
    if isinstance(func, BuiltinFunctionType):
        return owner is None or isinstance(owner, (ModuleType, type))
    found: Any = sys.modules.get(getattr(func, "__module__", None) or "")
    for name in getattr(func, "__qualname__", "").split("."):
        found = getattr_static(found, name, None)
    if getattr(found, "__func__", found) is func:
        return True
    return any(member is func for member in vars(torch.Tensor).values())  # `**` goes by the name of `pow`


def _described(func: Any) -> Function:
    if isinstance(func, (OpOverload, OpOverloadPacket)):
        return _operator(func)
    if isinstance(func, HigherOrderOperator):
        return Function(str(func), func, Treatment.FOLLOW)
    name = getattr(func, "__name__", type(func).__name__)
    if name in ("__get__", "__set__", "__delete__"):
        return _property(func, name)
    if name in _OPAQUE:
        return Function(name, func, Treatment.OPAQUE)
    if name in METADATA_QUERIES:
        return Function(name, func, Treatment.IGNORE)
    function = Function(name, func)
    if isinstance(func, FunctionType) and name not in _ONE_CALL and not function.escapes:
        function.treatment = Treatment.DESCEND
        function.twin = twin(func)
    else:
        function.switch = _SWITCHES.get(name)
    if isinstance(func, FunctionType):
        function.written = written_in_python(name, func)
    else:
        function.written = written_by_builtin(name, function.switch)
    return function


def _operator(func: Any) -> Function:
    """An operator of `torch.ops`: its schema says what it writes and whether it is random."""
    overloads = [func] if isinstance(func, OpOverload) else [getattr(func, o) for o in func.overloads()]
    function = Function(overloads[0]._schema.name.split("::")[-1], func)
    namespace = overloads[0]._schema.name.split("::")[0]
    function.communicates = "c10d" in namespace
    function.foreign = namespace not in _TORCHS_OWN
    function.fresh = function.fresh and not function.foreign
    function.switch = None if function.foreign else _SWITCHES.get(function.name)
    schemas = [func._schema] if isinstance(func, OpOverload) else schemas_of(overloads[0]._schema.name)
    function.written = written_by_operator(function.name, schemas, function.switch)
    seeded = torch.Tag.nondeterministic_seeded
    function.random = function.random or any(seeded in overload.tags for overload in overloads)
    return function


def _name_of_property(owner: Any) -> str:
    return str(getattr(owner, "__name__", None) or getattr(getattr(owner, "fget", None), "__name__", ""))


def _property(func: Any, access: str) -> Function:
    name = _name_of_property(func.__self__)
    if name not in TENSOR_PROPERTIES or (name == "grad" and access != "__get__"):
        return Function(name, func, Treatment.IGNORE)
    function = Function(name, func)
    if access == "__set__":
        function.written = first
        function.reshapes = name == "data"
    return function


# Torch names of the operators that Python names otherwise, without underscores; in-place forms begin with an i.
_NAMES = {"truediv": "div", "floordiv": "floor_divide", "mod": "remainder"}
OPERATORS = {
    prefix + operator: _NAMES.get(operator, operator)
    for operator in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
    for prefix in ("", "i")
}

# Properties that return (or take) a tensor; all others, such as .shape, are metadata queries.
TENSOR_PROPERTIES = {"data", "grad", "T", "mT", "H", "mH", "real", "imag"}

# Common metadata queries. Any function that returns no tensor is left out of the log; these skip the bookkeeping, too.
METADATA_QUERIES = {
    "__dlpack_device__", "__hash__", "__len__", "_assert", "_assert_async", "_is_view", "can_cast", "dense_dim",
    "device", "dim", "dim_order", "element_size", "get_default_dtype", "get_device", "has_names", "is_coalesced",
    "is_complex", "is_conj", "is_contiguous", "is_distributed", "is_floating_point", "is_inference", "is_neg",
    "is_pinned", "is_same_size", "is_set_to", "is_shared", "is_signed", "is_tensor", "ndimension", "nelement",
    "numel", "promote_types", "q_per_channel_axis", "q_scale", "q_zero_point", "qscheme",
    "record_stream", "requires_grad_", "result_type", "retain_grad", "size", "sparse_dim", "storage_offset", "stride",
}  # fmt: skip

# Printing a tensor makes hundreds of calls that are not part of the model.
_OPAQUE = {
    "__dir__", "__format__", "__reduce__", "__reduce_ex__", "__repr__", "__setstate__",
    "_clear_non_serializable_cached_data", "_reduce_ex_internal", "backward", "register_hook",
    "register_post_accumulate_grad_hook",
}  # fmt: skip

# Written in Python, but shown as one call in the log.
_ONE_CALL = {"__deepcopy__", "grad"}

ESCAPES = {
    "__array__", "__array_wrap__", "__dlpack__", "_typed_storage", "data_ptr", "numpy", "share_memory_", "storage",
    "untyped_storage",
}  # fmt: skip

_UNCOUNTED = {"data", "set_"}

_BRINGS_IN = {"as_tensor", "asarray", "from_file", "new", "new_tensor", "tensor"}

_TORCHS_OWN = {
    "_c10d_functional", "_c10d_functional_autograd", "aten", "c10d", "fsdp", "mkldnn", "onednn", "prims", "quantized",
    "torchvision",
}  # fmt: skip
# These read the whole storage of a tensor, not only the part that the tensor covers.
_REACHES_BEYOND = {"as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter"}

# These return the storage itself: whether it is then read is unknown.
_RAW_MEMORY = {"_typed_storage", "storage", "untyped_storage"}

# The model may have caught what a call raised.
RAISED = "raised"

# Events after which it is unknown what the model did with the value.
HIDDEN_READS = {RAISED, *_RAW_MEMORY}

_READS = {
    "__array__", "__bool__", "__complex__", "__dlpack__", "__float__", "__index__", "__int__",
    "_choose_qparams_per_tensor", "_local_scalar_dense", "_nnz", "_tensor_to_list", "allclose", "equal", "is_nonzero",
    "item", "numpy", "tolist", *_RAW_MEMORY,
}  # fmt: skip

# The results of these never share memory with their arguments, so addresses need not be compared. Far from complete.
_FRESH = {
    "_native_multi_head_attention", "abs", "adaptive_avg_pool2d", "add", "addmm", "avg_pool2d", "baddbmm", "batch_norm",
    "bmm", "cat", "conv1d", "conv2d", "conv3d", "cos", "cumsum", "div", "embedding", "eq", "exp", "ge", "gelu",
    "group_norm", "gt", "hardswish", "layer_norm", "le", "leaky_relu", "linear", "log", "log_softmax", "lt", "matmul",
    "max_pool2d", "mean", "mm", "mul", "ne", "neg", "pow", "relu", "rms_norm", "rsqrt", "sigmoid", "silu", "sin",
    "softmax", "sqrt", "stack", "sub", "sum", "tanh", "tril", "triu", "where",
}  # fmt: skip

_RESHAPES = {
    "as_strided_", "detach_", "rename_", "resize_", "resize_as_", "set_", "squeeze_", "swapaxes_", "swapdims_", "t_",
    "transpose_", "unsqueeze_",
}  # fmt: skip

# The argument, by position and name, that makes them update running statistics or draw random numbers.
_SWITCHES = {
    "_batch_norm_impl_index": (5, "training"),
    "_native_batch_norm_legit": (5, "training"),
    "alpha_dropout": (2, "train"),
    "batch_norm": (5, "training"),
    "cudnn_batch_norm": (5, "training"),
    "dropout": (2, "train"),
    "feature_alpha_dropout": (2, "train"),
    "feature_dropout": (2, "train"),
    "instance_norm": (5, "use_input_stats"),
    "miopen_batch_norm": (5, "training"),
    "native_batch_norm": (5, "training"),
    "scaled_dot_product_attention": (4, "dropout_p"),
}

_RANDOM = {
    "_sample_dirichlet", "_standard_gamma", "alpha_dropout", "alpha_dropout_",
    "bernoulli", "bernoulli_", "binomial", "cauchy_", "dropout", "dropout_", "exponential_", "feature_alpha_dropout",
    "feature_alpha_dropout_", "feature_dropout", "feature_dropout_", "fractional_max_pool2d",
    "fractional_max_pool3d", "geometric_", "gru", "kaiming_uniform_", "log_normal_", "lstm", "multinomial",
    "native_dropout", "normal",
    "normal_", "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm",
    "random_", "rnn_relu", "rnn_tanh", "rrelu", "rrelu_", "rrelu_with_noise", "rrelu_with_noise_",
    "scaled_dot_product_attention", "uniform_",
}  # fmt: skip

# What stands in the log without a call: a tensor the model returned, one that changed through another tensor, one that
# shares memory with a known tensor though no call made it; a tensor of a class that holds other tensors, made of those,
# and one of them taken out.
OUTPUT = Function("output")
ALIAS_UPDATE = Function("alias_update")
IMPLICIT_VIEW = Function("implicit_view")
WRAP = Function("wrap")
UNWRAP = Function("unwrap")
EDIT = Function("edit")  # a module's result, edited, where others have it as it was
UNEDITED = Function("unedited")  # and what it was, where somebody kept that and uses it later
