import asyncio
import os
from functools import partial

import msgspec
import pytest

from sparrowmq.client.client import Client, connect
from sparrowmq.client.consuming.received_message import ReceivedMessage, SettleOptions
from sparrowmq.client.consuming.redelivery import BrokerRedelivery
from sparrowmq.errors import SendFailed
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.message import MessageQueue, SysFlag
from sparrowmq.protocol.requests.headers import ConsumerSendMsgBack, GetMaxOffset, SendMessageV2
from sparrowmq.remoting.handler import Reply
from sparrowmq.testing.clock import ManualClock
from sparrowmq.testing.cluster import Cluster
from tests.client.conftest import until
from tests.client.consuming.test_received import stored

BACK = RequestCode.CONSUMER_SEND_MSG_BACK
REFUSED = Reply(ResponseCode.SYSTEM_ERROR, remark="no such record")


@pytest.fixture
async def retries(peer):
    for topic in ("t", "%RETRY%g"):
        peer.has(topic)
    async with connect(peer.address) as client:
        await client.queues("t")
        yield BrokerRedelivery("g", 16, client._network.brokers, client._inner_queue)


def failed(reconsume_times: int = 2, **named: str) -> ReceivedMessage:
    record = msgspec.structs.replace(
        stored(b"packed", sys_flag=SysFlag.COMPRESSED | SysFlag.BORN_V6, **named),
        reconsume_times=reconsume_times,
    )
    return ReceivedMessage(record, MessageQueue("t", "broker-a", 1))


@pytest.mark.covers("S-RETRY-05")
async def test_the_broker_copies_it_from_its_own_log(peer, retries):
    peer.script(BACK, Reply())
    message = failed(UNIQ_KEY="ID")
    message._options = SettleOptions(delay_level=5)
    await retries.give_back(message)
    header = peer.requests(BACK)[0].header(ConsumerSendMsgBack)
    assert (header.offset, header.group, header.delay_level, header.max_reconsume_times) == (1000, "g", 5, 16)
    assert (header.origin_msg_id, header.origin_topic) == ("ID", "t")
    assert not peer.sent


@pytest.mark.covers("S-RETRY-03", "S-RETRY-05")
async def test_when_it_does_not_a_copy_is_sent(peer, retries):
    peer.script(BACK, REFUSED)
    await retries.give_back(failed(UNIQ_KEY="ID", own="1", MIN_OFFSET="0"))
    (copy,) = peer.sent
    header = copy.header(SendMessageV2)
    assert (header.topic, header.reconsume_times, header.max_reconsume_times) == ("%RETRY%g", 3, 17)
    assert (header.producer_group, header.sys_flag, copy.body) == ("CLIENT_INNER_PRODUCER", 1, b"packed")
    assert properties.parse(header.properties) == {
        "UNIQ_KEY": "ID", "own": "1", "ORIGIN_MESSAGE_ID": "ID", "RETRY_TOPIC": "t", "DELAY": "5",
    }  # fmt: skip


async def test_what_was_retried_before_keeps_its_first_id_and_topic(peer, retries):
    await retries.send_copy(failed(UNIQ_KEY="ID", ORIGIN_MESSAGE_ID="FIRST", RETRY_TOPIC="t"), 4)
    header = peer.sent[0].header(SendMessageV2)
    assert header.reconsume_times == 4
    assert properties.parse(header.properties)["ORIGIN_MESSAGE_ID"] == "FIRST"


async def test_when_nobody_takes_it_that_is_an_error(peer, retries):
    peer.script(BACK, REFUSED)
    peer.script(RequestCode.SEND_MESSAGE_V2, *[REFUSED] * 3)
    with pytest.raises(SendFailed):
        await retries.give_back(failed())


INTERVALS_S = [10, 30, *(60 * minutes for minutes in (*range(1, 11), 20, 30)), 3600, 7200]


@pytest.mark.slow
@pytest.mark.covers("S-RETRY-01", "S-RETRY-05", "S-RETRY-06")
@pytest.mark.covers("S-RETRY-02")
async def test_the_sixteenth_retry_comes_4_h_46_min_after_the_first_failure_and_then_it_is_dead(tmp_path):
    """The broker's clock is turned by hand; the client lives in real time, and retries as soon as it is told."""
    clock = ManualClock()
    tries_ms: list[int] = []
    async with Cluster(tmp_path, clock=clock) as cluster, connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("t", queues=1)

        async def fail(message: ReceivedMessage) -> None:
            tries_ms.append(clock.now_ms())
            raise RuntimeError("it fails")

        async with mq.subscribe("t", fail, group="g", start="earliest"):
            await mq.send("t", b"x")
            await until(lambda: tries_ms)
            for number, wait_s in enumerate(INTERVALS_S, 1):
                await parked(mq, cluster, 2 + number)
                await mq._network.brokers.announce()  # the broker's clock runs faster than ours
                await jump(clock, wait_s - 1)
                assert len(tries_ms) == number, "it comes too early"
                await clock.advance(1)
                await until(partial(has, tries_ms, number + 1))
            dead: list[ReceivedMessage] = []
            while not dead:
                dead = await mq.admin.dead_letters("g")
            assert (dead[0].body, dead[0].reconsume_times) == (b"x", 17)
        assert len(tries_ms) == 17
        assert tries_ms[-1] - tries_ms[0] == sum(INTERVALS_S) * 1000
        assert round(sum(INTERVALS_S) / 60) == 4 * 60 + 46


@pytest.mark.covers("S-STORE-09")
@pytest.mark.covers("S-RETRY-07")
async def test_dead_letters_are_kept_for_72_hours_like_all_messages(tmp_path):
    clock = ManualClock()
    hours = ";".join(map(str, range(24)))
    async with (
        Cluster(tmp_path, clock=clock, commit_log_file_bytes=1 << 16, delete_when=hours) as cluster,
        connect(cluster.namesrv) as mq,
    ):
        await mq.admin.create_topic("t", queues=1)
        await mq.send("t", b"dead")
        async with mq.subscribe("t", group="g", start="earliest", max_reconsume_times=0) as messages:
            (await anext(aiter(messages))).retry()
            while not await mq.admin.dead_letters("g"):
                await asyncio.sleep(0.01)
        for _ in range(6):
            await mq.send("t", os.urandom(30_000))  # which cannot be compressed
        await pass_time(clock, 72 * 3600 - 60)
        (letter,) = await mq.admin.dead_letters("g")
        assert letter.body == b"dead"
        for _ in range(20):
            await clock.advance(61)  # what is deleted must be in a checkpoint, which a thread writes
            if await mq.admin.dead_letters("g") == []:
                return
        raise AssertionError("it is still there")


def has(tries_ms: list[int], count: int) -> bool:
    return len(tries_ms) == count


async def pass_time(clock: ManualClock, seconds: float) -> None:
    """Let time pass for both clocks, so that retention sees no leap; of what falls due meanwhile each comes once."""
    clock._elapsed_s += seconds - 61
    await clock.advance(61)


async def jump(clock: ManualClock, seconds: float) -> None:
    """Let time pass, all but the last minute of it at once."""
    clock._start_ms += max(0, round((seconds - 61) * 1000))
    await clock.advance(min(seconds, 61))


async def parked(mq: Client, cluster: Cluster, level: int) -> None:
    """Return once a retry waits in the queue of its level."""
    session = await mq._network.brokers.session(cluster.brokers[0].address)
    for _ in range(2000):
        answer = await session.call(GetMaxOffset("SCHEDULE_TOPIC_XXXX", level - 1))
        if answer.header.offset == 1:
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"no retry was parked at level {level}")


async def test_a_delay_that_is_no_level_takes_the_nearest_one_at_a_broker_with_levels_only(peer, retries):
    peer.script(BACK, Reply(), Reply())
    for delay, level in (("14s", 3), ("25s", 4)):
        message = ReceivedMessage(failed().stored, MessageQueue("t", "broker-a", 1), lambda *_: None)
        message.retry(delay)
        await retries.give_back(message)
        assert peer.requests(BACK)[-1].header(ConsumerSendMsgBack).delay_level == level
    assert not peer.sent


async def test_a_rejected_message_is_a_copy_without_tries_and_without_the_properties_of_its_delay(peer, retries):
    message = failed(UNIQ_KEY="ID", DELAY="3", TIMER_DELAY_MS="500", TIMER_OUT_MS="1")
    message._options = SettleOptions(reason="no\x01such\ncustomer")
    await retries.reject(message)
    header = peer.sent[0].header(SendMessageV2)
    assert (header.topic, header.reconsume_times, header.max_reconsume_times) == ("%RETRY%g", 3, 0)
    assert properties.parse(header.properties) == {
        "UNIQ_KEY": "ID", "ORIGIN_MESSAGE_ID": "ID", "RETRY_TOPIC": "t", "REJECT_REASON": r"no\x01such\ncustomer",
    }  # fmt: skip
