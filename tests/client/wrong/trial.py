"""One generated call after the other, and how each ended."""

import asyncio
import inspect
import random
from collections import Counter
from collections.abc import Awaitable
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import sparrowmq
import sparrowmq.sync
from sparrowmq.client.loop_thread import CallFuture
from sparrowmq.errors import SparrowError
from sparrowmq.testing.cluster import Cluster
from tests.client.forks import in_child
from tests.client.wrong.surface import WAITING, Target, targets
from tests.client.wrong.values import QUEUE, TOPIC, right, wrong

LIMIT_S: Final = 10.0
SHORTEST_SENTENCE: Final = 15
HERE, THREAD, LOOP, CHILD, CLOSED, BEFORE = (
    "here",
    "another thread",
    "another loop",
    "a child",
    "closed",
    "before",
)
PLACES: Final = (*[HERE] * 7, THREAD, LOOP, CHILD, CLOSED, BEFORE)
# Words of errors that were not meant for a program.
BARE: Final = (
    *("object has no attribute", "unsupported operand", "positional argument"),
    *("object is not iterable", "unhashable type", "'NoneType' object"),
)


@dataclass
class Call:
    """A generated call: a target, its arguments, and the place where it is made."""

    target: Target
    arguments: dict[str, Any]
    several: tuple[Any, ...]
    place: str

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}"[:120] for name, value in self.arguments.items())
        return f"{self.target}({', '.join(map(repr, self.several))}{given}) {self.place}"

    def on(self, subject: object) -> Any:
        """Make the call."""
        if self.target.owner is None:
            return self.target.function(*self.several, **self.arguments)
        return getattr(subject, self.target.name)(*self.several, **self.arguments)


def generated(chance: random.Random, count: int) -> list[Call]:
    """Calls of all targets in turn. Those that close a client come last, as the others need it."""
    every = targets()
    calls: list[Call] = []
    while len(calls) < count:
        chance.shuffle(every)
        calls += [_call(chance, target) for target in every]
    return sorted(calls[:count], key=lambda call: call.place == HERE and call.target.name == "close")


def _call(chance: random.Random, target: Target) -> Call:
    place = HERE if target.owner is None or target.owner is sparrowmq.ReceivedMessage else chance.choice(PLACES)
    needed = {*target.needed, *({"body"} & set(target.names))}
    if str(target) == "SyncClient.subscribe":
        needed.add("group")
    arguments = {name: right(name) for name in sorted(needed)}
    if place in (HERE, CLOSED, BEFORE):
        for name in chance.sample(target.names, min(len(target.names), chance.choice((1, 1, 1, 2)))):
            arguments[name] = wrong(chance)
        several = (wrong(chance),) if target.several and chance.random() < 0.7 else ()
        if several:  # They come first, so the others are given by their place.
            several, arguments = (*arguments.values(), *several), {}
        return Call(target, arguments, several, place)
    return Call(target, arguments, (), place)


@dataclass
class Subjects:
    """The objects of one client, by class."""

    by_class: dict[type, Any]
    messages: list[sparrowmq.ReceivedMessage] = field(default_factory=list)

    def of(self, target: Target) -> Any:
        if target.owner is sparrowmq.ReceivedMessage:
            return self.messages.pop()
        return self.by_class.get(target.owner)  # type: ignore[arg-type]


def of_client(mq: sparrowmq.Client) -> Subjects:
    return Subjects(
        {
            sparrowmq.Client: mq,
            sparrowmq.Producer: mq.producer("producer"),
            sparrowmq.Consumer: mq.subscribe(TOPIC, group="consumer", start="earliest"),
            sparrowmq.PullConsumer: mq.pull_consumer(group="reader"),
            sparrowmq.SimpleConsumer: mq.simple_consumer(TOPIC, group="receiver"),
            sparrowmq.Admin: mq.admin,
        }
    )


def of_blocking_client(mq: sparrowmq.sync.SyncClient) -> Subjects:
    sync = sparrowmq.sync
    return Subjects(
        {
            sync.SyncClient: mq,
            sync.SyncProducer: mq.producer("producer"),
            sync.SyncConsumer: mq.subscribe(TOPIC, group="consumer", start="earliest"),
            sync.SyncPullConsumer: mq.pull_consumer(group="reader"),
            sync.SyncSimpleConsumer: mq.simple_consumer(TOPIC, group="receiver"),
            sync.SyncAdmin: mq.admin,
        }
    )


class Trial:
    """Makes the calls, on clients of a real cluster.

    Attributes:
        faults: the calls that ended in another way than with a sentence of ours, or well.
        ends: how the calls ended.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.faults: list[str] = []
        self.ends: Counter[str] = Counter()
        self._cluster = cluster
        self._namesrv = cluster.namesrv

    async def run(self, calls: list[Call]) -> None:
        new, blocking_new = sparrowmq.connect(self._namesrv), sparrowmq.sync.connect(self._namesrv)
        before = {**of_client(new).by_class, **of_blocking_client(blocking_new).by_class}
        closed = await self._closed()
        async with AsyncExitStack() as stack:
            living = await self._living(stack)
            blocking = await self._blocking(stack)
            for call in calls:
                if call.place == BEFORE:
                    subject = before.get(call.target.owner)  # type: ignore[arg-type]
                elif call.place == CLOSED:
                    subject = closed.get(call.target.owner)  # type: ignore[arg-type]
                else:
                    subject = (blocking if call.target.is_blocking else living).of(call.target)
                await self._try(call, subject)
        await new.close()  # as some calls have started them
        await asyncio.to_thread(blocking_new.close)

    async def _living(self, stack: AsyncExitStack) -> Subjects:
        stack.enter_context(suppress(SparrowError))  # A consumer that was given a wrong filter says so when it is left.
        mq = await stack.enter_async_context(sparrowmq.connect(self._namesrv))
        await mq.send_many([sparrowmq.Message(TOPIC, b'{"n": 1}') for _ in range(300)])
        found = of_client(mq)
        async with mq.subscribe(TOPIC, group="messages", start="earliest") as all_of_them:
            while len(found.messages) < 300:
                found.messages += await all_of_them.take(300)
        for owner in (sparrowmq.Consumer, sparrowmq.PullConsumer, sparrowmq.SimpleConsumer):
            await stack.enter_async_context(found.by_class[owner])
        found.by_class[sparrowmq.PullConsumer].assign([QUEUE])
        return found

    async def _blocking(self, stack: AsyncExitStack) -> Subjects:
        threads = ExitStack()
        threads.enter_context(suppress(SparrowError))

        def enter() -> Subjects:
            found = of_blocking_client(threads.enter_context(sparrowmq.sync.connect(self._namesrv)))
            sync = sparrowmq.sync
            for owner in (sync.SyncConsumer, sync.SyncPullConsumer, sync.SyncSimpleConsumer):
                threads.enter_context(found.by_class[owner])
            found.by_class[sparrowmq.sync.SyncPullConsumer].assign([QUEUE])
            return found

        found = await asyncio.to_thread(enter)
        stack.push_async_callback(asyncio.to_thread, threads.close)
        return found

    async def _closed(self) -> dict[type, Any]:
        async with sparrowmq.connect(self._namesrv) as mq:
            found = of_client(mq).by_class
            async with (
                found[sparrowmq.Consumer],
                found[sparrowmq.PullConsumer],
                found[sparrowmq.SimpleConsumer],
            ):
                pass

        def use() -> dict[type, Any]:
            with sparrowmq.sync.connect(self._namesrv) as mq:
                return of_blocking_client(mq).by_class

        return {**found, **await asyncio.to_thread(use)}

    # One call -------------------------------------------------------------------------------------------------------

    async def _try(self, call: Call, subject: Any) -> None:
        try:
            async with asyncio.timeout(LIMIT_S):
                await self._made(call, subject)
            self.ends["accepted"] += 1
            if call.place in (THREAD, LOOP, CHILD) and self._needs_its_place(call):
                self.faults.append(f"{call}: was not refused")
        except TimeoutError:
            self.ends["waits"] += 1
            if not _may_wait(call):
                self.faults.append(f"{call}: hangs")
        except BaseException as error:
            self.ends[type(error).__name__] += 1
            self._judge(call, error)

    def _judge(self, call: Call, error: BaseException) -> None:
        text = str(error)
        is_ours = isinstance(error, SparrowError) and " " in text and len(text) >= SHORTEST_SENTENCE
        if not is_ours or any(word in text for word in BARE):
            where = inspect.getinnerframes(error.__traceback__)[-1] if error.__traceback__ else None
            at = f" at {where.filename}:{where.lineno}" if where else ""
            self.faults.append(f"{call}: {type(error).__name__}: {text[:300]}{at}")

    def _needs_its_place(self, call: Call) -> bool:
        """Whether a coroutine of a client must be refused elsewhere."""
        if call.place == CHILD and call.target.name == "close":
            return False  # It leaves the client to the parent.
        if call.place == CHILD and call.target.is_blocking:
            return inspect.iscoroutinefunction(getattr(_twin(call), call.target.name, None))
        return not call.target.is_blocking and inspect.iscoroutinefunction(call.target.function)

    async def _made(self, call: Call, subject: Any) -> None:
        if call.target.is_blocking or call.place == CHILD:
            await self._made_in_a_thread(call, subject)
        elif call.place == THREAD or call.place == LOOP:
            await asyncio.to_thread(asyncio.run, finished(call, subject))
        else:
            await finished(call, subject)

    async def _made_in_a_thread(self, call: Call, subject: Any) -> None:
        if call.target.name in WAITING and call.place not in (CHILD, CLOSED, BEFORE) and not call.arguments:
            return  # Its thread would wait until the end.
        if call.place == CHILD:
            done = partial(_blocked, call, subject) if call.target.is_blocking else partial(_run, call, subject)
            said = await asyncio.to_thread(in_child, done)
            _raise_as_said(said)
        else:
            await asyncio.to_thread(_blocked, call, subject)


def _may_wait(call: Call) -> bool:
    timeout_s = call.arguments.get("timeout_s", 0)
    return call.target.name in WAITING or (isinstance(timeout_s, int | float) and timeout_s >= LIMIT_S)


def _twin(call: Call) -> type:
    assert call.target.owner is not None
    return getattr(sparrowmq, call.target.owner.__name__.removeprefix("Sync"))  # type: ignore[no-any-return]


def _run(call: Call, subject: Any) -> None:
    asyncio.run(finished(call, subject))


def _raise_as_said(said: str) -> None:
    if said.startswith("returned"):
        return
    if said == "hung":
        raise TimeoutError
    name, _, text = said.partition(": ")
    kind = getattr(sparrowmq.errors, name, None)
    if kind is None:
        raise AssertionError(said)
    raise sparrowmq.ConfigError(text)


ENTERED: Final = (
    sparrowmq.Consumer,
    sparrowmq.PullConsumer,
    sparrowmq.SimpleConsumer,
    sparrowmq.Transaction,
)


async def finished(call: Call, subject: Any) -> None:
    """Make the call, and finish what it has begun."""
    result = call.on(subject)
    if isinstance(result, Awaitable):
        result = await result
    if inspect.isasyncgen(result):
        await anext(result, None)
    if isinstance(result, ENTERED) or (
        isinstance(result, sparrowmq.Client | sparrowmq.Admin | Cluster) and call.target.owner is None
    ):
        async with result:
            pass
    elif isinstance(result, sparrowmq.sync.SyncClient | sparrowmq.sync.SyncAdmin):
        await asyncio.to_thread(_entered, result)
    elif callable(result) and call.target.name in ("handler", "check", "idempotent"):
        result(lambda message: None)


def _blocked(call: Call, subject: Any) -> None:
    result = call.on(subject)
    if isinstance(result, CallFuture):
        result.result(LIMIT_S)
    elif hasattr(result, "__enter__") and not isinstance(result, sparrowmq.sync.SyncAdmin):
        _entered(result)
    elif callable(result) and call.target.name in ("handler", "check", "idempotent"):
        result(lambda message: None)


def _entered(result: Any) -> None:
    with result:
        pass


async def settled(cluster: Cluster) -> None:
    """Let tasks end that are about to."""
    for _ in range(20):
        await asyncio.sleep(0.01)
    with suppress(SparrowError):
        async with sparrowmq.Admin(cluster.namesrv) as admin:
            await admin.topics()
