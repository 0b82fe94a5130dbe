"""The light path: keep values that you choose beforehand, over one or many forward passes.

>>> recording = tl.fastlog.record(model, x, keep_op="relu")
>>> recording[0]
Record(relu_1_2  f32[5,5]  pass 0)
"""

from .preview import Preview, dry_run
from .record_context import RecordContext
from .recorder import Recorder, record
from .recording import Record, Recording
from .recording_files import load, recover
from .spec import CaptureSpec

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
