"""Records by address: `log.modules`, `log.params`, `log.buffers`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from ..errors import LayerNotFoundError, near
from ..words import counted
from .tables import Tabular

T = TypeVar("T")

_MOST_LISTED = 20


class Accessor(Tabular, Generic[T]):
    """Records by address: `log.modules["features.0"]`, `len(log.params)`, `for buffer in log.buffers`."""

    def __init__(self, noun: str, records: dict[str, T], by_any_address: dict[str, T]) -> None:
        self.noun = noun
        self._records = records
        self._by_any_address = by_any_address  # what is registered under several names is found under each

    def _table_records(self) -> Iterator[T]:
        return iter(self)

    def __getitem__(self, key: str | int) -> T:
        if isinstance(key, int):
            return list(self._records.values())[key]
        record: T | None = self._find(key)
        if record is None:
            raise LayerNotFoundError(f"no {self.noun} {key!r}{self._hint(key)}")
        return record

    def _find(self, key: str) -> Any:
        return self._by_any_address.get(key)

    def _hint(self, key: str) -> str:
        return near(key, self._records)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self._find(key) is not None

    def __iter__(self) -> Iterator[T]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def keys(self) -> list[str]:
        return list(self._records)

    def __repr__(self) -> str:
        lines = "".join(f"\n    {record!r}" for record in list(self)[:_MOST_LISTED])
        more = f"\n    ... and {len(self) - _MOST_LISTED} more" if len(self) > _MOST_LISTED else ""
        return f"{self._title()}{lines}{more}"

    def _title(self) -> str:
        return counted(len(self), self.noun)

    def _repr_html_(self) -> str:
        from .html import accessor_html

        return accessor_html(self)

    def _ipython_key_completions_(self) -> list[str]:
        return self.keys()
