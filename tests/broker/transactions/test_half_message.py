import pytest

from sparrowmq.broker.transactions import half_message
from sparrowmq.errors import RemoteError
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.half_record import Half
from sparrowmq.protocol.messages.properties import Properties, render

HOST = hosts.pack("127.0.0.1:10911")


def entry(sys_flag=0, **properties):
    return Entry("Orders", 3, b"body", Properties(render(properties)), 1000, HOST, 7, sys_flag, 2)


def stored(made, offset=500, queue_offset=9):
    return record.decode(record.encode(made, Placed(offset, queue_offset, 2000, HOST)))


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("TRUE", True), ("false", False), ("", False)])
def test_a_half_message_is_one_whose_mark_says_true(value, expected):
    assert half_message.is_half(Properties(f"TRAN_MSG\x01{value}\x02")) is expected
    assert not half_message.is_half(Properties(f"NOT_TRAN_MSG\x01{value}\x02"))


def test_parking_keeps_the_address_and_clears_the_kind():
    made = entry(sys_flag=0x4 | 0x1, TRAN_MSG="true")
    half_message.divert(made, "payments")
    assert (made.topic, made.queue_id, made.sys_flag) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 1)
    assert made.properties.get("REAL_TOPIC") == "Orders" and made.properties.get("REAL_QID") == "3"
    assert made.properties.get("PGROUP") == "payments"


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_no_delay_goes_with_it(name):
    with pytest.raises(RemoteError, match=name):
        half_message.divert(entry(**{name: "5"}), "g")


@pytest.mark.parametrize(
    ("tag", "body", "expected"),
    [
        ("d", b"7", [7]),
        ("d", b"7,8,12,", [7, 8, 12]),
        ("d", b"", []),
        ("d", b"x,3", [3]),
        ("d", b"9" * 5000 + b",\xff,3", [3]),
        ("e", b"7", []),
    ],
)
def test_an_op_record_names_one_or_many(tag, body, expected):
    made = half_message.op(0, 1, HOST)
    made.body, made.properties = body, Properties(f"TAGS\x01{tag}\x02")
    assert half_message.ended_by(stored(made)) == expected


@pytest.mark.parametrize("text", ["-5", "1.5", "soon", "", "9" * 30])
def test_numbers_that_are_none_are_as_if_absent(text):
    assert half_message.own_immunity_s({"CHECK_IMMUNITY_TIME_IN_SECONDS": text}) is None
    half = stored(entry(TRAN_PREPARED_QUEUE_OFFSET=text, TRANSACTION_CHECK_TIMES=text))
    assert half_message.origin(half) is None and half_message.check_times(half) == 0


def test_a_commit_has_the_message_as_it_was_sent_and_says_where_its_half_lies():
    made = entry(sys_flag=0x4 | 0x1, TRAN_MSG="true", PGROUP="payments", KEYS="k", TAGS="a", UNIQ_KEY="u")
    known = half_message.divert(made, "payments")
    half = Half(record.encode(made, Placed(500, 9, 2000, HOST)))
    to = half_message.destination(half.properties, half.owner)
    assert (to.topic, to.queue_id, to.group) == (known.topic, known.queue_id, known.group)
    for terms in (to.terms, known.terms, made.terms):
        assert (terms.tags_code, terms.keys, terms.unique_key) == (ord("a"), ("k",), "u")
    commit = record.decode(half.commit(to, Placed(900, 1, 3000, HOST), crc=True))
    assert (commit.topic, commit.queue_id, commit.body, commit.flag) == ("Orders", 3, b"body", 7)
    assert (commit.sys_flag, commit.prepared_offset, commit.reconsume_times) == (0x8 | 0x1, 500, 2)
    assert (commit.physical_offset, commit.queue_offset, commit.store_timestamp_ms) == (900, 1, 3000)
    assert render(commit.properties) == made.properties.render()


def test_the_owner_is_kept_in_the_half_message_and_not_in_the_committed_one():
    made = entry(TRAN_MSG="true", TRAN_OWNER="forged", KEYS="k")
    made.owner = "payments-key"
    sent = made.properties.render().replace("TRAN_OWNER\x01forged\x02", "")
    known = half_message.divert(made, "payments")
    half = Half(record.encode(made, Placed(500, 9, 2000, HOST)))
    to = half_message.destination(half.properties, half.owner)
    assert (known.owner, half.owner, to.owner) == ("payments-key", "payments-key", "payments-key")
    copied = half_message.copy(stored(made), 9, 1)
    assert copied.properties.get("TRAN_OWNER") == "payments-key"
    commit = record.decode(half.commit(to, Placed(900, 1, 3000, HOST), crc=True))
    assert render(commit.properties) == (sent + "PGROUP\x01payments\x02REAL_TOPIC\x01Orders\x02REAL_QID\x013\x02")
    _, asked = half_message.question(stored(made), copied, Placed(700, 10, 2000, HOST))
    assert "TRAN_OWNER" not in record.decode(asked).properties


def test_without_access_control_a_half_message_has_no_owner():
    made = entry(TRAN_MSG="true", TRAN_OWNER="forged")
    assert half_message.divert(made, "payments").owner is None
    assert Half(record.encode(made, Placed(500, 9, 2000, HOST))).owner is None


def test_what_begins_anew_is_tied_to_nothing():
    made = half_message.resumed(stored(entry(TRAN_PREPARED_QUEUE_OFFSET="4", TRANSACTION_CHECK_TIMES="15")))
    assert made.topic == "RMQ_SYS_TRANS_HALF_TOPIC" and made.properties.get("TRANSACTION_CHECK_TIMES") == "0"
    assert made.properties.get("TRAN_PREPARED_QUEUE_OFFSET") is None
