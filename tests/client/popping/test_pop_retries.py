import pytest

from sparrowmq.client.consuming.received_message import ReceivedMessage, SettleOptions
from sparrowmq.client.popping.pop_requests import PopRedelivery
from sparrowmq.protocol.messages.message import MessageQueue
from tests.client.consuming.test_received import stored
from tests.client.popping.answers import ACK, CHANGE, POP, fields, popped, rec


class Noted:
    """Notes which messages are given back or rejected in the usual way."""

    def __init__(self) -> None:
        self.given_back: list[object] = []
        self.rejected: list[object] = []

    async def give_back(self, message) -> None:
        self.given_back.append(message)

    async def reject(self, message) -> None:
        self.rejected.append(message)

    move_to_dlq = reject


@pytest.fixture
def noted():
    return Noted()


@pytest.fixture
async def message(peer, popping):
    peer.script(POP, popped(rec(7)))
    (found,) = await popping.pop()
    return found


@pytest.mark.parametrize(
    ("wish", "failures", "ms"),
    [
        (SettleOptions(), 0, "10000"),
        (SettleOptions(), 2, "60000"),
        (SettleOptions(delay_level=1), 2, "1000"),
        (SettleOptions(delay_s=2.5), 0, "2500"),
    ],
)
async def test_a_failed_message_becomes_visible_after_its_delay(peer, popping, noted, message, wish, failures, ms):
    message._options, message.reconsume_times = wish, failures
    await PopRedelivery(popping.pops, noted, 16).give_back(message)
    assert [each["invisibleTime"] for each in fields(peer, CHANGE)] == [ms]
    assert message._is_spent
    assert not noted.given_back


async def test_after_the_last_failure_it_goes_to_the_dead_letters_and_is_acknowledged(
    peer, popping, noted, message
):  # fmt: skip
    message.reconsume_times = 3
    await PopRedelivery(popping.pops, noted, 3).give_back(message)
    assert noted.rejected == [message]
    assert len(fields(peer, ACK)) == 1
    assert not fields(peer, CHANGE)


async def test_a_message_that_was_not_popped_is_given_back_as_usual(peer, popping, noted):
    pulled = ReceivedMessage(stored(), MessageQueue("%RETRY%g", "broker-a", 0))
    retries = PopRedelivery(popping.pops, noted, 3)
    await retries.give_back(pulled)
    await retries.reject(pulled)
    assert (noted.given_back, noted.rejected) == ([pulled], [pulled])
    assert not fields(peer, ACK)
