"""Starts a program, or a ready pipeline, on a cluster, by `spark-submit`.

    sparrowmq spark submit --master spark://10.0.0.5:7077 count.py orders
    sparrowmq spark submit --master spark://10.0.0.5:7077 pipeline table orders -n h:9876 --to /lake/orders

    driver      this process's Python and packages, here
    executors   a Python on their machines, and the archive of `environment.py`

The driver stays here (deploy mode client): a pipeline's state and checkpoint are on disks that it sees. All arguments
before the program belong to spark-submit.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparrowmq.errors import ConfigError
from sparrowmq.spark.java import spark_environment

PIPELINE: Final = "pipeline"
_UNPACKED: Final = "environment"  # beside each executor
_PROGRAM: Final = Path(__file__).with_name("__main__.py")
# spark-submit's options without a value; all others have one. SparkSubmitOptionParser, Spark 4.2.
_SWITCHES: Final = frozenset({"--help", "-h", "--supervise", "--usage-error", "--verbose", "-v", "--version"})
# secretKey=, securityToken=, tls.client.keyPassword= of ours, and what Spark's settings call so.
_SECRET: Final = re.compile(r"([\w.-]*(?:secret|token|password)[\w.-]*=).*", re.IGNORECASE | re.DOTALL)
_LOOPBACK: Final = ("spark://127.0.0.1:", "spark://localhost:", "local")


@dataclass(frozen=True)
class Submission:
    """A command, and the variables that it runs with."""

    command: tuple[str, ...]
    environment: Mapping[str, str]

    def shown(self) -> str:
        """The command as a shell takes it, without secrets."""
        return shlex.join(_SECRET.sub(r"\1***", each) for each in self.command)

    def start(self) -> None:
        """Become that command: signals and the exit status are its own."""
        sys.stdout.flush()
        os.execve(self.command[0], self.command, dict(self.environment))


def submission(given: Sequence[str], archive: Path, python: str, environ: Mapping[str, str] = os.environ) -> Submission:
    """Build the command for spark-submit's options and a program with its arguments.

    Args:
        archive: of `environment.py`. python: what executors start, by its path or name on their machines.
    Raises:
        ConfigError: no program is given, or there is no Spark or no Java.
    """
    options, program, arguments = parted(given)
    archives, options = _taken(options, "--archives")
    packed = ",".join([f"{archive}#{_UNPACKED}", *archives])
    own = ["--archives", packed, "--conf", f"spark.executorEnv.PYTHONPATH=./{_UNPACKED}"]
    is_pipeline = program == PIPELINE
    what = [str(_PROGRAM), *arguments] if is_pipeline else [program, *arguments]
    home = spark_home(environ)
    return Submission(
        (str(home / "bin" / "spark-submit"), *own, *options, *what),
        {**environ, **_variables(home, python, options, environ)},
    )


def parted(given: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """spark-submit's options, the program, and the program's arguments. Raises: ConfigError, no program is there."""
    place = 0
    while place < len(given) and given[place].startswith("-"):
        has_value = given[place] not in _SWITCHES and "=" not in given[place]
        place += 2 if has_value else 1
    if place >= len(given):
        raise ConfigError("no program is given; name a .py file, or `pipeline NAME` with its arguments")
    return list(given[:place]), given[place], list(given[place + 1 :])


def spark_home(environ: Mapping[str, str]) -> Path:
    """The Spark of SPARK_HOME, or that of the package pyspark. Raises: ConfigError."""
    if environ.get("SPARK_HOME"):
        return Path(environ["SPARK_HOME"])
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise ConfigError("there is no Spark here; pip install 'sparrowmq[server,lake]', or set SPARK_HOME")
    return Path(found.origin).parent


def _variables(home: Path, python: str, options: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    found = spark_environment(environ) | {
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(_folders(environ)),
    }
    if not environ.get("SPARK_LOCAL_IP") and not _is_near(options):
        del found["SPARK_LOCAL_IP"]  # executors on other machines have to reach the driver
    return found


def _folders(environ: Mapping[str, str]) -> list[str]:
    """The folders of the driver's imports, for Spark's Python processes beside it; they may be of another Python."""
    own = [str(Path(__file__).parents[3]), *map(sysconfig.get_path, ("purelib", "platlib"))]
    others = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return list(dict.fromkeys([*own, *others]))


def _is_near(options: Sequence[str]) -> bool:
    """Whether the cluster is on this machine."""
    masters, _ = _taken(options, "--master")
    return all(master.startswith(_LOOPBACK) for master in masters)


def _taken(options: Sequence[str], name: str) -> tuple[list[str], list[str]]:
    """The values of an option, and the other options."""
    values, others, rest = list[str](), list[str](), list(options)
    while rest:
        option = rest.pop(0)
        if option == name and rest:
            values.append(rest.pop(0))
        elif option.startswith(f"{name}="):
            values.append(option.partition("=")[2])
        else:
            others.append(option)
    return values, others
