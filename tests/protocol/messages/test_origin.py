"""The place that a message came from."""

import pytest
from msgspec.structs import replace

from sparrowmq.protocol.messages.message import with_origin
from tests.broker.later.test_retry_rules import MESSAGE

CLAIM = {"RETRY_TOPIC": "payments", "ORIGIN_MESSAGE_ID": "F00", "UNIQ_KEY": "AB"}


def test_first_failure_ignores_the_topic_that_a_producer_claims():
    found = with_origin(CLAIM, MESSAGE)
    assert found == {"RETRY_TOPIC": "Orders", "ORIGIN_MESSAGE_ID": MESSAGE.offset_id, "UNIQ_KEY": "AB"}


@pytest.mark.parametrize("topic", ["%RETRY%billing", "%DLQ%billing"])
def test_later_failure_keeps_the_place_or_writes_it(topic):
    again = replace(MESSAGE, topic=topic)
    assert with_origin(CLAIM, again) == CLAIM
    assert with_origin({}, again)["RETRY_TOPIC"] == topic
