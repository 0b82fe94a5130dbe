"""The page of results: statistics, targets and verdicts, from a store made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.report import report, shown, spread, times_less


def measured(*ratios: float, **more: Any) -> dict[str, Any]:
    return {
        "verdict": "measured",
        "ratios": list(ratios),
        "cpu_ratios": [1.0] * len(ratios),
        "seconds": list(ratios),
        "base_seconds": [0.05] * len(ratios),
        "load": 1.0,
        **more,
    }


def answered(**fields: Any) -> dict[str, Any]:
    return {"verdict": "measured", "answers": [fields], "load": 2.0}


def row(text: str, start: str) -> list[str]:
    """The cells of the first row that begins so."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_spread() -> None:
    assert spread([3.0, 1.0, 2.0]) == (1.0, 2.0, 3.0)
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == (2.0, 3.0, 4.0)
    assert shown([1.234]) == "1.23"
    assert shown([1.0, 2.0, 3.0, 4.0, 5.0]) == "3.00 (2.00–4.00)"
    assert shown([12.34, 56.78]) == "34.6 (12.3–56.8)"


def test_times_less_overhead() -> None:
    assert times_less(3.0, 1.2) == pytest.approx(10)
    assert times_less(3.0, 0.9) == pytest.approx(400)  # ours is lost in the noise: not infinitely better


def test_a_target_is_met_at_its_number_or_near_the_floor() -> None:
    found = {
        "AlexNet b1: floor": measured(1.0),
        "AlexNet b1: everything": measured(1.09, 1.11, 1.10),
        "GPT-2: floor": measured(1.10),
        "GPT-2: everything": measured(1.20),
        "BERT: floor": measured(1.0),
        "BERT: copies": measured(1.15),
        "BERT: everything": measured(1.20),
    }
    text = report(found)
    assert row(text, "AlexNet b1")[5:8] == ["1.10 (1.09–1.11)", "1.1", "1.12: met"]
    assert row(text, "GPT-2")[6:8] == ["1.12", "1.232: met"]
    assert row(text, "BERT")[6:8] == ["1.12", "1.12: **missed**"]
    missed = "full log of BERT, 1.20 of 1.12 (floor 1.00, floor with right values 1.15)"
    assert f"2 of 3 targets met. Missed: {missed}." in text


def test_metadata_and_three_layers_are_judged_by_the_full_log() -> None:
    found = {
        "BERT: floor": measured(1.0),
        "BERT: everything": measured(1.10, 1.12, 1.14),
        "BERT: metadata": measured(1.07),
        "BERT: three": measured(1.13),
    }
    assert row(report(found), "BERT")[8:] == ["1.07", "1.064: **missed**", "1.13", "1.14: met"]


def test_other_tools() -> None:
    found = {
        "GPT-2: floor": measured(1.0),
        "GPT-2: everything": measured(1.1),
        "GPT-2: torchlens newest": measured(1.4, untouched=1.07, ready={"torchlens": "9.9", "torch": "2"}),
        "GPT-2: torchview": {"verdict": "failed", "why": "TypeError: no"},
        "GPT-2: nnsight": {"verdict": "failed", "why": "> 60 s, given up"},
    }
    text = report(found)
    section = text[text.index("## Against") :]
    assert row(section, "GPT-2")[3:] == ["1.10", "", "1.40", "> 60 s, given up", "fails", "4.0x: **missed**"]
    assert "- GPT-2: torchview: TypeError: no" in text
    assert "after a tool was first used, against before: torchlens newest 1.07" in text
    assert "torchlens newest 9.9" in text


def test_questions() -> None:
    found = {
        "split: chain 10k": answered(
            plain=3.0, intercept=2.0, floor=3.5, capture=9.0, passes=14.0, print=6.0, fastlog=4.0
        ),
        "split: chain 1M": answered(plain=3.0, capture=9.0, passes=14.5, print=6.0, fastlog=4.0),
        "held: chain 10k": answered(returned=700.0, printed=1600.0),
        "peak: GPT-2, plain": answered(MB=1000.0),
        "peak: GPT-2, metadata": answered(MB=1040.0),
        "import: ours": answered(seconds=0.09, heavy=[]),
        "import: torchview": answered(seconds=0.5, heavy=["graphviz"]),
        "first call: GPT-2": answered(first=3.0, later=1.0),
    }
    text = report(found)
    assert row(text, "chain 10k") == [
        "chain 10k",
        "3.0",
        "2.0",
        "3.5",
        "9.0 of 10: met",
        "14.0 of 15: met",
        "6.0 of 5: **missed**",
        "29.0",
        "4.0 of 12: met",
    ]
    assert "chain: from 10k to 1M operations 1.02x for each operation, 1.3: met." in text
    assert row(text[text.index("## Bytes") :], "chain 10k") == ["chain 10k", "700", "1600", "1536: **missed**"]
    assert row(text[text.index("## Peak") :], "GPT-2")[4] == "1.04 1.05: met"
    assert row(text, "import ours") == ["import ours, beyond torch", "0.090 s", "0.1: met"]
    assert row(text, "import torchview")[0].endswith("(brings graphviz)")
    assert row(text, "first log")[1:] == ["3.00x", "1.5: **missed**"]


def test_a_capture_of_tiny_operations_is_met_near_the_floor_and_a_light_path_is_not() -> None:
    found = {
        "split: RNN 10k": answered(
            plain=3.0, intercept=2.0, floor=20.0, capture=22.0, passes=14.0, print=4.0, fastlog=22.0
        ),
        "GPT-2: intercept": measured(1.07),
        "GPT-2: fastlog nothing": measured(1.09),
    }
    text = report(found)
    assert row(text, "RNN 10k")[4] == "22.0 of 22: met"
    assert "Recorder with RNN 10k, 22.00 of 12 (does nothing 2.0, floor 20.0)" in text
    assert "fastlog nothing of GPT-2, 1.09 of 1.05 (does nothing 1.07)" in text


def test_an_empty_store() -> None:
    assert "0 of 0 targets met" in report({})
