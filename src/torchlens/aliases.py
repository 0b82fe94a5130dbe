"""Every older spelling, in one table. All of them work, without warnings."""

from __future__ import annotations

from typing import Any, ClassVar

from .errors import near

FUNCTIONS = {
    "get_model_activations": "log_forward_pass",
    "get_model_structure": "get_model_metadata",
    "validate_saved_activations": "validate_model_activations",
    "validate_forward_pass": "validate_model_activations",
}

ARGUMENTS = {"vis_opt": "vis_mode"}

CLASSES = {"ModelHistory": "ModelLog"}

MODEL_ATTRIBUTES = {
    "model_is_recurrent": "is_recurrent",
    "model_max_recurrent_loops": "max_recurrent_loops",
    "model_is_branching": "is_branching",
    "model_has_conditional_branching": "has_conditional_branching",
    "layers_computed_with_params": "layers_with_params",
    "tensor_fsize_total": "total_activation_memory",
    "tensor_fsize_saved": "saved_activation_memory",
    "total_params_fsize": "total_params_memory",
    "elapsed_time_total": "time_total",
    "elapsed_time_function_calls": "time_function_calls",
    "elapsed_time_torchlens_logging": "time_logging",
}

LAYER_ATTRIBUTES = {
    "layer_passes_total": "num_passes",
    "tensor": "activation",
    "grad": "gradient",
    "tensor_contents": "activation",
    "tensor_fsize": "tensor_memory",
    "creation_args": "captured_args",
    "creation_kwargs": "captured_kwargs",
    "func_applied_name": "func_name",
    "func_time_elapsed": "func_time",
    "func_position_args_non_tensor": "func_positional_args_non_tensor",
    "func_keyword_args_non_tensor": "func_kwargs_non_tensor",
    "function_is_inplace": "func_is_inplace",
    "gradfunc_name": "grad_fn_name",
    "computed_with_params": "uses_params",
    "parent_params_fsize": "params_memory",
    "same_layer_operations": "recurrent_group",
    "orig_ancestors": "root_ancestors",
    "spouse_layers": "co_parent_layers",
    "initialized_inside_model": "is_internally_initialized",
    "internally_initialilized_ancestors": "internally_initialized_ancestors",
    "terminated_inside_model": "is_internally_terminated",
    "containing_module_origin": "containing_module",
    "containing_module_origin_nested": "containing_modules",
    "is_bottom_level_submodule_output": "is_leaf_module_output",
}


class Aliased:
    """Answers older attribute names, and names the nearest ones for a wrong name."""

    _aliases: ClassVar[dict[str, str]] = {}

    def __getattr__(self, name: str) -> Any:
        canonical = self._aliases.get(name)
        if canonical is not None:
            return getattr(self, canonical)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{self._hint(name)}")

    def _hint(self, name: str) -> str:
        """What may have been wanted, ready to append."""
        return near(name, [n for n in (*dir(type(self)), *self._aliases) if not n.startswith("_")])

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_")]
