"""The README's example runs and prints what the README says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import torchlens as tl

README = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def run_first_block() -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(BLOCKS[0][1], "<readme>", "exec"), names)
    return names


def timeless(text: str) -> list[str]:
    return re.sub(r"Time elapsed: .*", "Time elapsed:", text.strip()).splitlines()


def test_the_example_prints_what_is_shown(capsys: Any) -> None:
    log = run_first_block()["log"]
    assert timeless(capsys.readouterr().out) == timeless(BLOCKS[1][1])
    assert timeless(str(log["fc:2"])) == timeless(BLOCKS[3][1])


def test_the_questions_have_answers() -> None:
    names = run_first_block()
    for line in BLOCKS[2][1].splitlines():
        question, _, comment = line.partition("#")
        answer = eval(question, names)
        assert answer is not None and answer != []
        if comment.strip().startswith("["):
            assert repr(answer) == comment.strip()


def test_many_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = [text for _, text in BLOCKS if "fastlog.Recorder" in text]
    monkeypatch.chdir(tmp_path)
    names = run_first_block()
    names |= {"model": names["Recurrent"](), "x": names["torch"].rand(5, 5)}
    exec(compile(block, "<readme>", "exec"), names)
    assert len(names["recording"]) == 15 and len(names["once"]) == 6


def test_saving_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = re.search(r"## Saving to disk\n\n```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    assert block is not None
    names = run_first_block()
    monkeypatch.chdir(tmp_path)
    exec(compile(block[1], "<readme>", "exec"), names)
    assert names["big"].op_labels == tl.load("run2").op_labels
    assert names["log"].validate() and (tmp_path / "layers.csv").read_text().startswith("layer_label,")


def test_the_pictures_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CI", "1")  # no viewer
    (block,) = [text for _, text in BLOCKS if "show_model_graph" in text]
    exec(compile(block, "<readme>", "exec"), run_first_block())
    assert {path.name for path in tmp_path.iterdir()} == {"graph.svg", "modelgraph.svg"}
    assert "digraph" in capsys.readouterr().out


def test_gradients_training_and_replay() -> None:
    names = run_first_block()
    blocks = [text for _, text in BLOCKS if re.search("save_gradients|train_mode|replay", text)]
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, "<readme>", "exec"), names)
    assert names["trained"]["fc:2"].gradient is not None
    assert names["model"].fc.weight.grad is not None
    assert names["log"]["fc:3"].tensor_shape == (7, 5)


def test_public_names_are_there() -> None:
    assert [name for name in tl.__all__ if not hasattr(tl, name)] == []
    assert tl.__all__ == sorted(tl.__all__)
