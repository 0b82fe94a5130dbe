"""Before the first shard: agree on the plan, refuse what can't fit, fit what is fitted, say what will be written."""

from __future__ import annotations

import os
from typing import NamedTuple

from ..bundle.files import MANIFEST
from ..errors import ArgumentError, StoreError
from ..words import counted, human_size
from .plan import StorePlan, agree_on, in_shards_of, read_plan
from .progress import Progress
from .run import Job
from .shard import shard_numbers
from .storage import Storage


class Begun(NamedTuple):
    """What is known before the first shard is written."""

    plan: StorePlan
    done: frozenset[int]  # shards that are there already
    free: int | None  # bytes, before
    left_out: int  # parts of each sample that the model does not take
    replays: bool  # are the inputs read from their beginning?

    @property
    def done_rows(self) -> int:
        return sum(len(self.plan.rows_of(shard)) for shard in self.done)


def begin(job: Job, storage: Storage) -> Begun:
    """Make the store ready for shards. The first process writes the plan; the others check that theirs is the same."""
    if os.path.isfile(storage.shared):
        raise ArgumentError(f"save_to is a file: {storage.where!r}; give the path of a folder")
    if storage.has(MANIFEST):
        raise StoreError(f"{storage.where} holds a saved log or recording; give another folder as save_to")
    if job.request.shard_rows is None:
        job.plan = in_shards_of(read_plan(storage), job.plan)
    plan, free = job.plan, storage.free_bytes()
    begun = Begun(plan, frozenset(shard_numbers(storage)), free, job.calling.left_out, job.source.replays)
    due = (plan.count - begun.done_rows) * plan.row_bytes if plan.count is not None else 0
    if free is not None and due > free:
        raise StoreError(
            f"the values need {human_size(due)}, but {storage.where} has only {human_size(free)} free: "
            "dtype='float16' or reduce= makes them smaller"
        )
    storage.tidy()
    agree_on(storage, plan, job.ids)
    job.fit(storage)
    return begun


def announce(begun: Begun, where: str, shown: Progress) -> None:
    """Say what will be written, and begin the bar."""
    plan = begun.plan
    free = f", where {human_size(begun.free)} are free" if begun.free is not None else ""
    shown.say(f"{plan}\n\tto {where}{free}")
    if begun.left_out:
        shown.say(f"\tof each sample, the last {counted(begun.left_out, 'part')} can't be given to the model")
    if begun.done and begun.done_rows == plan.count:
        shown.say("\tall rows are there already: nothing is left to do")
    elif begun.done:
        total = f" of {plan.count:,}" if plan.count is not None else ""
        shown.say(f"\tresumed: {begun.done_rows:,}{total} rows are there already, and are not computed again")
        if begun.replays:
            shown.say("\tthe inputs are an iterable, which is read again from its beginning")
    shown.begin(plan.count, begun.done_rows)
