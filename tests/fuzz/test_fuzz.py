"""A few of the cases of `make fuzz`, and the means of finding them."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path

import pytest
from tests.fuzz import cases, functions

import torchlens as tl


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    cases.make_sound(folder)
    return folder


def test_what_is_sound_is_used(sound: Path, tmp_path: Path) -> None:
    """Otherwise the fuzz would prove nothing."""
    kinds = sorted(path.name for path in sound.iterdir())
    assert kinds == ["log", "recording", "streamed", "transformed", "unfinished log", "unfinished recording"]
    for kind in ("log", "recording"):
        shutil.copytree(sound / kind, tmp_path / kind)
        for use in cases.USES[kind]:
            use(tmp_path / kind)
    assert len(tl.recover(sound / "unfinished log")) > 10
    assert len(tl.fastlog.recover(sound / "unfinished recording")) > 5


@pytest.mark.parametrize("first", range(0, 200, 25))
def test_damaged_and_hostile_folders_are_used_or_refused(first: int, sound: Path, tmp_path: Path) -> None:
    outcomes = [cases.run_case(0, number, sound, tmp_path) for number in range(first, first + 25)]
    assert set(outcomes) == {"used", "refused"}


def test_a_case_is_known_by_its_number(sound: Path, tmp_path: Path) -> None:
    made = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        cases.run_case(0, 7, sound, tmp_path / folder)
        case = tmp_path / folder / "case"
        made.append({path.name: path.read_bytes() for path in case.iterdir() if path.name != "picture.svg"})
    assert made[0] == made[1]


@pytest.mark.parametrize("number", [28, 880, 5960, 6107])
def test_found_before(number: int, sound: Path, tmp_path: Path) -> None:
    """Modules that are not there; a second call without a first; a product without dimensions; 2 ** 40 passes."""
    assert cases.run_case(0, number, sound, tmp_path) in ("used", "refused")


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of what is deprecated or not meant
def test_functions_that_a_file_may_run_are_called_with_anything() -> None:
    """A few of the calls of `python -m tests.fuzz.functions`, which makes them in a process of its own."""
    outcomes = [functions.outcome(call) for call in islice(functions.calls(0), 0, None, 60)]
    assert len(outcomes) > 100 and set(outcomes) == {"run", "refused"}
