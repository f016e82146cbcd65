from typing import cast

import pytest

from sparrowmq.client.arguments import check_names
from sparrowmq.client.sending.producer_settings import OnewayArguments, make_send_call
from sparrowmq.errors import InvalidMessage
from sparrowmq.protocol.messages.message import Message


def test_arguments_describe_a_message_and_its_way():
    assert make_send_call("t", b"x", keys=None).message.keys == ()
    wanted = make_send_call("t", bytearray(b"x"), tag="a", keys="k", delay="10s", fifo="customer", timeout_s=2)
    assert wanted.message == Message("t", b"x", "a", ("k",), delay_level=3)
    assert (wanted.fifo, wanted.queue, wanted.timeout_s) == ("customer", None, 2)


def test_a_whole_message_takes_no_message_fields():
    message, received = Message("t", b"x"), cast(Message, object())
    assert make_send_call(message, fifo="k").message is message
    with pytest.raises(InvalidMessage, match=r"object is neither .* send\(topic, message.body"):
        make_send_call(received)
    with pytest.raises(InvalidMessage, match="a whole Message was given"):
        make_send_call(message, tag="a")


def test_an_argument_of_another_method_is_refused():
    check_names("send_nowait", {"tag": "a", "fifo": "k"}, OnewayArguments)
    with pytest.raises(TypeError, match=r"send_nowait\(\) got an unexpected keyword argument 'timeout_s'"):
        check_names("send_nowait", {"timeout_s": 1}, OnewayArguments)
