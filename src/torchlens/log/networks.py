"""The graph for networkx."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .model_log import ModelLog

_FACTS = ("layer_type", "layer_label", "pass_num", "tensor_shape", "func_name", "containing_module", "uses_params")


def to_networkx(log: ModelLog) -> Any:
    try:
        import networkx
    except ImportError as error:
        raise ImportError('to_networkx needs networkx: pip install "torchlens[graphs]"') from error
    network = networkx.DiGraph(name=log.model_name)
    for op in log.all_ops:
        network.add_node(op.label, **{fact: getattr(op, fact) for fact in _FACTS})
    for op in log.all_ops:
        network.add_edges_from((parent, op.label) for parent in op.parent_layers)
    return network
