"""`./run wheel`: wheels in dist/: the pure one, good anywhere, and one with the compiled kernel for each Python found.

    ./run wheel                      CPython 3.11 to 3.14, as far as they are on the PATH or known to pyenv
    ./run wheel /opt/python3.12      these instead

Each compiled one is built from the source distribution in a folder and an environment of its own, whose packages
requirements/build.txt locks: nothing that lies about here gets into it, and nothing stays behind. Each wheel is tried:
its kernel encodes a record. .github/workflows/wheels.yml makes those of all platforms.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DIST: Final = ROOT / "dist"
LOCK: Final = ROOT / "requirements" / "build.txt"
MINORS: Final = (11, 12, 13, 14)
# A wheel need not be installed for it: the kernel imports nothing that is not in the wheel.
TRIAL: Final = """
import sys
sys.path.insert(0, sys.argv[1])
from sparrowmq import kernel
from sparrowmq.kernel import records
shared = b"Orders", 0, 0, 0, bytes(8), 0, bytes(8), 0, 0
assert records.check(records.encode(shared, 0, 0, 0, b"body", b"", True)) is None
assert records.__file__.startswith(sys.argv[1])
print("compiled" if kernel.is_compiled() else "plain")
"""


def main(given: Sequence[str]) -> int:
    """Builds all; the exit status is 1 when one of them failed."""
    DIST.mkdir(exist_ok=True)
    found = list(given) or pythons()
    with tempfile.TemporaryDirectory() as folder:
        built = [
            wheel(sys.executable, ROOT, sys.executable, "plain"),
            hatch(sys.executable, ROOT, "sdist", Path(folder)),
        ]
        built += [compiled(python, Path(folder)) for python in found if all(built)]
    for minor in MINORS:
        if not given and not any(version_of(python) == (3, minor) for python in found):
            print(
                f"no compiled wheel for 3.{minor}: no python3.{minor} was found; put it on the PATH",
                file=sys.stderr,
            )
    print(*sorted(path.relative_to(ROOT).as_posix() for path in DIST.glob("*.whl")), sep="\n")
    return 0 if all(built) else 1


def pythons() -> list[str]:
    """One interpreter for each version that can be compiled for."""
    return [python for minor in MINORS if (python := find(minor)) is not None]


def find(minor: int) -> str | None:
    """An interpreter of 3.`minor` that starts; a shim of pyenv may be there without one behind it."""
    name = f"python3.{minor}"
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = shutil.which(name)
    candidates = [on_path] if on_path else []
    candidates += sorted(map(str, versions.glob(f"3.{minor}.*/bin/{name}")), reverse=True)
    return next((each for each in candidates if version_of(each) == (3, minor)), None)


def version_of(python: str) -> tuple[int, int] | None:
    """Its major and minor version; None if it does not start."""
    question = "import sys; print(*sys.version_info[:2])"
    answer = subprocess.run([python, "-c", question], capture_output=True, text=True)
    if answer.returncode:
        return None
    major, minor = answer.stdout.split()
    return int(major), int(minor)


def compiled(python: str, folder: Path) -> bool:
    """Build the wheel for one interpreter; returns whether it went well."""
    home = Path(tempfile.mkdtemp(dir=folder))
    venv = home / "venv"
    print(f"compiling for {python}", file=sys.stderr)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        sources.extractall(home, filter="data")
    (source,) = home.glob("sparrowmq-*")
    install = [
        str(venv / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--require-hashes",
        "-r",
        str(LOCK),
    ]
    return (
        succeeds([python, "-m", "venv", str(venv)])
        and succeeds(install)
        and wheel(str(venv / "bin" / "python"), source, python, "compiled")
    )


def wheel(builder: str, source: Path, python: str, form: str) -> bool:
    """Build a wheel, try it with `python`, and put it into DIST; returns whether all went well."""
    with tempfile.TemporaryDirectory() as folder:
        if not hatch(builder, source, "wheel", Path(folder), {"SPARROWMQ_KERNEL": form}):
            return False
        (built,) = Path(folder).glob("*.whl")
        if (found := try_wheel(python, built)) != form:
            print(f"{built.name} does not work with {python}: {found}", file=sys.stderr)
            return False
        shutil.move(built, DIST / built.name)
        return True


def try_wheel(python: str, path: Path) -> str:
    """Load the kernel out of a wheel, and use it; returns which form runs, or what went wrong."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
        clean = {name: value for name, value in os.environ.items() if name != "SPARROWMQ_KERNEL"}
        command = [python, "-I", "-S", "-c", TRIAL, folder]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=clean)
        return done.stdout.strip() if done.returncode == 0 else done.stderr


def hatch(python: str, source: Path, target: str, out: Path, environment: Mapping[str, str] | None = None) -> bool:
    """Build one target; returns whether it went well."""
    clean = {name: value for name, value in os.environ.items() if name != "SPARROWMQ_KERNEL"}
    command = [python, "-m", "hatchling", "build", "-t", target, "-d", str(out)]
    return succeeds(command, source, clean | dict(environment or {}))


def succeeds(command: Sequence[str], folder: Path = ROOT, environment: Mapping[str, str] | None = None) -> bool:
    """Run a command whose own words say what went wrong."""
    return subprocess.call(command, cwd=folder, env=environment, stdout=sys.stderr) == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
