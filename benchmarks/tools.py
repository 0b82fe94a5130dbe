"""What is run with a model: the plain forward, floors, ways that need no tool, this library, and other tools.

A tool is prepared once with a model and an input, and is then one call without arguments, which is what is timed. What
it keeps is let go within that call. Each is imported only where it is prepared: other tools live in environments of
their own (`peers.py`), where this library isn't to be found.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tests.torchvision_models import torchvision_models
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

Task = Callable[[], None]


@dataclass(frozen=True)
class Tool:
    prepare: Callable[[nn.Module, Tensor], Task]
    base: str = "plain"  # what its time is compared with
    passes: int = 1  # forward passes in one call: the time is divided by them


# ---- plain ----------------------------------------------------------------------------------------------------


def plain(model: nn.Module, x: Tensor) -> Task:
    def run() -> None:
        model(x)

    return run


def backward(model: nn.Module, x: Tensor) -> Task:
    def run() -> None:
        with torch.enable_grad():
            _first_tensor(model(x)).sum().backward()
        model.zero_grad()

    return run


def _first_tensor(output: Any) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]


# ---- floors ---------------------------------------------------------------------------------------------------


class DoNothing(TorchFunctionMode):
    """See every call: what any interception costs."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **kwargs) if kwargs else func(*args)


class KeepOutputs(TorchFunctionMode):
    """See every call, keep what it returns: what having all values in memory costs."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs) if kwargs else func(*args)
        if isinstance(result, Tensor):
            self.kept.append(result.detach())
        return result


class KeepAndCopy(KeepOutputs):
    """The same with right values: what is about to be overwritten in place is copied before."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        in_place = (name.endswith("_") and not name.endswith("__")) or bool(kwargs and kwargs.get("inplace"))
        if in_place and args and isinstance(args[0], Tensor):
            self.kept.append(args[0].detach().clone())
        return super().__torch_function__(func, types, args, kwargs)


def floor_of(mode: Callable[[], TorchFunctionMode]) -> Callable[[nn.Module, Tensor], Task]:
    def prepare(model: nn.Module, x: Tensor) -> Task:
        def run() -> None:
            with mode():
                model(x)

        return run

    return prepare


# ---- without a tool -------------------------------------------------------------------------------------------


def leaf_modules(model: nn.Module) -> dict[str, nn.Module]:
    return {name: module for name, module in model.named_modules() if next(module.children(), None) is None}


def hooks(model: nn.Module, x: Tensor) -> Task:
    """Forward hooks on all modules without children."""
    leaves = leaf_modules(model).values()

    def run() -> None:
        kept: list[Any] = []
        handles = [leaf.register_forward_hook(lambda module, args, result: kept.append(result)) for leaf in leaves]
        model(x)
        for handle in handles:
            handle.remove()

    return run


def features(model: nn.Module, x: Tensor) -> Task:
    """torchvision's feature extractor, for all nodes. Making it is not part of the time."""
    torchvision_models()
    from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

    extractor = create_feature_extractor(model, get_graph_node_names(model)[1]).eval()

    def run() -> None:
        extractor(x)

    return run


# ---- this library ---------------------------------------------------------------------------------------------


def log_with(**options: Any) -> Callable[[nn.Module, Tensor], Task]:
    """A log, built and printed."""

    def prepare(model: nn.Module, x: Tensor) -> Task:
        import torchlens as tl

        return lambda: _drop(str(tl.log_forward_pass(model, x, **options)))

    return prepare


def capture(model: nn.Module, x: Tensor) -> Task:
    """A log whose graph nobody asks for."""
    import torchlens as tl

    return lambda: _drop(tl.log_forward_pass(model, x))


def three_layers(model: nn.Module, x: Tensor) -> Task:
    """Those of three modules without children, among those that are called."""
    called: list[str] = []
    handles = [
        module.register_forward_hook(lambda module, args, result, name=name: called.append(name))  # type: ignore[misc]
        for name, module in leaf_modules(model).items()
    ]
    model(x)
    for handle in handles:
        handle.remove()
    chosen = [called[len(called) * quarter // 4] for quarter in (1, 2, 3)]
    return log_with(layers_to_save=chosen)(model, x)


FASTLOG_PASSES = 3


def recorder(
    options: Callable[[nn.Module], dict[str, Any]],
) -> Callable[[nn.Module, Tensor], Task]:
    """A few passes in one Recorder, with its set-up."""

    def prepare(model: nn.Module, x: Tensor) -> Task:
        import torchlens as tl

        chosen = options(model)

        def run() -> None:
            with tl.fastlog.Recorder(model, **chosen) as recording:
                for _ in range(FASTLOG_PASSES):
                    recording.log(x)

        return run

    return prepare


def one_kind(model: nn.Module) -> dict[str, Any]:
    normalised = any(isinstance(module, nn.LayerNorm) for module in model.modules())
    return {"keep_op": "layernorm" if normalised else "relu"}


def gradients(model: nn.Module, x: Tensor) -> Task:
    import torchlens as tl

    def run() -> None:
        with torch.enable_grad():
            log = tl.log_forward_pass(model, x, save_gradients=True)
            str(log)
            log[log.output_layers[0]].activation.sum().backward()
        model.zero_grad()

    return run


def validation(perturb: bool) -> Callable[[nn.Module, Tensor], Task]:
    """Validation of a log that is there."""

    def prepare(model: nn.Module, x: Tensor) -> Task:
        import torchlens as tl

        log = tl.log_forward_pass(model, x)

        def run() -> None:
            report = log.validate(perturb)
            if not report:
                raise AssertionError(f"the log is wrong:\n{report}")

        return run

    return prepare


def draw(model: nn.Module, x: Tensor) -> Task:
    import torchlens as tl

    path = Path(tempfile.mkdtemp(prefix="torchlens-")) / "graph.svg"
    return lambda: _drop(tl.show_model_graph(model, x, vis_outpath=path, vis_save_only=True, renderer="builtin"))


def _drop(result: object) -> None:
    """So that a lambda returns nothing."""


# ---- other tools, through what their documentation shows --------------------------------------------------------


def torchlens_2_15(model: nn.Module, x: Tensor) -> Task:
    torchvision_models()  # it imports torchvision by itself, which must have been prepared
    import torchlens as tl

    return lambda: _drop(str(tl.log_forward_pass(model, x, layers_to_save="all")))


def torchlens_newest(model: nn.Module, x: Tensor) -> Task:
    torchvision_models()
    import torchlens as tl

    return lambda: _drop(str(tl.trace(model, x)))


def nnsight(model: nn.Module, x: Tensor) -> Task:
    """What every module returns."""
    from nnsight import NNsight

    wrapped = NNsight(model)

    def run() -> None:
        with wrapped.trace(x) as tracer:
            cache = tracer.cache()
        assert cache["model"].output is not None

    return run


def torchview(model: nn.Module, x: Tensor) -> Task:
    """The graph down to single functions; values are not kept, nothing is drawn."""
    from torchview import draw_graph

    return lambda: _drop(draw_graph(model, input_data=x, device="cpu", mode="eval", depth=float("inf")).visual_graph)


TOOLS: dict[str, Tool] = {
    "plain": Tool(plain),
    "backward": Tool(backward),
    "intercept": Tool(floor_of(DoNothing)),
    "floor": Tool(floor_of(KeepOutputs)),
    "copies": Tool(floor_of(KeepAndCopy)),
    "hooks": Tool(hooks),
    "features": Tool(features),
    "capture": Tool(capture),
    "everything": Tool(log_with()),
    "metadata": Tool(log_with(layers_to_save=None)),
    "three": Tool(three_layers),
    "fastlog nothing": Tool(recorder(lambda model: {"keep_op": lambda ctx: False}), passes=FASTLOG_PASSES),
    "fastlog one kind": Tool(recorder(one_kind), passes=FASTLOG_PASSES),
    "fastlog stop": Tool(recorder(lambda model: {**one_kind(model), "stop_after": "layer2.1"}), passes=FASTLOG_PASSES),
    "gradients": Tool(gradients, base="backward"),
    "replay": Tool(validation(perturb=False)),
    "validate": Tool(validation(perturb=True)),
    "draw": Tool(draw),
    "torchlens 2.15.0": Tool(torchlens_2_15),
    "torchlens newest": Tool(torchlens_newest),
    "nnsight": Tool(nnsight),
    "torchview": Tool(torchview),
}
