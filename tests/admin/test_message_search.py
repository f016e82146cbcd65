import asyncio
from datetime import datetime, timedelta

import pytest

from sparrowmq.client.client import connect
from sparrowmq.errors import ConfigError, NoMessage, NoRoute

LONG_AGO = datetime(2020, 1, 1)


@pytest.fixture
async def mq(two, admin):
    await admin.create_topic("orders", queues=2)
    async with connect(two.namesrv) as client:
        yield client


async def indexed(find):
    """What `find` finds once the index has it: keys are written a tenth of a second later."""
    for _ in range(100):
        if found := await find():
            return found
        await asyncio.sleep(0.02)
    raise AssertionError("it was never found")


@pytest.mark.covers("S-STORE-05", "S-STORE-06")
async def test_a_message_is_found_by_either_id(mq, admin):
    sent = await mq.send("orders", b"hello", keys=["o-1"])
    await indexed(lambda: admin.find("orders", "o-1"))
    by_place = await admin.message(sent.offset_msg_id)
    by_name = await admin.message(sent.msg_id, "orders")
    for found in (by_place, by_name):
        assert (found.body, found.msg_id, found.offset_msg_id) == (b"hello", sent.msg_id, sent.offset_msg_id)
        assert (found.queue, found.offset) == (sent.queue, sent.offset)


async def test_an_id_of_no_message_is_told(mq, admin):
    sent = await mq.send("orders", b"hello")
    with pytest.raises(NoMessage, match=r"no message .* in topic orders"):
        await admin.message("0" * 32, "orders")
    with pytest.raises(ConfigError, match="name its topic, too, to find it"):
        await admin.message(sent.msg_id)
    place = sent.offset_msg_id[:-4] + "FFFF"
    with pytest.raises(NoMessage, match="at 127"):
        await admin.message(place)
    with pytest.raises(NoRoute):
        await admin.message(sent.msg_id, "missing")


@pytest.mark.covers("S-STORE-06")
@pytest.mark.covers("S-STORE-05")
async def test_messages_are_found_by_key_on_every_broker(mq, admin):
    queues = await mq.queues("orders")
    for number, queue in enumerate(queues):
        await mq.send("orders", b"%d" % number, keys=["o-1", f"n-{number}"], queue=queue)
    await indexed(lambda: admin.find("orders", f"n-{len(queues) - 1}"))
    await indexed(lambda: admin.find("orders", "n-0"))
    found = await admin.find("orders", "o-1")
    assert [each.body for each in found] == [b"0", b"1", b"2", b"3"]
    assert {each.queue for each in found} == set(queues)
    assert [each.body for each in await admin.find("orders", "o-1", limit=1)] == [b"3"]
    assert await admin.find("orders", "o-1", until=LONG_AGO) == []
    assert await admin.find("orders", "nobody's") == []


@pytest.mark.covers("S-STORE-06")
async def test_messages_are_found_by_time(mq, admin):
    before = [await mq.send("orders", b"%d" % number) for number in range(70)]
    await asyncio.sleep(0.002)  # the next messages have another millisecond
    after = [await mq.send("orders", b"late %d" % number) for number in range(70)]
    everything = await admin.find("orders", since=LONG_AGO, limit=1000)
    assert {each.msg_id for each in everything} == {each.msg_id for each in before + after}
    times = [each.store_timestamp_ms for each in everything]
    assert times == sorted(times)
    middle_ms = next(each.store_timestamp_ms for each in everything if each.body.startswith(b"late"))
    middle = datetime.fromtimestamp(middle_ms / 1000)
    late = await admin.find("orders", since=middle, limit=1000)
    assert {each.msg_id for each in late} == {each.msg_id for each in after}
    early = await admin.find("orders", since=LONG_AGO, until=middle, limit=1000)
    assert {each.msg_id for each in early} == {each.msg_id for each in before}
    assert len(await admin.find("orders", since=middle, limit=5)) == 5
    assert await admin.find("orders", since=middle + timedelta(days=1)) == []


async def test_a_search_for_everything_is_refused(admin):
    with pytest.raises(ConfigError, match="give a key, or a time"):
        await admin.find("orders")
    with pytest.raises(ConfigError, match="limit=0"):
        await admin.find("orders", "k", limit=0)
    with pytest.raises(NoRoute):
        await admin.find("missing", since=LONG_AGO)
