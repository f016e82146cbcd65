"""The folder of a console's history: that of `--history`, or one for the cluster in the user's own state.

    ~/.local/state/sparrowmq/console/10.0.0.11_9876,10.0.0.12_9876/    or below XDG_STATE_HOME
        lock                   held by the console that writes here
        2026-11-26.json ...    see rate_history.py and last_hour.py

Two consoles would replace each other's files, so one console has a folder at a time. A killed one releases it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from zlib import crc32

from sparrowmq.client.cluster.name_servers import addresses_of
from sparrowmq.errors import ConfigError

log = logging.getLogger(__name__)

OFF: Final = "off"
_STATE: Final = "~/.local/state"
_LONGEST_NAME: Final = 100  # file systems take 255 bytes


@contextmanager
def held(wanted: str | None, namesrv: str | None) -> Iterator[Path | None]:
    """Hold the folder of the history; None for a history in memory only.

    Args:
        wanted: the folder, or `OFF`. None takes the usual one if it can be used, and logs the reason if it cannot.
        namesrv: the name servers of the cluster, as `connect` takes them.
    Raises:
        ConfigError: the wanted folder cannot be used, or there is no such address.
    """
    with ExitStack() as stack:
        yield _usual(namesrv, stack) if wanted is None else _wanted(wanted, stack)


def _wanted(text: str, stack: ExitStack) -> Path | None:
    if text == OFF:
        return None
    path = Path(text).expanduser()
    if why := _hold(path, stack):
        raise ConfigError(f"--history {text}: {why}; name another folder, or --history {OFF}")
    return path


def _usual(namesrv: str | None, stack: ExitStack) -> Path | None:
    path = Path(os.environ.get("XDG_STATE_HOME") or os.path.expanduser(_STATE))
    path = path / "sparrowmq" / "console" / _name_of(namesrv)
    why = _hold(path, stack) if path.is_absolute() else "this user has no home"
    if not why:
        log.info("the history is in %s", path)
        return path
    log.warning(
        "the history is not kept in %s (%s), so it ends with this console: name another folder by --history FOLDER, "
        "or --history %s if it may end",
        *(path, why, OFF),
    )
    return None


def _name_of(namesrv: str | None) -> str:
    """Return the name of the cluster's folder, the same for each order of its addresses. Raises: ConfigError."""
    addresses, page = addresses_of(namesrv)
    text = page or ",".join(sorted(addresses))
    name = re.sub(r"[^A-Za-z0-9.,-]", "_", text)
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}-{crc32(text.encode()):08x}"


def _hold(path: Path, stack: ExitStack) -> str:
    """Make a folder and hold it until the stack is left. Return why that is impossible, or ""."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        return f"it cannot be written to: {error.strerror}"
    stack.callback(os.close, file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "another console keeps its history there"
    except OSError as error:
        return f"it cannot be locked: {error.strerror}"
    return ""
