"""Replace a folder by a finished one, so that at every moment one of the two exists and is complete.

This holds even if the power fails: the old folder is removed only when the new one has been flushed to disk. Where
nothing is replaced, nothing but the new folder could be lost, and nothing is flushed.

Linux can exchange two folders in one step. Elsewhere the old one is renamed to a hidden name before the new one
takes its place; if the process dies in between, `put_back` finds it there.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import secrets
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import BundleError
from .checks import parse
from .files import FORMAT, JOURNAL, LARGEST_MANIFEST, MANIFEST, METADATA, read_small_file, sync_folder, sync_with_files

_SHARD = re.compile(r"tensors-\d{5,}\.safetensors", re.ASCII)
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100  # paths are relative to the working directory


def beside(path: Path, ending: str) -> Path:
    """A unique hidden name next to a path."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.{ending}")


def replace(path: Path, new: Path) -> None:
    """Rename a finished folder to its final name. What had that name is removed once the new one is on disk."""
    if not os.path.lexists(path):
        os.rename(new, path)
        return
    sync_with_files(new)
    old = new if _exchange(new, path) else _in_two_steps(path, new)
    sync_folder(path.parent)
    _remove(old)


def _remove(old: Path) -> None:
    """Remove a bundle's own files. If the folder holds anything else, that stays, under a hidden name."""
    (old / MANIFEST).unlink(missing_ok=True)  # first, so that a half-removed folder is never taken for a bundle
    for path in old.iterdir():
        if belongs_to_bundle(path.name):
            with suppress(OSError):
                os.unlink(path)
    with suppress(OSError):
        os.rmdir(old)


def belongs_to_bundle(name: str) -> bool:
    """Is this the name of a file that is written into bundles?"""
    return name in (MANIFEST, METADATA, JOURNAL, f"{MANIFEST}.tmp") or _SHARD.fullmatch(name) is not None


def is_manifest(folder: Path) -> bool:
    """Does a folder have the manifest of a bundle, of any version?"""
    try:
        manifest = parse(read_small_file(folder, MANIFEST, LARGEST_MANIFEST), MANIFEST)
    except BundleError:
        return False
    return type(manifest) is dict and manifest.get("format") == FORMAT


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders in one step; False where the system or the file system can't."""
    rename = _renameat2()
    return rename is not None and not rename(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE
    )


@cache
def _renameat2() -> Any:
    """A function of Linux's C library that Python does not wrap."""
    found = getattr(ctypes.CDLL(None), "renameat2", None) if platform.system() == "Linux" else None
    if found is not None:
        found.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return found


def _in_two_steps(path: Path, new: Path) -> Path:
    old = beside(path, "old")
    os.rename(path, old)
    try:
        os.rename(new, path)
    except OSError:
        os.rename(old, path)
        raise
    return old


def stepped_aside(path: Path) -> Path | None:
    """The bundle that was about to be replaced when the process died between the two steps."""
    if os.path.lexists(path) or not path.parent.is_dir():
        return None
    prefix = f".{path.name}."
    found = [
        folder
        for folder in path.parent.iterdir()
        if folder.name.startswith(prefix) and folder.name.endswith(".old") and (folder / MANIFEST).is_file()
    ]
    return max(found, key=lambda folder: folder.stat().st_mtime, default=None)


def put_back(path: Path) -> None:
    """Rename a bundle that stepped aside back to its own name."""
    old = stepped_aside(path)
    if old is not None:
        os.rename(old, path)


def not_there(path: Path) -> BundleError:
    """An error that says what was found instead of a bundle."""
    if path.exists():
        return BundleError(f"{path} is not a folder; tl.save makes one")
    if stepped_aside(path) is None:
        return BundleError(f"{path} does not exist")
    return BundleError(
        f"{path} was being replaced when the process died; tl.recover({str(path)!r}) puts back what was there"
    )
