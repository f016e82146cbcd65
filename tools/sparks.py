"""Runs the tests of the Spark source and sink on other versions of pyspark: `./run sparks`.

    ./run sparks                      all of those below
    ./run sparks 4.1.4                one of them
    ./run sparks 4.1.4 -k stream      arguments behind the versions go to pytest

Each version has an environment below build/ with nothing in it but pyspark; everything else is that of .venv. The first
time it fetches some 450 MB a version. How the versions were chosen: docs/understand/adr/0022-several-sparks.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
# The source distribution of each, as its registry has it; there are no wheels.
SHA256: Final = {
    "4.1.4": "bcbd5e18690cf79d438e97210ad06fb8d451a251bb77becc2b0418868d2acd73",
    "4.2.1": "d79b7c8ee41e66a9202fe6f600ca90b931ca571ae9dbdf31c58d2672e5102da0",
    "4.3.0": "e8c517948eff7088a7aa07449aa8eafa4a15a8d50319de2525a6fd26622476c6",
}

# Spark 4.1 leaves sockets to the garbage collector, which Python warns of, and tests take warnings for errors.
QUIET: Final = ("-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning")


def main(given: Sequence[str]) -> int:
    """The exit status is 1 when the tests failed on one of the versions."""
    versions, arguments = chosen(given)
    results = {version: run(environment(version), arguments) for version in versions}
    for version, status in results.items():
        print(f"pyspark {version}: {'failed' if status else 'passed'}")
    return int(any(results.values()))


def chosen(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """The versions to run on, and pytest's arguments."""
    count = next((at for at, argument in enumerate(given) if argument not in SHA256), len(given))
    return list(given[:count]) or list(SHA256), list(given[count:])


def environment(version: str) -> Path:
    """The interpreter that has this pyspark, made if it is not there."""
    home = ROOT / "build" / f"pyspark-{version}"
    python, rest = home / "bin" / "python", "zz-all-the-rest.pth"
    packages = home / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    if not (packages / rest).exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        # Behind the environment's own packages come those of .venv, its editable sparrowmq among them.
        (packages / rest).write_text(sysconfig.get_path("purelib") + "\n")
        try:
            install(python, version)
        except BaseException:
            (packages / rest).unlink()
            raise
    return python


def install(python: Path, version: str) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as lock:
        lock.write(f"pyspark=={version} --hash=sha256:{SHA256[version]}\n")
        lock.flush()
        pip = [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--require-hashes",
        ]
        subprocess.run([*pip, "-r", lock.name], check=True)


def run(python: Path, arguments: Sequence[str]) -> int:
    given = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python)}
    command = [str(python), "-m", "pytest", "-q", *QUIET, "tests/spark", *arguments]
    return subprocess.call(command, cwd=ROOT, env={**os.environ, **given})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
