"""One TCP connection: calls, pushes, back-pressure, ends."""

import asyncio
from typing import Any

import pytest

from sparrowmq.errors import ConnectionClosed, RemoteError, RemoteProtocolError, RequestTimeout
from sparrowmq.loop.turn import Turn
from sparrowmq.protocol.requests.headers import PullMessage, PullMessageReply
from sparrowmq.protocol.wire.codec import encode_reply, encode_request
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.frame import LARGE_FRAME_BYTES, FrameLimits
from sparrowmq.remoting.budget import Budget, BudgetLimits, SessionLimits
from sparrowmq.remoting.request_in_flight import Response
from sparrowmq.remoting.server import ServerLimits
from sparrowmq.remoting.server_session import _MAX_WHOLE_FRAMES_BYTES, ServerSession
from sparrowmq.remoting.session import Dispatch, Session
from sparrowmq.testing.clock import ManualClock
from tests.remoting.conftest import Serve, until


def pull(offset: int = 0) -> PullMessage:
    return PullMessage("g", "t", 1, offset, 32, 6, 0, 15000, 17)


def echo(session: Session, command: Command) -> None:
    offset = command.header(PullMessage).queue_offset
    session.reply(command, 0, PullMessageReply(0, offset, 0, 0), "FOUND", command.body)


async def test_a_call_returns_header_remark_and_body(serve: Serve) -> None:
    async with serve(echo) as (_, session):
        response = await session.call(pull(7), b"body")
    assert (response.header.next_begin_offset, response.remark, response.body) == (7, "FOUND", b"body")
    assert response.version == 409


async def test_a_thousand_calls_in_flight_each_get_their_own_answer(serve: Serve) -> None:
    async with serve(echo) as (_, session):
        responses = await asyncio.gather(*[session.call(pull(number)) for number in range(1000)])
    assert [response.header.next_begin_offset for response in responses] == list(range(1000))


async def test_a_large_body_goes_both_ways(serve: Serve) -> None:
    body = bytes(range(256)) * 16_000
    async with serve(echo) as (_, session):
        assert (await session.call(pull(), body)).body == body


async def test_views_are_sent_one_after_the_other(serve: Serve) -> None:
    def views(session: Session, command: Command) -> None:
        session.reply(command, 0, PullMessageReply(0, 0, 0, 0), None, [memoryview(b"one"), memoryview(b"two")])

    async with serve(views) as (_, session):
        assert (await session.call(pull())).body == b"onetwo"


async def test_an_error_code_is_raised_with_its_remark(serve: Serve) -> None:
    async with serve(lambda session, command: session.reply(command, 17, None, "no such topic")) as (
        _,
        session,
    ):
        with pytest.raises(RemoteError, match="no such topic") as caught:
            await session.call(pull())
        assert caught.value.code == 17
        assert caught.value.retriable


async def test_an_accepted_code_is_an_answer(serve: Serve) -> None:
    def moved(session: Session, command: Command) -> None:
        session.reply(command, 21, PullMessageReply(0, 5, 5, 9))

    async with serve(moved) as (_, session):
        response = await session.call(pull(), accept={19, 21})
    assert (response.code, response.header.next_begin_offset) == (21, 5)


async def test_no_answer_in_time_is_a_timeout_that_names_the_request(serve: Serve) -> None:
    async with serve(lambda session, command: None) as (_, session):
        with pytest.raises(RequestTimeout, match=r"PullMessage within 0\.05 s"):
            await session.call(pull(), timeout_s=0.05)


async def test_a_client_reads_answers_before_it_judges_requests_after_a_pause() -> None:
    clock, transport = ManualClock(), _Transport()
    session, peer = ServerSession(echo, clock), _Transport()
    session.connection_made(transport)
    asked = session.call(pull(4), timeout_s=3)
    await clock.advance(2)
    await clock.pause(60)
    assert not session.is_mute
    other = ServerSession(echo, clock)
    other.connection_made(peer)
    other.data_received(b"".join(transport.events))
    await clock.advance()
    session.data_received(b"".join(peer.events))
    assert (await asked).header.next_begin_offset == 4
    late = session.call(pull(), timeout_s=3)
    await clock.pause(60)
    await clock.advance(0.2)
    with pytest.raises(RequestTimeout):
        await late


async def test_an_answer_that_nobody_waits_for_any_more_harms_nobody(serve: Serve) -> None:
    async with serve(echo) as (_, session):
        given_up = session.call(pull(1))
        given_up.cancel()
        assert (await session.call(pull(2))).header.next_begin_offset == 2
        assert not session.closed


async def test_a_closed_connection_fails_whoever_waits_and_whoever_comes_later(serve: Serve) -> None:
    async with serve(lambda session, command: session.close()) as (_, session):
        with pytest.raises(ConnectionClosed):
            await session.call(pull())
        assert session.closed
        with pytest.raises(ConnectionClosed):
            await session.call(pull())
        session.tell(pull())


class Told:
    """Whom a session tells how requests ended."""

    def __init__(self) -> None:
        self.ends: list[tuple[Response[Any] | None, Exception | None]] = []

    def __call__(self, answer: Response[Any] | None, error: Exception | None) -> None:
        self.ends.append((answer, error))


async def test_who_asks_is_told_of_answers_and_errors(serve: Serve) -> None:
    def odd_ones_fail(session: Session, command: Command) -> None:
        if command.header(PullMessage).queue_offset % 2:
            session.reply(command, 17, None, "odd")
        else:
            echo(session, command)

    told = Told()
    async with serve(odd_ones_fail) as (_, session):
        for number in range(4):
            session.ask(pull(number), b"body", told, timeout_s=3)
        assert told.ends == []
        await until(lambda: len(told.ends) == 4)
    assert [answer and answer.header.next_begin_offset for answer, _ in told.ends] == [0, None, 2, None]
    assert [str(error) for _, error in told.ends if error] == ["the peer answered with code 17: odd"] * 2


async def test_who_asks_is_told_that_no_answer_came_in_time(serve: Serve) -> None:
    told = Told()
    async with serve(lambda session, command: None) as (_, session):
        session.ask(pull(), b"", told, timeout_s=0.05)
        await until(lambda: told.ends)
    assert isinstance(told.ends[0][1], RequestTimeout)


async def test_who_asks_is_told_of_an_end_before_and_after(serve: Serve) -> None:
    told = Told()
    async with serve(lambda session, command: session.close()) as (_, session):
        session.ask(pull(), b"", told, timeout_s=3)
        await until(lambda: told.ends)
        session.ask(pull(), b"", told, timeout_s=3)
        assert len(told.ends) == 1
        await until(lambda: len(told.ends) == 2)
    assert all(isinstance(error, ConnectionClosed) for _, error in told.ends)


async def test_who_is_told_of_an_answer_and_fails_harms_nobody_else(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(answer: Response[Any] | None, error: Exception | None) -> None:
        raise ValueError("a fault of the program's")

    async with serve(echo) as (_, session):
        session.ask(pull(1), b"", fail, timeout_s=3)
        assert (await session.call(pull(2))).header.next_begin_offset == 2
    assert "the callback for the reply to PullMessage failed" in caplog.text


async def test_a_reply_without_its_fields_is_the_peers_fault(serve: Serve) -> None:
    async with serve(lambda session, command: session.reply(command)) as (_, session):
        with pytest.raises(RemoteProtocolError, match="suggestWhichBrokerId"):
            await session.call(pull())


async def test_a_server_pushes_before_it_answers(serve: Serve) -> None:
    pushed: list[int] = []

    def push_first(session: Session, command: Command) -> None:
        session.tell(pull(99))
        echo(session, command)

    def on_push(session: Session, command: Command) -> None:
        pushed.append(command.header(PullMessage).queue_offset)

    async with serve(push_first, pushed=on_push) as (_, session):
        await session.call(pull())
    assert pushed == [99]


async def test_a_oneway_request_is_not_answered(serve: Serve) -> None:
    seen: list[Command] = []

    def record(session: Session, command: Command) -> None:
        seen.append(command)
        echo(session, command)

    async with serve(record) as (_, session):
        session.tell(pull())
        await session.call(pull(1))
    assert [command.is_oneway for command in seen] == [True, False]


async def test_bytes_that_are_no_frame_end_only_their_own_connection(serve: Serve) -> None:
    async with serve(echo) as (server, session):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        assert (await session.call(pull(3))).header.next_begin_offset == 3


async def test_reading_stops_while_too_many_requests_wait() -> None:
    clock = ManualClock()
    limits = SessionLimits(waiting_requests=2)
    session = ServerSession(lambda session, command: None, clock, limits)
    transport = _Transport()
    session.connection_made(transport)
    for _ in range(3):
        session.hold(1)
    assert transport.paused
    session.hold(-1)
    assert not transport.paused


async def test_who_waits_for_an_answer_goes_on_reading() -> None:
    session, transport = _connected(lambda session, command: None)
    session.pause_writing()
    assert transport.paused and session.is_backed_up
    answer = session.call(pull())
    assert not transport.paused
    session.resume_writing()
    assert not session.is_backed_up
    answer.cancel()


async def test_reading_goes_on_only_when_no_reason_to_stop_holds_any_more() -> None:
    session, transport = _connected(lambda session, command: None, SessionLimits(waiting_requests=0))
    session.hold(1)
    session.pause_writing()
    session.hold(-1)
    assert transport.paused
    session.hold(1)
    session.resume_writing()
    assert transport.paused
    answer = session.call(pull())
    assert transport.paused
    session.hold(-1)
    assert not transport.paused
    answer.cancel()


async def test_a_large_frame_that_ends_before_it_has_room_stops_reading_no_longer() -> None:
    clock = ManualClock()
    budget = Budget(clock, BudgetLimits(frame_bytes=2 * LARGE_FRAME_BYTES))
    size = 2 * LARGE_FRAME_BYTES - 1000
    frame = encode_request(pull(), PullMessage.code, 5, size, oneway=True) + bytes(size)
    sessions = [ServerSession(lambda session, command: None, clock, budget=budget) for _ in range(2)]
    transports = [_Transport(), _Transport()]
    for session, transport in zip(sessions, transports, strict=True):
        session.connection_made(transport)
        session.data_received(frame[: LARGE_FRAME_BYTES + 1])
    assert [each.paused for each in transports] == [False, True]
    sessions[1].data_received(frame[LARGE_FRAME_BYTES + 1 :])  # it was read before reading stopped
    assert not transports[1].paused


async def test_reading_stops_while_the_peer_does_not_read_our_answers(serve: Serve) -> None:
    handled = 0

    def big(session: Session, command: Command) -> None:
        nonlocal handled
        handled += 1
        session.reply(command, 0, PullMessageReply(0, 0, 0, 0), None, bytes(200_000))

    limits = ServerLimits(session=SessionLimits(FrameLimits(), 10_000, 500_000))
    async with serve(big, limits=limits) as (server, session):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**16)
        template = ServerSession(lambda s, c: None, ManualClock())
        frames = b"".join(template._wire.request(pull(), b"", None)[1] for _ in range(1))  # type: ignore[arg-type]
        for _ in range(2000):
            writer.write(frames)
            await writer.drain()
            if handled and handled < writer.transport.get_write_buffer_size():
                break
        await session.call(pull())  # The server still serves others...
        assert handled < 2000  # ...and did not handle all that the slow reader asked.
        writer.transport.abort()


async def test_requests_behind_answers_that_nobody_reads_wait_and_come_in_order(serve: Serve) -> None:
    handled: list[int] = []

    def big(session: Session, command: Command) -> None:
        handled.append(command.header(PullMessage).queue_offset)
        session.reply(command, 0, PullMessageReply(0, handled[-1], 0, 0), None, [memoryview(bytes(300_000))])

    async with serve(big) as (server, session):
        session._transport.pause_reading()  # type: ignore[union-attr]
        calls = [session.call(pull(number), timeout_s=60) for number in range(600)]
        await until(lambda: any(peer.is_backed_up for peer in server.sessions))
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(handled) < 60  # what the system's buffers and two turns take
        assert server.budget.turn.busy
        session._transport.resume_reading()  # type: ignore[union-attr]
        answers = await asyncio.gather(*calls)
        assert not server.budget.turn.busy
    assert [answer.header.next_begin_offset for answer in answers] == list(range(600)) == handled
    assert {len(answer.body) for answer in answers} == {300_000}


async def test_a_connection_that_ends_gives_back_its_share_of_what_all_may_hold(serve: Serve) -> None:
    def big(session: Session, command: Command) -> None:
        session.reply(command, 0, None, None, bytes(300_000))

    async with serve(big) as (server, session):
        session._transport.pause_reading()  # type: ignore[union-attr]
        for number in range(300):
            session.call(pull(number)).cancel()
        await until(lambda: server.budget._unread_bytes)
        assert server.budget.turn.busy
        session.abort()
        await until(lambda: not server.sessions)
        assert (server.budget.turn.busy, server.budget._unread_bytes) == (set(), 0)


async def test_a_peer_that_reads_again_gives_back_its_share_of_what_all_may_hold(serve: Serve) -> None:
    def big(session: Session, command: Command) -> None:
        session.reply(command, 0, None, None, bytes(300_000))

    async with serve(big) as (server, session):
        session._transport.pause_reading()  # type: ignore[union-attr]
        for number in range(300):
            session.call(pull(number)).cancel()
        await until(lambda: server.budget._unread_bytes)
        session._transport.resume_reading()  # type: ignore[union-attr]
        await until(lambda: not server.budget._unread_bytes)
        assert len(server.sessions) == 1


async def test_requests_are_decoded_in_portions_but_handled_in_one_turn_if_there_is_time() -> None:
    seen: list[int] = []
    limits = SessionLimits(FrameLimits(at_once=64))
    session = ServerSession(lambda session, command: seen.append(command.opaque), ManualClock(), limits)
    session.connection_made(_Transport())
    session.data_received(
        b"".join(encode_request(pull(), PullMessage.code, number, oneway=True) for number in range(1000))
    )
    assert seen == list(range(1000))


async def test_requests_that_take_long_wait_for_the_next_turn_of_the_loop() -> None:
    seen: list[int] = []
    clock = ManualClock()
    session = ServerSession(lambda session, command: work(command), clock)
    session.connection_made(_Transport())

    def work(command: Command) -> None:
        seen.append(command.opaque)
        clock._elapsed_s += 0.002

    session.data_received(
        b"".join(encode_request(pull(), PullMessage.code, number, oneway=True) for number in range(100))
    )
    assert 0 < len(seen) < 3
    others: list[int] = []
    asyncio.get_running_loop().call_soon(lambda: others.append(len(seen)))
    await until(lambda: len(seen) == 100)
    assert seen == list(range(100)) and others[0] < 6


async def test_a_reply_is_taken_though_requests_before_it_wait() -> None:
    handled: list[int] = []

    def big(session: Session, command: Command) -> None:
        handled.append(command.opaque)
        session.reply(command, 0, None, None, bytes(600_000))

    session, transport = _connected(big, SessionLimits(unsent_bytes=500_000))
    waits = session.call(pull())
    asked = encode_request(pull(), PullMessage.code, 5)
    reply = encode_reply(Command(code=11, opaque=1), 0, PullMessageReply(0, 7, 0, 0))
    session.data_received(asked * 3 + reply)
    assert (await waits).header.next_begin_offset == 7
    assert not any(transport.events), "no answer has been written when the reply is taken"
    session.data_received(encode_request(pull(), PullMessage.code, 6))
    await until(lambda: len(handled) == 4)
    assert handled == [5, 5, 5, 6]


async def test_a_peer_with_requests_that_wait_is_not_read_from() -> None:
    def big(session: Session, command: Command) -> None:
        session.reply(command, 0, None, None, bytes(600_000))

    session, transport = _connected(big, SessionLimits(unsent_bytes=500_000))
    session.data_received(encode_request(pull(), PullMessage.code, 5) * 3)
    assert transport.paused
    await until(lambda: sum(map(len, transport.events)) >= 1_800_000)
    assert not transport.paused
    assert max(map(len, transport.events)) <= 500_000 + 200


async def test_a_flood_of_requests_is_not_read_though_we_wait_for_an_answer() -> None:
    def work(session: Session, command: Command) -> None:
        session._clock._elapsed_s += 0.002  # type: ignore[attr-defined]

    session, transport = _connected(work, SessionLimits(FrameLimits(at_once=10)))
    session.call(pull())
    one = encode_request(pull(), PullMessage.code, 5, oneway=True)
    session.data_received(one * (_MAX_WHOLE_FRAMES_BYTES // len(one) - 20))
    assert not transport.paused
    session.data_received(one * 100)
    assert transport.paused
    await until(lambda: not transport.paused)


class _Slow(asyncio.Transport):
    """As a socket whose peer reads now and then: it tells when it is full, perhaps in the midst of a write."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.session: Session
        self.high = self.waiting = self.taken = 0
        self.is_full = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.waiting += len(data)
        if self.waiting > self.high and not self.is_full:
            self.is_full = True
            self.session.pause_writing()

    def drain(self) -> None:
        """The peer reads all that there is."""
        self.taken += self.waiting
        self.waiting = 0
        if self.is_full:
            self.is_full = False
            self.session.resume_writing()


@pytest.mark.parametrize(("count", "size"), [(4, 1 << 20), (870, 1000), (870, 3000)])
async def test_a_peer_that_reads_slowly_gets_every_answer(count: int, size: int) -> None:
    handled: list[int] = []

    def answer(session: Session, command: Command) -> None:
        handled.append(command.opaque)
        session.reply(command, 0, None, None, bytes(size))

    transport = _Slow()
    limits = SessionLimits(FrameLimits(at_once=256), unsent_bytes=512 * 1024)
    transport.session = session = ServerSession(answer, ManualClock(), limits)
    session.connection_made(transport)
    requests = [encode_request(pull(), PullMessage.code, opaque) for opaque in range(count)]
    session.data_received(b"".join(requests))
    for _ in range(200):
        for _ in range(20):
            await asyncio.sleep(0)
        transport.drain()
    assert handled == list(range(count))
    assert transport.taken > count * size


async def test_a_peer_that_was_gone_before_it_was_accepted_is_forgotten() -> None:
    class Gone(_Transport):
        aborted = False

        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return None

        def abort(self) -> None:
            self.aborted = True

    transport = Gone()
    begun: list[Session] = []
    ServerSession(echo, ManualClock(), on_begin=begun.append).connection_made(transport)
    assert transport.aborted and not begun


async def test_answers_stay_unjoined_while_the_peer_does_not_read() -> None:
    session, transport = _connected(echo)
    session.pause_writing()
    for opaque in range(3):
        session.reply(Command(code=11, opaque=opaque), 0, None, None, [memoryview(bytes(100_000))])
        await asyncio.sleep(0)
    assert not transport.events
    session.resume_writing()
    await asyncio.sleep(0)
    assert sum(map(len, transport.events)) > 300_000


async def test_closing_sends_what_was_answered_while_the_peer_did_not_read() -> None:
    session, transport = _connected(echo)
    session.pause_writing()
    session.reply(Command(code=11, opaque=1), 0, None, "the last words")
    session.close()
    assert b"the last words" in b"".join(transport.events) and transport.closed


async def test_no_answer_leaves_before_what_the_turn_writes() -> None:
    turn, transport = Turn(), _Transport()

    def store_and_reply(session: Session, command: Command) -> None:
        turn.write(lambda: transport.events.append("stored"))
        session.reply(command, 0, None, "stored before this")

    session = ServerSession(store_and_reply, ManualClock(), turn=turn)
    session.connection_made(transport)
    session.reply(Command(code=11, opaque=1), 0, None, "an earlier answer")  # asks for its step first
    session.data_received(encode_request(pull(), PullMessage.code, 2))
    while len(transport.events) < 2:
        await asyncio.sleep(0)
    first, written = transport.events
    assert first == "stored"
    assert b"an earlier answer" in written and b"stored before this" in written


class _Transport(asyncio.Transport):
    """Only what these tests need; the kernel's buffers would make the moment depend on the machine."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.paused = self.closed = False
        self.events: list[Any] = []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.events.append(bytes(data))


def _connected(dispatch: Dispatch, limits: SessionLimits | None = None) -> tuple[Session, _Transport]:
    session, transport = ServerSession(dispatch, ManualClock(), limits), _Transport()
    session.connection_made(transport)
    return session, transport
