"""The identity of a message: the same for all its copies, and another for every other message."""

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.once.idempotent import identity, mark_of
from tests.client.conftest import until
from tests.once.messages import received


def test_the_ids_have_their_ranks():
    assert identity(received("U-1", once_id="mine", ORIGIN_MESSAGE_ID="O-1")) == "mine"
    assert identity(received("U-1", ORIGIN_MESSAGE_ID="O-1")) == "U-1"
    assert identity(received(None, ORIGIN_MESSAGE_ID="O-1")) == "O-1"
    assert identity(received(None)) == received(None).offset_msg_id


def test_a_copy_in_the_retry_topic_has_the_mark_of_its_message():
    copy = received("U-1", "%RETRY%billing", 9000, RETRY_TOPIC="orders")
    assert mark_of(copy, "billing") == mark_of(received("U-1"), "billing")


def test_marks_differ_by_handler_topic_and_message():
    marks = {
        mark_of(received("U-1"), "billing"),
        mark_of(received("U-2"), "billing"),
        mark_of(received("U-1"), "mailing"),
        mark_of(received("U-1", "refunds"), "billing"),
        mark_of(received("U-1"), "billing", lambda message: "p-1"),
    }
    assert len(marks) == 5 and {len(mark) for mark in marks} == {64}


def test_half_a_surrogate_pair_is_a_key_like_any_other():
    assert mark_of(received(), "billing", lambda _: "\ud800") != mark_of(received(), "billing", lambda _: "\ud801")


@pytest.mark.parametrize("key", [None, "", 5])
def test_a_key_that_is_no_text_is_refused(key):
    with pytest.raises(ConfigError, match="key= must return a text"):
        mark_of(received(), "billing", lambda message: key)


async def asynchronous(message):
    return "key"


@pytest.mark.parametrize("key", [None, "id", lambda: "key", asynchronous])
def test_a_key_that_is_no_plain_function_of_a_message_is_refused(key):
    with pytest.raises(ConfigError, match="a plain function of a message"):
        mark_of(received(), "billing", key)


@pytest.mark.parametrize("name", [None, 5, b"billing", "", " "])
def test_a_name_that_is_no_text_is_refused(name):
    with pytest.raises(ConfigError, match="name="):
        mark_of(received(), name)


@pytest.mark.parametrize("message", [None, "U-1", b"body"])
def test_something_that_is_no_message_is_refused(message):
    with pytest.raises(ConfigError, match="is no message of a consumer"):
        mark_of(message, "billing")
    with pytest.raises(ConfigError, match="is no message of a consumer"):
        identity(message)


async def test_the_identity_stays_through_the_retries_of_a_real_broker(mq):
    seen = []

    async def fail_once(message):
        seen.append((message.queue.topic, identity(message)))
        if len(seen) == 1:
            raise ValueError("not now")

    async with mq.subscribe("orders", fail_once, group="billing", start="earliest"):
        sent = await mq.send("orders", b"{}")
        await until(lambda: len(seen) == 2, 30)
    assert seen == [("orders", sent.msg_id), ("%RETRY%billing", sent.msg_id)]
