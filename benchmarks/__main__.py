"""What logging costs, in numbers: ours and other tools' against the plain forward. Writes benchmarks/results.md.

python -m benchmarks                          all that was not measured before; twenty minutes if nothing was
python -m benchmarks --fresh                  forget what was measured before
python -m benchmarks --quick                  a few models, two or three minutes; results.md stays as it is
python -m benchmarks --again --models GPT-2   measure some of it again; `--peers nnsight`, `--peers none`, `--questions`
python -m benchmarks --report                 only write results.md again
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

from benchmarks.measure import Question, Race, answer_questions
from benchmarks.models import MODELS
from benchmarks.peers import PEERS, ROOT
from benchmarks.report import report, shown
from benchmarks.tools import TOOLS
from tests.jobs import Results

from benchmarks import peers, ways

DOCUMENT = ROOT / "benchmarks" / "results.md"
STORES = ROOT / ".results"

LOGS = ["everything", "metadata", "three"]
MODES = [*LOGS, "fastlog nothing", "fastlog one kind", "gradients", "replay", "validate", "draw"]
FLOORS = ["intercept", "floor", "copies"]
LARGE = ("Swin-V2-B b16", "ViT-B/16 b16")  # seconds for one run: only if they are named


@dataclass(frozen=True)
class Plan:
    rounds: int = 9
    share: float = 4.0  # seconds for each tool with each model, after three rounds (one of another tool)
    limit: float = 20.0  # seconds for one run
    minutes: float = 9.0  # no model is begun after that; the questions take five more
    models: tuple[str, ...] = tuple(name for name in MODELS if name not in LARGE and not name.endswith("1M"))
    first_calls: tuple[str, ...] = ("AlexNet b1", "ResNet-50 b1", "GPT-2")
    sizes: tuple[tuple[str, int], ...] = (("10k", 3), ("100k", 2), ("1M", 1))  # with repeats
    peaks: tuple[str, ...] = ("ResNet-50 b16", "Swin-V2-B b1", "GPT-2")
    ways: tuple[str, ...] = ways.CHOSEN


QUICK = Plan(
    rounds=5,
    share=2.0,
    limit=20.0,
    minutes=3.0,
    models=("AlexNet b1", "chain 1k"),
    first_calls=("AlexNet b1",),
    sizes=(("10k", 1),),
    peaks=("AlexNet b1",),
    ways=("small transformer",),
)


def tools_for(model: str) -> list[str]:
    """What is measured with a model."""
    if model.endswith("b16"):
        return [*FLOORS, *LOGS, "torchlens newest"]
    if model.startswith("small"):  # bound by dispatch, as every model is whose kernels run elsewhere
        return [*FLOORS, "capture", *LOGS, "fastlog nothing", "fastlog one kind"]
    if model.startswith(("chain", "RNN")):
        here = ["intercept", "floor", "everything", "metadata", "fastlog nothing"]
        return [*here, *(peer for peer in PEERS if peer != "nnsight" or model.startswith("RNN"))]
    vision = ["features"] if "b1" in model else []
    stop = ["fastlog stop"] if model.startswith("ResNet") else []
    return [*FLOORS, "hooks", *vision, *MODES, *stop, *PEERS]


def questions(plan: Plan) -> list[Question]:
    asked = [Question("import: ours", ("imported", "torchlens"), 5)]
    asked += [
        Question(f"import: {peer}", ("imported", peer.split()[0]), 3, peer) for peer in PEERS if "2.15" not in peer
    ]
    asked += [Question(f"first call: {model}", ("first_call", model), 3) for model in plan.first_calls]
    for kind in ("chain", "RNN"):
        for size, repeats in plan.sizes:
            asked.append(Question(f"split: {kind} {size}", ("split", f"{kind} {size}"), repeats))
            if size != "1M":
                asked.append(Question(f"held: {kind} {size}", ("held", f"{kind} {size}")))
    asked += ways.questions(plan.ways)
    for model in plan.peaks:
        for tool in ("plain", "floor", "everything", "metadata", "three", "torchlens newest"):
            asked.append(Question(f"peak: {model}, {tool}", ("peak", model, tool), tool=tool))
    return asked


def main() -> None:
    options = _options()
    plan = QUICK if options.quick else Plan()
    results = Results(STORES / ("bench-quick.jsonl" if options.quick else "bench.jsonl"))
    if not options.report:
        _forget(results, options)
        measure(plan, options, results)
    text = report(results.found, options.clock)
    print(f"\n{text}")
    if not options.quick:
        DOCUMENT.write_text(text)
        print(f"written to {DOCUMENT.relative_to(ROOT)}")


def measure(plan: Plan, options: argparse.Namespace, results: Results) -> None:
    wanted = {peer for peer in PEERS if not options.peers or peer in options.peers}
    unusable = {peer: why for peer in sorted(wanted) if (why := peers.prepare(peer))}
    if not options.questions:
        race(plan, options, results, wanted, unusable)
    if options.questions or not options.models:
        print("questions that take a process each", flush=True)
        asked = [question for question in questions(plan) if question.tool not in PEERS or question.tool in wanted]
        answer_questions(asked, results, 5 * plan.limit)


def race(plan: Plan, options: argparse.Namespace, results: Results, wanted: set[str], unusable: dict[str, str]) -> None:
    started = time.monotonic()
    for model in options.models or plan.models:
        todo = [tool for tool in tools_for(model) if f"{model}: {tool}" not in results.found]
        todo = [tool for tool in todo if tool not in PEERS or tool in wanted]
        hopeless = {tool: why for tool in todo if (why := unusable.get(tool) or _was_too_slow(results, model, tool))}
        for tool, why in hopeless.items():
            results.add(f"{model}: {tool}", {"verdict": "failed", "why": why})
        todo = [tool for tool in todo if tool not in hopeless]
        if not todo:
            continue
        minutes = (time.monotonic() - started) / 60
        if minutes > plan.minutes:
            print(f"{minutes:.0f} minutes are over: the same command goes on with {model}", flush=True)
            return
        print(f"{minutes:4.1f} min  {model}", flush=True)
        bases = {tool: TOOLS[tool].base for tool in todo}
        runners = Race(model, todo, bases, plan.limit, options.rounds or 3)
        found = runners.run(options.rounds or plan.rounds, plan.share)
        for tool, result in found.items():
            results.add(f"{model}: {tool}", result)
            print(f"          {tool}: {shown(result['ratios']) if 'ratios' in result else result['why']}", flush=True)


def _was_too_slow(results: Results, model: str, tool: str) -> str | None:
    """A tool that was given up on with fewer tiny operations isn't tried with more."""
    kind, size = model.split()[0], model.split()[-1]
    smaller = {"10k": "1k", "100k": "10k"}.get(size)
    before = results.found.get(f"{kind} {smaller}: {tool}", {})
    if "given up" in before.get("why", "") or "not tried" in before.get("why", ""):
        return f"not tried: too slow at {smaller}" if "given up" in before["why"] else before["why"]
    return None


def _forget(results: Results, options: argparse.Namespace) -> None:
    """What is to be measured again: all, what was chosen, and what failed though it should work."""
    if options.fresh:
        results.file.unlink(missing_ok=True)
        results.found.clear()
    for key, result in list(results.found.items()):
        model, _, tool = key.partition(": ")
        chosen = options.again and (model not in MODELS) == options.questions
        chosen = chosen and (not options.models or options.questions or model in options.models)
        peer = tool if tool in PEERS else "none"
        chosen = chosen and (not options.peers or peer in options.peers)
        if chosen or (result["verdict"] == "failed" and tool not in PEERS):
            del results.found[key]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--again", action="store_true", help="measure what is chosen even if it was measured before")
    parser.add_argument("--models", nargs="+", choices=MODELS, metavar="MODEL", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--peers", nargs="+", choices=[*PEERS, "none"], help="only these other tools")
    parser.add_argument("--questions", action="store_true", help="only what takes a process each")
    parser.add_argument("--rounds", type=int, help="so many of our own, however long they take")
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="ratios of elapsed or processor time")
    return parser.parse_args()


if __name__ == "__main__":
    main()
