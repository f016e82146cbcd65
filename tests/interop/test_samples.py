"""Apache's own samples (org.apache.rocketmq.example), as they lie on Maven Central: what they print at our broker.

4.7.0 is the last release of 4.x whose samples are there. Those of 4.3.2 and 5.5.0 run at night, and so do those of
4.7.0 at Apache's broker, which shows that we expect of them what they do. Some have in their code where the name server
is, and need that port. Not here are samples of what is not ours (POP, light queues), and those of OpenTracing.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.interop.apache import SMALL_HEAP, JavaProcess, is_free
from tests.interop.kits import sample_jars
from tests.interop.servers import APACHE, OURS, OurBroker, OurNamesrv, Target, running

pytestmark = pytest.mark.slow

LIMIT_S: Final = 45.0
RECEIVED: Final = re.compile(r"MessageExt \[(?:brokerName=broker-a, )?queueId=(\d+), .*? queueOffset=(\d+), ")
SENT: Final = re.compile(r"sendStatus=SEND_OK, .*? queueId=(\d+)\], queueOffset=(\d+)")
LATER: Final = re.compile(r"Receive message\[msgId=\w+ +\d+ +ms later\]")
# The Java client looks for new queues every 20 s unless it is told.
_SOON: Final = "-Drocketmq.client.rebalance.waitInterval=1000"
# Clients before 4.5 send to a second port of the broker, which brokers of tests do not open.
_ONE_PORT: Final = "-Dcom.rocketmq.sendMessageWithVIPChannel=false"

Place = tuple[int, int]


class Sample(JavaProcess):
    """A class of Apache's with a `main`, which prints what it sends and gets."""

    def __init__(self, version: str, name: str, namesrv: str) -> None:
        jvm = (*SMALL_HEAP, f"-Drocketmq.namesrv.addr={namesrv}", _SOON, _ONE_PORT)
        super().__init__(sample_jars(version), jvm, [f"org.apache.rocketmq.example.{name}"])

    def sent(self) -> list[Place]:
        """Queue and offset of what was stored, in its order."""
        return [(int(queue), int(offset)) for queue, offset in SENT.findall(self.said())]

    def received(self) -> list[Place]:
        """Queue and offset of each message, in the order in which the sample printed them."""
        return [(int(queue), int(offset)) for queue, offset in RECEIVED.findall(self.said())]

    def wait_until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not holds():
            assert time.monotonic() < deadline, f"it only said:\n{self.said()[:3000]}"
            time.sleep(0.02)

    def wait_for_received(self, count: int) -> None:
        self.wait_until(lambda: len(self.received()) >= count)

    def wait_for_end(self) -> None:
        assert self._running().wait(LIMIT_S) == 0, self.said()


@dataclass
class Stage:
    """A cluster of its own, and the samples of one release on it."""

    target: Target
    version: str
    stack: ExitStack

    def start(self, name: str, says: str = "") -> Sample:
        """A sample that has begun: it has said so, if it does."""
        sample = self.stack.enter_context(Sample(self.version, name, self.target.namesrv))
        if says:
            sample.wait_for(says)
        return sample

    def run(self, name: str) -> Sample:
        """A sample that has ended by itself."""
        sample = self.start(name)
        sample.wait_for_end()
        return sample

    def stored(self, topic: str) -> int:
        return sum(self.target.end_of(topic, queue) for queue in range(4))


IN_4_3: Final = (
    "test_the_quick_start_consumes_what_it_has_sent",
    "test_the_broker_asks_the_sample_how_its_transactions_ended",
    "test_a_batch_is_split_where_it_is_too_large",
    "test_every_consumer_that_broadcasts_gets_everything",
)


@pytest.fixture(
    params=[
        ("4.7.0", OURS),
        pytest.param(("4.3.2", OURS), marks=pytest.mark.nightly),
        pytest.param(("5.5.0", OURS), marks=pytest.mark.nightly),
        pytest.param(("4.7.0", APACHE), marks=pytest.mark.nightly),
    ],
    ids="-".join,
)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    version, name = request.param
    if version == "4.3.2" and request.node.originalname not in IN_4_3:
        pytest.skip("java-4.3.2 cannot: it has no such samples, or they do other things")
    with running(name, tmp_path) as target, ExitStack() as stack:
        yield Stage(target, version, stack)


def test_the_quick_start_consumes_what_it_has_sent(stage: Stage) -> None:
    stage.target.create_topic("TopicTest", queues=4)
    consumer = stage.start("quickstart.Consumer", "Consumer Started.")
    sent = stage.run("quickstart.Producer").sent()
    assert len(set(sent)) == 1000
    consumer.wait_for_received(1000)
    assert sorted(consumer.received()) == sorted(sent)


@pytest.mark.nightly
def test_messages_are_sent_one_by_one_and_all_at_once(stage: Stage) -> None:
    stage.target.create_topic("TopicTest", "Jodie_topic_1023", queues=4)
    consumer = stage.start("simple.PushConsumer", "Consumer Started.")
    one_by_one = stage.run("simple.Producer")
    at_once = stage.run("simple.AsyncProducer")
    assert len(set(one_by_one.sent())) == 128
    assert len(re.findall(r"(?m)^\d+ +OK [0-9A-F]+", at_once.said())) == 100 == stage.stored("Jodie_topic_1023")
    consumer.wait_for_received(128)
    assert sorted(consumer.received()) == sorted(one_by_one.sent())


@pytest.mark.nightly
def test_ordered_messages_keep_to_their_queue_and_come_in_their_order(stage: Stage) -> None:
    stage.target.create_topic("TopicTest", "TopicTestjjj", queues=4)
    sent = stage.run("ordermessage.Producer").sent()
    assert [queue for queue, _ in sent] == [number % 10 % 4 for number in range(100)]
    consumer = stage.start("ordermessage.Consumer", "Consumer Started.")
    stage.run("simple.Producer")
    # It puts many off for seconds, so not all are waited for; those come again.
    consumer.wait_until(lambda: 40 <= len(set(consumer.received())) < len(consumer.received()))
    order = defaultdict(list)
    for queue, offset in consumer.received():
        order[queue].append(offset)
    for offsets in order.values():
        assert sorted(offsets) == offsets and set(offsets) == set(range(offsets[-1] + 1))


def test_the_broker_asks_the_sample_how_its_transactions_ended(stage: Stage) -> None:
    stage.target.create_topic("TopicTest1234", queues=4)
    producer = stage.start("transaction.TransactionProducer")
    producer.wait_until(lambda: len(producer.sent()) == 10)
    assert stage.stored("TopicTest1234") == 0
    # Of numbers 0 to 9 it commits 1, 4 and 7, rolls back 2, 5 and 8, and does not know of the others.
    producer.wait_until(lambda: stage.stored("TopicTest1234") == 3)


def test_a_batch_is_split_where_it_is_too_large(stage: Stage) -> None:
    stage.target.create_topic("BatchTest", queues=4)
    small = stage.start("batch.SimpleBatchProducer")
    small.wait_until(lambda: stage.stored("BatchTest") == 3)
    split = stage.start("batch.SplitBatchProducer")
    split.wait_until(lambda: stage.stored("BatchTest") == 100_003)


@pytest.mark.nightly
def test_a_consumer_gets_the_tags_that_it_wants(stage: Stage) -> None:
    stage.target.create_topic("TagFilterTest", queues=4)
    consumer = stage.start("filter.TagFilterConsumer", "Consumer Started.")
    sent = stage.run("filter.TagFilterProducer").sent()
    assert len(sent) == 60
    consumer.wait_for_received(40)
    wanted = {place for number, place in enumerate(sent) if number % 3 != 1}
    assert sorted(consumer.received()) == sorted(wanted)


def test_a_consumer_gets_what_sql_lets_through(stage: Stage) -> None:
    stage.target.create_topic("SqlFilterTest", queues=4)
    consumer = stage.start("filter.SqlFilterConsumer", "Consumer Started.")
    sent = stage.run("filter.SqlFilterProducer").sent()
    assert len(sent) == 10
    consumer.wait_for_received(3)
    assert sorted(consumer.received()) == sorted(sent[number] for number in (0, 1, 3))


@pytest.mark.nightly
def test_every_consumer_that_broadcasts_gets_everything(stage: Stage) -> None:
    stage.target.create_topic("TopicTest", queues=4)
    consumers = [stage.start("broadcast.PushConsumer", "Broadcast Consumer Started.") for _ in range(2)]
    sent = stage.run("simple.Producer").sent()
    for consumer in consumers:
        consumer.wait_for_received(128)
        assert sorted(consumer.received()) == sorted(sent)


@pytest.mark.nightly
def test_a_pull_consumer_is_given_its_queues_or_takes_them(stage: Stage) -> None:
    stage.target.create_topic("TopicTest", queues=4)
    subscribed = stage.start("simple.LitePullConsumerSubscribe")
    subscribed.wait_for("[]")  # a poll of nothing
    sent = stage.run("simple.Producer").sent()
    subscribed.wait_for_received(128)
    assert sorted(subscribed.received()) == sorted(sent)
    # It takes the first two of the queues that it finds, and begins at offset 10 in the first of them.
    assigned = stage.start("simple.LitePullConsumerAssign")
    assigned.wait_for_received(2 * 32 - 10)
    first: dict[int, int] = {}
    for queue, offset in assigned.received():
        first.setdefault(queue, offset)
    assert sorted(first.values()) == [0, 10]


@pytest.mark.nightly
def test_what_is_traced_tells_of_each_message(stage: Stage) -> None:
    stage.target.create_topic("TopicTest", queues=4)
    consumer = stage.start("tracemessage.TracePushConsumer", "Consumer Started.")
    assert len(stage.run("tracemessage.TraceProducer").sent()) == 128
    consumer.wait_for_received(128)
    consumer.wait_until(lambda: stage.target.end_of("RMQ_SYS_TRACE_TOPIC") > 1)


def test_requests_have_their_answers(stage: Stage) -> None:
    if stage.version != "4.7.0":
        pytest.skip(f"java-{stage.version} cannot: the sample has its name server in its code")
    assert_answered(stage)


def assert_answered(stage: Stage) -> None:
    stage.target.create_topic("RequestTopic", queues=4)
    stage.start("rpc.ResponseConsumer", "Consumer Started.")
    for name in ("rpc.RequestProducer", "rpc.AsyncRequestProducer"):
        stage.start(name, "request to <RequestTopic> cost: ")


@pytest.mark.nightly
def test_messages_come_when_their_time_has_come(stage: Stage) -> None:
    if stage.version != "5.5.0":
        pytest.skip("java-4.7.0 cannot: it has no such samples")
    stage.target.create_topic("TestTopic", "TimerTopic", queues=4)
    by_level = stage.start("schedule.ScheduledMessageConsumer")
    at_time = stage.start("schedule.TimerMessageConsumer")
    stage.start("schedule.ScheduledMessageProducer")
    stage.start("schedule.TimerMessageProducer")
    by_level.wait_until(lambda: len(LATER.findall(by_level.said())) == 100)
    at_time.wait_until(lambda: len(LATER.findall(at_time.said())) == 10)


@pytest.fixture(params=["4.7.0", "5.5.0"])
def known_stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """A cluster whose name server is where every sample looks for it."""
    if not is_free(9876):
        pytest.skip("somebody listens on port 9876, where these samples have their name server")
    with (
        OurNamesrv(port=9876) as namesrv,
        OurBroker(namesrv.address, tmp_path / "store") as broker,
        ExitStack() as stack,
    ):
        yield Stage(Target(OURS, namesrv.address, broker.address), request.param, stack)


@pytest.mark.nightly
def test_samples_of_port_9876_send_one_way_answer_and_speak_openmessaging(known_stage: Stage) -> None:
    known_stage.target.create_topic("TopicTest", "OMS_HELLO_TOPIC", queues=4)
    assert_answered(known_stage)
    consumer = known_stage.start("openmessaging.SimplePushConsumer", "Consumer startup OK")
    known_stage.run("openmessaging.SimpleProducer")
    consumer.wait_until(lambda: consumer.said().count("Received one message: ") == 3)
    if known_stage.version == "5.5.0":
        known_stage.run("simple.OnewayProducer")
        assert known_stage.stored("TopicTest") == 100


@pytest.mark.nightly
def test_samples_of_port_9876_keep_to_their_namespace(known_stage: Stage) -> None:
    # Since 5.3 they set namespaces of the second kind, which go beside the names and are for proxies.
    is_old = known_stage.version == "4.7.0"
    name, group = ("topicTest", "InstanceTest%cidTest") if is_old else ("NAMESPACE_TOPIC", "cidTest")
    topics = [name, f"InstanceTest%{name}"]
    known_stage.target.create_topic(*topics, queues=4)
    consumer = known_stage.start("namespace.PushConsumerWithNamespace")
    consumer.wait_until(lambda: bool(known_stage.target.members(group)))
    producer = known_stage.start("namespace.ProducerWithNamespace")
    consumer.wait_until(lambda: len(re.findall("Msg topic is:.*, MsgId is:", consumer.said())) >= 100)
    assert len(re.findall("(?m)^Topic:.* send success, misId is:", producer.said())) == 100
    assert [known_stage.stored(topic) for topic in topics] == ([0, 100] if is_old else [100, 0])
