"""Every test of fastlog runs twice: with the hot path in C, and with calls counted by Python alone."""

from tests.capture.conftest import recorded_by

__all__ = ["recorded_by"]
