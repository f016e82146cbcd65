"""The short way of plain requests: a lane of the kernel takes them, and their answers wait until they are safe.

    chunk of a connection ── prepare: has a rule changed? ── kernel/lanes.py takes plain sends ── park
    the turn's end ── answers made at once, and sent ── or held until the messages are safe

All rules are on the long way, where a handler opens the lane of a topic. Before each chunk the rules are compared with
those under which the lanes were opened; if one has changed, all lanes are closed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from sparrowmq.errors import NotSafeInTime
from sparrowmq.kernel.lanes import SEND_BATCH_CODE, SEND_CODE, Lanes, Parked, Sender
from sparrowmq.kernel.pulls import Pull, PullLanes
from sparrowmq.loop.durability import Durability
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.fields import quote
from sparrowmq.remoting.request_dispatch import Burst, Dispatcher, reason_of
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

    def answer(self, session: Session, pulls: list[Pull], are_late: bool) -> tuple[list[Pull], list[Command]]:
        """Do `ShortWay.answer_pulls`."""


class PlainSends:
    """The short way of one broker.

    Args:
        log: gets the messages.
        durability: returns what their answers wait for.
        rules: returns what a lane relies on; another value after each change. None: no request may take a lane now.
        note_received: counts messages.
    """

    def __init__(
        self,
        lanes: Lanes,
        log: Log,
        durability: Callable[[], Durability],
        rules: Callable[[], object | None],
        note_received: Callable[[int], None],
        dispatcher: Dispatcher,
        pulls: Pulls,
    ) -> None:
        self._pulls = pulls
        self._lanes = lanes
        self._log = log
        self._durability = durability
        self._rules = rules
        self._rules_of_lanes: object = None
        self._note_received = note_received
        self._dispatcher = dispatcher

    def admit(self, session: Session) -> None:
        """Let later requests of a connection take lanes."""
        session.short_way, session.sender = self, Sender(self._lanes, self._pulls.lanes, session.host)

    def prepare(self) -> bool:
        takes_pulls = self._pulls.prepare()
        return self._prepare_sends() or takes_pulls

    def _prepare_sends(self) -> bool:
        if not self._lanes.open_count:
            return False
        rules = self._rules()
        if rules != self._rules_of_lanes or rules is None:
            self._lanes.close()
            self._rules_of_lanes = rules
            return False
        self._log.prepare_burst()
        return True

    def answer_pulls(self, session: Session, pulls: list[Pull], are_late: bool) -> tuple[list[Pull], list[Command]]:
        return self._pulls.answer(session, pulls, are_late)

    def park(self, session: Session) -> None:
        self._log.begin_prepared_burst()
        session.turn.answer(partial(self._answer, session))

    def _answer(self, session: Session) -> None:
        assert session.sender is not None
        parked, durability = session.sender.take_parked(), self._durability()
        self._note_received(parked.message_count)
        # The replies are made now, while the disk is busy, and not later, when the peer waits only for them.
        replies, latencies = parked.replies(), self._dispatcher.latencies
        burst = None if latencies is None else Burst(session, latencies)
        if durability.holds(parked.end):
            session.write([replies] if replies else [])
            if burst is not None:
                burst.count(_codes(parked), burst.written)
        else:
            session.hold(parked.count)
            durability.when(parked.end, partial(self._answer_later, session, parked, replies, burst))

    def _answer_later(
        self, session: Session, parked: Parked, replies: bytes, burst: Burst | None, error: BaseException | None
    ) -> None:
        session.hold(-parked.count)
        code = 0
        if error is not None:
            code, replies = self._refuse(session, parked, error)
        session.write([replies] if replies else [])
        if burst is not None:
            burst.count(_codes(parked), burst.now(), code)

    def _refuse(self, session: Session, parked: Parked, error: BaseException) -> tuple[int, bytes]:
        """The code and the answers for messages that were written, and are not as safe as promised."""
        if isinstance(error, NotSafeInTime):
            self._dispatcher.refused[reason_of(error)] += parked.count
            return error.code, parked.replies(error.code, quote(str(error)))
        reply = self._dispatcher.reply_to_error(error, Command(SEND_CODE), session)
        remark = b"" if reply.remark is None else quote(reply.remark)
        return reply.code, parked.replies(reply.code, remark, False)


def _codes(parked: Parked) -> list[tuple[int, int]]:
    counts = (SEND_CODE, parked.count - parked.batch_count), (SEND_BATCH_CODE, parked.batch_count)
    return [(code, count) for code, count in counts if count]
