"""The graph for networkx."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import PassNeededError

if TYPE_CHECKING:
    from .layer_log import LayerLog
    from .model_log import ModelLog
    from .op_log import OpLog

_FACTS = (
    "layer_label", "layer_type", "num_passes", "tensor_shape", "tensor_dtype", "tensor_memory", "func_name",
    "func_time", "macs", "flops", "containing_module", "leaf_module", "uses_params", "param_addresses",
    "num_params_total", "params_memory", "buffer_address", "is_input_layer", "is_output_layer", "is_buffer_layer",
)  # fmt: skip
_FACTS_OF_ONE_PASS = ("pass_num", "operation_num")


def to_networkx(log: ModelLog, rolled: bool) -> Any:
    try:
        import networkx
    except ImportError as error:
        raise ImportError('to_networkx needs networkx: pip install "forwardlens[graphs]"') from error
    graph, network = log.graph, networkx.DiGraph(name=log.model_name)
    if rolled:
        names = [graph.layer_labels[layer] for layer in graph.layers]
        for layer, label in enumerate(graph.layer_labels):
            network.add_node(label, **_facts(log._layer(layer), _FACTS))
    else:
        names = [graph.label(place) for place in range(len(graph.entries))]
        for op in log.all_ops:
            network.add_node(op.label, **_facts(op, _FACTS + _FACTS_OF_ONE_PASS))
    for place, parents in enumerate(graph.parents):
        network.add_edges_from((names[parent], names[place]) for parent in parents)
    return network


def _facts(layer: OpLog | LayerLog, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: _fact(layer, name) for name in names}


def _fact(layer: OpLog | LayerLog, name: str) -> Any:
    """None where the passes of a layer differ."""
    try:
        fact = getattr(layer, name)
    except PassNeededError:
        return None
    return str(fact) if name == "tensor_dtype" else fact
