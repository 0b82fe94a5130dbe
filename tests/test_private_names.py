"""A torch that lacks a private name: what needs it says so in one sentence, and everything else is right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from torchlens._torch import NAMES

#: Which names something can't be without; everything else is right without any of them.
NEEDED = {
    "DisableTorchFunction", "_push_on_torch_function_stack", "_pop_torch_function_stack", "_len_torch_function_stack",
    "_get_function_stack_at", "_len_torch_dispatch_stack", "_get_dispatch_stack_at", "_pop_torch_dispatch_stack",
    "_push_on_torch_dispatch_stack", "get_dynamic_layer_stack_depth", "_current_graph_task_id",
}  # fmt: skip


def test_what_needs_it_says_so_and_the_rest_is_right() -> None:
    run = [sys.executable, "-m", "tests.private_names", *sorted(set(NAMES))]
    done = subprocess.run(run, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert set(found) == set(NAMES)
    for name, said in found.items():
        wrong = {part: what for part, what in said.items() if what not in ("right", "refused")}
        assert not wrong, f"{name}: {wrong}"
        assert ("refused" in said.values()) == (name.rpartition(".")[2] in NEEDED), f"{name}: {said}"
