"""The layers and models of torch_geometric, on one small graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from tests.torchvision_models import torchvision_models
from tests.zoo.build import Built
from torch import Tensor, nn

torchvision_models()  # which torch_geometric imports

import torch_geometric.nn as geometric

NODES, CHANNELS = 6, 8
METADATA = (["a", "b"], [("a", "to", "b"), ("b", "to", "a")])


def _perceptron(inputs: int = CHANNELS, outputs: int = CHANNELS) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, outputs))


#: What constructors ask for, by the name of the parameter.
_OPTIONS: dict[str, Callable[[], Any]] = {
    "in_channels": lambda: CHANNELS,
    "out_channels": lambda: CHANNELS,
    "hidden_channels": lambda: CHANNELS,
    "channels": lambda: CHANNELS,
    "num_layers": lambda: 2,
    "K": lambda: 2,
    "k": lambda: 2,
    "alpha": lambda: 0.5,
    "num_relations": lambda: 3,
    "first_aggr": lambda: True,
    "dim": lambda: 2,
    "kernel_size": lambda: 3,
    "space_dimensions": lambda: 2,
    "propagate_dimensions": lambda: 4,
    "nn": _perceptron,
    "aggregators": lambda: ["mean", "max"],
    "scalers": lambda: ["identity", "amplification"],
    "deg": lambda: torch.tensor([0, 2, 4]),
    "filter_size": lambda: 2,
    "edge_dim": lambda: 4,
    "metadata": lambda: METADATA,
    "num_node_types": lambda: 2,
    "num_edge_types": lambda: 3,
    "edge_type_emb_dim": lambda: 4,
    "edge_attr_emb_dim": lambda: 4,
    "mlp_h": lambda: _perceptron(CHANNELS, 3),
    "mlp_f": lambda: _perceptron(CHANNELS + 3, CHANNELS),
    "mlp_g": _perceptron,
    "conv": lambda: geometric.GCNConv(CHANNELS, CHANNELS),
    "convs": lambda: {kind: geometric.SAGEConv(CHANNELS, CHANNELS) for kind in METADATA[1]},
    "mode": lambda: "cat",
    "types": lambda: METADATA[0],
    "encoder": lambda: geometric.GCNConv(CHANNELS, CHANNELS),
    "discriminator": _perceptron,
    "summary": lambda: lambda z, *rest: z.mean(0).sigmoid(),
    "corruption": lambda: lambda x, edges: (x.flip(0), edges),
    "depth": lambda: 2,
    "num_blocks": lambda: 2,
    "num_bilinear": lambda: 4,
    "num_spherical": lambda: 3,
    "num_radial": lambda: 3,
    "int_emb_size": lambda: 8,
    "basis_emb_size": lambda: 4,
    "out_emb_channels": lambda: 8,
    "num_nodes": lambda: NODES,
    "embedding_dim": lambda: CHANNELS,
    "num_timesteps": lambda: 2,
    "num_correction_layers": lambda: 2,
    "correction_alpha": lambda: 0.5,
    "num_smoothing_layers": lambda: 2,
    "smoothing_alpha": lambda: 0.5,
    "num_classes": lambda: 3,
    "hidden_node_channels": lambda: CHANNELS,
    "hidden_edge_channels": lambda: CHANNELS,
    "walk_length": lambda: 4,
    "context_size": lambda: 2,
    "edge_index": lambda: _edges(),
    "edge_index_dict": lambda: {kind: _edges() for kind in METADATA[1]},
    "metapath": lambda: METADATA[1],
    "dim_emb": lambda: CHANNELS,
    "dim_pe_in": lambda: CHANNELS,
    "dim_pe_out": lambda: 4,
    "num_rels": lambda: 3,
    "seq_len": lambda: 2,
    "raw_msg_dim": lambda: 4,
    "memory_dim": lambda: 8,
    "time_dim": lambda: 4,
}

#: Where a name means something else, or an optional argument is needed.
_SPECIAL: dict[str, dict[str, Any]] = {
    "PointNetConv": {"local_nn": _perceptron(CHANNELS + 3)},
    "PPFConv": {"local_nn": _perceptron(CHANNELS + 4)},
    "EdgeConv": {"nn": _perceptron(2 * CHANNELS)},
    "DynamicEdgeConv": {"nn": _perceptron(2 * CHANNELS)},
    "NNConv": {"nn": _perceptron(4, CHANNELS * CHANNELS)},
    "GINEConv": {"edge_dim": 4},
    "CGConv": {"dim": 4},
    "PNA": {"aggregators": ["mean", "max"], "scalers": ["identity"], "deg": torch.tensor([0, 2, 4])},
    "MLP": {"channel_list": [CHANNELS, 16, 4]},
    "SchNet": {"hidden_channels": 8, "num_filters": 8, "num_interactions": 2, "num_gaussians": 5},
    "ViSNet": {"hidden_channels": 16, "num_heads": 2, "num_layers": 2, "num_rbf": 8},
    "GPSConv": {"heads": 2},
    "DeepGCNLayer": {"conv": geometric.GCNConv(CHANNELS, CHANNELS), "norm": nn.LayerNorm(CHANNELS), "act": nn.ReLU()},
    "GroupAddRev": {"conv": geometric.GCNConv(CHANNELS // 2, CHANNELS // 2), "num_groups": 2},
    "FusedGATConv": {"in_channels": CHANNELS, "out_channels": CHANNELS, "add_self_loops": False},
    "GPSE": {"dim_in": CHANNELS, "dim_out": 4, "dim_inner": 8, "layer_type": "resgatedgcnconv", "layers_mp": 2},
    "HGTConv": {"heads": 2},
    "HANConv": {"heads": 2},
    "XConv": {"dim": 3},
    "VGAE": {"encoder": None},
    "ARGVA": {"encoder": None},
    "MetaLayer": {"edge_model": None},
    "TGNMemory": {
        "message_module": geometric.models.tgn.IdentityMessage(4, 8, 4),
        "aggregator_module": geometric.models.tgn.LastAggregator(),
    },
}


def _edges() -> Tensor:
    """A ring with two chords, in both directions."""
    there = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 1], [1, 2, 3, 4, 5, 0, 3, 4]])
    return torch.cat([there, there.flip(0)], 1)


class EdgeModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.nn = _perceptron(2 * CHANNELS + 4, 4)

    def forward(self, source: Tensor, target: Tensor, edge_attr: Tensor, u: Any, batch: Any) -> Tensor:
        return self.nn(torch.cat([source, target, edge_attr], 1))


class Variational(nn.Module):
    """Mean and spread of a code for each node."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = geometric.GCNConv(CHANNELS, CHANNELS)
        self.spread = geometric.GCNConv(CHANNELS, CHANNELS)

    def forward(self, x: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        return self.mean(x, edges), self.spread(x, edges)


def _values() -> dict[str, Any]:
    """What forward methods ask for, by the name of the parameter."""
    edges = _edges()
    count = edges.shape[1]
    x = torch.rand(NODES, CHANNELS)
    nodes = {"a": torch.rand(NODES, CHANNELS), "b": torch.rand(NODES, CHANNELS)}
    return {
        "x": x,
        "x_0": torch.rand(NODES, CHANNELS),
        "edge_index": edges,
        "hyperedge_index": torch.stack([edges[0], torch.arange(count) % 4]),
        "pos_edge_index": edges[:, :8],
        "neg_edge_index": edges[:, 8:],
        "edge_attr": torch.rand(count, 4),
        "edge_type": torch.arange(count) % 3,
        "node_type": torch.arange(NODES) % 2,
        "pos": torch.rand(NODES, 3) * 3,
        "normal": nn.functional.normalize(torch.rand(NODES, 3), dim=1),
        "batch": torch.tensor([0, 0, 0, 1, 1, 1]),
        "z": torch.tensor([1, 6, 8, 7, 1, 6]),
        "y": torch.tensor([0, 1, 2, 0, 1, 2]),
        "y_soft": torch.rand(NODES, 3).softmax(1),
        "mask": torch.tensor([True, False] * 3),
        "xs": [x, torch.rand(NODES, CHANNELS)],
        "xs_dict": {name: [value, value * 2] for name, value in nodes.items()},
        "x_dict": nodes,
        "args_dict": nodes,
        "edge_index_dict": dict.fromkeys(METADATA[1], edges),
        "pos_enc": torch.rand(NODES, CHANNELS),
        "n_id": torch.tensor([0, 2, 4]),
        "ppr_matrix": torch.rand(NODES, NODES).to_sparse(),
    }


#: Layers that do more with what forward takes as an option.
_WITH_EDGE_FEATURES = {
    "GINEConv", "CGConv", "NNConv", "GMMConv", "SplineConv", "PDNConv", "HEATConv", "AttentiveFP", "CuGraphGATConv",
    "MetaLayer",
}  # fmt: skip
_WITH_RELATIONS = {"RGCNConv", "FastRGCNConv", "RGATConv", "CuGraphRGCNConv"}
_ON_GRAPH = {
    "DeepGraphInfomax",
    "GAE",
    "VGAE",
    "ARGA",
    "ARGVA",
    "DeepGCNLayer",
    "GroupAddRev",
    "GPSConv",
    "AntiSymmetricConv",
}


def names() -> list[str]:
    kinds = [name for name in geometric.conv.__all__ if name != "MessagePassing"] + list(geometric.models.__all__)
    return [name for name in kinds if inspect.isclass(_class(name))]


def _class(name: str) -> Any:
    return getattr(geometric, name, None) or getattr(geometric.models, name)


def build(name: str) -> Built:
    kind = _class(name)
    model = kind(**_arguments(kind, name))
    model.eval()  # not every one of them returns itself
    values = _values()
    if name == "InnerProductDecoder":
        values["z"] = values["x"]
    if name == "LPFormer":
        values["batch"] = values["edge_index"][:, :3]
    if name == "WLConv":
        values["x"] = values["z"]
    if name == "DNAConv":
        values["x"] = torch.rand(NODES, 3, CHANNELS)
    if name in ("GMMConv", "SplineConv"):
        values["edge_attr"] = torch.rand(16, 2)
    if name == "CorrectAndSmooth":
        return Built(
            Smoothing(model), [values["y_soft"], values["y"][values["mask"]], values["mask"], values["edge_index"]]
        )
    if name == "PMLP":
        return Built(model, [values["x"], values["edge_index"]])
    if name == "MetaPath2Vec":
        return Built(model, ["a"])
    if name in _ON_GRAPH:
        return Built(model, [values["x"], values["edge_index"]])
    return Built(model, [], {key: values[key] for key in _wanted(model, name)})


def _arguments(kind: Any, name: str) -> dict[str, Any]:
    required = [
        parameter.name
        for parameter in list(inspect.signature(kind.__init__).parameters.values())[1:]
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    special = dict(_SPECIAL.get(name, {}))
    if name in ("VGAE", "ARGVA"):
        special["encoder"] = Variational()
    if name == "MetaLayer":
        special["edge_model"] = EdgeModel()
    return {**{key: _OPTIONS[key]() for key in required if key not in special}, **special}


def _wanted(model: nn.Module, name: str) -> list[str]:
    parameters = inspect.signature(model.forward).parameters.values()
    wanted = [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    wanted += ["edge_attr"] if name in _WITH_EDGE_FEATURES and "edge_attr" not in wanted else []
    wanted += ["edge_type"] if name in _WITH_RELATIONS and "edge_type" not in wanted else []
    return wanted


class Smoothing(nn.Module):
    """Correct and smooth, one after the other, as one forward pass."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, y_soft: Tensor, y_true: Tensor, mask: Tensor, edges: Tensor) -> Tensor:
        corrected = self.model.correct(y_soft, y_true, mask, edges)
        return self.model.smooth(corrected, y_true, mask, edges)
