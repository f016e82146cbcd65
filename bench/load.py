"""Drives load.c, the neutral load generator: compiles it once, runs it, reads its one line of JSON.

Without a C compiler the same questions are put by `python_load`, which pipelines as deeply but is itself the
bottleneck above some 50,000 messages a second; its figures say `"generator": "python"`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

from bench.python_load import python_load

SOURCE: Final = Path(__file__).with_name("load.c")
_RUN_LIMIT_S: Final = 600


class LoadFailed(RuntimeError):
    """The load generator could not do its work; the text is its own."""


def run_load(mode: str, port: int, **options: Any) -> dict[str, Any]:
    """Put `mode` (send, pull, transact) on the broker at `port`; see the head of load.c for options and figures.

    Raises: LoadFailed.
    """
    program = build()
    if program is None:
        return python_load(mode, port, **options)
    flags = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    done = subprocess.run(
        [program, mode, "--port", str(port), *flags], capture_output=True, text=True, timeout=_RUN_LIMIT_S
    )
    if done.returncode:
        raise LoadFailed(f"{mode} at port {port}: {done.stderr.strip()}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures | {"generator": "c"}


@cache
def build() -> Path | None:
    """The compiled generator, or None where there is no C compiler. Kept by the hash of its source."""
    compiler = next(filter(None, map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))), None)
    if compiler is None:
        return None
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    program = _cache_folder() / f"load-{digest}"
    if not program.exists():
        with tempfile.TemporaryDirectory(dir=program.parent) as scratch:
            fresh = Path(scratch) / "load"
            for tls in (["-DWITH_TLS", "-lssl"], []):  # without OpenSSL's headers it cannot encrypt
                command = [compiler, "-O2", "-o", str(fresh), str(SOURCE), *tls]
                if not subprocess.run(command, capture_output=True, check=False).returncode:
                    break
            else:
                return None  # epoll is Linux's: elsewhere the Python generator does
            fresh.rename(program)
    return program


def _cache_folder() -> Path:
    for folder in (
        Path.home() / ".cache" / "sparrowmq" / "bench",
        Path(tempfile.gettempdir()) / "sparrowmq-bench",
    ):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise OSError("no folder to keep the compiled load generator in")
