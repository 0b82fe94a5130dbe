"""What a log says about the forward pass as a whole: the run, the structure, totals of tensors, parameters and work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..capture.dispatcher import Completeness
from ..capture.records import Trace, Value, total_nbytes
from ..graph.program import where
from ..words import human_size
from .accessor import Accessor
from .interventions import Interventions
from .module_log import ModuleLog, module_logs
from .op_log import OpLog
from .tensor_logs import BufferLog, ParamLog, buffers_of, params_of

if TYPE_CHECKING:
    from ..graph.graph import Graph


@dataclass(frozen=True)
class Conditional:
    """One time that a tensor decided what the model did: an entry of `log.conditionals`."""

    value: Any  # what the tensor became: True, False, a number
    kind: str  # "if", "elif", "while", "assert", "ternary", "comprehension", "guard", "boolop", "call", "unknown"
    file: str
    line: int
    source: str  # the test, as written
    layer: str | None  # the operation that was asked
    outcome: bool | None  # which way the test went, where this tensor alone decided it


class ModelFacts:
    """The facts of a `ModelLog`. Each is derived from the records when it is asked for."""

    _trace: Trace

    if TYPE_CHECKING:

        @property
        def graph(self) -> Graph: ...  # the log builds it when it is first asked for

    # ---- the run --------------------------------------------------------------------------------------------

    @property
    def model_name(self) -> str:
        """The class of the model."""
        return self._trace.model_name

    @property
    def is_complete(self) -> bool:
        """False when the forward pass raised and this is what was logged until then."""
        return self._trace.complete

    @property
    def warnings(self) -> list[str]:
        """Where the log may be wrong or incomplete; empty for almost every model."""
        return [*self._trace.warnings, *self._trace.remarks]

    @property
    def interventions(self) -> Interventions:
        """What was edited while the model ran: prints as a table of sites, edits, and what they changed.

        >>> tl.log_forward_pass(model, x, interventions={"fc": tl.edits.zero()}).interventions[0].num_applied
        1
        """
        return Interventions(self.graph)

    @property
    def completeness(self) -> Completeness | None:
        """Whether every operation was seen; None unless the log was made with `check_completeness=True`."""
        return self._trace.completeness

    @property
    def random_seed_used(self) -> int:
        """The seed of the run. Given back as `random_seed=`, it reproduces the run."""
        return self._trace.seed

    @property
    def pass_start_time(self) -> float:
        """When the forward pass began, in seconds since the epoch."""
        return self._trace.start_time

    @property
    def pass_end_time(self) -> float:
        return self._trace.end_time

    @property
    def time_total(self) -> float:
        """Seconds from call to log."""
        return self._trace.seconds

    @property
    def time_function_calls(self) -> float:
        """Seconds spent in the model's torch functions."""
        return sum(call.time for call in self._trace.calls) / 1e9

    @property
    def time_logging(self) -> float:
        """Seconds spent in everything else: logging, and the model's own Python code."""
        return self.time_total - self.time_function_calls

    # ---- structure ------------------------------------------------------------------------------------------

    @property
    def is_recurrent(self) -> bool:
        """Does any layer have several passes?"""
        return self.max_recurrent_loops > 1

    @property
    def max_recurrent_loops(self) -> int:
        """The most passes that a layer has."""
        return int(self.graph.pass_of.max(initial=1))

    @property
    def is_branching(self) -> bool:
        """Does any operation feed more than one other?"""
        return self.graph.is_branching

    @property
    def has_conditional_branching(self) -> bool:
        """Did a tensor decide what ran next?"""
        return self.graph.conditions.is_branching

    @cached_property
    def conditionals(self) -> list[Conditional]:
        """Every time that a tensor decided something, in order."""
        return [
            Conditional(
                value=condition.event.result,
                kind=condition.statement.kind,
                file=condition.statement.file,
                line=condition.statement.line,
                source=condition.statement.source,
                layer=self.graph.label(condition.places[0]) if condition.places else None,
                outcome=condition.outcome,
            )
            for condition in self.graph.conditions.seen
        ]

    def _labels(self, places: Iterable[int]) -> list[str]:
        return [self.graph.label(place) for place in places]

    def _labels_with_role(self, *roles: str) -> list[str]:
        entries = self.graph.entries
        return self._labels(place for place, value in enumerate(entries) if value.role in roles)

    def _all_ops(self) -> Iterator[OpLog]:
        return (OpLog(self.graph, place) for place in range(len(self.graph.entries)))

    @property
    def input_layers(self) -> list[str]:
        return self._labels_with_role("input")

    @property
    def output_layers(self) -> list[str]:
        return self._labels_with_role("output")

    @property
    def buffer_layers(self) -> list[str]:
        return self._labels_with_role("buffer", "update")

    @property
    def internally_initialized_layers(self) -> list[str]:
        """Tensors made inside the model from nothing, such as by `torch.rand`."""
        return [op.label for op in self._all_ops() if op.is_internally_initialized]

    @property
    def internally_terminated_bool_layers(self) -> list[str]:
        """Single bools that decided something and went nowhere else."""
        return [op.label for op in self._all_ops() if op.is_terminal_bool_layer]

    # ---- tensors --------------------------------------------------------------------------------------------

    @property
    def num_tensors_total(self) -> int:
        return len(self.graph.entries)

    @property
    def num_tensors_saved(self) -> int:
        return len(self._saved)

    @cached_property
    def _saved(self) -> list[Value]:
        return [value for value in self.graph.entries if value.kept is not None]

    @cached_property
    def total_activation_memory(self) -> int:
        """Bytes of all tensors of the forward pass, saved or not."""
        return total_nbytes(self.graph.entries)

    @property
    def total_activation_memory_str(self) -> str:
        return human_size(self.total_activation_memory)

    @property
    def saved_activation_memory(self) -> int:
        """Bytes of the tensors that were saved."""
        if len(self._saved) == self.num_tensors_total:
            return self.total_activation_memory
        return total_nbytes(self._saved)

    @property
    def saved_activation_memory_str(self) -> str:
        return human_size(self.saved_activation_memory)

    # ---- parameters -----------------------------------------------------------------------------------------

    @property
    def layers_with_params(self) -> list[str]:
        """The layers that use parameters."""
        return [self.graph.layer_labels[layer] for layer in self._param_tensors_by_layer]

    @cached_property
    def _param_tensors_by_layer(self) -> dict[int, int]:
        """How many parameter tensors each layer uses; layers without are left out."""
        counts: dict[int, int] = {}
        entries, params = self.graph.entries, self.graph.params
        firsts = self.graph.first_entries
        layers = where(self.graph.uses_params[self.graph.made_by[firsts]])
        for layer, first in zip(layers.tolist(), firsts[layers].tolist(), strict=True):
            value = entries[first]
            if value.role == "op":
                counts[layer] = len(params[value.call])
        return counts

    @property
    def num_param_operations(self) -> int:
        """What the print calls parameter operations: parameter tensors, summed over the layers that use them."""
        return sum(self._param_tensors_by_layer.values())

    @property
    def total_param_layers(self) -> int:
        return len(self._param_tensors_by_layer)

    @property
    def total_param_tensors(self) -> int:
        return len(self._trace.param_infos)

    @property
    def total_params(self) -> int:
        """Elements of the model's parameters, each parameter once."""
        return sum([info.shape.numel() for info in self._trace.param_infos if info.shape is not None])

    @property
    def total_params_trainable(self) -> int:
        return sum(info.numel for info in self._trace.param_infos if info.trainable)

    @property
    def total_params_frozen(self) -> int:
        return self.total_params - self.total_params_trainable

    @property
    def total_params_memory(self) -> int:
        sizes = [(info.dtype, info.shape.numel()) for info in self._trace.param_infos if info.shape is not None]
        types = {dtype for dtype, _ in sizes}  # usually one, and asking it for its size takes longest
        return sum([dtype.itemsize * sum([size for other, size in sizes if other is dtype]) for dtype in types])

    @property
    def total_params_memory_str(self) -> str:
        return human_size(self.total_params_memory)

    # ---- work -----------------------------------------------------------------------------------------------

    @property
    def total_macs(self) -> int:
        """Multiply-adds of matrix products and convolutions."""
        return sum(cost.macs for cost in self.graph.costs)

    @property
    def total_flops(self) -> int:
        """Floating point operations, as far as they are known: see `layers_with_unknown_flops`."""
        return sum(cost.flops or 0 for cost in self.graph.costs)

    @property
    def layers_with_unknown_flops(self) -> list[str]:
        """Operations without a formula; `tl.register_formula` adds one."""
        return self._labels(place for place, cost in enumerate(self.graph.costs) if cost.flops is None)

    # ---- modules --------------------------------------------------------------------------------------------

    @cached_property
    def modules(self) -> Accessor[ModuleLog]:
        """The modules by address; `modules["fc:2"]` is a call, `modules["self"]` the model itself.

        >>> len(log.modules) == log.num_modules + 1        # the print counts without the model itself
        True
        """
        return module_logs(self.graph)

    @cached_property
    def params(self) -> Accessor[ParamLog]:
        """The parameters by address."""
        return params_of(self.graph)

    @cached_property
    def buffers(self) -> Accessor[BufferLog]:
        """The buffers by address."""
        return buffers_of(self.graph)

    @property
    def num_modules(self) -> int:
        """Submodules of the model, whether called or not."""
        return len(self.module_addresses)

    @property
    def module_addresses(self) -> list[str]:
        return [address for info in self._trace.modules if (address := info.address)]

    @property
    def module_types(self) -> dict[str, str]:
        """The class of each submodule."""
        return {info.address: info.class_name for info in self._trace.modules if info.address}

    @property
    def module_num_passes(self) -> dict[str, int]:
        """How often each submodule was called."""
        counts = self.graph.modules.call_counts
        infos = self._trace.modules
        return {info.address: count for info, count in zip(infos, counts, strict=True) if info.address}

    @property
    def module_pass_children(self) -> dict[str, list[str]]:
        """For each call of a submodule, the module calls made directly inside it."""
        modules = self.graph.modules
        return {
            modules.label(call): [modules.label(child) for child in modules.children[call]]
            for call in range(len(modules.calls))
            if modules.address(call)
        }

    @property
    def top_level_module_passes(self) -> list[str]:
        """The calls of submodules that were made by the model itself."""
        return self.modules["self"].call_children
