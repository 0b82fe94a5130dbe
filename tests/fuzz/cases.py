"""One damaged or hostile folder for each number, and everything that can be done with it.

A case is made from its seed and number alone, so that each can be made again: `python -m tests.fuzz --only 1234`.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import torchlens as tl
from torchlens.bundle import stream
from torchlens.bundle.hashing import hash_of


class Demo(nn.Module):
    """Random numbers, a write, a view, a condition, several outputs, a buffer, two passes of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = torch.dropout(self.fc(x), 0.5, True)
        y = self.fc(x)[1:]
        y[0] = 2
        if y.sum() > -100:
            y = torch.stack([y, y * 2]).max(dim=0).values
        return {"y": self.norm(y), "x": x}


def make_sound(folder: Path) -> None:
    """Folders with nothing wrong with them, one of each kind."""
    torch.manual_seed(0)
    model, x = Demo(), torch.rand(4, 3, requires_grad=True)
    log = tl.log_forward_pass(model, x, random_seed=0, save_gradients=True)
    log[-1].activation.sum().backward()
    tl.save(log, folder / "log")
    made = tl.log_forward_pass(model, x, layers_to_save=["fc", "max"], activation_postfunc=Tensor.numpy)
    tl.save(made, folder / "transformed")
    tl.log_forward_pass(model, x, save_activations_to=folder / "streamed")
    with tl.fastlog.Recorder(model, keep_op=True, keep_module=True, save_to=folder / "recording") as recorder:
        recorder.log(x, sample_id=["a", 1])
        recorder.log(x)
    with died_before_the_end():
        tl.log_forward_pass(model, x, save_activations_to=folder / "unfinished log")
    with died_before_the_end():
        tl.fastlog.record(model, x, keep_op=True, save_to=folder / "unfinished recording")


@contextmanager
def died_before_the_end() -> Iterator[None]:
    """Leave folders as they are when the process dies just before the end: no manifest yet, but the journal."""

    def die(*arguments: Any) -> None:
        raise KeyboardInterrupt

    finish = stream.finish
    stream.finish = die
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        stream.finish = finish


def run_case(seed: int, number: int, sound: Path, scratch: Path) -> str:
    """Make a case and use it. Returns what came of it, "refused" or "used"; anything unforeseen is raised."""
    chance = random.Random(f"{seed} {number}")
    kind = chance.choice(sorted(path.name for path in sound.iterdir()))
    target = scratch / "case"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(sound / kind, target)
    chance.choice([damage, damage, forge, forge, forge, forge])(target, chance)
    outcome = "refused"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for use in USES["recording" if "recording" in kind else "log"]:
            try:
                use(target)
                outcome = "used"
            except tl.TorchLensError:
                continue
    return outcome


# ---- what is done to a folder -----------------------------------------------------------------------------------


def damage(folder: Path, chance: random.Random) -> None:
    """What disks, networks and editors do."""
    path = chance.choice(sorted(folder.iterdir()))
    data = bytearray(path.read_bytes())
    place = chance.randrange(len(data) or 1)
    kind = chance.choice(["flip", "cut", "insert", "truncate", "empty", "remove", "double"])
    if kind == "remove":
        path.unlink()
        return
    if kind == "flip" and data:
        data[place] ^= chance.randrange(1, 256)
    elif kind == "cut":
        del data[place : place + chance.choice([1, 3, 50, 1000])]
    elif kind == "insert":
        data[place:place] = chance.randbytes(chance.choice([1, 3, 20]))
    elif kind == "truncate":
        del data[len(data) - chance.choice([1, 3, 10, 100]) :]
    elif kind == "empty":
        data = bytearray(chance.randbytes(chance.choice([0, 10, 200])))
    elif kind == "double":
        data += data[place:]
    path.write_bytes(data)


def forge(folder: Path, chance: random.Random) -> None:
    """What somebody does who means harm: anything anywhere, with the right hashes."""
    parts: list[Callable[[Path, random.Random], None]] = [forge_metadata, forge_metadata, forge_metadata, forge_header]
    if (folder / "journal.jsonl").exists():
        forge_journal(folder, chance)
    else:
        chance.choice(parts)(folder, chance)
        sign(folder)


def forge_metadata(folder: Path, chance: random.Random) -> None:
    tables = json.loads((folder / "metadata.json").read_text())
    (folder / "metadata.json").write_text(json.dumps(mutated(tables, chance)))


def forge_header(folder: Path, chance: random.Random) -> None:
    shard = chance.choice(sorted(folder.glob("*.safetensors")))
    data = shard.read_bytes()
    length = int.from_bytes(data[:8], "little")
    text = json.dumps(mutated(json.loads(data[8 : 8 + length]), chance)).encode()
    shard.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


def forge_journal(folder: Path, chance: random.Random) -> None:
    lines = (folder / "journal.jsonl").read_text().splitlines()
    number = chance.randrange(len(lines))
    lines[number] = json.dumps(mutated(json.loads(lines[number]), chance))
    (folder / "journal.jsonl").write_text("\n".join(lines) + chance.choice(["\n", "", '\n{"half":']))


def sign(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    metadata = (folder / "metadata.json").read_bytes()
    manifest["metadata"] = {"bytes": len(metadata), "xxh3": hash_of(metadata)}
    for shard in manifest["shards"]:
        data = (folder / shard["file"]).read_bytes()
        header = data[8 : 8 + int.from_bytes(data[:8], "little")]
        shard |= {"bytes": len(data), "xxh3": hash_of(header)}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def mutated(tree: Any, chance: random.Random) -> Any:
    """A copy with something replaced, removed, doubled, moved, or a number changed a little."""
    tree = copy.deepcopy(tree)
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        _mutate(tree, chance)
    return tree


def _mutate(node: Any, chance: random.Random) -> None:
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = chance.choice(keys)
        if not (isinstance(node[key], (dict, list)) and node[key] and chance.random() < 0.85):
            break
        node = node[key]
    kind = chance.random()
    if isinstance(node[key], int) and kind < 0.6:
        node[key] += chance.choice([-1, 1, 1, 2, 100, 2**40])
    elif kind < 0.7:
        del node[key]
    elif kind < 0.85 and isinstance(node, list):
        node[key] = copy.deepcopy(chance.choice(node))
    else:
        node[key] = junk(chance)


WORDS = [
    "value", "param", "tuple", "object", "tensor", "strided", "torch", "op", "relu", "torch.zeros", "torch.Tensor.view",
    "torch.ops.aten.relu.default", "meta", "cuda:0", "sparse_coo", "float32", "complex64", "", "\\ud800", "<script>",
]  # fmt: skip


def junk(chance: random.Random, depth: int = 0) -> Any:
    plain = [None, True, 0, -1, 3, 2**40, -(2**70), 1.5, 1e308, chance.choice(WORDS)]
    kind = chance.random() if depth < 3 else 0
    if kind < 0.6:
        return chance.choice(plain)
    if kind < 0.9:
        return [junk(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {chance.choice(WORDS): junk(chance, depth + 1) for _ in range(chance.randrange(3))}


# ---- what is done with it ---------------------------------------------------------------------------------------


def _log_uses() -> Iterator[Callable[[Path], Any]]:
    """Each is tried by itself: one that is refused does not spare the others."""
    for load in (tl.load, lambda path: tl.load(path, lazy=True), tl.recover):
        yield lambda path, load=load: str(load(path))
        yield lambda path, load=load: load(path).summary()
        yield lambda path, load=load: tl.lint(load(path))
        yield lambda path, load=load: load(path).validate(perturb=False)
    yield lambda path: [(str(op), op.activation, op.func_call_stack[:1]) for op in tl.load(path)]
    yield lambda path: [(str(op), op.activation) for op in tl.load(path, lazy=True)]
    yield lambda path: tl.load(path).to_csv()
    yield lambda path: tl.load(path).to_json()
    yield lambda path: [tl.load(path).params.to_csv(), tl.load(path).modules.to_csv(), tl.load(path).buffers.to_csv()]
    yield lambda path: str(tl.load(path).conditionals)
    yield lambda path: [str(each) for each in tl.load(path).backward_passes]
    yield lambda path: [tl.load(path)[name] for name in ("fc:1", "norm", "max_1", -1)]
    yield lambda path: tl.load(path).to_dot(vis_mode="rolled")
    yield lambda path: tl.load(path).draw(vis_outpath=str(path / "picture.svg"), vis_save_only=True)
    yield lambda path: tl.load(path)._repr_html_()
    yield lambda path: tl.load(path).replay()
    yield lambda path: tl.load(path).replay(from_layer=2)
    yield lambda path: tl.save(tl.load(path), path.parent / "again", overwrite=True)


def _recording_uses() -> Iterator[Callable[[Path], Any]]:
    for load in (tl.fastlog.load, tl.fastlog.recover):
        yield lambda path, load=load: str(load(path))
        yield lambda path, load=load: load(path).summary()
        yield lambda path, load=load: [(str(each), each.activation, each.context) for each in load(path)]
        yield lambda path, load=load: [load(path).by_label, load(path).by_module_address, load(path).by_pass]
        yield lambda path, load=load: load(path).to_pandas()


USES = {"log": list(_log_uses()), "recording": list(_recording_uses())}
