"""The options with which tests start Spark's Java.

Most of these processes live some seconds, and spend most of their CPU time on loading and compiling classes. A simple
compiler and an archive of the loaded classes halve this time. The archive has 150 MB and takes half a minute to make.
So a slow test makes the archive, and each test uses it once it is there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from tests.environments import ROOT, locked

FOLDER = ROOT / "build"
NAME = "SPARK_SUBMIT_OPTS"  # Spark's own scripts add its words to the command line of Java
GIVEN = os.environ.get(NAME)
# Java does not mention an archive that does not fit, as of another Spark.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
LIMIT_S = 300
# Java writes the archive when it ends, which it does when its input is closed.
PROGRAM = """
from sparrowmq.spark import session
spark = session("local[1]", {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"})
spark.createDataFrame([(1, "a")], "number int, body string").groupBy("body").count().collect()
java = spark.sparkContext._gateway.proc
spark.stop()
java.stdin.close()
java.wait()
"""


def use(*, may_make: bool) -> None:
    """Set the options for each Spark that this process or its children start, unless the user has set some."""
    if GIVEN is None:
        os.environ[NAME] = options(archive(), may_make=may_make)


def options(path: Path, *, may_make: bool) -> str:
    """Return the options; the archive is among them if it is there or can be made."""
    if may_make and not path.is_file():
        with locked(FOLDER / "spark-classes.lock"):
            if not path.is_file():
                make(path)
    has_classes = path.is_file() and path.stat().st_size > 0
    return f'{QUICK} "-XX:SharedArchiveFile={path}"' if has_classes else QUICK


def archive() -> Path:
    """Return the path of the archive, which fits one Java and one Spark."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    seen = (sys.prefix, version("pyspark"), java, java and os.stat(java).st_mtime_ns)
    return FOLDER / f"spark-classes-{hashlib.sha256(repr(seen).encode()).hexdigest()[:16]}.jsa"


def make(path: Path) -> None:
    """Make the archive, and remove those of other versions. An empty file says that this Java makes none."""
    for old in FOLDER.glob("spark-classes-*.jsa*"):
        old.unlink()
    command = [sys.executable, "-c", PROGRAM]
    unfinished = path.with_suffix(".jsa.unfinished")
    given = {NAME: f'{QUICK} "-XX:ArchiveClassesAtExit={unfinished}"'}
    with suppress(subprocess.TimeoutExpired):  # on a busy machine the next slow test tries again
        subprocess.run(command, env=os.environ | given, cwd=ROOT, capture_output=True, timeout=LIMIT_S)
        unfinished.touch()
        unfinished.rename(path)
