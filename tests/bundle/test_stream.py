"""Written while the model runs: nothing is lost, nothing is pretended, and memory stays bounded."""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.bundle.compare import differences
from tests.models import CASES, Forward
from tests.test_documented import DemoNetwork, RecurrentNetwork
from torch import Tensor, nn

import torchlens as tl
from torchlens.bundle.files import JOURNAL
from torchlens.bundle.stream import TensorStream


@pytest.mark.parametrize("model", [DemoNetwork, RecurrentNetwork])
@pytest.mark.parametrize("keep", [True, False])
def test_a_streamed_folder_is_a_bundle(model: type[nn.Module], keep: bool, tmp_path: Path) -> None:
    net, x = model(), torch.rand(5, 5)
    log = tl.log_forward_pass(net, x, save_activations_to=tmp_path / "log", keep_activations_in_memory=keep)
    assert sorted(path.name for path in (tmp_path / "log").iterdir()) == [
        "manifest.json", "metadata.json", "tensors-00000.safetensors",
    ]  # fmt: skip
    assert differences(log, tl.load(tmp_path / "log")) == []
    assert log.validate() and tl.load(tmp_path / "log").validate()
    assert isinstance(log[0]._value.kept, Tensor) == keep


HARD = [case for case in CASES if case.name not in ("vmap_inside", "jagged_tensors")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", HARD, ids=lambda case: case.name)
def test_values_are_those_of_a_log_in_memory(case: Any, tmp_path: Path) -> None:
    """In-place writes, views, NumPy: whatever happens to a tensor after it was put into the queue."""
    torch.manual_seed(0)
    model = case.build()
    state = torch.get_rng_state()
    streamed = tl.log_forward_pass(
        model, case.inputs(), case.kwargs(), save_activations_to=tmp_path / "log", keep_activations_in_memory=False
    )
    assert bool(streamed.validate(perturb=False)) or case.warns or not case.repeatable
    if case.repeatable and case.name not in ("LazyModules", "ModuleMadeInside"):
        torch.manual_seed(0)
        model = case.build()
        torch.set_rng_state(state)
        plain = tl.log_forward_pass(model, case.inputs(), case.kwargs())
        assert plain.op_labels == streamed.op_labels
        for one, other in zip(plain, streamed, strict=True):
            assert _same(one.activation, other.activation), one.label


def _same(one: Any, other: Any) -> bool:
    from torchlens.replay.same import same

    return one is other is None or same(one, other)


def test_with_a_selection_and_a_transform(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    log = tl.log_forward_pass(
        model, torch.rand(3, 4), layers_to_save=["linear", -1], activation_postfunc=lambda t: t.mean(0),
        save_activations_to=tmp_path / "log", keep_activations_in_memory=False,
    )  # fmt: skip
    loaded = tl.load(tmp_path / "log")
    assert loaded.layer_labels == log.layer_labels == ["linear_1_1", "linear_2_3", "output_1_4"]
    assert differences(log, loaded) == []
    assert torch.equal(loaded["linear_1"].transformed_activation, loaded["linear_1"].activation.mean(0))
    assert torch.equal(loaded[-1].transformed_activation, loaded[-1].activation.mean(0))
    assert loaded["relu_1"].activation is None


def test_views_are_written_once(tmp_path: Path) -> None:
    x = torch.rand(64, 1024)
    tl.log_forward_pass(nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Identity()), x, save_activations_to=tmp_path / "log")
    size = (tmp_path / "log" / "tensors-00000.safetensors").stat().st_size
    assert size < 2.9 * x.nbytes  # the input, and the activation that the flattened one and the output look at too


def test_what_a_model_that_raises_leaves_is_a_bundle(tmp_path: Path) -> None:
    def forward(x: Tensor) -> Tensor:
        y = torch.relu(x)
        raise ValueError(f"no {y.shape}")

    with pytest.raises(ValueError) as caught:
        tl.log_forward_pass(
            Forward(forward), torch.rand(2), save_activations_to=tmp_path / "log", keep_activations_in_memory=False
        )
    loaded = tl.load(tmp_path / "log")
    assert not loaded.is_complete and loaded.op_labels == caught.value.partial_log.op_labels == [
        "input_1_0",
        "relu_1_1",
    ]
    assert torch.equal(loaded[1].activation, caught.value.partial_log[1].activation)


def test_arguments(tmp_path: Path) -> None:
    with pytest.raises(tl.ArgumentError, match="save_activations_to"):
        tl.log_forward_pass(nn.ReLU(), torch.rand(2), keep_activations_in_memory=False)
    with pytest.raises(tl.ArgumentError, match="nothing to save"):
        tl.log_forward_pass(nn.ReLU(), torch.rand(2), layers_to_save=None, save_activations_to=tmp_path / "x")
    (tmp_path / "there").mkdir()
    with pytest.raises(tl.BundleError, match="exists already"):
        tl.log_forward_pass(nn.ReLU(), torch.rand(2), save_activations_to=tmp_path / "there")


def test_a_tensor_that_can_not_be_saved_aborts(tmp_path: Path) -> None:
    class Odd(Tensor):
        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise NotImplementedError

    with pytest.raises(tl.BundleError, match="class Odd can't be saved"):
        tl.log_forward_pass(
            nn.ReLU(), torch.rand(2), activation_postfunc=lambda t: t.as_subclass(Odd),
            save_activations_to=tmp_path / "log",
        )  # fmt: skip
    with pytest.raises(tl.BundleError, match="is incomplete"):
        tl.load(tmp_path / "log")


# ---- cut short ------------------------------------------------------------------------------------------------


def test_cut_anywhere(tmp_path: Path) -> None:
    """A journal that ends after any byte gives every tensor whose line is whole."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    stopped = tmp_path / "stopped"
    unlink, os.unlink = os.unlink, lambda path: None
    try:
        log = tl.log_forward_pass(model, torch.rand(2, 4), save_activations_to=stopped)
    finally:
        os.unlink = unlink
    (stopped / "manifest.json").unlink()
    journal = (stopped / JOURNAL).read_bytes()
    lines = [number for number, byte in enumerate(journal) if byte == ord("\n")]
    for cut in [*range(lines[0] + 1, len(journal), 401), *lines[1:], *(end + 1 for end in lines)]:
        (stopped / JOURNAL).write_bytes(journal[:cut])
        recovered = tl.recover(stopped)
        whole = journal[:cut].count(b"\n") - 1
        assert recovered.num_tensors_saved == whole and not recovered.is_complete and recovered.warnings
        for op in recovered:
            assert torch.equal(op.activation, log[op.label].activation)
            assert op.parent_layers == log[op.label].parent_layers
            assert op.containing_modules == log[op.label].containing_modules
        assert tl.lint(recovered) == []
    assert recovered["2.0"].layer_label == "linear_2_3" and str(recovered)
    (stopped / JOURNAL).write_bytes(b"")
    with pytest.raises(tl.BundleError, match="nothing had been written"):
        tl.recover(stopped)
    tl.save(recovered, tmp_path / "saved")
    assert tl.load(tmp_path / "saved").op_labels == recovered.op_labels


def test_a_damaged_tensor_is_dropped_and_named(tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    unlink, os.unlink = os.unlink, lambda path: None
    try:
        log = tl.log_forward_pass(nn.Sequential(nn.ReLU(), nn.Tanh()), torch.randn(2, 4), save_activations_to=stopped)
    finally:
        os.unlink = unlink
    (stopped / "manifest.json").unlink()
    shard = stopped / "tensors-00000.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    recovered = tl.recover(stopped)
    assert any("1 of 3 pieces" in warning for warning in recovered.warnings)
    assert torch.equal(recovered["relu"].activation, log["relu"].activation)
    assert recovered["tanh"].activation is None


class _Random(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = np.arange(30_000.0)
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.fc(nn.functional.dropout(x))) * torch.from_numpy(self.table).sum().float()


@pytest.mark.parametrize("lost", [3, 40, 700, 10**9])
def test_every_whole_tensor_of_a_damaged_bundle_is_recovered(lost: int, tmp_path: Path) -> None:
    """Whatever the end of the file held: activations, parameters, gradients, random states, arrays."""
    log = tl.log_forward_pass(
        _Random(), torch.rand(2, 4), save_gradients=True, activation_postfunc=lambda t: t.detach().numpy()
    )
    log[-1].activation.sum().backward()
    path = tmp_path / "log"
    tl.save(log, path)
    assert differences(tl.load(path), tl.recover(path)) == []
    shard = path / "tensors-00000.safetensors"
    shard.write_bytes(shard.read_bytes()[:-lost])
    with pytest.raises(tl.BundleError, match="tl.recover"):
        tl.load(path)
    recovered = tl.recover(path)
    assert recovered.op_labels == log.op_labels
    assert "pieces of memory were incomplete or damaged" in recovered.warnings[-1]
    for op in recovered:
        assert op.activation is None or torch.equal(op.activation, log[op.label].activation)
        assert op.gradient is None or torch.equal(op.gradient, log[op.label].gradient)
    assert str(recovered) and recovered.to_dot() and tl.lint(recovered) == []
    tl.save(recovered, tmp_path / "again")
    assert tl.load(tmp_path / "again").num_tensors_saved == recovered.num_tensors_saved


CHILD = """
import sys, time, torch, torchlens as tl
from torch import nn

class Slow(nn.Module):
    def forward(self, x):
        for step in range(10_000):
            x = torch.relu(x) + 1
            if step == 20:
                print("running", flush=True)
            time.sleep(0.002)
        return x

tl.log_forward_pass(Slow(), torch.ones(1000), save_activations_to=sys.argv[1], keep_activations_in_memory=False)
"""


def test_kill_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "log"
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, env=_environment())
    assert child.stdout is not None and child.stdout.readline() == b"running\n"
    time.sleep(0.1)
    child.send_signal(signal.SIGKILL)
    child.wait()
    with pytest.raises(tl.BundleError, match=r"is incomplete.*tl.recover"):
        tl.load(path)
    recovered = tl.recover(path)
    assert recovered.num_tensors_saved == len(recovered) >= 20 and not recovered.is_complete
    assert "cut short" in recovered.warnings[0]
    # the kill may fall between handing a tensor over and writing it
    counted = r"all \d+ tensors that had been computed|[1-9]\d* of \d+ tensors had not been written"
    assert re.match(counted, recovered.warnings[1])
    for number, op in enumerate(recovered):  # x, relu(x), relu(x) + 1, ...
        assert torch.equal(op.activation, torch.full((1000,), 1.0 + number // 2))
    assert recovered[-1].containing_modules == [] and recovered.model_name == "Slow"


SAVING = """
import sys, torch, torchlens as tl
from torch import nn
log = tl.log_forward_pass(nn.Sequential(*[nn.ReLU() for _ in range(50)]), torch.ones(200_000))
tl.save(log, sys.argv[1], overwrite=True)
print("saving", flush=True)
for _ in range(1000):
    tl.save(log, sys.argv[1], overwrite=True)
"""


def test_kill_while_saving_leaves_the_old_bundle_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for delay in (0.05, 0.11, 0.23):
        child = subprocess.Popen([sys.executable, "-c", SAVING, str(path)], stdout=subprocess.PIPE, env=_environment())
        assert child.stdout is not None and child.stdout.readline() == b"saving\n"
        time.sleep(0.5 + delay)
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert tl.load(path)["relu_1:50"].tensor_shape == (200_000,)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


# ---- disk full ------------------------------------------------------------------------------------------------

FULL = textwrap.dedent("""
    import resource, signal, sys, torch, torchlens as tl
    from torch import nn
    from tests.bundle.test_stream import {scenario}
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
    {scenario}(sys.argv[1])
""")


def streams_to_a_full_disk(path: str) -> None:
    model = nn.Sequential(*[nn.Linear(300, 300, bias=False) for _ in range(50)])
    try:
        tl.log_forward_pass(model, torch.rand(300, 300), save_activations_to=path, keep_activations_in_memory=False)
    except tl.BundleError as error:
        assert "could not be written" in str(error) and "nothing was saved" not in str(error), error
        count = tl.recover(path).num_tensors_saved
        assert f"tl.recover({path!r}) gives the {count} tensors" in str(error), error
        print("refused")


def saves_to_a_full_disk(path: str) -> None:
    log = tl.log_forward_pass(nn.Linear(2000, 2000), torch.rand(2000))
    try:
        tl.save(log, path)
    except tl.BundleError as error:
        assert "could not be written" in str(error) and "nothing was saved" in str(error), error
        print("refused")


@pytest.mark.parametrize(
    ("scenario", "limit"), [("streams_to_a_full_disk", 4_000_000), ("saves_to_a_full_disk", 10**6)]
)
def test_a_full_disk(scenario: str, limit: int, tmp_path: Path) -> None:
    path = tmp_path / "log"
    code = FULL.format(scenario=scenario, limit=limit)
    environment = _environment() | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, env=environment)
    assert ran.stdout == "refused\n", ran.stderr
    if scenario == "saves_to_a_full_disk":
        assert list(tmp_path.iterdir()) == []
        return
    with pytest.raises(tl.BundleError, match="is incomplete"):
        tl.load(path)
    recovered = tl.recover(path)
    assert 5 < recovered.num_tensors_saved <= limit / 360_000
    assert all(op.activation is not None for op in recovered)


def broken(*args: Any, **kwargs: Any) -> None:
    raise OSError(errno.EIO, "the disk is broken")


def test_what_is_replaced_stays_until_the_new_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tl.save(tl.log_forward_pass(nn.ReLU(), torch.rand(9)), tmp_path / "log")
    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(tl.BundleError, match="disk is broken; nothing was saved"):
        tl.save(tl.log_forward_pass(nn.Tanh(), torch.rand(9)), tmp_path / "log", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert tl.load(tmp_path / "log").model_name == "ReLU"


@pytest.mark.parametrize("where", ["os.replace", "torchlens.bundle.save.write_file", "pathlib.Path.mkdir"])
def test_the_first_error_is_the_one_that_is_told(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails, from making the folder to the last file: no other error comes on top of it."""
    monkeypatch.setattr(where, broken)
    for stream in (
        lambda: tl.log_forward_pass(nn.ReLU(), torch.rand(9), save_activations_to=tmp_path / "log"),
        lambda: tl.fastlog.record(nn.ReLU(), torch.rand(9), keep_op="relu", save_to=tmp_path / "records"),
    ):
        with pytest.raises((tl.BundleError, OSError), match="disk is broken") as caught:
            stream()
        assert caught.value.__context__ is None or "disk is broken" in str(caught.value.__context__)


def test_the_queue_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk is slow, the model waits instead of piling up tensors."""
    waiting: list[int] = []
    append = TensorStream.append

    def watched(self: TensorStream, *args: Any) -> Any:
        made = append(self, *args)
        waiting.append(self._bytes)
        return made

    write = TensorStream._write
    monkeypatch.setattr(TensorStream, "append", watched)
    monkeypatch.setattr(TensorStream, "_write", lambda self, *args: (time.sleep(0.002), write(self, *args))[1])
    monkeypatch.setattr("torchlens.bundle.stream.WAITING", 0)
    monkeypatch.setattr(TensorStream.__init__, "__defaults__", (100_000,))
    tl.log_forward_pass(
        nn.Sequential(*[nn.Sigmoid() for _ in range(60)]), torch.rand(10_000),
        save_activations_to=tmp_path / "log", keep_activations_in_memory=False,
    )  # fmt: skip
    assert 40_000 < max(waiting) <= 100_000


def test_large_tensors_are_hashed_beside_the_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a thread of its own, which ends with the save; what it finds is the hash of what was written."""
    log, before = tl.log_forward_pass(nn.Sigmoid(), torch.rand(600_000)), threading.active_count()
    tl.save(log, tmp_path / "log")
    assert threading.active_count() == before
    assert torch.equal(tl.load(tmp_path / "log")["sigmoid"].activation, log["sigmoid"].activation)
    file = tmp_path / "log" / "tensors-00000.safetensors"
    with file.open("r+b") as opened:
        opened.seek(-1_000_000, os.SEEK_END)
        byte = opened.read(1)
        opened.seek(-1_000_000, os.SEEK_END)
        opened.write(bytes([byte[0] ^ 1]))
    with pytest.raises(tl.BundleError, match="damaged or was altered"):
        tl.load(tmp_path / "log")
    monkeypatch.setattr("torchlens.bundle.shards.hash_of", broken)
    with pytest.raises((tl.BundleError, OSError), match="disk is broken"):
        tl.save(log, tmp_path / "other")
    assert threading.active_count() == before and not (tmp_path / "other").exists()


def test_nothing_is_left_running(tmp_path: Path) -> None:
    before = threading.active_count()
    tl.log_forward_pass(nn.ReLU(), torch.rand(2), save_activations_to=tmp_path / "log")
    with pytest.raises(RuntimeError):
        tl.log_forward_pass(nn.Linear(3, 3), torch.rand(2), save_activations_to=tmp_path / "other")
    assert threading.active_count() == before
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
