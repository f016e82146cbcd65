"""Sessions by address: made once, made again, left alone after failures."""

import asyncio
import socket
from typing import Any

import pytest

from sparrowmq.errors import BrokerUnreachable, ClientClosed
from sparrowmq.loop.clock import SystemClock
from sparrowmq.remoting.pool import FIRST_PAUSE_S, GOODBYE_S, MAX_PAUSE_S, MAX_UNACKNOWLEDGED_S, Pool
from sparrowmq.remoting.server import Server
from sparrowmq.remoting.tls.contexts import ServerTls, client_context
from sparrowmq.remoting.tls.tls_settings import ClientTlsSettings, ServerTlsSettings
from sparrowmq.testing.clock import ManualClock
from tests.remoting.conftest import Serve, until
from tests.remoting.test_server import PULL, answer


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


async def test_however_many_ask_one_connection_is_made(serve: Serve) -> None:
    async with serve(answer) as (server, _):
        pool = Pool(SystemClock())
        address = f"127.0.0.1:{server.port}"
        sessions = await asyncio.gather(*[pool.session(address) for _ in range(20)])
        await sessions[0].call(PULL)
        assert len({id(session) for session in sessions}) == 1
        assert len(server.sessions) == 2  # The fixture's and ours.
        pool.close()


async def test_a_lost_connection_is_made_again(serve: Serve) -> None:
    async with serve(answer) as (server, _):
        pool = Pool(SystemClock())
        address = f"127.0.0.1:{server.port}"
        first = await pool.session(address)
        first.close()
        while not first.closed:
            await asyncio.sleep(0)
        assert pool.live_session(address) is None
        second = await pool.session(address)
        assert (await second.call(PULL)).code == 0
        pool.close()


async def test_a_dead_address_is_left_alone_for_a_growing_pause() -> None:
    clock = ManualClock()
    pool = Pool(clock, jitter=lambda: 1.0)
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(BrokerUnreachable, match="brokerIP1"):
        await pool.session(address)
    with pytest.raises(BrokerUnreachable, match=r"\(Connection refused, a moment ago\);"):
        await pool.session(address)
    await clock.advance(0.06)
    with pytest.raises(BrokerUnreachable, match=r"\(Connection refused\);"):
        await pool.session(address)
    await clock.advance(0.06)
    with pytest.raises(BrokerUnreachable, match="a moment ago"):
        await pool.session(address)


async def test_the_pause_grows_to_a_second_and_ends_with_an_answer() -> None:
    clock = ManualClock()
    pool = Pool(clock, jitter=lambda: 1.0)
    port = free_port()
    address = f"127.0.0.1:{port}"

    async def fails(after_s: float, *, asked: bool = True) -> None:
        await clock.advance(after_s)
        with pytest.raises(BrokerUnreachable, match="Connection refused") as caught:
            await pool.session(address)
        assert ("a moment ago" not in str(caught.value)) == asked

    for _ in range(10):
        await fails(MAX_PAUSE_S)
    await fails(MAX_PAUSE_S - 0.1, asked=False)
    await fails(0.1)
    await clock.advance(MAX_PAUSE_S)
    async with Server(answer, clock, "127.0.0.1", port) as server:
        session = await pool.session(address)
        await server.stop()
        while not session.closed:
            await asyncio.sleep(0)
    await fails(0)
    await fails(FIRST_PAUSE_S)
    pool.close()


@pytest.mark.parametrize("address", ["a..b:1", "no port", f"{'x' * 70}.example:1", "a b:1"])
async def test_what_is_no_address_is_unreachable(address) -> None:
    pool = Pool(SystemClock())
    with pytest.raises(BrokerUnreachable):
        await pool.session(address)


async def test_a_closed_pool_says_so(serve: Serve) -> None:
    pool = Pool(SystemClock())
    pool.close()
    with pytest.raises(ClientClosed):
        await pool.session("127.0.0.1:1")


async def test_by_tls_the_end_waits_for_the_servers_goodbye_a_second_at_most() -> None:
    clock = ManualClock()
    async with Server(answer, clock, "127.0.0.1", 0, tls=ServerTls(ServerTlsSettings(), clock)) as server:
        await _end_to(server, clock)
        await _end_to(server, clock, says_nothing=True)


async def _end_to(server: Server, clock: ManualClock, says_nothing: bool = False) -> None:
    pool = Pool(clock, tls=client_context(ClientTlsSettings(checks_server=False)))
    session = await pool.session(f"127.0.0.1:{server.port}")
    (far,) = server.sessions
    if says_nothing:
        assert far._transport is not None
        far._transport.pause_reading()
    pool.close()
    ending = asyncio.create_task(pool.wait_until_ended())
    if says_nothing:
        await clock.advance(GOODBYE_S)
    await asyncio.wait_for(ending, 10)
    await until(lambda: session.closed)
    far.abort()
    await until(lambda: not server.sessions)


async def test_a_connection_that_ends_as_soon_as_it_is_made_is_unreachable(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def connect_and_lose(*arguments: Any, **more: Any) -> tuple[asyncio.Transport, Any]:
        transport, protocol = await connect(*arguments, **more)
        transport.abort()
        await asyncio.sleep(0.01)
        return transport, protocol

    monkeypatch.setattr(loop, "create_connection", connect_and_lose)
    async with serve(answer) as (server, _):
        pool = Pool(SystemClock())
        with pytest.raises(BrokerUnreachable, match="Connection reset by peer"):
            await pool.session(f"127.0.0.1:{server.port}")
        pool.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has this option")
async def test_system_ends_a_connection_of_which_the_network_has_lost_track(serve: Serve) -> None:
    async with serve(answer) as (server, _):
        pool = Pool(SystemClock())
        session = await pool.session(f"127.0.0.1:{server.port}")
        assert session._transport is not None
        connected = session._transport.get_extra_info("socket")
        limit_ms = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert limit_ms == 1000 * MAX_UNACKNOWLEDGED_S
        pool.close()
