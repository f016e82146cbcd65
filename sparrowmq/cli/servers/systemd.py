"""Messages of a server to systemd, in a unit with Type=notify: it serves, its loop runs, it stops, and how it is.

    READY=1      once clients can use it, so units that come after it start then
    WATCHDOG=1   from the event loop, three times in WatchdogSec; systemd restarts a server whose loop hangs
    STATUS=...   what `systemctl status` shows; it is sent again when the text changes
    STOPPING=1   when a signal came

A message is one datagram to the socket that NOTIFY_SOCKET names: a path, or "@" and an abstract name. Without that
variable nothing is sent. Processes that the server starts do not inherit it. `Listener` is the other end, for the
processes of `mqbroker --brokers N`.
Source: sd_notify(3) and sd_watchdog_enabled(3) of systemd 252.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Final

from sparrowmq.core.digits import whole_number

log = logging.getLogger(__name__)

READY: Final = "READY=1"
ALIVE: Final = "WATCHDOG=1"
STOPPING: Final = "STOPPING=1"
SOCKET: Final = "NOTIFY_SOCKET"
WATCHDOG_US: Final = "WATCHDOG_USEC"
_WATCHDOG_PID: Final = "WATCHDOG_PID"
_STATUS_PERIOD_S: Final = 5.0  # between two looks at the text, without a watchdog
_CREDENTIALS: Final = struct.Struct("3i")  # process, user and group of a sender (unix(7), struct ucred)
_MAX_MESSAGE_BYTES: Final = 4096


class Notifier:
    """Speaks to systemd at a socket; says nothing if systemd did not start this process, so that there is no socket.

    systemd restarts a server that is silent for `watchdog_s`; 0 is never.
    """

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.watchdog_s = watchdog_s
        self._last_status = ""
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> Notifier:
        """Return the one that the environment asks for; what is for this process alone is taken out of it."""
        address, watchdog_us, pid = (environment.pop(name, "") for name in (SOCKET, WATCHDOG_US, _WATCHDOG_PID))
        is_ours = pid in ("", str(os.getpid()))
        return cls(address, (whole_number(watchdog_us) or 0) / 1_000_000 if is_ours else 0.0)

    def __bool__(self) -> bool:
        return bool(self._address)

    def say(self, *lines: str) -> None:
        """Send some lines. A socket that is gone or full is no reason to stop serving."""
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            try:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), self._address)
            except OSError as error:
                log.debug("systemd was not reached: %s", error)

    def report_serving(self, read_status: Callable[[], str]) -> None:
        """Say that the server serves, and from now on that the loop runs, and how the server is."""
        self._last_status = read_status()
        self.say(READY, _status(self._last_status))
        self._start_timer(read_status)

    def keep_status(self) -> None:
        """Look at the server no more. The loop goes on to say that it runs, until it ends."""
        if self._timer is not None:
            self._start_timer(lambda: self._last_status)

    def report_stopping(self) -> None:
        self.say(STOPPING, _status("saves its files and stops"))

    def _start_timer(self, read_status: Callable[[], str]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._address:
            pause_s = self.watchdog_s / 3 or _STATUS_PERIOD_S
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._send_signs, read_status)

    def _send_signs(self, read_status: Callable[[], str]) -> None:
        status = read_status()
        lines = [ALIVE] if self.watchdog_s else []
        if status != self._last_status:
            self._last_status = status
            lines.append(_status(status))
        if lines:
            self.say(*lines)
        self._start_timer(read_status)


class Listener:
    """Receives the messages of processes that this one has started; `address` is for their NOTIFY_SOCKET."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)  # so that no other process can pretend
        self._socket.setblocking(False)
        self._socket.bind("")  # Linux finds an abstract name
        self.address = "@" + self._socket.getsockname()[1:].decode()

    def environment(self, watchdog_s: float) -> Mapping[str, str]:
        """Return what a process needs in its environment."""
        variables = {SOCKET: self.address}
        return variables | {WATCHDOG_US: str(int(watchdog_s * 1_000_000))} if watchdog_s else variables

    def receive(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the lines that came, each time with the process that sent them."""
        while True:
            try:
                text, ancillary, _, _ = self._socket.recvmsg(_MAX_MESSAGE_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
            except BlockingIOError:
                return
            for level, kind, credentials in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                    yield _CREDENTIALS.unpack(credentials)[0], text.decode(errors="replace").split("\n")

    def close(self) -> None:
        self._socket.close()


def _status(text: str) -> str:
    return f"STATUS={' '.join(text.split())}"
