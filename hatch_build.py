"""The wheel's build hook: it compiles the kernel for this platform, where that can be done (tools/kernel.py).

    SPARROWMQ_KERNEL=plain        no: a pure wheel, good anywhere
    SPARROWMQ_KERNEL=compiled     else fail

`./run wheel` builds both (tools/wheel.py).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledWheel(BuildHookInterface[Any]):
    """Named in pyproject.toml; called by hatchling before it packs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sys.path.insert(0, self.root)
        if self._build_kernel() and version != "editable":
            from sparrowmq import kernel

            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            for path in Path(kernel.COMPILED).iterdir():
                if path.name != "lock":
                    build_data["force_include"][str(path)] = path.relative_to(self.root).as_posix()

    def dependencies(self) -> list[str]:
        """The packages that the build needs besides those of pyproject.toml: a C compiler, where there is none."""
        sys.path.insert(0, self.root)
        from tools import kernel as building

        return [] if os.environ.get("SPARROWMQ_KERNEL") == "plain" else building.packages()

    def _build_kernel(self) -> bool:
        from tools import kernel as building  # isort: skip, it can be imported before the kernel is built
        from sparrowmq import kernel

        wanted = os.environ.get(kernel.VARIABLE)
        if wanted == "plain":
            return False
        problem = None if kernel.is_built() else building.try_to_build()
        if problem is not None and wanted == "compiled":
            raise RuntimeError(f"{kernel.VARIABLE}=compiled, but {problem}")
        if problem is not None:
            self.app.display_warning(f"{building.PLAIN}: {problem}")
        return problem is None
