"""Instruction counts between two points of a Python program that runs under Valgrind's callgrind.

A program talks to the Valgrind it runs in by an instruction sequence that does nothing otherwise (a "client request",
see valgrind.h). It is written here as machine code, so that no compiler is needed; x86-64 only.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

# The request is an array of six numbers, whose address is the function's argument.
_CODE = bytes.fromhex(
    "4889f8"  # mov  rax, rdi
    "31d2"  # xor  edx, edx           the answer if there is no Valgrind
    "48c1c703"  # rol  rdi, 3             together a rotation by 128 bits: nothing
    "48c1c70d"  # rol  rdi, 13
    "48c1c73d"  # rol  rdi, 61
    "48c1c733"  # rol  rdi, 51
    "4887db"  # xchg rbx, rbx           Valgrind takes over here
    "4889d0"  # mov  rax, rdx
    "c3"  # ret
)
_BASE = ord("C") << 24 | ord("T") << 16
_ZERO, _DUMP_AT, _START, _STOP = _BASE + 1, _BASE + 3, _BASE + 4, _BASE + 5


def is_there() -> bool:
    return shutil.which("valgrind") is not None and platform.machine() in ("x86_64", "AMD64")


def run(command: Sequence[str], folder: Path) -> dict[str, int]:
    """Run a program that calls `Counter`, and return what it counted."""
    valgrind = ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no"]
    valgrind.append(f"--callgrind-out-file={folder}/counts")
    subprocess.run([*valgrind, *command], check=True)
    counted = dict(_counted(file) for file in folder.glob("counts.*"))
    if not counted:
        raise RuntimeError("Valgrind ran the program but counted nothing: it did not understand the requests")
    return counted


def _counted(file: Path) -> tuple[str, int]:
    lines = file.read_text().splitlines()
    name = next(line.rpartition(": ")[2] for line in lines if line.startswith("desc: Trigger: Client Request"))
    return name, next(int(line.split()[1]) for line in lines if line.startswith("totals:"))


class Counter:
    """In the program: `count("name", work)` writes how many instructions the work took."""

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._page.write(_CODE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._page))
        self._request = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(address)
        self._send(_START)  # not before: importing torch would take minutes

    def __call__(self, name: str, work: Callable[[], object]) -> None:
        text = ctypes.create_string_buffer(name.encode())
        self._send(_ZERO)
        work()
        self._send(_DUMP_AT, ctypes.addressof(text))

    def stop(self) -> None:
        """Nothing is counted any more: the end of a Python process would take longer than all the rest."""
        self._send(_STOP)

    def _send(self, request: int, argument: int = 0) -> None:
        numbers = (ctypes.c_uint64 * 6)(request, argument)
        self._request(ctypes.addressof(numbers))
