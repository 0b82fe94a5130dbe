"""The words that prints, tables and pictures share: sizes, shapes, counts, passes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache

_MOST_DIMENSIONS = 10
_MOST_SHAPES = 8
_TYPE = re.compile(r"^(bfloat|float|int|uint|complex)(?=\d)")


def human_size(size: int) -> str:
    """
    >>> human_size(100), human_size(259584), human_size(2**30)
    ('100 B', '253.5 KB', '1.0 GB')
    """
    amount = float(size)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1024:
            return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TB"


def shape_words(shape: Sequence[int]) -> str:
    """
    >>> shape_words((5, 5)), shape_words((5,)), shape_words(())
    ('5x5', 'x5', 'scalar')

    A shape of very many dimensions shows the first and the last ones.
    """
    if not shape:
        return "scalar"
    if len(shape) == 1:
        return f"x{shape[0]}"
    sizes = [str(size) if isinstance(size, int) and size >= 0 else "?" for size in shape]  # unknown for a nested tensor
    if len(sizes) > _MOST_DIMENSIONS:
        sizes = [*sizes[: _MOST_DIMENSIONS - 3], "...", *sizes[-2:]]
    return "x".join(sizes)


def shapes_words(shapes: Iterable[Sequence[int]]) -> str:
    """
    >>> shapes_words([(5,), (5, 5)])
    'x5, 5x5'
    """
    each = [shape_words(shape) for shape in shapes]
    more = f", ... {len(each) - _MOST_SHAPES} more" if len(each) > _MOST_SHAPES else ""
    return ", ".join(each[:_MOST_SHAPES]) + more


def counted(number: int, noun: str) -> str:
    """
    >>> counted(1, "module"), counted(3000, "module")
    ('1 module', '3,000 modules')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def times(number: int) -> str:
    """How often, where that is more than once, ready to append.

    >>> "fc" + times(3), "fc" + times(1)
    ('fc (x3)', 'fc')
    """
    return f" (x{number})" if number > 1 else ""


def ranges(numbers: Iterable[int]) -> str:
    """
    >>> ranges([1, 2, 3, 5])
    '1-3, 5'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


def tensor_words(shapes: Sequence[Sequence[int]], dtype: object) -> str:
    """The type and the shape of a tensor, or of the passes of a layer, whose shapes may differ.

    >>> import torch
    >>> tensor_words([(1, 64, 55, 55)], torch.float32), tensor_words([()], torch.bool)
    ('f32[1,64,55,55]', 'bool[]')
    >>> tensor_words([(1, 4), (1, 5)], torch.int64)
    'i64[1,?]'
    """
    if len(shapes) == 1:
        return words_of(shapes[0], dtype)
    if len(set(map(len, shapes))) > 1:
        return f"{_type_word(dtype)}[...]"
    same = [each[0] if all(size == each[0] for size in each) else -1 for each in zip(*shapes, strict=True)]
    return _sized(same, dtype)


def words_of(shape: Sequence[int], dtype: object) -> str:
    """The same for one shape; few shapes come again and again in a model.

    >>> import torch
    >>> words_of((5, 5), torch.bfloat16)
    'bf16[5,5]'
    """
    try:
        return _sized_once(shape, dtype)
    except TypeError:  # a size is a symbol, which has no hash
        return _sized(shape, dtype)


def _sized(sizes: Sequence[int], dtype: object) -> str:
    words = [str(size) if isinstance(size, int) and size >= 0 else "?" for size in sizes]
    if len(words) > _MOST_DIMENSIONS:
        words = [*words[: _MOST_DIMENSIONS - 3], "...", *words[-2:]]
    return f"{_type_word(dtype)}[{','.join(words)}]"


_sized_once = lru_cache(1024)(_sized)


@cache
def _type_word(dtype: object) -> str:
    return _TYPE.sub(lambda match: match[1][0] if match[1] != "bfloat" else "bf", str(dtype).removeprefix("torch."))


def aligned(*columns: Sequence[str]) -> list[str]:
    """
    >>> aligned(["0: input_1_0", "1: relu_1_1"], ["f32[5]", "f32[5]"], ["", "act"])
    ['0: input_1_0  f32[5]', '1: relu_1_1   f32[5]  act']
    """
    widths = [max(map(len, column), default=0) for column in columns[:-1]]
    line = "  ".join([*[f"%-{width}s" for width in widths], "%s"])
    return [(line % row).rstrip() for row in zip(*columns, strict=True)]
