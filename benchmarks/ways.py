"""What a log costs, measured in several ways: with one and two threads, by elapsed and by processor time, with the last
log dropped and with it held. Prints a range for each model.

python -m benchmarks.ways [--seconds 10] [--threads 1] [--models "ResNet-50 b1" GPT-2]

Every figure is the median of its runs, which alternate with plain ones in the same process, as a ratio to the median of
these. A full log keeps every value, builds the graph and prints it.
"""

from __future__ import annotations

import argparse

from benchmarks.measure import Question
from benchmarks.models import MODELS
from benchmarks.report import Page, in_several_ways

CHOSEN = ("AlexNet b1", "ResNet-50 b1", "GPT-2", "small transformer", "small ResNet", "small GPT-2", "RNN 1k")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each model and number of threads")
    parser.add_argument("--threads", nargs="+", default=["1", "2"])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=CHOSEN, metavar="MODEL")
    options = parser.parse_args()
    asked = questions(options.models, options.threads, options.seconds)
    found = {question.key: question.ask(60 + 20 * options.seconds) for question in asked}
    for key, result in found.items():
        if result["verdict"] == "failed":
            print(f"{key}: {result['why']}")
    print(in_several_ways(Page(found, "ratios")))


def questions(
    models: tuple[str, ...] = CHOSEN, threads: tuple[str, ...] = ("1", "2"), seconds: float = 4.0
) -> list[Question]:
    return [
        Question(f"ways: {model}, {count}", ("ways", model, count, str(seconds)))
        for model in models
        for count in threads
    ]


if __name__ == "__main__":
    main()
