"""The words that prints, tables and pictures share: sizes, shapes, counts, passes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_MOST_DIMENSIONS = 10
_MOST_SHAPES = 8


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
    >>> counted(1, "module"), counted(3, "module")
    ('1 module', '3 modules')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


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
