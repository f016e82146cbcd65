import asyncio
import json
import struct
from datetime import datetime
from typing import Any

import pytest

from sparrowmq.admin.groups import GroupLag, QueueLag, lags
from sparrowmq.admin.servers import Servers
from sparrowmq.client.client import connect
from sparrowmq.errors import AlreadyThere, ConfigError, InvalidName, NoGroup, NoRoute
from sparrowmq.protocol.messages.message import MessageQueue
from tests.client.conftest import until

BOTH = ["broker-0", "broker-1"]
QUEUES = [MessageQueue("orders", name, 0) for name in BOTH]


@pytest.fixture
async def mq(two):
    async with connect(two.namesrv) as client:
        yield client


@pytest.fixture
async def stored(admin, mq):
    """A topic of one queue on each broker, with three messages in each, and group billing that is done with them."""
    await admin.create_topic("orders", queues=1)
    await admin.create_group("billing")
    for queue in QUEUES:
        for number in range(3):
            await mq.send("orders", b"%d" % number, queue=queue)
    await admin.reset("billing", "orders", "latest")


async def test_a_group_is_created_at_every_master(admin, two):
    assert await admin.create_group("billing", max_retries=3, may_broadcast=False) == BOTH
    assert await admin.groups() == ["billing"]
    assert "billing" in await admin.groups("DefaultCluster", hidden=True)
    with pytest.raises(AlreadyThere, match="billing is there already"):
        await admin.create_group("billing")
    assert await admin.create_group("billing", exist_ok=True) == BOTH


async def test_a_change_leaves_what_is_not_given(admin, two):
    await admin.create_group("billing", max_retries=3, retry_queues=2)
    await admin.change_group("billing", may_consume=False)
    settings = (await admin.group("billing")).settings
    assert {
        name: (each.retry_max_times, each.retry_queue_nums, each.consume_enable) for name, each in settings.items()
    } == dict.fromkeys(BOTH, (3, 2, False))


async def test_a_group_is_shown_with_its_members(admin, mq):
    await admin.create_group("billing")
    assert (await admin.group("billing")).members == {}
    await admin.create_topic("orders", queues=1)
    async with mq.subscribe("orders", lambda _: None, group="billing") as consumer:
        await until(lambda: set(QUEUES) <= set(consumer.queues))
        (member,) = (await admin.group("billing")).members.values()
        assert member.client_id == mq.client_id


async def test_members_say_what_they_do(admin, mq, stored):
    assert await admin.members("billing") == []
    async with mq.subscribe("orders", group="billing", tag="TagA || TagB") as consumer:
        await until(lambda: set(QUEUES) <= set(consumer.queues))
        (member,) = await admin.members("billing")
    assert (member.client_id, member.language, member.silence) == (mq.client_id, "PYTHON", None)
    assert member.version == "V4_9_8" and member.running is not None
    filters = {each.topic: each.expression for each in member.running.subscription_set}
    assert filters["orders"] == "TagA || TagB"
    assert set(QUEUES) <= set(member.running.mq_table)


async def test_topics_of_members_are_named_as_in_their_namespace(two):
    async with connect(two.namesrv, namespace="shop") as mq:
        await mq.admin.create_topic("orders", queues=1)
        await mq.admin.create_group("billing")
        async with mq.subscribe("orders", lambda _: None, group="billing") as consumer:
            await until(lambda: set(QUEUES) <= set(consumer.queues))
            (member,) = await mq.admin.members("billing")
    assert member.running is not None
    assert {each.topic for each in member.running.subscription_set} == {"orders", "%RETRY%billing"}
    assert set(QUEUES) <= set(member.running.mq_table)


async def test_a_member_that_cannot_say_what_it_does_is_shown_with_the_reason(admin, two):
    await admin.create_group("billing")
    host, _, port = (await admin.brokers())[0].master.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    beat = {
        "clientID": "old",
        "consumerDataSet": [{"groupName": "billing", "consumeType": "CONSUME_PASSIVELY"}],
    }
    writer.write(frame({"code": 34, "language": "CPP", "version": 273, "opaque": 1}, json.dumps(beat).encode()))
    while (await received(reader))["opaque"] != 1:
        pass
    asked = asyncio.create_task(admin.members("billing"))
    while (command := await received(reader))["code"] != 307:
        pass
    answer = {"code": 3, "flag": 1, "opaque": command["opaque"], "remark": "request type 307 not supported"}
    writer.write(frame(answer))
    (member,) = await asked
    assert (member.client_id, member.language, member.version) == ("old", "CPP", "273")
    assert member.running is None and "request type 307 not supported" in str(member.silence)
    writer.close()


def frame(header: dict[str, object], body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body


async def received(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The header of the next frame, of JSON."""
    length, header = struct.unpack(">II", await reader.readexactly(8))
    rest = await reader.readexactly(length - 4)
    decoded: dict[str, Any] = json.loads(rest[: header & 0xFFFFFF])
    return decoded


async def test_a_deleted_group_is_nowhere_nor_are_its_retries_and_offsets(admin, stored, mq):
    async with mq.subscribe("orders", lambda _: None, group="billing"):
        assert "%RETRY%billing" in await admin.topics(hidden=True)
    assert await admin.delete_group("billing") == BOTH
    assert await admin.groups() == []
    assert "%RETRY%billing" not in await admin.topics(hidden=True)
    await admin.create_group("billing")
    assert (await admin.lag("billing", "orders")).lag == 6


@pytest.mark.parametrize("call", ["group", "change_group", "delete_group", "lag"])
async def test_a_group_that_is_not_there_is_told(admin, call):
    with pytest.raises(NoGroup, match="no consumer group 'missing'"):
        await getattr(admin, call)("missing")


async def test_wrong_names_are_told(admin, stored):
    with pytest.raises(InvalidName):
        await admin.create_group("no group")
    with pytest.raises(NoGroup):
        await admin.reset("missing", "orders", "latest")
    with pytest.raises(NoGroup):
        await admin.lag("missing", "orders")
    with pytest.raises(NoRoute):
        await admin.reset("billing", "missing", "latest")
    with pytest.raises(NoRoute):
        await admin.lag("billing", "missing")


async def test_lag_tells_how_far_a_group_is_in_each_queue(admin, stored, mq):
    assert (await admin.lag("billing")).lag == 0
    await mq.send("orders", b"4", queue=QUEUES[1])
    lag = await admin.lag("billing", "orders")
    assert [(each.queue, each.broker_offset, each.committed, each.lag) for each in lag.queues] == [
        (QUEUES[0], 3, 3, 0),
        (QUEUES[1], 4, 3, 1),
    ]
    assert lag.group == "billing" and lag.lag == 1
    (message,) = await admin.find("orders", since=datetime(2020, 1, 1), limit=1)
    assert lag.queues[0].last_consumed is not None
    assert lag.queues[0].last_consumed.timestamp() * 1000 >= message.store_timestamp_ms


async def test_a_group_that_never_consumed_has_no_lag_yet(admin):
    await admin.create_group("billing")
    assert (await admin.lag("billing")).queues == ()


async def test_lags_of_many_groups_read_the_table_of_groups_once(admin, two, stored, monkeypatch):
    names = [f"idle-{number}" for number in range(8)]
    for name in names:
        await admin.create_group(name)
    asked: list[str] = []
    ask = Servers.ask

    async def counted(self, address, request, body=b"", **options):
        asked.append(type(request).__name__)
        return await ask(self, address, request, body, **options)

    monkeypatch.setattr(Servers, "ask", counted)
    found = await lags(admin.servers, ["billing", *names, "nobody", "no name"])
    assert {name for name, each in found.items() if isinstance(each, GroupLag)} == {"billing", *names}
    billing = found["billing"]
    assert isinstance(billing, GroupLag) and billing.lag == 0 and len(billing.queues) == 2
    assert isinstance(found["nobody"], NoGroup) and isinstance(found["no name"], InvalidName)
    assert asked.count("GetConsumeStats") == 10 * len(two.brokers)
    assert asked.count("GetAllSubscriptionGroup") == len(two.brokers)


@pytest.mark.parametrize(("to", "offset"), [("earliest", 0), ("latest", 3), (2, 2), (99, 3)])
async def test_a_group_that_is_away_is_moved(admin, stored, to, offset):
    if to == "latest":
        await admin.reset("billing", "orders", 0)
    assert await admin.reset("billing", "orders", to) == dict.fromkeys(QUEUES, offset)
    assert [each.committed for each in (await admin.lag("billing", "orders")).queues] == [offset, offset]


async def test_a_group_that_is_away_is_moved_to_a_time(admin, stored, mq):
    past = await admin.find("orders", since=datetime(2020, 1, 1))
    await asyncio.sleep(0.002)  # the next message has another millisecond
    sent = await mq.send("orders", b"late", queue=QUEUES[0])
    (late,) = [each for each in await admin.find("orders", since=datetime(2020, 1, 1)) if each.body == b"late"]
    assert late.store_timestamp_ms > max(each.store_timestamp_ms for each in past)
    at = datetime.fromtimestamp(late.store_timestamp_ms / 1000)
    assert (await admin.reset("billing", "orders", at))[QUEUES[0]] == sent.offset


async def test_members_on_line_go_on_where_they_are_sent(admin, stored, mq):
    seen = []
    async with mq.subscribe("orders", lambda message: seen.append(message.body), group="billing") as consumer:
        await until(lambda: set(QUEUES) <= set(consumer.queues))
        assert seen == []
        assert await admin.reset("billing", "orders", "earliest") == dict.fromkeys(QUEUES, 0)
        await until(lambda: len(seen) == 6)
        with pytest.raises(ConfigError, match=r"online members.*stop them first"):
            await admin.reset("billing", "orders", 1)


@pytest.mark.parametrize("to", ["yesterday", -1, True, 1.5])
async def test_a_target_that_is_none_is_told(admin, to):
    with pytest.raises(ConfigError, match="is unknown; use 'earliest'"):
        await admin.reset("billing", "orders", to)


async def test_a_dry_run_tells_where_queues_would_go_on_and_moves_nobody(admin, stored):
    assert await admin.reset("billing", "orders", "earliest", dry_run=True) == dict.fromkeys(QUEUES, 0)
    assert (await admin.lag("billing", "orders")).lag == 0
    with pytest.raises(NoGroup):
        await admin.reset("nobody", "orders", "earliest", dry_run=True)
    with pytest.raises(ConfigError):
        await admin.reset("billing", "orders", "soon", dry_run=True)


def test_behind_is_told_in_seconds_where_it_is_known():
    now = datetime.fromtimestamp(1000)
    then = datetime.fromtimestamp(940)
    assert QueueLag(QUEUES[0], 5, 3, then).behind_s(now) == 60
    assert QueueLag(QUEUES[0], 5, 5, then).behind_s(now) == 0
    assert QueueLag(QUEUES[0], 5, 3, None).behind_s(now) is None
