"""Make values smaller before they are copied anywhere: what `reduce=` takes.

>>> store = tl.extract(model, x, ["relu"], save_to=folder / "small", reduce=tl.reduce.random_projection(3, seed=0))
>>> store["relu_1_2"].shape
(5, 3)

A reduction is a function of a batch, `[rows, ...]`, that keeps the rows. Any such function will do; those here are
frozen dataclasses that print as they are written, which is how a store remembers them. A list applies several in turn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ArgumentError, named_arguments, near

__all__ = [
    "cls", "flatten", "last_token", "max", "mean", "pca", "pool", "random_projection", "token",
]  # fmt: skip

_amax, _amin = max, min  # the builtins, which names below hide


def _inner(value: Tensor, dim: int | Sequence[int] | None) -> tuple[int, ...]:
    """The dimensions to reduce: those given, or the positions of a feature map or a sequence."""
    if dim is not None:
        return (dim,) if isinstance(dim, int) else tuple(dim)
    if value.dim() == 3:
        return (1,)  # [rows, tokens, features]
    return tuple(range(2, value.dim()))  # [rows, channels, height, width, ...]


@dataclass(frozen=True)
class mean:
    """The mean over positions: of each channel of a feature map, of each feature over the tokens; or over `dim`.

    >>> tl.reduce.mean()(torch.rand(8, 64, 7, 7)).shape, tl.reduce.mean()(torch.rand(8, 128, 768)).shape
    (torch.Size([8, 64]), torch.Size([8, 768]))
    """

    dim: int | tuple[int, ...] | None = None

    def __call__(self, value: Tensor) -> Tensor:
        dims = _inner(value, self.dim)
        return value.mean(dims) if dims else value


@dataclass(frozen=True)
class max:
    """The largest value over positions, as `mean`.

    >>> tl.reduce.max()(torch.rand(8, 64, 7, 7)).shape
    torch.Size([8, 64])
    """

    dim: int | tuple[int, ...] | None = None

    def __call__(self, value: Tensor) -> Tensor:
        dims = _inner(value, self.dim)
        return value.amax(dims) if dims else value


@dataclass(frozen=True)
class flatten:
    """One vector a row.

    >>> tl.reduce.flatten()(torch.rand(8, 64, 7, 7)).shape
    torch.Size([8, 3136])
    """

    def __call__(self, value: Tensor) -> Tensor:
        return value.reshape(len(value), -1)


@dataclass(frozen=True)
class token:
    """One token of a sequence `[rows, tokens, features]`; -1 is the last.

    >>> tl.reduce.token(3)(torch.rand(8, 128, 768)).shape
    torch.Size([8, 768])
    """

    index: int

    def __call__(self, value: Tensor) -> Tensor:
        if value.dim() < 3 or not -value.shape[1] <= self.index < value.shape[1]:
            raise ArgumentError(f"{self!r} needs [rows, tokens, features] with enough tokens, not {list(value.shape)}")
        return value[:, self.index]


def cls() -> token:
    """The first token, which stands for the whole in BERT and ViT.

    >>> tl.reduce.cls()
    token(index=0)
    """
    return token(0)


@dataclass(frozen=True)
class last_token:
    """The last token that is not padding. `mask` names the input that tells, 1 for tokens; without it, the very last.

    >>> tl.reduce.last_token("attention_mask")
    last_token(mask='attention_mask')
    """

    mask: str | int | None = None  # a keyword, or the number of a positional argument

    def with_inputs(self, value: Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
        if self.mask is None:
            return self(value)
        try:
            mask = kwargs[self.mask] if isinstance(self.mask, str) else args[self.mask]
        except (KeyError, IndexError):
            have: list[Any] = [*kwargs] or list(range(len(args)))
            raise ArgumentError(f"{self!r}: the model was given no {self.mask!r}, only {have}") from None
        positions = torch.arange(mask.shape[1], device=mask.device)
        last = torch.where(mask.bool(), positions, -1).amax(1)
        if bool((last < 0).any()):
            raise ArgumentError(f"{self!r}: there is a row without any token")
        return value[torch.arange(len(value), device=value.device), last.to(value.device)]

    def __call__(self, value: Tensor) -> Tensor:
        if self.mask is not None:
            raise ArgumentError(f"{self!r} needs the inputs of the model; last_token() takes the very last token")
        return token(-1)(value)


@dataclass(frozen=True)
class pool:
    """The mean over patches of a feature map, so that `size` x `size` of them are left.

    >>> tl.reduce.pool(2)(torch.rand(8, 64, 7, 7)).shape
    torch.Size([8, 64, 2, 2])
    """

    size: int | tuple[int, ...] = 1

    def __call__(self, value: Tensor) -> Tensor:
        pools = {3: "adaptive_avg_pool1d", 4: "adaptive_avg_pool2d", 5: "adaptive_avg_pool3d"}
        if value.dim() not in pools:
            raise ArgumentError(f"{self!r} needs [rows, channels, height, width], not {list(value.shape)}")
        return getattr(torch.nn.functional, pools[value.dim()])(value, self.size)  # type: ignore[no-any-return]


# ---- what is made for a layer -------------------------------------------------------------------------------


@dataclass(frozen=True)
class random_projection:
    """A sparse random projection to `n` numbers, which keeps distances; "auto" for as many as keep them within `eps`.

    A layer that has no more numbers than that is only flattened, which keeps them exactly.

    >>> tl.reduce.random_projection(4096, seed=0)
    random_projection(n=4096, seed=0, eps=0.1)

    The bound for "auto" is that of Johnson and Lindenstrauss, 4 ln(rows) / (eps^2/2 - eps^3/3): 9,431 for 60,000 rows.
    """

    n: int | str = "auto"
    seed: int = 0
    eps: float = 0.1

    def __post_init__(self) -> None:
        if self.n != "auto" and not _is_from(self.n, 1):
            raise ArgumentError(f'random_projection: n must be a number of features or "auto", not {self.n!r}')
        if not _is_from(self.seed, 0) or self.seed >= 2**32:
            raise ArgumentError(f"random_projection: seed must be an integer from 0 to 2**32 - 1, not {self.seed!r}")
        if not 0 < self.eps < 1:
            raise ArgumentError(f"random_projection: eps must be between 0 and 1, not {self.eps!r}")

    def made_for(self, shape: Sequence[int], rows: int | None) -> Projection | flatten:
        """The projection of values of this shape."""
        size = math.prod(shape)
        wanted = self.n
        if wanted == "auto":
            if rows is None:
                raise ArgumentError(
                    'random_projection("auto") needs the number of inputs; give the number of features instead'
                )
            wanted = math.ceil(4 * math.log(_amax(rows, 2)) / (self.eps**2 / 2 - self.eps**3 / 3))
        return Projection(_sparse(int(wanted), size, self.seed)) if int(wanted) < size else flatten()

    def __call__(self, value: Tensor) -> Tensor:
        return self.made_for(value.shape[1:], len(value))(value)


@lru_cache(maxsize=4)
def _sparse(rows: int, columns: int, seed: int) -> Tensor:
    """Rows of sqrt(columns) entries of random sign, at random places: distances are kept on average, exactly.

    RandomState is the one generator of which NumPy promises the same numbers for ever.
    """
    generator = np.random.RandomState(seed)
    entries = math.ceil(math.sqrt(columns))
    places = generator.randint(0, columns, (rows, entries))
    signs = generator.randint(0, 2, (rows, entries)) * 2 - 1
    scale = math.sqrt(columns / (entries * rows))
    indices = torch.stack(
        [torch.arange(rows, device="cpu").repeat_interleave(entries), torch.from_numpy(places.ravel())]
    )
    values = torch.from_numpy(signs.ravel() * scale).float()
    return torch.sparse_coo_tensor(indices, values, (rows, columns), check_invariants=False).coalesce()


class Projection:
    """A sparse matrix that is applied to rows."""

    def __init__(self, matrix: Tensor) -> None:
        self._matrix = matrix

    def __call__(self, value: Tensor) -> Tensor:
        if self._matrix.device != value.device:
            self._matrix = self._matrix.to(value.device)
        flat = _flat(value, self._matrix.shape[1])
        result: Tensor = torch.sparse.mm(self._matrix, flat.t()).t().contiguous()
        return result


@dataclass(frozen=True)
class pca:
    """The first `n` principal components, fitted on `samples` inputs before anything is written, and stored.

    >>> tl.reduce.pca(50)
    pca(n=50, samples=1000)

    The inputs to fit on are spread evenly over the data set; of an iterable, they are the first ones.
    """

    n: int
    samples: int = 1000

    def __post_init__(self) -> None:
        if not _is_from(self.n, 1) or not _is_from(self.samples, 1):
            raise ArgumentError(f"{self!r}: n and samples must be integers, 1 or more")

    def fitted(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and the components, by values `[samples, ...]`."""
        _refuse_complex(values)
        flat = values.reshape(len(values), -1).double()
        if _amin(flat.shape) < self.n:
            raise ArgumentError(f"{self!r}: {flat.shape[0]} samples of {flat.shape[1]} numbers have fewer components")
        center = flat.mean(0)
        _, _, components = torch.linalg.svd(flat - center, full_matrices=False)
        components = components[: self.n]
        largest = components.abs().argmax(1, keepdim=True)
        return center.float(), (components * components.gather(1, largest).sign()).float().contiguous()

    def __call__(self, value: Tensor) -> Tensor:
        raise ArgumentError(f"{self!r} has to be fitted by tl.extract first, so it can't reduce a single batch")


class Components:
    """Fitted components that are applied to rows."""

    def __init__(self, center: Tensor, components: Tensor) -> None:
        self._center, self._components = center, components

    def __call__(self, value: Tensor) -> Tensor:
        if self._center.device != value.device:
            self._center, self._components = self._center.to(value.device), self._components.to(value.device)
        return (_flat(value, len(self._center)) - self._center) @ self._components.t()


def _flat(value: Tensor, size: int) -> Tensor:
    """Rows of so many numbers each, as float32."""
    _refuse_complex(value)
    check_size(value, size)
    return value.reshape(len(value), -1).float()


def check_size(value: Tensor, size: int) -> None:
    """Refuse rows of another size."""
    found = math.prod(value.shape[1:])
    if found != size:
        raise ArgumentError(
            f"a row has {found} numbers, and {size} in the first batch: what mixes all numbers of a row needs "
            "rows of one shape; tl.reduce.mean() or pool() before it can make them alike"
        )


def _refuse_complex(value: Tensor) -> None:
    if value.is_complex():
        raise ArgumentError("complex numbers can't be projected; a function such as torch.view_as_real can split them")


def _is_from(number: Any, least: int) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= least


# ---- what users give ----------------------------------------------------------------------------------------

Reduction = Callable[[Tensor], Tensor]
_BY_NAME: dict[str, Callable[[], Reduction]] = {"mean": mean, "max": max, "flatten": flatten, "cls": cls,
                                                "last_token": last_token}  # fmt: skip


def checked_reductions(given: Any) -> list[Reduction]:
    """Reductions in turn, of what a user gave: one, its name, a list, or None."""
    if given is None:
        return []
    if isinstance(given, str):
        if given not in _BY_NAME:
            raise ArgumentError(
                f"reduce: there is no {given!r}{near(given, _BY_NAME)}; names are {', '.join(_BY_NAME)}"
            )
        return [_BY_NAME[given]()]
    if isinstance(given, (list, tuple)):
        return [reduction for each in given for reduction in checked_reductions(each)]
    if given in _BY_NAME.values() or given in (pool, random_projection):
        return [given()]
    if given in (pca, token):
        raise ArgumentError(f"reduce: {given.__name__} needs a number, such as tl.reduce.{given.__name__}(50)")
    if not callable(given):
        raise ArgumentError(
            f"reduce: {given!r} is not a function of a batch; tl.reduce has some, such as tl.reduce.mean()"
        )
    return [given]


def __dir__() -> list[str]:
    return __all__


for _reduction in (mean, max, flatten, token, last_token, pool, random_projection, pca):
    _reduction.__init__ = named_arguments(_reduction.__init__, _reduction.__name__)  # type: ignore[method-assign]


if not TYPE_CHECKING:  # a type checker is to know the names that there are

    def __getattr__(name: str) -> Any:
        raise AttributeError(f"tl.reduce has no {name!r}{near(name, __all__)}")
