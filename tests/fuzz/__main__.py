"""Damaged and hostile bundles and recordings, many of them: `python -m tests.fuzz --cases 50000`.

The cases run in processes of 500, so that one that brings its process down is found too. What is done is noted in a
file, and the next run goes on from there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.fuzz.cases import make_sound, run_case

AT_ONCE = 500
NOTES = Path("build/fuzz.json")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="forget what was done before")
    parser.add_argument("--only", type=int, help="run this case alone, and show what it raises")
    parser.add_argument("--from", dest="first", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only is not None:
        print(run(options.seed, range(options.only, options.only + 1), loud=True))
        return 0
    if options.first is not None:
        run(options.seed, range(options.first, min(options.first + AT_ONCE, options.cases)))
        return 0
    return run_all(options.seed, options.cases, options.fresh)


def run(seed: int, numbers: range, loud: bool = False) -> dict[str, int]:
    """Run cases in this process; a line for each goes to the standard output, for whoever started it."""
    found: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        sound, scratch = Path(folder, "sound"), Path(folder, "scratch")
        sound.mkdir(), scratch.mkdir()
        make_sound(sound)
        for number in numbers:
            try:
                outcome = run_case(seed, number, sound, scratch)
            except Exception as error:
                if loud:
                    raise
                where = traceback.extract_tb(error.__traceback__)[-1]
                outcome = f"FAILED {type(error).__name__}: {str(error)[:200]!r} at {where.filename}:{where.lineno}"
            found[outcome] = found.get(outcome, 0) + 1
            print(f"{number} {outcome}", flush=True)
    return found


def run_all(seed: int, cases: int, fresh: bool) -> int:
    notes = {"seed": seed, "done": 0, "used": 0, "refused": 0, "failed": [], "seconds": 0.0}
    if NOTES.exists() and not fresh:
        before = json.loads(NOTES.read_text())
        notes = before if before["seed"] == seed else notes
    while notes["done"] < cases:
        start = time.perf_counter()
        _one_process(seed, cases, notes)
        notes["seconds"] = round(notes["seconds"] + time.perf_counter() - start, 1)
        NOTES.parent.mkdir(exist_ok=True)
        NOTES.write_text(json.dumps(notes, indent=1))
        print(f"{notes['done']} cases: {notes['used']} used, {notes['refused']} refused, {len(notes['failed'])} failed")
    print("\n".join(f"case {number}: {what}" for number, what in notes["failed"]) or "nothing failed")
    return 1 if notes["failed"] else 0


def _one_process(seed: int, cases: int, notes: dict[str, object]) -> None:
    first = int(str(notes["done"]))
    command = [sys.executable, "-m", "tests.fuzz", "--seed", str(seed), "--cases", str(cases), "--from", str(first)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    done = [line.split(" ", 1) for line in ran.stdout.splitlines() if line[:1].isdigit()]
    for number, outcome in done:
        if outcome in ("used", "refused"):
            notes[outcome] = int(str(notes[outcome])) + 1
        else:
            notes["failed"].append([int(number), outcome])  # type: ignore[attr-defined]
    notes["done"] = first + len(done)
    if ran.returncode:
        notes["failed"].append([notes["done"], f"the process ended with {ran.returncode}"])  # type: ignore[attr-defined]
        notes["done"] = int(str(notes["done"])) + 1


if __name__ == "__main__":
    sys.exit(main())
