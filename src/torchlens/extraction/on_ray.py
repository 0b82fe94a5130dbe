"""The same extraction by many workers: Ray actors over shard numbers.

An actor gets the request, builds model and inputs itself, and is told which shards to do; values go to the storage and
never through Ray. What a shard holds does not depend on who computes it, so a worker that dies costs one chunk, done
again by another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from ..errors import ArgumentError, StoreError, warn
from .begin import Begun, announce, begin
from .plan import read_plan
from .progress import Progress
from .run import ExtractRequest
from .shard import shard_numbers
from .storage import Storage, storage_at

_TRIES = 5  # of a chunk, when workers die of it
_BUILDING = -1  # stands for what a worker does before its first chunk
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

    def prepare(self) -> None:
        """Build model and inputs: here, as an exception while an actor is made would look like its death."""
        self._job = self._request.job()
        if self._job.source.replays:
            raise ArgumentError(
                "inputs: Ray workers fetch samples by index, which an iterable does not support; a Dataset does"
            )

    def begin(self) -> Begun:
        return begin(self._job, self._storage)

    def run(self, shards: list[int]) -> None:
        self._job.run(self._storage, set(shards).__contains__, lambda rows: None)


class _Task(NamedTuple):
    """What a worker was told to do."""

    worker: Any
    method: str
    shards: list[int]


class _Crew:
    """The workers, and what each of them is doing.

    All of them build their models at the same time. The first that has one begins the store, and fits what is fitted;
    the others begin after it, and find that done.
    """

    def __init__(
        self, ray: Any, request: ExtractRequest, storage: Storage, workers: int | None, num_gpus: float
    ) -> None:
        self._ray, self._storage = ray, storage
        resources = ray.cluster_resources()
        self._size = workers or max(1, int(resources.get("GPU", 0) / num_gpus if num_gpus else resources.get("CPU", 1)))
        self._request = ray.put(request)
        self._actor = ray.remote(num_cpus=1, num_gpus=num_gpus, max_restarts=0)(Worker)
        self._busy: dict[Any, _Task] = {}  # by what the call will return
        self._prepared: list[Any] = []  # workers that have not begun, and have nothing to do
        self._begun: list[Any] = []  # workers that have, and have nothing to do
        self._store: Begun | None = None  # what the first one found
        self._tries: Counter[int] = Counter()
        self._due: list[int] = []  # shards that nobody is at
        self._left = 0  # shards that are not finished

    def work(self, is_mine: Callable[[int], bool], shown: Progress) -> Begun:
        try:
            self._left = self._expected(is_mine)
            self._give_work()
            while self._store is None:
                self._next()
            announce(self._store, self._storage.where, shown)
            self._finish(self._store, is_mine, shown)
        finally:
            for worker in [*self._prepared, *self._begun, *(task.worker for task in self._busy.values())]:
                self._ray.kill(worker)
        return self._store

    def _expected(self, is_mine: Callable[[int], bool]) -> int:
        """How many shards there are to do, as far as a store that was begun before tells: one for each, if none was."""
        plan = read_plan(self._storage)
        if plan is None or plan.num_shards is None:
            return self._size
        return len(set(filter(is_mine, range(plan.num_shards))) - shard_numbers(self._storage))

    def _finish(self, store: Begun, is_mine: Callable[[int], bool], shown: Progress) -> None:
        plan = store.plan
        assert plan.num_shards is not None
        mine = set(filter(is_mine, range(plan.num_shards)))
        self._due = sorted(mine - store.done, reverse=True)
        self._left = len(self._due)
        self._give_work()
        while self._left:
            finished = self._next()
            self._left -= len(finished)
            shown.advance(sum(len(plan.rows_of(shard)) for shard in finished))
        missing = mine - shard_numbers(self._storage)
        if missing:
            raise StoreError(
                f"shard {min(missing)} was written by a worker, but can't be seen from here: all machines must see the "
                f"same files at {self._storage.where}; a network file system or a URL such as s3://bucket/acts will do"
            )

    def _next(self) -> list[int]:
        """Wait for a worker, and give it more to do; returns the shards that it has finished."""
        call = self._one_that_returned()
        task = self._busy.pop(call)
        finished: list[int] = []
        try:
            returned = self._ray.get(call)
        except self._ray.exceptions.RayActorError as error:  # it died, or its machine
            self._blame(error, task.shards)
            self._due += task.shards
        except self._ray.exceptions.RayTaskError as error:
            raise _users(error) from None
        else:
            if task.method == "begin":
                self._store = self._store or returned
                self._tries[_BUILDING] = 0  # others that died did so for a reason of their own
            (self._prepared if task.method == "prepare" else self._begun).append(task.worker)
            finished = task.shards
        self._give_work()
        return finished

    def _give_work(self) -> None:
        """Something to do for all who have nothing, and more workers if there are too few."""
        while self._prepared and (self._store or all(task.method != "begin" for task in self._busy.values())):
            self._tell(self._prepared.pop(), "begin")
        while self._begun and self._due:
            self._tell(self._begun.pop(), "run", [self._due.pop() for _ in range(self._share())])
        while len(self._busy) + len(self._prepared) + len(self._begun) < max(1, min(self._size, self._left)):
            self._tell(self._actor.remote(self._request, self._storage.shared), "prepare")

    def _tell(self, worker: Any, method: str, shards: list[int] | None = None) -> None:
        arguments = () if shards is None else (shards,)
        self._busy[getattr(worker, method).remote(*arguments)] = _Task(worker, method, shards or [])

    def _one_that_returned(self) -> Any:
        while True:
            calls, _ = self._ray.wait(list(self._busy), num_returns=1, timeout=_PATIENCE)
            if calls:
                return calls[0]
            if all(task.method == "prepare" for task in self._busy.values()):
                warn(
                    f"no worker is ready after {_PATIENCE} seconds: they are still building the model and the inputs, "
                    "or the Ray cluster has no free CPU or GPU; `ray status` shows what is in use",
                )

    def _share(self) -> int:
        """Shards for one worker: few towards the end, so that all finish at about the same time."""
        return max(1, min(_CHUNK, len(self._due) // (2 * self._size)))

    def _blame(self, error: Exception, shards: list[int]) -> None:
        blamed = shards or [_BUILDING]
        self._tries.update(blamed)
        for shard in blamed:
            if self._tries[shard] >= _TRIES:
                what = f"computing shard {shard}" if shard != _BUILDING else "building the model and the inputs"
                raise StoreError(f"{_TRIES} workers died while {what}; the last one: {error}") from error


def _users(error: Any) -> BaseException:
    """What the user's own code has raised on a worker."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) else error
