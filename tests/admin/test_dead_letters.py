import asyncio

import pytest

from sparrowmq.client.client import connect
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.errors import ConfigError, InvalidMessage, InvalidName


@pytest.fixture
async def mq(two, admin):
    await admin.create_topic("orders", queues=2)
    await admin.create_group("billing", max_retries=0)
    async with connect(two.namesrv, group="payments") as client:
        yield client


async def die(mq, admin, *bodies, **properties):
    """Have the group fail with some messages for good."""
    for body in bodies:
        await mq.send("orders", body, **properties)
    return await refuse(mq, admin, bodies)


async def refuse(mq, admin, bodies):
    """Have the group fail with all that is there."""
    async with mq.subscribe("orders", group="billing", start="earliest", max_reconsume_times=0) as messages:
        for _ in bodies:
            (await anext(aiter(messages))).retry()
        return await dead(admin, len(bodies))


async def dead(admin, count):
    found: list[ReceivedMessage] = []
    for _ in range(1000):
        if len(found := await admin.dead_letters("billing")) == count:
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(f"{len(found)} dead letters, not {count}")


@pytest.mark.covers("S-RETRY-08")
async def test_a_dead_letter_is_looked_at_and_handled_when_it_is_sent_again(mq, admin):
    (letter,) = await die(mq, admin, b"x" * 5000, tag="paid", keys="o-1", properties={"a": "1"})
    assert letter.queue.topic == "%DLQ%billing" and letter.body == b"x" * 5000
    before = (await admin.topic("orders")).count
    await admin.resend(letter)
    async with mq.subscribe("orders", group="billing", start="latest") as messages:
        again = await anext(aiter(messages))
        assert (again.topic, again.body, again.tag, again.keys) == ("orders", b"x" * 5000, "paid", ["o-1"])
        assert again.msg_id == letter.msg_id and again.properties["a"] == "1"
        assert again.reconsume_times == 0
        again.ack()
    assert (await admin.topic("orders")).count == before, "other groups get nothing"
    assert len(await admin.dead_letters("billing")) == 1


@pytest.mark.parametrize("way", ["resend", "replay"])
async def test_what_a_transaction_committed_is_no_half_message_when_it_is_sent_again(mq, admin, way):
    mq.check()(lambda _: None)
    async with mq.transaction("orders", b"paid"):
        pass
    (letter,) = await refuse(mq, admin, [b"paid"])
    assert letter.properties["TRAN_MSG"] == "true"
    await (admin.resend(letter) if way == "resend" else admin.replay(letter, "billing"))
    async with mq.subscribe("orders", group="billing", start="latest") as messages:
        again = await anext(aiter(messages))
        assert again.body == b"paid" and "TRAN_MSG" not in again.properties
        again.ack()


async def test_dead_letters_of_all_brokers_come_eldest_first(mq, admin):
    letters = await die(mq, admin, *[b"%d" % number for number in range(6)])
    times = [each.store_timestamp_ms for each in letters]
    assert times == sorted(times) and {each.body for each in letters} == {b"%d" % each for each in range(6)}
    assert len(await admin.dead_letters("billing", limit=2)) == 2


async def test_a_group_without_dead_letters_has_none(admin):
    assert await admin.dead_letters("nobody") == []


async def test_what_is_no_dead_letter_is_not_sent_again(mq, admin):
    sent = await mq.send("orders", b"x")
    message = await admin.message(sent.offset_msg_id)
    with pytest.raises(InvalidMessage, match="is no dead letter: it was read from orders"):
        await admin.resend(message)


@pytest.mark.parametrize(
    ("group", "limit", "error"), [("", 1, InvalidName), ("a b", 1, InvalidName), ("g", 0, ConfigError)]
)
async def test_wrong_questions_are_refused(admin, group, limit, error):
    with pytest.raises(error):
        await admin.dead_letters(group, limit=limit)


async def test_a_group_handles_a_message_again_as_it_came_from_its_topic(mq, admin):
    sent = await mq.send("orders", b"x", tag="paid", keys="o-1")
    async with mq.subscribe("orders", group="billing", start="earliest") as messages:
        (await anext(aiter(messages))).ack()
    message = await admin.message(sent.offset_msg_id)
    message.stored.properties["RETRY_TOPIC"] = "payments"  # as a client of another kind may claim
    await admin.replay(message, "billing")
    async with mq.subscribe("orders", group="billing") as messages:
        again = await anext(aiter(messages))
        assert (again.topic, again.body, again.tag, again.keys) == ("orders", b"x", "paid", ["o-1"])
        assert again.reconsume_times == 0
        again.ack()
    assert (await admin.topic("orders")).count == 1, "other groups get nothing"
