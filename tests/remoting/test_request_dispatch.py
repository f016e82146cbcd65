"""From a request to its handler, from the handler's result to the reply."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ClassVar

import pytest

from sparrowmq.errors import (
    ClientClosed,
    ConfigError,
    ConnectionClosed,
    DiskFull,
    NotSafeInTime,
    RemoteError,
    RequestTimeout,
    StoreFailed,
)
from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.loop.durability import Durability, Requirement
from sparrowmq.loop.turn import Turn
from sparrowmq.loop.watermark import Watermark
from sparrowmq.protocol.requests.bodies import TopicList
from sparrowmq.protocol.requests.headers import LitePullMessage, PullMessage, PullMessageReply
from sparrowmq.protocol.requests.request_table import ROWS, Role, Row
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.header import NoFields, Request
from sparrowmq.remoting.budget import BudgetLimits, SessionLimits
from sparrowmq.remoting.handler import PendingReply, Reply, ReplyWhenDurable, handles
from sparrowmq.remoting.latencies import Latencies
from sparrowmq.remoting.peer import Peer
from sparrowmq.remoting.request_dispatch import Dispatcher
from sparrowmq.remoting.server import ServerLimits
from sparrowmq.remoting.session import Session
from sparrowmq.testing.clock import ManualClock
from tests.remoting.conftest import Serve


def pull(offset: int = 0) -> PullMessage:
    return PullMessage("g", "t", 1, offset, 32, 6, 0, 15000, 17)


class Pulls:
    """Answers in whatever way a test wants."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    @handles(PullMessage)
    def pull(self, header: PullMessage, body: bytes, peer: Peer) -> object:
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer() if callable(self._answer) else self._answer


def dispatcher(answer: object, **options: object) -> Dispatcher:
    return Dispatcher(Role.NOBODY, [Pulls(answer)], asyncio.ensure_future, **options)  # type: ignore[arg-type]


HEADER = PullMessageReply(0, 8, 0, 9)


async def test_a_header_is_success(serve: Serve) -> None:
    async with serve(dispatcher(HEADER)) as (_, session):
        response = await session.call(pull())
    assert (response.code, response.header, response.remark) == (0, HEADER, None)


async def test_an_answer_has_code_remark_and_body(serve: Serve) -> None:
    async with serve(dispatcher(Reply(19, HEADER, "NOT YET", b"x"))) as (_, session):
        response = await session.call(pull(), accept={19})
    assert (response.code, response.header, response.remark, response.body) == (19, HEADER, "NOT YET", b"x")


@pytest.mark.parametrize("waits", [False, True])
async def test_a_typed_body_is_encoded(serve: Serve, waits: bool) -> None:
    async def later() -> Reply:
        return Reply(header=HEADER, body=TopicList(["Orders"]))

    answer = later if waits else lambda: Reply(header=HEADER, body=TopicList(["Orders"]))
    async with serve(dispatcher(answer)) as (_, session):
        assert (await session.call(pull())).body == TopicList(["Orders"]).encode()


async def test_a_body_that_cannot_be_encoded_is_an_error_of_that_request_alone(serve: Serve) -> None:
    async with serve(dispatcher(Reply(header=HEADER, body=TopicList([object()])))) as (_, session):  # type: ignore[list-item]
        for _ in range(2):
            with pytest.raises(RemoteError, match=r"internal error \(TypeError\)"):
                await session.call(pull())


async def test_a_coroutine_is_awaited_without_blocking_the_connection(serve: Serve) -> None:
    gate = asyncio.Event()
    turns = iter([True, False])

    def answer() -> Awaitable[PullMessageReply] | PullMessageReply:
        async def later() -> PullMessageReply:
            await gate.wait()
            return HEADER

        return later() if next(turns) else HEADER

    async with serve(dispatcher(answer)) as (_, session):
        held = session.call(pull())
        assert (await session.call(pull())).code == 0
        assert not held.done()
        gate.set()
        assert (await held).header == HEADER


class Noted:
    """Answers at once, and notes the offsets."""

    def __init__(self, handled: list[int]) -> None:
        self._handled = handled

    @handles(PullMessage)
    def pull(self, header: PullMessage, body: bytes, peer: Peer) -> PullMessageReply:
        self._handled.append(header.queue_offset)
        return HEADER


class Gate:
    """Answers offset 0 at once, and all others when the gate opens."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.opened = asyncio.Event()

    @handles(PullMessage)
    def pull(self, header: PullMessage, body: bytes, peer: Peer) -> Awaitable[PullMessageReply] | PullMessageReply:
        self.seen.append(header.queue_offset)
        return self._later() if header.queue_offset else HEADER

    async def _later(self) -> PullMessageReply:
        await self.opened.wait()
        return HEADER


async def test_requests_whose_handlers_wait_count_among_those_that_a_peer_may_have(serve: Serve) -> None:
    gate = Gate()
    dispatch = Dispatcher(Role.NOBODY, [gate], asyncio.ensure_future)
    limits = ServerLimits(session=SessionLimits(waiting_requests=2))
    async with serve(dispatch, limits=limits) as (_, session), serve(dispatch) as (_, other):
        held = [session.call(pull(number)) for number in (1, 2, 3)]
        while len(gate.seen) < 3:
            await asyncio.sleep(0)
        held.append(session.call(pull(4)))
        for _ in range(3):
            await other.call(pull())  # meanwhile the loop has looked at every socket
        assert gate.seen == [1, 2, 3, 0, 0, 0]
        gate.opened.set()
        assert [(await future).code for future in held] == [0] * 4


@pytest.mark.parametrize(
    "limits",
    [
        ServerLimits(session=SessionLimits(waiting_bytes=1_000_000)),
        ServerLimits(together=BudgetLimits(waiting_bytes=1_000_000)),
    ],
    ids=["of one peer", "of all peers"],
)
async def test_the_bodies_of_requests_whose_handlers_wait_count_among_what_a_peer_may_have(
    serve: Serve, limits: ServerLimits
) -> None:
    gate = Gate()
    dispatch = Dispatcher(Role.NOBODY, [gate], asyncio.ensure_future)
    async with serve(dispatch, limits=limits) as (_, session), serve(dispatch) as (_, other):
        held = [session.call(pull(number), bytes(600_000)) for number in (1, 2, 3)]
        while len(gate.seen) < 2:
            await asyncio.sleep(0)
        for _ in range(3):
            await other.call(pull())
        assert gate.seen == [1, 2, 0, 0, 0]
        gate.opened.set()
        assert [(await future).code for future in held] == [0] * 3
        held = [session.call(pull(number), bytes(600_000)) for number in (4, 5)]
        assert [(await future).code for future in held] == [0] * 2


async def test_a_later_reply_costs_no_task_and_may_be_an_error(serve: Serve) -> None:
    laters = [PendingReply(), PendingReply(), PendingReply()]
    given = iter(laters)

    def broken(asked: str, is_over: bool) -> Reply | None:
        if asked == "not yet":
            return None
        raise RemoteError(17, asked)

    async with serve(dispatcher(lambda: next(given))) as (server, session):
        waiting = [session.call(pull()) for _ in laters]
        while laters[2].request is None:
            await asyncio.sleep(0)
        tasks = len(asyncio.all_tasks())
        assert tasks == 1
        assert not laters[0].is_full
        laters[0].answer(Reply(header=HEADER), None)
        assert not laters[1].attempt(broken, "not yet", False)
        assert laters[1].attempt(broken, "gone", True)
        assert (await waiting[0]).header == HEADER
        with pytest.raises(RemoteError, match="gone"):
            await waiting[1]
        session.close()
        while server.sessions:
            await asyncio.sleep(0)
        laters[2].answer(Reply(header=HEADER), None)
        with pytest.raises(ConnectionClosed):
            await waiting[2]


async def test_a_coroutine_may_return_a_later_reply(serve: Serve) -> None:
    later = PendingReply()

    async def first() -> PendingReply:
        return later

    async with serve(dispatcher(first)) as (_, session):
        waiting = session.call(pull())
        while later.request is None:
            await asyncio.sleep(0)
        later.answer(Reply(header=HEADER), None)
        assert (await waiting).header == HEADER


def promise(*marks: Watermark, clock: Clock | None = None) -> Durability:
    """What is safe once all marks are reached."""
    return Durability([Requirement(mark, 10, "on disk") for mark in marks], clock or SystemClock(), 5)


async def test_a_reply_waits_for_its_watermark_without_a_task(serve: Serve) -> None:
    mark = Watermark()
    safety = promise(mark)
    async with serve(dispatcher(lambda: ReplyWhenDurable(safety, 10, HEADER))) as (_, session):
        waiting = [session.call(pull()) for _ in range(5)]
        while not mark.waiting:
            await asyncio.sleep(0)
        tasks = len(asyncio.all_tasks())
        mark.advance(9)
        await asyncio.sleep(0.01)
        assert not any(future.done() for future in waiting)
        assert tasks == len(asyncio.all_tasks()) == 1
        mark.advance(10)
        assert [(await future).header for future in waiting] == [HEADER] * 5


async def test_replies_of_one_chunk_wait_together_for_the_last_of_them(serve: Serve) -> None:
    mark, targets = Watermark(), iter([3, 1, 2])
    safety = promise(mark)
    async with serve(dispatcher(lambda: ReplyWhenDurable(safety, next(targets), HEADER))) as (_, session):
        waiting = [session.call(pull()) for _ in range(3)]
        while not mark.waiting:
            await asyncio.sleep(0)
        assert mark.waiting == 1
        mark.advance(2)
        await asyncio.sleep(0.01)
        assert not any(future.done() for future in waiting)
        mark.advance(3)
        assert [(await future).header for future in waiting] == [HEADER] * 3


async def test_replies_of_one_turn_may_wait_for_different_things(serve: Serve) -> None:
    first, second = Watermark(), Watermark()
    answers = iter([ReplyWhenDurable(promise(first), 1, HEADER), ReplyWhenDurable(promise(second), 1, HEADER)])
    async with serve(dispatcher(lambda: next(answers))) as (_, session):
        one, other = session.call(pull()), session.call(pull())
        while not (first.waiting and second.waiting):
            await asyncio.sleep(0)
        second.advance(1)
        assert (await other).header == HEADER
        assert not one.done()
        first.advance(1)
        assert (await one).header == HEADER


async def test_what_is_safe_already_is_answered_in_the_same_turn(serve: Serve) -> None:
    async with serve(dispatcher(ReplyWhenDurable(promise(Watermark(10)), 10, HEADER))) as (_, session):
        assert (await session.call(pull())).header == HEADER


async def test_a_reply_that_waited_too_long_says_so_and_keeps_its_fields(serve: Serve) -> None:
    clock, mark = ManualClock(), Watermark()
    async with serve(dispatcher(ReplyWhenDurable(promise(mark, clock=clock), 10, HEADER))) as (_, session):
        waiting = session.call(pull(), accept={10})
        while not mark.waiting:
            await asyncio.sleep(0)
        await clock.advance(4.9)
        assert not waiting.done()
        await clock.advance(0.6)
        late = await waiting
    assert (late.code, late.header) == (10, HEADER)
    assert "was not on disk within 5 s" in (late.remark or "")
    assert mark.waiting == 0


@pytest.mark.parametrize("error", [RuntimeError("the TaskGroup is shutting down"), ClientClosed("a task has failed")])
async def test_what_waits_is_refused_when_the_server_takes_no_more_tasks(serve: Serve, error: Exception) -> None:
    async def later() -> PullMessageReply:
        return HEADER

    def spawn(waiting: object) -> asyncio.Task[None]:
        raise error

    refusing = Dispatcher(Role.NOBODY, [Pulls(later)], spawn)
    async with serve(refusing) as (_, session):
        for _ in range(2):
            with pytest.raises(RemoteError, match="is stopping") as caught:
                await session.call(pull())
            assert caught.value.code == 14


async def test_nothing_is_acknowledged_after_a_failed_sync(serve: Serve) -> None:
    mark = Watermark()
    mark.fail(StoreFailed("the disk answered EIO"))
    async with serve(dispatcher(ReplyWhenDurable(promise(mark), 10, HEADER))) as (_, session):
        with pytest.raises(RemoteError, match="EIO") as caught:
            await session.call(pull())
    assert caught.value.code == 14
    assert caught.value.retriable


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (RemoteError(17, "no such topic"), 17, "no such topic"),
        (DiskFull("no room for the next log file"), 14, "no room"),
        (RequestTimeout("1.2.3.4:5", "PullMessage", 3), 1, "did not answer"),
        (ZeroDivisionError("secret path /etc/x"), 1, r"internal error \(ZeroDivisionError\); see the log"),
    ],
)
async def test_an_error_becomes_a_reply(
    serve: Serve, error: Exception, code: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL):
        async with serve(dispatcher(error)) as (_, session):
            with pytest.raises(RemoteError, match=words) as caught:
                await session.call(pull())
    assert caught.value.code == code
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("kind", [DiskFull, ConfigError, partial(RemoteError, 209)])
async def test_an_error_names_a_file_without_its_folders(serve: Serve, kind: Callable[[str], Exception]) -> None:
    async with serve(dispatcher(kind("/srv/private/plain_acl.yml cannot be written"))) as (_, session):
        with pytest.raises(RemoteError) as caught:
            await session.call(pull())
    assert caught.value.remark == "plain_acl.yml cannot be written"


async def test_a_failing_coroutine_becomes_a_reply_too(serve: Serve) -> None:
    async def fail() -> PullMessageReply:
        raise RemoteError(16, "not allowed")

    async with serve(dispatcher(fail)) as (_, session):
        with pytest.raises(RemoteError, match="not allowed"):
            await session.call(pull())


async def test_the_guard_decides_before_the_handler(serve: Serve) -> None:
    seen: list[tuple[str, str, str]] = []

    def guard(peer: Peer, command: Command, row: Row, header: Request[Any]) -> None:
        seen.append((row.name, getattr(header, row.topic), getattr(header, row.group)))
        raise RemoteError(16, "who are you?")

    def never() -> None:
        raise AssertionError("the handler was asked")

    async with serve(dispatcher(never, guard=guard)) as (_, session):
        with pytest.raises(RemoteError, match="who are you"):
            await session.call(pull())
    assert seen == [("PULL_MESSAGE", "t", "g")]


async def test_a_request_nobody_serves_is_refused_with_the_reason(serve: Serve) -> None:
    class PopRollback(PullMessage):
        code = 200056

    class Unknown(PullMessage):
        code = 4711

    async with serve(dispatcher(HEADER)) as (_, session):
        for kind, words in (
            (LitePullMessage, "ask another"),
            (PopRollback, "no client sends"),
            (Unknown, "unknown"),
        ):
            request = kind("g", "t", 1, 0, 32, 6, 0, 15000, 17)
            with pytest.raises(RemoteError, match=words) as caught:
                await session.call(request)
            assert caught.value.code == 3


async def test_a_missing_header_field_is_named(serve: Serve) -> None:
    class Bare(Request[NoFields]):
        code: ClassVar[int] = PullMessage.code
        topic: str

    async with serve(dispatcher(HEADER)) as (_, session):
        with pytest.raises(RemoteError, match="the custom field <consumerGroup> is null"):
            await session.call(Bare("t"))


def test_a_code_with_two_handlers_is_refused() -> None:
    with pytest.raises(ValueError, match="two handlers for PULL_MESSAGE"):
        Dispatcher(Role.NOBODY, [Pulls(HEADER), Pulls(HEADER)], asyncio.ensure_future)


def test_a_role_must_serve_all_of_its_rows() -> None:
    with pytest.raises(ValueError, match="no handler for SEND_MESSAGE"):
        Dispatcher(Role.BROKER, [Pulls(HEADER)], asyncio.ensure_future)
    assert any(row.served_by & Role.BROKER for row in ROWS)


class Hands(SystemClock):
    """A clock whose elapsed time is set by hand; its timers are real."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.monotonic = lambda: self.now_s

    def takes(self, seconds: float, answer: object) -> object:
        self.now_s += seconds
        return answer


def counted(latencies: Latencies) -> list[tuple[int, bool, int, float]]:
    """Response code, whether held, how many, and seconds altogether."""
    return [(code, held, seen.count, int(seen.total) / 1e6) for _, code, held, seen in latencies.kinds()]


def measured(answer: object, hands: Hands) -> tuple[Dispatcher, Latencies]:
    dispatch = dispatcher(answer, latencies=Latencies(slow_s=1.0))
    return dispatch, dispatch.latencies


async def test_a_request_takes_from_when_it_was_read_until_it_is_answered(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    hands = Hands()
    dispatch, latencies = measured(lambda: hands.takes(0.75, HEADER), hands)
    async with serve(dispatch, clock=hands) as (_, session):
        await asyncio.gather(*(session.call(pull()) for _ in range(2)))
    assert counted(latencies) == [(0, False, 2, 0.75 + 1.5)]  # the second one waited for the first
    (line,) = caplog.messages
    assert "slow request PULL_MESSAGE of 127.0.0.1:" in line
    assert "1,500.0 ms (750.0 ms behind others of its connection, 750.0 ms handled)" in line


@pytest.mark.parametrize(("seconds", "steps"), [(0.004, {}), (0.006, {11: 1})])
async def test_a_handler_that_keeps_the_loop_for_long_is_counted(
    serve: Serve, seconds: float, steps: dict[int, int]
) -> None:
    hands = Hands()
    dispatch, latencies = measured(lambda: hands.takes(seconds, HEADER), hands)
    async with serve(dispatch, clock=hands) as (_, session):
        await session.call(pull())
    assert latencies.long_steps == steps


async def test_an_error_is_counted_under_its_own_code(serve: Serve) -> None:
    hands = Hands()
    dispatch, latencies = measured(RemoteError(24, "no"), hands)
    async with serve(dispatch, clock=hands) as (_, session):
        with pytest.raises(RemoteError):
            await session.call(pull())
    assert [(code, count) for code, _, count, _ in counted(latencies)] == [(24, 1)]


async def test_a_held_poll_is_counted_by_itself_and_is_never_slow(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    hands = Hands()

    async def hold() -> PullMessageReply:
        hands.now_s += 15
        return HEADER

    dispatch, latencies = measured(hold, hands)
    async with serve(dispatch, clock=hands) as (_, session):
        await session.call(pull())
    assert (counted(latencies), caplog.messages) == ([(0, True, 1, 15.0)], [])


async def test_a_burst_takes_until_the_last_of_it_is_safe(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BURST_S", "TURN_S"):
        monkeypatch.setattr(f"sparrowmq.remoting.budget.{name}", 10.0)
    hands, mark = Hands(), Watermark()
    safety = promise(mark)
    dispatch, latencies = measured(lambda: hands.takes(0.25, ReplyWhenDurable(safety, 1, HEADER)), hands)
    async with serve(dispatch, clock=hands) as (_, session):
        waiting = [session.call(pull()) for _ in range(4)]
        while not mark.waiting:
            await asyncio.sleep(0)
        hands.now_s += 2
        mark.advance(1)
        await asyncio.gather(*waiting)
    assert counted(latencies) == [(0, False, 4, 4 * 3.0)]
    (line,) = caplog.messages
    assert "3,000.0 ms (1,000.0 ms handled, 2,000.0 ms until it was safe); and 3 more like it" in line


async def test_what_is_not_safe_in_time_is_counted_under_the_code_that_says_so(serve: Serve) -> None:
    hands, mark = Hands(), Watermark()
    dispatch, latencies = measured(lambda: ReplyWhenDurable(promise(mark), 1, HEADER), hands)
    async with serve(dispatch, clock=hands) as (_, session):
        waiting = session.call(pull(), accept={10})
        while not mark.waiting:
            await asyncio.sleep(0)
        mark.refuse(NotSafeInTime(10, "on disk", 5))
        assert (await waiting).code == 10
    assert [(code, count) for code, _, count, _ in counted(latencies)] == [(10, 1)]


async def test_of_a_burst_the_turn_says_when_it_was_handled_and_written(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    hands, mark = Hands(), Watermark()
    safety = promise(mark)
    turns: list[Turn] = []

    class Writes(Pulls):
        @handles(LitePullMessage)
        def write(self, header: LitePullMessage, body: bytes, peer: Session) -> ReplyWhenDurable:
            turns.append(peer.turn)
            peer.turn.now = hands.monotonic
            peer.turn.write(lambda: hands.takes(0.5, None))
            hands.now_s += 0.25
            return ReplyWhenDurable(safety, 1, HEADER)

    dispatch = Dispatcher(Role.NOBODY, [Writes(HEADER)], asyncio.ensure_future, latencies=Latencies(slow_s=1.0))
    async with serve(dispatch, clock=hands) as (_, session):
        waiting = session.call(LitePullMessage("g", "t", 1, 0, 32, 6, 0, 15000, 17))
        while not mark.waiting:
            await asyncio.sleep(0)
        hands.now_s += 1
        mark.advance(1)
        await waiting
    assert (turns[0].handled_at, turns[0].written_at) == (100.25, 100.75)
    (line,) = caplog.messages
    assert "1,750.0 ms (250.0 ms handled, 500.0 ms written, 1,000.0 ms until it was safe)" in line
