"""The two runs that a validation compares: one plain, one logged, each on its own copy of the model and the input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..capture import rng
from ..capture.changes import between
from ..capture.containers import fresh_copy, tensors_in
from ..capture.modules import copied_model
from ..capture.records import Trace
from ..capture.session import run_traced
from ..capture.surroundings import plain_run
from ..options import Options


@dataclass
class Copies:
    """A copy of a model and of its arguments, so that the run of one leaves nothing for the other."""

    model: nn.Module
    args: Any
    kwargs: Any

    @classmethod
    def of(cls, model: nn.Module, args: Any, kwargs: Any) -> Copies:
        return cls(copied_model(model), fresh_copy(args), fresh_copy(kwargs))

    def run(self) -> Any:
        """What the model returns, without a log."""
        return self.model(*self.args, **self.kwargs)


def plain_and_logged(model: nn.Module, args: Any, kwargs: Any, seed: int | None) -> tuple[list[Tensor], Trace]:
    """The tensors that a plain run returned, and the trace of a logged run with the same seed."""

    def run_twice() -> tuple[list[Tensor], Trace]:
        used = rng.seed_generators(seed)
        eager = plain_run()
        expected = between(eager.begin, Copies.of(model, args, kwargs).run, eager.end)
        twin = Copies.of(model, args, kwargs)
        run = run_traced(twin.model, twin.args, twin.kwargs, Options(random_seed=used, check_completeness=True))
        if run.error is not None:
            raise run.error
        return [tensor for _, tensor in tensors_in(expected)], run.trace

    return rng.restoring(run_twice)
