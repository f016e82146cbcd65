"""The messages that are acknowledged together. What becomes of them: test_pops.py."""

import pytest

from sparrowmq.client.popping.ack_buffer import AckBuffer
from sparrowmq.errors import ClientClosed


@pytest.mark.guards("AckBuffer.add: false not self._messages", "AckBuffer.add: true not self._messages")
def test_the_first_message_of_a_turn_begins_the_acknowledgement_of_all():
    begun: list[int] = []
    buffer = AckBuffer(lambda: begun.append(1))
    buffer.add("a")
    buffer.extend(["b", "c"])
    assert (begun, buffer.take(), buffer.take()) == ([1], ["a", "b", "c"], [])
    buffer.add("d")
    assert (len(begun), buffer.take()) == (2, ["d"])


def test_a_message_that_cannot_be_acknowledged_is_not_taken():
    def fail() -> None:
        raise ClientClosed("the client was left")

    buffer = AckBuffer(fail)
    with pytest.raises(ClientClosed):
        buffer.add("a")
    assert buffer.take() == []
