"""Renewals: messages of push consumers stay invisible while their consumer works on them.

A push consumer asks for `auto_renew`. Its messages are invisible for a minute, and the port makes this a minute again
before it ends, for three hours at most, or until the consumer has neither a stream nor heartbeats. The consumer keeps
the first handle. Only requests of the consumer's account find a message here: others may know its handle.

Each renewal replaces the handle. So a renewal and a request that settles the message wait for each other:

    renewal  ── first handle ── new handle ─┐
    ack                          waits ─────┴─ new handle

Source: ReceiptHandleProcessor, Java 5.4.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.errors import AccessDenied, NetworkError, SparrowError
from sparrowmq.grpc.brokers import Brokers
from sparrowmq.grpc.caller import account_of
from sparrowmq.grpc.clients import Client
from sparrowmq.grpc.statuses import Status, refusal
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import Steps, run_to_end
from sparrowmq.protocol.receipt_handle import ReceiptHandle

log = logging.getLogger(__name__)

INVISIBLE_MS: Final = 60_000
MAX_RENEWED_MS: Final = 3 * 3_600_000
MAX_MESSAGES_OF_OWNER: Final = 50_000  # of one account at one address; each takes 700 bytes
MAX_RENEWALS: Final = 200_000  # from here on, only owners with fewer than GUARANTEED_MESSAGES_OF_OWNER get more
GUARANTEED_MESSAGES_OF_OWNER: Final = 1_000
RENEW_AHEAD_MS: Final = 20_000  # a message is renewed so long before it becomes visible
POLL_S: Final = 5.0
_MESSAGES_PER_STEP: Final = 64  # messages that are looked at before a pause may come

# Keeps a message invisible, and returns its new handle: its topic, its group, its handle, and the time in ms.
Renew = Callable[[Brokers, str, str, str, int], Awaitable[str]]


@dataclass(slots=True)
class _InFlight:
    """A message that its consumer works on, with its latest handle. It is settled once a request has settled it, or has
    failed to: then it keeps the handle for the next request, and is not renewed. `lock` is held by the one request that
    uses the handle."""

    client: Client
    topic: str
    handle_text: str
    visible_ms: int
    delivered_ms: int
    is_settled: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


_MessageKey = tuple[str, str, str]  # the account, the group and the first handle


class Renewals:
    """The messages that are renewed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._in_flight: dict[_MessageKey, _InFlight] = {}
        self._count_by_owner: Counter[str] = Counter()  # by the owner of their clients

    def __len__(self) -> int:
        return len(self._in_flight)

    def check_room(self, client: Client) -> None:
        """Raises: RemoteError, there is no room for messages of a client."""
        count = self._count_by_owner[client.owner]
        is_full = len(self._in_flight) >= MAX_RENEWALS
        if count >= MAX_MESSAGES_OF_OWNER or (is_full and count >= GUARANTEED_MESSAGES_OF_OWNER):
            raise refusal(
                Status.TOO_MANY_REQUESTS,
                f"consumers of this account work on {count:,} messages here; receive more once some are acknowledged",
            )

    def add(self, client: Client, topic: str, group: str, handle_text: str, visible_ms: int) -> None:
        """Renew a message from now on, which was delivered to the client with this handle."""
        in_flight = _InFlight(client, topic, handle_text, visible_ms, self._clock.now_ms())
        self._keep((account_of(client.client_id), group, handle_text), in_flight)

    def contains(self, account: str, group: str, handle_text: str) -> bool:
        """Whether the account's message with this first handle is renewed, or was until lately."""
        return (account, group, handle_text) in self._in_flight

    @asynccontextmanager
    async def latest_handle(self, account: str, group: str, handle_text: str) -> AsyncIterator[str]:
        """The latest handle of the account's message with this first handle, for a request that settles it. The message
        is renewed no more. If the request fails, the latest handle is kept until it expires. A denied request changes
        nothing."""
        key = account, group, handle_text
        in_flight = self._in_flight.get(key)
        if in_flight is None:
            yield handle_text
            return
        async with in_flight.lock:
            try:
                yield in_flight.handle_text
            except AccessDenied:
                raise
            except BaseException:
                in_flight.is_settled = True
                if key not in self._in_flight:  # a renewal before it may have given the message up
                    self._keep(key, in_flight)
                raise
            in_flight.is_settled = True
            self._drop(key, in_flight)

    async def renew_due(self, renew: Renew) -> None:
        """Renew the messages whose time is nearly over. The messages of one broker do not wait for another broker."""
        due = await run_to_end(self._due(self._clock.now_ms()))
        await asyncio.gather(*(self._renew_all(due_of_broker, renew) for due_of_broker in due.values()))

    def _due(self, now_ms: int) -> Steps[dict[str, list[tuple[_MessageKey, _InFlight]]]]:
        due: dict[str, list[tuple[_MessageKey, _InFlight]]] = defaultdict(list)
        for number, (key, in_flight) in enumerate(list(self._in_flight.items())):
            if in_flight.visible_ms - now_ms < RENEW_AHEAD_MS:
                due[ReceiptHandle.parse(in_flight.handle_text).broker_name].append((key, in_flight))
            if not number % _MESSAGES_PER_STEP:
                yield
        return due

    async def _renew_all(self, due: Iterable[tuple[_MessageKey, _InFlight]], renew: Renew) -> None:
        """Renew messages of one broker. If it does not answer, leave the rest to the next look."""
        for key, in_flight in due:
            async with in_flight.lock:
                try:
                    await self._renew(key, in_flight, renew)
                except NetworkError as error:
                    log.debug("messages of group %s are not renewed yet: %s", key[1], error)
                    return
                except SparrowError as error:
                    log.debug("a message of group %s is renewed no more: %s", key[1], error)
                    self._drop(key, in_flight)

    async def _renew(self, key: _MessageKey, message: _InFlight, renew: Renew) -> None:
        brokers, now_ms = message.client.brokers, self._clock.now_ms()
        is_gone = message.client.is_gone(self._clock.monotonic()) or now_ms - message.delivered_ms > MAX_RENEWED_MS
        if message.visible_ms < now_ms or (is_gone and not message.is_settled):
            self._drop(key, message)
        elif brokers is not None and not message.is_settled:
            handle_text = await renew(brokers, message.topic, key[1], message.handle_text, INVISIBLE_MS)
            message.handle_text, message.visible_ms = handle_text, ReceiptHandle.parse(handle_text).visible_ms

    def _keep(self, key: _MessageKey, message: _InFlight) -> None:
        former = self._in_flight.get(key)
        if former is not None:
            self._drop(key, former)
        self._count_by_owner[message.client.owner] += 1
        self._in_flight[key] = message

    def _drop(self, key: _MessageKey, message: _InFlight) -> None:
        if self._in_flight.get(key) is message:
            del self._in_flight[key]
            self._count_by_owner[message.client.owner] -= 1
            if not self._count_by_owner[message.client.owner]:
                del self._count_by_owner[message.client.owner]

    async def run(self, renew: Renew) -> None:
        while True:
            await self._clock.sleep(POLL_S)
            await self.renew_due(renew)
