"""Every test of capture runs twice: with the hot path in C, and with calls recorded by Python alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from torchlens.capture import native


@pytest.fixture(autouse=True, params=["native", "python"])
def recorded_by(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "native" and not native.is_compiled:
        pytest.skip("hot.c was not compiled: there was no compiler, or none of Python's headers")
    native.use(request.param == "native")
    yield request.param
    native.use_if_wanted()
