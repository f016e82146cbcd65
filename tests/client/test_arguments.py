"""Wrong arguments of a program: each is told where it is given, with what to write instead.

Nothing listens at the address of most clients here, so that a row which is not refused at once fails otherwise.
"""

from datetime import datetime
from functools import partial

import pytest

import sparrowmq.sync
from sparrowmq.client.client import Client, connect
from sparrowmq.client.loop_thread import Callbacks, CallFuture
from sparrowmq.errors import ClientClosed, ConfigError
from sparrowmq.once import idempotent
from sparrowmq.protocol.messages.message import MessageQueue
from tests.client.wrong.values import Marks


def client() -> Client:
    return connect("127.0.0.1:1")


# What is called, and words of the answer.
CALLABLES = [
    (lambda mq: mq.subscribe("t", "paid", group="g"), "handler='paid' cannot be called.* tag="),
    (lambda mq: mq.subscribe("t", 5, group="g", batch=2), "handler=5 cannot be called"),
    (lambda mq: mq.subscribe("t", group="g", on_assigned="f"), "on_assigned='f' cannot .* list of queues"),
    (lambda mq: mq.subscribe("t", group="g", on_revoked=[]), "on_revoked=.* cannot be called"),
    (lambda mq: mq.pull_consumer(group="g", on_assigned=5), "on_assigned=5 cannot be called"),
    (lambda mq: mq.pull_consumer(group="g", on_revoked=5), "on_revoked=5 cannot be called"),
    (lambda mq: mq.producer("p", check="f"), "check='f' cannot be called"),
    (lambda mq: mq.check("payments")("f"), "check='f' cannot be called"),
    (lambda mq: mq.handler("t", group="g")("f"), "handler='f' cannot be called; .*@mq.handler"),
    (lambda mq: mq.middleware("f"), "middleware='f' cannot be called"),
]


@pytest.mark.parametrize(("call", "words"), CALLABLES)
def test_what_cannot_be_called_is_told_at_once(call, words):
    with pytest.raises(ConfigError, match=words):
        call(client())


@pytest.mark.parametrize(("call", "words"), CALLABLES)
def test_what_cannot_be_called_is_told_at_once_without_async(call, words):
    with sparrowmq.sync.connect("127.0.0.1:1") as mq, pytest.raises(ConfigError, match=words):
        call(mq)


async def test_whom_to_tell_of_queues_is_looked_at_first():
    async with client() as mq:
        with pytest.raises(ConfigError, match="changed='f' cannot be called"):
            await mq.pull_consumer(group="g").watch("t", "f")  # type: ignore[arg-type]
    with (
        sparrowmq.sync.connect("127.0.0.1:1") as blocking,
        pytest.raises(ConfigError, match="changed='f' cannot be called"),
    ):
        blocking.pull_consumer(group="g").watch("t", "f")  # type: ignore[arg-type]


def test_a_callback_of_a_future_is_looked_at_too():
    with pytest.raises(ConfigError, match="fn=5 cannot be called"):
        started = CallFuture[int](Callbacks(), lambda call: call(), lambda _: None)
        started.add_done_callback(5)  # type: ignore[arg-type]


# What is called, and words of the answer.
FILTERS = [
    (lambda mq: mq.subscribe("t", group="g", where=5), "where=5: give a text"),
    (lambda mq: mq.subscribe("t", group="g", tag=5), "tag=5: give a text"),
    (lambda mq: mq.subscribe("t", group="g", tag=b"a"), "tag=b'a': give a text"),
    (lambda mq: mq.subscribe({"t": 5}, group="g"), "tag=5: give a text"),
    (lambda mq: mq.subscribe([], group="g"), "topics=.* is empty; give a topic"),
    (lambda mq: mq.subscribe({}, group="g"), "topics={} is empty"),
    (lambda mq: mq.subscribe(5, group="g"), "topics=5: give a topic, several, or tags by topic"),
    (lambda mq: mq.subscribe([5], group="g"), "topic=5: give a text"),
    (lambda mq: mq.subscribe(b"t", group="g"), "topic=116: give a text"),
    (lambda mq: mq.subscribe("t", group=5), "group=5: give a text"),
    (lambda mq: mq.pull_consumer(group=None), "group=None: give a text"),
    (lambda mq: mq.producer(5), "group=5: give a text"),
    (lambda mq: mq.check(group=5), "group=5: give a text"),
]


@pytest.mark.parametrize(("call", "words"), FILTERS)
def test_topics_groups_and_filters_are_texts(call, words):
    with pytest.raises(ConfigError, match=words):
        call(client())


async def test_filters_are_texts_later_too():
    async with client() as mq:
        reader, consumer = mq.pull_consumer(group="g"), mq.subscribe("t", group="g")
        with pytest.raises(ConfigError, match="where=5: give a text"):
            await reader.subscribe("t", where=5)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="tag=5: give a text"):
            reader.assign([MessageQueue("t", "a", 0)], 5)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="where=5: give a text"):
            await consumer.subscribe("u", where=5)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="topic=5"):
            await mq.queues(5)  # type: ignore[arg-type]


QUEUE = MessageQueue("t", "broker-0", 0)

# What is called of a reader that has one queue, and words of the answer.
READING = [
    (lambda reader: reader.seek(QUEUE, 1.5), "offset 1.5 is no place"),
    (lambda reader: reader.seek(QUEUE, None), "offset None is no place"),
    (lambda reader: reader.seek(QUEUE, True), "offset True is no place"),
    (lambda reader: reader.seek(QUEUE, -1), "offset -1 is negative"),
    (lambda reader: reader.seek(QUEUE, 1 << 63), f"offset {1 << 63} is larger than any that a broker keeps"),
    (lambda reader: reader.commit({QUEUE: 10**30}), "is larger than any"),
    (lambda reader: reader.commit({QUEUE: 1.5}), "offset 1.5 is no place"),
    (lambda reader: reader.commit({QUEUE: -1}), "offset -1 is negative"),
    (lambda reader: reader.seek_to_time(datetime.min), "cannot be counted"),
    (lambda reader: reader.seek_to_time(5), "time=5: give a datetime"),
    (lambda reader: reader.offset_at(QUEUE, None), "time=None: give a datetime"),
    (lambda reader: reader.poll(timeout_s=None), "timeout_s=None: give seconds from 0 on"),
    (lambda reader: reader.poll(timeout_s="5"), "timeout_s='5': give seconds from 0 on"),
    (lambda reader: reader.poll(timeout_s=float("nan")), "timeout_s=nan: give seconds from 0 on"),
    (lambda reader: reader.poll(1.5), "max_count must be a whole number"),
]


@pytest.mark.parametrize(("call", "words"), READING)
async def test_wrong_places_and_times_are_told_at_once(call, words):
    async with client() as mq, mq.pull_consumer(group="g") as reader:
        reader.assign([QUEUE])
        with pytest.raises(ConfigError, match=words):
            await call(reader)


async def test_a_consumer_is_not_moved_to_no_place():
    with pytest.raises(ConfigError, match=r"offset 1\.5 is no place"):
        client().subscribe("t", group="g").seek(QUEUE, 1.5)  # type: ignore[arg-type]


def test_credentials_are_an_account():
    with pytest.raises(ConfigError, match="credentials='x': give Credentials"):
        connect("127.0.0.1:1", credentials="x")  # type: ignore[arg-type]


# What is called of an admin, and words of the answer.
OPERATING = [
    (lambda admin: admin.trace("1", "\ud800"), "topic='\\\\ud800' has half of a surrogate pair"),
    (lambda admin: admin.examine(5), "topic=5: give a text"),
    (lambda admin: admin.examine(expected=0), "expected=0: give a list of texts"),
    (lambda admin: admin.examine(expected="broker-a"), "expected='broker-a': give a list of texts"),
    (lambda admin: admin.examine(expected=[5]), "expected=5: give a text"),
    (lambda admin: admin.forget_broker([]), r"broker=\[\]: give a text"),
    (lambda admin: admin.create_group("g", max_retries=2**40), "max_retries must .* from 0 to 2147483647"),
    (lambda admin: admin.create_group("g", retry_queues=1.5), "retry_queues must be a whole number"),
    (lambda admin: admin.change_group("g", max_retries=-1), "max_retries must be a whole number"),
    (lambda admin: admin.resend(None), "dead_letter=None: give one of `dead_letters`"),
    (lambda admin: admin.replay(None, "g"), "message=None: give a message"),
    (lambda admin: admin.find("t", since=0), "since=0: give a datetime"),
    (lambda admin: admin.find("t", since=datetime.min), "cannot be counted"),
    (lambda admin: admin.find("t", "key", until="now"), "until='now': give a datetime"),
    (lambda admin: admin.find("t", 5), "key=5: give a text"),
    (lambda admin: admin.find("t", "key", limit=None), "limit must be a whole number, at least 1"),
    (lambda admin: admin.message(5), "msg_id=5: give a text"),
    (lambda admin: admin.group(5), "group=5: give a text"),
]


@pytest.mark.parametrize(("call", "words"), OPERATING)
async def test_an_operators_mistake_is_told_before_anything_is_changed(mq, call, words):
    await mq.send("t", b"x")
    await mq.admin.create_group("g", exist_ok=True)
    with pytest.raises(ConfigError, match=words):
        await call(mq.admin)


# What a program calls with a name that the function does not take, and the words of the answer.
MISNAMED = [
    (lambda mq: mq.send_soon("t", b"x", key="k"), r"send_soon\(\) .* 'key'; did you mean 'keys'\?"),
    (lambda mq: mq.send_nowait("t", b"x", tags="a"), r"send_nowait\(\) .* 'tags'; did you mean 'tag'\?"),
    (lambda mq: mq.transaction("t", b"x", key="k"), r"transaction\(\) .* 'key'; did you mean 'keys'\?"),
    (lambda mq: mq.subscribe("t", group="g", concurrent=4), r"subscribe\(\) .* did you mean 'concurrency'\?"),
    (lambda mq: mq.subscribe("t", group="g", tags="a"), r"subscribe\(\) .* did you mean 'tag'\?"),
    (lambda mq: mq.handler("t", group="g", retries=1), r"handler\(\) .* did you mean 'retry'\?"),
    (lambda mq: mq.simple_consumer("t", group="g", ordered=True), r"simple_consumer\(\) .* mean 'order'\?"),
    (
        lambda mq: mq.pull_consumer(group="g", xyz=1),
        r"pull_consumer\(\) .* 'xyz'; it takes start, pull_batch",
    ),
]


@pytest.mark.parametrize("connected", [connect, sparrowmq.sync.connect])
@pytest.mark.parametrize(("call", "words"), MISNAMED)
def test_misnamed_argument_is_told_of_the_function_that_was_called(connected, call, words):
    mq = connected("127.0.0.1:1", group="shop")
    with pytest.raises((TypeError, ClientClosed), match=f"{words}|not entered"):
        call(mq)


async def test_misnamed_argument_of_a_call_inside_the_client_is_told_so_too():
    async with connect("127.0.0.1:1") as mq:
        with pytest.raises(TypeError, match=r"^send\(\) got an unexpected keyword argument 'key'; did you mean"):
            await mq.send("t", b"x", key="k")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match=r"^request\(\) .* 'delay'; it takes "):
            await mq.request("t", b"x", delay="10s")  # type: ignore[call-arg]
    with (
        sparrowmq.sync.connect("127.0.0.1:1") as blocking,
        pytest.raises(TypeError, match=r"^send\(\) got an unexpected keyword argument 'key'; did you mean"),
    ):
        blocking.send("t", b"x", key="k")  # type: ignore[call-arg]


@pytest.mark.parametrize("connected", [connect, sparrowmq.sync.connect])
def test_misnamed_argument_of_connect_is_told_of_connect(connected):
    with pytest.raises(TypeError, match=r"^connect\(\) .* 'nameserver'; did you mean 'namesrv'\?"):
        connected(nameserver="a")


class Shop:
    def bill(self, message): ...

    def close(self): ...


@pytest.mark.parametrize(
    "declare",
    [
        lambda function: client().handler("t", group="g")(function),
        lambda function: client().subscribe("t", function, group="g"),
        lambda function: sparrowmq.sync.connect("127.0.0.1:1").handler("t", group="g")(function),
        lambda function: idempotent(Marks(), name="g")(function),
    ],
)
@pytest.mark.parametrize("method", [Shop.bill, Shop.close])
def test_method_without_its_object_is_refused_as_a_handler(declare, method):
    name = f"{__name__}.Shop.{method.__name__}"
    with pytest.raises(ConfigError, match=f"^handler={name} takes `self`, .*; write a function outside of a"):
        declare(method)
    declare(Shop().bill)


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (lambda mq: mq.handler("t", group="g")(three), "three must take the body"),
        (lambda mq: mq.subscribe("t", three, group="g"), "handler={}three takes other arguments"),
        (lambda mq: mq.handler("t", group="g")(partial(three)), "three must take the body"),
        (lambda mq: mq.handler("t", group="g", batch=2)(one_text), "one_text gets batches"),
        (lambda mq: mq.middleware(three), "middleware={}three takes other arguments"),
    ],
)
def test_function_is_named_by_its_module_and_name(declare, words):
    with pytest.raises(ConfigError) as raised:
        declare(client())
    assert words.format(f"{__name__}.") in str(raised.value) and f"{__name__}." in str(raised.value)


def three(one, two, three): ...


def one_text(text: str): ...
