"""A client's connection to a broker: answers, pushes, and ends."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from sparrowmq.errors import BrokerUnreachable, ConnectionClosed, RequestTimeout
from sparrowmq.loop.clock import SystemClock
from sparrowmq.loop.tasks import Background
from sparrowmq.mqproxy import broker_link as links
from sparrowmq.mqproxy.broker_link import BrokerLink, connect
from sparrowmq.protocol.requests.headers import GetMaxOffset, NotifyConsumerIdsChanged
from sparrowmq.protocol.wire import codec
from sparrowmq.protocol.wire.codec import encode_reply, encode_request
from sparrowmq.protocol.wire.command import Command
from sparrowmq.protocol.wire.frame import FrameReader
from tests.broker.live import pull_request
from tests.mqproxy.remoting.proxied import until

CLOCK = SystemClock()


QUESTION = GetMaxOffset("orders", 0)


def asked(request=QUESTION):
    (parts,) = FrameReader().feed(encode_request(request, request.code, 7))
    return codec.decode(*parts)


@asynccontextmanager
async def linked(serve, is_full=lambda: False):
    """A link to a server, and the requests that the server has sent."""
    pushed = []
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, Background() as tasks:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        streams = await connect(address, None, CLOCK)
        link = BrokerLink("broker-a", address, streams, CLOCK, lambda _, command: pushed.append(command))
        tasks.spawn(link.read(is_full))
        yield link, pushed
        link.close()


def answering(*remarks):
    """A server that answers the requests in reverse."""

    async def serve(reader, writer):
        frames = FrameReader()
        got: list[Command] = []
        while len(got) < len(remarks):
            got += [codec.decode(*parts) for parts in frames.feed(await reader.read(1 << 16))]
        for command, remark in reversed(list(zip(got, remarks, strict=True))):
            writer.write(encode_reply(command, 0, None, remark))
        writer.close()

    return serve


async def test_each_answer_reaches_the_request_for_it():
    async with linked(answering("one", "two")) as (link, _):
        found = await asyncio.gather(link.call(asked()), link.call(asked()))
        assert [answer.remark for answer in found] == ["one", "two"]


@pytest.mark.parametrize("goodbye", [b"", b"\\0\\0\\0\\7 no frame, but long"], ids=["end", "nonsense"])
async def test_the_end_of_the_connection_ends_what_waits(goodbye):
    async def serve(reader, writer):
        await reader.read(1)
        writer.write(goodbye)
        writer.close()

    async with linked(serve) as (link, _):
        with pytest.raises(ConnectionClosed):
            await link.call(asked())
        await until(lambda: link.is_closed)
        with pytest.raises(ConnectionClosed):
            await link.send(asked())


async def test_a_broker_that_does_not_answer_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr(links, "ANSWER_S", 0.05)

    async def serve(reader, writer):
        await reader.read()
        writer.close()

    async with linked(serve) as (link, _):
        with pytest.raises(RequestTimeout):
            await link.call(asked())


async def test_a_broker_is_mute_if_it_owes_an_answer_but_not_while_it_holds_a_long_poll(monkeypatch):
    monkeypatch.setattr(links, "MUTE_S", 0.1)

    async def serve(reader, writer):
        await reader.read()
        writer.close()

    async with linked(serve) as (link, _):
        waiting = [asyncio.create_task(link.call(asked(pull_request(suspend_timeout_millis=20_000))))]
        await asyncio.sleep(0.2)
        assert not link.is_mute
        waiting.append(asyncio.create_task(link.call(asked())))
        await until(lambda: link.is_mute)
        link.close()
        assert await asyncio.gather(*waiting, return_exceptions=True)
        assert not link.is_mute


@pytest.mark.parametrize(
    ("field", "text", "limit_s"),
    [
        ("suspendTimeoutMillis", "20000", 50.0),
        ("pollTime", "15000", 45.0),
        ("pollTime", "9" * 19, 120.0),
        ("pollTime", "9" * 5000, 30.0),
        ("pollTime", "-1", 30.0),
        ("queueId", "20000", 30.0),
    ],
)
def test_an_answer_has_thirty_seconds_beyond_the_wait_that_is_asked_for(field, text, limit_s):
    assert links.answer_limit_s({"queueId": "3", field: text}) == limit_s


async def test_no_more_is_read_while_the_client_does_not_read():
    push = encode_request(NotifyConsumerIdsChanged("g"), NotifyConsumerIdsChanged.code, 1, oneway=True)
    writers = []

    async def serve(reader, writer):
        writers.append(writer)
        writer.write(push)
        await reader.read()
        writer.close()

    full = [True]
    async with linked(serve, lambda: full[0]) as (link, pushed):
        await until(lambda: pushed)
        writers[0].write(push)
        await asyncio.sleep(10 * links.UNREAD_POLL_S)
        assert len(pushed) == 1
        full[0] = False
        await until(lambda: len(pushed) == 2)
        link.close()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no address", "127.0.0.1:99999"])
async def test_a_broker_that_is_away_is_said_to_be_so(address):
    with pytest.raises(BrokerUnreachable, match=address):
        await connect(address, None, CLOCK)


async def test_a_broker_that_does_not_read_keeps_no_connection_open(monkeypatch):
    monkeypatch.setattr(links, "CLOSE_TIMEOUT_S", 0.05, raising=False)
    left = asyncio.Event()

    async def serve(reader, writer):
        await left.wait()
        writer.close()

    async with linked(serve) as (link, _):
        link._writer.transport.set_write_buffer_limits(1 << 30)
        asked_much = asked()
        asked_much.body = bytes(8 << 20)
        while link._writer.transport.get_write_buffer_size() == 0:
            await link.send(asked_much)
        link.close()
        await until(lambda: link._reader.at_eof(), 5)
        left.set()
