"""The connections of one port, of which there may be only so many.

Above the limit a new connection takes the place of a stranger: one that has not asked for anything yet. The oldest
stranger goes first. If there is none, the new connection goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Generic, TypeVar

from sparrowmq.core.stats import Recent
from sparrowmq.loop.clock import Clock

S = TypeVar("S")


class LimitedSessions(Generic[S]):
    """The connections of one port.

    Args:
        most: the limit.
        is_known: whether a connection has asked for something that it may.
        what: the connections, in texts.
        host_of: returns the host of a connection; with it, `problem` says from where most of them come.
    Attributes:
        sessions: the live connections, the oldest first: the order of their ends does not depend on memory addresses.
    """

    def __init__(
        self,
        most: int,
        clock: Clock,
        is_known: Callable[[S], bool],
        kind: str = "connections",
        host_of: Callable[[S], str] | None = None,
    ) -> None:
        self.sessions: dict[S, None] = {}
        self._most = most
        self._is_known = is_known
        self._host_of = host_of
        self._kind = kind
        # Those that had asked for nothing when they were last looked at; the oldest first.
        self._strangers: dict[S, None] = {}
        self._full = Recent(clock)

    @property
    def problem(self) -> str:
        """Why connections are closed, or were within the last seconds; "" if there is room for more."""
        if len(self.sessions) < self._most:
            return self._full.last
        text = f"{self._most} {self._kind} are open, and no more may be: others are closed"
        if self._host_of is None or not self.sessions:
            return text
        [(host, count)] = Counter(map(self._host_of, self.sessions)).most_common(1)
        return f"{text}; {count} of them come from {host}"

    def add(self, session: S) -> S | None:
        """Add a new connection. Return the one to end, if there are too many."""
        self.sessions[session] = None
        self._strangers[session] = None
        if len(self.sessions) <= self._most:
            return None
        self._full.note(f"{self._kind} above {self._most} were closed a moment ago")
        return self._oldest_stranger()

    def discard(self, session: S) -> None:
        """Remove a connection that has ended."""
        self.sessions.pop(session, None)
        self._strangers.pop(session, None)

    def _oldest_stranger(self) -> S:
        """Return the connection to end. The new one is the last of the strangers, so there is always one."""
        while True:
            session = next(iter(self._strangers))
            del self._strangers[session]
            if not self._is_known(session):
                return session
