"""Check that the records of a trace fit together. Each record by itself has been checked before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..capture.records import ModuleInfo, Trace
from ..errors import BundleError


def check_consistency(trace: Trace) -> None:
    """Raise if modules, their calls, parameters and buffers contradict each other."""
    _check_addresses(trace.modules, [*trace.param_infos, *trace.buffer_infos])
    _check_module_calls(trace)


def _check_addresses(modules: list[ModuleInfo], tensors: Iterable[object]) -> None:
    known = {address for info in modules for address in info.all_addresses}
    for info in (*modules, *tensors):
        for address in info.all_addresses:  # type: ignore[attr-defined]
            while address:
                address = address.rpartition(".")[0]
                if address not in known:
                    raise BundleError(f"a submodule or tensor belongs to module {address[:80]!r}, which does not exist")
    if any(info.address not in info.all_addresses for info in modules):
        raise BundleError("a module's address is not among the addresses that it is registered under")


def _check_module_calls(trace: Trace) -> None:
    calls: Counter[int] = Counter()
    for number, call in enumerate(trace.module_calls):
        calls[call.module] += 1
        if call.number != calls[call.module]:
            raise BundleError(f"module_calls[{number}] is call {call.number} of its module, not {calls[call.module]}")
