"""From a log to a picture: CPU seconds at growing sizes, built-in renderer and Graphviz side by side.

    python -m benchmarks.draw [--largest N] [--limit SECONDS]

CPU seconds are disturbed less by other programs; the column "wall" is for view and built-in renderer together.
The built-in renderer should need at most 1.5 s for 10,000 operations, view included, and stay close to linear.
Graphviz is stopped after the limit (wall time), and not tried at larger sizes after that.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable

import torch
from benchmarks.synthetic import SYNTHETIC

import torchlens as tl
from torchlens.draw.output import graphviz
from torchlens.draw.output.dot import to_dot
from torchlens.draw.output.formats import FORMATS
from torchlens.draw.view.build import make_view
from torchlens.draw.view.elements import View
from torchlens.errors import DrawingError

SIZES = (100, 2_000, 10_000, 50_000)


def cpu_seconds() -> float:
    """Of this process and of those it started."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """CPU and wall seconds."""
    start, wall = cpu_seconds(), time.perf_counter()
    work()
    return cpu_seconds() - start, time.perf_counter() - wall


def with_graphviz(view: View, limit: float) -> str:
    try:
        return f"{timed(lambda: graphviz.run_graphviz(to_dot(view), 'svg', limit))[0]:.2f}"
    except DrawingError:
        return f"> {limit:.0f} w"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for Graphviz")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    there = graphviz.is_there()
    if not there:
        print("Graphviz is not installed here: only the built-in renderer is timed\n")
    columns = f"{'view':>8} {'built-in':>9} {'together':>9} {'us/op':>6} {'wall':>6} {'Graphviz':>9}"
    print(f"{'model':<12} {'operations':>10} {columns}")
    for name, build in SYNTHETIC.items():
        gave_up = not there
        for size in (size for size in SIZES if size <= arguments.largest):
            log = tl.log_forward_pass(build(size), torch.rand(3, 4))
            made: list[View] = []
            view_time, view_wall = timed(lambda log=log, made=made: made.append(make_view(log)))  # type: ignore[misc]
            draw_time, draw_wall = timed(lambda made=made: FORMATS["svg"].print(made[0]))  # type: ignore[misc]
            other = "-" if gave_up else with_graphviz(made[0], arguments.limit)
            gave_up = gave_up or other.startswith(">")
            count, both = len(made[0].nodes), view_time + draw_time
            print(
                f"{name:<12} {count:>10,} {view_time:>8.2f} {draw_time:>9.2f} {both:>9.2f} "
                f"{both / count * 1e6:>6.0f} {view_wall + draw_wall:>6.2f} {other:>9}",
                flush=True,
            )


if __name__ == "__main__":
    main()
