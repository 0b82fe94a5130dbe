"""What torch's functions cost.

`macs` are the multiply-accumulates of matrix products, convolutions and attention: `2 * macs` is what
`torch.utils.flop_counter` gives for the same call. `flops` is `2 * macs` plus the work around it:

| kind of call                               | flops beside `2 * macs`                                      |
|--------------------------------------------|--------------------------------------------------------------|
| bias of linear, conv, addmm, ...           | 1 per output element                                         |
| elementwise: add, exp, gelu, where, ...    | 1 per output element; 2 for addcmul, lerp, ...               |
| reductions and scans: sum, max, cumsum     | 1 per input element; 2 for norms, 4 for var and logsumexp    |
| softmax                                    | 5 per element: max, subtract, exp, sum, divide               |
| attention                                  | 6 per score: scale and softmax; 1 more with a mask           |
| layer, group and (training) batch norm     | 5 per element, 1 more for each of weight and bias            |
| batch norm on running statistics, rms norm | 2 and 3 per element, 1 more for each of weight and bias      |
| recurrent layers, per step and hidden unit | 13 (LSTM), 10 (GRU), 2 (plain), and 1 per bias element       |
| pooling                                    | window size per output element; adaptive: 1 per input element|
| interpolation                              | 2 per tap: 8 for bilinear, 32 for bicubic; nearest is a copy |
| losses                                     | 3 per input element; cross entropy 6                         |
| sort and FFT of length n, per element      | log2 n; 5 log2 n, half of it for real signals                |
| views, indexing, copies, factories, random | 0                                                            |
| anything else                              | None: unknown, which is not the same as free                 |

Where `flop_counter` depends on the kernel that happens to run, the call itself decides here:

* Kernels that `flop_counter` does not list are 0 there: mv, dot, addmv, addbmm, addmm_, bilinear, LSTM and
  attention fused for the CPU, encoder layers. Here they cost the same product written with mm and bmm.
* An einsum is contracted left to right unless the call carries a `path`.
* Causal attention costs as much as full attention: as in `flop_counter`, only shapes matter.
* With complex numbers, one complex multiply-accumulate is one mac.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

from .cost import Cost, Formula, FormulaCall, TensorShape, UnfamiliarCall, is_tensor, register_formula


def _tensors(*values: Any) -> list[Any]:
    """The tensors among the values and in the lists and tuples among them, in order."""
    groups = (value if isinstance(value, (list, tuple)) else (value,) for value in values)
    return [tensor for group in groups for tensor in group if is_tensor(tensor)]


def _numel(*values: Any) -> int:
    shapes: list[TensorShape] = [tensor.shape for tensor in _tensors(*values)]
    return sum(math.prod(shape) for shape in shapes)


def _matrix(macs: int, extra: int = 0) -> Cost:
    return Cost(macs, flops=2 * macs + extra)


# ---- matrix products ---------------------------------------------------------------------------------------


@register_formula("matmul", "__rmatmul__", "linalg_matmul", "mm", "bmm", "scaled_mm", "int_mm")
@register_formula("mv", "dot", "vdot", "inner")
def _product(call: FormulaCall) -> Cost:
    left = call.tensor(1, "other") if call.name == "__rmatmul__" else call.input
    scalar = call.name == "inner" and not (left.shape and call.tensor(1, "other").shape)
    return Cost(flops=call.size) if scalar else _matrix(call.size * left.shape[-1])


@register_formula("linear")
def _linear(call: FormulaCall) -> Cost:
    return _matrix(call.size * call.input.shape[-1], extra=call.size * is_tensor(call.arg(2, "bias")))


@register_formula("addmm", "addmv", "baddbmm", "addmm_activation")
def _add_product(call: FormulaCall) -> Cost:
    return _matrix(call.size * call.tensor(1, "mat1", "mat", "batch1").shape[-1], extra=call.size)


@register_formula("addbmm")
def _add_summed_product(call: FormulaCall) -> Cost:
    batch, _, inner = call.tensor(1, "batch1").shape
    return _matrix(call.size * batch * inner, extra=call.size)


@register_formula("bilinear")
def _bilinear(call: FormulaCall) -> Cost:
    """`input1 @ weight` for each output feature, then the product of that with `input2`."""
    _, left, right = call.tensor(2, "weight").shape
    return _matrix(call.size * right * (left + 1), extra=call.size * is_tensor(call.arg(3, "bias")))


@register_formula("chain_matmul", "linalg_multi_dot")
def _chain(call: FormulaCall) -> Cost:
    """The cheapest order, which is the one torch takes."""
    first, *others = [tuple(matrix.shape) for matrix in _tensors(*call.args, *call.kwargs.values())]
    sides = [*((1, *first)[-2:]), *(shape[1] if len(shape) == 2 else 1 for shape in others)]

    @cache
    def cheapest(i: int, j: int) -> int:
        splits = (cheapest(i, k) + cheapest(k, j) + sides[i] * sides[k] * sides[j] for k in range(i + 1, j))
        return min(splits, default=0)

    return _matrix(cheapest(0, len(sides) - 1))


@register_formula("tensordot")
def _tensordot(call: FormulaCall) -> Cost:
    """Called with one `dims` (a number or a pair of lists), or with the two lists apart."""
    a, b = call.tensor(0, "a", "self").shape, call.tensor(1, "b", "other").shape
    dims, dims_b = call.arg(2, "dims", "dims_self", default=2), call.arg(3, "dims_other")
    if isinstance(dims, int):
        dims = (range(len(a) - dims, len(a)), range(dims))
    pairs = zip(*dims, strict=True) if dims_b is None else zip(dims, dims_b, strict=True)
    # A side of size 1 broadcasts: torch sums the other one away before the product.
    return _matrix(call.size * math.prod(min(a[i], b[j]) for i, j in pairs))


@register_formula("einsum")
def _einsum(call: FormulaCall) -> Cost:
    """Pair by pair, as torch does: a pair that shares a summed label is one bmm, others are multiplied."""
    equation = call.arg(0, "equation")
    if not isinstance(equation, str):
        raise UnfamiliarCall("einsum with lists of labels")
    terms, kept = _einsum_terms(equation, [operand.shape for operand in _tensors(*call.args[1:])])
    if len(terms) == 1:
        return Cost(flops=0 if terms[0].keys() <= kept else math.prod(terms[0].values()))
    total, path = Cost(), call.kwargs.get("path")
    for pair in zip(path[::2], path[1::2], strict=True) if path else [(0, 1)] * (len(terms) - 1):
        rest = [term for i, term in enumerate(terms) if i not in pair]
        left, right = (terms[i] for i in pair)
        needed = kept.union(*rest)
        summed = (left.keys() & right.keys()) - needed
        sizes = {label: n for label, n in (left | right).items() if label in needed | summed}
        work = math.prod(sizes.values())
        total += _matrix(work) if summed else Cost(flops=work)
        result = {label: n for label, n in sizes.items() if label in needed}
        terms = [*rest, result] if path else [result, *rest]
    return total


def _einsum_terms(equation: str, shapes: Sequence[TensorShape]) -> tuple[list[dict[Any, int]], set[Any]]:
    """Sizes by label for each operand, and the labels of the result. Size 1 broadcasts, so it is left out."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    labels = [_labels(term, len(shape)) for term, shape in zip(left.split(","), shapes, strict=True)]
    times = Counter(label for term in labels for label in term)
    kept = set(right.replace("...", "")) if arrow else {label for label, n in times.items() if n == 1}
    if not arrow or "..." in right:
        kept |= {label for label in times if isinstance(label, int)}
    sized = (zip(term, shape, strict=True) for term, shape in zip(labels, shapes, strict=True))
    return [{label: n for label, n in term if n != 1} for term in sized], kept


def _labels(term: str, rank: int) -> list[Any]:
    """One label per dimension; those under an ellipsis are numbered from the right: -2, -1."""
    head, _, tail = term.partition("...")
    return [*head, *range(len(head) + len(tail) - rank, 0), *tail]


# ---- convolution, attention, recurrent layers --------------------------------------------------------------


@register_formula("conv1d", "conv2d", "conv3d", "convolution", "cudnn_convolution", "mkldnn_convolution")
@register_formula("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _conv(call: FormulaCall) -> Cost:
    """Each output element meets one filter, or each input element if transposed. Filters span one group."""
    transposed = call.arg(6, "transposed") if call.name == "convolution" else "transpose" in call.name
    filtered = _numel(call.input) if transposed else call.size
    per_filter = math.prod(call.tensor(1, "weight").shape[1:])
    return _matrix(filtered * per_filter, extra=call.size * is_tensor(call.arg(2, "bias")))


def _scores(queries: int, keys: int, width: int, heads: int = 1, mask: Any = None) -> Cost:
    """Queries by keys, scores by values (`width`: of both, over all heads), scale, mask and softmax."""
    return _matrix(queries * keys * width, extra=queries * heads * keys * (6 + is_tensor(mask)))


@register_formula("scaled_dot_product_attention", "_scaled_dot_product_attention_math")
@register_formula("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu")
@register_formula("_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention")
def _attention(call: FormulaCall) -> Cost:
    """For every head of the query: fewer heads of keys and values (`enable_gqa`) are repeated to match."""
    (*_, keys, key_width), value = call.tensor(1, "key").shape, call.tensor(2, "value")
    queries = math.prod(call.outputs[0][:-1])
    return _scores(queries, keys, key_width + value.shape[-1], mask=call.arg(3, "attn_mask", "attn_bias"))


def _multi_head(inputs: Sequence[Any], heads: int, mask: Any) -> Cost:
    """Projections of query, key and value, attention, and the projection of its result."""
    query, key, _ = inputs
    *rows, width = query.shape
    projected = _numel(*inputs, query)
    inner = _scores(math.prod(rows), key.shape[-2], 2 * width, heads, mask)
    return inner + _matrix(projected * width, extra=projected)


@register_formula("_native_multi_head_attention")
def _native_attention(call: FormulaCall) -> Cost:
    inputs = [call.tensor(i, name) for i, name in enumerate(("query", "key", "value"))]
    return _multi_head(inputs, call.arg(4, "num_head"), call.arg(9, "mask"))


@register_formula("_transformer_encoder_layer_fwd")
def _encoder_layer(call: FormulaCall) -> Cost:
    """Attention, two linear layers with an activation, two layer norms and two residual sums."""
    attention = _multi_head([call.input] * 3, call.arg(2, "num_heads"), call.arg(18, "mask"))
    *rows, width = call.input.shape
    hidden = math.prod(rows) * call.tensor(14, "ffn_weight_1").shape[0]
    feed_forward = _matrix(2 * hidden * width, extra=2 * hidden + _numel(call.input))
    return attention + feed_forward + Cost(flops=16 * _numel(call.input))


_PER_UNIT = {"lstm": 13, "gru": 10, "rnn_tanh": 2, "rnn_relu": 2}


@register_formula(*_PER_UNIT)
def _recurrent(call: FormulaCall) -> Cost:
    """Every matrix of every layer and direction, projections too, is applied once per step and sequence."""
    # (input, state, params, ...), or (input, batch_sizes, state, params, ...) for packed sequences.
    where = max((i for i, value in enumerate(call.args) if isinstance(value, (list, tuple))), default=0)
    if where == 0:
        raise UnfamiliarCall(f"{call.name} without a list of parameters")
    params = call.args[where]
    biases = _numel(*(param for param in params if len(param.shape) == 1))
    layers, _, hidden = _tensors(call.args[where - 1])[-1].shape
    steps = math.prod(call.input.shape[:-1])
    pointwise = biases + _PER_UNIT[call.name] * layers * hidden
    return _matrix(steps * (_numel(*params) - biases), extra=steps * pointwise)


@register_formula(*(f"{kind}_cell" for kind in _PER_UNIT))
def _recurrent_cell(call: FormulaCall) -> Cost:
    rows, weights = math.prod(call.input.shape[:-1]), (call.tensor(2, "w_ih"), call.tensor(3, "w_hh"))
    pointwise = _PER_UNIT[call.name.removesuffix("_cell")] * weights[1].shape[1]
    biases = _numel(call.arg(4, "b_ih"), call.arg(5, "b_hh"))
    return _matrix(rows * _numel(*weights), extra=rows * (biases + pointwise))


# ---- normalisation, pooling and the like -------------------------------------------------------------------


@register_formula("batch_norm", "instance_norm", "native_batch_norm", "native_batch_norm_legit")
def _batch_norm(call: FormulaCall) -> Cost:
    affine = is_tensor(call.arg(1, "weight")) + is_tensor(call.arg(2, "bias"))
    statistics = 3 if call.arg(5, "training", "use_input_stats") else 0
    return Cost(flops=_numel(call.input) * (2 + statistics + affine))


@register_formula("layer_norm", "group_norm", "rms_norm", "native_layer_norm")
def _layer_norm(call: FormulaCall) -> Cost:
    affine = is_tensor(call.arg(2, "weight")) + is_tensor(call.arg(3, "bias"))
    return Cost(flops=_numel(call.input) * ((3 if call.name == "rms_norm" else 5) + affine))


@register_formula("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "native_dropout")
def _dropout(call: FormulaCall) -> Cost:
    return Cost(flops=_numel(call.input) if call.arg(2, "train", "training", default=True) else 0)


@register_formula("max", "min")
def _extreme(call: FormulaCall) -> Cost:
    """A reduction, or elementwise when called with two tensors."""
    return Cost(flops=call.size if is_tensor(call.arg(1, "other")) else _numel(call.input))


@register_formula("index_add", "index_reduce", "scatter_add", "scatter_reduce")
def _scatter(call: FormulaCall) -> Cost:
    """One addition per element that is scattered."""
    return Cost(flops=_numel(call.tensor(3, "src", "source")))


@register_formula("embedding_bag")
def _embedding_bag(call: FormulaCall) -> Cost:
    return Cost(flops=_numel(call.tensor(1, "indices", "input")) * call.tensor(0, "weight").shape[-1])


@register_formula("cdist")
def _cdist(call: FormulaCall) -> Cost:
    return Cost(flops=3 * call.size * call.input.shape[-1])


@register_formula("sort", "argsort", "msort")
def _sort(call: FormulaCall) -> Cost:
    dim = 0 if call.name == "msort" else call.arg(1, "dim", default=-1)
    length = (call.input.shape or (1,))[dim]
    return Cost(flops=_numel(call.input) * max(length - 1, 0).bit_length())


@register_formula("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d")
@register_formula("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def _pool(call: FormulaCall) -> Cost:
    dims = int(call.name[len("max_pool")])
    window = call.arg(1, "kernel_size")
    per_output = window**dims if isinstance(window, int) else math.prod(tuple(window) * (dims // len(window)))
    return Cost(flops=math.prod(call.outputs[0]) * per_output)


@register_formula("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
def _grid_sample(call: FormulaCall) -> Cost:
    linear, nearest, cubic = 2 ** (len(call.input.shape) - 2), 0, 16
    taps = (linear, nearest, cubic)[call.arg(2, "interpolation_mode", default=0)]
    return Cost(flops=2 * taps * call.size)


_FFT_DIMS = {"fft": -1, "fft2": (-2, -1), "fftn": None}


@register_formula(*(f"fft_{kind}{end}" for kind in ("", "i", "r", "ir", "h", "ih") for end in _FFT_DIMS))
def _fft(call: FormulaCall) -> Cost:
    kind, _, end = call.name.removeprefix("fft_").partition("fft")
    dims = call.arg(2, "dim", default=_FFT_DIMS[f"fft{end}"])
    # Real transforms are short on one side, padded ones on the input's: the larger size is the length.
    sizes = [max(pair) for pair in zip(call.input.shape, call.outputs[0], strict=True)]
    length = math.prod(sizes[d] for d in _tuple(dims, len(sizes)))
    per_element = 5 if kind in ("", "i") else 2.5
    return Cost(flops=round(per_element * math.prod(sizes) * math.log2(max(length, 1))))


def _tuple(dims: Any, rank: int) -> Sequence[int]:
    """Dimensions given as None (all), one number or several."""
    return range(rank) if dims is None else (dims,) if isinstance(dims, int) else dims


# ---- all that needs only a number per element --------------------------------------------------------------

_PER_OUTPUT = {
    0: """
        alias arange argwhere as_strided as_strided_scatter as_tensor atleast_1d atleast_2d atleast_3d
        bernoulli bfloat16 block_diag bool broadcast_tensors broadcast_to byte cartesian_prod cat cauchy
        cdouble cfloat chalf channel_shuffle char chunk clone column_stack combinations complex concat
        concatenate conj constant_pad_nd contiguous copy cpu cuda data detach diag diag_embed diagflat
        diagonal diagonal_scatter dim double dsplit dstack embedding empty empty_like empty_permuted
        empty_strided expand expand_as exponential eye fft_fftfreq fft_fftshift fft_ifftshift fft_rfftfreq
        fill fill_diagonal flatten flip fliplr flipud float from_numpy full full_like gather geometric get
        getitem grad H half hsplit hstack im2col imag index index_fill index_put index_select int item
        lift_fresh linalg_diagonal linspace log_normal logspace long masked_scatter masked_select max_unpool1d
        max_unpool2d max_unpool3d meshgrid mH moveaxis movedim mT multinomial narrow native_channel_shuffle
        new_empty new_empty_strided new_full new_ones new_tensor new_zeros nonzero nonzero_static normal numel
        numpy one_hot ones ones_like pack_padded_sequence pad pad_packed_sequence pad_sequence permute
        pixel_shuffle pixel_unshuffle poisson pos positive put rand rand_like randint randint_like randn
        randn_like random randperm ravel real repeat repeat_interleave requires_grad reshape reshape_alias
        reshape_as resize resize_as resolve_conj resolve_neg roll rot90 row_stack scalar_tensor scatter select
        select_scatter set setitem shape short size slice slice_scatter split split_with_sizes squeeze stack
        swapaxes swapdims T t take take_along_dim tensor tensor_split tile to tolist transpose tril
        tril_indices triu triu_indices type type_as unbind unflatten unfold uniform unravel_index unsafe_chunk
        unsafe_split unsafe_view unsqueeze upsample_nearest1d upsample_nearest2d upsample_nearest3d
        upsample_nearest_exact1d upsample_nearest_exact2d upsample_nearest_exact3d vander view view_as
        view_as_complex view_as_real vsplit vstack zero zeros zeros_like
    """,
    1: """
        abs absolute acos acosh add and angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh
        atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor
        bucketize ceil celu clamp clamp_max clamp_min clip conj_physical copysign cos cosh cross deg2rad diff
        digamma div divide elu entr eq erf erfc erfcx erfinv exp exp2 expit expm1 fix float_power floor
        floor_divide floordiv fmax fmin fmod frac frexp gammainc gammaincc gammaln gcd ge gelu ger glu greater
        greater_equal gt hardshrink hardsigmoid hardswish hardtanh heaviside hypot i0 i0e i1 i1e igamma
        igammac invert isclose isfinite isin isinf isnan isneginf isposinf isreal kron lcm ldexp le leaky_relu
        less less_equal lgamma linalg_cross log log10 log1p log2 log_ndtr log_sigmoid logaddexp logaddexp2
        logical_and logical_not logical_or logical_xor logit logsigmoid lshift lt masked_fill maximum minimum
        mish mod mul multigammaln multiply mvlgamma nan_to_num ndtr ndtri ne neg negative nextafter not_equal
        or outer polygamma pow prelu psi rad2deg reciprocal relu relu6 remainder round rrelu rrelu_with_noise
        rshift rsqrt rsub searchsorted selu sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink
        softsign sqrt square sub subtract tan tanh tanhshrink threshold true_divide truediv trunc where
        xlog1py xlogy xor zeta
    """,
    2: "addcdiv addcmul addr lerp polar",
    4: "upsample_linear1d",
    8: "upsample_bilinear2d",
    16: "upsample_trilinear3d",
    32: "upsample_bicubic2d",
}

_PER_INPUT = {
    1: """
        adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
        adaptive_max_pool3d all allclose amax amin aminmax any argmax argmin bincount col2im count_nonzero
        cummax cummin cumprod cumsum equal fold histc histogram kthvalue mean median mode nanmean nanmedian
        nansum nll_loss nll_loss_nd prod sum sum_to_size topk trace unique unique2 unique_consecutive
        unique_dim
    """,
    2: "dist frobenius_norm linalg_norm linalg_vecdot linalg_vector_norm norm renorm trapezoid trapz",
    3: """
        binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss gaussian_nll_loss
        hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss mse_loss multi_margin_loss
        pairwise_distance poisson_nll_loss smooth_l1_loss soft_margin_loss triplet_margin_loss weight_norm
    """,
    4: "logcumsumexp logsumexp std std_mean var var_mean",
    5: "log_softmax safe_softmax softmax softmin",
    6: "cosine_similarity cross_entropy_loss",
}


def _per_output(each: int) -> Formula:
    return lambda call: Cost(flops=each * call.size)


def _per_input(each: int) -> Formula:
    return lambda call: Cost(flops=each * _numel(*_tensors(*call.args, *call.kwargs.values())[:1]))


for _each, _names in _PER_OUTPUT.items():
    register_formula(*_names.split())(_per_output(_each))
for _each, _names in _PER_INPUT.items():
    register_formula(*_names.split())(_per_input(_each))
