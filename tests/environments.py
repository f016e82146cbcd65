"""Environments that have SparrowMQ and the packages of some extras only, as the pages tell readers to install them."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "environments"
CONSTRAINTS = ROOT / "requirements" / "dev.txt"
LIMIT_S = 600
# What uv says when it cannot reach an index. All its other errors are faults of ours.
UNREACHABLE = re.compile(
    r"error sending request|client error|dns error|connection (?:refused|reset)|timed out|network was disabled"
    r"|failed to (?:fetch|download)",
    re.IGNORECASE,
)


def python_with(*extras: str) -> Path:
    """Return the Python of an environment with SparrowMQ from this checkout and these extras; without any, the client.

    The environment is made by the first call, and again when pyproject.toml or the lock has changed. Tests in several
    processes may call this at once. Versions are those of requirements/dev.txt. The test is skipped if uv or the
    package index cannot be reached.
    """
    folder = FOLDER / ("-".join(sorted(extras)) or "client")
    stamp, wanted = folder / "made.sha256", fingerprint()
    with locked(folder.with_suffix(".lock")):
        if not stamp.is_file() or stamp.read_text() != wanted:
            make(folder, extras)
            stamp.write_text(wanted)
    return folder / "bin" / "python"


def variables(python: Path, **others: str) -> dict[str, str]:
    """Return the environment variables of a shell in which the environment of this Python is active, and no other."""
    own = Path(sys.executable).parent
    paths = [path for path in os.environ["PATH"].split(os.pathsep) if Path(path) != own]
    kept = {name: value for name, value in os.environ.items() if name not in ("NAMESRV_ADDR", "VIRTUAL_ENV")}
    return kept | {"PATH": os.pathsep.join([str(python.parent), *paths])} | others


def fingerprint() -> str:
    """Return a digest of all that an environment depends on."""
    digest = hashlib.sha256(f"{sys.version} {ROOT}".encode())
    for path in (ROOT / "pyproject.toml", CONSTRAINTS):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes out while the block runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make(folder: Path, extras: tuple[str, ...]) -> None:
    """Make the environment: from uv's cache if all packages are there, else with the network."""
    what = f"{ROOT}[{','.join(extras)}]" if extras else str(ROOT)
    python = folder / "bin" / "python"
    uv("venv", "--quiet", "--clear", "--no-project", "--python", sys.executable, str(folder))
    install = (
        "pip",
        "install",
        "--python",
        str(python),
        "--constraints",
        str(CONSTRAINTS),
        "--editable",
        what,
    )
    if failure(*install, "--offline"):
        uv(*install)


def uv(*words: str) -> None:
    """Run uv. Skips the test where the index cannot be reached."""
    error = failure(*words)
    if UNREACHABLE.search(error):
        pytest.skip(f"needs a network: {error.strip()[-300:]}")
    assert not error, error


def failure(*words: str) -> str:
    """Run uv, and return its error output if it failed."""
    done = subprocess.run(
        [found_uv(), *words],
        env=os.environ | settings(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    return (done.stderr or f"uv ended with {done.returncode}") if done.returncode else ""


def found_uv() -> str:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    return found or pytest.skip("needs a network: uv is not installed")


@cache
def settings() -> dict[str, str]:
    """Return the settings of pip on this machine under the names that uv has for them, as ./run does."""
    run = program_run()
    found: dict[str, str] = run.uv_settings(run.pip_settings())
    return found


def program_run() -> ModuleType:
    """Return ./run as a module."""
    loader = SourceFileLoader("run", str(ROOT / "run"))
    spec = importlib.util.spec_from_loader("run", loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
