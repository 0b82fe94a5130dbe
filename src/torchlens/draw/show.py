"""Write a picture, and show it: inline in a notebook, in the system's viewer from a script."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Mapping
from inspect import Parameter
from pathlib import Path
from typing import Any

from torch import nn

from ..aliases import ARGUMENTS
from ..capture.describe import modules_of
from ..errors import ArgumentError, LayerNotFoundError, near
from ..notebook import in_notebook, show_inline
from ..selectors import Modules, Selection, modules_chosen
from .draw_options import DrawOptions, check_writable
from .output.formats import FORMATS
from .output.render import check_renderer, render
from .view.build import make_view
from .view.drawable import Drawable
from .view.elements import View

#: A notebook starts with no more nodes than this.
MOST_NODES_INLINE = 200


def picture_options(
    own: Mapping[str, Parameter], vis_mode: Any, drawing: dict[str, Any], model: nn.Module | None
) -> DrawOptions | None:
    """The options of a picture that a function with its `own` parameters is to draw, checked before the model runs.

    None if no picture is wanted. `drawing` is what the function was given besides its own parameters.
    """
    drawn = {*ARGUMENTS, *(field.name for field in dataclasses.fields(DrawOptions))}
    for unknown in [name for name in drawing if name not in drawn]:
        hint = near(unknown, [*own, *drawn]) or f"; an argument of the model: input_kwargs={{{unknown!r}: ...}}"
        raise ArgumentError(f"no argument {unknown!r}{hint}")
    for older in [name for name in drawing if ARGUMENTS.get(name) == "vis_mode"]:
        if vis_mode != own["vis_mode"].default:
            raise ArgumentError(f"{older!r} and 'vis_mode' are names of the same argument; give only one of them")
        vis_mode = drawing.pop(older)
    wanted = vis_mode not in ("none", None)
    options = DrawOptions.checked(**drawing, **({"vis_mode": vis_mode} if wanted else {}))
    if not wanted:
        return None
    check_before_the_run(options, model)
    return options


def check_before_the_run(options: DrawOptions, model: nn.Module | None = None) -> None:
    """Raise now if the picture could not be drawn or written later."""
    check_renderer(options.renderer, options.vis_fileformat)
    check_writable(options.vis_outpath)
    if isinstance(model, nn.Module):
        _check_addresses(options, modules_of(model))


def _check_addresses(options: DrawOptions, modules: Modules) -> None:
    """Raise if the options name a module that the model does not have. Only a run shows whether it is called."""
    alone = options.module.partition(":")[0] if options.module else "self"
    if alone != "self" and alone not in modules.numbers:
        raise LayerNotFoundError(f"no module {alone!r}{near(alone, filter(None, modules.numbers))}")
    for argument, chosen in (("vis_expand", options.vis_expand), ("vis_collapse", options.vis_collapse)):
        if isinstance(chosen, Selection):
            modules_chosen(chosen, modules, argument)


def draw(log: Drawable, options: DrawOptions) -> Path:
    """Draw a log, write the picture and show it unless it is only to be saved. Returns the file's path."""
    check_before_the_run(options)
    inline = not options.vis_save_only and in_notebook()
    view = readable_view(log, options) if inline else make_view(log, options)
    picture = render(view, options.vis_fileformat, options.renderer)
    path = options.vis_outpath
    path.write_bytes(picture)
    if inline:
        svg = picture if options.vis_fileformat == "svg" else render(view, "svg", options.renderer)
        return show_inline(svg.decode(), f"Picture of {log.model_name}", path)
    if not options.vis_save_only and FORMATS[options.vis_fileformat].is_picture:
        open_in_viewer(path)
    return path


def readable_view(log: Drawable, options: DrawOptions) -> View:
    """The view, collapsed until it is readable on a page, unless the user has chosen what to collapse."""
    view = make_view(log, options)
    if options.vis_nesting_depth is not None or len(view.nodes) <= MOST_NODES_INLINE:
        return view
    total = len(view.nodes)
    depth, deepest = 1, _depth(view)
    chosen = make_view(log, dataclasses.replace(options, vis_nesting_depth=1))
    while depth < deepest:
        deeper = make_view(log, dataclasses.replace(options, vis_nesting_depth=depth + 1))
        if len(deeper.nodes) > MOST_NODES_INLINE:
            break
        depth, chosen = depth + 1, deeper
    if len(chosen.nodes) == total:
        return view
    note = f"collapsed to nesting depth {depth}: {total} nodes are too many to read; vis_nesting_depth shows more"
    return dataclasses.replace(chosen, notes=(*chosen.notes, note))


def _depth(view: View) -> int:
    """How deep the boxes are nested."""
    depths: dict[str | None, int] = {None: 0}
    for group in view.groups:
        depths[group.id] = depths[group.parent] + 1
    return max(depths.values()) + 1


# ---- showing --------------------------------------------------------------------------------------------------


def open_in_viewer(path: Path) -> bool:
    """Open a file in the system's viewer, without waiting. Does nothing on a machine without a display."""
    command = _viewer()
    if command is None:
        return False
    quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        subprocess.Popen([*command, str(path.absolute())], start_new_session=True, **quiet)
    except OSError:  # there is no such program: the file is there all the same
        return False
    return True


def _viewer() -> list[str] | None:
    if os.environ.get("CI"):
        return None
    if sys.platform == "darwin":
        return ["open"]
    if sys.platform == "win32":
        return ["explorer"]
    has_screen = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return ["xdg-open"] if has_screen else None
