"""Where a scenario plays: a name server, a broker and clients of ours, all on one loop and one clock turned by hand.

Each verb of the language is a method of `Stage`, `do_VERB`; README.md tells them.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import sparrowmq
from sparrowmq import Admin, ReceivedMessage, SendResult
from sparrowmq.broker.broker import Broker
from sparrowmq.errors import RemoteError, SparrowError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests import bodies, client_bodies
from sparrowmq.protocol.requests.headers import GetConsumerListByGroup, HeartBeat, LockBatchMq, PullMessage
from sparrowmq.protocol.requests.namesrv_headers import GetRoute, RegisterBroker
from sparrowmq.protocol.requests.registration_bodies import RegisterBrokerBody
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session
from sparrowmq.testing import Cluster, ManualClock
from tests.scenarios.script import BadScript, Step, clock_face, seconds
from tests.scenarios.stillness import Loop

BROKER = "broker-0"
# Of a pull's flags: wait for a message; the subscription is in the request.
_SUSPEND, _SUBSCRIPTION = 2, 4
_ENDS = {"commit": True, "rollback": False, "unknown": None}
_FOUND, _NOT_FOUND, _NONE_MATCHED, _MOVED = 0, 19, 20, 21


class Stage:
    """A cluster and everybody who takes part.

    Args:
        folder: where the broker keeps its store.
        settings: of the broker.
    """

    def __init__(self, folder: Path, loop: Loop, settings: dict[str, Any]) -> None:
        self._lines: list[str] = []
        self._clock = ManualClock(settle=loop.still)
        self._loop = loop
        self._cluster = Cluster(folder, clock=self._clock, **settings)
        self._stack = AsyncExitStack()
        self._clients: dict[str, sparrowmq.Client] = {}
        self._consumers: dict[str, sparrowmq.Consumer] = {}
        self._producers: dict[str, sparrowmq.Producer] = {}
        self._strangers: dict[str, Session] = {}
        self._sent: dict[str, SendResult] = {}
        self._doing: set[asyncio.Task[None]] = set()
        loop.watch(self._syncs)

    def _syncs(self) -> bool:
        """Whether a broker's thread is syncing the log to disk."""
        flushers = [broker.store.flusher for broker in self._cluster.brokers if hasattr(broker, "store")]
        return any(each.flushed.error is None and each._ordered_end > each.flushed.value for each in flushers)

    async def __aenter__(self) -> Stage:
        await self._stack.enter_async_context(self._cluster)
        self._admin = await self._stack.enter_async_context(Admin(self._cluster.namesrv, clock=self._clock))
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._doing:
            task.cancel()
        await self._patiently(self._leave())

    async def play(self, step: Step) -> list[str]:
        """Do a command; what it and all that came of it said, until nothing moves any more.

        Raises:
            BadScript: there is no such verb, or it does not take these words.
        """
        self._lines = []
        verb = getattr(self, f"do_{step.verb}", None)
        if verb is None:
            raise BadScript(f"line {step.line}: no verb {step.verb!r}; README.md has them")
        if step.verb == "pass":
            await self._clock.advance(seconds(step.words[0]))
            return self._lines or ["(nothing)"]
        task = asyncio.ensure_future(self._do(verb, step))
        self._doing.add(task)
        task.add_done_callback(self._doing.discard)
        await self._loop.still()
        if not task.done():
            self._lines.append("(waits)")
        else:
            task.result()
        return self._lines or ["(nothing)"]

    async def _do(self, verb: Any, step: Step) -> None:
        """One command, which may end only when time has passed: then with the moment and its own words before."""
        began_s = self._clock.monotonic()
        try:
            said = await verb(*step.words, **step.options)
        except TypeError as error:
            raise BadScript(f"line {step.line}: {error}") from None
        except RemoteError as error:
            said = f"code {error.code}: {(error.remark or '').splitlines()[0]}"
        except SparrowError as error:
            said = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        if said and self._clock.monotonic() > began_s:
            self._tell(f"{step.command}: {said}")
        elif said:
            self._lines.append(said)

    def _tell(self, text: str) -> None:
        """Something that came with time."""
        self._lines.append(f"{clock_face(self._clock.monotonic())} {text}")

    # What the script says

    async def do_pass(self, duration: str) -> None:
        """Let time pass."""

    async def do_topic(self, name: str, queues: str = "1") -> None:
        await self._admin.create_topic(name, queues=int(queues))

    async def do_send(self, topic: str, *words: str, **how: str) -> str:
        mq = await self._client(how.get("by", "sender"))
        body = " ".join(words).encode()
        queue = MessageQueue(topic, BROKER, int(how["queue"])) if "queue" in how else None
        level = int(how["level"]) if "level" in how else None
        tag, delay = how.get("tag"), how.get("delay")
        sent = await mq.send(topic, body, queue=queue, tag=tag, delay=delay, delay_level=level)
        self._sent[" ".join(words)] = sent
        return f"{sent.queue.topic}/{sent.queue.queue_id} at {sent.offset}"

    async def do_recall(self, *words: str, by: str = "sender") -> str:
        """Take back what was sent and waits for its time."""
        await (await self._client(by)).recall(self._sent[" ".join(words)])
        return "recalled"

    async def do_stop(self) -> None:
        """The broker ends in order."""
        await self._cluster.brokers[0].__aexit__(None, None, None)

    async def do_start(self) -> None:
        """The broker is there again, at its port and with its store."""
        was = self._cluster.brokers[0]
        broker = Broker(replace(was.settings, port=int(was.address.rpartition(":")[2])), self._clock)
        self._cluster.brokers[0] = await self._stack.enter_async_context(broker)

    async def do_consume(self, name: str, topic: str, group: str, **how: str) -> None:
        """A consumer that tells what it gets, and refuses the first `fail` deliveries of each message."""
        mq = await self._client(name)
        fail, tries = int(how.get("fail", "0")), dict[bytes, int]()

        async def handle(message: ReceivedMessage) -> None:
            tries[message.body] = number = tries.get(message.body, 0) + 1
            again = f", try {message.reconsume_times + 1}" if message.reconsume_times else ""
            refused = number <= fail
            self._tell(f"{name}: {message.text()}{again}{' (fails)' if refused else ''}")
            if refused:
                message.retry(how.get("delay"))

        settings: dict[str, Any] = {"start": "earliest", "ordered": how.get("ordered") == "yes"}
        if "retries" in how:
            settings["max_reconsume_times"] = int(how["retries"])
        if "suspend" in how:
            settings["suspend_s"] = seconds(how["suspend"])
        consumer = mq.subscribe(topic, handle, group=group, tag=how.get("tag"), **settings)
        self._consumers[name] = await consumer.__aenter__()

    async def do_check(self, name: str, group: str, *answers: str) -> None:
        """A producer that tells what it is asked, and answers in turn: the last answer again and again.

        A plain function would be called in a thread of the client, of which the loop does not know.
        """
        mq, left = await self._client(name), list(answers)

        async def check(message: ReceivedMessage) -> bool | None:
            said = left.pop(0) if len(left) > 1 else left[0]
            asked = message.properties["TRANSACTION_CHECK_TIMES"]
            self._tell(f"{name}: asked about {message.text()}, time {asked} ({said})")
            return _ENDS[said]

        self._producers[name] = mq.producer(group, check=check)

    async def do_transact(self, name: str, topic: str, body: str, end: str, immune: str = "") -> str:
        """A transaction of a producer with a check, which says how it ended, or `unknown`."""
        properties = {"CHECK_IMMUNITY_TIME_IN_SECONDS": str(round(seconds(immune)))} if immune else {}
        async with self._producers[name].transaction(topic, body.encode(), properties=properties) as transaction:
            if _ENDS[end] is False:
                await transaction.rollback()
            elif _ENDS[end] is None:
                await transaction.unknown()
        return end

    async def do_leave(self, name: str) -> None:
        """A consumer says goodbye."""
        await self._consumers.pop(name).__aexit__(None, None, None)

    async def do_queues(self, *names: str) -> str:
        """Which queues each consumer has, retry topics apart."""
        held = {
            name: sorted(queue.queue_id for queue in self._consumers[name].queues if not queue.topic.startswith("%"))
            for name in names
        }
        return ", ".join(f"{name} {' '.join(map(str, queues)) or '-'}" for name, queues in held.items())

    async def do_beat(self, name: str, topic: str, group: str) -> None:
        """A heartbeat of a stranger that does nothing else, over a connection that stays open."""
        beat = client_bodies.ConsumerBeat(group, subscription_data_set=[Subscription.build(topic, version=1)])
        body = client_bodies.Heartbeat(name, consumer_data_set=[beat]).encode()
        await (await self._stranger(name)).call(HeartBeat(), body)

    async def do_lock(self, name: str, topic: str, queue: str, group: str) -> str:
        """A stranger's wish for the lock of a queue."""
        wanted = client_bodies.LockQueues(group, name, [MessageQueue(topic, BROKER, int(queue))])
        answer = await (await self._stranger(name)).call(LockBatchMq(), wanted.encode())
        return "locked" if client_bodies.LockedQueues.decode(answer.body).locked else "refused"

    async def do_pull(self, name: str, topic: str, queue: str, offset: str, wait: str = "0s") -> str:
        """One pull of a stranger, which the broker may hold for `wait`."""
        wait_ms = round(seconds(wait) * 1000)
        flags = _SUBSCRIPTION | (_SUSPEND if wait_ms else 0)
        request = PullMessage(name, topic, int(queue), int(offset), 32, flags, 0, wait_ms, 0, subscription="*")
        session = await self._stranger(name)
        accepted = {_NOT_FOUND, _NONE_MATCHED, _MOVED}
        answer = await session.call(request, accept=accepted, timeout_s=wait_ms / 1000 + 60)
        words = {
            _FOUND: "found",
            _NOT_FOUND: "nothing yet",
            _NONE_MATCHED: "none matched",
            _MOVED: "wrong offset",
        }
        return f"{words[answer.code]}, next {answer.header.next_begin_offset}"

    async def do_hangup(self, name: str) -> None:
        """A stranger's connection ends."""
        self._strangers.pop(name).close()

    async def do_members(self, group: str, by: str = "looker") -> str:
        session = await self._stranger(by)
        answer = await session.call(GetConsumerListByGroup(group))
        names = {mq.client_id: name for name, mq in self._clients.items()}
        members = client_bodies.ConsumerList.decode(answer.body).consumer_id_list
        return " ".join(sorted(names.get(member, member) for member in members))

    async def do_register(self, name: str, topic: str) -> None:
        """A broker that does nothing but tell the name server that it has a topic, over a connection that stays."""
        topics = bodies.TopicConfigTable(bodies.DataVersion(1), {topic: bodies.TopicConfig(topic, 4, 4)})
        session = await self._stranger(name, self._cluster.namesrv)
        port = len(self._strangers)
        request = RegisterBroker(name, f"127.0.0.1:{port}", "Scenario", f"127.0.0.1:{port}", 0)
        await session.call(request, RegisterBrokerBody(topics).encode())

    async def do_route(self, topic: str, by: str = "looker at routes") -> str:
        session = await self._stranger(by, self._cluster.namesrv)
        answer = await session.call(GetRoute(topic))
        return " ".join(sorted(data.broker_name for data in bodies.TopicRoute.decode(answer.body).queue_datas))

    async def do_count(self, topic: str) -> str:
        """How many messages a topic holds."""
        return str((await self._admin.topic(topic)).count)

    async def do_lag(self, group: str, topic: str) -> str:
        return str((await self._admin.lag(group, topic)).lag)

    # Who takes part

    async def _client(self, name: str) -> sparrowmq.Client:
        if name not in self._clients:
            mq = sparrowmq.connect(self._cluster.namesrv, instance=name, clock=self._clock)
            self._clients[name] = await self._stack.enter_async_context(mq)
        return self._clients[name]

    async def _stranger(self, name: str, address: str | None = None) -> Session:
        """A connection of its own for everybody whom no client of ours plays."""
        if name not in self._strangers:
            pool = Pool(self._clock)
            self._stack.callback(pool.close)
            self._strangers[name] = await pool.session(address or self._cluster.brokers[0].address)
        return self._strangers[name]

    async def _leave(self) -> None:
        for consumer in self._consumers.values():
            await consumer.__aexit__(None, None, None)
        await self._stack.aclose()

    async def _patiently(self, work: Any) -> None:
        """Await what may need time to pass."""
        task = asyncio.ensure_future(work)
        await self._loop.still()
        while not task.done():
            await self._clock.advance(1)
        await task
