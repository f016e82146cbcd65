"""Renewals: messages of push consumers stay invisible while their consumer works on them.

A push consumer asks for `auto_renew`. Its messages are invisible for a minute, and the port makes this a minute again
before it ends, until the consumer acknowledges the message, or for three hours. The consumer keeps the first handle.
When the stream of a consumer ends, its messages are renewed no more, so others get them within a minute.
Source: ReceiptHandleProcessor, Java 5.4.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from sparrowmq.errors import SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.receipt_handle import ReceiptHandle
from sparrowmq.proxy.brokers import Brokers
from sparrowmq.proxy.grpc_clients import Client

log = logging.getLogger(__name__)

INVISIBLE_MS: Final = 60_000
MOST_MS: Final = 3 * 3_600_000
AHEAD_MS: Final = 20_000  # a message is renewed so long before it becomes visible
LOOK_S: Final = 5.0

# Keeps a message invisible, and returns its new handle: its topic, its group, its handle, and the time in ms.
Renew = Callable[[Brokers, str, str, str, int], Awaitable[str]]


@dataclass(slots=True)
class _Held:
    client: Client
    topic: str
    text: str
    visible_ms: int
    first_ms: int


class Renewals:
    """The messages that are renewed, by their group and first handle."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[tuple[str, str], _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def add(self, client: Client, topic: str, group: str, handle: ReceiptHandle) -> None:
        """Renew a message from now on, which was delivered to the client."""
        text = str(handle)
        self._held[group, text] = _Held(client, topic, text, handle.visible_ms, self._clock.now_ms())

    def take(self, group: str, text: str) -> str:
        """Stop renewing the message with this first handle. Returns its latest one."""
        held = self._held.pop((group, text), None)
        return text if held is None else held.text

    async def look(self, renew: Renew) -> None:
        """Renew the messages whose time is nearly over."""
        now_ms = self._clock.now_ms()
        due = [(key, held) for key, held in self._held.items() if held.visible_ms - now_ms < AHEAD_MS]
        for key, held in due:
            brokers = held.client.brokers
            if brokers is None or held.client.send is None or now_ms - held.first_ms > MOST_MS:
                self._held.pop(key, None)
                continue
            try:
                text = await renew(brokers, held.topic, key[0], held.text, INVISIBLE_MS)
            except SparrowError as error:
                log.debug("a message of group %s is renewed no more: %s", key[0], error)
                self._held.pop(key, None)
                continue
            held.text, held.visible_ms = text, ReceiptHandle.parse(text).visible_ms

    async def run(self, renew: Renew) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_S)
            await self.look(renew)
