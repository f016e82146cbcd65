"""A recall names a message of its own topic and of its own account."""

import pytest

from sparrowmq.protocol.messages.recalls import Recalls, delete_key


def recalls(*owners, key="orders+AB01", topic="orders"):
    found = Recalls()
    for owner in owners:
        owned = {} if owner is None else {"TIMER_OWNER": owner}
        found.add({"REAL_TOPIC": topic, "TIMER_DEL_UNIQKEY": key} | owned)
    return found


@pytest.mark.parametrize(
    "owners, owner, is_recalled",
    [
        ((), None, False),
        ((None,), None, True),
        ((None,), "a", True),
        (("a",), "a", True),
        (("b",), "a", False),
        (("b",), None, True),
        (("b", "a"), "a", True),
        (("b", None), "a", True),
    ],
)
def test_a_recall_counts_for_messages_of_its_own_account(owners, owner, is_recalled):
    assert recalls(*owners).include("orders", "AB01", owner) is is_recalled


def test_a_recall_counts_for_the_message_that_it_names_and_in_its_own_topic():
    found = recalls(None)
    assert not found.include("orders", "AB02", None) and not found.include("order", "s+AB01", None)
    assert not recalls(None, topic="others").include("orders", "AB01", None)
    assert delete_key("orders", "AB01") == "orders+AB01"
