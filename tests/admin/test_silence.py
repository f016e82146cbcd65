"""Why a server does not answer: the address, or the process behind it."""

import asyncio

import pytest

from sparrowmq.admin.doctor import reachability_advice, remedy
from sparrowmq.errors import RequestTimeout


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("172.17.0.1:10911", "inside a container"),
        ("172.31.9.9:10911", "inside a container"),
        ("127.0.0.1:10911", "on its own machine only"),
        ("192.168.1.5:10911", "no firewall"),
        ("[2001:db8::1]:10911", "no firewall"),
        ("broker-a.internal:10911", "can be resolved"),
    ],
)
def test_what_may_keep_clients_away_goes_by_the_address(address, words):
    assert words in reachability_advice(address)


async def test_a_process_that_takes_connections_and_is_silent_hangs():
    taken = list[asyncio.StreamWriter]()
    async with await asyncio.start_server(lambda _, writer: taken.append(writer), "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        text, runs, is_hanging = await remedy(f"{host}:{port}", RequestTimeout("x", "y", 1))
        taken[0].close()
    assert runs and is_hanging and "kill -CONT" in text and "brokerIP1" not in text
    assert f"`ss -ltnp sport = :{port}`" in text


@pytest.mark.parametrize("is_reset", [False, True])
async def test_a_process_that_ends_connections_at_once_is_full_and_is_not_to_be_killed(is_reset):
    def end(_, writer):
        writer.transport.abort() if is_reset else writer.close()

    async with await asyncio.start_server(end, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        text, runs, is_hanging = await remedy(f"{host}:{port}", RequestTimeout("x", "y", 1))
    assert runs and not is_hanging and "kill" not in text
    assert f"`ss -tnp dst {host}:{port}`" in text and "ulimit -n" in text


async def test_where_no_process_listens_the_address_is_the_cause():
    text, runs, is_hanging = await remedy("127.0.0.1:9", RequestTimeout("127.0.0.1:9", "y", 1))
    assert not runs and not is_hanging and "see that it runs" in text
