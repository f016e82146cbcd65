"""The short way of plain requests: a lane of the kernel takes them, and their answers wait until they are safe.

    chunk of a connection ── prepare: has a rule changed? ── kernel/lanes.py takes plain sends and ends ── park
    the turn's end ── answers made at once, and sent ── or held until the messages are safe

All rules are on the long way, where a handler opens the lane of a topic. Before each chunk the rules are compared with
those under which the lanes were opened; if one has changed, all lanes are closed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from msgspec.json import encode as quote

from sparrowmq.errors import NotSafeInTime
from sparrowmq.kernel.lanes import END_CODE, SEND_BATCH_CODE, SEND_CODE, Lanes, Sender
from sparrowmq.kernel.pulls import Pull, PullLanes
from sparrowmq.loop.durability import Durability
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.latencies import Latencies
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
        note_taken: counts messages that were sent, and learns which transactions began and ended.
    """

    def __init__(
        self,
        lanes: Lanes,
        log: Log,
        durability: Callable[[], Durability],
        rules: Callable[[], object | None],
        note_taken: Callable[[int], None],
        dispatcher: Dispatcher,
        pulls: Pulls,
    ) -> None:
        self._pulls = pulls
        self._parked_sessions: list[Session] = []  # those whose requests lanes took in this turn
        self._lanes = lanes
        self._log = log
        self._durability = durability
        self._rules = rules
        self._rules_of_lanes: object = None
        self._note_taken = note_taken
        self._dispatcher = dispatcher

    def admit(self, session: Session) -> None:
        """Let later requests of a connection take lanes."""
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

    def answer_pulls(self, session: Session, pulls: list[Pull], are_late: bool) -> tuple[list[Pull], list[Command]]:
        return self._pulls.answer(session, pulls, are_late)

    def park(self, session: Session) -> None:
        self._log.begin_prepared_burst()
        if self._parked_sessions:
            session.turn.is_shared = True
        else:
            session.turn.answer(self._answer_all)
        self._parked_sessions.append(session)

    def _answer_all(self) -> None:
        """Answer the requests of this turn, once they are safe. They become safe together, so they wait together."""
        sessions, self._parked_sessions = self._parked_sessions, []
        latencies, durability = self._dispatcher.latencies, self._durability()
        answers = [_Answer(session, latencies) for session in sessions]
        self._note_taken(sum([answer.parked.message_count for answer in answers]))
        end = max([answer.parked.end for answer in answers])
        if durability.holds(end):
            for answer in answers:
                answer.write()
        else:
            for answer in answers:
                answer.session.hold(answer.parked.count)
            durability.when(end, partial(self._answer_later, answers))

    def _answer_later(self, answers: list[_Answer], error: BaseException | None) -> None:
        for answer in answers:
            answer.session.hold(-answer.parked.count)
            if error is not None:
                self._refuse(answer, error)
            answer.write(None if answer.burst is None else answer.burst.now())

    def _refuse(self, answer: _Answer, error: BaseException) -> None:
        """Answer messages that were written, and are not as safe as promised."""
        parked = answer.parked
        if isinstance(error, NotSafeInTime):
            self._dispatcher.refused[reason_of(error)] += parked.count
            answer.code, answer.replies = error.code, parked.replies(error.code, quote(str(error)))
            return
        reply = self._dispatcher.reply_to_error(error, Command(SEND_CODE), answer.session)
        remark = b"" if reply.remark is None else quote(reply.remark)
        answer.code, answer.replies = reply.code, parked.replies(reply.code, remark, False)


class _Answer:
    """The answers to the sends and ends of one connection in one turn."""

    __slots__ = ("burst", "code", "parked", "replies", "session")

    def __init__(self, session: Session, latencies: Latencies | None) -> None:
        assert session.sender is not None
        self.session = session
        self.parked = session.sender.take_parked()
        # The replies are made now, while the disk is busy, and not later, when the peer waits only for them.
        self.replies = self.parked.replies()
        self.code = 0
        self.burst = None if latencies is None else Burst(session, latencies)

    def write(self, safe_at: float | None = None) -> None:
        """Send the answers of messages that are safe since `safe_at`, or since they were written."""
        self.session.write([self.replies] if self.replies else [])
        if self.burst is not None:
            self.burst.count(self._counts(), self.burst.written if safe_at is None else safe_at, self.code)

    def _counts(self) -> list[tuple[int, int]]:
        """The number of requests of each code."""
        batch_count, end_count = self.parked.batch_count, self.parked.end_count
        send_count = self.parked.count - batch_count - end_count
        counts = (SEND_CODE, send_count), (SEND_BATCH_CODE, batch_count), (END_CODE, end_count)
        return [(code, count) for code, count in counts if count]
