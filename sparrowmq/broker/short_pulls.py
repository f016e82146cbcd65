"""The short way of plain pulls: which of them may take a lane of the kernel, and what happens beside the read.

    chunk ── prepare: has a rule changed? ── kernel/pulls.py takes plain pulls ── answer ── one write for all of them
                     └─ pulls that took the long way: PullHandler.lane, which checks as that did ── their lanes open

A pull that cannot be answered at once takes the long way after all, and so do those behind it.
"""

from __future__ import annotations

from collections.abc import Callable

from sparrowmq.broker.handlers.pull_handler import PullHandler
from sparrowmq.errors import SparrowError
from sparrowmq.kernel.pulls import PULL_CODE, Pull, PullAnswers, PullLanes
from sparrowmq.protocol.requests.headers import PullMessage
from sparrowmq.protocol.wire import codec
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.frame import Serializer
from sparrowmq.remoting.latencies import LONG_STEP_S, Latencies
from sparrowmq.remoting.request_dispatch import Dispatcher
from sparrowmq.remoting.server_session import ServerSession
from sparrowmq.store.queues.plain_reading import QueueLane

_JSON = int(Serializer.JSON)


class PlainPulls:
    """The short way of pulls of one broker.

    Args:
        rules: returns what a lane relies on; another value after each change. None: no request may take a lane now.
    """

    def __init__(self, handler: PullHandler, rules: Callable[[], object | None], dispatcher: Dispatcher) -> None:
        self.lanes = PullLanes()
        self._handler = handler
        self._rules = rules
        self._rules_of_lanes: object = None
        self._dispatcher = dispatcher

    def prepare(self) -> bool:
        lanes, rules = self.lanes, self._rules()
        if rules != self._rules_of_lanes or rules is None:
            lanes.close()
            self._rules_of_lanes = rules
            lanes.is_open = rules is not None
        elif lanes.unknown:
            for shape, header in list(lanes.unknown.items()):
                lanes.open(shape, self._lane_of(header))
            lanes.unknown.clear()
        return lanes.is_open

    def answer(self, session: ServerSession, pulls: list[Pull], are_late: bool) -> tuple[list[Pull], list[Command]]:
        """Answer pulls. Returns those that wait for room, or else those that take the long way."""
        answers, handler, latencies = PullAnswers(), self._handler, self._dispatcher.latencies
        if are_late:
            self.prepare()
        began = session.monotonic()
        is_allowed = session.dispatch == self._dispatcher  # not at the broker's second port
        count, room = 0, session.answer_room
        waiting: list[Pull] = []
        for pull in pulls if is_allowed else ():
            if answers.size > room:
                waiting = pulls[count:]
                break
            if not pull.lane.is_open or not handler.answer_plain(pull, answers):
                break
            count += 1
        if count:
            session.write_answers(answers.take())
            self._count(session, count, began, latencies)
        return waiting, [] if waiting else [codec.decode(_JSON, pull.header, b"") for pull in pulls[count:]]

    def _count(self, session: ServerSession, count: int, began: float, latencies: Latencies) -> None:
        now = session.monotonic()
        if now - began > LONG_STEP_S:
            latencies.add_long_step(PULL_CODE)
        if latencies.add(PULL_CODE, 0, now - session.last_read, count):
            latencies.log_slow(PULL_CODE, session.address, session.last_read, [("handled", now)], count)

    def _lane_of(self, header: bytes) -> QueueLane | None:
        """The lane of pulls like one that took the long way; None if they need it."""
        try:
            command = codec.decode(_JSON, header, b"")
            if command.code != PULL_CODE or command.flag:
                return None
            return self._handler.lane(command.header(PullMessage))
        except SparrowError:
            return None
