"""The names of a bundle's files, and safe ways to open and write them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import BundleError

FORMAT = "torchlens bundle"
MANIFEST, METADATA = "manifest.json", "metadata.json"
LARGEST_MANIFEST = 16 << 20
JOURNAL = "journal.jsonl"  # only until the manifest is written


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into a `BundleError` that names the file."""
    try:
        yield
    except OSError as error:
        raise BundleError(f"{path} could not be written: {error.strerror or error}") from error


def open_file(folder: Path, name: str) -> int:
    """Open a regular file directly inside the folder and return its descriptor; links and anything else are refused."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(folder / name, flags)
    except FileNotFoundError:
        if name in (MANIFEST, JOURNAL) and (folder / "plan.json").exists():
            hint = f"tl.open_store({str(folder)!r}) reads it"
            raise BundleError(f"{folder} is a store of tl.extract, not a saved log; {hint}") from None
        if name == JOURNAL:
            raise BundleError(
                f"{folder} is not a saved log, a recording or the beginning of one: it has neither {MANIFEST} nor "
                f"{JOURNAL}; give the folder that tl.save, tl.fastlog or tl.extract wrote"
            ) from None
        what = " is not a saved log" if name == MANIFEST else ""
        raise BundleError(f"{folder}{what}: {name} is missing") from None
    except (OSError, ValueError) as error:  # a link is an error here
        raise BundleError(f"{folder}: {name} can't be opened as a plain file ({error})") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BundleError(f"{folder}: {name} is not a plain file")
    return descriptor


def is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def read_small_file(folder: Path, name: str, limit: int) -> bytes:
    """Read a whole file, unless it is larger than the limit."""
    descriptor = open_file(folder, name)
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if size > limit:
            raise BundleError(f"{folder}: {name} has {size} bytes, more than the limit of {limit}")
        return file.read(limit)


def write_file(path: Path, data: bytes) -> None:
    with writing(path), open(path, "wb") as file:
        file.write(data)


def sync_with_files(folder: Path) -> None:
    """Flush a folder and the files in it to disk."""
    for path in folder.iterdir():
        _sync(path, os.O_RDWR)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Flush a folder's directory entries to disk, where the system supports it."""
    if hasattr(os, "O_DIRECTORY"):
        _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
