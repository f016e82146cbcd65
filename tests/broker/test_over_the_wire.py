"""Odd requests as raw frames, written without our own codec, and what Apache 4.9.7 answers to them.

Where ours answers another code than Apache, the row says why.
"""

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateTopic
from sparrowmq.protocol.requests.headers import ConsumerSendMsgBack, UpdateConsumerOffset
from sparrowmq.testing.clock import ManualClock
from tests.broker.conftest import until
from tests.broker.live import SUBSCRIPTION, SUSPEND, Live, live_broker
from tests.interop.wire import Reply, Wire, request

QUEUE = '{"brokerName":"broker-0","queueId":%d,"topic":"T"}'


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Live]:
    """A broker with topic T of two queues, one message in queue 0, and group CG which consumed none of it."""
    async with live_broker(tmp_path) as live:
        await live.session.call(UpdateAndCreateTopic("T", 2, 2, 6))
        await live.send(b"x", "T", 0, {"UNIQ_KEY": "AB01", "KEYS": "k"})
        await live.session.call(UpdateConsumerOffset("CG", "T", 0, 0))
        yield live


def port_of(live: Live) -> int:
    return int(live.broker.address.rpartition(":")[2])


async def ask(live: Live, code: int, fields: dict[str, Any] | None = None, body: bytes = b"", **header: Any) -> Reply:
    def talk() -> Reply:
        with Wire(port_of(live), timeout_s=5) as wire:
            return wire.ask(code, fields, body, **header)

    return await asyncio.to_thread(talk)


async def arrival(live: Live, offset: int) -> None:
    """Return when the first queue of topic T has a message at `offset`."""
    hold = {"sys_flag": SUBSCRIPTION | SUSPEND, "suspend_timeout_millis": 5000}
    assert (await live.pull("T", 0, offset, **hold)).code == 0


T0 = {"topic": "T", "queueId": 0}
CREATE = {"topic": "New", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG"}
CREATE |= {"defaultTopic": "TBW102", "topicSysFlag": 0, "order": "false"}
RESET = {"topic": "T", "group": "CG", "timestamp": -1, "isForce": "true"}
BEAT_ANSWER = {
    "IS_SUPPORT_HEART_BEAT_V2": "true",
    "IS_SUB_CHANGE": "true",
    # Ours alone: how our clients learn what delays they may ask for, and for how long repeats are recognised.
    "TIMER_MAX_DELAY_SEC": "3456000",
    "REPEAT_WINDOW_MS": "3600000",
    "TAKES_REASONS": "true",
}
BEAT = {"clientID": "c1", "producerDataSet": [], "consumerDataSet": []}

ROWS: list[tuple[str, int, dict[str, Any] | None, bytes, int, str | None]] = [
    # what, request code, fields, body, answer code, remark or a part of it
    ("create", 17, CREATE, b"", 0, None),
    ("create: a blank in the name", 17, CREATE | {"topic": "a b"}, b"", 1, "contains illegal characters"),
    ("create: a dot in the name", 17, CREATE | {"topic": "a.b"}, b"", 1, "contains illegal characters"),
    ("create: Chinese", 17, CREATE | {"topic": "订单"}, b"", 1, "contains illegal characters"),
    ("create: empty name", 17, CREATE | {"topic": ""}, b"", 1, "blank"),
    ("create: 128 characters", 17, CREATE | {"topic": "x" * 128}, b"", 1, "128 characters"),
    ("create: 127 characters", 17, CREATE | {"topic": "x" * 127}, b"", 0, None),
    (
        "create: TBW102",
        17,
        CREATE | {"topic": "TBW102"},
        b"",
        1,
        "The topic[TBW102] is conflict with system topic.",
    ),
    (
        "create: cluster's name",
        17,
        CREATE | {"topic": "DefaultCluster"},
        b"",
        1,
        "is conflict with system topic.",
    ),
    ("create: a retry topic", 17, CREATE | {"topic": "%RETRY%x"}, b"", 0, None),
    (
        "create: 0 queues (Apache: 0, and no send to it ever works)",
        17,
        CREATE | {"readQueueNums": 0},
        b"",
        1,
        "readQueueNums",
    ),
    (
        "create: perm 9 (Apache: 0, and nothing may be done with it)",
        17,
        CREATE | {"perm": 9},
        b"",
        1,
        "invalid perm 9",
    ),
    ("create: no number", 17, CREATE | {"readQueueNums": "four"}, b"", 1, "readQueueNums"),
    (
        "create: without perm",
        17,
        {k: v for k, v in CREATE.items() if k != "perm"},
        b"",
        1,
        "the custom field <perm> is null",
    ),
    (
        "create: filter type",
        17,
        CREATE | {"topicFilterType": "NONSENSE"},
        b"",
        1,
        "topicFilterType = [NONSENSE] value invalid",
    ),
    ("delete unknown topic", 215, {"topic": "Nope"}, b"", 0, None),
    (
        "delete system topic",
        215,
        {"topic": "TBW102"},
        b"",
        1,
        "The topic[TBW102] is conflict with system topic.",
    ),
    ("stats of unknown topic", 202, {"topic": "Nope"}, b"", 17, "topic[Nope] not exist"),
    ("query offset: unknown group", 14, T0 | {"consumerGroup": "nobody"}, b"", 0, None),
    (
        "query offset: queue out of range",
        14,
        {"topic": "T", "queueId": 9, "consumerGroup": "nobody"},
        b"",
        0,
        None,
    ),
    (
        "query offset: 5.x wants to know",
        14,
        T0 | {"consumerGroup": "nobody", "setZeroIfNotFound": "false"},
        b"",
        22,
        "Not found",
    ),
    (
        "query offset: unknown topic",
        14,
        T0 | {"topic": "Nope", "consumerGroup": "CG"},
        b"",
        0,
        None,
    ),
    ("commit", 15, T0 | {"consumerGroup": "CG", "commitOffset": 1}, b"", 0, None),
    ("commit beyond the end", 15, T0 | {"consumerGroup": "CG", "commitOffset": 10**6}, b"", 0, None),
    (
        "commit -1 (Apache: 0, read back as 0)",
        15,
        T0 | {"consumerGroup": "CG", "commitOffset": -1},
        b"",
        1,
        "0 or more",
    ),
    (
        "commit to unknown topic (Apache: 0)",
        15,
        {"topic": "Nope", "queueId": 0, "consumerGroup": "CG", "commitOffset": 1},
        b"",
        17,
        "not exist",
    ),
    (
        "commit without group (Apache: 0)",
        15,
        T0 | {"commitOffset": 1},
        b"",
        1,
        "the custom field <consumerGroup> is null",
    ),
    ("max offset of unknown topic", 30, T0 | {"topic": "Nope"}, b"", 0, None),
    ("min offset of unknown topic", 31, T0 | {"topic": "Nope"}, b"", 0, None),
    ("time in unknown topic", 29, T0 | {"topic": "Nope", "timestamp": 0}, b"", 0, None),
    ("earliest of unknown topic", 32, T0 | {"topic": "Nope"}, b"", 0, None),
    ("view at 0", 33, {"offset": 0}, b"", 0, None),
    ("view in the middle", 33, {"offset": 3}, b"", 1, "can not find message by the offset, 3"),
    (
        "view beyond the end",
        33,
        {"offset": 10**12},
        b"",
        1,
        "can not find message by the offset, 1000000000000",
    ),
    ("view at -1", 33, {"offset": -1}, b"", 1, "can not find message by the offset, -1"),
    (
        "query key",
        12,
        {"topic": "T", "key": "k", "maxNum": 9, "beginTimestamp": 0, "endTimestamp": 2**62},
        b"",
        0,
        None,
    ),
    (
        "query key, nothing",
        12,
        {"topic": "T", "key": "z", "maxNum": 9, "beginTimestamp": 0, "endTimestamp": 2**62},
        b"",
        22,
        "can not find message, maybe time range not correct",
    ),
    ("heartbeat without groups", 34, None, json.dumps(BEAT).encode(), 0, None),
    ("heartbeat of garbage", 34, None, b"garbage", 1, "JSON"),
    ("heartbeat without a body", 34, None, b"", 1, "JSON"),
    ("heartbeat without a client id", 34, None, b"{}", 1, "no clientID"),
    (
        "members of unknown group",
        38,
        {"consumerGroup": "nobody"},
        b"",
        1,
        "no consumer for this group, nobody",
    ),
    (
        "connections of unknown group",
        203,
        {"consumerGroup": "nobody"},
        b"",
        206,
        "the consumer group[nobody] not online",
    ),
    (
        "producers of unknown group",
        204,
        {"producerGroup": "nobody"},
        b"",
        1,
        "the producer group[nobody] not exist",
    ),
    ("unregister unknown client", 35, {"clientID": "c", "consumerGroup": "nobody"}, b"", 0, None),
    (
        "check: tags",
        46,
        None,
        b'{"subscriptionData":{"topic":"T","expressionType":"TAG","subString":"*"}}',
        0,
        None,
    ),
    (
        "check: SQL (as Apache without enablePropertyFilter)",
        46,
        None,
        b'{"subscriptionData":{"topic":"T","expressionType":"SQL92","subString":"a=1"}}',
        1,
        "does not support consumer to filter",
    ),
    ("send back: unknown group", 36, {"offset": 0, "group": "other", "delayLevel": 0}, b"", 0, None),
    (
        "send back: beyond the end",
        36,
        {"offset": 10**12, "group": "CG", "delayLevel": 0},
        b"",
        1,
        "look message by offset failed, 1000000000000",
    ),
    ("lock nothing", 41, None, b'{"consumerGroup":"CG","clientId":"c1","mqSet":[]}', 0, None),
    ("unlock by another", 42, None, b'{"consumerGroup":"CG","clientId":"c2","mqSet":[]}', 0, None),
    ("group without a name", 200, None, b"{}", 1, "blank"),
    ("group of garbage", 200, None, b"garbage", 1, "JSON"),
    (
        "group of an illegal name (Apache: 0)",
        200,
        None,
        b'{"groupName":"a b"}',
        1,
        "contains illegal characters",
    ),
    ("delete unknown group", 207, {"groupName": "nobody"}, b"", 0, None),
    ("progress of unknown group", 208, {"consumerGroup": "nobody"}, b"", 0, None),
    ("who consumes an unknown topic", 300, {"topic": "Nope"}, b"", 0, None),
    (
        "reset for nobody on line",
        222,
        RESET,
        b"",
        206,
        "Consumer not online, so can not reset offset, Group: CG Topic: T",
    ),
    (
        "reset of unknown topic",
        222,
        RESET | {"topic": "Nope"},
        b"",
        1,
        "[reset-offset] reset offset failed, no topic in this broker. topic=Nope",
    ),
    (
        "what does an unknown client do",
        307,
        {"consumerGroup": "nobody", "clientId": "c"},
        b"",
        1,
        "The Consumer <nobody> <c> not online",
    ),
    ("settings", 26, None, b"", 0, None),
    ("figures", 28, None, b"", 0, None),
    ("all topics", 21, None, b"", 0, None),
    ("all groups", 201, None, b"", 0, None),
    ("all offsets", 43, None, b"", 0, None),
    ("all delays", 45, None, b"", 0, None),
    ("system topics", 305, None, b"", 0, None),
    ("ACL version (Apache: silence)", 52, None, b"", 3, "not supported"),
    ("unknown code", 9999, None, b"", 3, "request code 9999 is not supported"),
    ("code 0", 0, None, b"", 3, "request code 0 is not supported"),
    ("a route, asked of a broker", 105, {"topic": "T"}, b"", 3, "not supported"),
]


@pytest.mark.parametrize(
    ("code", "fields", "body", "answer", "words"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
async def test_odd_requests_are_answered_with_apaches_codes(
    live: Live, code: int, fields: dict[str, Any] | None, body: bytes, answer: int, words: str | None
) -> None:
    reply = await ask(live, code, fields, body)
    assert reply.code == answer, reply.remark
    assert reply.flag & 1
    if words is None:
        assert reply.remark is None
    else:
        assert words in (reply.remark or "")


@pytest.mark.parametrize(
    ("code", "fields", "extra"),
    [
        (14, T0 | {"consumerGroup": "CG"}, {"offset": "0"}),
        (30, T0, {"offset": "1"}),
        (31, T0, {"offset": "0"}),
        (29, T0 | {"timestamp": 2**62}, {"offset": "1"}),
        (32, {"topic": "T", "queueId": 1}, {"timestamp": "-1"}),
        (34, None, BEAT_ANSWER),
    ],
)
async def test_every_field_of_an_answer_is_a_text(
    live: Live, code: int, fields: dict[str, Any] | None, extra: dict[str, str]
) -> None:
    reply = await ask(live, code, fields, json.dumps(BEAT).encode() if code == 34 else b"")
    assert reply.fields == extra


async def test_statistics_and_progress_have_queues_as_keys_as_fastjson_writes_them(live: Live) -> None:
    stats = (await ask(live, 202, {"topic": "T"})).body.decode()
    assert stats.startswith('{"offsetTable":{' + QUEUE % 0 + ':{"lastUpdateTimestamp":')
    assert QUEUE % 1 + ':{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}' in stats
    progress = (await ask(live, 208, {"consumerGroup": "CG"})).body.decode()
    assert progress.startswith(
        '{"consumeTps":0.0,"offsetTable":{' + QUEUE % 0 + ':{"brokerOffset":1,"consumerOffset":0,'
    )


@pytest.mark.parametrize(
    "header",
    [
        {"extFields": None},
        {"extFields": None, "remark": "", "language": "CPP", "version": 63},
        {"language": 9},
        {"language": "KLINGON", "version": 9999},
        {"serializeTypeCurrentRPC": "JSON", "anything": {"else": [1]}},
    ],
)
async def test_headers_of_all_kinds_are_understood(live: Live, header: dict[str, Any]) -> None:
    assert (await ask(live, 26, **header)).code == 0


@pytest.mark.parametrize(("value", "offset"), [("0", "1"), (0, "1"), ("1", "0"), (1, "0")])
async def test_numbers_are_taken_for_texts_and_unknown_fields_for_nothing(
    live: Live, value: object, offset: str
) -> None:
    reply = await ask(live, 30, extFields={"topic": "T", "queueId": value, "unknown": {"a": 1}})
    assert reply.fields == {"offset": offset}


FRAMES = {
    "length 0": struct.pack(">I", 0),
    "negative length": struct.pack(">i", -5),
    "length over 16 MiB": struct.pack(">I", (16 << 20) + 1),
    "header longer than the frame": struct.pack(">II", 10, 100) + b"{}" * 3,
    "header is no JSON": struct.pack(">II", 8, 4) + b"nope",
    "serializer 7": struct.pack(">II", 8, 7 << 24 | 4) + b"{}  ",
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
async def test_a_broken_frame_ends_its_connection_and_nobody_elses(live: Live, frame: bytes) -> None:
    def talk() -> None:
        with Wire(port_of(live), timeout_s=5) as wire:
            wire.send(frame)
            with pytest.raises((EOFError, ConnectionResetError)):
                wire.receive()

    await asyncio.to_thread(talk)
    assert (await ask(live, 30, T0)).fields == {"offset": "1"}


async def test_a_binary_header_is_answered_in_kind(live: Live) -> None:
    ext = b"".join(
        struct.pack(f">h{len(name)}si{len(value)}s", len(name), name, len(value), value)
        for name, value in ((b"topic", b"T"), (b"queueId", b"0"))
    )
    header = struct.pack(">hbhiii", 30, 0, 409, 77, 0, 0) + struct.pack(">i", len(ext)) + ext
    frame = struct.pack(">II", 4 + len(header), 1 << 24 | len(header)) + header
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(live))
    writer.write(frame)
    length, word = struct.unpack(">II", await reader.readexactly(8))
    answer = await reader.readexactly(length - 4)
    writer.close()
    await writer.wait_closed()
    code, _, _, opaque, flag = struct.unpack(">hbhii", answer[:13])
    assert (word >> 24, code, opaque, flag & 1) == (1, 0, 77, 1)
    assert answer.endswith(struct.pack(">h6si1s", 6, b"offset", 1, b"1"))


async def test_one_way_requests_are_not_answered(live: Live) -> None:
    def talk() -> Reply:
        with Wire(port_of(live), timeout_s=5) as wire:
            frame, _ = request(15, T0 | {"consumerGroup": "CG", "commitOffset": 1}, flag=2)
            wire.send(frame)
            frame, opaque = request(14, T0 | {"consumerGroup": "CG"})
            wire.send(frame)
            reply = wire.receive()
            assert reply.opaque == opaque
            return reply

    assert (await asyncio.to_thread(talk)).fields == {"offset": "1"}


async def test_the_retry_topic_is_in_the_route_when_the_first_heartbeat_is_answered(live: Live) -> None:
    beat = BEAT | {
        "consumerDataSet": [{"groupName": "fresh", "subscriptionDataSet": [{"topic": "T", "subString": "*"}]}]
    }
    assert (await ask(live, 34, None, json.dumps(beat).encode())).code == 0
    namesrv = int(live.cluster.namesrv.rpartition(":")[2])

    def route() -> Reply:
        with Wire(namesrv, timeout_s=5) as wire:
            return wire.ask(105, {"topic": "%RETRY%fresh"})

    assert (await asyncio.to_thread(route)).code == 0


@pytest.mark.covers("S-ROUTE-07", "S-ROUTE-11")
async def test_a_created_topic_is_in_the_route_when_the_answer_comes(live: Live) -> None:
    await ask(live, 17, CREATE)
    namesrv = int(live.cluster.namesrv.rpartition(":")[2])

    def route() -> Reply:
        with Wire(namesrv, timeout_s=5) as wire:
            return wire.ask(105, {"topic": "New"})

    found = json.loads((await asyncio.to_thread(route)).body)
    assert found["queueDatas"][0] | {"topicSysFlag": 0} == {
        "brokerName": "broker-0",
        "perm": 6,
        "readQueueNums": 4,
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }


@pytest.mark.covers("S-DELAY-01", "S-DELAY-04", "S-RETRY-01", "S-RETRY-05")
async def test_delays_and_retries_go_all_the_way_through_a_broker(tmp_path: Path) -> None:
    clock = ManualClock()
    async with live_broker(tmp_path, clock=clock) as live:
        await live.send(b"late", "T", 0, {"DELAY": "3"})
        await clock.advance(9.9)
        assert await live.messages("T") == []
        await clock.advance(0.2)
        (message,) = await live.messages("T")
        await live.session.call(ConsumerSendMsgBack(message.physical_offset, "CG", 0))
        await clock.advance(9.9)
        assert await live.messages("%RETRY%CG") == []
        await clock.advance(0.2)
        (again,) = await live.messages("%RETRY%CG")
        assert (again.body, again.reconsume_times, again.properties["RETRY_TOPIC"]) == (b"late", 1, "T")


@pytest.mark.covers("S-DELAY-05")
async def test_a_clean_restart_delivers_nothing_twice(tmp_path: Path) -> None:
    async with live_broker(tmp_path) as live:
        await live.send(b"once", "T", 0, {"DELAY": "1"})
        await arrival(live, 0)
    async with live_broker(tmp_path) as live:
        assert [message.body for message in await live.messages("T")] == [b"once"]
        await live.send(b"twice", "T", 0, {"DELAY": "1"})
        await arrival(live, 1)
        assert [message.body for message in await live.messages("T")] == [b"once", b"twice"]


async def test_a_member_is_told_when_another_closes_its_connection(live: Live) -> None:
    beat = BEAT | {"consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "T"}]}]}
    told: list[object] = []

    def stay() -> None:
        with Wire(port_of(live), timeout_s=5) as wire:
            assert wire.ask(34, None, json.dumps(beat).encode()).code == 0
            told.append("joined")
            told.append(wire.receive().code)  # the other joins
            told.append(wire.receive().code)  # and leaves

    staying = asyncio.create_task(asyncio.to_thread(stay))
    await until(lambda: bool(told))
    await ask(live, 34, None, json.dumps(beat | {"clientID": "c2"}).encode())
    await staying
    assert told == ["joined", 40, 40]
