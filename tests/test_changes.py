"""Eight changes that a newcomer may want to make, made in a copy of the package: each touches only the files that
docs/architecture.md names for it, and works.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import nn

import torchlens as tl

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


class Edit(NamedTuple):
    """In this file, text that is there once and what it becomes; a file that is not there yet begins as nothing."""

    file: str
    old: str
    new: str


class Change(NamedTuple):
    touches: str  # the row of docs/architecture.md: a pattern for each file
    edits: list[Edit]
    check: str  # run in a process of its own, with `log`, `model`, `x` and `folder`


CHANGES = {
    "a captured field": Change(
        r"capture/records\.py|capture/\w+\.py|bundle/columns\.py",
        [
            Edit("capture/records.py", '"entered", "exited", "module",', '"depth", "entered", "exited", "module",'),
            Edit(
                "capture/tracer.py",
                "        call = _new_module_call(ModuleCall)\n",
                "        call = _new_module_call(ModuleCall)\n"
                "        outer = self.trace.module_calls[self.module_call].depth if self.module_call >= 0 else 0\n"
                "        call.depth = outer + 1\n",
            ),
            Edit(
                "bundle/columns.py",
                "    exited: Annotated[Any, VALUES]\n",
                "    exited: Annotated[Any, VALUES]\n    depth: Annotated[Any, COUNT]\n",
            ),
        ],
        """
tl.save(log, folder / "new")
for each in (log, tl.load(folder / "new"), copy.deepcopy(log)):
    assert [call.depth for call in each._trace.module_calls] == [1, 2, 2]
streamed = tl.log_forward_pass(model, x, save_activations_to=folder / "streamed")
assert [call.depth for call in tl.load(folder / "streamed")._trace.module_calls] == [1, 2, 2]
""",
    ),
    "a selector kind": Change(
        r"selectors/\w+\.py",
        [
            Edit("selectors/selection.py", "(Combination, re.Pattern)", "(Combination, re.Pattern, torch.dtype)"),
            Edit("selectors/selection.py", "import re\n", "import re\nimport torch\n"),
            Edit(
                "selectors/matcher.py",
                "    if isinstance(selector, int):\n",
                "    if isinstance(selector, torch.dtype):\n        return OfType(selector)\n"
                "    if isinstance(selector, int):\n",
            ),
            Edit("selectors/matcher.py", "import re\n", "import re\nimport torch\nfrom .kinds import OfType\n"),
            Edit(
                "selectors/kinds.py",
                "class Number(Kind):\n",
                """class OfType(Kind):
    def answer(self, seen):
        return ASK

    def places(self, graph, asked):
        return {place for place, value in enumerate(graph.entries) if value.dtype is self.said}


class Number(Kind):
""",
            ),
        ],
        """
assert [op.layer_type for op in log.select(torch.bool)] == ["gt", "output"]
assert tl.log_forward_pass(model, x, layers_to_save=[torch.bool]).op_labels == ["gt_1_4", "output_2_6"]
edited = tl.log_forward_pass(model, x, interventions={tl.all_of(torch.bool, "gt"): torch.logical_not})
assert edited["gt_1"].activation.equal(~log["gt_1"].activation)
assert len(log.select(tl.all_of(torch.float32, ~tl.any_of("relu")))) == 4  # input, linear, add, output
""",
    ),
    "a picture format": Change(
        r"draw/output/\w+\.py",
        [
            Edit(
                "draw/output/names.py",
                "",
                "def print_names(view):\n    return '\\n'.join(node.id for node in view.nodes).encode()\n",
            ),
            Edit(
                "draw/output/formats.py",
                '        Format("dot",',
                '        Format("txt", print_names, is_picture=False),\n        Format("dot",',
            ),
            Edit("draw/output/formats.py", "from .pdf import", "from .names import print_names\nfrom .pdf import"),
        ],
        """
path = log.draw(vis_outpath=folder / "graph.txt", vis_save_only=True)
assert path.read_text().splitlines()[0] == "input_1_0"
try:
    log.draw(vis_fileformat="text")
except tl.ArgumentError as error:
    assert "txt" in str(error)
assert main(["show", "torch.nn:ReLU", "--input", "3", "--out", str(folder / "relu.txt")]) == 0
""",
    ),
    "an edit of a value while the model runs": Change(
        r"an observer: no file",
        [],
        """
from torchlens.capture.observer import Observer
from torchlens.capture.session import run_traced
from torchlens.options import Options


class Doubling(Observer):
    def value(self, value, tensor, module_call):
        return tensor * 2 if value.role == "op" and value.index == 1 else None


run = run_traced(model, [x], {}, Options(), observers=(Doubling(),))
assert run.trace.values[1].saved.equal(log[1].activation * 2)
""",
    ),
    "a bundle version": Change(
        r"bundle/columns\.py|bundle/migrate\.py",
        [
            Edit("bundle/columns.py", "SCHEMA = 3 ", "SCHEMA = 4 "),
            Edit(
                "bundle/migrate.py",
                "{2: _from_2}",
                "{2: _from_2, 3: _from_3}",
            ),
            Edit(
                "bundle/migrate.py",
                "#: Keyed by the version that a step migrates from.\n",
                """def _from_3(tables):
    tables["module_calls"] = [[*row, 0] for row in tables["module_calls"]]
    return tables


#: Keyed by the version that a step migrates from.
""",
            ),
        ],
        """
for path in (old / "schema3", old / "schema2"):
    assert {call.depth for call in tl.load(path)._trace.module_calls} == {0}
assert tl.load(old / "schema3").op_labels == log.op_labels
""",
    ),
    "a derived field, a table column": Change(
        r"log/op_log\.py",
        [
            Edit(
                "log/op_log.py",
                "    @property\n    def tensor_device(",
                "    @property\n    def rank(self) -> int:\n        return len(self.tensor_shape)\n\n"
                "    @property\n    def tensor_device(",
            )
        ],
        """
assert log["relu_1"].rank == 2
assert log.to_json() and "rank" in log.to_json() and "rank" in log.to_csv().splitlines()[0]
""",
    ),
    "a command": Change(
        r"cli\.py",
        [
            Edit("cli.py", '    "summary": """', '    "count": "  torchlens count run1",\n    "summary": """'),
            Edit(
                "cli.py",
                "def _summary(",
                "def _count(given):\n    print(len(ModelLog.load(given.bundle)))\n    return 0\n\n\ndef _summary(",
            ),
            Edit(
                "cli.py",
                "    _add_extract(commands)\n",
                '    _command(commands, "count", _count, "count layers").add_argument("bundle")\n'
                "    _add_extract(commands)\n",
            ),
        ],
        """
tl.save(log, folder / "counted")
assert main(["count", str(folder / "counted")]) == 0
""",
    ),
    "a page from the view": Change(
        r"a new folder|outline/\w+\.py",
        [
            Edit("outline/__init__.py", "", ""),
            Edit(
                "outline/outline.py",
                "",
                "from ..draw.view.build import make_view\n\n\ndef outline(log):\n"
                "    return '\\n'.join(f'<li>{node.id}' for node in make_view(log).nodes)\n",
            ),
        ],
        """
from torchlens.outline.outline import outline
assert outline(log).startswith("<li>input_1_0")
""",
    ),
}

SCRIPT = """
import copy, json, sys, traceback
from pathlib import Path
import torch
from torch import nn
import torchlens as tl
from torchlens.cli import main

folder, old, checks = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
torch.manual_seed(0)


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.act = nn.ReLU()

    def forward(self, x):
        y = self.act(self.fc(x) + 1)
        return y, y > 0


model, x = Small(), torch.rand(2, 3)
log = tl.log_forward_pass(model, x)
found = {}
for name, check in checks.items():
    try:
        exec(check, globals())
    except BaseException:
        found[name] = traceback.format_exc()
(folder / "found.json").write_text(json.dumps(found))
"""


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.act(self.fc(x) + 1)
        return y, y > 0


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What went wrong with each change, all of them made at once in one copy."""
    folder = tmp_path_factory.mktemp("changed")
    shutil.copytree(ROOT / "src" / "torchlens", folder / "torchlens", ignore=shutil.ignore_patterns("__pycache__"))
    for change in CHANGES.values():
        for edit in change.edits:
            path = folder / "torchlens" / edit.file
            if edit.old:
                text = path.read_text(encoding="utf-8")
                assert text.count(edit.old) == 1, f"{edit.file}: {edit.old!r}"
                path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
            else:
                path.parent.mkdir(exist_ok=True)
                path.write_text(edit.new, encoding="utf-8")
    old = folder / "old"
    old.mkdir()
    tl.save(tl.log_forward_pass(Small(), torch.rand(2, 3)), old / "schema3")
    shutil.copytree(ROOT / "tests" / "bundle" / "old" / "schema2" / "log", old / "schema2")
    checks = json.dumps({name: change.check for name, change in CHANGES.items()})
    environment = os.environ | {"PYTHONPATH": str(folder), "CI": "1"}
    command = [sys.executable, "-c", SCRIPT, str(folder), str(old), checks]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, str] = json.loads((folder / "found.json").read_text())
    return found


@pytest.mark.parametrize("name", CHANGES)
def test_the_change_works(name: str, failures: dict[str, str]) -> None:
    assert name not in failures, failures[name]


@pytest.mark.parametrize("name", CHANGES)
def test_it_touches_what_the_page_names(name: str) -> None:
    for edit in CHANGES[name].edits:
        assert re.fullmatch(CHANGES[name].touches, edit.file), edit.file
    rows = dict(re.findall(r"^\| (an? [^|]+) \| ([^|]+) \|$", PAGE, flags=re.MULTILINE))
    assert name in rows
