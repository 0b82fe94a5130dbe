"""Edits of what modules return, bit for bit against other tools: python -m benchmarks.against

Each edit is made by a forward hook, by nnsight, by pyvene and by this library: in a log, in a Recorder, and afterwards
in a finished log. What the model returns is compared with the hook's. Then what each tool does with edits that can't be
meant, and what one edit costs. Other tools run in environments of their own (`peers.py`), which are made when needed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from benchmarks.against_peer import Change, built, cases, cost, outcome, outputs, refusals, tensor_of, with_hook
from torch import Tensor, nn

import torchlens as tl
from benchmarks import peers

E = tl.edits
PEERS = ("nnsight", "pyvene", "TransformerLens")

#: The same edits as `CHANGES`, as this library has them.
EDITS: dict[str, Callable[[tl.ModelLog, int], Any]] = {
    "zero": lambda other, width: E.zero(),
    "zero two units": lambda other, width: E.zero(units=[1, 3]),
    "scale by 0.5": lambda other, width: E.scale(0.5),
    "add a direction": lambda other, width: E.add(torch.linspace(-1, 1, width)),
    "clamp": lambda other, width: E.clamp(max=0.01),
    "patch": lambda other, width: E.patch(other),
}


# ---- this library ---------------------------------------------------------------------------------------------


def edited_runs(edit: str, model: nn.Module, x: Tensor, other: Tensor, site: str) -> dict[str, Tensor]:
    """What the model returns, by each way to edit."""
    log, donor = tl.log_forward_pass(model, x), tl.log_forward_pass(model, other)
    edits = {site: EDITS[edit](donor, log[site].tensor_shape[-1])}
    found = {
        "log": tl.log_forward_pass(model, x, interventions=edits, base=log).output,
        "log.intervene": log.intervene(edits).output,
    }
    if edit != "patch":  # a value of another log is found by its label, which a Recorder does not know
        with tl.fastlog.Recorder(model, interventions=edits) as recorder:
            found["Recorder"] = recorder.log(x)
    return {way: tensor_of(output) for way, output in found.items()}


def ours() -> dict[str, dict[str, Tensor]]:
    found: dict[str, dict[str, Tensor]] = {"log": {}, "Recorder": {}, "log.intervene": {}}
    for name, site, edit in cases():
        for way, output in edited_runs(edit, *built(name), site).items():
            found[way][f"{name}: {site}: {edit}"] = output
    return found


def with_log(model: nn.Module, x: Tensor, site: str, change: Change) -> Tensor:
    return tensor_of(tl.log_forward_pass(model, x, interventions={site: change}).output)


def our_refusals() -> dict[str, str]:
    model, x, _ = built("perceptrons")
    unmet = {lambda op: False: E.zero()}
    nothing = {"a condition that nothing meets": outcome(lambda: tl.log_forward_pass(model, x, interventions=unmet))}
    return refusals(with_log) | nothing


def recorder_cost() -> float:
    """As users have it: the Recorder is made once, and runs many inputs."""
    recorders: dict[nn.Module, Any] = {}

    def run(model: nn.Module, x: Tensor, site: str, change: Change) -> Tensor:
        if model not in recorders:
            twin = deepcopy(model)  # the plain forward is to be plain
            recorders[model] = stack.enter_context(tl.fastlog.Recorder(twin, interventions={site: E.scale(0.5)}))
        return tensor_of(recorders[model].log(x))

    with ExitStack() as stack:
        return cost(run)


# ---- other tools ----------------------------------------------------------------------------------------------


def peer(name: str, folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What the models return with another tool's edits, and what else it told."""
    path = folder / f"{name}.pt"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {"OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error"}
    command = [peers.python(name), "-W", "ignore", "-m", "benchmarks.against_peer", name, str(path)]
    done = subprocess.run(command, cwd=peers.ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stderr[-2000:]}")
    return torch.load(path) if path.exists() else {}, json.loads(done.stdout.splitlines()[-1])


# ---- tables ---------------------------------------------------------------------------------------------------


def compared(output: Tensor | None, expected: Tensor) -> str:
    if output is None:
        return "–"
    return "equal" if output.equal(expected) else f"{(output - expected).abs().max():.1e}"


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


@torch.no_grad()
def main() -> int:
    torch.set_num_threads(1)
    usable = {name: peers.prepare(name) for name in PEERS}
    with tempfile.TemporaryDirectory() as folder:
        found = {name: peer(name, Path(folder)) for name, why in usable.items() if why is None}
    for name, why in usable.items():
        print(f"{name}: " + (f"version {found[name][1]['version']}" if why is None else f"could not be set up: {why}"))
    expected = outputs(with_hook)
    by_tool = ours() | {name: tensors for name, (tensors, _) in found.items() if tensors}
    rows = [
        [*case.split(": "), *(compared(tensors.get(case), output) for tensors in by_tool.values())]
        for case, output in expected.items()
    ]
    print("\n" + table(["model", "module", "edit", *by_tool], rows) + "\n")
    refused = {"hooks": refusals(with_hook), "this": our_refusals()}
    refused |= {name: told["refusals"] for name, (_, told) in found.items()}
    print(table(["tool", "edit", "outcome"], [[tool, *row] for tool, told in refused.items() for row in told.items()]))
    costs = {"hooks": cost(with_hook), "this, Recorder": recorder_cost(), "this, log": cost(with_log)}
    costs |= {name: told["cost"] for name, (_, told) in found.items() if "cost" in told}
    print("\none edit, plain forward = 1: " + ", ".join(f"{tool} {ratio:.2f}" for tool, ratio in costs.items()))
    return int(any(cell not in ("equal", "–") for row in rows for cell in row[3:]))


if __name__ == "__main__":
    sys.exit(main())
