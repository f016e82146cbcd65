"""A client is used from another thread, another event loop, a forked child, or before it was entered."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import pytest

import sparrowmq.sync
from sparrowmq.client.client import Client, connect
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.errors import ClientClosed, ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.testing.background import BackgroundCluster
from sparrowmq.testing.cluster import Cluster
from tests.client.forks import in_child

numbers = itertools.count()
QUEUE = MessageQueue("t", "broker-0", 0)


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory) -> Iterator[str]:
    with BackgroundCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.namesrv


async def read(mq: Client) -> None:
    await mq.pull_consumer(group="reader").committed(QUEUE)


async def transact(mq: Client) -> None:
    async with mq.producer(f"p{next(numbers)}", check=lambda message: None).transaction("t", b"x"):
        pass


# Each is called with a client, somewhere else than it was entered, or before.
CALLS: list[Callable[[Client], Coroutine[Any, Any, object]]] = [
    lambda mq: mq.send("t", b"x"),
    lambda mq: mq.send_many([sparrowmq.Message("t", b"x")]),
    lambda mq: mq.request("t", b"x"),
    lambda mq: mq.recall("x"),
    lambda mq: mq.drain(),
    lambda mq: mq.flush(),
    lambda mq: mq.queues("t"),
    lambda mq: mq.serve(),
    lambda mq: mq.admin.topics(),
    lambda mq: mq.admin.create_topic("u"),
    lambda mq: mq.subscribe("t", group="g").__aenter__(),
    lambda mq: mq.pull_consumer(group="g").__aenter__(),
    read,
    transact,
]


def elsewhere(call: Callable[[], object]) -> BaseException | None:
    """Call something in another thread, and return its error."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "it hangs"
    return errors[0] if errors else None


@pytest.mark.parametrize("call", CALLS)
async def test_a_client_that_was_not_entered_is_refused_at_its_first_use(cluster: Cluster, call):
    with pytest.raises(ClientClosed, match="was not entered; use it inside its `with` block"):
        await call(connect(cluster.namesrv))


def test_a_client_without_async_that_was_not_entered_is_refused_and_has_no_thread():
    threads = threading.active_count()
    mq, admin = sparrowmq.sync.connect("127.0.0.1:1"), sparrowmq.sync.admin("127.0.0.1:1")
    for call in (lambda: mq.send("t", b"x"), lambda: mq.queues("t"), lambda: mq.admin.topics(), admin.topics):
        with pytest.raises(ClientClosed, match=r"was not entered; .* with sparrowmq\.sync\.connect"):
            call()
    with pytest.raises(ClientClosed, match="was not entered"):
        mq.subscribe("t", group="g").__enter__()
    assert threading.active_count() == threads


@pytest.mark.parametrize(
    "enter",
    [
        lambda: connect("127.0.0.1:1").__aenter__(),
        lambda: connect("127.0.0.1:1").start(),
        lambda: sparrowmq.Admin("127.0.0.1:1").__aenter__(),
    ],
    ids=["connect", "start", "Admin"],
)
def test_a_loop_that_is_not_of_asyncio_is_refused(enter):
    """As of trio, which runs coroutines itself."""
    entering = enter()
    with pytest.raises(ConfigError, match=r"no event loop of asyncio runs here.*trio"):
        entering.send(None)


@pytest.mark.parametrize("call", CALLS)
async def test_another_thread_is_refused(mq: Client, call):
    async def run() -> None:
        await call(mq)

    error = await asyncio.to_thread(elsewhere, lambda: asyncio.run(run()))
    assert isinstance(error, ConfigError) and "event loop of another thread" in str(error)


@pytest.mark.parametrize(
    "call",
    [
        lambda mq, _: mq.send_soon("t", b"x"),
        lambda mq, _: mq.send_nowait("t", b"x"),
        lambda _, reader: reader.assign([QUEUE]),
        lambda _, reader: reader.pause(QUEUE),
        lambda _, reader: reader.seek(QUEUE, 0),
        lambda _, reader: reader.wakeup(),
    ],
)
async def test_another_thread_is_refused_by_plain_methods(mq: Client, call):
    async with mq.pull_consumer(group="g") as reader:
        reader.assign([QUEUE])
        error = await asyncio.to_thread(elsewhere, lambda: call(mq, reader))
    assert isinstance(error, ConfigError) and "run_coroutine_threadsafe" in str(error)


class Life:
    """A client that is entered by a task, and left when the test says."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._entered, self._leave = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        self._task = asyncio.create_task(self._live())
        await self._entered.wait()

    async def end(self) -> None:
        self._leave.set()
        assert self._task is not None
        await self._task

    async def _live(self) -> None:
        async with self._client:
            self._entered.set()
            await self._leave.wait()


@pytest.mark.parametrize("call", CALLS)
def test_another_loop_is_refused(call):
    async def run() -> None:
        await call(client)

    with asyncio.Runner() as first, asyncio.Runner() as second:
        client = connect("127.0.0.1:1")
        life = Life(client)
        first.run(life.begin())
        with pytest.raises(ConfigError, match="belongs to another event loop"):
            second.run(run())
        first.run(life.end())
        with pytest.raises(ClientClosed, match="closed"):
            second.run(run())


def test_a_send_to_a_known_topic_is_refused_elsewhere():
    async def send() -> None:
        client.send_soon("t", b"x")

    async def send_in_another_thread() -> None:
        errors.append(await asyncio.to_thread(elsewhere, lambda: client.send_soon("t", b"x")))

    errors: list[BaseException | None] = []
    with asyncio.Runner() as first, asyncio.Runner() as second:
        client = connect("127.0.0.1:1")
        life = Life(client)
        first.run(life.begin())
        client._producer._accumulator.learn("t", "t", None, b"UNIQ_KEY\x01")
        with pytest.raises(ConfigError, match="belongs to another event loop"):
            second.run(send())
        first.run(send_in_another_thread())
        first.run(life.end())
    assert isinstance(errors[0], ConfigError) and "event loop of another thread" in str(errors[0])


@pytest.mark.parametrize("call", CALLS)
async def test_a_forked_child_is_refused(mq: Client, call):
    async def run() -> None:
        await call(mq)

    said = in_child(lambda: asyncio.run(run()))
    assert said.startswith("ConfigError") and "connect in the child" in said


def test_a_forked_child_is_refused_by_a_client_without_async(namesrv):
    with sparrowmq.sync.connect(namesrv) as mq, sparrowmq.sync.admin(namesrv) as admin:
        mq.send("t", b"x")
        with (
            mq.pull_consumer(group="g") as reader,
            mq.subscribe("t", group="h", start="earliest") as consumer,
        ):
            (message,) = consumer.take()
            for call in (
                lambda: mq.send("t", b"x"),
                lambda: mq.send_soon("t", b"x"),
                lambda: mq.producer("p").send("t", b"x"),
                lambda: mq.subscribe("t", group="i").__enter__(),
                mq.admin.topics,
                admin.topics,
                reader.poll,
                consumer.lag,
                lambda: next(iter(consumer)),
                message.ack,
                message.retry,
            ):
                said = in_child(call)
                assert said.startswith("ConfigError") and "connect in the child" in said, said
            message.ack()
        assert mq.send("t", b"y").offset >= 0


def test_a_forked_child_leaves_without_the_parents_things(namesrv):
    with sparrowmq.sync.connect(namesrv) as mq:
        with mq.subscribe("t", group="g") as consumer:
            assert in_child(lambda: consumer.__exit__(None, None, None)) == "returned None"
            assert in_child(lambda: mq.__exit__(None, None, None)) == "returned None"
        mq.send("t", b"x")


def leave(entered: Any) -> None:
    asyncio.run(entered.__aexit__(None, None, None))


async def test_a_forked_child_leaves_an_asynchronous_client_to_its_parent(mq: Client):
    await mq.send("t", b"x")
    async with mq.subscribe("t", group="g") as consumer, mq.pull_consumer(group="h") as reader:
        for each in (consumer, reader, mq):
            assert in_child(partial(leave, each)) == "returned None"
    await mq.send("t", b"x")


async def test_a_client_made_before_a_fork_is_another_one_in_the_child(cluster: Cluster):
    made = connect(cluster.namesrv)

    async def use() -> tuple[str, str]:
        async with made as mq:
            assert mq._network.membership.client_id == mq.client_id
            return mq.client_id, (await mq.send("t", b"x")).msg_id[:-12]

    said = {await asyncio.to_thread(in_child, lambda: asyncio.run(use())) for _ in range(2)}
    said.add(f"returned {await use()!r}")
    assert len(said) == 3 and all(each.startswith("returned ('127.0.0.1@") for each in said), said
    assert len({each.split(", ")[1] for each in said}) == 3


def test_a_blocking_client_made_before_a_fork_starts_in_each_child(namesrv):
    made = sparrowmq.sync.connect(namesrv)

    def use() -> str:
        made.start()
        try:
            made.send("t", b"x")
            return made.client_id
        finally:
            made.close()

    said = [in_child(use), in_child(use), f"returned {use()!r}"]
    assert len(set(said)) == 3 and all(each.startswith("returned '127.0.0.1@") for each in said), said


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_message_is_settled_where_it_was_delivered(mq: Client, ordered):
    await mq.send("t", b"x")
    async with mq.subscribe("t", group="g", start="earliest", ordered=ordered) as consumer:
        message: ReceivedMessage = await anext(consumer)
        error = await asyncio.to_thread(elsewhere, message.ack)
        assert isinstance(error, ConfigError) and "event loop of another thread" in str(error)
        assert message.is_unsettled
        message.ack()
        assert not message.is_unsettled
        error = await asyncio.to_thread(elsewhere, lambda: asyncio.run(consumer.__anext__()))
        assert isinstance(error, ConfigError)
        assert in_child(lambda: asyncio.run(consumer.__anext__())).startswith("ConfigError")
        assert sum((await consumer.lag()).values()) == 0
