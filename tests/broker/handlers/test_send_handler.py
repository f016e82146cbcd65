"""Sending: what is stored, what is answered, what is refused."""

from pathlib import Path
from typing import Any

import pytest

from sparrowmq.errors import RemoteError
from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateTopic
from sparrowmq.protocol.requests.headers import (
    ConsumerSendMsgBack,
    SendBatchMessage,
    SendMessage,
)
from sparrowmq.store.store_settings import Flush
from tests.broker.live import BORN_MS, live_broker, send_request


@pytest.mark.covers("S-PROD-20", "S-ROUTE-03", "S-STORE-02")
async def test_a_sent_message_is_stored_as_it_was_sent(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        reply = await live.send(b"hello", properties={"KEYS": "k1", "TAGS": "a", "color": "red"}, flag=7)
        [message] = await live.messages()
    assert (reply.queue_id, reply.queue_offset) == (0, 0)
    assert reply.msg_id == message.offset_id
    assert (message.body, message.tags, message.keys, message.flag) == (b"hello", "a", ["k1"], 7)
    assert message.properties["color"] == "red"
    assert message.born_timestamp_ms == BORN_MS


async def test_a_stored_message_names_its_cluster_and_not_the_wish_to_wait(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.send(properties={"WAIT": "true", "XWAIT": "true"})
        await live.send(properties={"a": "b", "WAIT": "true"})
        first, second = await live.messages()
    assert first.properties == {"XWAIT": "true", "CLUSTER": "DefaultCluster"}
    assert second.properties == {"a": "b", "CLUSTER": "DefaultCluster"}


async def test_all_three_codes_store_alike(tmp_path: Path) -> None:
    v2 = send_request(properties={"TAGS": "t"})
    v1 = SendMessage("producers", "orders", "TBW102", 4, 0, 0, BORN_MS, 0, "TAGS\x01t\x02", 0, False, False)
    one = batch.encode([batch.BatchPart(b"body", b"TAGS\x01t\x02")])
    many = SendBatchMessage("producers", "orders", "TBW102", 4, 0, 0, BORN_MS, 0)
    async with live_broker(tmp_path) as live:
        for request, body in ((v2, b"body"), (v1, b"body"), (many, one)):
            await live.session.call(request, body)
        messages = await live.messages()
    assert [(message.body, message.tags) for message in messages] == [(b"body", "t")] * 3


@pytest.mark.covers("S-PROD-18")
async def test_a_batch_is_stored_message_by_message(tmp_path: Path) -> None:
    parts = [batch.BatchPart(b"b%d" % number, b"KEYS\x01k%d\x02" % number, number) for number in range(5)]
    async with live_broker(tmp_path) as live:
        await live.send(b"before")
        reply = await live.send(batch.encode(parts), batch=True)
        messages = (await live.messages())[1:]
    assert reply.queue_offset == 1
    assert reply.msg_id.split(",") == [message.offset_id for message in messages]
    assert [(message.body, message.keys, message.flag) for message in messages] == [
        (b"b%d" % number, [f"k{number}"], number) for number in range(5)
    ]


async def test_a_sender_sets_only_its_own_bits_of_the_system_flag(tmp_path: Path) -> None:
    """An inner batch would be unpacked by readers, and a commit ends a transaction when a broker starts again."""
    own = SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZSTD | SysFlag.MULTI_TAGS
    async with live_broker(tmp_path) as live:
        await live.send(b"one", sys_flag=-1 & ~SysFlag.PREPARED & ~SysFlag.COMPRESSION_MASK | own)
        parts = [batch.BatchPart(b"two", b"", 0)]
        await live.send(batch.encode(parts), batch=True, sys_flag=0x7FFFF8FB & ~0x700 | own)
        found = await live.messages()
    assert [(each.body, each.sys_flag) for each in found] == [(b"one", own), (b"two", own)]


async def test_a_producer_may_wait_for_the_disk_or_not(tmp_path: Path) -> None:
    async with live_broker(tmp_path, flush=Flush.SYNC) as live:
        replies = [await live.send(b"%d" % number, properties={"WAIT": "true"}) for number in range(20)]
        no_wait = await live.send(b"now", properties={"WAIT": "false"})
    assert [reply.queue_offset for reply in replies] == list(range(20))
    assert no_wait.queue_offset == 20


async def test_a_negative_queue_lets_the_broker_choose(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        chosen = {(await live.send(queue_id=-1)).queue_id for _ in range(60)}
    assert chosen == {0, 1, 2, 3}


@pytest.mark.covers("S-DELAY-01", "S-DELAY-02")
async def test_a_delayed_message_waits_in_the_schedule_topic(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.send(b"later", properties={"DELAY": "3", "TAGS": "t"}, queue_id=2)
        await live.send(b"much later", properties={"DELAY": "99"})
        [parked] = await live.messages("SCHEDULE_TOPIC_XXXX", 2)
        [clamped] = await live.messages("SCHEDULE_TOPIC_XXXX", 17)
        at_its_place = await live.pull(queue_id=2)
    assert (parked.properties["REAL_TOPIC"], parked.properties["REAL_QID"]) == ("orders", "2")
    assert clamped.body == b"much later"
    assert at_its_place.code == 19


@pytest.mark.covers("S-CONS-20", "S-RETRY-06")
async def test_a_retry_beyond_its_last_try_goes_to_the_dead_letter_topic(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.pull("TBW102")  # makes the group
        retry: dict[str, Any] = {"topic": "%RETRY%consumers", "reconsume_times": 3, "max_reconsume_times": 3}
        # It was sent in a transaction, which ended long ago.
        await live.send(b"hopeless", properties={"DELAY": "3", "TRAN_MSG": "true"}, **retry)
        [dead] = await live.messages("%DLQ%consumers")
    assert (dead.body, dead.topic) == (b"hopeless", "%DLQ%consumers")


REFUSED = [
    (send_request(topic="a b"), b"", 1, "letters, digits"),
    (send_request(topic=""), b"", 1, "topic"),
    (send_request(topic="x" * 128), b"", 1, "127"),
    (send_request(topic="../../etc"), b"", 1, "letters, digits"),
    (send_request(queue_id=9), b"", 1, r"queueId\[9\] is illegal"),
    (send_request(topic="SCHEDULE_TOPIC_XXXX"), b"", 16, "forbidden"),
    (send_request(default_topic="nothing", topic="unknown"), b"", 17, "apply first"),
    (send_request(), bytes(70_000), 13, "maxMessageSize is 65536"),
    (send_request(properties={"long": "x" * 32_800}), b"", 13, "use the body"),
    (send_request(properties={"DELAY": "soon"}), b"", 13, "'soon' is not a number"),
    (send_request(properties={"TRAN_MSG": "true", "DELAY": "3"}), b"", 13, "cannot be delayed"),
    (send_request(born_timestamp=1 << 63), b"", 1, "does not fit the record"),
    (send_request(born_timestamp=-1 << 70), b"", 1, "does not fit the record"),
    (send_request(flag=1 << 31), b"", 1, "does not fit the record"),
    (send_request(flag=1 << 70), b"", 1, "does not fit the record"),
    (send_request(reconsume_times=(1 << 30) + 1), b"", 13, "reconsumeTimes is 1073741825"),
    (send_request(reconsume_times=-1), b"", 13, "reconsumeTimes is -1"),
    (send_request(batch=True), b"not a batch", 1, "batch"),
    (send_request(batch=True), b"", 1, "batch"),
]


@pytest.mark.parametrize(("request_header", "body", "code", "words"), REFUSED)
async def test_what_cannot_be_stored_is_refused(
    tmp_path: Path, request_header: SendMessage, body: bytes, code: int, words: str
) -> None:
    async with live_broker(tmp_path, max_message_bytes=65_536) as live:
        with pytest.raises(RemoteError, match=words) as caught:
            await live.session.call(request_header, body)
        assert caught.value.code == code
        assert (await live.send(topic="healthy")).queue_offset == 0


async def test_a_batch_with_a_half_message_is_refused_whole(tmp_path: Path) -> None:
    parts = [batch.BatchPart(b"plain", b""), batch.BatchPart(b"half", b"TRAN_MSG\x01true\x02")]
    async with live_broker(tmp_path) as live:
        await live.send(b"before")
        with pytest.raises(RemoteError):
            await live.send(batch.encode(parts), batch=True)
        assert [message.body for message in await live.messages()] == [b"before"]


@pytest.mark.covers("S-ROUTE-05")
async def test_without_auto_create_an_unknown_topic_is_refused_with_the_way_out(tmp_path: Path) -> None:
    async with live_broker(tmp_path, auto_create_topic=False) as live:
        with pytest.raises(RemoteError, match="mqadmin updateTopic") as caught:
            await live.send(topic="unknown")
    assert caught.value.code == 17


@pytest.mark.covers("S-ROUTE-09")
@pytest.mark.parametrize("perm", [0, 4])
async def test_a_topic_without_write_permission_still_takes_what_clients_with_old_routes_send(
    tmp_path: Path, perm: int
) -> None:
    async with live_broker(tmp_path) as live:
        await live.send(b"before")
        await live.session.call(UpdateAndCreateTopic("orders", 4, 4, perm=perm))
        await live.send(b"after")
        await live.session.call(UpdateAndCreateTopic("orders", 4, 4, perm=6))
        assert [message.body for message in await live.messages()] == [b"before", b"after"]


async def test_a_broker_that_may_only_be_read_refuses_every_send(tmp_path: Path) -> None:
    async with live_broker(tmp_path, permission=4) as live:
        for topic in ("orders", "%RETRY%g"):
            with pytest.raises(RemoteError, match=r"sending message is forbidden: its brokerPermission is 4") as caught:
                await live.send(topic=topic)
            assert caught.value.code == 16
        with pytest.raises(RemoteError, match="sending message is forbidden") as caught:
            await live.session.call(ConsumerSendMsgBack(0, "g", 0))
        assert caught.value.code == 16


async def test_a_send_that_is_refused_makes_no_topic(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        with pytest.raises(RemoteError, match="is forbidden"):
            await live.send(topic="RMQ_SYS_TRANS_HALF_TOPIC")
        await live.session.call(UpdateAndCreateTopic("known", 1, 1, 6, "TBW102"))
    saved = (live.broker.settings.config_path / "topics.json").read_text()
    assert "known" in saved and "RMQ_SYS_TRANS_HALF_TOPIC" not in saved
