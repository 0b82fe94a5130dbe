"""What the site needs beyond the pages: the notebooks, as they were run, become pages too."""

from __future__ import annotations

import json
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        page = file.src_uri.removesuffix(".ipynb") + ".md"
        files.append(File.generated(config, page, content=as_markdown(json.loads(file.content_string), file.name)))
    return files


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
