"""Look inside any PyTorch model.

>>> import torchlens as tl
>>> log = tl.log_forward_pass(model, x)
>>> log["linear_1_3"].activation.shape
torch.Size([5, 5])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .api import (
    get_model_metadata,
    load,
    log_backward,
    log_forward_pass,
    recover,
    save,
    show_model_graph,
    validate_backward_pass,
    validate_model_activations,
)
from .capture.dispatcher import Completeness
from .errors import (
    ArgumentError,
    BundleError,
    DivergenceError,
    DrawingError,
    DrawingWarning,
    FidelityWarning,
    LayerNotFoundError,
    PassNeededError,
    ReplayError,
    SeveralOutputsWarning,
    StoreError,
    TorchLensError,
    TorchVersionError,
    UnknownFunctionError,
    UntrustedError,
)
from .errors import near as _near
from .graph.cost import Cost, register_formula, unregister_formula
from .log.backward_pass import BackwardPass, GradFnLog
from .log.layer_log import LayerLog
from .log.model_facts import Conditional
from .log.model_log import ModelLog
from .log.module_log import ModuleLog, ModulePassLog
from .log.op_log import OpLog
from .log.tensor_logs import BufferLog, ParamLog
from .selectors import all_of, any_of
from .source import FuncCallLocation

if TYPE_CHECKING:
    from . import fastlog
    from .comparing.compare import compare
    from .comparing.comparison import Comparison, Difference
    from .comparing.reference import assert_same, save_reference
    from .extraction import reduce
    from .extraction.extract import extract
    from .extraction.store import Store, StoreReport, open_store
    from .extraction.stored_layer import StoredLayer
    from .fastlog.pluck import pluck
    from .intervene import edits
    from .intervene.sweep import sweep
    from .validate.backward import BackwardReport
    from .validate.lint import lint
    from .validate.report import ValidationReport

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "BackwardPass",
    "BackwardReport",
    "BufferLog",
    "BundleError",
    "Comparison",
    "Completeness",
    "Conditional",
    "Cost",
    "Difference",
    "DivergenceError",
    "DrawingError",
    "DrawingWarning",
    "FidelityWarning",
    "FuncCallLocation",
    "GradFnLog",
    "LayerLog",
    "LayerNotFoundError",
    "ModelHistory",
    "ModelLog",
    "ModuleLog",
    "ModulePassLog",
    "OpLog",
    "ParamLog",
    "PassNeededError",
    "ReplayError",
    "SeveralOutputsWarning",
    "Store",
    "StoreError",
    "StoreReport",
    "StoredLayer",
    "TorchLensError",
    "TorchVersionError",
    "UnknownFunctionError",
    "UntrustedError",
    "ValidationReport",
    "all_of",
    "any_of",
    "assert_same",
    "compare",
    "edits",
    "extract",
    "fastlog",
    "get_model_activations",
    "get_model_metadata",
    "get_model_structure",
    "lint",
    "load",
    "log_backward",
    "log_forward_pass",
    "open_store",
    "pluck",
    "recover",
    "reduce",
    "register_formula",
    "save",
    "save_reference",
    "show_model_graph",
    "sweep",
    "unregister_formula",
    "validate_backward_pass",
    "validate_forward_pass",
    "validate_model_activations",
    "validate_saved_activations",
]

# Older names; the whole table is in aliases.py.
ModelHistory = ModelLog
get_model_activations = log_forward_pass
get_model_structure = get_model_metadata
validate_saved_activations = validate_model_activations
validate_forward_pass = validate_model_activations

# Imported when they are first asked for, with all that they need: where each is.
_LATER = {
    "BackwardReport": "validate.backward",
    "Comparison": "comparing.comparison",
    "Difference": "comparing.comparison",
    "Store": "extraction.store",
    "StoreReport": "extraction.store",
    "StoredLayer": "extraction.stored_layer",
    "ValidationReport": "validate.report",
    "assert_same": "comparing.reference",
    "compare": "comparing.compare",
    "edits": "intervene.edits",
    "extract": "extraction.extract",
    "fastlog": "fastlog",
    "lint": "validate.lint",
    "open_store": "extraction.store",
    "pluck": "fastlog.pluck",
    "reduce": "extraction.reduce",
    "save_reference": "comparing.reference",
    "sweep": "intervene.sweep",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_near(name, __all__)}")
    module = import_module(f"{__name__}.{_LATER[name]}")
    found = globals()[name] = module if name in ("edits", "fastlog", "reduce") else getattr(module, name)
    return found


def __dir__() -> list[str]:
    return __all__
