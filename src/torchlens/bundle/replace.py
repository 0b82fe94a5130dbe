"""Put a finished folder in place of another, so that at every moment one of the two is there and whole.

Also if the power fails: what is replaced goes only when the new folder is on the disk. Where nothing is replaced there
is nothing to lose but what was just written, and nobody waits for the disk.

Linux can exchange two folders in one step. Elsewhere the old one steps aside under a hidden name before the new one
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
_AT_FDCWD = -100  # paths are relative to the working folder, as everywhere


def beside(path: Path, ending: str) -> Path:
    """A hidden name next to a path, which nobody else uses."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.{ending}")


def replace(path: Path, new: Path) -> None:
    """Give a finished folder the name it is to have. What had the name goes when the new one is there for good."""
    if not os.path.lexists(path):
        os.rename(new, path)
        return
    sync_with_files(new)
    old = new if _exchange(new, path) else _in_two_steps(path, new)
    sync_folder(path.parent)
    _remove(old)


def _remove(old: Path) -> None:
    """Remove a bundle's own files. Should anything else have come into the folder, it stays, under a hidden name."""
    (old / MANIFEST).unlink(missing_ok=True)  # first, so that a part of it is never taken for a bundle
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
    """Does a folder have the manifest of a bundle, of whatever version?"""
    try:
        manifest = parse(read_small_file(folder, MANIFEST, LARGEST_MANIFEST), MANIFEST)
    except BundleError:
        return False
    return type(manifest) is dict and manifest.get("format") == FORMAT


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change names in one step; False where the system or the file system can't."""
    rename = _renameat2()
    return rename is not None and not rename(
        _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE
    )


@cache
def _renameat2() -> Any:
    """A function of the C library of Linux that Python has no name for."""
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
    """Give a bundle that stepped aside its name back."""
    old = stepped_aside(path)
    if old is not None:
        os.rename(old, path)


def not_there(path: Path) -> BundleError:
    """Say what there is instead."""
    if path.exists():
        return BundleError(f"{path} is not a folder; tl.save makes one")
    if stepped_aside(path) is None:
        return BundleError(f"{path} does not exist")
    return BundleError(
        f"{path} was being replaced when the process died; tl.recover({str(path)!r}) puts back what was there"
    )
