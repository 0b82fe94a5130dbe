"""Migrate tables of an older schema to the current columns, one step for each version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .checks import integer
from .columns import OLDEST, SCHEMA, CompletenessRow


def migrate(tables: dict[str, Any], schema: int) -> dict[str, Any]:
    """The tables of a log that was written with an older schema, as this version writes them."""
    for step in range(integer(schema, OLDEST, SCHEMA), SCHEMA):
        tables = _STEPS[step](dict(tables))
    return tables


def _from_2(tables: dict[str, Any]) -> dict[str, Any]:
    """Schema 3 added base classes to modules, tensors of unknown origin to completeness, and interventions."""
    tables["modules"] = [row if len(row) == 6 else [*row, []] for row in tables["modules"]]
    completeness = tables["completeness"]
    if completeness is not None and len(completeness) == 2:
        operations, missed = completeness
        tables["completeness"] = CompletenessRow(operations, missed, unknown=[])
    return {"interventions": [], "applied": [], **tables}


#: Keyed by the version that a step migrates from.
_STEPS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {2: _from_2}
