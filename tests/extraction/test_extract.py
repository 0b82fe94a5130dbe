"""What is written is what a log has; the same call resumes, and another one is refused by name."""

from __future__ import annotations

import filecmp
import os
import shutil
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.extraction.networks import Crowd, Fragile, Network, images, network
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

import torchlens as tl
from torchlens.extraction.plan import shard_rows_for

LAYERS = ["conv", "relu_1", "add", "head"]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def extract(folder: Path, **changes: Any) -> tl.Store:
    arguments: dict[str, Any] = {"layers": LAYERS, "save_to": folder, "batch_size": 4, "shard_rows": 8}
    model, inputs = changes.pop("model", None) or network(), changes.pop("inputs", None)
    return tl.extract(model, images() if inputs is None else inputs, **{**arguments, **changes})


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_values_are_those_of_a_log_bit_for_bit(tmp_path: Path, dtype: str | None) -> None:
    store = extract(tmp_path / "acts", dtype=dtype)
    for start in range(0, 20, 4):
        log = tl.log_forward_pass(network(), images()[start : start + 4])
        for name, label in zip(LAYERS, ["conv", "relu_1", "add_1", "head"], strict=True):
            expected = log[label].activation.detach()
            got = store[name].torch(slice(start, start + 4))
            assert torch.equal(got, expected.half() if dtype else expected), name


def test_the_forward_pass_ends_after_the_last_layer(tmp_path: Path) -> None:
    reached = []
    model = network()
    model.head.register_forward_hook(lambda *_: reached.append(1))
    extract(tmp_path / "acts", model=model, layers=["relu_1"])
    assert len(reached) == 1  # by the run that finds out which layers are meant


def test_the_model_and_the_generators_are_left_as_they_were(tmp_path: Path) -> None:
    model = network()
    before, state = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    extract(tmp_path / "acts", model=model)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.forward.__func__ is Network.forward and not model._forward_hooks


def test_what_is_there_is_not_computed_again(tmp_path: Path) -> None:
    extract(tmp_path / "acts")
    whole = files(tmp_path / "acts")
    (tmp_path / "acts" / "shards" / "000001.safetensors").unlink()
    model = network()
    store = extract(tmp_path / "acts", model=model)
    assert store.is_complete and files(tmp_path / "acts") == whole
    assert model.calls == 3 + 2  # the structure, the first batch, one sample of it; then two batches


def test_parts_make_the_same_store(tmp_path: Path) -> None:
    extract(tmp_path / "whole", shard_rows=4)
    for index in (2, 0, 1):
        store = extract(tmp_path / "parts", part=(index, 3), shard_rows=4)
        assert store.is_complete == (index == 1)
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


@pytest.mark.parametrize(
    ("row_bytes", "batch_size", "count", "rows"),
    [
        (4_000, 64, 500, 64),  # eight batches: a shard for each
        (4_000, 64, 10_000, 640),  # a sixteenth, in whole batches
        (4_000, 1, 10, 1),
        (4_000, 64, 1_000_000, 4_096),  # 64 batches
        (380_416, 64, 1_000_000, 128),  # 64 MB
        (1 << 30, 64, 10, 64),  # a batch, however large
        (4_000, 64, None, 1_024),  # 16 batches
        (0, 8, 0, 8),
    ],
)
def test_rows_in_a_shard(row_bytes: int, batch_size: int, count: int | None, rows: int) -> None:
    assert shard_rows_for(row_bytes, batch_size, count) == rows


class Interrupted(Dataset[Tensor]):
    """Is cut short at a row, as by Ctrl-C."""

    def __init__(self, count: int, at: int | None = None) -> None:
        self.values, self.at = images(count), at

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, row: int) -> Tensor:
        if row == self.at:
            raise KeyboardInterrupt
        return self.values[row]


def test_an_interruption_near_the_end_costs_no_more_than_a_sixteenth(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        tl.extract(network(), Interrupted(64, at=58), "head", tmp_path / "acts", batch_size=2)
    assert tl.open_store(tmp_path / "acts").missing_rows == [range(56, 64)]  # 32 batches, two in a shard
    assert tl.extract(network(), Interrupted(64), "head", tmp_path / "acts", batch_size=2).is_complete


def test_a_store_goes_on_in_shards_of_the_size_it_has(tmp_path: Path) -> None:
    """Begun with a number of its own, or by a version that chose another one; two processes agree on it."""
    extract(tmp_path / "whole", shard_rows=12)
    extract(tmp_path / "acts", shard_rows=12, part=(1, 2))
    store = extract(tmp_path / "acts", shard_rows=None)
    assert store.is_complete and store.plan.shard_rows == 12
    assert files(tmp_path / "acts") == files(tmp_path / "whole")
    with pytest.raises(tl.StoreError, match=r"What differs: the batch size \(4 there, 5 now\)\. Nothing was written"):
        extract(tmp_path / "acts", shard_rows=None, batch_size=5)


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "weights": ({"model": network(seed=5)}, "What differs: the weights of the model"),
    "ids": ({"ids": [f"x{i}" for i in range(20)]}, r"the ids \('i0' only there, 'x0' only now\)"),
    "order": (
        {"ids": [f"i{19 - i}" for i in range(20)]},
        "the same ones in another order: row 0 is 'i0' there, 'i19' now",
    ),
    "count": (
        {"inputs": images()[:16], "ids": [f"i{i}" for i in range(16)]},
        r"the number of inputs \(20 there, 16 now",
    ),
    "inputs": ({"inputs": images(seed=7)}, "the first batch of inputs"),
    "type": ({"dtype": "float16"}, r"the type, dtype= \(None there, float16 now\)"),
    "layers": (
        {"layers": ["conv", "head"]},
        r"the layers \(relu_1 is not asked for now; add is not asked for now\)",
    ),
    "order of layers": ({"layers": LAYERS[::-1]}, r"the layers \(in another order\)"),
    "batch": ({"batch_size": 2}, r"What differs: the batch size \(4 there, 2 now\)"),
    "shards": ({"shard_rows": 4}, r"the rows in a shard \(8 there, 4 now\)"),
    "reduction": ({"reduce": {"conv": tl.reduce.mean()}}, r"reduce of conv: none there, mean\(dim=None\) now"),
    "seed": ({"random_seed": 3}, r"the random seed \(0 there, 3 now\)"),
    "errors": ({"on_error": "skip"}, r"on_error= \(raise there, skip now\)"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_call_is_refused_by_name(tmp_path: Path, change: str) -> None:
    ids = [f"i{i}" for i in range(20)]
    extract(tmp_path / "acts", ids=ids)
    before = files(tmp_path / "acts")
    arguments, message = CHANGES[change]
    with pytest.raises(tl.StoreError, match=message):
        extract(tmp_path / "acts", **{"ids": ids, **arguments})
    assert files(tmp_path / "acts") == before


def test_another_reduction_function_is_another_reduction(tmp_path: Path) -> None:
    extract(tmp_path / "acts", reduce=lambda value: value.flatten(1)[:, :3])
    extract(tmp_path / "acts", reduce=lambda value: value.flatten(1)[:, :3])
    with pytest.raises(tl.StoreError, match="reduce of conv"):
        extract(tmp_path / "acts", reduce=lambda value: value.flatten(1)[:, 1:4])


class Times:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, value: Tensor) -> Tensor:
        return value * self.factor

    def method(self, value: Tensor) -> Tensor:
        return value * self.factor


def closure(factor: Any) -> Any:
    return lambda value: value * factor


FACTOR = 2.0


def by_a_global(value: Tensor) -> Tensor:
    return value * FACTOR


def of_weight(weight: float) -> nn.Module:
    layer = nn.PReLU(init=weight)
    return layer.requires_grad_(False)


FAMILIES: dict[str, Any] = {
    "closure": closure,
    "closure over a tensor": lambda factor: closure(torch.tensor(factor)),
    "closure over a closure": lambda factor: (lambda inner: lambda value: inner(value))(closure(factor)),
    "default": lambda factor: eval(f"lambda value, factor={factor}: value * factor"),
    "partial": lambda factor: partial(torch.mul, other=factor),
    "object": Times,
    "method": lambda factor: Times(factor).method,
    "module": of_weight,
}


@pytest.mark.parametrize("way", ["reduce", "interventions"])
@pytest.mark.parametrize("family", FAMILIES)
def test_functions_that_differ_in_what_they_hold(tmp_path: Path, family: str, way: str) -> None:
    def given(factor: float) -> Any:
        function = FAMILIES[family](factor)
        return {way: function if way == "reduce" else {"norm": function}}

    extract(tmp_path / "acts", **given(2.0))
    extract(tmp_path / "acts", **given(2.0))
    with pytest.raises(tl.StoreError, match="reduce of conv" if way == "reduce" else "the interventions"):
        extract(tmp_path / "acts", **given(3.0))


def test_a_function_whose_globals_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extract(tmp_path / "acts", reduce=by_a_global)
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    with pytest.raises(tl.StoreError, match="reduce of conv"):
        extract(tmp_path / "acts", reduce=by_a_global)


def test_ids_of_another_kind(tmp_path: Path) -> None:
    extract(tmp_path / "acts", ids=range(20))
    with pytest.raises(tl.StoreError, match="the ids \\(0 only there, '0' only now\\)"):
        extract(tmp_path / "acts", ids=[str(number) for number in range(20)])


def test_a_sample_that_raises(tmp_path: Path) -> None:
    x = torch.rand(10, 4)
    x[5] = float("nan")
    with pytest.raises(ValueError, match="a number was expected") as caught:
        tl.extract(Fragile(), x, "add", tmp_path / "acts", batch_size=3, ids=[f"s{i}" for i in range(10)])
    assert "running 's5' (row 5)" in str(getattr(caught.value, "__notes__", ["running 's5' (row 5)"]))
    arguments = {"batch_size": 3, "shard_rows": 3, "ids": [f"s{i}" for i in range(10)], "on_error": "skip"}
    store = tl.extract(Fragile(), x, "add", tmp_path / "skipped", **arguments)  # type: ignore[arg-type]
    assert store.skipped == {"s5": "ValueError: a number was expected"}
    assert store.rows == [0, 1, 2, 3, 4, 6, 7, 8, 9] and store.is_complete and store.verify()
    assert np.array_equal(store["add"][store.rows], (x * 2 + 1)[store.rows])
    for asked in (5, slice(3, 7), [1, 5]):
        with pytest.raises(tl.StoreError, match="1 of . rows? skipped: 5 \\('s5' raised ValueError"):
            store["add"][asked]
    whole = files(tmp_path / "skipped")
    (tmp_path / "skipped" / "shards" / "000001.safetensors").unlink()
    tl.extract(Fragile(), x, "add", tmp_path / "skipped", **arguments)  # type: ignore[arg-type]
    assert files(tmp_path / "skipped") == whole


def test_a_first_batch_in_which_a_sample_raises(tmp_path: Path) -> None:
    x = torch.rand(6, 4)
    x[0] = float("nan")
    store = tl.extract(Fragile(), x, "add", tmp_path / "acts", batch_size=3, on_error="skip")
    assert list(store.skipped) == [0] and np.array_equal(store["add"][1:], (x * 2 + 1)[1:])


def test_rows_that_are_not_there_are_named(tmp_path: Path) -> None:
    store = extract(tmp_path / "acts", part=(0, 2))
    assert not store.is_complete and store.missing == [1] and store.missing_rows == [range(8, 16)]
    assert repr(store) == "Store of Network: 4 layers, 20 rows, 8 of them missing"
    assert extract(tmp_path / "first", shard_rows=4, part=(0, 4)).missing_rows == [range(4, 16)]
    assert store["head"][0:8].shape == (8, 5)
    with pytest.raises(
        tl.StoreError, match=r"2 of 4 rows not there yet: 8-9; the call that began the store resumes it"
    ):
        store["head"][6:10]
    assert "shards/000001.safetensors is missing" in str(store.verify()) and not store.verify()


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchlens.extraction import storage

    monkeypatch.setattr(storage.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 100))  # type: ignore[attr-defined]
    with pytest.raises(tl.StoreError, match=r"the values need .* has only 100 B free"):
        extract(tmp_path / "acts")
    monkeypatch.undo()
    sync, calls = os.fsync, []

    def fail_at_last(descriptor: int) -> None:
        calls.append(1)
        if len(calls) > 6:
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_at_last)
    with pytest.raises(tl.StoreError, match="No space left on device; what was finished before is safe"):
        extract(tmp_path / "acts")
    monkeypatch.undo()
    assert not list((tmp_path / "acts").rglob(".*"))
    left = len(list((tmp_path / "acts" / "shards").iterdir()))
    assert left < 3 and extract(tmp_path / "acts").verify()


def test_models_that_can_not_be_extracted_from(tmp_path: Path) -> None:
    with pytest.raises(tl.ArgumentError, match=r"norm \(BatchNorm2d\) is in training mode"):
        extract(tmp_path / "acts", model=network().train())
    with pytest.raises(tl.ArgumentError, match="an nn.Module, or a function that makes one"):
        tl.extract(3, images(), "conv", tmp_path / "acts")  # type: ignore[arg-type]
    with pytest.raises(tl.ArgumentError, match=r"called without arguments to make the model \(missing a required"):
        extract(tmp_path / "acts", model=lambda x: x)
    with pytest.raises(tl.ArgumentError, match=r"layers is empty: name modules or operations, such as"):
        extract(tmp_path / "acts", layers=[])
    with pytest.raises(tl.LayerNotFoundError, match="'con'|relu_7|conv"):
        extract(tmp_path / "acts", layers=["relu_7"])
    assert not (tmp_path / "acts").exists()


@pytest.mark.parametrize("batch_size", [3, 4])  # as long as the first dimension by accident, and not
def test_samples_that_are_not_along_the_first_dimension(tmp_path: Path, batch_size: int) -> None:
    x = torch.rand(12, 3)
    with pytest.raises(tl.ArgumentError, match="they are not along its first dimension"):
        tl.extract(Crowd(), x, "add", tmp_path / "acts", batch_size=batch_size)
    store = tl.extract(Crowd(), x, "add", tmp_path / "acts", batch_size=batch_size, reduce=torch.t)
    assert np.array_equal(store["add"][:], x + 1)


def test_a_resumed_run_says_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    extract(tmp_path / "acts", part=(0, 2))
    capsys.readouterr()
    extract(tmp_path / "acts", progress=True)
    assert "resumed: 12 of 20 rows are there already, and are not computed again" in capsys.readouterr().err
    extract(tmp_path / "acts", progress=True)
    assert "all rows are there already: nothing is left to do" in capsys.readouterr().err


def test_numbers_too_large_for_half_precision(tmp_path: Path) -> None:
    x = torch.rand(6, 2)
    x[4, 1] = 1e5
    with pytest.raises(tl.StoreError, match="relu_1 of row 4 has 100000, more than float16 can hold"):
        tl.extract(nn.ReLU(), x, "relu_1", tmp_path / "half", batch_size=2, dtype="float16")
    x[4, 1] = float("inf")  # as it is
    store = tl.extract(nn.ReLU(), x, "relu_1", tmp_path / "inf", batch_size=2, dtype=torch.float16)
    assert np.isinf(store["relu_1"][4, 1])


def test_models_that_draw_are_reproducible(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout()).train()
    x = torch.rand(12, 4)
    for name in ("one", "two"):
        torch.rand(3)
        with pytest.warns(UserWarning, match=r"1 \(Dropout\) is in training mode and zeroes random elements"):
            tl.extract(model, x, "dropout", tmp_path / name, batch_size=2, shard_rows=4, part=(0, 2))
        torch.rand(5)
        with pytest.warns(UserWarning, match="Dropout"):
            tl.extract(model, x, "dropout", tmp_path / name, batch_size=2, shard_rows=4)
    assert not filecmp.dircmp(tmp_path / "one", tmp_path / "two").diff_files
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_wrong_arguments(tmp_path: Path) -> None:
    for wrong, message in {
        "batch_size": "batch_size must be an integer, 1 or more, not 0",
        "part": r"part=\(3, 3\): of n parts, the first is \(0, n\) and the last is \(n - 1, n\)",
        "dtype": "did you mean 'float16'",
        "on_error": '"raise" or "skip"',
        "shard_rows": "shard_rows=6 is not a multiple of the batch size, 4",
        "reduce": "reduce: no layer 'con' is extracted; did you mean 'conv'",
        "ids": "there are 3 ids, but 20 inputs",
        "random_seed": "random_seed must be an integer, 0 or more, not -3",
        "ragged": "ragged must be True or False, not 'no'",
        "preprocess": "preprocess must be a function of a sample, not 3",
    }.items():
        given: dict[str, Any] = {
            "batch_size": 0, "part": (3, 3), "dtype": "floot16", "on_error": "stop", "shard_rows": 6,
            "reduce": {"con": "mean"}, "ids": [1, 2, 3], "random_seed": -3, "ragged": "no", "preprocess": 3,
        }  # fmt: skip
        with pytest.raises(tl.TorchLensError, match=message):
            extract(tmp_path / "acts", **{wrong: given[wrong]})
    assert not (tmp_path / "acts").exists()


@pytest.mark.parametrize("wrong", [{"part": (0.7, 2)}, {"part": 3}, {"random_seed": 1.5}, {"random_seed": None}])
def test_numbers_are_whole(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(tl.ArgumentError, match="integer"):
        extract(tmp_path / "acts", **wrong)


@pytest.mark.parametrize(("now", "said"), [(30, "more"), (22, "22"), (10, "10")])
@pytest.mark.parametrize("kind", ["iterable", "loader"])
def test_a_stream_that_has_another_length_now(tmp_path: Path, now: int, said: str, kind: str) -> None:
    class Stream(IterableDataset[torch.Tensor]):
        def __init__(self, count: int) -> None:
            self.count = count

        def __iter__(self) -> Any:
            return iter(images(30)[: self.count])

    def stream(count: int) -> Any:
        return iter(images(30)[:count]) if kind == "iterable" else DataLoader(Stream(count), batch_size=4)

    def run(count: int) -> tl.Store:
        return extract(tmp_path / "acts", inputs=stream(count), batch_size=None if kind == "loader" else 4)

    run(20)
    whole = files(tmp_path / "acts")
    run(20)
    with pytest.raises(tl.StoreError, match=f"the number of inputs differs: there were 20 .* now {said}"):
        run(now)
    assert files(tmp_path / "acts") == whole


def test_backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(tl.ArgumentError, match='backend must be None, for this process, or "ray"'):
        extract(tmp_path / "acts", backend="dask")
    with pytest.raises(tl.ArgumentError, match='need backend="ray"'):
        extract(tmp_path / "acts", workers=3)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r'pip install "forwardlens\[ray\]"'):
        extract(tmp_path / "acts", backend="ray")


def test_in_a_notebook_the_report_is_no_error(
    notebook: list[Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tl.extract(nn.ReLU(), torch.rand(4, 3), ["relu_1"], save_to=tmp_path / "acts", progress=True)
    said = capsys.readouterr()
    assert "relu_1" in said.out and "relu_1" not in said.err
