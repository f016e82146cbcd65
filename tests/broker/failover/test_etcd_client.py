"""Questions to a real etcd, and to what answers nonsense, late, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sparrowmq.broker.failover.etcd import Etcd, EtcdValue
from sparrowmq.errors import EtcdFailed
from sparrowmq.loop.clock import SystemClock
from sparrowmq.testing import ManualClock
from tests.interop.apache import free_ports
from tests.interop.etcd import LiveEtcd, needs_etcd


@pytest.fixture(scope="module")
def live() -> Iterator[LiveEtcd]:
    with LiveEtcd() as etcd:
        yield etcd


@pytest.fixture
def etcd(live: LiveEtcd) -> Etcd:
    return Etcd([live.endpoint], SystemClock(), 5.0)


@needs_etcd
async def test_keys_are_found_below_their_prefix_and_no_others(etcd: Etcd) -> None:
    assert await etcd.change({}, {"/a/leader": b"x", "/a/state": b"", "/ab": b"y", "/b": b"z"})
    found = await etcd.below("/a/")
    assert {key: kept.value for key, kept in found.items()} == {"/a/leader": b"x", "/a/state": b""}
    assert await etcd.below("/nothing/") == {}


@needs_etcd
async def test_a_change_happens_only_if_the_versions_are_still_what_was_read(etcd: Etcd) -> None:
    assert await etcd.change({"/c/one": 0}, {"/c/one": b"1"})
    assert not await etcd.change({"/c/one": 0}, {"/c/one": b"2"})
    version = (await etcd.below("/c/"))["/c/one"].version
    assert not await etcd.change({"/c/one": version, "/c/two": version}, {"/c/one": b"3"})
    assert await etcd.below("/c/") == {"/c/one": EtcdValue(b"1", version)}
    assert await etcd.change({"/c/one": version, "/c/two": 0}, {"/c/two": b"4"}, deletes=["/c/one"])
    assert {key: kept.value for key, kept in (await etcd.below("/c/")).items()} == {"/c/two": b"4"}


@needs_etcd
async def test_what_was_put_with_a_lease_goes_with_it(etcd: Etcd) -> None:
    lease = await etcd.grant(60)
    assert await etcd.change({}, {"/d/leader": b"1", "/d/state": b"2"}, leased={"/d/leader": lease})
    assert await etcd.keep_alive(lease) == 60
    await etcd.revoke(lease)
    assert set(await etcd.below("/d/")) == {"/d/state"}
    assert await etcd.keep_alive(lease) == 0
    await etcd.revoke(lease)  # which is no error


@needs_etcd
async def test_another_endpoint_is_asked_where_one_does_not_answer(live: LiveEtcd) -> None:
    dead = f"127.0.0.1:{free_ports(1)[0]}"
    etcd = Etcd([dead, live.endpoint], SystemClock(), 5.0)
    assert await etcd.below("/e/") == {}
    assert await etcd.grant(60) > 0


@needs_etcd
async def test_what_etcd_refuses_is_told_in_its_words(etcd: Etcd) -> None:
    with pytest.raises(EtcdFailed, match="requested lease not found"):
        await etcd.change({}, {"/f": b""}, leased={"/f": 12345})


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """A server that gives this answer to each request, and ends the connection; it is silent for b"silence"."""
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        if answer == b"silence":
            await ended.wait()
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        ended.set()
        server.close()


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (b"", "ConnectionClosed"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "illegal"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}", "closed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{]", "malformed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "object"),
        (b"HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\n{}", "status 503"),
        (b"HTTP/1.1 502 No\r\nContent-Length: 4\r\n\r\n<p/>", "status 502"),
        (b'HTTP/1.1 500 No\r\nContent-Length: 18\r\n\r\n{"error":"no room"', "status 500"),
    ],
)
async def test_what_is_no_answer_of_etcd_is_told_with_the_endpoint(answer: bytes, what: str) -> None:
    async with answering(answer) as endpoint:
        with pytest.raises(EtcdFailed, match=f"(?i){endpoint}.*({what})"):
            await Etcd([endpoint], SystemClock(), 5.0).below("/a/")


@needs_etcd
async def test_an_etcd_whose_file_leaves_out_the_gateway_is_reported_with_the_remedy(tmp_path: Path) -> None:
    client, peer = free_ports(2)
    file = tmp_path / "etcd.yml"
    file.write_text(
        f"data-dir: {tmp_path}/data\n"
        f"listen-client-urls: http://127.0.0.1:{client}\n"
        f"advertise-client-urls: http://127.0.0.1:{client}\n"
        f"listen-peer-urls: http://127.0.0.1:{peer}\n"
        f"initial-advertise-peer-urls: http://127.0.0.1:{peer}\n"
        f"initial-cluster: default=http://127.0.0.1:{peer}\n"
    )
    with LiveEtcd(file=file):
        etcd = Etcd([f"127.0.0.1:{client}"], SystemClock(), 5.0)
        with pytest.raises(EtcdFailed, match=r"status 404.*set `enable-grpc-gateway: true` in the config"):
            await etcd.below("/a/")


async def test_one_that_never_answers_is_given_up_in_its_time() -> None:
    clock = ManualClock()
    async with answering(b"silence") as endpoint:
        asked = asyncio.ensure_future(Etcd([endpoint], clock, 1.0).below("/a/"))
        await clock.advance(0.9)
        assert not asked.done()
        await clock.advance(0.2)
        with pytest.raises(EtcdFailed, match="no answer within 1 s"):
            await asked


async def test_none_at_all_says_why_of_each() -> None:
    first, second = free_ports(2)
    with pytest.raises(EtcdFailed, match=f"127.0.0.1:{first}: .*127.0.0.1:{second}: "):
        await Etcd([f"127.0.0.1:{first}", f"127.0.0.1:{second}"], SystemClock(), 5.0).grant(4)
