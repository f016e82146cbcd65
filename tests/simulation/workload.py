"""The clients of a run: programs that send, consume and administrate, and note in the history what they saw."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from sparrowmq.client.client import Client
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.client.sending.send_result import SendResult, SendStatus
from sparrowmq.errors import RemoteError, SparrowError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import Message, MessageQueue
from sparrowmq.protocol.requests.headers import QueryConsumerOffset, UpdateConsumerOffset
from sparrowmq.remoting.session import Session
from tests.simulation.administration import Administration
from tests.simulation.cluster import BROKER, Cluster
from tests.simulation.history import ORDERS, QUEUES, Fate, History, Place
from tests.simulation.members import COUNT as MEMBERS
from tests.simulation.members import Members
from tests.simulation.operator import Operator
from tests.simulation.pace import DENSE, Pace
from tests.simulation.pops import POPPED, Poppers
from tests.simulation.pops import QUEUES as POPPED_QUEUES
from tests.simulation.staged_batches import QUEUES as STAGED_QUEUES
from tests.simulation.staged_batches import STAGED, BatchWriter
from tests.simulation.watcher import Watcher

LATER: Final = "later"
_MOST_ADMINISTRATIONS: Final = 3
_RETRY_S: Final = 0.5
# After this time each transaction is decided: a producer that sends nothing meets a new master by its next heartbeat,
# at most 30 s after the election. It is less than the quiet time at the end.
_CHECKED_S: Final = 42.0


class Workload:
    """The programs.

    Attributes:
        is_over: no new operation begins.
        collects: what comes later is read before it is deleted.
        ready: the topics are there.
        operator: decides what members cannot decide themselves.
        administrations: the programs that change topics and groups.
    """

    def __init__(self, cluster: Cluster, history: History, pace: Pace = DENSE) -> None:
        self.pace = pace
        self.cluster = cluster
        self.history = history
        self.rng = cluster.world.scheduler.rng
        self.is_over = False
        self.collects = True
        self.is_ready = False
        self.running = 0
        self.found: dict[Place, str] | None = None
        self._numbers = Counter[str]()
        self.operator = Operator(cluster, pace)
        mean_s = self.rng.choice((0.4, 1.0, 2.0))
        count = self.rng.randint(1, _MOST_ADMINISTRATIONS)
        self.administrations = [Administration(self, f"o{number}", mean_s) for number in range(count)]

    def start(self) -> None:
        """Start all clients."""
        poppers, members = Poppers(self), Members(self)
        programs: list[Callable[[Client], Awaitable[None]]] = [
            self._send,
            self._send,
            self._batches,
            self._delayed,
        ]
        programs += [
            self._consume,
            *(each.run for each in self.administrations),
            self._transactions,
            BatchWriter(self).run,
            Watcher(self).run,
            poppers.send,
            poppers.consume,
            poppers.consume,
            *[members.work, members.sort] * MEMBERS,
        ]
        if self.pace.deletes:
            programs.append(self._collect)
        self.cluster.client(self._prepare)
        self.cluster.client(self.operator.run)
        for number, program in enumerate(programs):
            self.cluster.client(partial(self._run, program, f"group{number}"))

    async def _prepare(self) -> None:
        async with self.cluster.connect() as mq:
            widths = {ORDERS: QUEUES, LATER: QUEUES, STAGED: STAGED_QUEUES, POPPED: POPPED_QUEUES}
            for topic, queues in widths.items():
                await self._until_done(partial(mq.admin.create_topic, topic, queues=queues, exist_ok=True))
        self.is_ready = True

    async def _run(self, program: Callable[[Client], Awaitable[None]], group: str) -> None:
        while not self.is_ready:
            await asyncio.sleep(_RETRY_S)
        self.running += 1
        async with self.cluster.connect(group=group) as mq:
            await program(mq)
        self.running -= 1

    async def pause(self, mean_s: float) -> None:
        """Wait before the next operation; `mean_s` is that of a dense run."""
        await asyncio.sleep(self.rng.expovariate(1 / mean_s) * self.pace.waits)

    def next_identity(self, kind: str, mq: Client) -> str:
        """An identity that no other message has: the sender, and a number."""
        sender = f"{kind}{mq.client_id.partition('@')[0].rpartition('.')[2]}"
        self._numbers[sender] += 1
        identity = f"{sender}-{self._numbers[sender]}"
        self.history.made_s[identity] = self.cluster.world.scheduler.now
        return identity

    @property
    def topics(self) -> list[str]:
        """The topics that are changed now."""
        return [name for each in self.administrations for name in each.topics]

    def note(self, result: SendResult, identity: str) -> None:
        if result.status is SendStatus.OK:
            self.history.stored(result.queue.topic, result.queue.queue_id, result.offset, identity)
        else:
            self.history.less_safe += 1

    def log(self, error: SparrowError) -> None:
        self.cluster.world.scheduler.recent.append(f"{self.cluster.world.scheduler.now:.6f} client: {error!r}")

    # Programs ---------------------------------------------------------------------------------------------------------

    async def _send(self, mq: Client) -> None:
        while not self.is_over:
            identity = self.next_identity("s", mq)
            queue = MessageQueue(ORDERS, BROKER, self.rng.randrange(QUEUES))
            body = identity.encode() + b" " * self.rng.choice((0, 0, 100, 3000))
            try:
                self.note(await mq.send(ORDERS, body, queue=queue, timeout_s=3.0), identity)
            except SparrowError:
                self.history.failed += 1
            await self.pause(0.2)

    async def _batches(self, mq: Client) -> None:
        while not self.is_over:
            identities = [self.next_identity("b", mq) for _ in range(self.rng.randint(2, 12))]
            queue = MessageQueue(ORDERS, BROKER, self.rng.randrange(QUEUES))
            messages = [Message(ORDERS, identity.encode()) for identity in identities]
            try:
                for result, identity in zip(
                    await mq.send_many(messages, queue=queue, timeout_s=3.0), identities, strict=True
                ):
                    self.note(result, identity)
            except SparrowError:
                self.history.failed += 1
            await self.pause(0.8)

    async def _delayed(self, mq: Client) -> None:
        while not self.is_over:
            identity = self.next_identity("d", mq)
            queue = MessageQueue(LATER, BROKER, self.rng.randrange(QUEUES))
            self.history.later[identity] = Fate.AT_MOST_ONCE
            try:
                delay = self.rng.choice(self.pace.delays)
                result = await mq.send(LATER, identity.encode(), delay=delay, queue=queue, timeout_s=3.0)
                if result.status is SendStatus.OK:
                    self.history.will_come(identity, delay)
            except SparrowError:
                self.history.failed += 1
            await self.pause(0.4)

    async def _transactions(self, mq: Client) -> None:
        decided: dict[str, bool] = {}

        async def check(message: Any) -> bool | None:
            return decided.get(message.body.decode())

        group = f"tx{mq.client_id.partition('@')[0].rpartition('.')[2]}"
        # Without retries: a half message that is sent again is another one, and its check commits it, too.
        producer = mq.producer(group, ProducerSettings(retries=0), check=check)
        while not self.is_over:
            identity = self.next_identity("t", mq)
            decided[identity] = commits = self.rng.random() < 0.7
            self.history.later[identity] = Fate.AT_MOST_ONCE if commits else Fate.NEVER
            try:
                transaction = producer.transaction(LATER, identity.encode(), timeout_s=3.0)
                async with transaction:
                    if commits:
                        self.history.later[identity] = Fate.ONCE
                    else:
                        await transaction.rollback()
            except SparrowError:
                self.history.failed += 1
            await self.pause(1.0)
        # Answer the checks of transactions whose end did not reach the master.
        await asyncio.sleep(_CHECKED_S)

    async def _consume(self, mq: Client) -> None:
        async with mq.pull_consumer(group="readers") as reader:
            reader.assign(await self._until_done(lambda: reader.queues(ORDERS)))
            ends: Counter[int] = Counter()
            while not self.is_over:
                try:
                    for message in await reader.poll(timeout_s=self.pace.poll_s):
                        queue, offset = message.queue.queue_id, message.offset
                        identity = message.body.decode().rstrip()
                        self.history.saw(ORDERS, queue, offset, identity, ends[queue])
                        ends[queue] = offset + 1
                    await self._commit(mq, "readers", self.rng.randrange(QUEUES))
                except SparrowError as error:
                    self.log(error)
                    await self.pause(0.5)

    async def _collect(self, mq: Client) -> None:
        """Note what comes later, before it is deleted."""
        async with mq.pull_consumer(group="collectors") as reader:
            topics = [await self._until_done(partial(reader.queues, topic)) for topic in (LATER, STAGED)]
            reader.assign([queue for queues in topics for queue in queues])
            while self.collects:
                try:
                    for message in await reader.poll(timeout_s=self.pace.poll_s):
                        queue, identity = message.queue, message.body.decode()
                        self.history.came(queue.topic, queue.queue_id, message.offset, identity)
                except SparrowError as error:
                    self.log(error)
                    await self.pause(0.5)

    async def _commit(self, mq: Client, group: str, queue: int) -> None:
        """Commit an offset, and remember what the broker answered."""
        key = (group, queue)
        offset = self.history.shown_ends[queue]
        possible = self.history.offsets.setdefault(key, {0})
        possible.add(offset)
        session = await self.session(mq)
        await session.call(UpdateConsumerOffset(group, ORDERS, queue, offset))
        self.history.changed(f"the offset of {key} is {offset}")
        self.history.offsets[key] = {offset}

    async def session(self, mq: Client) -> Session:
        """The session to the master, for requests that the client itself hides."""
        await mq._network.routes.of(ORDERS)
        return await mq._network.brokers.of(BROKER)

    # The end ----------------------------------------------------------------------------------------------------------

    async def verify(self) -> None:
        """Read everything, and compare it with the history."""
        async with self.cluster.connect() as mq:
            found = {}
            for topic in sorted({ORDERS, *(place[0] for place in self.history.acknowledged)}):
                found.update(await self._until_done(partial(self._read, mq, topic)))
            self.history.check_log(found)
            later = self.history.came_of(LATER) | await self._until_done(lambda: self._read(mq, LATER))
            staged = self.history.came_of(STAGED) | await self._until_done(lambda: self._read(mq, STAGED))
            self.history.check_later(Counter(later.values()) + Counter(staged.values()))
            self.history.check_batches(staged)
            self.history.check_pops()
            self.history.check_handled()
            await self._until_done(lambda: self._check_state(mq))
        self.found = found

    async def _width(self, mq: Client, name: str) -> int:
        """How many queues a topic has; 0 if only a name server knows it."""
        try:
            shares = (await mq.admin.topic(name)).shares
        except RemoteError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                return 0
            raise
        return max((share.read_queues for share in shares), default=0)

    async def _until_done(self, operation: Callable[[], Awaitable[Any]]) -> Any:
        while True:
            try:
                return await operation()
            except SparrowError as error:
                self.log(error)
                await asyncio.sleep(_RETRY_S)

    async def _read(self, mq: Client, topic: str) -> dict[Place, str]:
        found: dict[Place, str] = {}
        shown = (await mq.admin.topic(topic)).queues
        ranges = {each.queue.queue_id: each.max_offset for each in shown}
        self.history.begins.update({(topic, each.queue.queue_id): each.min_offset for each in shown})
        async with mq.pull_consumer(group="verifiers") as reader:
            queues = await reader.queues(topic)
            reader.assign(queues)
            await reader.seek_to_beginning(*queues)
            begins = {each.queue.queue_id: each.min_offset for each in shown}
            positions = {queue: begins.get(queue.queue_id, 0) for queue in queues}
            while any(positions[queue] < ranges.get(queue.queue_id, 0) for queue in queues):
                for message in await reader.poll(timeout_s=5.0):
                    place = (topic, message.queue.queue_id, message.offset)
                    found[place] = message.body.decode().rstrip()
                positions = await reader.positions()
        return found

    async def _check_state(self, mq: Client) -> None:
        topics = {}
        for name in await mq.admin.topics():
            topics[name] = await self._width(mq, name)
        groups = set(await mq.admin.groups())
        offsets = {}
        session = await self.session(mq)
        for group, queue in sorted(self.history.offsets):
            answer = await session.call(QueryConsumerOffset(group, ORDERS, queue), accept={22})
            offsets[group, queue] = answer.header.offset if answer.code == 0 else None
        self.history.check_state(topics, groups, offsets)
