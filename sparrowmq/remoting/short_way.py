"""The short way of plain requests: a lane of the kernel takes them, and their answers wait until they are safe.

    chunk of a connection ── prepare: has a rule changed? ── kernel/lanes.py takes plain sends and ends ── park
    the turn's end ── reply_queue.py: answers made at once, and sent ── or held until the messages are safe

All rules are on the long way, where a handler opens the lane of a topic. Before each chunk the rules are compared with
those under which the lanes were opened; if one has changed, all lanes are closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sparrowmq.kernel.lanes import Lanes, Sender
from sparrowmq.kernel.pulls import Pull, PullLanes
from sparrowmq.loop.durability import Durability
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.reply_queue import ReplyQueue
from sparrowmq.remoting.server_session import ServerSession
from sparrowmq.remoting.session import Session


class Log(Protocol):
    def prepare_burst(self) -> None:
        """Get ready for messages: what lanes add has this time."""

    def begin_prepared_burst(self) -> None:
        """Messages were added after `prepare_burst`."""


class Pulls(Protocol):
    """The short way of pulls (broker/short_pulls.py)."""

    lanes: PullLanes

    def prepare(self) -> bool:
        """Compare the rules. Returns whether pulls may take the short way."""

    def answer(self, session: ServerSession, pulls: list[Pull], are_late: bool) -> tuple[list[Pull], list[Command]]:
        """Do `ShortWay.answer_pulls`."""


class PlainSends:
    """The short way of one broker.

    Args:
        log: gets the messages.
        durability: returns what their answers wait for.
        rules: returns what a lane relies on; another value after each change. None: no request may take a lane now.
        note_taken: counts messages that were sent, and learns which transactions began and ended.
    """

    def __init__(
        self,
        lanes: Lanes,
        log: Log,
        durability: Callable[[], Durability],
        rules: Callable[[], object | None],
        note_taken: Callable[[int], None],
        replies: ReplyQueue,
        pulls: Pulls,
    ) -> None:
        self._pulls = pulls
        self._lanes = lanes
        self._log = log
        self._durability = durability
        self._rules = rules
        self._rules_of_lanes: object = None
        self._note_taken = note_taken
        self._replies = replies

    def admit(self, session: Session) -> None:
        """Let later requests of a connection take lanes."""
        assert isinstance(session, ServerSession)
        session.short_way, session.sender = self, Sender(self._lanes, self._pulls.lanes, session.host)

    def prepare(self) -> bool:
        takes_pulls = self._pulls.prepare()
        if not self._lanes.open_count:
            return takes_pulls
        rules = self._rules()
        if rules is None or rules != self._rules_of_lanes:
            self._lanes.close()
            self._rules_of_lanes = rules
            return takes_pulls
        self._log.prepare_burst()
        return True

    def answer_pulls(
        self, session: ServerSession, pulls: list[Pull], are_late: bool
    ) -> tuple[list[Pull], list[Command]]:
        return self._pulls.answer(session, pulls, are_late)

    def park(self, session: ServerSession) -> None:
        assert session.sender is not None
        self._log.begin_prepared_burst()
        self._replies.add_lanes(session, session.sender, self._durability(), self._note_taken)
