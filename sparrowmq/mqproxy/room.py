"""The memory and the connections to brokers that all clients of a port occupy together.

Each client has limits of its own, which thousands of clients multiply. So above these limits a client gets the answer
SYSTEM_BUSY. A client with few bytes still gets room: those that fill the memory must not lock others out.
"""

from __future__ import annotations

from typing import Final

from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode

MOST_BYTES: Final = 256 * 1024 * 1024  # of requests that wait for answers
FEW_BYTES: Final = 64 * 1024  # of one client, which it may have in any case


class Room:
    """The room of one port.

    Args:
        most_links: connections to brokers.
        who: those who have them, in words.
    Attributes:
        links: the open ones.
        held_bytes: of requests without an answer.
        requests: without an answer.
        is_stopping: mqproxy takes no more requests.
    """

    def __init__(self, most_links: int, peers: str = "remoting clients") -> None:
        self.links = 0
        self.held_bytes = 0
        self.requests = 0
        self.is_stopping = False
        self._most_links = most_links
        self._peers = peers

    @property
    def problem(self) -> str:
        """Why clients are refused now; "" if there is room."""
        if self.links < self._most_links:
            return ""
        return f"{self._peers} have {self.links} connections to brokers, and no more may be"

    def demand_link(self) -> None:
        """Do nothing if one more connection to a broker may be opened. Raises: RemoteError."""
        if self.links >= self._most_links:
            raise _busy(f"{self.problem}; a higher `ulimit -n` of mqproxy allows more")

    def demand_bytes(self, size: int, own_bytes: int) -> None:
        """Do nothing if a client with `own_bytes` may have so many more. Raises: RemoteError."""
        if self.is_stopping:
            raise RemoteError(ResponseCode.SERVICE_NOT_AVAILABLE, "mqproxy stops; send this again later")
        if self.held_bytes + size > MOST_BYTES and own_bytes + size > FEW_BYTES:
            raise _busy(f"requests of {self.held_bytes} bytes wait for answers of brokers; send this again later")


def _busy(text: str) -> RemoteError:
    return RemoteError(ResponseCode.SYSTEM_BUSY, f"mqproxy is busy: {text}")
