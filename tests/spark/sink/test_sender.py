"""sparrowmq.spark.sink.sender: everything is stored when it says so."""

import re

import pytest

from sparrowmq.admin.admin import Admin
from sparrowmq.errors import InvalidName, NetworkError, NoRoute, SendFailed
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.options import SinkOptions, parse
from sparrowmq.spark.sink.sender import Sender
from sparrowmq.spark.worker import connect as connect_to
from sparrowmq.testing.background import BackgroundCluster
from tests.spark.peer import BROKER, HangUp, Refuse, Silence

SEND, SEND_BATCH = 310, 320


@pytest.fixture
def sender(peer, connect):
    for queue_id in range(4):
        peer.store("T", queue_id, [])

    def sender(**given):
        options = {"retries": "2"} | given
        return Sender(connect(retries=options["retries"]), peer.sink(**options))

    return sender


def part(number, size=1):
    return BatchPart(b"%d" % number * size, b"UNIQ_KEY\x01%d\x02" % number)


def stored(peer, topic="T"):
    """The numbers in the unique keys, by queue."""
    return {
        queue_id: [int(key) for message in messages for key in re.findall(rb"UNIQ_KEY\x01(\d+)\x02", message)]
        for queue_id, messages in peer.queues[topic].items()
        if messages
    }


def everything(peer, topic="T"):
    return sorted(number for numbers in stored(peer, topic).values() for number in numbers)


def test_loose_messages_go_to_all_queues_in_batches(peer, sender):
    sending = sender(sendBatchRows="10")
    for number in range(95):
        sending.put("T", part(number))
    sending.finish()
    assert sending.stored == 95
    assert everything(peer) == list(range(95))
    assert peer.count(SEND_BATCH) == 10
    assert sorted(len(numbers) for numbers in stored(peer).values()) in (
        [20, 20, 25, 30],
        [20, 25, 20, 30],
        [15, 20, 30, 30],
    )


def test_a_batch_is_full_at_its_rows_or_its_bytes(peer, sender):
    sending = sender(sendBatchBytes="1000", sendBatchRows="100")
    for size in (900, 10, 5000, 10, 10):
        sending.put("T", part(1, size))
    sending.finish()
    assert sending.stored == 5
    assert (peer.count(SEND), peer.count(SEND_BATCH)) == (1, 2)


def test_messages_of_one_queue_stay_in_order(peer, sender):
    sending = sender(sendBatchRows="3")
    queues = [MessageQueue("T", BROKER, number) for number in (1, 2)]
    for number in range(50):
        sending.put_in_order(queues[number % 2], part(number))
    sending.finish()
    assert stored(peer) == {1: list(range(0, 50, 2)), 2: list(range(1, 50, 2))}


def test_one_batch_at_a_time_is_under_way_to_a_queue_that_must_keep_its_order(peer, sender):
    peer.later[SEND_BATCH, 2] = HangUp()
    peer.later[SEND_BATCH, 5] = Refuse(2, "busy")
    sending = sender(sendBatchRows="5")
    for number in range(40):
        sending.put_in_order(MessageQueue("T", BROKER, 1), part(number))
    sending.finish()
    assert stored(peer) == {1: list(range(40))}


def test_a_message_alone_goes_behind_what_was_put_before(peer, sender):
    queue = MessageQueue("T", BROKER, 1)
    sending = sender()
    sending.put_in_order(queue, part(0))
    sending.put_alone(queue, part(1)._replace(flag=7))
    sending.put_in_order(queue, part(2))
    sending.finish()
    assert stored(peer) == {1: [0, 1, 2]}
    fields = [fields for code, fields in peer.asked if code == SEND][1]
    assert (fields["h"], fields["m"], fields["i"]) == ("7", "false", "UNIQ_KEY\x011\x02")


def test_the_number_of_batches_under_way_is_limited(peer, sender):
    sending = sender(sendBatchRows="1", maxInFlight="3")
    for number in range(10):
        sending.put("T", part(number))
        assert len(sending._in_flight) <= 3
    sending.finish()
    assert everything(peer) == list(range(10))


@pytest.mark.parametrize(
    "trouble", [HangUp(), Refuse(2, "busy"), Refuse(10, "FLUSH_DISK_TIMEOUT"), Refuse(12), Silence()]
)
def test_what_was_not_confirmed_is_sent_again(peer, sender, trouble):
    peer.answers[SEND_BATCH].extend([trouble, trouble])
    sending = sender(sendBatchRows="5", sendTimeoutMs="50")
    for number in range(40):
        sending.put("T", part(number))
    sending.finish()
    assert sending.stored == 40
    assert set(everything(peer)) == set(range(40))


@pytest.mark.parametrize("trouble", [Refuse(2, "busy"), Refuse(10, "FLUSH_DISK_TIMEOUT")])
def test_one_answer_that_is_not_the_usual_one_has_one_batch_sent_again(peer, sender, trouble):
    peer.later[SEND_BATCH, 3] = trouble
    sending = sender(sendBatchRows="5")
    for number in range(100):
        sending.put("T", part(number))
    sending.finish()
    assert everything(peer) == list(range(100))
    assert peer.count(SEND_BATCH) == 21


def test_a_message_alone_has_no_envelope(peer, sender):
    sending = sender(sendBatchBytes="1000")
    sending.put("T", part(1, 2000))
    sending.put_in_order(MessageQueue("T", BROKER, 1), part(2))
    sending.finish()
    assert (peer.count(SEND), peer.count(SEND_BATCH)) == (2, 0)
    assert everything(peer) == [1, 2]


def test_the_largest_message_that_a_broker_takes_is_stored(tmp_path):
    largest = 4 << 20
    with BackgroundCluster(tmp_path) as cluster:
        options = parse(SinkOptions, {"nameServer": cluster.namesrv, "retries": "2"})
        with connect_to(options) as network:
            sending = Sender(network, options)
            for number, size in enumerate((largest - 1, 10, largest, 10, 10)):
                sending.put("T", BatchPart(b"x" * size, b"UNIQ_KEY\x01%d\x02" % number))
            sending.finish()
            assert sending.stored == 5
            sending.put("T", BatchPart(b"x" * (largest + 1), b""))
            with pytest.raises(SendFailed, match="refuses"):
                sending.finish()


def test_a_message_that_stays_unconfirmed_is_an_error(peer, sender):
    peer.answers[SEND].extend([Refuse(2, "disk full")] * 3)
    sending = sender()
    sending.put("T", part(1))
    with pytest.raises(SendFailed, match=r"1 messages to T@broker-a.* were not stored: .*disk full"):
        sending.finish()
    peer.answers[SEND].extend([HangUp()] * 3)
    sending = sender()
    sending.put("T", part(1))
    with pytest.raises(SendFailed):
        sending.finish()
    assert everything(peer) == []


def test_a_message_that_the_broker_will_never_take_is_not_tried_again(peer, sender):
    peer.answers[SEND].append(Refuse(13, "the message body is too large"))
    sending = sender()
    sending.put("T", part(1))
    with pytest.raises(SendFailed, match=r"refuses messages to T@.*too large"):
        sending.finish()
    assert peer.count(SEND) == 1


def test_a_new_topic_is_made_from_the_template(peer, sender):
    for queue_id in range(8):
        peer.store("TBW102", queue_id, [])
    sending = sender()
    assert [queue.queue_id for queue in sending.queues("New")] == [0, 1, 2, 3]
    sending.put("New", part(1))
    sending.put("New", part(2))
    sending.finish()
    assert everything(peer, "New") == [1, 2]
    fields = next(fields for code, fields in peer.asked if code == SEND_BATCH)
    assert (fields["c"], fields["d"]) == ("TBW102", "4")


def test_a_topic_that_nobody_makes_is_told(sender):
    with pytest.raises(NoRoute, match="no route for topic 'New'"):
        sender().put("New", part(1))


def test_a_topic_without_writable_queues_is_told(peer, sender):
    peer.queues["Closed"] = {}
    with pytest.raises(SendFailed, match="no queue of topic Closed takes messages"):
        sender().put("Closed", part(1))


def test_nobody_there_is_an_error_after_the_retries(peer, sender):
    peer.answers[105].extend([HangUp()] * 5)
    with pytest.raises(NetworkError):
        sender().put("T", part(1))


def test_a_name_that_no_topic_can_have_is_told_at_once(peer, sender):
    with pytest.raises(InvalidName, match="illegal characters"):
        sender().put("no topic", part(1))
    assert not peer.asked


def test_what_one_broker_does_not_take_another_may(peer, sender):
    peer.brokers.append("broker-b")
    peer.answers[SEND].append(Refuse(16, "no permission"))
    sending = sender()
    sending.put("T", part(1))
    sending.finish()
    assert (everything(peer), peer.count(SEND)) == ([1], 2)
    peer.answers[SEND].extend([Refuse(16, "no permission"), Refuse(17, "no topic")])
    sending.put("T", part(2))
    with pytest.raises(SendFailed, match="refuses messages to T@"):
        sending.finish()
    assert peer.count(SEND) == 4
    peer.answers[SEND].append(Refuse(16, "no permission"))
    sending.put_in_order(MessageQueue("T", BROKER, 1), part(3))
    with pytest.raises(SendFailed, match=r"refuses messages to T@broker-a\[1\]"):
        sending.finish()


def test_an_illegal_message_is_found_and_given_back_and_the_others_are_stored(peer, sender):
    peer.answers[SEND_BATCH].append(Refuse(13))
    peer.later[SEND, 4] = Refuse(13)
    sending, refused = sender(sendBatchRows="10"), []
    sending.on_refused = lambda part, queue, error: refused.append((bytes(part.body), queue.topic, error.code))
    for number in range(20):
        sending.put("T", part(number))
    sending.finish()
    assert refused == [(b"3", "T", 13)]
    assert everything(peer) == [number for number in range(20) if number != 3]
    assert sending.stored == 19


def test_who_is_given_an_illegal_message_may_send_another(peer, sender):
    peer.store("D", 0, [])
    peer.answers[SEND].append(Refuse(13))
    sending = sender(maxInFlight="1", sendBatchRows="1")
    sending.on_refused = lambda part, queue, error: sending.put("D", part)
    for number in range(3):
        sending.put("T", part(number))
    sending.finish()
    assert (everything(peer), everything(peer, "D")) == ([1, 2], [0])
    peer.answers[SEND].append(Refuse(13))
    sending.put("T", part(3))
    sending.finish()  # which alone learns of the refusal
    assert everything(peer, "D") == [0, 3]
    assert sending.stored == 4


def test_without_anybody_to_give_it_to_an_illegal_message_ends_the_task(peer, sender):
    peer.answers[SEND_BATCH].append(Refuse(13))
    sending = sender()
    for number in range(3):
        sending.put("T", part(number))
    with pytest.raises(SendFailed, match="the broker refuses messages to T"):
        sending.finish()


def test_the_queues_of_an_ordered_topic_stay_while_a_broker_is_away(tmp_path):
    with BackgroundCluster(tmp_path, brokers=2) as cluster:
        cluster.run(create_ordered(cluster.namesrv))
        options = parse(SinkOptions, {"nameServer": cluster.namesrv, "retries": "2"})
        cluster.run(cluster.cluster.brokers[1].__aexit__(None, None, None))
        with connect_to(options) as network:
            sending = Sender(network, options)
            queues = [MessageQueue("T", f"broker-{broker}", number) for broker in (0, 1) for number in (0, 1)]
            assert list(sending.queues("T")) == queues
            assert {sending.any_queue("T").broker_name for _ in range(4)} == {"broker-0"}
            sending.put_in_order(queues[3], part(1))
            with pytest.raises(SendFailed, match="broker-1"):
                sending.finish()


async def create_ordered(namesrv):
    async with Admin(namesrv) as admin:
        await admin.create_topic("T", queues=2, ordered=True)
