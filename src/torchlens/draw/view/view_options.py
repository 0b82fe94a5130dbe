"""What to show of a model and how: the arguments of the drawing functions that decide what a view holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...selectors import NOTHING, Selection
from .elements import Direction

#: Modules chosen by selectors or by a function of the module's record.
Chosen = Selection | Callable[[Any], bool]

#: Looks that replace the usual ones: attributes, or a function of the record that returns them.
Override = Mapping[str, Any] | Callable[..., Mapping[str, Any] | None]


@dataclass(frozen=True)
class ViewOptions:
    """What a view shows. `draw/draw_options.py` checks what users give."""

    vis_mode: Literal["unrolled", "rolled"] = "unrolled"
    vis_nesting_depth: int | None = None
    vis_direction: Direction = "bottomup"
    vis_buffers: Literal["never", "meaningful", "always"] = "meaningful"
    vis_expand: Chosen = NOTHING
    vis_collapse: Chosen = NOTHING
    vis_fold_repeats: bool = False
    vis_gather: bool = True
    vis_color_by: str | Mapping[str, float] | Callable[[Any], float | None] | None = None
    vis_theme: Literal["light", "dark"] = "light"
    vis_node_overrides: Override | None = None
    vis_edge_overrides: Override | None = None
    vis_module_overrides: Override | None = None
    module: str | None = None
