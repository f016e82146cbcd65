"""The clients of a gRPC port: their settings, and the streams on which they get commands.

A client opens a stream with `Telemetry`, sends its settings there, and gets them back as the broker has them. A client
that sends neither a heartbeat nor settings for two minutes is forgotten, as is one that ends in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from sparrowmq.loop.clock import Clock
from sparrowmq.proxy.brokers import Groups
from sparrowmq.proxy.statuses import Status, refused
from sparrowmq.proxy.wire_types import ClientType

SILENCE_S: Final = 120.0
SETTINGS_S: Final = 3.0  # a call waits so long for the settings that its client is about to send

Send = Callable[[bytes], Awaitable[None]]


@dataclass(slots=True, eq=False)
class Client:
    """A client with its latest settings.

    Attributes:
        settings: the message `Settings`, as it was answered.
        send: sends a command on its latest stream; None without a stream.
        group: of a consumer.
        topics: of a producer.
        seen: the time of its last sign of life.
        has_settings: is set once it has settings.
    """

    client_id: str
    language: str = ""
    address: str = ""
    settings: Any = None
    send: Send | None = None
    kind: int = 0
    group: str = ""
    topics: frozenset[str] = frozenset()
    is_fifo: bool = False
    seen: float = 0.0
    has_settings: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_producer(self) -> bool:
        return self.kind == ClientType.PRODUCER


class Clients:
    """All clients, by their ids.

    Args:
        on_change: is called with the groups of all clients when they have changed.
    """

    def __init__(self, clock: Clock, on_change: Callable[[Groups], object]) -> None:
        self._clock = clock
        self._on_change = on_change
        self._by_id: dict[str, Client] = {}
        self._groups = Groups()

    def __len__(self) -> int:
        return len(self._by_id)

    def seen(self, client_id: str) -> Client:
        """The client, which has just shown that it lives."""
        client = self._by_id.get(client_id)
        if client is None:
            client = self._by_id[client_id] = Client(client_id)
        client.seen = self._clock.monotonic()
        return client

    def known(self, client_id: str) -> Client:
        """The client with its settings. Raises: RemoteError, it has sent none."""
        client = self._by_id.get(client_id)
        if client is None or client.settings is None:
            raise refused(
                Status.UNRECOGNIZED_CLIENT_TYPE,
                "the settings of this client are unknown; open the Telemetry stream and send them first",
            )
        client.seen = self._clock.monotonic()
        return client

    async def with_settings(self, client_id: str) -> Client:
        """As `known`, for a client whose settings may be on their way. Raises: RemoteError."""
        client = self.seen(client_id)
        if client.settings is None:
            with suppress(TimeoutError):
                await self._clock.wait_for(client.has_settings.wait(), SETTINGS_S)
        return self.known(client_id)

    def configure(self, client: Client, settings: Any) -> None:
        """Keep the settings of a client."""
        client.settings = settings
        client.kind = settings.client_type
        client.group = settings.subscription.group.name if settings.HasField("subscription") else ""
        client.is_fifo = settings.subscription.fifo
        client.topics |= {topic.name for topic in settings.publishing.topics}
        client.has_settings.set()
        self._look()

    def produces(self, client_id: str, topic: str) -> None:
        """Note that a client has sent a half message to a topic, whose end it may be asked for."""
        client = self.seen(client_id)
        if topic not in client.topics:
            client.topics |= {topic}
            self._look()

    def leave(self, client_id: str) -> None:
        """Forget a client that ends."""
        if self._by_id.pop(client_id, None) is not None:
            self._look()

    def stream_ended(self, client: Client, send: Send) -> None:
        """Forget a stream that has ended, unless the client has opened another one."""
        if client.send is send:
            client.send = None

    def expire(self) -> None:
        """Forget clients without a stream that were silent for too long."""
        now = self._clock.monotonic()
        silent = [
            client_id
            for client_id, client in self._by_id.items()
            if client.send is None and now - client.seen > SILENCE_S
        ]
        for client_id in silent:
            del self._by_id[client_id]
        if silent:
            self._look()

    def producers_of(self, topic: str) -> Iterable[Client]:
        """The clients with a stream that send half messages to a topic."""
        return [
            client for client in self._by_id.values() if topic in client.topics and client.send is not None
        ]

    def members_of(self, group: str) -> Iterable[Client]:
        """The clients of a consumer group."""
        return [client for client in self._by_id.values() if client.group == group]

    def _look(self) -> None:
        producers = {topic for client in self._by_id.values() for topic in client.topics}
        if producers != self._groups.producers:
            self._groups = Groups(producers)
            self._on_change(self._groups)
