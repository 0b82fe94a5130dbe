"""What a full log costs, without other tools: ratios to the plain forward in interleaved runs, with their targets.

python -m benchmarks.overhead [--rounds N]

*floor* is a bare interception that keeps a reference to every result; *copies* is the same with a copy of what an
in-place operation is about to overwrite, without which the kept values would be wrong. A full log is built and printed.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping

from benchmarks.measure import Question, Race
from benchmarks.report import shown
from benchmarks.tools import TOOLS

TARGETS = {"AlexNet b1": 1.15, "ResNet-50 b1": 1.35, "GPT-2": 1.20}
ABOVE_FLOOR = 1.2  # a target also counts as met at this multiple of the floor
MICROSECONDS = 40.0  # for each tiny operation, all included


def main() -> None:
    rounds = rounds_asked(__doc__)
    print(f"{'':<14}{'floor':>18}{'copies':>18}{'full log':>18}{'metadata':>18}")
    for model, target in TARGETS.items():
        found = ratios(model, ["floor", "copies", "everything", "metadata"], rounds)
        limit = max(target, ABOVE_FLOOR * statistics.median(found["floor"]))
        cells = "".join(f"{shown(values):>18}" for values in found.values())
        print(f"{model:<14}{cells}   {verdict(statistics.median(found['everything']), limit)}", flush=True)
    print(f"\n{'tiny operations':<18}{'capture':>10}{'passes':>10}{'print':>10}   microseconds each, beyond plain")
    for chain in ("chain 10k", "chain 100k"):
        answer = Question("", ("split", chain)).ask(600)["answers"][0]
        parts = [answer[part] for part in ("capture", "passes", "print")]
        cells = "".join(f"{part:>10.1f}" for part in parts)
        print(f"{chain:<18}{cells}   {verdict(sum(parts), MICROSECONDS)}", flush=True)


def ratios(model: str, tools: list[str], rounds: int) -> Mapping[str, list[float]]:
    found = Race(model, tools, {tool: TOOLS[tool].base for tool in tools}, 60).run(rounds, 60)
    return {tool: result["ratios"] for tool, result in found.items()}


def verdict(figure: float, limit: float) -> str:
    return f"{figure:.2f} of {limit:.2f}: {'met' if figure <= limit else 'MISSED'}"


def rounds_asked(doc: str | None) -> int:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds: int = parser.parse_args().rounds
    return rounds


if __name__ == "__main__":
    main()
