"""Compiles the hot path (the C files in src/torchlens/capture) when the package is built or installed.

Where that can't be done, for want of a compiler or of Python's headers, the package is built without it: logs are the
same then, and take longer.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "torchlens.capture._hot"
FOLDER = "src/torchlens/capture"
SOURCES = [f"{FOLDER}/{name}.c" for name in ("hot", "observe", "prepare", "shared")]


class CompileHotPath(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if os.environ.get("TORCHLENS_NATIVE") == "0" or sysconfig.get_config_var("Py_GIL_DISABLED"):
            return
        editable = version == "editable"
        built = compiled(Path(self.root), in_place=editable)
        if built is not None and not editable:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"][str(built)] = f"torchlens/capture/{built.name}"


def compiled(root: Path, in_place: bool) -> Path | None:
    """The file that the compiler made: beside its source, or in a temporary folder. None if it could not."""
    try:
        from setuptools import Distribution, Extension
    except ImportError:
        print("hot.c was not compiled: there is no setuptools", file=sys.stderr)
        return None
    here = os.getcwd()
    try:
        os.chdir(root)  # the compiler is told paths below it
        # A function that this Python's headers don't declare would be called wrongly: better not to compile then.
        flags = [] if sys.platform == "win32" else ["-O2", "-Werror=implicit-function-declaration"]
        extension = Extension(NAME, SOURCES, depends=[f"{FOLDER}/shared.h"], extra_compile_args=flags)
        build: Any = Distribution({"ext_modules": [extension]}).get_command_obj("build_ext")
        build.build_temp = tempfile.mkdtemp(prefix="torchlens-")
        build.build_lib = "src" if in_place else tempfile.mkdtemp(prefix="torchlens-")
        build.ensure_finalized()
        build.run()
        return root / build.get_ext_fullpath(NAME)
    except Exception as error:  # whatever a compiler can fail with
        print(f"hot.c was not compiled: {error}", file=sys.stderr)
        return None
    finally:
        os.chdir(here)


if __name__ == "__main__":
    sys.exit(compiled(Path(__file__).parent, in_place=True) is None)
