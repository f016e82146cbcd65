"""What a broker loads until it listens: the modules of `python -X importtime`, and how long each took by itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

START_LIMIT_S: Final = 30
_LINE: Final = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+([\w.]+)")
_CONF: Final = "listenPort=0\nhaListenPort=off\nstorePathRootDir={store}\nmappedFileSizeCommitLog=1m\n"


def loaded() -> dict[str, int]:
    """Start a broker with an empty store and few settings; return the microseconds of each module by its name.

    Raises: TimeoutError, it does not serve within half a minute.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, _serving(Path(folder)) as said:
        return {name: int(time_us) for time_us, name in _LINE.findall(said.read_text())}


def by_package(modules: Mapping[str, int], parts: int = 2) -> dict[str, tuple[int, int]]:
    """Return the number of modules and their microseconds for each package, the slowest first.

    Args:
        parts: how many parts of our own modules' names count; one part of others'.
    """
    counts: dict[str, list[int]] = defaultdict(list)
    for name, time_us in modules.items():
        words = name.split(".")
        counts[".".join(words[:parts] if words[0] == "sparrowmq" else words[:1])].append(time_us)
    found = {package: (len(times), sum(times)) for package, times in counts.items()}
    return dict(sorted(found.items(), key=lambda item: -item[1][1]))


@contextmanager
def _serving(folder: Path) -> Iterator[Path]:
    """Give the file with what the broker wrote to stderr, once it serves."""
    conf, said = folder / "broker.conf", folder / "stderr"
    conf.write_text(_CONF.format(store=folder / "store"))
    program = "from sparrowmq.cli.scripts import mqbroker; mqbroker()"
    environment = {key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"}
    with said.open("wb") as errors:
        command = [sys.executable, "-X", "importtime", "-c", program, "-c", str(conf)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, cwd=folder
        )
    with process:
        try:
            assert process.stdout is not None
            if not any("boot success" in line for line in iter(process.stdout.readline, "")):
                raise TimeoutError(f"the broker does not serve:\n{said.read_text()[-2000:]}")
            yield said
        finally:
            process.terminate()
            process.wait(START_LIMIT_S)
