import pytest

from sparrowmq.client.sending.send_result import LESS_SAFE, SendStatus, is_retriable
from sparrowmq.errors import BrokerUnreachable, ConnectionClosed, InvalidMessage, RemoteError, RequestTimeout


def test_less_safely_stored_are_three_answers_of_a_broker_that_has_the_message():
    assert {10, 11, 12} == LESS_SAFE
    assert [SendStatus(code).name for code in sorted(LESS_SAFE)] == [
        "FLUSH_DISK_TIMEOUT",
        "SLAVE_NOT_AVAILABLE",
        "FLUSH_SLAVE_TIMEOUT",
    ]


@pytest.mark.parametrize(
    "error",
    [
        BrokerUnreachable("a:1", "refused"),
        ConnectionClosed("a:1"),
        RequestTimeout("a:1", "a send", 3.0),
        RemoteError(1),
        RemoteError(2),
        RemoteError(16),
    ],
)
def test_what_another_broker_or_a_later_moment_may_mend_is_tried_again(error):
    assert is_retriable(error)


@pytest.mark.parametrize("error", [RemoteError(13), RemoteError(24), InvalidMessage("no body"), TimeoutError()])
def test_what_stays_wrong_is_not_tried_again(error):
    assert not is_retriable(error)
