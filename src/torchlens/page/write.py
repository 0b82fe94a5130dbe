"""A log as a page: the text of the file, and the file itself."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..capture.surroundings import without_collector
from ..draw.view.drawable import Drawable
from ..errors import ArgumentError
from .inline import packed, packed_bytes, page
from .numbers import Numbers, page_numbers
from .page_data import page_data
from .values import page_values

#: Bytes of values in a page.
BUDGET = 8_000_000


def page_of(log: Drawable, *, values: bool | int = True, numbers: Mapping[str, Numbers] | None = None) -> str:
    """A page about one log, as text.

    Args:
        values: whether the page shows saved values; a number is the most bytes that they may take (default 8 million).
        numbers: your own numbers to colour by, by name: dicts from layers or modules to numbers, or functions of the
            operation.

    >>> page_of(log)[:15]
    '<!DOCTYPE html>'
    """
    return page(f"{log.model_name} - torchlens", _document(log, 0, budget_of(values), numbers))


def two_logs(
    a: Drawable,
    b: Drawable,
    matching: Iterable[tuple[int, int] | tuple[int, int, float]],
    *,
    names: tuple[str, str] | None = None,
    answer: Sequence[str] = (),
    first: tuple[int, int] | None = None,
    values: bool | int = True,
) -> str:
    """A page with two logs side by side, as text: what is selected in one is selected in the other.

    Args:
        matching: pairs of entries of `a.graph` and `b.graph`, by number, that are the same operation; a third number
            says how much they differ, and both graphs are coloured by it.
        names: what to call the two.
        answer: what a comparison found, in lines: the first is the verdict.
        first: the pair of entries where the two begin to differ; the page opens there.

    >>> two_logs(log, log, [(place, place, 0.0) for place in range(len(log))])[:15]
    '<!DOCTYPE html>'
    """
    pairs: list[tuple[int, int]] = []
    errors: tuple[dict[str, float], dict[str, float]] = {}, {}
    for one, other, *error in matching:
        pair = int(one), int(other)
        if not (0 <= pair[0] < len(a.graph.entries) and 0 <= pair[1] < len(b.graph.entries)):
            raise ArgumentError(f"matching: {pair} is not a pair of operation numbers in the two logs")
        pairs.append(pair)
        for log, place, found in zip((a, b), pair, errors, strict=True):
            found |= {log.graph.label(place): amount for amount in error}
    documents = [
        _document(log, number, budget_of(values) // 2, {"error": found} if found else None, names and names[number])
        for number, (log, found) in enumerate(zip((a, b), errors, strict=True))
    ]
    comparison = {"pairs": pairs, "answer": list(answer), "first": first}
    documents.append(f'<script type="application/json" id="comparison-data">{packed(comparison)}</script>')
    title = " | ".join(names if names is not None else (a.model_name, b.model_name))
    return page(f"{title} - torchlens", "\n".join(documents))


def budget_of(values: Any) -> int:
    if isinstance(values, bool):
        return BUDGET if values else 0
    if not isinstance(values, int) or values < 0:
        raise ArgumentError(f"values must be True, False or a number of bytes, not {values!r}")
    return values


def write_page(text: str, path: str | os.PathLike[str]) -> Path:
    """Write a page to a file; a name without an ending gets `.html`."""
    file = Path(os.fsdecode(path)).expanduser()
    if file.is_dir():
        raise ArgumentError(f"{str(file)!r} is a folder; give the name of a file")
    if file.suffix.lower() not in (".html", ".htm"):
        file = file.with_name(f"{file.name}.html")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ArgumentError(
            f"can't write to {str(file)!r} ({getattr(error, 'strerror', None) or error}); give another path"
        ) from None
    return file


@without_collector
def _document(
    log: Drawable, number: int, budget: int, numbers: Mapping[str, Numbers] | None, name: str | None = None
) -> str:
    """The data of one log, in script elements whose type is not executable."""
    data = page_data(log)
    data["numbers"] = page_numbers(log, numbers)
    data["name"] = name or data["name"]
    before = {int(place): log.layer_at(int(place)).activation_before_edit for place in data["edits"]}
    values = page_values(log.graph, budget, before)
    if values is None:
        return f'<script type="application/json" class="log">{packed(data)}</script>'
    data["values"] = values.as_data()
    return (
        f'<script type="application/json" class="log">{packed(data)}</script>\n'
        f'<script type="application/octet-stream" id="values{number}">{packed_bytes(values.bytes)}</script>'
    )
