"""The work and the answers that one turn of the loop has for all connections of a server.

All sockets that are readable at once belong to one turn. If four thousand clients pull 240 KB each in the same moment,
and all were answered at once, the turn would take seconds and most of a gigabyte. So a turn is limited:

    time      A connection handles the requests that arrived together for at most BURST_S, and for less if others wait.
              After TURN_S each connection handles one request more. The rest waits for one of the next turns.
    answers   Once the answers of a turn have `turn_bytes` together, further requests wait too. Those with short
              answers, such as sends, do not wait.
    writes    If many connections have more answers than fit into one turn, each hands fewer bytes to its socket.

Connections that wait have their turns in the order in which they began to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

from sparrowmq.protocol.codes import RequestCode

TURN_BYTES: Final = 4 * 1024 * 1024  # of answers, for all connections
LEAST_TURN_BYTES: Final = 64 * 1024  # of answers, for one connection
COUNTED_BYTES: Final = 2048  # of one answer; shorter ones do not count

# With what the end of a turn adds, no step takes more than 5 ms.
BURST_S: Final = 0.002
TURN_S: Final = 0.004
LEAST_BURST_S: Final = 0.0002

# Every client sends these often, and waits for their short answers.
SHORT_ANSWERS: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.HEART_BEAT,
    }
)


class Waiting(Protocol):
    """A connection with requests that wait for a turn."""

    def go_on(self) -> None:
        """Handle them, or wait again."""


class TurnShare:
    """The share of a turn that one connection gets.

    Attributes:
        busy: the number of connections that have more answers than fit into one turn.
        is_spent: whether this turn has made as many bytes of answers as it may.
    """

    def __init__(self, turn_bytes: int = TURN_BYTES) -> None:
        self.busy = 0
        self.is_spent = False
        self._turn_bytes = turn_bytes
        self._made_bytes = 0
        self._until = 0.0
        self._is_due = False
        self._waiting: dict[Waiting, Callable[[], None]] = {}

    def bytes_of_one(self) -> int:
        """Return the bytes of answers that one connection makes, and hands to its socket, in one turn of the loop."""
        return max(LEAST_TURN_BYTES, self._turn_bytes // max(1, self.busy))

    def until(self, began: float) -> float:
        """Return when a connection that began to read at `began` stops to handle requests."""
        if self._until == 0.0:
            self._until = began + TURN_S
            self._begin_next_soon()
        share = max(LEAST_BURST_S, min(BURST_S, TURN_S / (1 + len(self._waiting))))
        return min(began + share, self._until)

    def made(self, answer_bytes: int) -> None:
        """Count an answer of this turn."""
        self._made_bytes += answer_bytes
        self.is_spent = self._made_bytes >= self._turn_bytes
        self._begin_next_soon()

    def wait(self, holder: Waiting) -> None:
        """Call `holder.go_on()` in one of the next turns. A connection that waits already keeps its place."""
        self._waiting.setdefault(holder, holder.go_on)
        self._begin_next_soon()

    def forget(self, holder: Waiting) -> None:
        """Do not call a connection that has ended."""
        self._waiting.pop(holder, None)

    def _begin_next_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._begin_next)

    def _begin_next(self) -> None:
        """Call those who wait, as far as their time and answers fit into this turn."""
        self._is_due = self.is_spent = False
        self._made_bytes = 0
        self._until = 0.0
        end = perf_counter() + TURN_S
        for _ in range(len(self._waiting)):
            holder = next(iter(self._waiting), None)
            if holder is None or self.is_spent or perf_counter() > end:
                break
            self._waiting.pop(holder)()
        if self._waiting:
            self._begin_next_soon()
