"""Edit many places one at a time, and see what each does to a number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from .._torch import call_with_grad, grad_scope, set_grad_enabled
from ..capture.containers import reconstructed
from ..capture.context import OpInProgress
from ..capture.records import Value, values_in
from ..errors import ArgumentError, DivergenceError, ReplayError, named_arguments
from ..graph.graph import Graph
from ..notebook import in_notebook, progress_bar, show_inline, temporary_folder
from ..replay.downstream import Downstream, Edits
from ..replay.reasons import NotReplayable
from ..replay.stacked import Stacked
from ..selectors import Returned, Selection
from .apply import apply_edit
from .edit_base import Edit, Moment
from .edits import Patch, as_edit
from .heatmap import heat_map, write_heat_map
from .offline import EarlierEdits, EditPlan
from .sites import Base, EditRequest, donor_at, kinds_of

GridIndex = tuple[int, ...]

#: How many cells are computed at once, and the bytes that their values may take.
_MOST_CELLS, _MEMORY = 256, 2**30


@dataclass(frozen=True)
class Effect:
    """What one edit did: a row of a sweep."""

    site: str
    index: GridIndex | None  # along the dimensions `over`
    metric: float
    effect: float  # the difference to the base


class Sweep:
    """The effects of editing each of several places: what `tl.sweep` returns. Iterates over its rows.

    `base_metric` is the metric without edits; `estimated` says that the effects are first-order estimates.
    """

    def __init__(
        self,
        rows: list[Effect],
        base_metric: float,
        estimated: bool,
        metric_name: str = "the metric",
        over: tuple[int, ...] = (),
    ) -> None:
        self.rows, self.base_metric, self.estimated = rows, base_metric, estimated
        self._metric_name, self._over = metric_name, over

    def __iter__(self) -> Iterator[Effect]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Effect:
        return self.rows[number]

    def __repr__(self) -> str:
        kind = "estimates from one backward pass" if self.estimated else "exact"
        largest = sorted(self.rows, key=lambda row: -abs(row.effect))[:10]
        lines = [f"Sweep of {len(self.rows)} edits ({kind}); without edits the metric is {self.base_metric:.4g}"]
        wide = max((len(_cell(row)) for row in largest), default=0)
        for row in largest:
            lines.append(f"  {_cell(row):<{wide}}  {row.metric:>10.4g}  {row.effect:+.4g}")
        return "\n".join(lines + ["  ..."] * (len(self.rows) > 10))

    def to_pandas(self) -> Any:
        """A pandas data frame with a row for each edit; needs pandas."""
        try:
            pandas: Any = import_module("pandas")
        except ImportError as error:
            raise ImportError('to_pandas needs pandas: pip install "forwardlens[tables]"') from error
        rows = [asdict(row) | {"estimated": self.estimated} for row in self.rows]
        if len(self._over) == 1:
            rows = [row | {"index": row["index"][0]} for row in rows]
        return pandas.DataFrame(rows)

    def draw(self, path: str | PathLike[str] | None = None) -> Path:
        """Write a heat map of the effects, sites from top to bottom, indices from left to right; SVG or PNG.

        A notebook shows it. Without a path the file is `sweep.svg`; in a notebook nothing is left behind.
        """
        file = Path(path) if path is not None else (temporary_folder() if in_notebook() else Path()) / "sweep.svg"
        svg = self._svg()
        write_heat_map(svg, file)
        return show_inline(svg, f"Heat map of {len(self.rows)} edits", file) if in_notebook() else file

    def _svg(self) -> str:
        estimated = "estimated " if self.estimated else ""
        title = f"{estimated}effect on {self._metric_name}, {self.base_metric:.4g} without edits"
        dimensions = "dimensions" if len(self._over) > 1 else "dimension"
        along = f"index along {dimensions} {', '.join(map(str, self._over))}" if self._over else ""
        return heat_map(self.rows, title, along)


def _cell(row: Effect) -> str:
    return row.site if row.index is None else f"{row.site}[{', '.join(map(str, row.index))}]"


@named_arguments
def sweep(
    base: Any,
    *,
    sites: Any,
    metric: Callable[[Any], Any],
    edit: Any = None,
    over: int | tuple[int, ...] | None = None,
    donor: Any = None,
    batch: int | Literal["auto"] = "auto",
    method: Literal["exact", "gradient"] = "exact",
    progress: bool = False,
) -> Sweep:
    """Edit one place at a time in a log, and see what that does to a metric. The model does not run.

    >>> effects = tl.sweep(log, sites=["relu", "fc"], edit=tl.edits.zero(), metric=lambda output: output.sum())
    >>> [row.site for row in effects]
    ['relu_1_2', 'relu_2_4', 'fc']
    >>> len(tl.sweep(log, sites="fc", edit=tl.edits.zero(), over=-1, metric=lambda output: output.sum()))
    5

    Args:
        base: the log, with the values of what is edited and of what lies downstream.
        sites: selectors; each operation or module output that they choose is edited alone.
        metric: a function of what the model returns, which gives a number.
        edit: one of `tl.edits`, or what else can be an edit.
        over: dimensions of the edited tensors: every index along them is edited alone.
        donor: another log of the model, to patch from; instead of `edit`.
        batch: how many edits to compute at once; 1 for one after the other, "auto" for as many as fit into 1 GB.
        method: "exact", or "gradient" for first-order estimates of all effects from one backward pass.
        progress: show a progress bar; needs tqdm.

    Only what lies downstream of a place is computed, for many indices at once where the operations allow it.
    """
    if (edit is None) == (donor is None):
        raise ArgumentError("a sweep needs either an edit or a donor, and not both")
    if method not in ("exact", "gradient"):
        raise ArgumentError(f'method must be "exact" or "gradient", not {method!r}')
    if not hasattr(base, "_lookup"):
        raise ArgumentError(f"tl.sweep takes a log, such as tl.log_forward_pass(model, x), not {type(base).__name__}")
    if not callable(metric):
        raise ArgumentError(f"metric must be a function of what the model returns, not {metric!r}")
    graph: Graph = base.graph
    what = as_edit(edit) if edit is not None else Patch(donor)
    work = _Sweep(graph, Base(graph, base._lookup._asked), what, metric, over)
    found = work.sites(sites)
    words = _name_of(metric), work.over or ()
    if method == "gradient":
        return Sweep(work.estimated(found), work.base_metric, True, *words)
    with _progress(progress, sum(len(work.cells(value)) for _, value in found)) as shown:
        size = work.size(found) if batch == "auto" else batch
        effects = call_with_grad(False, work.exact, found, size, shown)
        return Sweep(effects, work.base_metric, False, *words)


def _name_of(metric: Callable[[Any], Any]) -> str:
    name = getattr(metric, "__name__", "")
    return name if name.isidentifier() else "the metric"  # and not <lambda>


@contextmanager
def _progress(wanted: bool, total: int) -> Iterator[Callable[[int], Any]]:
    """What to tell how many edits have been done."""
    if not wanted:
        yield lambda done: None
        return
    try:
        shown = progress_bar(total=total, unit=" edits")
    except ImportError as error:
        raise ImportError("a progress bar needs tqdm: pip install tqdm") from error
    with shown as bar:
        yield bar.update


class _Cell(NamedTuple):
    site: str
    value: Value
    at_index: GridIndex | None
    at: Any


class _Sweep:
    def __init__(self, graph: Graph, base: Base, edit: Edit, metric: Callable[[Any], Any], over: Any) -> None:
        self.graph, self.base, self.edit, self.metric = graph, base, edit, metric
        self.over = over if over is None or isinstance(over, tuple) else (over,)
        self.outputs = list(dict.fromkeys(values_in_output(graph.trace.output)))
        self._edited: dict[Value, tuple[Tensor, Tensor]] = {}
        self.edits: Edits = EarlierEdits(graph) if graph.trace.applied else Edits()
        self._stacked = Stacked(graph, self.outputs, self.edits)
        self.base_metric = call_with_grad(False, self.measured, {})

    # ---- where ----------------------------------------------------------------------------------------------

    def sites(self, selectors: Any) -> list[tuple[str, Value]]:
        """The values to edit, each with a name."""
        found: dict[Value, str] = {}
        for selector in Selection.checked(selectors, "sites").selectors:
            plan = EditPlan(self.base, [EditRequest(selector, str(selector), self.edit)])
            names = self._module_names(selector)
            for value in plan.values:
                place = self.graph.place.get(value.index) if value.role != "param" else None
                label = value.address if place is None else self.graph.label(place)
                found.setdefault(value, names.get(value) or label or "?")
        EditPlan.of(self.base, found).check()
        return [(name, value) for value, name in found.items()]

    def _module_names(self, selector: Any) -> dict[Value, str]:
        names: dict[Value, str] = {}
        tree, trace = self.graph.modules, self.graph.trace
        for kind in kinds_of(selector, tree):
            for number in kind.calls(self.graph) if isinstance(kind, Returned) else ():
                call = trace.module_calls[number]
                address = trace.modules[call.module].address or "self"
                name = address if tree.call_counts[call.module] == 1 else f"{address}:{call.number}"
                names |= dict.fromkeys(call.exited, name)
        return names

    def cells(self, value: Value) -> list[tuple[GridIndex | None, Any]]:
        """The indices to edit, each as users and as tensors know it."""
        if self.over is None:
            return [(None, ...)]
        shape = value.shape
        dims = [dim % len(shape) for dim in self.over if -len(shape) <= dim < len(shape)]
        if len(dims) < len(self.over):
            raise ArgumentError(f"over={self.over}: a tensor of shape {tuple(shape)} has no such dimension")
        found: list[tuple[GridIndex | None, Any]] = []
        for index in product(*(range(shape[dim]) for dim in dims)):
            at = [slice(None)] * len(shape)
            for dim, number in zip(dims, index, strict=True):
                at[dim] = number  # type: ignore[call-overload]
            found.append((index, tuple(at)))
        return found

    def edited(self, value: Value) -> tuple[Tensor, Tensor]:
        """A value as it was, and all of it edited."""
        saved = value.saved
        if saved is None:
            raise ReplayError("a site was not saved in the log, so it can't be edited afterwards")
        label = value.address if value.role == "param" else self.graph.label(self.graph.place[value.index])
        op = OpInProgress(self.graph.trace, value, -1)
        if self.edit.needs_arguments:
            raise ArgumentError("a sweep edits values, and swap needs a call; use log.intervene for each")
        moment = Moment(op, 0, partial(donor_at, key=label or ""))
        with grad_scope():
            set_grad_enabled(False)
            before = saved.detach()
            edited, _ = apply_edit(EditRequest(label, label or "?", self.edit), before, moment, allow_change=False)
        return before, edited

    # ---- exact ----------------------------------------------------------------------------------------------

    def exact(self, sites: list[tuple[str, Value]], size: int, shown: Callable[[int], Any]) -> list[Effect]:
        """One edit after the other, or many at once: those of neighbouring places share what they compute."""
        cells = [_Cell(site, value, index, at) for site, value in sites for index, at in self.cells(value)]
        order = sorted(range(len(cells)), key=lambda number: (cells[number].value.call, cells[number].value.index))
        metrics: dict[int, float] = {}
        for start in range(0, len(order), size):
            some = order[start : start + size]
            metrics |= zip(some, self._metrics([cells[number] for number in some]), strict=True)
            shown(len(some))
        found = [(cell, metrics[number]) for number, cell in enumerate(cells)]
        return [Effect(cell.site, cell.at_index, metric, metric - self.base_metric) for cell, metric in found]

    def size(self, sites: list[tuple[str, Value]]) -> int:
        """How many cells to compute at once: as many as fit into the memory they may take."""
        each = self._stacked.cell_bytes(min((value.call for _, value in sites), default=0))
        return max(1, min(_MOST_CELLS, _MEMORY // max(each, 1)))

    def _metrics(self, cells: list[_Cell]) -> list[float]:
        if len(cells) > 1:
            try:
                found = self._stacked.outputs(self._joining(cells))
            except (RuntimeError, DivergenceError, ReplayError, NotReplayable, ValueError):
                pass  # something can't be stacked, or is read and would be another: one after the other
            else:
                return [self.measured({v: t[n] for v, t in found.items()}) for n in range(len(cells))]
        return [self.measured(self._outputs(cell)) for cell in cells]

    def _edits_of(self, value: Value) -> tuple[Tensor, Tensor]:
        if value not in self._edited:
            self._edited[value] = self.edited(value)
        return self._edited[value]

    def _joining(self, cells: list[_Cell]) -> dict[Value, Tensor]:
        """For each value its tensors in the cells that are about it."""
        places: dict[Value, list[Any]] = {}
        for cell in cells:
            places.setdefault(cell.value, []).append(cell.at)
        return {value: _each(*self._edits_of(value), at) for value, at in places.items()}

    def _outputs(self, cell: _Cell) -> dict[Value, Tensor]:
        """What the model would return in a cell, as far as that changes."""
        given = {cell.value: _each(*self._edits_of(cell.value), [cell.at])[0]}
        run = Downstream(self.graph, given, edits=self.edits, without_grad=True)
        for _ in run.values():
            pass
        return {output: run.new[output] for output in self.outputs if output in run.new}

    def measured(self, new: dict[Value, Tensor]) -> float:
        found = self.metric(self._result(new))
        try:
            return float(found)
        except (TypeError, ValueError, RuntimeError):
            name = getattr(self.metric, "__name__", repr(self.metric))
            what = f"a Tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"{found!r:.60}"
            raise ArgumentError(f"metric {name!r} returned {what}, not a number") from None

    def _result(self, new: dict[Value, Tensor]) -> Any:
        def tensor(value: Value) -> Tensor:
            found = new.get(value, value.saved)
            if found is None:
                raise ReplayError("what the model returned was not saved")
            return found

        return reconstructed(self.graph.trace.output, Value, tensor)

    # ---- estimated ------------------------------------------------------------------------------------------

    def estimated(self, sites: list[tuple[str, Value]]) -> list[Effect]:
        """First-order effects: the gradient of the metric times the change, of all sites at once."""
        watched = _Watched({value for _, value in sites}, self.edits)
        given, _ = EditPlan.of(self.base, [value for _, value in sites]).begin()
        with grad_scope():
            set_grad_enabled(True)
            for value in given:
                watched.seen[value] = self.edited(value)[0].clone().requires_grad_()
            run = Downstream(self.graph, {value: watched.seen[value] for value in given}, edits=watched)
            for _ in run.values():
                pass
            new = {output: run.new[output] for output in self.outputs if output in run.new}
            metric = self.metric(self._result(new))
            if not isinstance(metric, Tensor) or not metric.requires_grad:
                raise ArgumentError(
                    'method="gradient" needs a metric that depends on the sites and can be differentiated'
                )
            tensors = [watched.seen[value] for _, value in sites]
            gradients = torch.autograd.grad(metric, tensors, allow_unused=True)
        rows: list[Effect] = []
        for (site, value), gradient in zip(sites, gradients, strict=True):
            before, edited = self.edited(value)
            change = (edited - before) * (torch.zeros_like(before) if gradient is None else gradient)
            for index, at in self.cells(value):
                effect = float(change[at].sum())
                rows.append(Effect(site, index, self.base_metric + effect, effect))
        return rows


class _Watched(Edits):
    """Remembers the tensors of some values as they are computed."""

    def __init__(self, values: set[Value], edits: Edits) -> None:
        self.values, self.edits = values, edits
        self.seen: dict[Value, Tensor] = {}

    def argument(self, call: int, value: Value, tensor: Tensor) -> Tensor:
        return self.edits.argument(call, value, tensor)

    def result(self, value: Value, tensor: Tensor) -> Tensor:
        tensor = self.edits.result(value, tensor)
        if value in self.values:
            self.seen[value] = tensor
        return tensor


def _each(before: Tensor, edited: Tensor, places: list[Any]) -> Tensor:
    """A tensor edited at each place by itself."""
    if places == [...]:
        return edited.unsqueeze(0)
    each = before.repeat(len(places), *[1] * before.dim())
    for cell, at in zip(each, places, strict=True):
        cell[at] = edited[at]
    return each


def values_in_output(output: Any) -> list[Value]:
    """The values in what a model returned."""
    found: list[Value] = []
    reconstructed(output, Value, found.append)
    return found or values_in(output)
