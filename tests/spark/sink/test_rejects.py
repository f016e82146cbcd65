"""sparrowmq.spark.sink.row_messages: what a broker will never take is kept, with reason and place."""

import pytest

from sparrowmq.errors import InvalidMessage, SendFailed
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.remoting.request_in_flight import remote_error
from sparrowmq.spark.sink.row_identity import Writing
from sparrowmq.spark.sink.row_messages import Rejects, dead_letter
from sparrowmq.spark.sink.sender import Sender
from tests.spark.peer import BROKER, Refuse

WRITING = Writing("query-1", batch=5, partition=2)


@pytest.fixture
def sending(peer, connect):
    peer.store("T", 0, [])
    peer.store("D", 0, [])

    def sending(**given):
        options = peer.sink(**({"topic": "T", "onError": "dlq", "dlqTopic": "D"} | given))
        sender = Sender(connect(), options)
        return sender, Rejects(sender, options, WRITING)

    return sending


def part(number):
    return BatchPart(b"%d" % number, b"UNIQ_KEY\x01id-%d\x02KEYS\x01order-%d\x02" % (number, number))


def test_a_message_that_its_broker_refuses_goes_to_the_dead_letters(peer, sending):
    peer.answers[320].append(Refuse(13, "the body is no good"))
    peer.later[310, 2] = Refuse(13, "the body is no good")
    sender, rejects = sending()
    for number in range(3):
        sender.put("T", part(number))
    sender.finish()
    assert (rejects.dead, rejects.skipped, sender.stored) == (1, 0, 3)
    (message,) = [message for messages in peer.queues["D"].values() for message in messages]
    for said in (
        b"UNIQ_KEY\x01id-1\x02",
        b"query-1, unique key id-1, keys 'order-1'",
        b"the body is no good",
    ):
        assert said in message
    assert b"REJECT_TOPIC\x01T\x02" in message


def test_the_dead_letters_themselves_must_be_taken(peer, sending):
    _, rejects = sending()
    error = remote_error(13, "no")
    with pytest.raises(SendFailed, match="the option dlqTopic"):
        rejects.refused(part(1), MessageQueue("D", BROKER, 0), error)


def test_by_default_a_row_ends_the_task(sending):
    sender, rejects = sending(onError="fail")
    assert sender.on_refused is None
    with pytest.raises(InvalidMessage, match=r"too odd \(row 7 of its task, keys 'k'\)"):
        rejects.row(7, "k", b"1", "id", InvalidMessage("too odd"))


def test_the_log_has_the_first_and_the_number_of_all(sending, caplog):
    _, rejects = sending(onError="skip")
    for number in range(25):
        rejects.row(number, None, b"1", "id", InvalidMessage("too odd"))
    rejects.log_total()
    assert sum("too odd" in message for message in caplog.messages) == 10
    assert caplog.messages[-1] == "25 rows of partition 2 of batch 5 of query-1 were rejected"


def test_a_letter_can_be_stored_whatever_the_row_was():
    body, raw, _ = dead_letter("row\x01 7", "why\x02" * 5000, "T", b"x" * 100_000, "id")
    found = properties.parse(bytes(raw).decode())
    assert (len(body), found["REJECT_BODY_BYTES"], found["REJECT_PLACE"]) == (65_536, "100000", "row  7")
    assert len(found["REJECT_REASON"]) == 1000
