"""What there is to do: each operator in each type, and each module, is one job."""

from __future__ import annotations

from tests.corpora.check import examine
from tests.corpora.modules import module_examples, modules
from tests.corpora.operators import DTYPES, operator_examples, operators
from tests.jobs import Result

MODULES = "modules"


def all_jobs() -> list[str]:
    return [f"{dtype}/{name}" for dtype in DTYPES for name in operators(dtype)] + [f"{MODULES}/{m}" for m in modules()]


def work(job: str) -> Result:
    """Examine all examples of a job, such as `float32/sort` or `modules/nn.Linear`."""
    kind, name = job.split("/", 1)
    return examine(module_examples(name) if kind == MODULES else operator_examples(kind, name))
