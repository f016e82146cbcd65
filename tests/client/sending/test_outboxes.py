"""A program that ends without closing its client does not lose messages in silence."""

import asyncio
import sys

import pytest

from sparrowmq.client.client import Client, connect
from sparrowmq.errors import ClientClosed, SparrowError
from sparrowmq.testing.cluster import Cluster
from tests.client.conftest import until

IN_THREADS = """
import sparrowmq.sync, sys
mq = sparrowmq.sync.connect(sys.argv[1]).start()
mq.send("orders", b"first")
for number in range(5000):
    mq.send_soon("orders", b"x")
if sys.argv[2] == "closed":
    mq.close()
"""
STARTED = """
import asyncio, sparrowmq, sys
async def main():
    mq = await sparrowmq.connect(sys.argv[1]).start()
    await mq.send("orders", b"first")
    for number in range(5000):
        mq.send_soon("orders", b"x")
    if sys.argv[2] == "closed":
        await mq.close()
asyncio.run(main())
"""
BROKEN_OFF = """
import asyncio, sparrowmq, sys
async def main():
    async with sparrowmq.connect(sys.argv[1]) as mq:
        await mq.send("orders", b"first")
        for number in range(5000):
            mq.send_soon("orders", b"x")
        raise KeyError
try:
    asyncio.run(main())
except KeyError:
    pass
"""


async def run(program: str, *arguments: str) -> str:
    """What a program writes to its standard error."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *arguments, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    return said.decode()


@pytest.mark.parametrize("program", [IN_THREADS, STARTED])
async def test_the_end_of_a_program_says_how_many_messages_have_no_answer(cluster: Cluster, program: str) -> None:
    said = await run(program, cluster.namesrv, "open")
    assert said.count("messages were not answered when the client ended") == 1 and "close()" in said


async def test_the_block_of_a_client_that_ends_by_an_error_is_reported_in_one_line(cluster: Cluster) -> None:
    said = await run(BROKEN_OFF, cluster.namesrv)
    assert said.count("messages were not answered when the client ended") == 1
    assert "never retrieved" not in said


@pytest.mark.parametrize("program", [IN_THREADS, STARTED])
async def test_a_closed_client_has_sent_them_and_says_nothing(cluster: Cluster, program: str) -> None:
    assert await run(program, cluster.namesrv, "closed") == ""
    async with connect(cluster.namesrv) as mq:
        assert (await mq.admin.topic("orders")).count == 5001


async def test_sends_while_a_client_is_left_are_stored_or_refused(cluster: Cluster, caplog, monkeypatch) -> None:
    monkeypatch.setattr("sparrowmq.client.sending.send_queue.FLUSH_LIMIT_S", 1.0)
    ends: list[BaseException] = []
    stored = 0

    async def send(mq: Client) -> None:
        nonlocal stored
        try:
            while True:
                await mq.send("orders", b"x")
                stored += 1
        except SparrowError as error:
            ends.append(error)

    async with connect(cluster.namesrv) as mq:
        senders = [asyncio.create_task(send(mq)) for _ in range(8)]
        await until(lambda: stored > 100)
    await asyncio.wait(senders)
    assert [type(each) for each in ends] == [ClientClosed] * 8 and "not answered" not in caplog.text
    async with connect(cluster.namesrv) as mq:
        assert (await mq.admin.topic("orders")).count == stored
