"""What the connections of a server do together in one turn of the loop."""

import asyncio
from dataclasses import dataclass, field

import pytest

from sparrowmq.protocol.requests.headers import HeartBeat, PullMessage
from sparrowmq.protocol.wire.codec import encode_request
from sparrowmq.protocol.wire.command import Command
from sparrowmq.remoting.budget import BURST_S, LEAST_BURST_S, LEAST_TURN_BYTES, TURN_S, Budget, BudgetLimits, TurnShare
from sparrowmq.remoting.server_session import ServerSession
from sparrowmq.remoting.session import Session
from sparrowmq.testing.clock import ManualClock
from tests.remoting.conftest import until
from tests.remoting.test_session import _Transport, pull

MB = 1 << 20
ANSWER_BYTES = 250_000
PULL = PullMessage.code


@dataclass(eq=False)
class Holder:
    """A connection that makes an answer of some size in each of its turns."""

    share: TurnShare
    answer_bytes: int = 0
    turns: list[object] = field(default_factory=list)

    def go_on(self) -> None:
        self.turns.append(self)
        self.share.count_answer(self.answer_bytes)


def frame(request: object, opaque: int) -> bytes:
    return encode_request(request, request.code, opaque)  # type: ignore[arg-type, attr-defined]


def sessions_of(count: int, handled: list[Command], clock: ManualClock, took_s: float = 0.0) -> list[ServerSession]:
    """Connections of one server; a pull gets a large answer, and each request takes so long."""

    def answer(session: Session, command: Command) -> None:
        handled.append(command)
        clock._elapsed_s += took_s
        session.reply(command, 0, None, None, bytes(ANSWER_BYTES) if command.code == PULL else b"")

    budget = Budget(clock, BudgetLimits(turn_bytes=4 * MB))
    made = [ServerSession(answer, clock, budget=budget) for _ in range(count)]
    for session in made:
        session.connection_made(_Transport())
    return made


async def test_pulls_of_many_connections_in_one_turn_are_answered_in_several() -> None:
    handled: list[Command] = []
    *readers, sender = sessions_of(101, handled, ManualClock())
    for number, session in enumerate(readers):
        session.data_received(frame(pull(), number))
    assert len(handled) == 4 * MB // ANSWER_BYTES + 1
    sender.data_received(frame(HeartBeat(), 1000))
    assert handled[-1].opaque == 1000, "a request with a short answer does not wait"
    most = 0
    while len(handled) < 101:
        before = len(handled)
        await asyncio.sleep(0)
        most = max(most, len(handled) - before)
    assert most <= 4 * MB // ANSWER_BYTES + 1
    assert [each.opaque for each in handled if each.code == PULL] == list(range(100))


async def test_a_short_request_does_not_pass_a_pull_of_its_connection() -> None:
    handled: list[Command] = []
    *readers, both = sessions_of(31, handled, ManualClock())
    for number, session in enumerate(readers):
        session.data_received(frame(pull(), number))
    both.data_received(frame(pull(), 100) + frame(HeartBeat(), 101))
    both.data_received(frame(HeartBeat(), 102))
    await until(lambda: len(handled) == 33)
    assert [each.opaque for each in handled if each.opaque >= 100] == [100, 101, 102]


async def test_a_connection_that_ends_while_it_waits_is_forgotten() -> None:
    handled: list[Command] = []
    readers = sessions_of(30, handled, ManualClock())
    for number, session in enumerate(readers):
        session.data_received(frame(pull(), number))
    readers[-1].connection_lost(None)
    budget = readers[0]._budget
    assert readers[-1] not in budget.turn._waiters
    await until(lambda: len(handled) == 29)


async def test_bursts_of_many_connections_share_a_turn() -> None:
    handled: list[Command] = []
    clock = ManualClock()
    *hostile, innocent = sessions_of(101, handled, clock, took_s=0.0001)
    for session in hostile:
        session.data_received(b"".join(frame(HeartBeat(), number) for number in range(10)))
    began_s = clock.monotonic()
    assert began_s - TURN_S < 100 * 0.0002 + BURST_S, "each of them has handled one or two"
    innocent.data_received(frame(HeartBeat(), 1000))
    assert handled[-1].opaque == 1000
    await until(lambda: len(handled) == 100 * 10 + 1)


async def test_those_who_wait_get_less_time_the_more_they_are() -> None:
    share = TurnShare(4 * MB)
    shares = []
    for count in (0, 1, 7, 1000):
        share._waiters = {Holder(share): lambda: None for _ in range(count)}
        share._until = 0.0
        shares.append(share.share_end_s(10.0) - 10.0)
    assert shares == pytest.approx([BURST_S, BURST_S, TURN_S / 8, LEAST_BURST_S])


def test_a_turn_is_shared_by_those_who_have_more_to_be_answered() -> None:
    share = TurnShare(4 * MB)
    shares = []
    for count in (0, 1, 8, 1000):
        share.busy = {Holder(share) for _ in range(count)}
        shares.append(share.bytes_of_one(16 * MB))
    assert shares == [4 * MB, 4 * MB, MB // 2, LEAST_TURN_BYTES]
    assert share.bytes_of_one(1000) == 1000


async def test_connections_have_their_turns_in_the_order_in_which_they_began_to_wait() -> None:
    share = TurnShare(MB)
    turns: list[object] = []
    holders = [Holder(share, MB, turns) for _ in range(5)]
    for holder in [*holders, holders[0]]:
        share.wait(holder)
    await asyncio.sleep(0)
    assert turns == holders[:1], "one answer spends a turn"
    await until(lambda: len(turns) == 5)
    assert turns == holders
