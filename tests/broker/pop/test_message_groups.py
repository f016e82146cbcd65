"""Orderly pops of many message groups against a plain model: order, redelivery, lost answers, and restarts."""

import asyncio
import random
import shutil
from collections import defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest

from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateSubscriptionGroup
from sparrowmq.protocol.requests.bodies import GroupConfig
from sparrowmq.protocol.requests.headers import QueryConsumerOffset
from sparrowmq.testing import ManualClock
from tests.broker.live import live_broker
from tests.broker.pop_live import ack, change, pop

GROUPS = ("", "a", "b", "c", "d", "e")
MOST_TIMES = 4  # deliveries of a message
QUEUES = 2


@dataclass
class Sent:
    """A message. Attributes: until_ms: when it is visible again; given, attempt: of the last pop that got it."""

    body: bytes
    message_group: tuple[int, str]
    until_ms: int = 0
    times: int = 0
    is_done: bool = False
    given: object = None
    attempt: str = ""


@dataclass
class Model:
    """What consumers may see of a broker."""

    clock: ManualClock
    chance: random.Random
    has_one_order: bool = False
    message_groups: dict[tuple[int, str], list[Sent]] = field(default_factory=lambda: defaultdict(list))
    by_body: dict[bytes, Sent] = field(default_factory=dict)
    lost: list[tuple[str, int, list[bytes]]] = field(default_factory=list)

    def send(self, queue_id, group):
        message_group = (queue_id, "" if self.has_one_order else group)
        sent = Sent(b"%d" % len(self.by_body), message_group)
        self.message_groups[message_group].append(sent)
        self.by_body[sent.body] = sent
        return sent.body

    def left(self, message_group):
        self.check_chunk()
        return [each for each in self.message_groups[message_group] if not each.is_done]

    def is_hidden(self, sent):
        return self.clock.now_ms() < sent.until_ms

    def check_chunk(self):
        """Bury the messages whose last time is over."""
        for sent in self.by_body.values():
            if sent.times >= MOST_TIMES and not self.is_hidden(sent):
                sent.is_done = True

    def give(self, messages, invisible_ms, attempt, is_same=False):
        """Check the messages of an answer."""
        found = defaultdict(list)
        for message in messages:
            sent = self.by_body[message.body]
            found[sent.message_group].append(sent)
        for message_group, some in found.items():
            left = self.left(message_group)
            assert [each.body for each in some] == [each.body for each in left[: len(some)]], message_group
            assert is_same or not any(map(self.is_hidden, left)), message_group
        for message in messages:
            sent = self.by_body[message.body]
            sent.times += not is_same
            assert message.reconsume_times == sent.times - 1
            sent.until_ms = self.clock.now_ms() + invisible_ms
            sent.given, sent.attempt = message, attempt

    def held(self):
        self.check_chunk()
        return [each for each in self.by_body.values() if each.given is not None and not each.is_done]

    def waiting(self):
        """The messages that a pop should have given."""
        message_groups = {message_group: self.left(message_group) for message_group in list(self.message_groups)}
        return [each.body for left in message_groups.values() if not any(map(self.is_hidden, left)) for each in left]


class Run:
    """One broker, and consumers that are slow, lose answers and fail."""

    def __init__(self, path, seed, read_ahead):
        self.path = path
        self.chance = random.Random(seed)
        self.clock = ManualClock()
        self.read_ahead = read_ahead
        self.model = Model(self.clock, self.chance, has_one_order=read_ahead == 0)
        self.lives = 0
        self.attempts = 0

    async def start(self, stack):
        folder = self.path / str(self.lives)
        self.live = await stack.enter_async_context(
            live_broker(folder, clock=self.clock, message_group_read_ahead=self.read_ahead)
        )

    async def restart(self, stack):
        """Go on with the files of this moment, as after a kill."""
        before, after = self.path / str(self.lives), self.path / str(self.lives + 1)
        self.lives += 1
        # Timers of the dead broker never ring.
        self.clock = self.model.clock = ManualClock(self.clock.now_ms())
        store = self.live.broker.settings.store_path
        await asyncio.to_thread(copied, store, after / store.relative_to(before))
        await stack.aclose()
        await self.start(stack)
        await self.advance()  # messages whose time was over meanwhile are visible

    def some_ms(self, least_s, most_s):
        """A time that ends half a second away from every look: the clock goes by whole seconds."""
        return self.chance.randrange(least_s, most_s) * 1000 + 500

    async def pop(self, queue_id=None, count=None, attempt=None, is_same=False):
        self.attempts += 1
        attempt = attempt or f"attempt-{self.attempts}"
        queue_id = self.chance.randrange(QUEUES) if queue_id is None else queue_id
        invisible_ms = self.some_ms(5, 30)
        messages = await pop(
            self.live,
            queue_id=queue_id,
            max_msg_nums=count or self.chance.randrange(1, 9),
            order=True,
            invisible_time=invisible_ms,
            attempt_id=attempt,
        )
        self.model.give(messages, invisible_ms, attempt, is_same)
        return attempt, queue_id, [each.body for each in messages]

    async def lose(self):
        """Pop without getting the answer."""
        attempt, queue_id, bodies = await self.pop()
        if bodies:
            self.model.lost.append((attempt, queue_id, bodies))

    async def pop_again(self):
        """Pop with the attempt id of a lost answer."""
        if not self.model.lost:
            return
        attempt, queue_id, bodies = self.model.lost.pop(self.chance.randrange(len(self.model.lost)))
        sent = [self.model.by_body[body] for body in bodies]
        if all(self.model.is_hidden(each) and each.attempt == attempt for each in sent):
            assert (await self.pop(queue_id, 32, attempt, is_same=True))[2] == bodies

    async def settle(self):
        """Acknowledge a message, or let it come again soon."""
        held = [each for each in self.model.held() if self.model.is_hidden(each)]
        lost = {attempt for attempt, _, _ in self.model.lost}
        held = [each for each in held if each.attempt not in lost]
        for sent in self.chance.sample(held, min(len(held), 3)):
            if self.chance.random() < 0.8:
                await self.live.session.call(ack(sent.given))
                sent.is_done = True
            else:
                after_ms = self.some_ms(1, 20)
                answer = await self.live.session.call(change(sent.given, after_ms))
                sent.given.properties["POP_CK"] = answer.header.extra_info
                sent.until_ms = self.clock.now_ms() + after_ms

    async def send(self):
        for _ in range(self.chance.randrange(1, 12)):
            queue_id, group = self.chance.randrange(QUEUES), self.chance.choice(GROUPS)
            properties = {"__SHARDINGKEY": group} if group else {}
            await self.live.send(self.model.send(queue_id, group), queue_id=queue_id, properties=properties)

    async def advance(self):
        await self.clock.advance(self.chance.randrange(1, 8))
        self.model.check_chunk()

    async def drain(self):
        """Pop until there is nothing. Then only messages behind hidden ones of their group are left."""
        for queue_id in range(QUEUES):
            while (await self.pop(queue_id, 32))[2]:
                pass
        assert self.read_ahead == 8 or self.model.waiting() == []

    async def finish(self):
        self.model.lost.clear()
        for _ in range(400):
            if all(each.is_done for each in self.model.by_body.values()):
                return
            await self.drain()
            for sent in self.model.held():
                if self.model.is_hidden(sent):
                    await self.live.session.call(ack(sent.given))
                    sent.is_done = True
            self.model.check_chunk()
        raise AssertionError([each for each in self.model.by_body.values() if not each.is_done][:5])


def copied(store, target):
    """Copy a store while its broker runs. If a file is replaced meanwhile, copy it again."""
    while True:
        try:
            shutil.copytree(store, target, ignore=shutil.ignore_patterns("lock", "spare", "*.tmp"))
            return
        except shutil.Error:
            shutil.rmtree(target)


async def committed(live):
    return (await live.session.call(QueryConsumerOffset("poppers", "orders", 0))).header.offset


async def limit_deliveries(live):
    config = GroupConfig("poppers", consume_message_orderly=True, retry_max_times=MOST_TIMES - 1)
    await live.session.call(UpdateAndCreateSubscriptionGroup(), config.encode())


@pytest.mark.slow
@pytest.mark.parametrize("read_ahead", [4096, 8, 0])
async def test_order_of_each_message_group_against_a_model(tmp_path, read_ahead):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    run = Run(tmp_path, seed, read_ahead)
    async with AsyncExitStack() as stack:
        await run.start(stack)
        await limit_deliveries(run.live)
        await run.send()
        actions = [run.send, run.pop, run.pop, run.lose, run.pop_again, run.settle, run.settle, run.advance]
        for number in range(400):
            await run.chance.choice(actions)()
            if number % 40 == 39:
                await run.drain()
            if number % 100 == 99:
                await run.restart(stack)
        await run.finish()
    times = [each.times for each in run.model.by_body.values()]
    print(f"{len(times)} messages, {sum(times)} deliveries, {run.attempts} pops")
    assert min(times) >= 1


async def test_a_stuck_message_group_delays_no_other(tmp_path, clock):
    async with live_broker(tmp_path, clock=clock) as broker:
        for number in range(300):
            await broker.send(b"%d" % number, properties={"__SHARDINGKEY": "stuck" if number % 3 else "fast"})
        stuck = await pop(broker, queue_id=0, max_msg_nums=2, order=True)
        assert [each.body for each in stuck] == [b"0", b"1"]
        await broker.session.call(ack(stuck[0]))
        others = []
        while found := await pop(broker, queue_id=0, order=True):
            for message in found:
                await broker.session.call(ack(message))
            others += found
        assert [each.body for each in others] == [b"%d" % number for number in range(3, 300, 3)]
        assert await committed(broker) == 1
        await broker.session.call(ack(stuck[1]))
        assert await committed(broker) == 2
        assert [each.body for each in await pop(broker, queue_id=0, max_msg_nums=3, order=True)] == [
            b"2",
            b"4",
            b"5",
        ]
