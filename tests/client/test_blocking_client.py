import asyncio
import inspect
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise

import pytest

import sparrowmq
import sparrowmq.sync
from sparrowmq.client.blocking_client import (
    SyncClient,
    SyncConsumer,
    SyncProducer,
    SyncPullConsumer,
    SyncSimpleConsumer,
)
from sparrowmq.client.consuming.consumer import Consumer
from sparrowmq.client.consuming.pull_consumer import PullConsumer
from sparrowmq.client.popping.simple_consumer import SimpleConsumer
from sparrowmq.client.sending.producer import Producer
from sparrowmq.errors import ClientClosed, ConfigError, InvalidMessage, SendFailed
from sparrowmq.protocol.messages.message import Message, MessageQueue
from sparrowmq.testing.background import BackgroundCluster


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory) -> Iterator[str]:
    with BackgroundCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.namesrv


@pytest.fixture
def mq(namesrv) -> Iterator[SyncClient]:
    with sparrowmq.sync.connect(namesrv, group="tellers") as client:
        yield client


@pytest.fixture
def topic(request) -> str:
    return str(request.node.name)[:60]


def until(holds, limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.002)


def test_a_blocking_check_says_how_a_transaction_ended(mq, topic):
    asked = []

    @mq.check()
    def check(message):
        mq.send(topic, b"a check may call the client")
        asked.append(threading.current_thread())
        return True

    with mq.transaction(topic, b"paid", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "0"}) as transaction:
        transaction.unknown()
    with mq.subscribe(topic, group=topic, start="earliest") as messages:
        assert {message.body for message in messages.take(1) + messages.take(1)} >= {b"paid"}
    assert asked[0] is not threading.current_thread()


def test_hello(mq, topic):
    result = mq.send(topic, b"hello", tag="A", properties={"vip": "1"})
    with mq.subscribe(topic, group=topic, start="earliest") as messages:
        for message in messages:
            with message.process():
                assert message.body == b"hello" and message.msg_id == result.msg_id
            break


def test_messages_of_send_soon_travel_in_batches(mq, topic):
    mq.send(topic, b"checked")
    sent = [each.result(10) for each in [mq.send_soon(topic, b"%d" % number) for number in range(400)]]
    neighbours = [one.queue == other.queue and one.offset + 1 == other.offset for one, other in pairwise(sent)]
    assert sum(neighbours) > 100, "alone, each would go to another queue than the one before"


def test_a_call_after_the_end_leaves_no_coroutine(namesrv, topic):
    with sparrowmq.sync.connect(namesrv) as mq:
        messages, simple = mq.subscribe(topic, group=topic), mq.simple_consumer(topic, group=f"s-{topic}")
    for call in (messages.take, simple.receive):
        with warnings.catch_warnings(record=True) as caught, pytest.raises(ClientClosed):
            warnings.simplefilter("always")
            call()
        assert not caught


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


def test_more_threads_handle_as_soon_as_it_is_wanted(mq, topic):
    mq.send_many([Message(topic, b"%d" % number) for number in range(3)])
    together = threading.Barrier(3, timeout=10)
    with mq.subscribe(topic, lambda message: together.wait(), group=topic, start="earliest", concurrency=1) as consumer:
        until(lambda: together.n_waiting == 1)
        consumer.concurrency = 3
        until(lambda: not together.n_waiting and not together.broken)
        assert consumer.concurrency == 3
        with pytest.raises(ConfigError, match="from 1 to 10000"):
            consumer.concurrency = 0


def test_a_request_is_answered_without_async(mq, topic):
    mq.admin.create_topic(topic)

    def answer(message):
        mq.reply(message, b"re: " + message.body)

    with mq.subscribe(topic, answer, group=topic, start="earliest"):
        assert mq.request(topic, b"EURUSD", timeout_s=10).body == b"re: EURUSD"


def test_a_reader_shares_a_topic_and_is_woken(mq, topic):
    mq.send_many([Message(topic, b"%d" % number) for number in range(4)])
    told: list[int] = []

    def came(queues: list[MessageQueue]) -> None:
        for queue in queues:
            reader.seek(queue, 0)
        told.append(len(queues))

    with mq.pull_consumer(group=topic, auto_commit_s=60, on_assigned=came) as reader:
        reader.subscribe(topic)
        reader.watch(topic, lambda queues: None)
        bodies: set[bytes] = set()
        while len(bodies) < 4:
            bodies.update(each.body for each in reader.poll(timeout_s=1))
        assert told == [4] and len(reader.assigned) == 4
        waking = threading.Timer(0.05, reader.wakeup)
        waking.start()
        begun = time.monotonic()
        assert reader.poll(timeout_s=30) == [] and time.monotonic() - begun < 10
        assert reader.offset_at(reader.assigned[0], datetime(2026, 1, 1)) == 0
        waking.join()
        reader.unsubscribe(topic)
        assert reader.assigned == []


def test_errors_are_those_of_the_twin(mq):
    with pytest.raises(InvalidMessage, match="empty"):
        mq.send("t", b"")
    with pytest.raises(ConfigError):
        sparrowmq.sync.connect("a..b:9876")


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
            message.retry(delay="1s")

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
    assert "sparrowmq" not in {thread.name for thread in threading.enumerate() if thread is mq._thread._thread}


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
        (SyncSimpleConsumer, SimpleConsumer),
    ],
)
def test_whatever_the_asynchronous_class_can_do_its_twin_can(twin, original):
    only_async = {"batches"}
    names = {
        name
        for name, value in inspect.getmembers(original)
        if not name.startswith("_") and (callable(value) or isinstance(value, property))
    }
    assert names - only_async <= set(dir(twin))


def test_an_asynchronous_handler_runs_in_the_loop(mq, topic):
    done: list[str] = []

    async def handle(message) -> None:
        await asyncio.sleep(0)
        done.append(threading.current_thread().name)

    mq.send(topic, b"x")
    with mq.subscribe(topic, handle, group=topic, start="earliest"):
        until(lambda: done)
    assert done == ["sparrowmq"]


def test_an_asynchronous_handler_that_fails_has_its_message_again(mq, topic):
    attempts: list[int] = []

    async def handle(message) -> None:
        attempts.append(message.reconsume_times)
        if len(attempts) == 1:
            message.retry(delay="1s")
            raise LookupError

    mq.send(topic, b"x")
    with mq.subscribe(topic, lambda message: handle(message), group=topic, start="earliest"):
        until(lambda: attempts == [0, 1])


def test_an_asynchronous_handler_cannot_wait_for_its_own_loop(mq, topic):
    refused: list[str] = []

    async def handle(message) -> None:
        try:
            mq.send(topic, b"y")
        except ConfigError as error:
            refused.append(str(error))

    mq.send(topic, b"x")
    with mq.subscribe(topic, handle, group=topic, start="earliest"):
        until(lambda: refused)
    assert "make it a plain function" in refused[0]


def test_as_many_handlers_run_at_once_as_were_asked_for(mq, topic):
    together = threading.Barrier(32, timeout=20)
    done: list[int] = []
    for _ in range(32):
        mq.send_nowait(topic, b"x")
    with mq.subscribe(
        topic, lambda message: done.append(together.wait()), group=topic, start="earliest", concurrency=32
    ):
        until(lambda: len(done) == 32, limit_s=25)


def test_a_handler_that_blocks_does_not_keep_its_consumer(namesrv, topic, caplog):
    started, go_on = threading.Event(), threading.Event()

    def handle(message) -> None:
        started.set()
        go_on.wait(60)

    begin = 0.0
    with sparrowmq.sync.connect(namesrv) as mq:
        mq.send(topic, b"x")
        with mq.subscribe(topic, handle, group=topic, start="earliest", grace_s=0.1):
            assert started.wait(10)
            begin = time.monotonic()
    took_s = time.monotonic() - begin
    go_on.set()
    assert took_s < 5 and "are left running in their threads" in caplog.text
    with sparrowmq.sync.connect(namesrv) as mq, mq.subscribe(topic, group=topic) as messages:
        assert [each.body for each in messages.take()] == [b"x"]


def test_a_program_that_is_interrupted_ends_while_a_handler_blocks(namesrv, topic, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        f"""
import time
import sparrowmq.sync

def handle(message):
    print("started", flush=True)
    time.sleep(60)

with sparrowmq.sync.connect({namesrv!r}) as mq:
    mq.send({topic!r}, b"x")
    with mq.subscribe({topic!r}, handle, group={topic!r}, start="earliest", grace_s=5) as messages:
        messages.closed()
"""
    )
    with subprocess.Popen(
        [sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "started\n"
        begin = time.monotonic()
        running.send_signal(signal.SIGINT)
        watchdog = threading.Timer(30, running.kill)
        watchdog.start()
        _, errors = running.communicate()
        watchdog.cancel()
    assert "KeyboardInterrupt" in errors and time.monotonic() - begin < 8


def test_prefetched_messages_of_a_queue_that_was_given_up_are_not_handed_out(mq, topic):
    queue = MessageQueue(topic, "broker-0", 0)
    mq.send_many([Message(topic, b"%d" % number) for number in range(8)], queue=queue)
    with mq.subscribe(topic, group=topic, start="earliest") as messages:
        first = next(iter(messages))
        prefetched = list(messages._fetched_messages)
        assert first.is_current and len(prefetched) == 7
        messages.seek(queue, 0)
        again = [each for _, each in zip(range(8), messages, strict=False)]
    assert [each.offset for each in again] == list(range(8)) and not set(again) & set(prefetched)


def test_callbacks_may_call_the_consumer(mq, topic):
    lags: list[int] = []
    mq.send(topic, b"x")

    def assigned(queues) -> None:
        if queues[0].topic == topic:
            lags.append(sum(messages.lag().values()))
            messages.pause(queues)
            messages.resume(queues)

    messages = mq.subscribe(topic, group=topic, start="earliest", on_assigned=assigned)
    with messages:
        assert [each.body for each in messages.take()] == [b"x"]
    assert lags == [1]


def test_a_consumer_that_was_not_entered_says_so(mq, topic):
    with pytest.raises(ClientClosed, match="was not entered"):
        next(iter(mq.subscribe(topic, group=topic)))


def test_a_consumer_that_is_left_after_its_client_says_so(namesrv, topic):
    with pytest.raises(ClientClosed), sparrowmq.sync.connect(namesrv) as mq:
        messages = mq.subscribe(topic, group=topic)
        with messages:
            mq.__exit__(None, None, None)


def test_what_a_block_raises_says_more_than_that_its_client_was_left(namesrv, topic):
    with pytest.raises(LookupError, match="mine"), sparrowmq.sync.connect(namesrv) as mq:
        messages = mq.subscribe(topic, group=topic)
        with messages:
            mq.__exit__(None, None, None)
            raise LookupError("mine")


def test_whoever_calls_while_another_thread_leaves_is_told_so(namesrv, topic):
    def send() -> None:
        try:
            while True:
                mq.send(topic, b"x")
        except (ClientClosed, SendFailed):  # The latter if its answer was under way.
            told.append(True)

    told: list[bool] = []
    with sparrowmq.sync.connect(namesrv) as mq:
        mq.send(topic, b"x")
        senders = [threading.Thread(target=send, daemon=True) for _ in range(4)]
        for sender in senders:
            sender.start()
    for sender in senders:
        sender.join(10)
    assert len(told) == 4


def test_what_is_entered_twice_says_what_to_do_and_goes_on(namesrv, topic):
    with sparrowmq.sync.connect(namesrv) as mq, mq.subscribe(topic, group=topic) as messages:
        for each in (mq, messages):
            with pytest.raises(ConfigError, match="use one `with` block"):
                each.__enter__()
        mq.send(topic, b"x")
        assert [each.body for each in messages.take()] == [b"x"]
    with pytest.raises(ClientClosed):
        mq.__enter__()
