import asyncio
from contextlib import asynccontextmanager

import pytest

from sparrowmq.client.client import Client, connect
from sparrowmq.client.sending.outcome import SendStatus
from sparrowmq.client.sending.settings import ProducerSettings
from sparrowmq.errors import BrokerUnreachable, ClientClosed, NoRoute, RemoteError, RequestTimeout, SendFailed
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import Message, MessageQueue
from sparrowmq.protocol.requests.headers import SendMessageV2
from sparrowmq.remoting.dispatch import Answer
from tests.client.conftest import until
from tests.client.scripted import Scripted, stored

SEND = RequestCode.SEND_MESSAGE_V2
BUSY = Answer(ResponseCode.SYSTEM_BUSY, remark="[TIMEOUT_CLEAN_QUEUE]broker busy")
NOBODY = "127.0.0.1:1"  # nobody listens on tcpmux


@asynccontextmanager
async def client(peer: Scripted, **settings):
    async with connect(peer.address, settings=ProducerSettings(**settings)) as mq:
        yield mq


def queue_ids(peer: Scripted) -> list[int]:
    return [command.header(SendMessageV2).queue_id for command in peer.sent]


@pytest.mark.covers("S-PROD-03", "S-PROD-19")
async def test_a_retriable_error_is_retried_on_another_broker(peer):
    async with Scripted("broker-b") as other, client(peer) as mq:
        peer.has("t", queues=2, others={other.name: other.address})
        for each in (peer, other):
            each.script(SEND, BUSY)
        await mq.send("t", b"x")
        # Whoever was asked first was busy, then the other one, then the first again.
        assert sorted([len(peer.sent), len(other.sent)]) == [1, 2]


@pytest.mark.covers("S-PROD-03", "S-PROD-21")
async def test_three_attempts_are_made_and_the_last_error_is_the_cause(peer):
    peer.has("t")
    peer.script(SEND, *[Answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark="disk full")] * 3)
    async with client(peer) as mq:
        with pytest.raises(SendFailed, match=r"after 3 attempts.*disk full.*send it again later") as caught:
            await mq.send("t", b"x")
    assert isinstance(caught.value.__cause__, RemoteError) and len(peer.sent) == 3


async def test_an_error_that_no_other_broker_would_mend_is_not_retried(peer):
    peer.has("t")
    peer.script(SEND, Answer(ResponseCode.MESSAGE_ILLEGAL, remark="too long"))
    async with client(peer) as mq:
        with pytest.raises(SendFailed, match=r"at the first attempt.*too long"):
            await mq.send("t", b"x")
    assert len(peer.sent) == 1


@pytest.mark.covers("S-PROD-04")
async def test_all_attempts_together_have_a_time_limit(peer):
    peer.has("t")
    peer.script(SEND, *[None] * 3)
    async with client(peer, timeout_s=0.3) as mq:
        begin = asyncio.get_running_loop().time()
        with pytest.raises(SendFailed) as caught:
            await mq.send("t", b"x")
        assert asyncio.get_running_loop().time() - begin < 1.0
    assert isinstance(caught.value.__cause__, RequestTimeout) and len(peer.sent) == 1


async def test_a_lost_connection_is_retried_on_a_new_one(peer):
    peer.has("t")
    peer.script(SEND, None)
    async with client(peer) as mq:
        future = mq.send_soon("t", b"x")
        await until(lambda: peer.sent)
        for session in peer.sessions:
            session.close()
        assert (await future).offset == 7
    assert len(peer.sent) == 2


async def test_a_short_restart_of_the_only_broker_passes_unseen(peer):
    peer.has("t", others={})
    async with Scripted("broker-a") as broker:
        port = int(broker.address.rpartition(":")[2])
        peer.routes["t"] = broker_route(broker)
        async with client(peer) as mq:
            await mq.send("t", b"before")
            await broker.__aexit__()
            future = mq.send_soon("t", b"meanwhile")
            await asyncio.sleep(0.3)
            restarted = Scripted("broker-a")
            restarted._server.port = port
            async with restarted:
                await future
                assert len(restarted.sent) == 1


def broker_route(broker: Scripted):
    broker.has("t")
    return broker.routes["t"]


async def test_an_unreachable_broker_is_told_by_name(peer):
    peer.has("t")
    peer.routes["t"].broker_datas[0].broker_addrs[0] = NOBODY
    async with client(peer, timeout_s=0.5) as mq:
        with pytest.raises(SendFailed, match=r"cannot connect to 127.0.0.1:1") as caught:
            await mq.send("t", b"x")
    assert isinstance(caught.value.__cause__, BrokerUnreachable | TimeoutError)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
async def test_stored_less_safely_is_a_status_and_no_error(peer, code, status):
    peer.has("t")
    peer.script(SEND, stored(code))
    async with client(peer) as mq:
        assert (await mq.send("t", b"x")).status is status


@pytest.mark.covers("S-PROD-12")
async def test_stored_less_safely_is_retried_if_wanted(peer):
    peer.has("t")
    peer.script(SEND, stored(ResponseCode.FLUSH_DISK_TIMEOUT))
    async with client(peer, retry_not_stored=True) as mq:
        assert (await mq.send("t", b"x")).status is SendStatus.OK
    assert len(peer.sent) == 2


@pytest.mark.covers("S-PROD-16")
async def test_ordered_messages_go_one_by_one_and_are_not_retried(peer):
    peer.has("t")
    peer.script(SEND, None)
    async with client(peer, timeout_s=0.5) as mq:
        first, second = mq.send_soon("t", b"1", fifo="k"), mq.send_soon("t", b"2", fifo="k")
        other = mq.send_soon("t", b"3", queue=MessageQueue("t", "broker-a", 0))
        await other
        assert not second.done() and [command.body for command in peer.sent] == [b"1", b"3"]
        with pytest.raises(SendFailed):
            await first
        await second
    assert [command.body for command in peer.sent] == [b"1", b"3", b"2"]


async def test_the_window_bounds_what_is_in_flight(peer):
    peer.has("t")
    peer.script(SEND, *[None] * 4)
    async with client(peer, window=4, timeout_s=0.3) as mq:
        futures = [mq.send_soon("t", b"%d" % number) for number in range(6)]
        await until(lambda: len(peer.sent) == 4)
        assert mq.unanswered == 6
        draining = asyncio.ensure_future(mq.drain())
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert [isinstance(result, SendFailed) for result in results] == [True] * 4 + [False] * 2
        await asyncio.wait_for(draining, 1)
        await mq.flush()
        assert mq.unanswered == 0


async def test_too_much_waiting_is_refused(peer):
    peer.has("t")
    peer.script(SEND, None)
    async with client(peer, window=1, waiting_bytes=2000, timeout_s=0.2) as mq:
        with pytest.raises(SendFailed, match="await drain"):
            for _ in range(10):
                mq.send_soon("t", b"x" * 100)


async def test_a_cancelled_message_is_not_tried_again(peer):
    peer.has("t")
    peer.script(SEND, None)
    async with client(peer) as mq:
        sending = asyncio.ensure_future(mq.send("t", b"x"))
        await until(lambda: peer.sent)
        sending.cancel()
        for session in peer.sessions:
            session.close()
        await until(lambda: not mq.unanswered)
    assert len(peer.sent) == 1


@pytest.mark.covers("S-ROUTE-05")
async def test_an_unknown_topic_is_an_error_without_a_template(peer):
    async with client(peer) as mq:
        with pytest.raises(NoRoute, match="create the topic"):
            await mq.send("unknown", b"x")


@pytest.mark.covers("S-ROUTE-09")
async def test_a_topic_that_takes_no_messages_is_an_error(peer):
    peer.has("t", perm=4)
    async with client(peer) as mq:
        for options in ({}, {"fifo": "k"}):
            with pytest.raises(NoRoute, match="none of its queues takes messages"):
                await mq.send("t", b"x", **options)


@pytest.mark.parametrize("options", [{}, {"fifo": "k"}, {"queue": MessageQueue("t", "nowhere", 0)}])
async def test_thousands_that_fail_at_once_do_so_one_by_one(peer, options):
    peer.has("t", perm=4)
    async with client(peer, window=2000) as mq:
        futures = [mq.send_soon("t", b"x", **options) for _ in range(5000)]
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert all(isinstance(result, NoRoute | SendFailed) for result in results)
        assert mq.unanswered == 0


async def test_ordered_messages_that_were_given_up_do_not_hold_up_others(peer):
    peer.has("t")
    peer.script(SEND, None)
    async with client(peer, timeout_s=0.3) as mq:
        futures = [mq.send_soon("t", b"%d" % number, fifo="k") for number in range(4)]
        await until(lambda: peer.sent)
        futures[1].cancel()
        futures[2].cancel()
        assert (await futures[3]).offset == 7
        assert [command.body for command in peer.sent] == [b"0", b"3"]
        assert isinstance(futures[0].exception(), SendFailed)


async def test_queues_and_brokers_take_turns(peer):
    async with Scripted("broker-b") as other, client(peer) as mq:
        peer.has("t", queues=2, others={other.name: other.address})
        for _ in range(8):
            await mq.send("t", b"x")
        assert sorted(queue_ids(peer)) == sorted(queue_ids(other)) == [0, 0, 1, 1]


@pytest.mark.covers("S-PROD-15")
async def test_a_slow_broker_is_left_alone_if_wanted(peer):
    async with Scripted("broker-b") as other, client(peer, avoid_slow_brokers=True, timeout_s=2) as mq:
        peer.has("t", queues=2, others={other.name: other.address})
        other.script(SEND, *[Answer(ResponseCode.SYSTEM_ERROR)] * 2)
        for _ in range(8):
            await mq.send("t", b"x")
        assert len(other.sent) == 1


async def test_one_way_messages_wait_for_no_answer(peer):
    peer.has("t")
    async with client(peer) as mq:
        mq.send_nowait("t", b"1")
        mq.send_nowait("t", b"2")
        await until(lambda: len(peer.sent) == 2)
        assert all(command.is_oneway for command in peer.sent)


async def test_after_the_end_nothing_is_sent(peer):
    peer.has("t")
    async with client(peer) as mq:
        pass
    with pytest.raises(ClientClosed):
        await mq.send("t", b"x")


async def test_leaving_waits_for_what_is_in_flight(peer):
    peer.has("t")
    async with client(peer) as mq:
        futures = [mq.send_soon(Message("t", b"x")) for _ in range(300)]
    assert all(future.done() and future.exception() is None for future in futures)


async def test_leaving_by_an_error_does_not_wait(peer):
    peer.has("t")
    peer.script(SEND, None)
    with pytest.raises(LookupError):
        async with Client(peer.address) as mq:
            future = mq.send_soon("t", b"x")
            await until(lambda: peer.sent)
            raise LookupError
    with pytest.raises(SendFailed):
        await future
