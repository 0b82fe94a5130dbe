"""What is known of a model before it runs: its modules, parameters and buffers.

prepare.c has `_each_module` and `_tensors_of` as well: a small model runs in the time that they take in Python.
"""

from __future__ import annotations

from torch import Tensor, nn

from .._torch import UninitializedTensorMixin, inside_compiled
from ..selectors import Modules, qualified
from .model_tensors import TensorsById
from .modules import named_modules
from .records import ModuleInfo, TensorInfo, Trace


def describe_modules(model: nn.Module, trace: Trace) -> list[nn.Module]:
    """List the modules, each once."""
    modules, infos = _each_module(named_modules(model))
    trace.modules += infos
    return modules


def _each_module(named: list[tuple[str, nn.Module]]) -> tuple[list[nn.Module], list[ModuleInfo]]:
    """Modules with their addresses become a list with each module once, and what is known of it."""
    modules: list[nn.Module] = []
    infos: list[ModuleInfo] = []
    numbers: dict[int, int] = {}  # by id
    for address, module in named:
        number = numbers.setdefault(id(module), len(modules))
        if number < len(modules):  # it has a name already
            infos[number] = infos[number]._replace(all_addresses=(*infos[number].all_addresses, address))
            continue
        modules.append(module)
        training = getattr(module, "training", False)  # a frozen TorchScript module has lost it
        name, qualname, bases = class_names(type(module))
        infos.append(ModuleInfo(address, (address,), name, training, qualname, bases))
    return modules, infos


def class_names(kind: type) -> tuple[str, str, tuple[str, ...]]:
    """The name of a class, the full one, and those of the classes that it is derived from."""
    bases = [base for base in kind.__mro__[1:] if base not in (nn.Module, object)]
    return kind.__name__, qualified(kind), tuple([qualified(base) for base in bases])


def structure_of(model: nn.Module) -> Trace:
    """The modules, parameters and buffers of a model that has not run."""
    trace = Trace(type(inside_compiled(model)).__name__)
    describe_tensors(describe_modules(model, trace), trace)
    return trace


def modules_of(model: nn.Module) -> Modules:
    """The modules of a model, for selectors."""
    trace = Trace(type(inside_compiled(model)).__name__)
    describe_modules(model, trace)
    return Modules(trace.modules)


def describe_tensors(modules: list[nn.Module], trace: Trace) -> TensorsById:
    """List the parameters and buffers."""
    params = _tensors_of(modules, trace.modules, "_parameters")
    buffers = _tensors_of(modules, trace.modules, "_buffers")
    trace.param_infos = [info for _, info in params.values()]
    trace.buffer_infos = [info for _, info in buffers.values()]
    return TensorsById(params, buffers)


def _tensors_of(
    modules: list[nn.Module], infos: list[ModuleInfo], attribute: str
) -> dict[int, tuple[Tensor, TensorInfo]]:
    """The parameters, or the buffers, of modules of which this is known: by id, each with what is known of it."""
    named: dict[int, tuple[Tensor, tuple[str, ...]]] = {}
    for module, info in zip(modules, infos, strict=True):
        for name, tensor in getattr(module, attribute).items():
            if tensor is None:
                continue
            names = tuple([f"{address}.{name}" if address else name for address in info.all_addresses])
            key = id(tensor)
            named[key] = (tensor, named[key][1] + names if key in named else names)  # registered in several modules
    return {key: (tensor, _described(tensor, names)) for key, (tensor, names) in named.items()}


def _described(tensor: Tensor, names: tuple[str, ...]) -> TensorInfo:
    shape = None if isinstance(tensor, UninitializedTensorMixin) else tensor.shape
    return TensorInfo(names[0], names, shape, tensor.dtype, tensor.device, tensor.requires_grad)
