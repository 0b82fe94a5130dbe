"""What the site needs beyond the pages: the notebooks, as they were run, become pages too; and pages to explore."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        page = file.src_uri.removesuffix(".ipynb") + ".md"
        files.append(File.generated(config, page, content=as_markdown(json.loads(file.content_string), file.name)))
    for name, text in live_pages():
        files.append(File.generated(config, f"live/{name}.html", content=text))
    return files


def live_pages() -> Iterator[tuple[str, str]]:
    """Some models of the gallery, to explore."""
    import torch

    import torchlens as tl
    from torchlens.page.write import page_of

    gallery = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "gallery.py"))
    for picture in gallery["PICTURES"]:
        if picture.name in ("unet", "googlenet", "recurrent_vision"):
            torch.manual_seed(0)
            yield picture.name, page_of(tl.log_forward_pass(picture.build().eval(), picture.inputs(), random_seed=0))


def as_markdown(notebook: dict[str, Any], name: str) -> str:
    """A notebook with its outputs, as Markdown."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        else:
            parts += [f"```python\n{source}\n```", *map(shown, cell["outputs"])]
    return "\n\n".join([*parts, f"[Download this notebook]({name}.ipynb)"]) + "\n"


def shown(output: dict[str, Any]) -> str:
    """One output of a cell: the picture or the table if it has one, otherwise its text."""
    data = output.get("data", {"text/plain": output.get("text", "")})
    for kind in ("image/svg+xml", "text/html"):
        if kind in data:
            lines = [line for line in "".join(data[kind]).splitlines() if line.strip() and not line.startswith("<?xml")]
            return '<div class="notebook-output">\n' + "\n".join(lines) + "\n</div>"
    return "```text\n" + "".join(data["text/plain"]).rstrip() + "\n```"
