"""Light traffic for a healthy cluster: a producer, and three groups that push, pop and filter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from sparrowmq import Client, Consumer, SimpleConsumer, SparrowError
from sparrowmq.client.consuming.received_message import ReceivedMessage

ORDERS: Final = "orders"
# Of so many messages one is in a transaction, two are delayed, and one is consumed again.
_RARE: Final = 20
_DELAYS: Final = {2: timedelta(seconds=10), 3: timedelta(minutes=90)}
_PAID: Final = 4  # the one that the group with a filter wants
_LATE_S: Final = 60.0  # after which a message counts as lost


class LightTraffic:
    """Sends and consumes until `is_over` returns true.

    Args:
        is_over: whether to end.
        is_night: whether nothing is sent now.
        pause_s: between two sends.
    Attributes:
        sent: acknowledged messages.
        problems: failed sends, and consumers that ended.
    """

    def __init__(self, is_over: Callable[[], bool], pause_s: float, is_night: Callable[[], bool] = bool) -> None:
        self.sent = 0
        self.problems: list[str] = []
        self._due: dict[str, dict[bytes, float]] = {"billing": {}, "shipping": {}}
        self._is_over = is_over
        self._is_night = is_night
        self._pause_s = pause_s

    async def run(self, mq: Client) -> None:
        """Send and consume; afterwards note the messages that are lost."""
        clock = asyncio.get_running_loop().time
        await mq.admin.create_topic(ORDERS, queues=4)
        async with (
            mq.subscribe(ORDERS, group="billing", start="earliest") as billing,
            mq.subscribe(ORDERS, group="invoices", tag="paid", start="earliest") as invoices,
            mq.simple_consumer(ORDERS, group="shipping", start="earliest") as shipping,
        ):
            consumers = (self._consume(billing), self._choose(invoices), self._pop(shipping))
            readers = [asyncio.create_task(each) for each in consumers]
            await self._send(mq, clock)
            end = clock()
            while clock() < end + _LATE_S and self._late(end):
                await asyncio.sleep(1)
            for each in readers:
                each.cancel()
            for error in await asyncio.gather(*readers, return_exceptions=True):
                if not isinstance(error, asyncio.CancelledError):
                    self.problems.append(f"consumer: {error!r}")
        self.problems += [f"lost: {each}" for each in self._late(end)]

    def _late(self, now: float) -> list[str]:
        return [f"{body!r} for {group}" for group, due in self._due.items() for body in due if due[body] <= now]

    async def _send(self, mq: Client, clock: Callable[[], float]) -> None:
        payments, number = mq.producer("payments", check=_commit), 0
        while not self._is_over():
            await asyncio.sleep(self._pause_s)
            if self._is_night():
                continue
            number += 1
            kind = number % _RARE
            body, delay = b"order %d" % number, _DELAYS.get(kind)
            for due in self._due.values():
                due[body] = clock() + (delay or timedelta()).total_seconds()
            try:
                if kind == 1:
                    async with payments.transaction(ORDERS, body):
                        pass
                else:
                    tag = "paid" if kind == _PAID else "open"
                    await mq.send(ORDERS, body, keys=[str(number)], tag=tag, delay=delay)
                self.sent += 1
            except SparrowError as error:
                self.problems.append(f"send: {error}")

    async def _consume(self, consumer: Consumer) -> None:
        async for message in consumer:
            if message.body.endswith(b"00") and not message.reconsume_times:
                message.retry()
            else:
                message.ack()
                self._due["billing"].pop(message.body, None)

    async def _choose(self, consumer: Consumer) -> None:
        async for message in consumer:
            message.ack()

    async def _pop(self, consumer: SimpleConsumer) -> None:
        while True:
            for message in await consumer.receive(max_messages=16):
                await consumer.ack(message)
                self._due["shipping"].pop(message.body, None)


async def _commit(_message: ReceivedMessage) -> bool:
    return True
