"""Types of topics: the same decisions as Java 5.4.0."""

import pytest

from sparrowmq.protocol.messages.message_types import (
    MessageType,
    accepted_types,
    type_of_topic,
)


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        (None, MessageType.NORMAL),
        ({}, MessageType.NORMAL),
        ({"reserve.time": "1"}, MessageType.NORMAL),
        ({"message.type": "FIFO"}, MessageType.FIFO),
        ({"message.type": "MIXED"}, MessageType.MIXED),
        ({"message.type": "OF_A_LATER_VERSION"}, MessageType.NORMAL),
    ],
)
def test_an_attribute_gives_the_type_of_a_topic(attributes, kind):
    assert type_of_topic(attributes) is kind


def test_a_route_lists_the_types_of_a_topic():
    assert accepted_types(MessageType.FIFO) == (MessageType.FIFO,)
    assert accepted_types(MessageType.UNSPECIFIED) == ()
    listed = accepted_types(MessageType.MIXED)
    assert listed == (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)
