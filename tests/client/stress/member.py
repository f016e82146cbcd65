"""A process that is a member of a group, and writes down what its handlers got and how they ended.

How it consumes depends on its number: by a handler, by iterating in several tasks, or by portions; in the inbox always
by portions. How a handler ends is decided by `plan.fate`: well, by raising, by running into a time limit around it, or
by being cancelled.
Until SIGTERM; then it leaves its group.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypedDict

import msgspec

from sparrowmq.client.client import Client, connect
from sparrowmq.client.consuming.consumer import Consumer
from sparrowmq.client.consuming.received_message import ReceivedMessage
from tests.client.stress.hasty import HastyClock
from tests.client.stress.inbox import OfPortion, with_inbox
from tests.client.stress.leaving import Farewell, live
from tests.client.stress.ledger import (
    CANCELLED,
    CUT_SHORT,
    DONE,
    FAILED,
    SKIPPED,
    TIMED_OUT,
    Begun,
    Ended,
    Entered,
    Pen,
    Place,
)
from tests.client.stress.plan import GROUPS, INBOX, ORDERED, fate

TASKS: Final = 8
BATCH: Final = 4
INBOX_TASKS: Final = 2  # only one transaction at a time can write
INBOX_BATCH: Final = 16
WORK_S: Final = 0.02
WORK_IN_ORDER_S: Final = 0.002
LIMIT_S: Final = 0.05
FOR_EVER_S: Final = 3600.0


class Call(msgspec.Struct, frozen=True):
    """What a member is told on its command line."""

    name: str
    number: int
    group: str
    namesrv: str
    seed: int
    file: str
    inbox: str

    @property
    def is_ordered(self) -> bool:
        return self.group in ORDERED


class How(TypedDict):
    """What all ways of consuming have in common."""

    group: str
    concurrency: int
    start: Literal["earliest"]
    ordered: bool


class HandlerFailed(Exception):
    """A handler that was to fail."""


class HandlerCancelled(asyncio.CancelledError):
    """A handler that was to be cancelled, in the middle of its transaction."""


class Turn(NamedTuple):
    """A message that was handed out, how its handler is to end, and whether its queue was the member's own then."""

    message: ReceivedMessage
    fated: str
    is_owned: bool


class Member:
    """Handles messages and tells the ledger."""

    def __init__(self, call: Call, pen: Pen) -> None:
        self._call = call
        self._topics = sorted(GROUPS[call.group])
        self._how = How(group=call.group, concurrency=TASKS, start="earliest", ordered=call.is_ordered)
        self._pen = pen
        self._deliveries = itertools.count()
        self._consumer: Consumer | None = None
        self._busy: set[asyncio.Task[None] | None] = set()

    async def run(self, mq: Client, stop: asyncio.Event) -> None:
        """Consume until `stop`."""
        if self._call.group == INBOX:
            await self._with_the_inbox(mq, stop)
            return
        ways: list[Callable[[Client, asyncio.Event], Awaitable[None]]] = [
            self._with_a_handler,
            self._iterating,
            self._in_portions,
        ]
        await ways[self._call.number % len(ways)](mq, stop)

    # The ways -------------------------------------------------------------------------------------------------------

    async def _with_a_handler(self, mq: Client, stop: asyncio.Event) -> None:
        async with self._own(mq.subscribe(self._topics, self._handle, **self._how)):
            self._enter()
            await stop.wait()

    async def _iterating(self, mq: Client, stop: asyncio.Event) -> None:
        """Told to stop, those that wait for a message are cancelled, the others finish theirs before we leave."""
        async with (
            self._own(mq.subscribe(self._topics, **self._how)) as consumer,
            asyncio.TaskGroup() as group,
        ):
            self._enter()
            tasks = [group.create_task(self._iterate(consumer, stop)) for _ in range(TASKS)]
            await stop.wait()
            for task in tasks:
                if task not in self._busy:
                    task.cancel()

    async def _in_portions(self, mq: Client, stop: asyncio.Event) -> None:
        async with self._own(mq.subscribe(self._topics, self._handle_all, batch=BATCH, **self._how)):
            self._enter()
            await stop.wait()

    async def _with_the_inbox(self, mq: Client, stop: asyncio.Event) -> None:
        self._how["concurrency"] = INBOX_TASKS
        async with with_inbox(Path(self._call.inbox), INBOX, self._end_transaction) as bill:

            async def handle(messages: list[ReceivedMessage]) -> None:
                await self._handle_once(messages, bill)

            async with self._own(mq.subscribe(self._topics, handle, batch=INBOX_BATCH, **self._how)):
                self._enter()
                await stop.wait()

    def _own(self, consumer: Consumer) -> Consumer:
        """Remember it before its first message comes, which may be while it is being entered."""
        self._consumer = consumer
        return consumer

    def _enter(self) -> None:
        self._pen.write(Entered(self._call.name, time.monotonic()))

    # Handling -------------------------------------------------------------------------------------------------------

    async def _iterate(self, consumer: Consumer, stop: asyncio.Event) -> None:
        async for message in consumer:
            self._busy.add(asyncio.current_task())
            with suppress(HandlerFailed, TimeoutError):
                await self._process(*self._turns([message]))
            self._busy.discard(asyncio.current_task())
            if stop.is_set():
                return

    async def _process(self, turn: Turn) -> None:
        """As an application does: a time limit around a message, or a task of its own that somebody cancels."""
        if turn.fated == TIMED_OUT:
            async with asyncio.timeout(LIMIT_S):
                await self._settle(turn)
        elif turn.fated == CANCELLED:
            task = asyncio.create_task(self._settle(turn))
            await asyncio.wait([task], timeout=LIMIT_S)
            task.cancel()
            await asyncio.wait([task])
        else:
            await self._settle(turn)

    async def _settle(self, turn: Turn) -> None:
        async with turn.message.process():
            await self._handle_as_fated(turn)

    async def _handle(self, message: ReceivedMessage) -> None:
        await self._handle_all([message])

    async def _handle_all(self, messages: list[ReceivedMessage]) -> None:
        """A handler that never ends is ended by a time limit of its own, or by what it waits for being cancelled."""
        turns = self._turns(messages)
        inner = asyncio.ensure_future(self._handle_in_turn(turns))
        if turns[0].fated == CANCELLED:
            asyncio.get_running_loop().call_later(LIMIT_S, inner.cancel)
        async with asyncio.timeout(LIMIT_S if turns[0].fated == TIMED_OUT else FOR_EVER_S):
            await inner

    async def _handle_in_turn(self, turns: list[Turn]) -> None:
        ahead = iter(turns)
        try:
            for turn in ahead:
                await self._handle_as_fated(turn)
        finally:
            for turn in ahead:
                self._end(self._begin(turn), SKIPPED)

    async def _handle_as_fated(self, turn: Turn) -> None:
        delivery = self._begin(turn)
        work_s = WORK_IN_ORDER_S if self._call.is_ordered else WORK_S
        try:
            await asyncio.sleep(FOR_EVER_S if turn.fated in (TIMED_OUT, CANCELLED) else work_s)
        except asyncio.CancelledError:
            self._end(delivery, CUT_SHORT if turn.fated in (DONE, FAILED) else turn.fated)
            raise
        self._end(delivery, turn.fated)
        if turn.fated == FAILED:
            raise HandlerFailed(turn.message.msg_id)

    async def _handle_once(self, messages: list[ReceivedMessage], bill: OfPortion) -> None:
        """Note as done what is committed, or was before."""
        deliveries = [self._begin(turn) for turn in self._turns(messages)]
        outcome = CUT_SHORT
        try:
            await bill(messages)
            outcome = DONE
        except HandlerCancelled:
            outcome = CANCELLED
            raise
        except Exception as error:
            outcome = TIMED_OUT if isinstance(error, TimeoutError) else FAILED
            raise
        finally:
            for delivery in deliveries:
                self._end(delivery, outcome)

    async def _end_transaction(self, messages: list[ReceivedMessage]) -> None:
        """End as fated after the effects, which must all be undone then."""
        fated = self._worst_fate(messages)
        if fated == FAILED:
            raise HandlerFailed(messages[0].msg_id)
        if fated == CANCELLED:
            raise HandlerCancelled
        if fated == TIMED_OUT:
            await asyncio.wait_for(asyncio.sleep(FOR_EVER_S), LIMIT_S)

    def _turns(self, messages: list[ReceivedMessage]) -> list[Turn]:
        """What was just handed out. A portion shares the fate of the worst of it, as it is settled as a whole."""
        assert self._consumer is not None, "messages come after it was made"
        worst, owned = self._worst_fate(messages), self._consumer.queues
        return [Turn(message, worst, message.queue in owned) for message in messages]

    def _worst_fate(self, messages: list[ReceivedMessage]) -> str:
        call = self._call
        is_rare = call.is_ordered or call.group == INBOX
        fates = [fate(call.seed, each.text(), each.reconsume_times, is_rare) for each in messages]
        return max(fates, key=[DONE, FAILED, TIMED_OUT, CANCELLED].index)

    def _begin(self, turn: Turn) -> int:
        delivery, message, queue = next(self._deliveries), turn.message, turn.message.queue
        self._pen.write(
            Begun(
                self._call.name,
                self._call.group,
                delivery,
                message.text(),
                Place(queue.topic, queue.broker_name, queue.queue_id, message.offset),
                message.reconsume_times,
                turn.is_owned,
                time.monotonic(),
            )
        )
        return delivery

    def _end(self, delivery: int, outcome: str) -> None:
        self._pen.write(Ended(self._call.name, delivery, outcome, time.monotonic()))


async def consume(call: Call, pen: Pen, farewell: Farewell) -> None:
    """Be a member until SIGTERM."""
    async with farewell.of(connect(call.namesrv, clock=HastyClock())) as mq:
        await Member(call, pen).run(mq, farewell.told)


def main() -> None:
    call = msgspec.json.decode(sys.argv[1], type=Call)
    pen = Pen(Path(call.file))
    live(call.name, pen, lambda farewell: consume(call, pen, farewell))


if __name__ == "__main__":
    main()
