import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.errors import ConfigError
from sparrowmq.protocol import receipt_handle
from sparrowmq.protocol.receipt_handle import (
    Kind,
    OrderCounts,
    PoppedQueue,
    ReceiptHandle,
    handle_in_record,
    message_offsets_text,
    popped_queues,
    start_offsets_text,
)

TEXT = "7 1795144375341 30000 3 0 broker-a 2 9 4711"
HANDLE = ReceiptHandle(7, 1_795_144_375_341, 30_000, 3, Kind.NORMAL, "broker-a", 2, 9, 4711)
NUMBER = st.integers(0, (1 << 63) - 1)
WORD = st.text(st.characters(codec="ascii", categories=("L", "N"), include_characters="-_=%"), min_size=1)


@pytest.mark.parametrize(
    ("text", "handle"),
    [
        (TEXT, HANDLE),
        (TEXT.removesuffix(" 4711"), HANDLE._replace(commit_log_offset=-1)),
        (TEXT.replace(" 3 0 ", " 999 2 "), HANDLE._replace(revive_queue=999, kind=Kind.RETRY_V2)),
    ],
)
def test_a_handle_has_the_words_of_javas(text, handle):
    assert ReceiptHandle.parse(text) == handle
    assert str(handle) == text


@given(
    st.builds(
        ReceiptHandle,
        NUMBER,
        NUMBER,
        NUMBER,
        NUMBER,
        st.sampled_from(Kind),
        WORD,
        NUMBER,
        NUMBER,
        NUMBER,
    )
)
def test_any_handle_comes_back_from_its_text(handle):
    assert ReceiptHandle.parse(str(handle)) == handle


def test_a_handle_knows_when_its_message_becomes_visible_and_whether_it_was_popped_in_order():
    assert HANDLE.visible_ms == 1_795_144_405_341
    assert not HANDLE.is_orderly
    assert HANDLE._replace(revive_queue=999).is_orderly


@pytest.mark.parametrize(
    "text",
    ["", " ", "x", "1 2 3 4 0 b 5", f"{TEXT} more", TEXT.replace("7 ", "-7 "), TEXT.replace(" 0 ", " 3 "),
     TEXT.replace(" 9 ", " ² "), TEXT.replace("broker-a", ""), TEXT.replace("4711", "-2"), "9" * 40 + TEXT,
     TEXT.replace("4711", str(1 << 63))],
)  # fmt: skip
def test_what_is_no_handle_is_refused(text):
    with pytest.raises(ConfigError, match="receipt handle is invalid"):
        ReceiptHandle.parse(text)


@pytest.mark.parametrize(
    ("kind", "topic"),
    [
        (Kind.NORMAL, "orders"),
        (Kind.RETRY_V1, "%RETRY%billing_orders"),
        (Kind.RETRY_V2, "%RETRY%billing+orders"),
    ],
)
def test_each_kind_has_its_topic(kind, topic):
    assert kind.topic_of("orders", "billing") == topic
    assert Kind.of(topic) is kind


QUEUES = [PoppedQueue(Kind.NORMAL, 0, 5, (5, 6, 9)), PoppedQueue(Kind.RETRY_V1, 3, 0, (0,))]


def test_the_places_of_an_answer_are_written_and_read_as_java_does():
    start, offsets = "0 0 5;1 3 0", "0 0 5,6,9;1 3 0"
    assert start_offsets_text(QUEUES) == start
    assert message_offsets_text(QUEUES) == offsets
    assert popped_queues(start, offsets) == {(each.kind, each.queue_id): each for each in QUEUES}


def test_a_semicolon_at_the_end_is_no_entry_and_an_absent_field_has_none():
    assert popped_queues("0 0 5;", "0 0 5;") == {(Kind.NORMAL, 0): PoppedQueue(Kind.NORMAL, 0, 5, (5,))}
    assert popped_queues(None, None) == {}
    assert popped_queues("0 0 5", None)[Kind.NORMAL, 0].offsets == ()


@pytest.mark.parametrize("text", ["0 0", "0 0 1 2", "a 0 1", "0 b 1", "0 0 c"])
def test_damaged_places_are_refused(text):
    with pytest.raises(ConfigError, match="invalid"):
        popped_queues(text, None)
    with pytest.raises(ConfigError, match="invalid"):
        OrderCounts.parse(text)


def test_former_deliveries_are_counted_for_a_message_or_else_for_its_queue():
    text = "0 2 1;0 qo2%9 3"
    counts = OrderCounts.parse(text)
    assert str(counts) == text
    assert counts.of(Kind.NORMAL, 2, 9) == 3
    assert counts.of(Kind.NORMAL, 2, 10) == 1
    assert counts.of(Kind.RETRY_V1, 2, 9) == OrderCounts.parse(None).of(Kind.NORMAL, 2, 9) == 0


RETRIED = HANDLE._replace(kind=Kind.RETRY_V2)


@pytest.mark.parametrize(
    ("text", "is_listed", "found"),
    [
        (str(RETRIED), True, RETRIED),
        (str(RETRIED._replace(pop_time_ms=HANDLE.pop_time_ms - 1)), True, None),
        (str(HANDLE), True, None),
        (str(HANDLE), False, HANDLE),
        ("x", True, None),
        ("x", False, None),
        ("", False, None),
    ],
)
def test_a_handle_in_a_record_counts_only_if_a_broker_can_have_put_it_there(text, is_listed, found):
    assert handle_in_record(text, HANDLE.pop_time_ms, is_listed=is_listed) == found


def test_only_short_handles_are_remembered():
    before = receipt_handle._parse_usual.cache_info().misses
    for name in ("broker-a" * 1000, "broker-a" * 20):
        assert ReceiptHandle.parse(f"7 1 2 3 0 {name} 2 9 4711").broker_name == name
    assert receipt_handle._parse_usual.cache_info().misses == before + 1
