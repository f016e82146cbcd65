from datetime import datetime

import pytest

import sparrowmq
from sparrowmq.admin.message_search import read
from sparrowmq.errors import NoRoute
from sparrowmq.protocol.names import dlq_topic

COUNT = 1200


@pytest.fixture
async def many(two, admin):
    await admin.create_topic(dlq_topic("many"), queues=2)
    async with sparrowmq.connect(two.namesrv) as mq:
        for number in range(0, COUNT, 100):
            for each in range(number, number + 100):
                mq.send_nowait(dlq_topic("many"), b"%d" % each)
            await mq.flush()
    return admin


async def test_all_messages_of_all_queues_come_in_the_order_of_their_times(many):
    reading = await read(many.servers, dlq_topic("many"))
    found = [each async for each in reading]
    assert sorted(int(each.body) for each in found) == list(range(COUNT))
    times = [each.stored.store_timestamp_ms for each in found]
    assert times == sorted(times) and len({each.queue for each in found}) > 1
    assert (reading.looked, reading.total, await reading.peek()) == (COUNT, COUNT, False)


async def test_it_goes_on_where_it_was_left_and_ends_where_the_queues_ended(two, many):
    reading = await read(many.servers, dlq_topic("many"))
    first = [await anext(reading) for _ in range(700)]
    async with sparrowmq.connect(two.namesrv) as mq:
        await mq.send(dlq_topic("many"), b"later")
    assert await reading.peek()
    rest = [each async for each in reading]
    assert len({(each.queue, each.offset) for each in first + rest}) == COUNT
    assert b"later" not in {each.body for each in rest}


async def test_a_span_of_time_takes_what_was_stored_since_and_before(many):
    every = [each async for each in await read(many.servers, dlq_topic("many"))]
    times = [each.stored.store_timestamp_ms for each in every]
    since, until = times[300], times[900] + 1
    moments = [datetime.fromtimestamp(each / 1000).astimezone() for each in (since, until)]
    found = [each async for each in await read(many.servers, dlq_topic("many"), *moments)]
    assert len(found) == sum(since <= each < until for each in times) > 0


async def test_the_newest_come_first_where_they_are_wanted(many):
    topic = dlq_topic("many")
    every = [each async for each in await read(many.servers, topic)]
    back = await read(many.servers, topic, newest_first=True)
    found = [each async for each in back]
    times = [each.stored.store_timestamp_ms for each in found]
    assert sorted(int(each.body) for each in found) == list(range(COUNT))
    assert times == sorted(times, reverse=True) and (back.looked, back.total) == (COUNT, COUNT)
    moments = [
        datetime.fromtimestamp(each.stored.store_timestamp_ms / 1000).astimezone() for each in (every[300], every[900])
    ]
    old = [each async for each in await read(many.servers, topic, *moments)]
    new = [each async for each in await read(many.servers, topic, *moments, newest_first=True)]
    assert old and {each.stored.offset_id for each in old} == {each.stored.offset_id for each in new}


async def test_a_topic_that_is_not_there_cannot_be_read(admin):
    with pytest.raises(NoRoute):
        await read(admin.servers, "nothing")
