"""Where the files of a store are: a folder, or an object store behind an fsspec URL.

Both promise the same, and the algorithm needs nothing else: a file appears whole or not at all, and `create` never
replaces what is there.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
import shutil
import socket
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from ..bundle.files import sync_folder
from ..errors import ArgumentError, StoreError

#: `.000012.safetensors.<host>.<pid>.<random>.tmp`
_TEMPORARY = re.compile(r"\..+\.(?P<host>[^.]*)\.(?P<pid>\d+)\.[0-9a-f]{8}\.tmp")
_HOST = re.sub(r"[^\w-]", "-", socket.gethostname())


class Reader(Protocol):
    """An open file: `view` gives some of its bytes, without reading the others."""

    size: int

    def view(self, start: int, length: int) -> memoryview: ...

    def prefetch(self, start: int, length: int) -> None:
        """All of these bytes will be looked at."""


class Storage(Protocol):
    """The files of one store, by names such as "shards/000012.safetensors"."""

    where: str  # as the user wrote it
    shared: str  # as another process finds it

    def names(self, folder: str) -> list[str]:
        """The files in a folder, without its name; empty if there is no such folder."""

    def read(self, name: str) -> bytes | None:
        """All of a small file; None if it is not there."""

    def has(self, name: str) -> bool:
        """Is the file there?"""

    def open(self, name: str) -> Reader:
        """A file for reading some of it."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a small file if there is none yet; False if there is one, which stays as it is."""

    def put(self, name: str, pieces: Sequence[memoryview]) -> None:
        """Write a file; it appears whole, at once, and for good."""

    def free_bytes(self) -> int | None:
        """How many bytes are free; None if that is unknown."""

    def tidy(self) -> None:
        """Remove what processes left behind that died while they wrote."""


def storage_at(path: Any) -> Storage:
    """The storage behind a path or URL."""
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentError(f"save_to must be the path of a folder or a URL such as s3://bucket/acts, not {path!r}")
    text = os.fspath(path)
    if not text:
        raise ArgumentError("save_to is empty; give the path of a folder")
    scheme, sign, rest = text.partition("://")
    if not sign:
        return Folder(Path(text))
    return Folder(Path(rest)) if scheme == "file" else Bucket(text)


class Folder:
    """A folder of this machine, or of a network file system."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = str(path)
        self.shared = str(path.absolute())

    def names(self, folder: str) -> list[str]:
        try:
            return os.listdir(self.path / folder)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, name: str) -> bytes | None:
        try:
            return (self.path / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def has(self, name: str) -> bool:
        return (self.path / name).exists()

    def open(self, name: str) -> Reader:
        return MappedFile(self.path / name)

    def create(self, name: str, data: bytes) -> bool:
        return self._write(name, [memoryview(data)], only_if_new=True)

    def put(self, name: str, pieces: Sequence[memoryview]) -> None:
        self._write(name, pieces, only_if_new=False)

    def _write(self, name: str, pieces: Sequence[memoryview], only_if_new: bool) -> bool:
        path = self.path / name
        temporary = path.with_name(f".{path.name}.{_HOST}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
        try:
            _make_folder(path.parent)
            _write_through(temporary, pieces)
            return _give_name(temporary, path, only_if_new)
        except OSError as error:
            raise StoreError(
                f"{path} could not be written: {error.strerror or error}; what was finished before is safe, and the "
                "same call resumes there"
            ) from error
        finally:
            with suppress(OSError):  # it has its name, or was never there
                temporary.unlink()

    def free_bytes(self) -> int | None:
        folder = next(folder for folder in (self.path, *self.path.absolute().parents) if folder.exists())
        return shutil.disk_usage(folder).free

    def tidy(self) -> None:
        for folder in (self.path, self.path / "shards", self.path / "fitted"):
            for name in self.names(str(folder)):
                found = _TEMPORARY.fullmatch(name)
                if found and found["host"] == _HOST and not _is_alive(int(found["pid"])):
                    (folder / name).unlink(missing_ok=True)


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def _write_through(path: Path, pieces: Sequence[memoryview]) -> None:
    """Write a file and wait until it is on the disk."""
    with open(path, "xb", buffering=0) as file:
        for piece in pieces:
            rest = piece.cast("B") if piece.nbytes else memoryview(b"")
            while rest.nbytes:
                rest = rest[file.write(rest) :]
        os.fsync(file.fileno())


def _give_name(temporary: Path, path: Path, only_if_new: bool) -> bool:
    if only_if_new:
        try:
            os.link(temporary, path)  # unlike a rename, refuses to replace
        except FileExistsError:
            return False
    else:
        os.replace(temporary, path)
    sync_folder(path.parent)
    return True


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another process's
        return True
    return True


class MappedFile:
    """A file in memory as far as it is looked at. Files of a store never change, so mapping them is safe."""

    def __init__(self, path: Path) -> None:
        with open(path, "rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            mapped: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size else b""
        self._map = mapped
        # The system would read ahead, far into layers that are not wanted.
        self._advises = bool(self.size) and hasattr(mmap, "MADV_RANDOM")
        if self._advises:
            self._map.madvise(mmap.MADV_RANDOM)

    def prefetch(self, start: int, length: int) -> None:
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        if self._advises and length:
            self._map.madvise(mmap.MADV_WILLNEED, first, start + length - first)

    def view(self, start: int, length: int) -> memoryview:
        return memoryview(self._map)[start : start + length]


class Bucket:
    """Objects behind an fsspec URL. One PUT writes an object whole or not at all, so nothing is renamed."""

    def __init__(self, url: str) -> None:
        try:
            fsspec: Any = import_module("fsspec")
        except ImportError as error:
            raise ImportError('URLs need fsspec: pip install "forwardlens[cloud]"') from error
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:  # s3fs and the like are packages of their own
            raise ArgumentError(f"save_to={url!r} can't be opened: {error}") from error
        self._root = self._root.rstrip("/")
        self.where = self.shared = url

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def names(self, folder: str) -> list[str]:
        self._files.invalidate_cache()
        try:
            found = self._files.ls(self._path(folder), detail=False)
        except FileNotFoundError:
            return []
        return [str(path).rstrip("/").rpartition("/")[2] for path in found]

    def read(self, name: str) -> bytes | None:
        try:
            return bytes(self._files.cat_file(self._path(name)))
        except FileNotFoundError:
            return None

    def has(self, name: str) -> bool:
        self._files.invalidate_cache()
        return bool(self._files.exists(self._path(name)))

    def open(self, name: str) -> Reader:
        return RemoteFile(self._files, self._path(name))

    def create(self, name: str, data: bytes) -> bool:
        if self._files.exists(self._path(name)):
            return False
        try:
            self._files.pipe_file(self._path(name), data, mode="create")  # a condition of the PUT, where there is one
        except FileExistsError:
            return False
        except (TypeError, NotImplementedError, ValueError):
            self._files.pipe_file(self._path(name), data)
        return True

    def put(self, name: str, pieces: Sequence[memoryview]) -> None:
        try:
            self._files.pipe_file(self._path(name), b"".join(pieces))
        except OSError as error:
            raise StoreError(
                f"{self.where}/{name} could not be written: {error}; what was finished before is safe, and the same "
                "call resumes there"
            ) from error

    def free_bytes(self) -> int | None:
        return None

    def tidy(self) -> None:
        """Nothing: a PUT that was cut short leaves no object."""


class RemoteFile:
    """An object of which ranges are fetched."""

    def __init__(self, files: Any, path: str) -> None:
        self._files, self._path = files, path
        self.size = int(files.info(path)["size"])

    def prefetch(self, start: int, length: int) -> None:
        """Nothing: a view fetches its bytes at once."""

    def view(self, start: int, length: int) -> memoryview:
        return memoryview(self._files.cat_file(self._path, start=start, end=start + length))
