"""How to draw: every argument of the drawing functions, checked before the model runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from ..aliases import ARGUMENTS
from ..errors import ArgumentError, near
from ..notebook import in_notebook, temporary_folder
from ..selectors import Selection
from .output.formats import FORMATS
from .view.view_options import Chosen, ViewOptions

_CHOICES: dict[str, tuple[Any, ...]] = {
    "vis_mode": ("unrolled", "rolled"),
    "vis_direction": ("bottomup", "topdown", "leftright"),
    "vis_buffers": ("never", "meaningful", "always"),
    "vis_theme": ("light", "dark"),
    "renderer": ("builtin", "graphviz", "auto"),
}
_COLOR_BY = ("time", "memory", "flops")

#: Endings that a user means; any other, as in `model.v2`, is part of the name.
_OTHER_PICTURES = {"bmp", "eps", "gif", "html", "jpeg", "jpg", "ps", "tif", "tiff", "webp"}


@dataclass(frozen=True)
class DrawOptions(ViewOptions):
    """What to show of a model, how, and where to put the picture.

    >>> DrawOptions.checked(vis_nesting_depth=1, vis_outpath="graph.pdf").vis_fileformat
    'pdf'
    """

    vis_outpath: Path = Path("modelgraph.svg")
    vis_fileformat: str = "svg"
    vis_save_only: bool = False
    renderer: Literal["builtin", "graphviz", "auto"] = "builtin"

    @classmethod
    def checked(cls, **arguments: Any) -> DrawOptions:
        """The options from the arguments of a drawing function, older names included."""
        arguments = _canonical(arguments, [field.name for field in fields(cls)])
        arguments["vis_buffers"] = _buffers(arguments.get("vis_buffers", "meaningful"))
        path, fileformat = _destination(arguments.get("vis_outpath"), arguments.get("vis_fileformat"))
        if arguments.get("vis_outpath") is None and not arguments.get("vis_save_only") and in_notebook():
            path = temporary_folder() / path.name
        arguments |= {"vis_outpath": path, "vis_fileformat": fileformat}
        for name, choices in {**_CHOICES, "vis_fileformat": tuple(FORMATS)}.items():
            if name in arguments and arguments[name] not in choices:
                listed = ", ".join(map(repr, choices))
                raise ArgumentError(f"{name} must be one of {listed}, not {arguments[name]!r}")
        for name in ("vis_gather", "vis_fold_repeats", "vis_save_only"):
            if not isinstance(arguments.get(name, False), bool):
                raise ArgumentError(f"{name} must be True or False, not {arguments[name]!r}")
        _check_depth(arguments.get("vis_nesting_depth"))
        _check_color_by(arguments.get("vis_color_by"))
        for name in ("vis_expand", "vis_collapse"):
            arguments[name] = _chosen(name, arguments.get(name))
        for name in ("vis_node_overrides", "vis_edge_overrides", "vis_module_overrides"):
            _check_override(name, arguments.get(name))
        if not isinstance(arguments.get("module", ""), (str, type(None))):
            raise ArgumentError(f"module must be the address of a submodule, not {arguments['module']!r}")
        return cls(**arguments)


def _canonical(arguments: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for given, value in arguments.items():
        name = ARGUMENTS.get(given, given)
        if name not in names:
            raise ArgumentError(f"no argument {given!r}{near(given, [*names, *ARGUMENTS])}")
        if name in found:
            raise ArgumentError(f"{given!r} and {name!r} are names of the same argument; give only one of them")
        found[name] = value
    return found


def _buffers(given: Any) -> Any:
    return {True: "always", False: "never"}.get(given, given) if isinstance(given, bool) else given


def _destination(outpath: Any, fileformat: Any) -> tuple[Path, Any]:
    """The path and the format of the picture; each follows from the other if only one is given."""
    if outpath is not None and not isinstance(outpath, (str, os.PathLike)):
        raise ArgumentError(f"vis_outpath must be a path, not {outpath!r}")
    path = Path("modelgraph" if outpath is None else os.fsdecode(outpath)).expanduser()
    suffix = path.suffix[1:].lower()
    if suffix in _OTHER_PICTURES:
        raise ArgumentError(f"vis_outpath ends in .{suffix}, but must end in one of {', '.join(map(repr, FORMATS))}")
    if fileformat is None:
        fileformat = suffix if suffix in FORMATS else "svg"
    elif suffix in FORMATS and fileformat in FORMATS and suffix != fileformat:
        raise ArgumentError(
            f"vis_outpath ends in .{suffix}, but vis_fileformat is {fileformat!r}; give only one of them"
        )
    if suffix != fileformat:
        path = path.with_name(f"{path.name}.{fileformat}") if path.name else path
    return path, fileformat


def check_writable(path: Path) -> None:
    """Create the parent folders, and raise if the file can't be written: permissions alone do not tell."""
    if path.is_dir() or not path.name:
        raise ArgumentError(f"vis_outpath is a folder: {str(path)!r}; give the name of a file")
    is_new = not path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
        if is_new:
            path.unlink()
    except (OSError, ValueError) as error:
        raise ArgumentError(
            f"can't write to {str(path)!r} ({getattr(error, 'strerror', None) or error}); give another vis_outpath"
        ) from None


def _check_depth(depth: Any) -> None:
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 1):
        raise ArgumentError(f"vis_nesting_depth must be a number of module levels, 1 or more, or None, not {depth!r}")


def _check_color_by(given: Any) -> None:
    if given is None or callable(given) or isinstance(given, Mapping):
        return
    if given not in _COLOR_BY:
        raise ArgumentError(
            f"vis_color_by must be one of {', '.join(map(repr, _COLOR_BY))}, a dict from labels to numbers "
            f"or a function of the layer, not {given!r}"
        )


def _chosen(name: str, given: Any) -> Chosen:
    if callable(given) and not isinstance(given, type):
        return given  # type: ignore[no-any-return]
    return Selection.checked(() if given is None else given, name)


def _check_override(name: str, given: Any) -> None:
    if given is not None and not callable(given) and not isinstance(given, Mapping):
        raise ArgumentError(f"{name} must be a dict of attributes or a function that returns one, not {given!r}")
