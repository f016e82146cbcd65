"""`--console`: the demo's cluster in the browser, by `sparrowmq console` in a process of its own.

The demo keeps both cores busy, so the pages come a little later than they would; a process of its own keeps the console
out of the broker's figures.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from select import select
from typing import IO, Final, Self

from sparrowmq.errors import SparrowError

START_LIMIT_S: Final = 60.0  # NiceGUI takes a second, unless both cores are busy
STOP_LIMIT_S: Final = 10.0


class ConsoleProcess:
    """Runs while its context is entered.

    Args:
        namesrv: of the cluster.
        folder: for what it logs.
    Attributes:
        sentence: its address and the account, as it printed them; there once it is entered.
        address: for the browser.
    Raises on entering:
        SparrowError: it did not start.
    """

    def __init__(self, namesrv: str, folder: Path) -> None:
        self.sentence = self.address = ""
        self._log = folder / "console.log"
        words = ["console", "-n", namesrv, "--port", "0", "--history", str(folder / "history")]
        self._command = [sys.executable, "-m", "sparrowmq", *words]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True
            )
        try:
            self.sentence = self._first_line(self._process.stdout)
        except BaseException:
            self._stop()
            raise
        found = re.search(r"https?://\S+", self.sentence)
        self.address = found[0].rstrip("/") if found else ""
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def _first_line(self, output: IO[str] | None) -> str:
        assert output is not None
        readable, _, _ = select([output], [], [], START_LIMIT_S)
        line = output.readline().strip() if readable else ""
        if not line:
            why = self._log.read_text().strip().rpartition("\n")[2]
            raise SparrowError(f"the console did not start: {why or f'it said nothing in {START_LIMIT_S:g} s'}")
        return line

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
