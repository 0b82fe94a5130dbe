"""The only folder that touches torch's private names; everything else goes through here.

    private_name.py    finds a private name, or says what is done where this torch has none
    modes.py           torch function modes, dispatch modes, who overrides torch functions
    call_state.py      grad mode, inference mode, autocast
    tensor_storage.py  storages, lazy copies, references, unusual layouts
    operators.py       schemas, namespaces, higher-order operators, pytrees
    unseen_calls.py    scripts, transforms, collectives: what no torch function mode sees
    autograd_nodes.py  hooks on nodes, and the tensors they keep
    module_calls.py    how torch calls a module; torch.compile

A version of torch may lack any of them. `private` looks one up, and says what is done where it is missing: something
else that does the same, or a `TorchVersionError` from the part that needs it, when that part is used.
"""

from __future__ import annotations

from .autograd_nodes import current_backward, hook_node_output, saved_for_backward, tells_what_is_saved
from .call_state import (
    ACCELERATORS,
    any_autocast,
    autocast_dtypes,
    autocast_state,
    call_with_grad,
    grad_scope,
    inference_scope,
    others_accelerator,
    set_autocast,
    set_autocast_dtypes,
    set_grad_enabled,
)
from .modes import (
    call_without,
    dispatch_stack,
    is_overriding,
    mode_stack,
    no_torch_function,
    overriding_nothing,
    pop_mode,
    push_dispatch_mode,
    push_mode,
    put_modes,
    remove_modes,
    without_dispatch_modes,
)
from .module_calls import (
    LIBRARY_FOLDERS,
    MODULE_CALL,
    MODULE_CALL_INSIDE,
    Stance,
    any_global_hook,
    graph_break,
    has_call_of_its_own,
    inside_compiled,
)
from .operators import (
    HigherOrderOperator,
    OpOverload,
    OpOverloadPacket,
    function_namespaces,
    hand_operators_to,
    higher_order_kernel,
    pytree_members,
    pytree_rebuilt,
    schemas_of,
)
from .private_name import NAMES
from .tensor_storage import (
    FakeTensor,
    StorageWeakRef,
    UninitializedTensorMixin,
    as_class,
    data_address,
    is_zero_tensor,
    jagged_parts,
    lazy_copy,
    make_per_channel_quantized,
    make_per_tensor_quantized,
    neg_view,
    references,
    shares_lazily,
    storage_address,
)
from .unseen_calls import (
    WITHOUT_DERIVATIVES,
    ScriptFunction,
    communicates,
    finished,
    is_functorch_wrapped,
    known_to_scripts,
    operator_compiler,
    program_makers,
    swap_function,
    transform_depth,
    transform_levels,
    unseen_collectives,
    unseen_functions,
)

__all__ = [
    "ACCELERATORS",
    "LIBRARY_FOLDERS",
    "MODULE_CALL",
    "MODULE_CALL_INSIDE",
    "NAMES",
    "WITHOUT_DERIVATIVES",
    "FakeTensor",
    "HigherOrderOperator",
    "OpOverload",
    "OpOverloadPacket",
    "ScriptFunction",
    "Stance",
    "StorageWeakRef",
    "UninitializedTensorMixin",
    "any_autocast",
    "any_global_hook",
    "as_class",
    "autocast_dtypes",
    "autocast_state",
    "call_with_grad",
    "call_without",
    "communicates",
    "current_backward",
    "data_address",
    "dispatch_stack",
    "finished",
    "function_namespaces",
    "grad_scope",
    "graph_break",
    "hand_operators_to",
    "has_call_of_its_own",
    "higher_order_kernel",
    "hook_node_output",
    "inference_scope",
    "inside_compiled",
    "is_functorch_wrapped",
    "is_overriding",
    "is_zero_tensor",
    "jagged_parts",
    "known_to_scripts",
    "lazy_copy",
    "make_per_channel_quantized",
    "make_per_tensor_quantized",
    "mode_stack",
    "neg_view",
    "no_torch_function",
    "operator_compiler",
    "others_accelerator",
    "overriding_nothing",
    "pop_mode",
    "program_makers",
    "push_dispatch_mode",
    "push_mode",
    "put_modes",
    "pytree_members",
    "pytree_rebuilt",
    "references",
    "remove_modes",
    "saved_for_backward",
    "schemas_of",
    "set_autocast",
    "set_autocast_dtypes",
    "set_grad_enabled",
    "shares_lazily",
    "storage_address",
    "swap_function",
    "tells_what_is_saved",
    "transform_depth",
    "transform_levels",
    "unseen_collectives",
    "unseen_functions",
    "without_dispatch_modes",
]
