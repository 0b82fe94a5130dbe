"""A predicate over recent history: keep the ReLUs that come right after a convolution, as 16 bit floats."""

import torch
from torch import nn

import torchlens as tl
from torchlens.fastlog import CaptureSpec, RecordContext

HALF = CaptureSpec(dtype=torch.float16)


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 8, 3), nn.ReLU(),
        nn.Flatten(), nn.Linear(8 * 12 * 12, 10), nn.ReLU(),
    ).eval()  # fmt: skip


def relu_after_convolution(ctx: RecordContext) -> CaptureSpec | bool:
    """Only what is looked at is worked out: for most operations that is the type."""
    after = ctx.layer_type == "relu" and ctx.recent_ops[-1].layer_type == "conv2d"
    return HALF if after else False


if __name__ == "__main__":
    model, x = network(), torch.rand(2, 3, 16, 16)
    preview = tl.fastlog.dry_run(model, x, keep_op="relu")
    print("All ReLUs: " + ", ".join(context.label for context in preview.kept))
    print(preview.retry(keep_op=relu_after_convolution), "\n")
    recording = tl.fastlog.record(model, x, keep_op=relu_after_convolution)
    for record in recording:
        assert record.activation is not None and record.context is not None
        print(
            record.label, tuple(record.activation.shape), record.activation.dtype, "after", record.context.parent_labels
        )
