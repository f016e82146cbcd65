"""Workers that say nothing when Java closes them because they have nothing to do.

Java closes a worker after a minute without a task. The worker then writes that its input has ended, to a peer that has
left. By TCP such bytes vanish; by a Unix socket they are a BrokenPipeError, and the daemon that started the worker
(Spark 4.1.4 and 4.2.1) prints its trace. Java closed the socket itself: there is nothing to report.

A session has a daemon of ours for its tasks (`worker_daemon.py`). For planning Spark always starts its own;
workers of that one become silent when they load this package.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final

_SPARKS_OWN: Final = "pyspark.daemon"
_ENDED: Final = 1  # an exit status: the daemon gives such a worker no other task

Worker = Callable[[socket.socket, bool], int]


def silence_worker() -> None:
    """Make this process silent at its end, if it is a worker that Spark's own daemon started."""
    program = sys.modules["__main__"]
    if getattr(program.__spec__, "name", "") == _SPARKS_OWN:
        silence(program)


def silence(daemon: Any) -> None:
    """Let the workers of a daemon (the module) end without a word when Java has closed their connection."""
    daemon.worker = partial(until_closed, daemon.worker)


def until_closed(worker: Worker, connection: socket.socket, authenticated: bool) -> int:
    """Do one task with a worker; its exit status, also if Java has closed the connection."""
    try:
        return worker(connection, authenticated)
    except BrokenPipeError:
        return _ENDED
