"""The end of a pipeline's command: one line of JSON, also after an error or a signal.

                          exit            the line has
    it is done            0               what was done
    an audit found it     1               `errors`
    it failed             1               `error`, and what had been done until then
    a signal stopped it   128 + signal    `stopped`: true

SIGTERM (systemd, Kubernetes) is to it what Control-C is. A stream without an end ends in order by both, and with 0.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, NamedTuple, NoReturn

import click

from sparrowmq.errors import SparrowError

_LAST_BREATH_S: Final = 1.0  # from the end of its sockets to that of the process


class Ended(NamedTuple):
    """The report of a command, and its exit status unless it was stopped."""

    report: Any
    status: int


class Ending:
    """The end of one command, from its begin on."""

    def __init__(self) -> None:
        self._begin_s = time.monotonic()
        self._signal = signal.SIGINT

    @contextmanager
    def signals(self) -> Iterator[None]:
        """SIGTERM is a Control-C meanwhile. Spark's bridge to Java, which either breaks, says nothing of that."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        log = logging.getLogger()
        was = signal.signal(signal.SIGTERM, self._terminate)
        log.addFilter(_is_no_broken_bridge)
        try:
            yield
        finally:
            log.removeFilter(_is_no_broken_bridge)
            signal.signal(signal.SIGTERM, was or signal.SIG_DFL)

    def _terminate(self, _number: int, _frame: FrameType | None) -> NoReturn:
        self._signal = signal.SIGTERM
        raise KeyboardInterrupt

    def done(self, ended: Ended) -> None:
        """Print its line, and exit with its status, or with that of the signal that stopped it."""
        click.echo(ended.report.line())
        status = 128 + self._signal if ended.report.stopped else ended.status
        if status:
            sys.exit(status)

    def stopped(self) -> NoReturn:
        """A signal came where nothing was made ready for it."""
        self._tell(None)
        sys.exit(128 + self._signal)

    def failed(self, why: str) -> NoReturn:
        """Print the line, and say why on stderr."""
        self.tell_failure(why)
        click.echo(f"sparrowmq pipeline: {why}", err=True)
        sys.exit(1)

    def tell_failure(self, why: str) -> None:
        """Print the line of a command that fails; the reason is for others to say."""
        self._tell(why)

    def _tell(self, error: str | None) -> None:
        loaded = sys.modules.get("sparrowmq.spark.pipelines.running.report")
        if loaded is None:  # there is no Spark to begin anything with
            return
        report = loaded.begun_since(self._begin_s)
        report.error, report.stopped = error, error is None
        report.seconds = report.seconds or time.monotonic() - self._begin_s
        with suppress(OSError):  # the reader of stdout may be gone
            click.echo(report.line())


def is_interrupted(error: BaseException | None) -> bool:
    """Whether an error came up because of a signal, as what tidies up behind it has no bridge to Java any more."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def end_of_java(error: BaseException) -> str:
    """Return a sentence if an error came up because the Java process that this one has started is gone; else ""."""
    spark = sys.modules.get("pyspark")
    process = getattr(spark and spark.SparkContext._gateway, "proc", None)
    if process is None or isinstance(error, SparrowError):
        return ""
    with suppress(subprocess.TimeoutExpired):
        status = process.wait(_LAST_BREATH_S if isinstance(error, ConnectionError) else 0)
        return (
            f"the Java process of Spark has ended ({_by(status)}), and the command with it; look for the reason above, "
            "or in the log of the system, which names processes that took too much memory; then run the command again"
        )
    return ""


def _by(status: int) -> str:
    return f"by the signal {-status}" if status < 0 else f"with the status {status}"


def _is_no_broken_bridge(record: logging.LogRecord) -> bool:
    """py4j writes the stack of an answer that a signal broke off; that of a real failure is raised as well."""
    return not str(record.msg).endswith("while sending command.")
