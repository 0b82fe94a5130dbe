"""A folder, memory and an S3 server keep the same promises."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.extraction.networks import images, network
from tests.extraction.test_extract import files

import torchlens as tl
from torchlens.extraction.storage import Bucket, Folder, Storage, storage_at


@pytest.fixture(params=["folder", "memory", pytest.param("s3", marks=pytest.mark.cloud)])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "folder":
        return Folder(tmp_path / "acts")
    if request.param == "memory":
        return storage_at(f"memory://{tmp_path.name}/acts")
    return storage_at(f"{request.getfixturevalue('bucket')}/{tmp_path.name}")


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    """An S3 server on this machine, with a bucket."""
    import boto3

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    os.environ |= {"AWS_ENDPOINT_URL": url, "FSSPEC_S3_ENDPOINT_URL": url}
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    boto3.client("s3", endpoint_url=url).create_bucket(Bucket="acts")
    yield "s3://acts"
    server.send_signal(signal.SIGTERM)
    server.wait()


def test_the_promises(storage: Storage) -> None:
    assert storage.names("shards") == [] and storage.read("plan.json") is None and not storage.has("plan.json")
    assert storage.create("plan.json", b"one") and not storage.create("plan.json", b"two")
    assert storage.read("plan.json") == b"one" and storage.has("plan.json")
    storage.put("shards/000001.safetensors", [memoryview(b"ab"), memoryview(np.arange(3, dtype=np.int16))])
    storage.put("shards/000001.safetensors", [memoryview(b"abc"), memoryview(b"defg"), memoryview(b"")])
    assert storage.names("shards") == ["000001.safetensors"]
    reader = storage.open("shards/000001.safetensors")
    assert reader.size == 7 and bytes(reader.view(2, 3)) == b"cde"
    with pytest.raises(FileNotFoundError):
        storage.open("shards/000002.safetensors")
    storage.tidy()


def test_the_same_store_everywhere(storage: Storage, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {
        "layers": ["conv", "head"],
        "batch_size": 4,
        "shard_rows": 8,
        "ids": [f"i{i}" for i in range(20)],
    }
    tl.extract(network(), images(), save_to=tmp_path / "local", **arguments)
    whole = files(tmp_path / "local")
    url = storage.shared
    tl.extract(network(), images(), save_to=url, part=(1, 2), **arguments)
    store = tl.extract(network(), images(), save_to=url, **arguments)
    for name, data in whole.items():
        assert storage.read(name) == data
    assert store.is_complete and store.verify() and np.array_equal(store["head"].by_id("i9"), store["head"][9])
    with pytest.raises(tl.StoreError, match="the weights of the model"):
        tl.extract(network(seed=3), images(), save_to=url, **arguments)
    assert tl.open_store(url)["conv"].shape == (20, 8, 6, 6)


def test_leftovers_of_dead_processes(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.put("shards/000000.safetensors", [memoryview(b"x")])
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    host = socket.gethostname()
    names = {
        f".000001.safetensors.{host}.{dead.pid}.01234567.tmp": False,
        f".000001.safetensors.{host}.{os.getpid()}.01234567.tmp": True,  # somebody is at work
        f".000001.safetensors.elsewhere.{dead.pid}.01234567.tmp": True,  # nobody here can tell
        ".notes.tmp": True,
    }
    for name in names:
        (tmp_path / "shards" / name).touch()
    folder.tidy()
    assert {name: (tmp_path / "shards" / name).exists() for name in names} == names


def test_places_that_can_not_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(tl.ArgumentError, match="save_to must be the path of a folder or a URL"):
        storage_at(3)
    with pytest.raises(tl.ArgumentError, match="save_to='nosuch://x' can't be opened"):
        storage_at("nosuch://x")
    assert isinstance(storage_at(f"file://{tmp_path}"), Folder) and isinstance(storage_at("memory://x"), Bucket)
    (tmp_path / "file").touch()
    with pytest.raises(tl.StoreError, match="could not be written"):
        tl.extract(network(), images(), "head", save_to=tmp_path / "file" / "acts")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ImportError, match=r'pip install "forwardlens\[cloud\]"'):
        storage_at("memory://x")


@pytest.mark.cloud
def test_killed_while_writing_to_s3(bucket: str, tmp_path: Path) -> None:
    from tests.extraction.test_kills import work

    work(str(tmp_path / "whole"))
    whole = files(tmp_path / "whole")
    script = f"from tests.extraction.test_kills import work; work('{bucket}/killed')"
    storage, kills = storage_at(f"{bucket}/killed"), 0
    for number in range(8):
        before = len(storage.names("shards"))
        process = subprocess.Popen([sys.executable, "-c", script])
        while process.poll() is None and len(storage.names("shards")) <= before:
            time.sleep(0.01)
        time.sleep(0.01 * number)
        process.kill()
        kills += process.wait() != 0
        assert len(storage.names("shards")) <= 15
    work(f"{bucket}/killed")
    assert kills
    assert {name: storage.read(name) for name in whole} == whole
    assert len(storage.names("shards")) == 15
