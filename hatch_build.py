"""The wheel's build hook: with SPARROWMQ_COMPILE=1 it holds the compiled modules too, and is one for this platform.

Otherwise it is pure, and good anywhere. `./run wheel` builds both (tools/wheel.py).
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledWheel(BuildHookInterface[Any]):
    """Named in pyproject.toml; called by hatchling before it packs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable" or not os.environ.get("SPARROWMQ_COMPILE"):
            return
        sys.path.insert(0, self.root)
        from sparrowmq import compiled
        from tools import compile as compiling

        if (missing := compiling.what_is_missing()) is not None:
            raise RuntimeError(f"SPARROWMQ_COMPILE is set, but {missing}")
        compiling.main()
        if compiled.recorded() != compiled.checksum():
            raise RuntimeError("SPARROWMQ_COMPILE is set, but compiling failed; its errors are above")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for path in Path(self.root).glob(f"sparrowmq*{EXTENSION_SUFFIXES[0]}"):
            build_data["force_include"][str(path)] = path.name
        for path in Path(self.root, "sparrowmq").rglob(f"*{EXTENSION_SUFFIXES[0]}"):
            build_data["force_include"][str(path)] = path.relative_to(self.root).as_posix()
