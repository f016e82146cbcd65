import pytest

from sparrowmq.broker.handlers import query_handler
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.requests.admin_headers import QueryConsumeQueue
from sparrowmq.protocol.requests.bodies import QueueEntries
from sparrowmq.protocol.requests.headers import QueryMessage, ViewMessage

FOREVER = (0, 1 << 62)


async def bodies(client, *request, **more):
    response = await client.call(QueryMessage(*request, **more))
    return [record.decode(each).body for each in record.walk(response.body)]


async def test_messages_are_found_by_each_of_their_keys_and_by_their_unique_id(desk, client):
    desk.send(b"one", KEYS="k1 k2", UNIQ_KEY="AB01")
    desk.send(b"two", KEYS="k2", UNIQ_KEY="AB02")
    assert await bodies(client, "Orders", "k1", 10, *FOREVER) == [b"one"]
    assert await bodies(client, "Orders", "k2", 10, *FOREVER) == [b"one", b"two"]
    assert await bodies(client, "Orders", "AB02", 10, *FOREVER, unique_key_query=True) == [b"two"]


async def test_keys_of_other_topics_and_of_the_same_hash_do_not_mix(desk, client):
    desk.send(b"mine", KEYS="Aa")
    desk.send(b"same hash", KEYS="BB")
    desk.send(b"elsewhere", topic="Payments", KEYS="Aa")
    assert await bodies(client, "Orders", "Aa", 10, *FOREVER) == [b"mine"]


async def test_messages_are_found_among_more_messages_whose_keys_have_the_same_hash(desk, client):
    desk.send(b"mine", KEYS="Aa")
    for number in range(140):
        desk.send(b"%d" % number, KEYS="BB")
    assert await bodies(client, "Orders", "Aa", 64, *FOREVER) == [b"mine"]


async def test_a_search_among_very_many_keys_of_the_same_hash_ends_with_an_error(desk, client, monkeypatch):
    monkeypatch.setattr("sparrowmq.store.key_search.MOST_SEARCHED", 100)
    desk.send(b"old", KEYS="Aa")
    for number in range(140):
        desk.send(b"%d" % number, KEYS="BB")
    error = await client.refusal(QueryMessage("Orders", "Aa", 64, *FOREVER))
    assert "100 messages with other keys of the same hash were searched" in error.remark
    desk.send(b"new", KEYS="Aa")
    assert await bodies(client, "Orders", "Aa", 64, *FOREVER) == [b"new"]


async def test_an_answer_of_a_search_is_no_larger_than_clients_take(desk, client, monkeypatch):
    monkeypatch.setattr("sparrowmq.store.key_search.MOST_FOUND_BYTES", 10_000)
    for _ in range(10):
        desk.send(bytes(3000), KEYS="k")
    assert len(await bodies(client, "Orders", "k", 64, *FOREVER)) == 4


async def test_one_broker_answers_at_most_64(desk, client):
    for number in range(70):
        desk.send(b"%d" % number, KEYS="k")
    assert len(await bodies(client, "Orders", "k", 1000, *FOREVER)) == 64
    assert len(await bodies(client, "Orders", "k", 3, *FOREVER)) == 3
    assert len(await bodies(client, "Orders", "k", 1000, *FOREVER, unique_key_query=True)) == 32


async def test_only_the_asked_span_of_time_is_searched(desk, client):
    desk.send(b"early", KEYS="k")
    await desk.clock.advance(60)
    desk.send(b"late", KEYS="k")
    now_ms = desk.clock.now_ms()
    assert await bodies(client, "Orders", "k", 10, now_ms - 1000, now_ms + 1000) == [b"late"]


async def test_nothing_found_is_an_error_that_tools_know(client):
    error = await client.refusal(QueryMessage("Orders", "k", 10, *FOREVER))
    assert (error.code, error.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        "can not find message, maybe time range not correct",
    )


async def test_the_answer_says_how_far_the_index_is(desk, client):
    offset = desk.send(b"one", KEYS="k")
    header = (await client.call(QueryMessage("Orders", "k", 1, *FOREVER))).header
    assert (header.index_last_update_timestamp, header.index_last_update_phyoffset) == (
        desk.clock.now_ms(),
        offset,
    )


async def test_a_message_is_viewed_by_its_place(desk, client):
    desk.send(b"one")
    offset = desk.send(b"two")
    found = record.decode((await client.call(ViewMessage(offset))).body)
    assert (found.body, found.physical_offset) == (b"two", offset)


@pytest.mark.parametrize("offset", [-1, 1, 7, 1 << 40, 1 << 62])
async def test_a_place_without_a_message_is_an_error(desk, client, offset):
    desk.send(b"one")
    error = await client.refusal(ViewMessage(offset))
    assert (error.code, error.remark) == (
        ResponseCode.SYSTEM_ERROR,
        f"can not find message by the offset, {offset}",
    )


async def test_the_entries_of_a_queue_say_where_messages_lie(desk, client):
    places = [desk.send(b"%d" % number, TAGS="Aa") for number in range(5)]
    found = QueueEntries.decode((await client.call(QueryConsumeQueue("Orders", 0, 3, 10))).body)
    assert found.queue_data is not None
    assert [entry.physic_offset for entry in found.queue_data] == places[3:]
    assert found.queue_data[0].tags_code == 2112
    assert (found.min_queue_index, found.max_queue_index, found.subscription_data) == (0, 5, None)
    found = QueueEntries.decode((await client.call(QueryConsumeQueue("Orders", 0, 0, 2))).body)
    assert len(found.queue_data or []) == 2


async def test_with_what_the_group_subscribes_if_it_is_on_line(desk, client):
    desk.send(b"x")
    away = QueueEntries.decode((await client.call(QueryConsumeQueue("Orders", 0, 0, 1, "g"))).body)
    assert (away.subscription_data, away.filter_data) == (None, "g@Orders is not online!")
    await client.beat("one", "Orders")
    there = QueueEntries.decode((await client.call(QueryConsumeQueue("Orders", 0, 0, 1, "g"))).body)
    assert there.subscription_data is not None and there.subscription_data.expression == "*"


async def test_entries_that_are_not_there_are_errors(desk, client):
    desk.send(b"x")
    assert (await client.refusal(QueryConsumeQueue("Orders", 3, 0, 1))).remark == "3@Orders is not exist!"
    error = await client.refusal(QueryConsumeQueue("Orders", 0, 1, 1))
    assert error.remark == "Index 1 of 0@Orders is not exist!"


async def test_entries_are_read_and_written_in_steps(desk):
    for number in range(30):
        desk.send(b"%d" % number)
    queue = desk.store.queues.get("Orders", 0)
    steps = sum(1 for _ in query_handler._with_entries(QueueEntries(), queue, 0, 30))
    assert steps >= 60, "each entry is read in a step, and written in another"
