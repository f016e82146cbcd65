import json

import pytest

from sparrowmq.broker.broker import memory_bytes
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.handlers.offsets_handler import OffsetHandler
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.admin_headers import GetAllConsumerOffset, GetAllDelayOffset
from sparrowmq.protocol.requests.headers import (
    GetEarliestMsgStoretime,
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from tests.peers import Asker


async def offset(client, request):
    return (await client.call(request)).header.offset


async def test_a_group_goes_on_where_it_committed(desk, client):
    desk.create("Orders")
    await client.call(UpdateConsumerOffset("g", "Orders", 1, 12))
    assert await offset(client, QueryConsumerOffset("g", "Orders", 1)) == 12


async def test_offsets_of_queues_that_never_existed_are_refused(desk, client):
    desk.create("Orders", 8)
    desk.send(b"last", queue_id=7)
    desk.create("Orders", 4)
    await client.call(UpdateConsumerOffset("g", "Orders", 3, 12))
    await client.call(UpdateConsumerOffset("g", "Orders", 7, 1))  # hidden, but it has messages
    for queue_id in (4, 300_000):
        error = await client.refusal(UpdateConsumerOffset("g", "Orders", queue_id, 12))
        assert error.remark == f"queueId[{queue_id}] is illegal, topic[Orders] has 4 read queues and 4 write queues"
    error = await client.refusal(UpdateConsumerOffset("g", "Orders", 3, 1 << 63))
    assert "commitOffset" in error.remark and "9223372036854775807" in error.remark
    assert desk.offsets.of_group("g", "Orders") == {3: 12, 7: 1}


@pytest.mark.covers("S-CONS-02")
async def test_a_new_group_begins_at_0_while_the_queue_is_young(desk, client):
    desk.send(b"first")
    assert await offset(client, QueryConsumerOffset("g", "Orders", 0)) == 0
    assert await offset(client, QueryConsumerOffset("g", "Orders", 1)) == 0, "an empty queue is young too"


async def test_a_new_group_chooses_itself_where_it_begins_when_the_queue_is_long(desk, client):
    handler = OffsetHandler(desk.shared, desk.delayed.progress, young_bytes=100)
    header = QueryConsumerOffset("g", "Orders", 0)
    desk.send(b"")
    with pytest.raises(RemoteError) as refused:
        handler.query(header, b"", Asker())
    assert (refused.value.code, refused.value.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
    )


def test_young_is_what_may_still_be_in_memory():
    assert 1 << 26 < memory_bytes(BrokerSettings()) < 1 << 44
    assert memory_bytes(BrokerSettings(memory_percent=0)) == 0


async def test_a_client_may_want_to_know_that_it_never_committed(desk, client):
    desk.send(b"first")
    error = await client.refusal(QueryConsumerOffset("g", "Orders", 0, set_zero_if_not_found=False))
    assert error.code == ResponseCode.QUERY_NOT_FOUND


async def test_a_new_group_begins_at_0_in_a_topic_that_is_not_there_yet(client):
    assert await offset(client, QueryConsumerOffset("g", "Nothing", 0)) == 0


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (UpdateConsumerOffset("g", "Nothing", 0, 1), ResponseCode.TOPIC_NOT_EXIST),
        (UpdateConsumerOffset("g", "Orders", 0, -1), ResponseCode.SYSTEM_ERROR),
        (UpdateConsumerOffset("g", "Orders", -1, 1), ResponseCode.SYSTEM_ERROR),
        (UpdateConsumerOffset("a@b", "Orders", 0, 1), ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_commits_that_make_no_sense_leave_no_state(desk, client, request_, code):
    desk.create("Orders")
    assert (await client.refusal(request_)).code == code
    assert list(desk.offsets.rows()) == []


async def test_a_queue_tells_its_ends(desk, client):
    for _ in range(3):
        desk.send(b"x")
    assert await offset(client, GetMinOffset("Orders", 0)) == 0
    assert await offset(client, GetMaxOffset("Orders", 0)) == 3
    assert await offset(client, GetMaxOffset("Orders", 1)) == 0


async def test_the_end_comes_with_the_incarnation_for_who_asks_for_it(desk, client):
    desk.send(b"first")
    plain, asked, absent = [
        (await client.call(request)).header
        for request in (
            GetMaxOffset("Orders", 0),
            GetMaxOffset("Orders", 0, with_incarnation=True),
            GetMaxOffset("Absent", 0, with_incarnation=True),
        )
    ]
    assert (plain.offset, plain.incarnation) == (1, None), "answers are Java's otherwise"
    assert (asked.offset, asked.incarnation) == (1, desk.topics.incarnation("Orders"))
    assert (absent.offset, absent.incarnation) == (0, 0)
    assert await offset(client, GetMinOffset("Nothing", 1)) == 0


async def test_the_earliest_time_is_that_of_the_first_message(desk, client):
    desk.send(b"x")
    first_ms = desk.clock.now_ms()
    await desk.clock.advance(5)
    desk.send(b"y")
    assert (await client.call(GetEarliestMsgStoretime("Orders", 0))).header.timestamp == first_ms
    assert (await client.call(GetEarliestMsgStoretime("Orders", 1))).header.timestamp == -1


@pytest.mark.parametrize(
    ("after_ms", "lower", "upper"),
    [
        (-5000, 0, 0),
        (0, 0, 0),
        (1000, 1, 0),
        (10_000, 1, 1),
        (19_000, 2, 1),
        (20_000, 2, 2),
        (20_001, 3, 2),
        (99_000, 3, 2),
    ],
)
async def test_a_time_finds_the_first_message_since_or_the_last_one_before(desk, client, after_ms, lower, upper):
    start_ms = desk.clock.now_ms()
    for _ in range(3):
        desk.send(b"x")
        await desk.clock.advance(10)
    time_ms = start_ms + after_ms
    assert await offset(client, SearchOffset("Orders", 0, time_ms)) == lower
    assert await offset(client, SearchOffset("Orders", 0, time_ms, "LOWER")) == lower
    assert await offset(client, SearchOffset("Orders", 0, time_ms, "UPPER")) == upper


async def test_a_time_in_an_empty_queue_finds_its_beginning(client):
    assert await offset(client, SearchOffset("Orders", 0, 1)) == 0


async def test_tools_get_all_offsets(desk, client):
    desk.offsets.commit("g", "Orders", 0, 3)
    assert json.loads((await client.call(GetAllConsumerOffset())).body) == {"offsetTable": {"Orders@g": {"0": 3}}}
    assert json.loads((await client.call(GetAllDelayOffset())).body) == {
        "offsetTable": {},
        "needed": 0,
        "logEnd": 0,
    }
