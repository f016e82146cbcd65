"""Replies that wait until their messages are safe: one wait for all requests of a turn with the same promise.

    handler: ReplyWhenDurable ─┐                                                ┌─ safe ── Session.write
    lane: Sender.parked ───────┴─ Burst ── the turn's end: replies are encoded ─┴─ not yet ── Durability.when ── write

The appends of a turn are made safe together, so the first of them waits no longer than the last.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import Any, Final, Protocol

from msgspec.json import encode as quote

from sparrowmq.errors import NotSafeInTime
from sparrowmq.kernel.lanes import END_CODE, SEND_BATCH_CODE, SEND_CODE, Parked, Sender
from sparrowmq.loop.durability import Durability
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.header import Header
from sparrowmq.remoting.handler import Reply, ReplyWhenDurable
from sparrowmq.remoting.latencies import Latencies
from sparrowmq.remoting.session import Session

_NO_BURSTS: Final[dict[object, Any]] = {}


class ReplyToError(Protocol):
    def __call__(self, error: BaseException, command: Command, session: Session, *, times: int = 1) -> Reply:
        """Count an error that so many requests got, and return the reply to each."""


class Burst:
    """The requests of one connection in one turn that wait for the same promise, up to `end` of the log."""

    __slots__ = ("_waits", "began", "count", "end", "handled", "replies", "session", "written")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.count = 0
        self.end = 0
        self.replies: list[Any] = []
        self.began = self.handled = self.written = 0.0  # when the requests were read, and their messages written
        self._waits: list[tuple[Command, Header | None]] = []

    def add(self, command: Command, reply: ReplyWhenDurable) -> None:
        command.body = b""  # it is stored; while the disk is slow, memory would contain it twice
        self._waits.append((command, reply.reply))
        self.count += 1
        self.end = max(self.end, reply.end)

    def complete(self) -> None:
        """Make the replies, at the end of the turn: now, while the disk is busy, and not while the peer waits."""
        self.replies = self.session.encode_replies(self._waits)
        self._note_times()

    def _note_times(self) -> None:
        session, turn = self.session, self.session.turn
        self.began = session.last_read
        is_written = turn.written_at >= self.began
        self.written = turn.written_at if is_written else session.monotonic()
        self.handled = turn.handled_at if is_written else self.written

    def refuse(self, error: BaseException, reply_to_error: ReplyToError) -> int:
        """Send what to reply when the messages are not as safe as promised. Returns the code."""
        code, is_stored = 0, isinstance(error, NotSafeInTime)
        for command, header in self._waits:
            reply = reply_to_error(error, command, self.session)
            code = reply.code
            self.session.reply(command, code, header if is_stored else None, reply.remark)
        return code

    def count_codes(self) -> list[tuple[int, int]]:
        """Return the number of requests of each code."""
        return [(code, len(list(run))) for code, run in groupby([command.code for command, _ in self._waits])]


class LaneBurst(Burst):
    """The requests of one connection that lanes took in one turn. `note_taken` gets the number of their messages."""

    __slots__ = ("_note_taken", "_parked", "_sender")

    _parked: Parked

    def __init__(self, session: Session, sender: Sender, note_taken: Callable[[int], None]) -> None:
        super().__init__(session)
        self._sender = sender
        self._note_taken = note_taken

    def complete(self) -> None:
        self._parked = parked = self._sender.take_parked()
        self.count, self.end, replies = parked.count, parked.end, parked.replies()
        self.replies = [replies] if replies else []
        self._note_times()
        self._note_taken(parked.message_count)

    def refuse(self, error: BaseException, reply_to_error: ReplyToError) -> int:
        reply = reply_to_error(error, Command(SEND_CODE), self.session, times=self.count)
        remark = b"" if reply.remark is None else quote(reply.remark)
        replies = self._parked.replies(reply.code, remark, isinstance(error, NotSafeInTime))
        self.session.write([replies] if replies else [])
        return reply.code

    def count_codes(self) -> list[tuple[int, int]]:
        batch_count, end_count = self._parked.batch_count, self._parked.end_count
        send_count = self.count - batch_count - end_count
        counts = (SEND_CODE, send_count), (SEND_BATCH_CODE, batch_count), (END_CODE, end_count)
        return [(code, count) for code, count in counts if count]


class ReplyQueue:
    """The replies of one server that wait, those of its handlers and those of its lanes."""

    def __init__(self, latencies: Latencies, reply_to_error: ReplyToError) -> None:
        self._latencies = latencies
        self._reply_to_error = reply_to_error
        # The bursts of this turn, by what they wait for, and by their session; those of lanes by their `Sender`.
        self._bursts: dict[Durability, dict[object, Burst]] = {}

    def add(self, session: Session, command: Command, reply: ReplyWhenDurable) -> None:
        burst = self._bursts.get(reply.durability, _NO_BURSTS).get(session)
        if burst is None:
            burst = Burst(session)
            self._begin(session, burst, reply.durability)
        burst.add(command, reply)

    def add_lanes(
        self, session: Session, sender: Sender, durability: Durability, note_taken: Callable[[int], None]
    ) -> None:
        """Add the requests that lanes take in this turn."""
        self._begin(sender, LaneBurst(session, sender, note_taken), durability)

    def _begin(self, key: object, burst: Burst, durability: Durability) -> None:
        turn = burst.session.turn
        if self._bursts:
            turn.is_shared = True
        else:
            turn.answer(self._answer_all)
        self._bursts.setdefault(durability, {})[key] = burst

    def _answer_all(self) -> None:
        waiting, self._bursts = self._bursts, {}
        for durability, by_session in waiting.items():
            bursts = list(by_session.values())
            for burst in bursts:
                burst.complete()
            end = max([burst.end for burst in bursts])
            if durability.holds(end):
                for burst in bursts:
                    self._answer(burst, burst.written)
            else:
                for burst in bursts:
                    burst.session.hold(burst.count)
                durability.when(end, partial(self._answer_later, bursts))

    def _answer_later(self, bursts: list[Burst], error: BaseException | None) -> None:
        for burst in bursts:
            burst.session.hold(-burst.count)
            self._answer(burst, burst.session.monotonic(), error)

    def _answer(self, burst: Burst, end: float, error: BaseException | None = None) -> None:
        code, took_s = 0, end - burst.began
        if error is None:
            burst.session.write(burst.replies)
        else:
            code = burst.refuse(error, self._reply_to_error)
        counts, is_slow = burst.count_codes(), False
        for request_code, count in counts:
            is_slow = self._latencies.add(request_code, code, took_s, count) or is_slow
        if is_slow:
            steps = [("handled", burst.handled), ("written", burst.written), ("until it was safe", end)]
            self._latencies.log_slow(counts[-1][0], burst.session.address, burst.began, steps, burst.count)
