"""This process: its restart on request, its memory, and the stacks of its threads and tasks.

**Restart.** The process stops as by SIGTERM, and `execve` begins the same command line again, so systemd and containers
see one process that goes on. Only a server that runs as a program allows it.

**Memory.** glibc returns freed megabytes to the system, and each page then costs a page fault. Measured, that is 2 % of
a busy broker's time, a ninth of that of a consumer that pops, and a fifth of the time for Spark's columns. A Python
worker of Spark collects garbage after each task. A look through Arrow's and our modules takes 40 to 80 ms, longer than
a small task; without them it takes 0.2 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import io
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from functools import cache
from typing import Final, NoReturn

from sparrowmq.errors import ConfigError
from sparrowmq.loop.slices import Steps

log = logging.getLogger(__name__)

# mallopt's: blocks of at least so many bytes come straight from the system; so many at the heap's end are kept.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_MAX_KEPT_BYTES: Final = 8 << 20
ANSWER_S: Final = 0.1  # for the answer to the request


class Restart:
    """The restart of one process."""

    def __init__(self) -> None:
        # Ends the server in order; None where it runs inside another program.
        self.stop: Callable[[], object] | None = None
        # Raises ConfigError if the next start would fail at its settings.
        self.check: Callable[[], object] = lambda: None
        self.is_requested = False  # whether to begin again once the server has ended
        self._environment = dict(os.environ)  # systemd's variables are taken out of it later

    def request(self) -> None:
        """Restart soon. Raises: ConfigError, this cannot be, or the settings are wrong now; nothing is stopped."""
        if self.stop is None:
            raise ConfigError("this server runs inside another program; restart that program")
        self.check()
        if not self.is_requested:
            log.info("restarting on request")
            self.is_requested = True
            asyncio.get_running_loop().call_later(ANSWER_S, self.stop)

    def begin(self) -> NoReturn:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the new program handles it
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], self._environment)


RESTART: Final = Restart()


@cache
def keep_freed_memory() -> None:
    """Let this process keep up to 8 MB of freed memory for what comes next."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # only glibc has this option
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _MAX_KEPT_BYTES // 2)
        mallopt(_TRIM_THRESHOLD, _MAX_KEPT_BYTES)


@cache
def freeze_loaded_objects() -> None:
    """Let the collector look at none of the objects that this process has now. Call this in workers of Spark alone: a
    cycle of frozen objects stays in memory for as long as the process lives."""
    gc.collect()
    gc.freeze()


def list_stacks() -> Steps[str]:
    """Return the stacks of all threads, and of all tasks of the running loop, each made in a step."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    text = io.StringIO()
    for ident, frame in sys._current_frames().items():
        text.write(f"thread {names.get(ident, '?')} ({ident})\n{''.join(traceback.format_stack(frame))}\n")
        yield
    for task in sorted(asyncio.all_tasks(), key=asyncio.Task.get_name):
        text.write(f"task {task.get_name()}\n")
        task.print_stack(file=text)
        text.write("\n")
        yield
    return text.getvalue()
