"""The forms of names: labels, passes, and paths in what a model returned."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import LayerNotFoundError, near
from .seen import KnownGraph

_LABEL = re.compile(r"[a-z0-9]+_\d+(_\d+)?")
_STEP = re.compile(
    r"""\.?(?P<name>[^.\[\]'"]+)|\[(?P<index>-?\d+)\]|\[(?P<quote>['"])(?P<key>.*?)(?P=quote)\]""", re.DOTALL
)


def split_pass(name: str) -> tuple[str, int | None]:
    """`fc:2` is the second pass of `fc`."""
    stem, _, number = name.rpartition(":")
    return (stem, int(number)) if stem and number.isdecimal() else (name, None)


def may_be_label(name: str) -> bool:
    """Does a name have the form of a label, `conv2d_3_7` or `conv2d_3`?"""
    return _LABEL.fullmatch(name) is not None


def steps_of(path: str) -> tuple[str, ...] | None:
    """`logits`, `.logits` and `['logits']` are one step, `past[0][1]` three; None for what is no path."""
    steps, end = [], 0
    while end < len(path):
        step = _STEP.match(path, end)
        if step is None:
            return None
        steps.append(step["name"] or step["index"] or step["key"] or "")
        end = step.end()
    return tuple(steps)


def numbered(number: int, total: int) -> int:
    """The place with this number among `total`; negative numbers count from the end."""
    if not -total <= number < total:
        raise LayerNotFoundError(f"no operation {number}: the log has {total}, numbered 0 to {total - 1}")
    return number % total


def near_names(name: str, graph: KnownGraph) -> str:
    """A phrase with the labels and addresses nearest to a name, each layer once."""
    short = may_be_label(name.lower()) and name.count("_") == 1
    labels = [label.rpartition("_")[0] if short else label for label in graph.layer_labels]
    addresses = [address for info in graph.modules.infos for address in info.all_addresses if address]
    return near(name, [*addresses, *labels])


def few_of(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - 6} more" if len(labels) > 6 else ""
    return ", ".join(labels[:6]) + more


def times_called(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def short_path(path: str) -> str:
    """The path of an output as users write it: `attentions[0]` for `['attentions'][0]`."""
    return re.sub(r"^\.?(?:\['(\w+)'\])?", r"\1", path)
