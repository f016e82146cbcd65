import pytest

from sparrowmq.client.sending.encoder import MessageEncoder
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.errors import InvalidMessage
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.message import Message, SysFlag

ID = "0" * 32


def packing(namespace: str = "") -> MessageEncoder:
    return MessageEncoder(ProducerSettings(compress_over_bytes=100), lambda: ID, namespace)


def test_a_message_is_packed_with_its_id_its_properties_and_its_namespace():
    made = packing("shop")
    item = made.encode_message(made.prepare(Message("t", b"x", keys="k", properties={"region": "EU"}, flag=5)), 2.0)
    assert (item.topic, item.body, item.flag, item.timeout_s) == ("shop%t", b"x", 5, 2.0)
    assert item.msg_ids == (ID,)
    assert properties.parse(item.properties) == {
        "region": "EU",
        "KEYS": "k",
        "WAIT": "true",
        "INSTANCE_ID": "shop",
        "UNIQ_KEY": ID,
    }


def test_a_large_body_is_compressed():
    made = packing()
    item = made.encode_message(made.prepare(Message("t", b"x" * 101)), None)
    assert len(item.body) < 101 and item.sys_flag == SysFlag.COMPRESSED


def test_a_batch_carries_what_was_prepared():
    made = packing()
    prepared = list(made.prepare_all([Message("t", b"1", "a"), Message("t", b"2")]))
    batch = made.encode_batch(prepared, None)
    assert batch.is_batch and batch.msg_ids == (ID, ID)
    assert all(each.properties.encode() in batch.body for each in prepared)


def test_the_message_that_cannot_be_sent_is_named():
    with pytest.raises(InvalidMessage, match=r"message 1 of those to send: the body is empty.*None of them was sent"):
        list(packing().prepare_all([Message("t", b"x"), Message("t", b"")]))
