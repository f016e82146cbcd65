import inspect
import threading
import time
from collections.abc import Iterator

import pytest

import sparrowmq
import sparrowmq.sync
from sparrowmq.client.consuming.consumer import Consumer
from sparrowmq.client.consuming.pull_consumer import PullConsumer
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sync import SyncClient, SyncConsumer, SyncProducer, SyncPullConsumer
from sparrowmq.errors import ClientClosed, ConfigError, InvalidMessage
from sparrowmq.protocol.messages.message import Message
from sparrowmq.testing.background import BackgroundCluster


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory) -> Iterator[str]:
    with BackgroundCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.namesrv


@pytest.fixture
def mq(namesrv) -> Iterator[SyncClient]:
    with sparrowmq.sync.connect(namesrv) as client:
        yield client


@pytest.fixture
def topic(request) -> str:
    return str(request.node.name)[:60]


def until(holds, limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.002)


def test_hello(mq, topic):
    result = mq.send(topic, b"hello", tag="A", vip=1)
    with mq.subscribe(topic, group=topic, start="earliest") as messages:
        for message in messages:
            with message.process():
                assert message.body == b"hello" and message.msg_id == result.msg_id
            break


def test_every_way_to_send_is_there(mq, topic):
    futures = [mq.send_soon(topic, b"%d" % number) for number in range(20)]
    assert len({future.result(10).msg_id for future in futures}) == 20
    mq.send_nowait(topic, b"20")
    assert len(mq.send_many([Message(topic, b"21"), Message(topic, b"22")])) == 2
    mq.producer(f"p-{topic}").send(topic, b"23")
    mq.drain()
    mq.flush()
    assert mq.unanswered == 0
    with mq.pull_consumer(group=topic, start="earliest") as reader:
        reader.assign(reader.queues(topic))
        bodies: set[bytes] = set()
        while len(bodies) < 24:
            bodies.update(each.body for each in reader.poll(timeout_s=1))
        reader.commit()
        assert sum(reader.positions().values()) == 24
        reader.pause()
        reader.resume()
        reader.seek_to_beginning()
        assert sum(reader.positions().values()) == 0 and len(reader.assigned) == 4


def test_errors_are_those_of_the_twin(mq):
    with pytest.raises(InvalidMessage, match="empty"):
        mq.send("t", b"")
    with pytest.raises(ConfigError):
        sparrowmq.sync.connect("nonsense")


def test_handlers_run_in_threads_and_may_block(mq, topic):
    threads: set[str] = set()
    both = threading.Barrier(2, timeout=10)

    def handle(message) -> None:
        threads.add(threading.current_thread().name)
        both.wait()

    for number in range(2):
        mq.send(topic, b"%d" % number)
    with mq.subscribe(topic, handle, group=topic, start="earliest", concurrency=2):
        until(lambda: len(threads) == 2)
    assert "sparrowmq" not in threads


def test_a_failed_message_comes_again(mq, topic):
    attempts: list[int] = []

    def handle(message) -> None:
        attempts.append(message.reconsume_times)
        if len(attempts) == 1:
            message.retry(delay_level=1)

    mq.send(topic, b"x")
    with mq.subscribe(topic, handle, group=topic, start="earliest"):
        until(lambda: attempts == [0, 1])


def test_consumers_change_and_end(mq, topic):
    mq.send(topic, b"x")
    with mq.subscribe(topic, group=topic, start="earliest") as messages:
        assert [each.body for each in messages.take(10)] == [b"x"]
        messages.subscribe(f"{topic}-2")
        messages.unsubscribe(f"{topic}-2")
        messages.commit()
        assert messages.queues
    assert list(messages) == []


def test_any_thread_may_call(mq, topic):
    results: list[object] = []
    senders = [threading.Thread(target=lambda: results.append(mq.send(topic, b"x"))) for _ in range(4)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(10)
    assert len(results) == 4


def test_an_error_in_the_block_passes_and_ends_everything(namesrv):
    with pytest.raises(LookupError, match="mine"), sparrowmq.sync.connect(namesrv) as mq:
        raise LookupError("mine")
    with pytest.raises(ClientClosed, match=r"sparrowmq\.sync\.connect"):
        mq.send("t", b"x")
    assert "sparrowmq" not in {
        thread.name for thread in threading.enumerate() if thread is mq._thread._thread
    }


def test_a_consumer_that_cannot_start_tells_why(mq, topic):
    with (
        mq.subscribe(topic, group=topic),
        pytest.raises(ConfigError, match="already"),
        mq.subscribe("other", group=topic),
    ):
        pass


@pytest.mark.parametrize(
    ("twin", "original"),
    [
        (SyncClient, sparrowmq.Client),
        (SyncProducer, Producer),
        (SyncConsumer, Consumer),
        (SyncPullConsumer, PullConsumer),
    ],
)
def test_whatever_the_asynchronous_class_can_do_its_twin_can(twin, original):
    only_async = {"batches", "handle_in_threads"}
    asked_by_brokers = {"beat", "members_changed", "reset", "running"}
    names = {
        name
        for name, value in inspect.getmembers(original)
        if not name.startswith("_") and (callable(value) or isinstance(value, property))
    }
    assert names - only_async - asked_by_brokers <= set(dir(twin))
