"""Spark's daemon of Python workers, whose idle workers end in silence: `spark.python.daemon.module`.

Java closes a worker after a minute without a task. The worker then writes that its input has ended, to a peer that has
left: by a Unix socket that is a BrokenPipeError, and the daemon (Spark 4.1.4 and 4.2.1) prints its trace.

A session has this daemon for its tasks. For planning Spark always starts its own; workers of that one become silent
when they load `sparrowmq.spark`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final

_WORKER_ENDED: Final = 1  # an exit status: the daemon gives such a worker no other task

Worker = Callable[[socket.socket, bool], int]


def silence(daemon: Any) -> None:
    """Let the workers of a daemon (the module) end without a word when Java has closed their connection."""
    daemon.worker = partial(_run_worker, daemon.worker)


def _run_worker(worker: Worker, connection: socket.socket, authenticated: bool) -> int:
    try:
        return worker(connection, authenticated)
    except BrokenPipeError:
        return _WORKER_ENDED


if __name__ == "__main__":
    from pyspark import daemon

    silence(daemon)
    daemon.manager()
