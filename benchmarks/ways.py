"""What a log costs, measured in several ways: with one and two threads, by elapsed and by processor time, with the last
log dropped and with it held. Prints a range for each model.

python -m benchmarks.ways [--seconds 10] [--models "ResNet-50 b1" GPT-2]

Every figure is the median of its runs, which alternate with plain ones in the same process, as a ratio to the median of
these. A full log keeps every value, builds the graph and prints it.
"""

from __future__ import annotations

import argparse

from benchmarks.measure import Question
from benchmarks.models import MODELS
from benchmarks.report import table

TITLES = {
    "intercept": "does nothing",
    "floor": "floor",
    "copies": "floor with right values",
    "capture": "capture",
    "everything": "full log",
    "held": "full log, the last one held",
    "fastlog one kind": "Recorder of one kind",
}
CHOSEN = (
    "AlexNet b1",
    "ResNet-50 b1",
    "GPT-2",
    "small transformer",
    "small ResNet",
    "small GPT-2",
    "RNN 1k",
    "chain 1k",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each model and number of threads")
    parser.add_argument("--threads", nargs="+", default=["1", "2"])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=CHOSEN, metavar="MODEL")
    options = parser.parse_args()
    rows = []
    for model in options.models:
        for threads in options.threads:
            found = Question("", ("ways", model, threads, str(options.seconds))).ask(60 + 20 * options.seconds)
            rows.append([model, threads, *(span(list(found["answers"][0][tool].values())) for tool in TITLES)])
    print(table("In several ways", ["model", "threads", *TITLES.values()], rows, NOTE))


NOTE = (
    "By elapsed and by processor time, the lower one first: they differ where the machine does other things, and where "
    "several threads work. A log that is made while the last one is held needs fresh memory for every value, which the "
    "system has to clear first; one that is made after the last one was dropped gets that one's."
)


def span(figures: list[float]) -> str:
    """
    >>> span([1.244, 1.3, 1.612]), span([1.04, 1.041])
    ('1.24–1.61', '1.04')
    """
    low, high = f"{min(figures):.2f}", f"{max(figures):.2f}"
    return low if low == high else f"{low}–{high}"


if __name__ == "__main__":
    main()
