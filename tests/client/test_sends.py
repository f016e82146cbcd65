"""What our producer and our brokers do together with a send."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from sparrowmq.client.client import Client, connect
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.client.sending.send_result import SendStatus
from sparrowmq.errors import MessageTooLarge, RemoteError, SendFailed
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.admin_headers import DeleteTopic
from sparrowmq.remoting.handler import Reply
from sparrowmq.testing.clock import ManualClock
from sparrowmq.testing.cluster import Cluster
from tests.client.conftest import until
from tests.client.scripted import Scripted, stored

SEND = RequestCode.SEND_MESSAGE_V2
BUSY = Reply(ResponseCode.SYSTEM_BUSY, remark="[TIMEOUT_CLEAN_QUEUE]broker busy")


@pytest.mark.covers("S-PROD-19")
@pytest.mark.covers("S-PROD-06")
async def test_an_asynchronous_send_is_retried_on_another_broker(tmp_path: Path) -> None:
    """One broker does not know the topic any more, one is gone: what is sent without waiting is stored all the same."""
    async with (
        Cluster(tmp_path, brokers=3, auto_create_topic=False) as cluster,
        connect(cluster.namesrv) as mq,
    ):
        await mq.admin.create_topic("t", queues=2)
        await mq.send("t", b"the route is known")
        refusing, gone, living = cluster.brokers
        session = await mq._network.brokers.session(refusing.address)
        await session.call(DeleteTopic(topic="t"))
        await gone.__aexit__(None, None, None)
        answers = [mq.send_soon("t", b"%d" % number) for number in range(60)]
        stored_at = {(await answer).queue.broker_name for answer in answers}
        assert stored_at == {living.settings.name}
        assert len(refusing._server.sessions) == 1, "it was there, and was asked"


@pytest.mark.covers("S-PROD-01")
async def test_one_producer_sends_plain_ordered_and_delayed_messages_another_transactions(
    tmp_path: Path,
) -> None:
    clock, bodies = ManualClock(), list[bytes]()
    async with Cluster(tmp_path, clock=clock) as cluster, connect(cluster.namesrv, group="shop") as mq:
        payments = mq.producer("payments", check=lambda message: True)
        async with mq.subscribe("orders", lambda message: bodies.append(message.body), group="g", start="earliest"):
            await mq.send("orders", b"plain")
            ordered = [await mq.send("orders", b"ordered", fifo="key") for _ in range(2)]
            await mq.send("orders", b"delayed", delay="5s")
            async with payments.transaction("orders", b"paid"):
                pass
            await until(lambda: len(bodies) == 4)
            assert ordered[0].queue == ordered[1].queue
            assert sorted(bodies) == [b"ordered", b"ordered", b"paid", b"plain"]
            await clock.advance(4)
            assert b"delayed" not in bodies
            await clock.advance(2)
            await until(partial(bodies.__contains__, b"delayed"))


@pytest.mark.covers("S-PROD-05")
@pytest.mark.parametrize("failures", [0, 2, 3])
async def test_an_asynchronous_send_reports_success_or_after_two_retries_failure(peer: Scripted, failures: int) -> None:
    peer.has("t")
    peer.script(SEND, *[BUSY] * failures)
    async with connect(peer.address) as mq:
        answer = mq.send_soon("t", b"x")
        if failures < 3:
            assert (await answer).status is SendStatus.OK
        else:
            with pytest.raises(SendFailed):
                await answer
    assert len(peer.sent) == min(failures + 1, 3)


@pytest.mark.covers("S-PROD-07")
async def test_a_one_way_send_wants_no_answer_and_is_not_retried(peer: Scripted) -> None:
    peer.has("t")
    peer.script(SEND, BUSY)
    async with connect(peer.address) as mq:
        mq.send_nowait("t", b"x")
        await until(lambda: peer.sent)
        await mq.send("t", b"behind an answer to the first, if there were one")
    assert [command.is_oneway for command in peer.sent] == [True, False]


@pytest.mark.covers("S-PROD-11")
async def test_a_message_of_4_mib_is_taken_and_a_larger_one_refused_by_producer_and_broker(
    cluster: Cluster, mq: Client
) -> None:
    most = 4 * 1024 * 1024
    assert (await mq.send("orders", bytes(most))).status is SendStatus.OK
    with pytest.raises(MessageTooLarge):
        await mq.send("orders", bytes(most + 1))
    settings = ProducerSettings(max_bytes=2 * most, compress_over_bytes=2 * most, timeout_s=30)
    async with connect(cluster.namesrv, settings=settings) as careless:
        with pytest.raises(SendFailed, match="maxMessageSize is 4194304") as failed:
            await careless.send("orders", bytes(most + 1))
    assert isinstance(failed.value.cause, RemoteError)


@pytest.mark.covers("S-PROD-12")
@pytest.mark.parametrize("is_wanted", [False, True])
async def test_a_send_stored_less_safely_goes_to_another_broker_only_if_wanted(peer: Scripted, is_wanted: bool) -> None:
    settings = ProducerSettings(retry_not_stored=True) if is_wanted else ProducerSettings()
    async with Scripted("broker-b") as other, connect(peer.address, settings=settings) as mq:
        peer.has("t", others={other.name: other.address})
        both, late = (peer, other), stored(ResponseCode.FLUSH_DISK_TIMEOUT)
        for each in both:
            each.script(SEND, late)
        sent = await mq.send("t", b"x")
        assert sorted(len(each.sent) for each in both) == ([1, 2] if is_wanted else [0, 1])
    assert sent.status is (SendStatus.OK if is_wanted else SendStatus.FLUSH_DISK_TIMEOUT)


@pytest.mark.covers("S-PROD-16")
async def test_a_program_picks_the_queue_itself_or_gives_a_key(mq: Client) -> None:
    await mq.admin.create_topic("orders", queues=4)
    queues = await mq.queues("orders")
    chosen: list[MessageQueue] = [queues[number % 3] for number in range(12)]
    assert [(await mq.send("orders", b"x", queue=queue)).queue for queue in chosen] == chosen
    by_key = {(await mq.send("orders", b"x", fifo="hello")).queue for _ in range(8)}
    assert by_key == {queues[99162322 % 4]}, "as Java's selector by hash"
