"""Handlers declared with `@mq.handler`: what they are called with, what is around them, and how they end."""

import asyncio
import gc
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import msgspec
import pydantic
import pytest

from sparrowmq.client import blocking_client as sync
from sparrowmq.client.client import connect
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.consuming.retry import Retry
from sparrowmq.client.handlers import adapt
from sparrowmq.errors import ConfigError, InvalidMessage
from sparrowmq.protocol.messages.message import Message, MessageQueue
from sparrowmq.protocol.messages.typed_bodies import decoder
from tests.client.conftest import until
from tests.client.consuming.test_received import stored


@dataclass
class Order:
    id: str
    amount: int


class Refund(msgspec.Struct):
    id: str


class Model:
    """What handlers see of a pydantic model: the one method that makes it of JSON."""

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    def model_validate_json(cls, content: bytes) -> "Model":
        return cls(msgspec.json.decode(content)["name"])


async def served(mq, count, got):
    """Serve until `count` values came."""
    serving = asyncio.create_task(mq.serve())
    async with asyncio.timeout(20):
        values = [await got.get() for _ in range(count)]
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    return values


@pytest.mark.parametrize(
    ("wanted", "body", "value"),
    [
        (Order, b'{"id": "o-1", "amount": 5}', Order("o-1", 5)),
        (Refund, b'{"id": "r-1"}', Refund("r-1")),
        (list[int], b"[1, 2]", [1, 2]),
        (dict, b'{"a": 1}', {"a": 1}),
        (bytes, b"raw", b"raw"),
        (bytearray, b"raw", bytearray(b"raw")),
        (str, "gr\u00fcn".encode(), "gr\u00fcn"),
    ],
)
async def test_a_handler_gets_the_body_as_what_it_is_annotated_with(mq, wanted, body, value):
    got: asyncio.Queue[object] = asyncio.Queue()

    async def take(each):
        await got.put(each)

    take.__annotations__["each"] = wanted
    mq.handler("orders", group="billing", start="earliest")(take)
    await mq.send("orders", body)
    assert await served(mq, 1, got) == [value]


async def test_handler_gets_what_every_way_of_sending_takes(cluster):
    got: asyncio.Queue[tuple[int, str]] = asyncio.Queue()
    async with connect(cluster.namesrv, group="shop") as mq:

        @mq.check()
        async def check(message: ReceivedMessage) -> bool:
            return True

        @mq.handler("orders", group="billing", start="earliest")
        async def take(order: Order, message: ReceivedMessage) -> None:
            await got.put((order.amount, message.properties["contentType"]))

        await mq.send("orders", Order("o", 0), tag="paid")
        await mq.send_soon("orders", Order("o", 1))
        mq.send_nowait("orders", Order("o", 2))
        await mq.send_many([Message("orders", Order("o", 3)), Message("orders", Order("o", 4), delay="1s")])
        async with mq.transaction("orders", Order("o", 5)):
            pass
        await asyncio.to_thread(send_orders_blocking, cluster.namesrv, 6)
        assert sorted(await served(mq, 8, got)) == [(amount, "application/json") for amount in range(8)]


def send_orders_blocking(namesrv: str, amount: int) -> None:
    with sync.connect(namesrv) as mq:
        mq.send("orders", Order("o", amount))
        mq.send_many([Message("orders", Order("o", amount + 1))])


async def test_a_pydantic_model_validates_itself(mq):
    got: asyncio.Queue[object] = asyncio.Queue()

    @mq.handler("orders", group="billing", start="earliest")
    async def take(each: Model) -> None:
        await got.put(each.name)

    await mq.send("orders", b'{"name": "n"}')
    assert await served(mq, 1, got) == ["n"]


async def test_a_second_argument_gets_the_message_and_a_plain_function_will_do(mq):
    got: asyncio.Queue[object] = asyncio.Queue()

    @mq.handler("orders", group="billing", start="earliest")
    def take(order: Order, message: ReceivedMessage) -> None:
        got.put_nowait((order.id, message.tag))

    await mq.send("orders", b'{"id": "o-1", "amount": 5}', tag="paid")
    assert await served(mq, 1, got) == [("o-1", "paid")]


async def test_without_an_annotation_it_is_the_message(mq):
    got: asyncio.Queue[object] = asyncio.Queue()

    @mq.handler("orders", group="billing", start="earliest")
    async def take(message):
        await got.put(message.body)

    await mq.send("orders", b"raw")
    assert await served(mq, 1, got) == [b"raw"]


async def test_a_batch_handler_gets_lists(mq):
    got: asyncio.Queue[object] = asyncio.Queue()

    @mq.handler("orders", group="billing", batch=8, start="earliest")
    async def take(orders: list[Order], messages: list[ReceivedMessage]) -> None:
        for order, message in zip(orders, messages, strict=True):
            await got.put((order.amount, message.json()["amount"]))

    for amount in range(4):
        await mq.send("orders", msgspec.json.encode(Order("o", amount)))
    assert sorted(await served(mq, 4, got)) == [(amount, amount) for amount in range(4)]


async def test_a_body_that_does_not_fit_fails_and_the_others_go_on(mq, caplog):
    got: asyncio.Queue[object] = asyncio.Queue()

    @mq.handler("orders", group="billing", start="earliest")
    async def take(order: Order) -> None:
        await got.put(order.id)

    await mq.send("orders", b'{"id": 7}', fifo="k")
    await mq.send("orders", b'{"id": "o-2", "amount": 1}', fifo="k")
    assert await served(mq, 1, got) == ["o-2"]
    assert "is not what its handler takes" in caplog.text


async def test_middleware_is_around_every_handler_the_first_outermost(mq):
    got: asyncio.Queue[object] = asyncio.Queue()
    steps: list[object] = []

    @mq.middleware
    async def outer(delivered, call_next):
        steps.append(("outer", delivered.body))
        await call_next(delivered)
        steps.append("done")
        await got.put(None)

    @mq.middleware
    async def inner(delivered, call_next):
        steps.append("inner")
        await call_next(delivered)

    @mq.handler("orders", group="billing", start="earliest")
    async def take(body: str) -> None:
        steps.append(body)

    await mq.send("orders", b"x")
    await served(mq, 1, got)
    assert steps == [("outer", b"x"), "inner", "x", "done"]


def plain_middleware(delivered, call_next):
    call_next(delivered)


async def hasty_middleware(delivered, call_next):
    call_next(delivered)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("middleware", [plain_middleware, hasty_middleware])
async def test_a_message_comes_again_whose_middleware_did_not_await_the_handler(mq, caplog, middleware):
    got: asyncio.Queue[object] = asyncio.Queue()
    tries = 0

    @mq.middleware
    async def mend(delivered, call_next):
        nonlocal tries
        tries += 1
        await (call_next if tries == 1 else handle)(delivered)

    @mq.handler("orders", group="billing", start="earliest", retry=Retry(0.1, times=1))
    async def handle(message) -> None:
        await got.put(message.reconsume_times)

    mq.middleware(middleware)
    await mq.send("orders", b"x")
    assert await served(mq, 1, got) == [1]
    assert "did not await call_next" in caplog.text


def no_argument() -> None: ...


class Line(pydantic.BaseModel):
    count: int


@pydantic.dataclasses.dataclass
class Checked:
    count: Annotated[int, pydantic.Field(gt=0)]


@dataclass
class Basket:
    lines: list[Line]
    inside: "Basket | None" = None


class Packet(msgspec.Struct):
    line: Line


@pytest.mark.parametrize(
    ("wanted", "body", "value"),
    [
        (list[Line], b'[{"count": 5}]', [Line(count=5)]),
        (Line | None, b"null", None),
        (Basket, b'{"lines": [{"count": 5}], "inside": null}', Basket([Line(count=5)])),
        (Checked, b'{"count": 5}', Checked(count=5)),
        (object, b"5", 5),
    ],
)
def test_pydantic_makes_types_with_its_models_in_them(wanted, body, value):
    assert decoder(wanted)(body) == value


def test_pydantic_checks_its_dataclasses():
    with pytest.raises(ValueError, match="greater than 0"):
        decoder(Checked)(b'{"count": -1}')


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (asyncio.Event, "nothing makes a Event from JSON"),
        (list[asyncio.Event], "nothing makes a Event from JSON"),
        (Order | Refund, "unions may not contain more than one dict-like type"),
        (Packet, "pydantic-core schema"),
        (Message, "gets a ReceivedMessage"),
    ],
)
def test_a_type_that_no_body_becomes_is_refused_when_it_is_declared(wanted, says):
    def take(each) -> None: ...

    take.__annotations__["each"] = wanted
    with pytest.raises(ConfigError, match=says):
        connect("127.0.0.1:9876").handler("orders", group="billing")(take)


@pytest.mark.parametrize("body", [b"[5]", b'{"deep": ' + b"[" * 100_000])
def test_a_body_that_is_not_of_the_type_says_so(body):
    def take(each: dict[str, object]) -> None: ...

    with pytest.raises(InvalidMessage, match="is not what its handler takes"):
        adapt(take, is_batch=False)(ReceivedMessage(stored(body), MessageQueue("t", "a", 0)))


def test_the_keywords_of_a_decorator_are_no_second_argument():
    assert adapt(lambda *given, **named: (given, named), is_batch=False)("message") == (("message",), {})


class HasText(Protocol):
    def text(self) -> str: ...


@pytest.mark.parametrize("wanted", [ReceivedMessage, list, list[ReceivedMessage], object, Any, HasText, None])
def test_a_second_argument_may_be_annotated_as_the_message(wanted):
    def take(body: bytes, message) -> object:
        return message

    if wanted is not None:
        take.__annotations__["message"] = wanted
    message = ReceivedMessage(stored(), MessageQueue("t", "a", 0))
    assert adapt(take, is_batch=False)(message) is message


def connected(one: str, connection: threading.Event) -> None: ...


def three(one: str, two: str, three: str) -> None: ...


def keyword(*, one: str) -> None: ...


def no_list(one: str) -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "says"),
    [
        (no_argument, {}, "not 0"),
        (int, {}, "does not say which arguments it takes"),
        (three, {}, "not 3"),
        (keyword, {}, "must take the body"),
        (
            connected,
            {},
            "second argument gets the message, and connection is a Event; if that comes from @idem",
        ),
        (no_list, {"batch": 5}, "annotate its one as a list"),
    ],
)
def test_a_function_that_cannot_be_called_so_is_refused_when_it_is_declared(function, options, says):
    mq = connect("127.0.0.1:9876")
    with pytest.raises(ConfigError, match=says):
        mq.handler("orders", group="billing", **options)(function)


async def test_serving_nothing_is_refused(mq):
    with pytest.raises(ConfigError, match="no handler was declared"):
        await mq.serve()


PROGRAM = """
import sys, sparrowmq, sparrowmq.sync

mq = sparrowmq.connect(sys.argv[1])

@mq.handler("orders", group="billing", start="earliest")
async def take(body: str) -> None:
    print(body, flush=True)

mq.run()
print("in order", flush=True)
"""
BLOCKING = PROGRAM.replace("mq = sparrowmq.", "mq = sparrowmq.sync.").replace("async def", "def")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("text", [PROGRAM, BLOCKING], ids=["async", "blocking"])
async def test_a_program_runs_until_it_is_asked_to_end(cluster, mq, number, text):
    await mq.send("orders", b"hello")
    program = await asyncio.create_subprocess_exec(sys.executable, "-c", text, cluster.namesrv, stdout=subprocess.PIPE)
    assert program.stdout is not None
    async with asyncio.timeout(30):
        assert await program.stdout.readline() == b"hello\n"
        program.send_signal(number)
        assert await program.stdout.read() == b"in order\n"
        assert await program.wait() == 0


WORK = """
import sys, sparrowmq, sparrowmq.sync

mq = sparrowmq.connect(sys.argv[1])

async def work(client, stop):
    assert client is mq
    await client.send("orders", b"hello")
    print("begun", flush=True)
    await stop.wait()
    if len(sys.argv) > 2:
        raise ValueError(sys.argv[2])
    await client.send("orders", b"bye")
    print("work ends", flush=True)

mq.run(work)
print("in order", flush=True)
"""
BLOCKING_WORK = WORK.replace("mq = sparrowmq.", "mq = sparrowmq.sync.").replace("async ", "").replace("await ", "")


@pytest.mark.parametrize("text", [WORK, BLOCKING_WORK], ids=["async", "blocking"])
async def test_work_runs_beside_handlers_and_ends_with_them(cluster, mq, text):
    """Without handlers, too; and its error is the program's."""
    handler = '@mq.handler("orders", group="billing", start="earliest")\n'
    handler += "def take(body: str):\n    print(body, flush=True)\n"
    for program_text, arguments, first, rest in (
        (
            text.replace("mq.run", f"{handler}\nmq.run"),
            [],
            {b"begun\n", b"hello\n"},
            b"work ends\nin order\n",
        ),
        (text, [], {b"begun\n"}, b"work ends\nin order\n"),
        (text, ["it failed"], {b"begun\n"}, b""),
    ):
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program_text, cluster.namesrv, *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert program.stdout is not None and program.stderr is not None
        async with asyncio.timeout(30):
            assert {await program.stdout.readline() for _ in first} == first
            program.send_signal(signal.SIGTERM)
            assert (await program.stdout.read()).endswith(rest)
            assert (b"ValueError: it failed" in await program.stderr.read()) == bool(arguments)
            assert bool(await program.wait()) == bool(arguments)


@pytest.mark.parametrize("work", [5, lambda mq: None, asyncio.sleep(0)], ids=["number", "one", "coroutine"])
def test_work_is_a_function_of_a_client_and_an_event(rocketmq_server, work):
    with pytest.raises(ConfigError, match="give a function of a client and an event"):
        sync.connect(rocketmq_server.namesrv).run(work)
    if asyncio.iscoroutine(work):
        work.close()


async def coroutine_work(_mq, _stop):
    raise AssertionError("it does not run")


def test_a_client_without_async_runs_no_coroutine_function(rocketmq_server):
    with pytest.raises(ConfigError, match="is asynchronous"):
        sync.connect(rocketmq_server.namesrv).run(coroutine_work)


SLOW = """
import sys, time, sparrowmq, sparrowmq.sync

mq = sparrowmq.connect(sys.argv[1])

@mq.handler("orders", group="billing", start="earliest", grace_s=60)
def take(body: str) -> None:
    print("begun", flush=True)
    time.sleep(1)
    print("done", flush=True)

mq.run()
print("in order", flush=True)
"""


@pytest.mark.parametrize(
    ("text", "signals", "rest"),
    [
        (SLOW, 1, b"done\nin order\n"),
        (SLOW.replace("mq = sparrowmq.", "mq = sparrowmq.sync."), 1, b"done\nin order\n"),
        (SLOW.replace("sleep(1", "sleep(60"), 2, b"in order\n"),
    ],
    ids=["async", "blocking", "twice"],
)
async def test_a_plain_handler_may_finish_after_a_signal_but_not_after_a_second(cluster, mq, text, signals, rest):
    await mq.send("orders", b"hello")
    program = await asyncio.create_subprocess_exec(sys.executable, "-c", text, cluster.namesrv, stdout=subprocess.PIPE)
    assert program.stdout is not None
    async with asyncio.timeout(20):
        assert await program.stdout.readline() == b"begun\n"
        for _ in range(signals):
            program.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.2)
        assert await program.stdout.read() == rest
        await program.wait()


def test_without_async_handlers_and_middleware_run_in_threads(rocketmq_server, rocketmq_topic):
    steps: list[object] = []
    ended = threading.Event()
    mq = sync.connect(rocketmq_server.namesrv)

    @mq.middleware
    def around(delivered, call_next):
        steps.append(delivered.body)
        call_next(delivered)
        ended.set()

    @mq.handler(rocketmq_topic, group="billing", start="earliest")
    def take(order: Order) -> None:
        steps.append((order, threading.current_thread() is threading.main_thread()))
        mq.send(f"{rocketmq_topic}-answers", b"may block")

    with mq:
        mq.send(rocketmq_topic, b'{"id": "o-1", "amount": 5}')
        serving = threading.Thread(target=mq.serve, daemon=True)
        serving.start()
        assert ended.wait(20)
    serving.join(20)
    assert not serving.is_alive()
    assert steps[:2] == [b'{"id": "o-1", "amount": 5}', (Order("o-1", 5), False)]


def test_without_async_an_async_handler_is_refused_when_it_is_declared():
    mq = sync.connect("127.0.0.1:9876")

    async def take(body: str) -> None: ...

    with pytest.raises(ConfigError, match="is asynchronous"):
        mq.handler("orders", group="billing")(take)
    with pytest.raises(ConfigError, match="is asynchronous"):
        mq.middleware(hasty_middleware)


FORGETFUL = """
import {module}
mq = {module}.connect("127.0.0.1:1")

@mq.handler("orders", group="billing")
{kind} bill(order: dict) -> None: ...
"""


@pytest.mark.parametrize(("module", "kind"), [("sparrowmq", "async def"), ("sparrowmq.sync", "def")])
def test_program_that_never_serves_its_handlers_warns_at_its_end(module, kind):
    program = FORGETFUL.format(module=module, kind=kind)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stderr == (
        "handlers were declared and never served, so they got no message: __main__.bill; call run(), serve() or "
        "start(serve=True)\n"
    )


async def test_client_that_has_served_its_handlers_warns_of_none(cluster, caplog):
    async with connect(cluster.namesrv) as mq:
        mq.handler("orders", group="billing")(lambda message: None)
        serving = asyncio.create_task(mq.serve())
        await asyncio.sleep(0)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    del mq
    gc.collect()
    assert "never served" not in caplog.text


def lines_of_failures(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if "failed to handle" in record.getMessage()]


async def test_failure_in_the_log_names_handler_group_topic_try_and_the_next_delivery(mq, caplog):
    async def first(delivered, call_next) -> None:
        await call_next(delivered)

    mq.middleware(first)

    @mq.handler("orders", group="billing", start="earliest", retry=Retry("2h", times=3))
    async def bill(order: Order) -> None:
        raise LookupError("no such customer")

    @mq.handler("orders", group="shipping", start="earliest")
    def ship(order: Order) -> None:
        raise LookupError("no such address")

    sent = await mq.send("orders", Order("o-1", 5))
    serving = asyncio.create_task(mq.serve())
    await until(lambda: len(lines_of_failures(caplog)) == 2)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    here, message = (
        f"{__name__}.test_failure_in_the_log_names_handler",
        f"<message {sent.msg_id} of orders at ",
    )
    billing, shipping = sorted(lines_of_failures(caplog))
    assert billing.startswith(f"handler {here}") and shipping.startswith(f"handler {here}")
    assert f".bill of group billing failed to handle {message}" in billing
    assert billing.endswith("; try 1 of 4; it comes again in 2h")
    assert f".ship of group shipping failed to handle {message}" in shipping
    assert shipping.endswith("; try 1 of 17; it comes again in about 10s")
    assert caplog.text.count("Traceback") == 2


def fail_blocking(namesrv: str, is_failed: threading.Event) -> None:
    with sync.connect(namesrv) as mq:

        @mq.middleware
        def first(delivered, call_next) -> None:
            call_next(delivered)

        @mq.handler("orders", group="blocking", start="earliest")
        def bill(order: Order) -> None:
            raise LookupError("no such customer")

        mq.send("orders", Order("o-1", 5))
        serving = threading.Thread(target=mq.serve)
        serving.start()
        is_failed.wait(20)
    serving.join()


async def test_failure_of_a_blocking_handler_names_it_too(cluster, caplog):
    is_failed = threading.Event()
    failing = asyncio.create_task(asyncio.to_thread(fail_blocking, cluster.namesrv, is_failed))
    await until(lambda: lines_of_failures(caplog))
    is_failed.set()
    await failing
    assert f"handler {__name__}.fail_blocking.bill of group blocking failed" in caplog.text


async def test_body_that_does_not_fit_is_one_line_of_the_log(mq, caplog):
    @mq.handler("orders", group="billing", start="earliest")
    async def bill(line: Line) -> None: ...

    @mq.handler("orders", group="shipping", start="earliest")
    async def ship(message: ReceivedMessage) -> None:
        message.json()

    await mq.send("orders", b"[")
    serving = asyncio.create_task(mq.serve())
    await until(lambda: len(lines_of_failures(caplog)) == 2)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert "Traceback" not in caplog.text and all("\n" not in line for line in lines_of_failures(caplog))
    billing, shipping = sorted(lines_of_failures(caplog))
    assert "try 1 of 17; it comes again in about 10s: the body of <message" in billing
    assert "is not what its handler takes" in billing and "is not JSON" in shipping
