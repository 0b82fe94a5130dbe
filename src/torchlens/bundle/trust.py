"""What a log that was loaded from an untrusted file may run.

Loading, printing and drawing run nothing. Validating or replaying a log calls torch with arguments from the file, and
not every kernel of torch checks its arguments. So a log that was loaded without `trust=True` calls only the functions
of torch's public API that are listed here: common ones that check their arguments. Before each call, the size of its
result is computed on meta tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .._torch import grad_scope, set_grad_enabled
from ..capture.containers import flat_tensors, replace_tensors
from ..errors import UntrustedError

#: The most bytes that one call may return.
_MOST_BYTES = 1 << 30

_NAMESPACES = {"torch", "torch._C._nn", "torch.functional", "torch.nn.functional", "torch.Tensor"}

# Not here, though common: `lstm`, `gru`, `rnn_tanh` and `rnn_relu` read or write outside their tensors when the sizes
# that they are given do not fit together (a cell state for fewer samples, weights for fewer gates, no batch sizes), and
# so do `lstm_cell` and `gru_cell` in older versions of torch.
_ALLOWED = {
    # Element-wise.
    "abs", "acos", "acosh", "add", "addcdiv", "addcmul", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_not", "bitwise_or", "bitwise_xor", "ceil", "celu", "clamp", "clamp_max", "clamp_min", "clip", "conj",
    "copysign", "cos", "cosh", "deg2rad", "div", "divide", "dropout", "elu", "eq", "erf", "erfc", "exp", "exp2",
    "expm1", "float_power", "floor", "floor_divide", "fmod", "frac", "ge", "gelu", "glu", "gt", "hardshrink",
    "hardsigmoid", "hardswish", "hardtanh", "heaviside", "hypot", "imag", "isclose", "isfinite", "isinf", "isnan",
    "le", "leaky_relu", "lerp", "log", "log10", "log1p", "log2", "log_sigmoid", "logaddexp", "logical_and",
    "logical_not", "logical_or", "logical_xor", "logit", "logsigmoid", "lt", "masked_fill", "maximum", "minimum",
    "mish", "mul", "multiply", "nan_to_num", "ne", "neg", "negative", "polar", "positive", "pow", "prelu", "rad2deg",
    "real", "reciprocal", "relu", "relu6", "remainder", "round", "rrelu", "rsqrt", "rsub", "selu", "sgn", "sigmoid",
    "sign", "silu", "sin", "sinc", "sinh", "softplus", "softshrink", "softsign", "sqrt", "square", "sub", "subtract",
    "tan", "tanh", "tanhshrink", "threshold", "true_divide", "trunc", "where", "xlogy",
    # Sums, products, normalisation, attention, losses.
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "addbmm", "addmm", "addmv", "addr", "all", "alpha_dropout", "amax", "amin", "aminmax", "any", "argmax", "argmin",
    "argsort", "avg_pool1d", "avg_pool2d", "avg_pool3d", "baddbmm", "batch_norm", "bilinear", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "bmm", "cdist", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "cosine_similarity", "count_nonzero", "cross_entropy", "cummax", "cummin",
    "cumprod", "cumsum", "dist", "dot", "einsum", "embedding", "feature_dropout", "group_norm", "huber_loss", "inner",
    "instance_norm", "kl_div", "l1_loss", "layer_norm", "linear", "local_response_norm", "log_softmax", "logsumexp",
    "matmul", "max", "max_pool1d", "max_pool2d", "max_pool3d", "mean", "median", "min", "mm", "mse_loss", "mv",
    "nanmean", "nansum", "nll_loss", "nll_loss_nd", "norm", "normalize", "outer", "prod", "rms_norm", "rnn_relu_cell",
    "rnn_tanh_cell", "scaled_dot_product_attention", "smooth_l1_loss", "softmax", "softmin", "sort", "std", "std_mean",
    "sum", "tensordot", "topk", "var", "var_mean",
    # Shapes and indices.
    "adjoint", "argwhere", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_tensors", "broadcast_to", "cat",
    "channel_shuffle", "chunk", "clone", "concat", "concatenate", "constant_pad_nd", "contiguous", "copy", "detach",
    "diag", "diag_embed", "diagonal", "dsplit", "expand", "expand_as", "flatten", "flip", "fliplr", "flipud", "gather",
    "hsplit", "hstack", "index_add", "index_copy", "index_fill", "index_put", "index_select", "masked_scatter",
    "masked_select", "meshgrid", "movedim", "moveaxis", "narrow", "nonzero", "one_hot", "pad", "permute",
    "pixel_shuffle", "pixel_unshuffle", "ravel", "reflection_pad1d", "reflection_pad2d", "repeat", "replication_pad1d",
    "replication_pad2d", "reshape", "reshape_as", "resolve_conj", "resolve_neg", "roll", "rot90", "scatter",
    "scatter_add", "select", "select_scatter", "slice_scatter", "split", "split_with_sizes", "squeeze", "stack",
    "swapaxes", "swapdims", "t", "take", "take_along_dim", "tensor_split", "tile", "to", "transpose", "tril", "triu",
    "type_as", "unbind", "unflatten", "unfold", "unique", "unsqueeze", "view", "view_as", "view_as_complex",
    "view_as_real", "vsplit", "vstack",
    # New tensors.
    "arange", "bernoulli", "complex", "eye", "full", "full_like", "linspace", "multinomial", "new_full", "new_ones",
    "new_tensor", "new_zeros", "normal", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "randperm", "scalar_tensor", "tensor", "zeros", "zeros_like",
    # Dtypes, and in-place methods.
    "bfloat16", "bool", "byte", "cpu", "double", "fill", "float", "half", "int", "long", "short", "type", "zero",
    "exponential", "uniform", "requires_grad",
}  # fmt: skip

_OPERATORS = {
    "add", "and", "eq", "floordiv", "ge", "getitem", "gt", "iadd", "iand", "idiv", "ifloordiv", "imul", "invert",
    "ior", "ipow", "isub", "itruediv", "ixor", "le", "lt", "matmul", "mod", "mul", "ne", "neg", "or", "pos", "pow",
    "radd", "rand", "rdiv", "rfloordiv", "rmatmul", "rmod", "rmul", "ror", "rpow", "rsub", "rtruediv", "rxor",
    "setitem", "sub", "truediv", "xor",
}  # fmt: skip

#: The size of their result depends on values, but is never much larger than that of their arguments.
_BOUNDED = {
    "__getitem__", "__setitem__", "argwhere", "cpu", "index_put_", "masked_select", "nonzero", "to", "type", "unique",
    "where",
}  # fmt: skip


def careful(torch_name: str, function: Any) -> Callable[[Any, Any], None]:
    """A check to call with a function's arguments before the function; it raises if the call is not safe."""
    return partial(_check_sizes, torch_name, function) if is_allowed(torch_name) else partial(_refuse, torch_name)


def is_allowed(torch_name: str) -> bool:
    namespace, _, name = torch_name.rpartition(".")
    if name in ("__get__", "__set__"):
        return torch_name in {f"torch.Tensor.{each}.__get__" for each in ("T", "mT", "H", "mH", "real", "imag")}
    if name.startswith("__") and name.endswith("__"):
        return namespace == "torch.Tensor" and name[2:-2] in _OPERATORS
    return namespace in _NAMESPACES and (name in _ALLOWED or name.removesuffix("_") in _ALLOWED)


def _refuse(torch_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    raise UntrustedError(
        f"{torch_name} is not on the list of functions that a loaded log may call; "
        "if you trust the file, tl.load(path, trust=True) allows all of torch's own"
    )


def _check_sizes(torch_name: str, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Compute the size of the result on meta tensors, which have no memory."""
    name = torch_name.rpartition(".")[2]
    try:
        with grad_scope(), torch.device("meta"):
            set_grad_enabled(False)
            result = function(*_without_memory(args), **_without_memory(_on_meta(kwargs)))
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError) as error:
        if name in _BOUNDED:
            return
        raise UntrustedError(f"{torch_name}: the size of its result can't be predicted ({str(error)[:80]})") from None
    size = sum(tensor.numel() * tensor.element_size() for tensor in flat_tensors([result]))
    if size > _MOST_BYTES:
        raise UntrustedError(
            f"{torch_name} would return {size:,} bytes; if you trust the file, tl.load(path, trust=True) allows it"
        )


def _on_meta(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments with their device replaced by meta."""
    return {name: value for name, value in kwargs.items() if name not in ("device", "generator", "pin_memory")}


def _without_memory(arguments: Any) -> Any:
    return replace_tensors(tuple(arguments) if isinstance(arguments, list) else arguments, _meta)


def _meta(tensor: Tensor) -> Tensor:
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        raise TypeError(f"a tensor of layout {tensor.layout}")
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")
