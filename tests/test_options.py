"""What can't be used is refused at the door, and nobody else is blamed for it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchlens as tl


def frozen() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.ReLU()).requires_grad_(False)


def test_train_mode_with_everything_frozen_is_an_error() -> None:
    with pytest.raises(tl.ArgumentError, match="everything is frozen"):
        tl.log_forward_pass(frozen(), torch.rand(2, 3), train_mode=True)
    assert tl.log_forward_pass(frozen(), torch.rand(2, 3)).validate()
    x = torch.rand(2, 3, requires_grad=True)
    tl.log_forward_pass(frozen(), x, train_mode=True)[-1].activation.sum().backward()
    assert x.grad is not None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is the device that must be missing")
def test_a_device_that_is_not_there_is_what_is_named() -> None:
    with pytest.raises(tl.ArgumentError, match=r"^output_device='cuda' can't be used: (?!.*postfunc)"):
        tl.log_forward_pass(frozen(), torch.rand(2, 3), output_device="cuda")
    with pytest.raises(tl.ArgumentError, match=r"^device='cuda' can't be used"):
        tl.fastlog.CaptureSpec(device="cuda")
