"""The messages that are acknowledged together. What becomes of them: test_pop_requests.py."""

import pytest

from sparrowmq.client.popping.prefetch import AckBuffer
from sparrowmq.errors import ClientClosed


def test_the_first_message_of_a_turn_begins_the_acknowledgement_of_all():
    begun: list[int] = []
    buffer = AckBuffer(lambda: begun.append(1))
    buffer.add("a")
    buffer.add("b")
    buffer.extend(["c", "d"])
    assert (begun, buffer.take(), buffer.take()) == ([1], ["a", "b", "c", "d"], [])
    buffer.extend([])
    assert begun == [1]
    buffer.extend(["e"])
    assert (len(begun), buffer.take()) == (2, ["e"])


def test_a_message_that_cannot_be_acknowledged_is_not_taken():
    def fail() -> None:
        raise ClientClosed("the client was left")

    buffer = AckBuffer(fail)
    with pytest.raises(ClientClosed):
        buffer.add("a")
    assert buffer.take() == []
