"""The numbers that were measured, as one page: a section for each question, targets beside the figures.

Only pure functions of what is in the store: `report(found, clock)`.
"""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

Found = Mapping[str, Mapping[str, Any]]

#: The ratio that a full log may cost.
FULL_LOG = {
    "AlexNet b1": 1.10,
    "ResNet-50 b1": 1.25,
    "ResNet-50 b16": 1.08,
    "Swin-V2-B b1": 1.25,
    "ViT-B/16 b1": 1.10,
    "GPT-2": 1.12,
    "BERT": 1.12,
    "small transformer": 2.5,
}
ABOVE_FLOOR = 1.12  # a target also counts as met at this multiple of the floor
METADATA = 0.95  # of what a full log may cost
LESS_OVERHEAD = 5.0  # than the newest torchlens
MODES: dict[str, dict[str, float]] = {
    "fastlog nothing": {"ResNet-50 b1": 1.05, "GPT-2": 1.05},
    "fastlog one kind": {"ResNet-50 b1": 1.08, "GPT-2": 1.08, "small transformer": 1.5},
    "fastlog stop": {"ResNet-50 b1": 0.45},
    "gradients": {},
    "replay": {"ResNet-50 b1": 1.6},
    "validate": {"ResNet-50 b1": 7.0},
    "draw": {},
}
MICROSECONDS = {"capture": 10.0, "passes": 15.0, "print": 5.0}  # of a full log, for each tiny operation
FLOORS = {"intercept": "does nothing", "floor": "floor", "copies": "floor with right values"}
TINY_FLOORS = ["intercept", "floor"]
RECORDER_MICROSECONDS = 12.0
GROWTH = 1.3
BYTES_HELD = 1536.0
PEAKS = {"metadata": 1.05, "three": 1.25}
IMPORT_SECONDS = 0.10
FIRST_CALL = 1.5

#: What is measured in several ways, and what it is called there.
WAYS = {
    "intercept": "does nothing",
    "floor": "floor",
    "copies": "floor with right values",
    "capture": "capture",
    "everything": "full log",
    "held": "full log, the last one held",
    "fastlog one kind": "Recorder of one kind",
}

PEERS = ["torchlens 2.15.0", "torchlens newest", "nnsight", "torchview"]

EXPLANATION = """\
# What a log costs

Written by `make bench`. Ratios are to the plain forward of the same process, each run lying between two plain ones;
the median, and in brackets the middle half of the rounds (lowest and highest where there are fewer than four). A full
log keeps every value, builds the graph and prints it. *does nothing* is a bare interception of every torch call,
*floor* one that keeps a reference to every result: no tool that has all values at hand can be much cheaper. *floor with
right values* also copies what an in-place operation is about to overwrite. A target counts as met at its number or at
{above} times the floor, whichever is higher. All but gradients is without autograd.
"""


#: The counts of whole stages are in gate.json; the parts come from profiles that callgrind made of the same runs.
FLOOR_OF_PYTHON = """\
## What stands between a log and its floor

On models of small operations a log costs instructions, not memory; `make bench-gate` counts them, and gate.json has
the figures. A capture records the common call in C (`capture/hot.c`): of what it costs in a chain more than half is
spent by torch, which looks the handler up by its name and collects the types of the arguments (*does nothing*, in the
table above). A quarter is the lazy copy, the rest the questions to the tensor (its version, its device, its storage
if it is a view) and to torch (grad mode, autocast, inference mode), and the records.

In the small transformer, whose 300 operations lie in 97 modules with 144 parameters, a capture takes 12.4 million
instructions more than the plain forward's 8.6: torch's interception 2.9, calls of modules and records 4.0 (1.0 of it
lazy copies), and 5.5 once for a run, before and after it. Modules and parameters are described and stand-ins put in C
(`capture/prepare.c`); what is left is to note the states of the random generators, to put some forty stand-ins for what
no mode sees and to take them away, to look for references that the user holds, and the garbage collector. The small
ResNet costs more because it has 66 buffers, which are checked and recorded in Python one by one.

The passes over the graph work on arrays, which is quick where there are many operations; for a few hundred of them
the calls of NumPy themselves weigh. A print shows at most two hundred lines; making these is most of its cost. So the
small transformer stays above the goals of 2.5 for a full log, 2.0 for the capture and 1.5 for a Recorder that keeps
one kind. To hold all values is 1.7 by itself, with nothing known of them; and torch's call of a handler that does
nothing leaves next to nothing for the Recorder.
"""


def report(found: Found, clock: str = "wall") -> str:
    page = Page(found, "ratios" if clock == "wall" else "cpu_ratios")
    sections = [
        full_log(page),
        in_several_ways(page),
        FLOOR_OF_PYTHON,
        other_tools(page),
        other_modes(page),
        tiny_operations(page),
        held_memory(page),
        peak_memory(page),
        starting(page),
        failures(page),
        surroundings(page, clock),
    ]
    head = EXPLANATION.format(above=ABOVE_FLOOR)
    return "\n".join([head, page.verdicts(), *(section for section in sections if section)])


# ---- numbers --------------------------------------------------------------------------------------------------


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile; lowest and highest where there are fewer than four."""
    if len(values) < 4:
        return min(values), statistics.median(values), max(values)
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def shown(values: Sequence[float]) -> str:
    low, middle, high = spread(values)
    digits = 1 if middle >= 10 else 2
    text = f"{middle:.{digits}f}"
    return text if len(values) == 1 else f"{text} ({low:.{digits}f}–{high:.{digits}f})"


def times_less(theirs: float, ours: float) -> float:
    """How many times their overhead is ours; ours is taken as half a percent at least, the rest is noise."""
    return (theirs - 1) / max(ours - 1, 0.005)


class Page:
    """The numbers, and which targets they meet."""

    def __init__(self, found: Found, ratios: str) -> None:
        self.found, self.ratios = found, ratios
        self.judged: list[tuple[str, bool]] = []  # a target and whether it is met; one that is missed with its floor

    def values(self, model: str, tool: str) -> list[float]:
        return list(self.found.get(f"{model}: {tool}", {}).get(self.ratios, []))

    def median(self, model: str, tool: str) -> float | None:
        values = self.values(model, tool)
        return statistics.median(values) if values else None

    def cell(self, model: str, tool: str) -> str:
        entry = self.found.get(f"{model}: {tool}")
        if entry is None:
            return ""
        values = self.values(model, tool)
        if values:
            return shown(values)
        return why.split(":")[0] if (why := str(entry["why"])).startswith((">", "not tried")) else "fails"

    def judge(self, what: str, figure: float | None, limit: float | None, floor: str = "") -> str:
        """`1.25: met`, and remember it; if it is missed, with the floor that stands in the way."""
        if figure is None or limit is None:
            return ""
        met = figure <= limit
        self.judged.append((what if met or not floor else f"{what}, {figure:.2f} of {_short(limit)} ({floor})", met))
        return f"{_short(limit)}: {'met' if met else '**missed**'}"

    def floor(self, model: str, *tools: str) -> str:
        """What the floors cost with a model, in words."""
        figures = {tool: self.median(model, tool) for tool in tools}
        return ", ".join(f"{FLOORS[tool]} {figure:.2f}" for tool, figure in figures.items() if figure is not None)

    def answers(self, key: str, field: str) -> list[float]:
        return [answer[field] for answer in self.found.get(key, {}).get("answers", []) if field in answer]

    def answer(self, key: str, field: str) -> float | None:
        values = self.answers(key, field)
        return statistics.median(values) if values else None

    def models(self, *tools: str) -> list[str]:
        """Those with which one of the tools was tried, in the order they were measured first."""
        keys = [key.rpartition(": ") for key in self.found]
        return list(dict.fromkeys(model for model, _, tool in keys if tool in tools and model != "import"))

    def models_of(self, question: str) -> list[str]:
        keys = [key.partition(": ") for key in self.found]
        return [model for name, _, model in keys if name == question]

    def verdicts(self) -> str:
        missed = [what for what, met in self.judged if not met]
        text = f"{len(self.judged) - len(missed)} of {len(self.judged)} targets met."
        return text + (f" Missed: {'; '.join(missed)}.\n" if missed else "\n")


def _short(number: float) -> str:
    return f"{number:.3f}".rstrip("0").rstrip(".") if number < 10 else f"{number:.0f}"


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *notes: str) -> str:
    if not rows:
        return ""
    cells = [list(columns), *(list(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(columns))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join([f"## {title}\n", *lines, "", *(f"{note}\n" for note in notes)])


# ---- sections -------------------------------------------------------------------------------------------------


def limit_of(page: Page, model: str) -> float | None:
    floor = page.median(model, "floor")
    if model not in FULL_LOG or floor is None:
        return None
    return max(FULL_LOG[model], ABOVE_FLOOR * floor)


def full_log(page: Page) -> str:
    rows = []
    for model in page.models("everything"):
        everything, limit = page.median(model, "everything"), limit_of(page, model)
        metadata, bare = page.median(model, "metadata"), page.floor(model, "intercept")
        plain = page.found[f"{model}: everything"].get("base_seconds")
        most = spread(page.values(model, "everything"))[2] if page.values(model, "everything") else None
        rows.append(
            [
                model,
                f"{1e3 * statistics.median(plain):.1f}" if plain else "",
                page.cell(model, "intercept"),
                page.cell(model, "floor"),
                page.cell(model, "copies"),
                page.cell(model, "everything"),
                _short(FULL_LOG[model]) if model in FULL_LOG else "",
                page.judge(f"full log of {model}", everything, limit, page.floor(model, "floor", "copies")),
                page.cell(model, "metadata"),
                page.judge(f"metadata of {model}", metadata, limit and METADATA * limit, bare),
                page.cell(model, "three"),
                page.judge(f"three layers of {model}", page.median(model, "three"), most, bare),
            ]
        )
    columns = ["model", "plain ms", *FLOORS.values(), "full log", "target", "limit"]
    columns += ["metadata", "limit", "three layers", "limit"]
    note = (
        f"The limit for the full log is the higher of its target and {ABOVE_FLOOR} x floor; for metadata alone, "
        f"{METADATA} of that; for three layers, the upper quartile of the full log."
    )
    return table("A log, against the plain forward", columns, rows, note)


def in_several_ways(page: Page) -> str:
    rows = []
    for way in page.models_of("ways"):
        model, _, threads = way.rpartition(", ")
        answers = page.found[f"ways: {way}"].get("answers", [{}])[0]
        if answers:
            rows.append([model, threads, *(span(list(answers[tool].values())) for tool in WAYS)])
    note = (
        "Medians by elapsed and by processor time, the lower one first: they differ where the machine does other "
        "things, and where several threads work. A log that is made while the last one is held needs fresh memory for "
        "every value, which the system has to clear first; one that is made after the last one was dropped gets that "
        "one's. `python -m benchmarks.ways` prints this table."
    )
    return table("In several ways", ["model", "threads", *WAYS.values()], rows, note)


def span(figures: Sequence[float]) -> str:
    """
    >>> span([1.612, 1.244]), span([1.04, 1.041])
    ('1.24–1.61', '1.04')
    """
    low, high = f"{min(figures):.2f}", f"{max(figures):.2f}"
    return low if low == high else f"{low}–{high}"


def other_tools(page: Page) -> str:
    rows, left = [], []
    for model in page.models("everything"):
        ours, newest = page.median(model, "everything"), page.median(model, "torchlens newest")
        times = times_less(newest, ours) if ours and newest else None
        verdict = page.judge(f"overhead against torchlens with {model}", times and -times, -LESS_OVERHEAD)
        rows.append(
            [
                model,
                *(page.cell(model, tool) for tool in ("hooks", "features", "everything", *PEERS)),
                f"{times:.1f}x{verdict.removeprefix(_short(-LESS_OVERHEAD))}" if times else "",
            ]
        )
        for tool in PEERS:
            entry = page.found.get(f"{model}: {tool}", {})
            if "untouched" in entry:
                left.append((tool, entry["untouched"]))
    columns = ["model", "hooks", "torchvision's features", "full log", *PEERS, "newest / ours (at least 5x)"]
    text = [
        "*hooks* are forward hooks on all modules without children; *torchvision's features* its feature extractor for "
        "all nodes (made beforehand); torchlens logs and prints; nnsight caches what every module returns; torchview "
        "builds the graph, without values. The last column is how many times the newest torchlens' overhead is ours.",
        *_left_behind(left),
    ]
    return table("Against other ways and other tools", columns, rows, *text)


def _left_behind(left: list[tuple[str, float]]) -> list[str]:
    """What using a tool once does to later plain forwards, where the others' ratios hide it."""
    parts = []
    for tool in dict.fromkeys(tool for tool, _ in left):
        ratios = [ratio for name, ratio in left if name == tool]
        parts.append(f"{tool} {statistics.median(ratios):.2f} (at most {max(ratios):.2f})")
    return [f"A plain forward after a tool was first used, against before: {', '.join(parts)}."] if parts else []


def other_modes(page: Page) -> str:
    rows = []
    for model in page.models(*MODES):
        cells = []
        for tool, targets in MODES.items():
            bare = page.floor(model, "intercept") if tool.startswith("fastlog") else ""
            verdict = page.judge(f"{tool} of {model}", page.median(model, tool), targets.get(model), bare)
            cells.append(f"{page.cell(model, tool)} {verdict}".strip())
        rows.append([model, *cells])
    note = (
        "fastlog: one of three passes in a Recorder, set-up included; *one kind* keeps ReLUs or LayerNorms, *stop* "
        "ends after a quarter. Gradients are against forward and backward pass. replay and validate (with "
        "perturbation) are of a log that is there; draw runs the model and writes an SVG."
    )
    return table("Other modes", ["model", *MODES], rows, note)


def tiny_operations(page: Page) -> str:
    rows, notes = [], []
    stages = list(MICROSECONDS)
    for model in page.models_of("split"):
        figures = {stage: page.answer(f"split: {model}", stage) for stage in ("plain", *TINY_FLOORS, *stages)}
        if figures["plain"] is None:
            empty = [""] * (len(TINY_FLOORS) + len(stages) + 2)
            rows.append([model, str(page.found[f"split: {model}"]["why"]), *empty])
            continue
        floors = {floor: figure for floor in TINY_FLOORS if (figure := figures[floor]) is not None}
        in_words = ", ".join(f"{FLOORS[floor]} {figure:.1f}" for floor, figure in floors.items())
        cells = [f"{floors[floor]:.1f}" if floor in floors else "" for floor in TINY_FLOORS]
        for stage in stages:
            limit = MICROSECONDS[stage]
            if stage == "capture":
                limit = max(limit, ABOVE_FLOOR * floors.get("floor", 0.0))
            verdict = page.judge(f"{stage} of {model}", figures[stage], limit, in_words if stage == "capture" else "")
            cells.append(f"{figures[stage]:.1f} of {verdict}")
        total = sum(figures[stage] or 0.0 for stage in stages)
        fastlog = page.answer(f"split: {model}", "fastlog")
        verdict = page.judge(f"Recorder with {model}", fastlog, RECORDER_MICROSECONDS, in_words)
        rows.append(
            [model, f"{figures['plain']:.1f}", *cells, f"{total:.1f}", f"{fastlog:.1f} of {verdict}" if fastlog else ""]
        )
    for kind in ("chain", "RNN"):
        small, large = (_total(page, f"split: {kind} {size}", stages) for size in ("10k", "1M"))
        if small and large:
            verdict = page.judge(f"growth of {kind}", large / small, GROWTH)
            notes.append(f"{kind}: from 10k to 1M operations {large / small:.2f}x for each operation, {verdict}.")
    columns = ["model", "plain", *(FLOORS[floor] for floor in TINY_FLOORS), *stages, "together", "Recorder"]
    note = (
        "Microseconds of processor time for each operation, all values kept; each figure is what it adds to plain, or "
        f"to the stage before. The floors are part of what a capture costs: its limit is 10 or {ABOVE_FLOOR} x floor."
    )
    return table("Tiny operations", columns, rows, note, *notes)


def _total(page: Page, key: str, stages: Sequence[str]) -> float | None:
    figures = [page.answer(key, stage) for stage in stages]
    return sum(figure for figure in figures if figure is not None) or None


def held_memory(page: Page) -> str:
    rows = []
    for model in page.models_of("held"):
        returned, printed = (page.answer(f"held: {model}", field) for field in ("returned", "printed"))
        if returned is None or printed is None:
            continue
        verdict = page.judge(f"memory held for {model}", printed, BYTES_HELD)
        rows.append([model, f"{returned:.0f}", f"{printed:.0f}", verdict])
    note = "Growth of the process's resident memory by a log without values."
    return table("Bytes of metadata for each operation", ["model", "returned", "printed", "limit"], rows, note)


def peak_memory(page: Page) -> str:
    tools = ["floor", "everything", *PEAKS, "torchlens newest"]
    models = dict.fromkeys(name.rpartition(", ")[0] for name in page.models_of("peak"))
    rows = []
    for model in models:
        plain = page.answer(f"peak: {model}, plain", "MB")
        if plain is None:
            continue
        cells = []
        for tool in tools:
            figure = page.answer(f"peak: {model}, {tool}", "MB")
            ratio = figure / plain if figure else None
            verdict = page.judge(f"peak memory of {tool}, {model}", ratio, PEAKS.get(tool))
            cells.append(f"{ratio:.2f} {verdict}".strip() if ratio else "")
        rows.append([model, f"{plain:.0f}", *cells])
    note = (
        "Peak of a process that builds the model and runs it once so, weights and torch included, as a ratio to plain."
    )
    return table("Peak memory", ["model", "plain MB", *tools], rows, note)


def starting(page: Page) -> str:
    rows = []
    for tool in page.models_of("import"):
        seconds = page.answer(f"import: {tool}", "seconds")
        if seconds is None:
            continue
        limit = IMPORT_SECONDS if tool == "ours" else None
        heavy = page.answers(f"import: {tool}", "heavy")[0]
        what = f"import {tool}, beyond torch" + (f" (brings {', '.join(heavy)})" if heavy else "")
        rows.append([what, f"{seconds:.3f} s", page.judge("import", seconds, limit)])
        if tool == "ours" and heavy:
            page.judged.append(("nothing heavy imported", False))
    for model in page.models_of("first call"):
        ratios = [
            first / later
            for first, later in zip(
                *(page.answers(f"first call: {model}", field) for field in ("first", "later")), strict=True
            )
        ]
        if ratios:
            verdict = page.judge(f"first call with {model}", statistics.median(ratios), FIRST_CALL)
            rows.append([f"first log of a process against a later one, {model}", f"{shown(ratios)}x", verdict])
    return table("Starting", ["what", "figure", "limit"], rows)


def failures(page: Page) -> str:
    notes = [f"- {key}: {entry['why']}" for key, entry in page.found.items() if entry["verdict"] == "failed"]
    return "\n".join(["## Not measured\n", *notes, ""]) if notes else ""


def surroundings(page: Page, clock: str) -> str:
    versions: dict[str, str] = {}
    for key, entry in page.found.items():
        tool = key.rpartition(": ")[2]
        for name, version in entry.get("ready", {}).items():
            if name != "torchlens" or tool not in PEERS:
                versions.setdefault("this library" if name == "torchlens" else name, version)
            elif tool.startswith("torchlens"):
                versions.setdefault(tool, version)
    loads = [entry["load"] for entry in page.found.values() if "load" in entry]
    threads = {entry["threads"] for entry in page.found.values() if "threads" in entry}
    lines = [
        "## Where\n",
        f"Python {platform.python_version()}, {', '.join(f'{name} {version}' for name, version in versions.items())}.",
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {_processor()}; "
        f"torch with {', '.join(map(str, sorted(threads)))} thread(s).",
    ]
    if loads:
        lines.append(
            f"Load when each measurement began: {statistics.median(loads):.1f} in the middle, {max(loads):.1f} at most "
            "(one of it, or the number of threads, is the benchmark itself)."
        )
    clocks = {"wall": "elapsed", "cpu": "processor"}
    lines.append(f"Ratios are of {clocks[clock]} time; tiny operations and imports of processor time.")
    return "\n".join(lines) + "\n"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown processor"
