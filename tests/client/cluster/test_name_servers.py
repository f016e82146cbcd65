import asyncio
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from sparrowmq.client.cluster.name_servers import NameServerList, NameServers
from sparrowmq.errors import NetworkError, RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.requests.namesrv_headers import GetRoute
from sparrowmq.remoting.handler import Reply
from sparrowmq.remoting.pool import Pool
from sparrowmq.testing.clock import ManualClock
from tests.client.conftest import until
from tests.client.scripted import Scripted

NOBODY = "127.0.0.1:1"


@pytest.fixture
async def pool():
    made = Pool(SystemClock())
    yield made
    made.close()


@pytest.mark.covers("S-CFG-10")
async def test_one_is_asked_until_it_does_not_answer_then_the_next(peer, pool):
    async with Scripted() as other:
        for each in (peer, other):
            each.has("t")
        servers = NameServers(NameServerList([peer.address, other.address], lambda most: 1), pool)
        for _ in range(3):
            await servers.call(GetRoute(topic="t"))
        assert (len(peer.received), len(other.received)) == (0, 3)
    await servers.call(GetRoute(topic="t"))
    await servers.call(GetRoute(topic="t"))
    assert len(peer.received) == 2


async def test_when_none_answers_the_last_error_is_told(pool):
    servers = NameServers(NameServerList([NOBODY, "127.0.0.1:2"]), pool)
    with pytest.raises(NetworkError, match=r"cannot ask name server 127.0.0.1:1;127.0.0.1:2"):
        await servers.call(GetRoute(topic="t"))


async def test_an_answer_is_an_answer_even_if_it_is_an_error(peer, pool):
    async with Scripted() as other:
        servers = NameServers(NameServerList([peer.address, other.address], lambda most: 0), pool)
        peer.script(RequestCode.GET_ROUTEINFO_BY_TOPIC, Reply(ResponseCode.SYSTEM_ERROR))
        with pytest.raises(RemoteError):
            await servers.call(GetRoute(topic="t"))
        assert not other.received


@pytest.fixture
def web():
    """A web server with one page, whose content a test may change."""

    class Page(BaseHTTPRequestHandler):
        content = b""

        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/rocketmq/nsaddr" else 404)
            self.end_headers()
            self.wfile.write(self.content)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Page, f"http://127.0.0.1:{server.server_port}/rocketmq/nsaddr"
        server.shutdown()
        thread.join()


def is_at(servers: NameServers, peer: Scripted) -> bool:
    return servers.addresses == [peer.address]


@pytest.mark.covers("S-CFG-09")
@pytest.mark.covers("S-START-04")
async def test_an_address_server_tells_where_name_servers_are_and_where_they_moved(peer, pool, web):
    page, url = web
    peer.has("t")
    clock = ManualClock()
    servers = NameServers(NameServerList([]), pool, url)
    page.content = f" {peer.address} ;\n".encode()
    await servers.call(GetRoute(topic="t"))
    async with Scripted() as other:
        other.has("t")
        refetching = asyncio.ensure_future(servers.keep_fresh(clock))
        for wait_s, before, after in ((10, peer, other), (120, other, peer), (120, peer, other)):
            page.content = after.address.encode()
            await clock.advance(wait_s - 1)
            assert servers.addresses == [before.address]
            await clock.advance(1)
            await until(partial(is_at, servers, after))
        await servers.call(GetRoute(topic="t"))
        refetching.cancel()


async def test_an_address_server_that_does_not_know_is_an_error_or_leaves_things_as_they_are(pool, web):
    page, url = web
    for content in (b"", b"no address", b"\xff"):
        page.content = content
        with pytest.raises(NetworkError, match=r"it should answer host:port;host:port"):
            await NameServers(NameServerList([]), pool, url).call(GetRoute(topic="t"))
    with pytest.raises(NetworkError, match="404"):
        await NameServers(NameServerList([]), pool, url + "/elsewhere").fetch()
    clock, servers = ManualClock(), NameServers(NameServerList(["a:1"]), pool, "http://127.0.0.1:1/")
    refetching = asyncio.ensure_future(servers.keep_fresh(clock))
    await clock.advance(240)
    assert servers.addresses == ["a:1"] and not refetching.done()
    refetching.cancel()
