"""The same extraction by many workers: Ray actors over shard numbers.

An actor gets the request, builds model and inputs itself, and is told which shards to do; values go to the storage and
never through Ray. What a shard holds does not depend on who computes it, so a worker that dies costs one chunk, done
again by another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..errors import ArgumentError, StoreError, warn
from .begin import Begun, announce, begin
from .progress import Progress
from .run import ExtractRequest
from .shard import shard_numbers
from .storage import Storage, storage_at

_TRIES = 5  # of a chunk, when workers die of it
_PATIENCE = 60  # seconds to wait for a worker before something is said
_CHUNK = 4  # shards at most that a worker gets at a time: it writes one while it computes the next


def extract_on_ray(
    request: ExtractRequest,
    storage: Storage,
    workers: int | None,
    num_gpus: float,
    is_mine: Callable[[int], bool],
    shown: Progress,
) -> Begun:
    """Compute all shards that are not there; returns when they are."""
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise ImportError('backend="ray" needs Ray: pip install "forwardlens[ray]"') from error
    ours = not ray.is_initialized()
    if ours:
        ray.init(log_to_driver=False)  # a cluster that is running here or named by RAY_ADDRESS, or a new one
    try:
        return _Crew(ray, request, storage, workers, num_gpus).work(is_mine, shown)
    finally:
        if ours:
            ray.shutdown()


class Worker:
    """What runs on another process or machine."""

    def __init__(self, request: ExtractRequest, where: str) -> None:
        self._request = request
        self._storage = storage_at(where)

    def begin(self) -> Begun:
        """Build model and inputs: here, as an exception while an actor is made would look like its death."""
        self._job = self._request.job()
        if self._job.source.replays:
            raise ArgumentError(
                "inputs: Ray workers fetch samples by index, which an iterable does not support; a Dataset does"
            )
        return begin(self._job, self._storage)

    def run(self, shards: list[int]) -> list[int]:
        self._job.run(self._storage, set(shards).__contains__, lambda rows: None)
        return shards


class _Crew:
    """The workers, and what each of them is doing."""

    def __init__(
        self, ray: Any, request: ExtractRequest, storage: Storage, workers: int | None, num_gpus: float
    ) -> None:
        self._ray, self._storage = ray, storage
        resources = ray.cluster_resources()
        self._size = workers or max(1, int(resources.get("GPU", 0) / num_gpus if num_gpus else resources.get("CPU", 1)))
        self._request = ray.put(request)
        self._actor = ray.remote(num_cpus=1, num_gpus=num_gpus, max_restarts=0)(Worker)
        self._busy: dict[Any, tuple[Any, list[int]]] = {}  # what each call will return: the worker, its shards
        self._tries: Counter[int] = Counter()
        self._due: list[int] = []

    def work(self, is_mine: Callable[[int], bool], shown: Progress) -> Begun:
        begun = self._first_begins()
        announce(begun, self._storage.where, shown)
        plan = begun.plan
        assert plan.num_shards is not None
        self._due = [shard for shard in range(plan.num_shards) if is_mine(shard) and shard not in begun.done][::-1]
        while len(self._busy) < min(self._size, max(len(self._due), 1)):
            self._hire()
        left = len(self._due)
        while left:
            finished = self._next()
            left -= len(finished)
            shown.advance(sum(len(plan.rows_of(shard)) for shard in finished))
        for worker, _ in self._busy.values():
            self._ray.kill(worker)
        missing = {shard for shard in range(plan.num_shards) if is_mine(shard)} - shard_numbers(self._storage)
        if missing:
            raise StoreError(
                f"shard {min(missing)} was written by a worker, but can't be seen from here: all machines must see the "
                f"same files at {self._storage.where}; a network file system or a URL such as s3://bucket/acts will do"
            )
        return begun

    def _first_begins(self) -> Begun:
        """One worker writes the plan; the others read it."""
        while True:
            worker = self._hire()
            (call,) = self._busy
            try:
                begun: Begun = self._ray.get(call)
            except self._ray.exceptions.RayActorError as error:
                self._busy.pop(call)
                self._blame(error, [-1])
                continue
            except self._ray.exceptions.RayTaskError as error:
                raise _users(error) from None
            self._busy[call] = (worker, [])
            return begun

    def _hire(self) -> Any:
        worker = self._actor.remote(self._request, self._storage.shared)
        self._busy[worker.begin.remote()] = (worker, [])
        return worker

    def _next(self) -> list[int]:
        """Wait for a worker, and give it more to do; returns the shards that it has finished."""
        call = self._one_that_returned()
        worker, shards = self._busy.pop(call)
        try:
            self._ray.get(call)
        except self._ray.exceptions.RayActorError as error:  # it died, or its machine
            self._blame(error, shards)
            self._due += shards
            self._hire()
            return []
        except self._ray.exceptions.RayTaskError as error:
            raise _users(error) from None
        if self._due:
            chunk = [self._due.pop() for _ in range(min(self._share(), len(self._due)))]
            self._busy[worker.run.remote(chunk)] = (worker, chunk)
        return shards

    def _one_that_returned(self) -> Any:
        while True:
            calls, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=_PATIENCE)
            if calls:
                return calls[0]
            if not any(shards for _, shards in self._busy.values()):
                warn(
                    f"no worker has started within {_PATIENCE} seconds: the Ray cluster may have no free CPU or GPU; "
                    "`ray status` shows what is in use",
                )

    def _share(self) -> int:
        """Shards for one worker: few towards the end, so that all finish at about the same time."""
        return max(1, min(_CHUNK, len(self._due) // (2 * self._size)))

    def _blame(self, error: Exception, shards: list[int]) -> None:
        self._tries.update(shards or [-1])
        for shard in shards or [-1]:
            if self._tries[shard] >= _TRIES:
                what = f"computing shard {shard}" if shard >= 0 else "building the model and the inputs"
                raise StoreError(f"{_TRIES} workers died while {what}; the last one: {error}") from error


def _users(error: Any) -> BaseException:
    """What the user's own code has raised on a worker."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) else error
