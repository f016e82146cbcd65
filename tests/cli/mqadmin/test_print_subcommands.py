import pytest

from sparrowmq.client.client import Client
from sparrowmq.protocol.messages.message import MessageQueue
from tests.hostile_bodies import send_damaged


@pytest.fixture
def filled(admin, topic):
    """A topic whose first queue has five messages, two with the tag A and one with B."""
    queue = MessageQueue(topic, "broker-0", 0)
    for body, tag in ((b"one", "A"), (b"two", None), (b"three", "B"), (b"four", "A"), (b"five", None)):
        admin.send(topic, body, tag=tag, queue=queue)
    return topic


def bodies(said):
    return [line.rpartition(" BODY: ")[2] for line in said.splitlines() if line.startswith("MSGID: ")]


def test_all_messages_of_a_topic_are_printed_queue_by_queue(admin, filled):
    said = admin.ok(f"printMsg -t {filled}")
    assert bodies(said) == ["one", "two", "three", "four", "five"] and said.count("-" * 56 + "\n") == 2
    assert f"minOffset=0, maxOffset=5, MessageQueue [topic={filled}, brokerName=broker-0, queueId=0]\n" in said
    assert bodies(admin.ok(f"printMsg -t {filled} -d false -s B")) == ["NOT PRINT BODY"]
    assert bodies(admin.ok(f"printMsg -t {filled} -e 2020-01-01#00:00:00:000")) == []
    assert "is no time" in admin(f"printMsg -t {filled} -b soon").err


def test_the_tags_of_a_queue_are_counted(admin, filled):
    line = f"printMsgByQueue -t {filled} -a broker-0 -i 0"
    assert admin.ok(line) == ""
    assert bodies(admin.ok(f"{line} -p true -d true -c ascii")) == ["one", "two", "three", "four", "five"]
    assert admin.ok(f"{line} -f true") == f"Tag: {'A':<30} Count: 2\nTag: {'B':<30} Count: 1\n"
    assert "UnsupportedEncodingException: nothing" in admin(f"{line} -p true -d true -c nothing").err


def test_some_messages_are_consumed_without_moving_anybody(admin, filled):
    said = admin.ok(f"consumeMessage -t {filled} -b broker-0 -i 0 -o 1 -c 2")
    assert said.startswith("The oldler 2 message will be provided\nConsume ok\n") and bodies(said) == [
        "two",
        "three",
    ]
    said = admin.ok(f"consumeMessage -t {filled} -b broker-0 -i 0 -o 99")
    assert said.endswith("queueId=0] no matched msg, offset=99\n")
    assert bodies(admin.ok(f"consumeMessage -t {filled} -c 100")) == ["one", "two", "three", "four", "five"]
    # As Java counts, who subtracts one more for each queue, the empty one too if it comes first.
    assert bodies(admin.ok(f"consumeMessage -t {filled} -c 3")) in (["one", "two"], ["one", "two", "three"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-c 0", "Please input a positive messageNumber!"),
        ("-i 0", "Please set the brokerName before queueId!"),
        ("-b broker-0 -o 0", "Please set queueId before offset!"),
        ("-s 2100-01-01#00:00:00:000", "Please set the beginTimestamp before now!"),
        ("-e 2100-01-01#00:00:00:000", "Please set the endTimestamp before now!"),
        ("-s 2 -e 1", "Please make sure that the beginTimestamp is less than or equal to the endTimestamp"),
    ],
)
def test_options_that_do_not_go_together_are_told(admin, options, words):
    said = admin(f"consumeMessage -t T {options}")
    assert (said.code, said.out, said.err) == (1, words, "")


def test_a_body_that_cannot_be_decompressed_hides_no_message_behind_it(admin, topic):
    async def send():
        async with Client(admin.cluster.namesrv) as mq:
            await send_damaged(mq, topic, UNIQ_KEY="AB")

    admin.cluster.run(send())
    admin.send(topic, b"good", queue=MessageQueue(topic, "broker-0", 0))
    for line in ("printMsg", "printMsgByQueue -a broker-0 -i 0 -p true -d true", "consumeMessage -c 9"):
        said = admin(f"{line} -t {topic}")
        assert bodies(said.out) == ["no zlib", "good"]
        assert "the body of message AB at offset 0 is as it is stored" in said.err and said.code == 1
    assert "Message Body Path:" in admin(f"queryMsgByUniqueKey -t {topic} -i AB").out
