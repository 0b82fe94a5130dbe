"""A torch that lacks a private name: what needs it says so in one sentence, and everything else is right."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
from tests.private_names import try_every_part

from torchlens._torch import NAMES

#: Which names something can't be without; everything else is right without any of them.
NEEDED = {
    "DisableTorchFunction", "_push_on_torch_function_stack", "_pop_torch_function_stack", "_len_torch_function_stack",
    "_get_function_stack_at", "_len_torch_dispatch_stack", "_get_dispatch_stack_at", "_pop_torch_dispatch_stack",
    "_push_on_torch_dispatch_stack", "get_dynamic_layer_stack_depth", "_current_graph_task_id",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(NAMES)))
def test_what_needs_it_says_so_and_the_rest_is_right(name: str, tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    answers, far_end = context.Pipe(duplex=False)
    process = context.Process(target=try_every_part, args=(name, tmp_path, far_end))
    process.start()
    far_end.close()
    said = answers.recv()
    process.join()
    wrong = {part: what for part, what in said.items() if what not in ("right", "refused")}
    assert not wrong, str(wrong)
    assert ("refused" in said.values()) == (name.rpartition(".")[2] in NEEDED), said
