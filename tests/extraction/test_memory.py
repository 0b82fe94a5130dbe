"""Memory does not grow with the inputs, and a row costs the bytes of a row."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys, torch, torchlens as tl
from torch import nn
from torch.utils.data import Dataset

class Made(Dataset):
    def __init__(self, count): self.count = count
    def __len__(self): return self.count
    def __getitem__(self, row): return torch.full((64,), float(row))

def high_water():
    import re
    return int(re.search("VmHWM:\\\\s+(\\\\d+)", open("/proc/self/status").read())[1])

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 4096), nn.ReLU(), nn.Linear(4096, 8)).eval()
tl.extract(model, Made(int(sys.argv[1])), ["0", "relu_1", "2"], sys.argv[2], batch_size=32, shard_rows=128)
print("peak", high_water())
"""


def peak(count: int, folder: Path) -> int:
    """Kilobytes at most, of a new process that extracts so many rows."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(count), str(folder)], capture_output=True, text=True, check=True
    )
    found = re.search(r"peak (\d+)", done.stdout)
    assert found is not None
    return int(found[1])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_inputs(tmp_path: Path) -> None:
    few, many = peak(1024, tmp_path / "few"), peak(16 * 1024, tmp_path / "many")
    print(f"\n{few / 1024:.0f} MB for 1,024 rows, {many / 1024:.0f} MB for 16,384")
    assert many < 1.05 * few


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel which pages are in memory")
def test_reading_a_layer_touches_only_its_bytes(tmp_path: Path) -> None:
    """Counted by what the kernel has in memory of the files, before and after."""
    script = """
import sys, numpy as np, resource, mmap, ctypes, os, torchlens as tl
folder = sys.argv[1]
for name in os.listdir(folder + "/shards"):
    with open(folder + "/shards/" + name, "rb") as file:
        os.fsync(file.fileno()); os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]

def resident():
    pages = 0
    for name in os.listdir(folder + "/shards"):
        descriptor = os.open(folder + "/shards/" + name, os.O_RDONLY)
        size = os.fstat(descriptor).st_size
        address = libc.mmap(None, size, 1, 1, descriptor, 0)
        vector = (ctypes.c_ubyte * (size // 4096 + 1))()
        assert libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), vector) == 0
        pages += sum(byte & 1 for byte in vector)
        os.close(descriptor)
    return pages * 4096

before = resident()
store = tl.open_store(folder)
store["relu_1"][:].sum()
print("layer", store["relu_1"].nbytes, "touched", resident() - before, "before", before)
"""
    peak(1024, tmp_path / "acts")
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "acts")], capture_output=True, text=True, check=True
    )
    layer, touched, before = (int(number) for number in re.findall(r"\d+", done.stdout))
    print(f"\n{done.stdout}")
    if before > 0.1 * layer:
        pytest.skip("the file system keeps its pages, so nobody can tell which were read")
    assert touched <= 1.1 * layer
