"""Saving over a bundle: whatever moment the process dies at, the old bundle or the new one is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import torchlens as tl
from torchlens.bundle import replace

#: Saves one log and then another over it, in processes that die at the first, second, ... step on the way to the name.
CHILD = """
import itertools, os, signal, sys, torch, torchlens as tl
from pathlib import Path
from torch import nn
from torchlens.bundle import replace

old, new = (tl.log_forward_pass(layer, torch.rand(3)) for layer in (nn.ReLU(), nn.Tanh()))
if sys.argv[2] == "two steps":
    replace._exchange = lambda one, other: False
steps = fatal = 0

def fatally(function):
    def step(*args, **kwargs):
        global steps
        steps += 1
        if steps == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return step

for fatal in itertools.count(1):
    path = Path(sys.argv[1], str(fatal), "log")
    tl.save(old, path)
    process = os.fork()
    if not process:
        names = (replace, "_exchange"), (os, "rename"), (replace, "sync_folder"), (os, "unlink"), (os, "rmdir")
        for module, name in names:
            setattr(module, name, fatally(getattr(module, name)))
        tl.save(new, path, overwrite=True)
        os._exit(0)
    if not os.waitpid(process, 0)[1]:
        break
"""


def killed_at_each_step(folder: Path, way: str) -> list[Path]:
    """The paths that were saved to, each by a process that got one step further; the last one was not killed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore", "-c", CHILD, str(folder), way]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    paths = [folder / str(step) / "log" for step in range(1, 1 + len(os.listdir(folder)))]
    assert os.listdir(paths[-1].parent) == ["log"] and len(os.listdir(paths[0].parent)) == 2
    return paths


needs_exchange = pytest.mark.skipif(replace._renameat2() is None, reason="only Linux exchanges folders in one step")


@needs_exchange
def test_in_one_step_it_is_always_there(tmp_path: Path) -> None:
    found = [tl.load(path)[1].layer_type for path in killed_at_each_step(tmp_path, "exchange")]
    assert found[:2] == ["relu", "tanh"] and set(found[1:]) == {"tanh"}  # killed before the exchange, and after it


def test_in_two_steps_it_is_there_or_comes_back(tmp_path: Path) -> None:
    found = []
    for path in killed_at_each_step(tmp_path, "two steps"):
        if not path.exists():
            with pytest.raises(tl.BundleError, match=r"being replaced when the process died; tl\.recover"):
                tl.load(path)
            assert tl.recover(path)[1].layer_type == "relu"
            found.append("put back")
        assert tl.load(path).validate()
        found.append(tl.load(path)[1].layer_type)
    # Killed before it tries to exchange, before the first step, between the two, and after them.
    assert found[:5] == ["relu", "relu", "put back", "relu", "tanh"] and set(found[4:]) == {"tanh"}


@pytest.mark.parametrize("way", ["exchange", "two steps"])
def test_both_ways_replace(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "two steps":
        monkeypatch.setattr(replace, "_exchange", lambda one, other: False)
    for layer in (nn.ReLU(), nn.Tanh(), nn.Sigmoid()):
        log = tl.log_forward_pass(layer, torch.rand(3))
        tl.save(log, tmp_path / "log", overwrite=True)
        assert tl.load(tmp_path / "log").op_labels == log.op_labels
        assert os.listdir(tmp_path) == ["log"]
    (tmp_path / "empty").mkdir()
    tl.save(log, tmp_path / "empty", overwrite=True)
    assert tl.load(tmp_path / "empty").op_labels == log.op_labels


def test_the_second_step_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tl.log_forward_pass(nn.ReLU(), torch.rand(3))
    tl.save(log, tmp_path / "log")
    rename = os.rename

    def fails(source: Path, target: Path) -> None:
        if source.name.endswith(".tmp"):
            raise PermissionError(1, "not today")
        rename(source, target)

    monkeypatch.setattr(replace, "_exchange", lambda one, other: False)
    monkeypatch.setattr(os, "rename", fails)
    with pytest.raises(tl.BundleError, match=r"not today; nothing was saved"):
        tl.save(log, tmp_path / "log", overwrite=True)
    assert os.listdir(tmp_path) == ["log"] and tl.load(tmp_path / "log").validate()


def test_who_comes_first_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that appears while a log is being saved is not replaced without being asked to."""
    from torchlens.bundle import save

    log = tl.log_forward_pass(nn.ReLU(), torch.rand(3))
    write = save._write

    def meanwhile(*args: object, **kwargs: bool) -> None:
        write(*args, **kwargs)  # type: ignore[arg-type]
        (tmp_path / "log").mkdir()
        (tmp_path / "log" / "theirs").write_text("")

    monkeypatch.setattr(save, "_write", meanwhile)
    with pytest.raises(tl.BundleError, match="exists already"):
        tl.save(log, tmp_path / "log")
    assert os.listdir(tmp_path) == ["log"] and os.listdir(tmp_path / "log") == ["theirs"]


def test_what_is_not_a_bundle_is_not_put_back(tmp_path: Path) -> None:
    (tmp_path / ".log.1234.old").mkdir()
    for question in (tl.load, tl.recover):
        with pytest.raises(tl.BundleError, match="does not exist"):
            question(tmp_path / "log")


# ---- what is not replaced ---------------------------------------------------------------------------------------


def foreign_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text('{"name": "my web application"}')


def foreign_file(folder: Path) -> None:
    tl.save(tl.log_forward_pass(nn.ReLU(), torch.rand(3)), folder / "x")
    for path in (folder / "x").iterdir():
        path.rename(folder / path.name)
    (folder / "x").rmdir()


def foreign_folder(folder: Path) -> None:
    foreign_file(folder)
    (folder / "tensors-00007.safetensors").mkdir()


def foreign_link(folder: Path) -> None:
    foreign_file(folder)
    (folder / "tensors-00007.safetensors").symlink_to(folder / "precious.js")


@pytest.mark.parametrize("made", [foreign_manifest, foreign_file, foreign_folder, foreign_link])
def test_only_a_bundle_that_holds_nothing_else_is_replaced(made: object, tmp_path: Path) -> None:
    folder = tmp_path / "precious"
    folder.mkdir()
    made(folder)  # type: ignore[operator]
    (folder / "precious.js").write_text("let precious = 1")
    before = sorted(os.listdir(folder))
    log = tl.log_forward_pass(nn.Tanh(), torch.rand(3))
    with pytest.raises(tl.BundleError, match="so it is not replaced"):
        tl.save(log, folder, overwrite=True)
    assert sorted(os.listdir(folder)) == before and (folder / "precious.js").read_text() == "let precious = 1"
    assert os.listdir(tmp_path) == ["precious"]


def test_what_comes_into_the_folder_at_the_last_moment_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, log = tmp_path / "log", tl.log_forward_pass(nn.Tanh(), torch.rand(3))
    tl.save(log, path)
    sync = replace.sync_with_files

    def and_somebody_else(folder: Path) -> None:
        sync(folder)
        (path / "precious.js").write_text("let precious = 1")

    monkeypatch.setattr(replace, "sync_with_files", and_somebody_else)
    tl.save(log, path, overwrite=True)
    assert len(tl.load(path)) == len(log)
    (hidden,) = [folder for folder in tmp_path.iterdir() if folder != path]
    assert [file.name for file in hidden.iterdir()] == ["precious.js"]
