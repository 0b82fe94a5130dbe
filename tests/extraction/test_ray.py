"""Many workers make the same store, to the byte, whoever of them is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.extraction.networks import Fragile, Slow, images, network
from tests.extraction.test_extract import files

import torchlens as tl

pytestmark = pytest.mark.ray
LAYERS = ["conv", "relu_1", "head"]


@pytest.fixture
def cluster() -> Iterator[Any]:
    import ray
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    ray.init(address=found.address, log_to_driver=False)
    yield found
    ray.shutdown()
    found.shutdown()


class Deadly(Slow):
    """Kills its process when a row is read for the first time."""

    def __init__(self, folder: Path, rows: list[int]) -> None:
        super().__init__(60, 0.002)
        self.folder, self.rows = str(folder), rows

    def __getitem__(self, row: int) -> Any:
        mark = Path(self.folder) / str(row)
        if row in self.rows and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(row)


def extract(folder: Path, inputs: Any, **more: Any) -> tl.Store:
    reduce = {"conv": [tl.reduce.flatten(), tl.reduce.pca(4, samples=12)]}
    return tl.extract(network, inputs, LAYERS, folder, batch_size=2, shard_rows=4, reduce=reduce, **more)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole") / "acts"
    extract(folder, images(60))
    return files(folder)


def test_the_same_store(tmp_path: Path, cluster: Any, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = extract(Path("acts"), lambda: Slow(60, 0), backend="ray", workers=2)
    assert store.is_complete and files(tmp_path / "acts") == whole
    (tmp_path / "acts" / "shards" / "000007.safetensors").unlink()
    extract(Path("acts"), images(60), backend="ray", workers=2)
    assert files(tmp_path / "acts") == whole
    edits = {"conv": tl.edits.scale(0.5), "relu_1": tl.edits.zero(units=[2])}
    extract(Path("edited"), images(60), interventions=edits)
    extract(Path("edited on Ray"), images(60), interventions=edits, backend="ray", workers=2)
    assert files(tmp_path / "edited on Ray") == files(tmp_path / "edited") != whole


def test_workers_that_are_killed(tmp_path: Path, cluster: Any, whole: dict[str, bytes]) -> None:
    (tmp_path / "marks").mkdir()
    extract(tmp_path / "acts", Deadly(tmp_path / "marks", [9, 30, 59]), backend="ray", workers=2)
    assert len(list((tmp_path / "marks").iterdir())) == 3 and files(tmp_path / "acts") == whole


def test_a_node_that_is_killed_and_another_that_is_added(tmp_path: Path, whole: dict[str, bytes]) -> None:
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    lost = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        slow = Slow(60, 0.2)
        done = threading.Thread(target=extract, args=(tmp_path / "acts", slow), kwargs={"backend": "ray", "workers": 2})
        done.start()
        while len(list((tmp_path / "acts").glob("shards/*.safetensors"))) < 2:
            time.sleep(0.05)
        cluster.remove_node(lost, allow_graceful=False)
        cluster.add_node(num_cpus=1)
        done.join(timeout=300)
        assert not done.is_alive() and files(tmp_path / "acts") == whole
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_a_driver_that_is_killed(tmp_path: Path, whole: dict[str, bytes]) -> None:
    script = f"""
from pathlib import Path
from tests.extraction.networks import Slow
from tests.extraction.test_ray import extract
extract(Path({str(tmp_path / "acts")!r}), Slow(60, 0.02), backend="ray", workers=2)
"""
    rng = random.Random(0)
    for _ in range(3):
        driver = subprocess.Popen([sys.executable, "-c", script])
        shards = len(list((tmp_path / "acts").glob("shards/*.safetensors")))
        while driver.poll() is None and len(list((tmp_path / "acts").glob("shards/*.safetensors"))) <= shards:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.3))
        driver.kill()
        driver.wait()
    time.sleep(3)  # workers notice that nobody asks any more
    extract(tmp_path / "acts", images(60))
    assert files(tmp_path / "acts") == whole


def test_what_a_worker_raises(tmp_path: Path, cluster: Any) -> None:
    x = images(8)
    x[5] = float("nan")
    arguments: dict[str, Any] = {"batch_size": 2, "shard_rows": 2, "backend": "ray", "workers": 2}
    with pytest.raises(ValueError, match="a number was expected"):
        tl.extract(Fragile(), x, "add", tmp_path / "acts", **arguments)
    store = tl.extract(Fragile(), x, "add", tmp_path / "skip", on_error="skip", **arguments)
    assert list(store.skipped) == [5] and store.is_complete
    with pytest.raises(tl.LayerNotFoundError, match="subb"):
        tl.extract(Fragile(), x, "subb", tmp_path / "none", **arguments)
    with pytest.raises(tl.ArgumentError, match="an iterable does not support"):
        tl.extract(Fragile(), {0: 1}.keys(), "add", tmp_path / "none", preprocess=lambda _: x[0], **arguments)


def test_a_model_that_kills_every_worker(tmp_path: Path, cluster: Any) -> None:
    def die() -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(tl.StoreError, match="5 workers died while building the model and the inputs"):
        tl.extract(die, images(8), "add", tmp_path / "acts", backend="ray", workers=2)


def test_workers_build_their_models_at_the_same_time(tmp_path: Path, cluster: Any, whole: dict[str, bytes]) -> None:
    def build() -> Any:
        (tmp_path / str(os.getpid())).touch()
        deadline = time.time() + 120
        while len([path for path in tmp_path.iterdir() if path.name.isdecimal()]) < 2:
            if time.time() > deadline:
                raise TimeoutError("the other worker was not asked to build")
            time.sleep(0.05)
        return network()

    reduce = {"conv": [tl.reduce.flatten(), tl.reduce.pca(4, samples=12)]}
    arguments: dict[str, Any] = {"batch_size": 2, "shard_rows": 4, "reduce": reduce, "backend": "ray", "workers": 2}
    tl.extract(build, images(60), LAYERS, tmp_path / "acts", **arguments)
    assert files(tmp_path / "acts") == whole
