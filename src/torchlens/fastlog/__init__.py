"""The light path: keep what you already know you want, over one or many forward passes.

>>> recording = tl.fastlog.record(model, x, keep_op="relu")
>>> recording[0]
Record(relu_1_2  f32[5,5]  pass 0)
"""

from .context import RecordContext
from .preview import Preview, dry_run
from .recorder import Recorder, record
from .recording import Record, Recording
from .spec import CaptureSpec
from .storage import load, recover

__all__ = [
    "CaptureSpec",
    "Preview",
    "Record",
    "RecordContext",
    "Recorder",
    "Recording",
    "dry_run",
    "load",
    "record",
    "recover",
]
