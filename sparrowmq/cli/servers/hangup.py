"""SIGHUP to a server: its settings are read anew, as soon as it runs.

One that comes while it still starts would kill it, which systemd takes for a clean end: `systemctl reload` may come as
soon as there is a process, and a broker with a large store to recover starts for minutes.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable

_came = False


def remember() -> None:
    """Keep in mind from now on that one came."""
    signal.signal(signal.SIGHUP, _note)


def follow(reload: Callable[[], object]) -> None:
    """Have each call `reload` from now on, in the running loop; at once if one came meanwhile."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    if _came:
        reload()


def follow_none(stop: Callable[[], object]) -> None:
    """For a server that has nothing to read anew: it goes on, but ends in order with the terminal that it is in."""
    is_in_terminal = sys.stdin is not None and sys.stdin.isatty()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, stop if is_in_terminal else lambda: None)


def _note(*_: object) -> None:
    global _came
    _came = True
