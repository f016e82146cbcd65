"""Tools at the remoting port, before two brokers."""

import asyncio
import io
from functools import partial

from sparrowmq import connect
from sparrowmq.cli.mqadmin.main import run
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.requests.headers import QueryMessage
from sparrowmq.remoting.pool import Pool
from tests.mqproxy.remoting.proxied import proxied, until

QUERY = QueryMessage("orders", "k", 32, 0, 1 << 60)
BODIES = [b"m0", b"m1", b"m2", b"m3"]


async def send_and_index(place):
    """Send the messages, whose key is k, to the queues of both brokers; they are found by it then."""
    async with connect(place.cluster.namesrv) as mq:
        sent = [await mq.send("orders", body, keys=["k"]) for body in BODIES]
        assert len({each.queue for each in sent}) == 4
    for broker in place.cluster.brokers:
        await until(partial(indexed, broker.address))


async def indexed(address):
    answer = await asked(address, QUERY)
    return len(list(record.walk(answer[0].body))) == 2


async def asked(address, *requests):
    """The answers at an address, of which some find nothing."""
    pool = Pool(SystemClock())
    try:
        session = await pool.session(address)
        calls = [session.call(each, accept=(ResponseCode.QUERY_NOT_FOUND,)) for each in requests]
        return await asyncio.gather(*calls)
    finally:
        pool.close()


async def said(place, line):
    """The words that our mqadmin writes for a command line."""
    out, err = io.StringIO(), io.StringIO()
    code = await asyncio.to_thread(run, [*line.split(), "-n", place.address], out, err)
    assert (code, err.getvalue()) == (0, "")
    return out.getvalue()


def bodies(text):
    return sorted(line.rpartition("BODY: ")[2].encode() for line in text.splitlines() if "BODY: " in line)


async def test_mqadmin_reads_the_queues_of_all_brokers(tmp_path):
    async with proxied(tmp_path) as place:
        await send_and_index(place)
        assert bodies(await said(place, "printMsg -t orders")) == BODIES
        assert bodies(await said(place, "consumeMessage -t orders")) == BODIES
        one = bodies(await said(place, "consumeMessage -t orders -b broker-1 -i 1"))
        assert len(one) == 1 and one == bodies(
            await said(place, "printMsgByQueue -t orders -a broker-1 -i 1 -p true -d true")
        )
        lines = (await said(place, "queryMsgByKey -t orders -k k")).splitlines()[1:]
        assert len(lines) == len({line.split()[0] for line in lines}) == 4
        assert f"{place.address}#broker-1" in await said(place, "topicRoute -t orders")


async def test_a_client_that_asks_for_each_broker_gets_each_message_once(tmp_path):
    """As Java's queryMessage, which asks all brokers in one loop and names none."""
    async with proxied(tmp_path) as place:
        await send_and_index(place)
        for _ in range(2):
            answers = await asked(place.address, QUERY, QUERY)
            assert sorted(answer.code for answer in answers) == [0, ResponseCode.QUERY_NOT_FOUND]
            found = [record.decode(each).body for answer in answers for each in record.walk(answer.body)]
            assert sorted(found) == BODIES


async def test_the_only_broker_of_a_topic_answers_each_question(tmp_path):
    async with proxied(tmp_path, 1) as place:
        async with connect(place.cluster.namesrv) as mq:
            await mq.send("orders", b"hello", keys=["k"])
        async with asyncio.timeout(30):
            while {answer.code for answer in await asked(place.address, QUERY, QUERY)} != {0}:
                await asyncio.sleep(0.02)
