"""All that can be given as inputs comes out as the same store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.extraction.networks import Fragile, Tokens, images, network
from tests.extraction.test_extract import files
from tests.extraction.test_harmless import Stream
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import torchlens as tl


class Pairs(Dataset[tuple[Tensor, int]]):
    """Images with labels, as most data sets have them."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return images()[row], row % 3


class Endless(IterableDataset[Tensor]):
    def __iter__(self) -> Iterator[Tensor]:
        return iter(images())


def extract(folder: Path, inputs: Any, **more: Any) -> tl.Store:
    more = {"batch_size": 4, "shard_rows": 8, **more}
    return tl.extract(network(), inputs, ["relu_1", "head"], folder, **more)


def values(store: tl.Store) -> dict[str, Any]:
    return {name: store[name][:].tobytes() for name in store}


KINDS: dict[str, Any] = {
    "array": lambda: images().numpy(),
    "list": lambda: list(images()),
    "tuple of tensors": lambda: (images(),),
    "dict of tensors": lambda: {"x": images()},
    "dataset": lambda: TensorDataset(images()),
    "pairs": Pairs,
    "iterable": lambda: (image for image in images()),
    "iterable data set": Endless,
    "dicts": lambda: [{"x": image} for image in images()],
    "factory": lambda: images,
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return values(extract(tmp_path_factory.mktemp("expected") / "acts", images()))


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind(tmp_path: Path, kind: str, expected: dict[str, Any]) -> None:
    for _ in range(2):  # and resumed
        store = extract(tmp_path / "acts", KINDS[kind]())
        assert values(store) == expected and store.is_complete and len(store) == 20
        assert list(store.ids) == list(range(20))
        whole = files(tmp_path / "acts")
        (tmp_path / "acts" / "shards" / "000001.safetensors").unlink()
    extract(tmp_path / "acts", KINDS[kind]())
    assert files(tmp_path / "acts") == whole


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("data", [TensorDataset(images()), Pairs(), Endless()], ids=lambda data: type(data).__name__)
def test_loaders(tmp_path: Path, workers: int, data: Any, expected: dict[str, Any]) -> None:
    workers = min(workers, 1) if isinstance(data, Endless) else workers
    loader = DataLoader(data, batch_size=4, num_workers=workers)
    store = extract(tmp_path / "acts", loader, batch_size=None)
    assert values(store) == expected
    whole = files(tmp_path / "acts")
    (tmp_path / "acts" / "shards" / "000001.safetensors").unlink()
    extract(tmp_path / "acts", loader, batch_size=None)
    assert files(tmp_path / "acts") == whole


def test_loaders_that_change_the_order_are_refused(tmp_path: Path) -> None:
    data = TensorDataset(images())
    for loader, message in [
        (DataLoader(data, batch_size=4, shuffle=True), "shuffles or samples"),
        (DataLoader(data, batch_size=4, drop_last=True), "drop_last=False"),
        (DataLoader(data, batch_sampler=[[1, 2], [0]]), "batch_sampler"),
        (DataLoader(data, batch_size=None), "does not make batches"),
        (DataLoader(data, batch_size=5), "batch_size: the DataLoader makes batches of 5"),
    ]:
        with pytest.raises(tl.ArgumentError, match=message):
            extract(tmp_path / "acts", loader)


def test_an_iterable_that_does_not_say_how_long_it_is(tmp_path: Path) -> None:
    for count in (7, 8, 16):  # within a shard, at the end of one, of two
        folder = tmp_path / str(count)
        store = tl.extract(network(), iter(images(count)), "head", folder, batch_size=4, shard_rows=8, part=(0, 2))
        assert store.is_complete == (count <= 8)
        store = tl.extract(network(), iter(images(count)), "head", folder, batch_size=4, shard_rows=8)
        assert len(store) == count and store.is_complete and store.verify() and store.plan.count is None
        assert store["head"].shape == (count, 5)


def test_an_iterable_that_is_shorter_than_it_says(tmp_path: Path) -> None:
    with pytest.raises(tl.TorchLensError, match="the inputs ended"):
        tl.extract(network(), iter(images(7)), "head", tmp_path / "acts", batch_size=4, shard_rows=8, ids=range(9))
    with pytest.raises(tl.TorchLensError, match="more"):
        tl.extract(network(), iter(images(9)), "head", tmp_path / "more", batch_size=4, shard_rows=4, ids=range(6))


@pytest.fixture
def folder_of_images(tmp_path: Path) -> Path:
    from PIL import Image

    folder = tmp_path / "pictures"
    (folder / "b").mkdir(parents=True)
    for number, name in enumerate(["z.png", "a.png", "b/c.png"]):
        Image.fromarray(np.full((6, 6, 3), number * 40, np.uint8)).save(folder / name)
    (folder / "notes.txt").write_text("not an image")
    return folder


def test_image_files(tmp_path: Path, folder_of_images: Path) -> None:
    store = tl.extract(network(), folder_of_images, ["input_1", "head"], tmp_path / "acts")
    assert list(store.ids) == ["a.png", "b/c.png", "z.png"]
    assert float(store["input_1"].by_id("b/c.png").max()) == pytest.approx(80 / 255)
    paths = [folder_of_images / "z.png", str(folder_of_images / "a.png")]
    store = tl.extract(
        network(), paths, "head", tmp_path / "list", preprocess=lambda image: torch.zeros(3, *image.size)
    )
    assert store.ids == ["z.png", "a.png"]
    (folder_of_images / "broken.png").write_bytes(b"no image")
    store = tl.extract(network(), folder_of_images, "head", tmp_path / "skip", on_error="skip")
    assert list(store.skipped) == ["broken.png"] and len(store.rows) == 3
    with pytest.raises(tl.ArgumentError, match="there is no image in"):
        tl.extract(network(), tmp_path / "acts", "head", tmp_path / "none")


def test_text_through_a_tokenizer(tmp_path: Path) -> None:
    words = ["a", "bc", "def", "ghij", "klmno"]

    def tokenize(word: str) -> dict[str, Tensor]:
        ids = torch.zeros(5, dtype=torch.long)
        ids[: len(word)] = torch.arange(1, len(word) + 1)
        return {"input_ids": ids, "attention_mask": (ids > 0).long()}

    torch.manual_seed(0)
    model = Tokens()
    last = tl.reduce.last_token("attention_mask")
    store = tl.extract(
        model, words, "tanh", tmp_path / "acts", batch_size=2, preprocess=tokenize, reduce=last, ids=words
    )
    expected = torch.tanh(model.mix(model.embed(torch.arange(1, 6))))
    assert torch.allclose(store["tanh"].torch(), expected)
    assert np.array_equal(store["tanh"].by_id("def"), store["tanh"][2])


def test_shapes_that_vary(tmp_path: Path) -> None:
    lengths = [3, 3, 5, 2, 2, 2, 4]
    sentences = [torch.arange(length) for length in lengths]
    torch.manual_seed(0)
    model, arguments = Tokens(), {"batch_size": 3, "preprocess": lambda ids: {"input_ids": ids}}
    with pytest.raises(tl.ArgumentError, match=r"row 2 has shapes .*5.* and row 0 has shapes .*3.*ragged=True"):
        tl.extract(model, sentences, "tanh", tmp_path / "even", **arguments)  # type: ignore[arg-type]
    store = tl.extract(model, sentences, "tanh", tmp_path / "acts", ragged=True, shard_rows=3, **arguments)  # type: ignore[arg-type]
    assert [row.shape for row in store["tanh"][:]] == [(length, 4) for length in lengths]
    for row, sentence in enumerate(sentences):
        assert torch.allclose(torch.from_numpy(store["tanh"][row].copy()), model(sentence[None])[0], atol=1e-6)
    assert store.verify() and [len(row) for row in store["tanh"][[6, 0]]] == [4, 3]
    with pytest.raises(tl.ArgumentError, match="ragged"):
        store["tanh"].shape


def test_values_that_vary_between_batches_are_named(tmp_path: Path) -> None:
    batches = [torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, 4, dtype=torch.long)]
    loader = DataLoader(
        [*batches[0], *batches[1]], batch_size=2, collate_fn=lambda rows: {"input_ids": torch.stack(rows)}
    )  # type: ignore[arg-type]
    with pytest.raises(tl.StoreError, match=r"tanh has shape \[4, 4\] from 'c' \(row 2\) on, and \[3, 4\] before"):
        tl.extract(Tokens(), loader, "tanh", tmp_path / "acts", ids=list("abcd"))


def test_parts_of_a_sample_that_may_be_meant_are_not_guessed(tmp_path: Path) -> None:
    class Optional(nn.Module):
        def forward(self, x: Tensor, mask: Tensor | None = None, scale: float = 1) -> Tensor:
            return x.relu() * scale

    pairs = [(torch.rand(3), 1), (torch.rand(3), 0)]
    with pytest.raises(
        tl.ArgumentError, match=r"2 parts; Optional needs 1 arguments, but could take 3. .*sample\[:1\]"
    ):
        tl.extract(Optional(), pairs, "relu", tmp_path / "acts")
    store = tl.extract(Optional(), pairs, "relu", tmp_path / "acts", preprocess=lambda sample: sample[:1])
    assert np.array_equal(store["relu"][1], pairs[1][0])


def test_samples_that_can_not_be_loaded(tmp_path: Path) -> None:
    class Holes(Dataset[Tensor]):
        def __len__(self) -> int:
            return 10

        def __getitem__(self, row: int) -> Tensor:
            if row in (4, 9):
                raise OSError(f"no file {row}")
            return torch.full((3,), float(row))

    with pytest.raises(OSError, match="no file 4"):
        tl.extract(Fragile(), Holes(), "add", tmp_path / "raise", batch_size=3)
    for inputs, size in (
        (Holes(), 3),
        (DataLoader(Holes(), batch_size=3), None),
        (DataLoader(Holes(), 3, num_workers=2, multiprocessing_context="fork"), None),
    ):
        folder = tmp_path / str(id(inputs))
        store = tl.extract(Fragile(), inputs, "add", folder, batch_size=size, shard_rows=3, on_error="skip")
        assert store.skipped == {4: "OSError: no file 4", 9: "OSError: no file 9"}
        assert store["add"][store.rows][:, 0].tolist() == [2 * row + 1 for row in store.rows] and store.verify()


def test_wrong_inputs(tmp_path: Path) -> None:
    for inputs, message in [
        (5, "inputs: int can't be used"),
        (torch.rand(()), "without dimensions"),
        ({"a": torch.rand(3), "b": torch.rand(2)}, "all need the same number"),
        (images(0), "there are no inputs"),
        (iter(()), "there are no inputs"),
        ({"a": 3}, "a dict must hold tensors"),
    ]:
        with pytest.raises(tl.ArgumentError, match=message):
            extract(tmp_path / "acts", inputs)
    with pytest.raises(tl.ArgumentError, match="'a' appears more than once"):
        extract(tmp_path / "acts", images(3), ids=["a", "b", "a"])
    with pytest.raises(tl.ArgumentError, match="ids must be strings or integers"):
        extract(tmp_path / "acts", images(1), ids=[None])


@pytest.mark.parametrize("ids", ["abcd", 4])
def test_ids_that_are_no_list(tmp_path: Path, ids: Any) -> None:
    with pytest.raises(tl.ArgumentError, match="ids must be a list with an id for each input"):
        tl.extract(network(), images(4), "conv", tmp_path / "acts", ids=ids)


def test_images_of_sixteen_bits_are_not_clipped(tmp_path: Path) -> None:
    from PIL import Image

    Image.fromarray(np.full((6, 6), 300, np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(ValueError, match="more than 8 bits a channel"):
        tl.extract(network(), tmp_path, "conv", tmp_path / "acts")


def test_samples_that_no_model_takes(tmp_path: Path) -> None:
    with pytest.raises(tl.ArgumentError, match="rows 0 to 3 can't be put together"):
        tl.extract(network(), images(4), "conv", tmp_path / "acts", preprocess=lambda image: None)
    with pytest.raises(tl.ArgumentError, match="an array of objects"):
        tl.extract(network(), np.array([None, 1], object), "conv", tmp_path / "acts")


def test_an_iterable_that_raises_says_where(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        tl.extract(network(), (images(1)[0] / (3 - n) if n < 3 else 1 / 0 for n in range(5)), "conv", tmp_path / "acts")
    assert "reading the inputs, after 3 items" in raised.value.__notes__[0]


def test_a_dict_with_a_name_that_the_model_has_not(tmp_path: Path) -> None:
    with pytest.raises(TypeError) as raised:
        tl.extract(Tokens(), {"input_idz": torch.zeros(4, 3, dtype=torch.long)}, "tanh", tmp_path / "acts")
    assert "its dict as one argument: Tokens has none named 'input_idz'" in raised.value.__notes__[0]


def test_errors_that_can_not_be_skipped(tmp_path: Path) -> None:
    broken = torch.full((4, 3), float("nan"))
    with pytest.raises(tl.StoreError, match="not one sample of the first batch could be run: ValueError"):
        tl.extract(Fragile(), broken, "add", tmp_path / "acts", on_error="skip")
    x = torch.cat([torch.rand(2, 3), broken])
    loader: Any = DataLoader(Stream(x), batch_size=2)
    with pytest.raises(ValueError, match="a number was expected") as raised:
        tl.extract(Fragile(), loader, "add", tmp_path / "stream", on_error="skip")
    assert "rows 2 to 3, a batch that can't be taken apart" in raised.value.__notes__[0]


def test_the_number_of_dimensions_can_not_vary(tmp_path: Path) -> None:
    samples = [torch.rand(4), torch.rand(2, 4)]
    model = torch.nn.Sequential(torch.nn.Linear(4, 3))
    with pytest.raises(tl.StoreError, match=r"0 has 2 dimensions from row 1 on, and 1 in the first batch"):
        tl.extract(model, samples, "0", tmp_path / "acts", ragged=True, batch_size=1)


def test_ragged_shards_are_of_a_good_size(tmp_path: Path) -> None:
    """By the bytes of the first batch: 64 batches whatever their size would not fit into memory."""
    tokens = torch.zeros(8, 4_000, dtype=torch.long)
    store = tl.extract(Tokens(), tokens, "tanh", tmp_path / "acts", ragged=True, batch_size=2)
    even = tl.extract(Tokens(), tokens, "tanh", tmp_path / "even", batch_size=2)
    assert store.plan.shard_rows == even.plan.shard_rows and store.nbytes == even.nbytes == 8 * 4_000 * 4 * 4
