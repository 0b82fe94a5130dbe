"""A device that is not the CPU: nothing waits for it, nothing leaves it, and its random numbers are its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch.utils.backend_registration as registration
from tests.torch_version import PINNED


@pytest.mark.skipif(
    not hasattr(registration, "_setup_privateuseone_for_python_backend"),
    reason=f"a device written in Python, as in torch {PINNED}, is not in this torch",
)
def test_a_device_made_of_python() -> None:
    run = [sys.executable, "-m", "tests.accelerator"]
    done = subprocess.run(run, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) >= 7
    wrong = [f"{name}: {said}" for name, said in found.items() if said != "right"]
    assert not wrong, "\n".join(wrong)
