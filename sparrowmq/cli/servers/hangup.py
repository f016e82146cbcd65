"""SIGHUP to a server: it reads its settings again, as soon as it runs.

A SIGHUP during the start would kill the server, and systemd takes that for a clean end. `systemctl reload` is possible
as soon as there is a process, and a broker with a large store to recover starts for minutes.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable

_has_come = False


def remember() -> None:
    """Remember from now on that a SIGHUP came."""
    signal.signal(signal.SIGHUP, _on_signal)


def follow(reload: Callable[[], object]) -> None:
    """Call `reload` for each SIGHUP from now on; at once if one came before."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    if _has_come:
        reload()


def follow_none(stop: Callable[[], object]) -> None:
    """For a server without settings to read: it continues, but stops in order with its terminal."""
    is_in_terminal = sys.stdin is not None and sys.stdin.isatty()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, stop if is_in_terminal else lambda: None)


def _on_signal(*_: object) -> None:
    global _has_come
    _has_come = True
