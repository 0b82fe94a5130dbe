"""Very long chains with gradients: torch frees the autograd graph by recursion where Python has looked at its nodes."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import warnings, torch, torchlens as tl

class Chain(torch.nn.Module):
    def forward(self, x):
        for _ in range(15_000):
            x = ((x + 1) * 0.5).relu().t()
        return x

warnings.simplefilter("ignore", tl.FidelityWarning)
log = tl.log_forward_pass(Chain(), torch.rand(2, 2, requires_grad=True), {options})
print(log.all_ops[-3].grad_fn_name, bool(log.warnings))
del log
"""


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        ("", "ReluBackward0 False"),
        ("layers_to_save=None", "ReluBackward0 False"),
        ("layers_to_save='output', train_mode=True", "ReluBackward0 False"),
        ("save_gradients=True", "ReluBackward0 True"),
    ],
)
def test_sixty_thousand_operations_with_grad(options: str, printed: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(options=options)], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout.strip()) == (0, printed), run.stderr[-2000:]
