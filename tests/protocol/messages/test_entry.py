"""A message on its way into a store, and where it came to lie."""

from sparrowmq.kernel.string_hash import string_hash
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.properties import Properties


def entry(text: str = "") -> Entry:
    return Entry("Orders", 2, b"body", Properties(text), 1, bytes(8))


def test_the_queue_keeps_the_hash_of_the_tag() -> None:
    assert entry("TAGS\x01paid").tags_code == string_hash("paid")
    assert entry().tags_code == 0
    for tag in ("d", "é", "中", "\uffff", "\U0001f600"):
        assert entry(f"TAGS\x01{tag}").tags_code == string_hash(tag)


def test_the_queue_keeps_when_a_waiting_message_is_due_instead() -> None:
    waiting = entry("TAGS\x01paid")
    waiting.deliver_at_ms = 1_700_000_000_000
    assert waiting.tags_code == 1_700_000_000_000


def test_both_have_a_short_form_for_people() -> None:
    assert repr(entry()) == "<entry for Orders[2], 4 bytes>"
    assert repr(Placed(4096, 7, 1, bytes(8))) == "<placed at 4096, queue offset 7>"
