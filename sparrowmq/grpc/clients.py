"""The clients of a gRPC port: their settings, and the streams on which they get commands.

A client opens a stream with `Telemetry`, sends its settings there, and gets them back as the broker has them. A client
that sends neither a heartbeat nor settings for two minutes is forgotten, as is one that ends in order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from sparrowmq.errors import RemoteError
from sparrowmq.grpc.brokers import Brokers
from sparrowmq.grpc.caller import account_of, client_id_of
from sparrowmq.grpc.statuses import Status, refusal
from sparrowmq.grpc.wire_types import FilterType
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import Steps
from sparrowmq.protocol.names import with_namespace
from sparrowmq.protocol.requests.client_bodies import ConsumerBeat
from sparrowmq.protocol.subscription import SQL92, TAG, Subscription

MAX_SILENCE_S: Final = 120.0
MAX_BEAT_PAUSE_S: Final = 25.0  # clients send a heartbeat every ten seconds
MAX_TOPICS: Final = 500  # a broker takes no more groups from one connection
MAX_CLIENTS: Final = 10_000  # of one account at one address; each costs 9 KB at a broker's own port
_MAX_VERSION_LENGTH: Final = 255
SETTINGS_WAIT_S: Final = 3.0  # a call waits so long for the settings that its client is about to send
Send = Callable[..., Awaitable[None]]  # of any number of answers, in bytes


@dataclass(slots=True, eq=False)
class Client:
    client_id: str
    began_ms: int = 0
    language: str = ""
    address: str = ""
    version: str = ""  # of its library
    brokers: Brokers | None = None
    send: Send | None = None  # on its latest stream
    client_type: int = 0
    group: str = ""
    topics: Sequence[str] = ()
    half_topics: dict[str, None] = field(default_factory=dict)  # of its half messages; the keys, the oldest first
    subscriptions: Sequence[Subscription] = ()
    is_fifo: bool = False
    owner: str = ""  # its account and the host of its address
    last_seen_s: float = 0.0
    settings_arrived: asyncio.Event = field(default_factory=asyncio.Event)
    receive_lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # held by the receive that begins next

    def is_gone(self, now_s: float) -> bool:
        """Whether it has probably ended: it has no stream, and sends no heartbeats. Clients of Python and Go work for
        up to five minutes without a stream, after the port or a proxy ended it."""
        return self.brokers is None or (self.send is None and now_s - self.last_seen_s > MAX_BEAT_PAUSE_S)

    def announce(self) -> None:
        """Let the brokers know its groups. Without a stream it is no producer for them: a broker would count questions
        that cannot reach it, and give the transaction up."""
        if self.brokers is None:
            return
        consumer = None
        if self.group:
            consumer = ConsumerBeat(self.group, "CONSUME_POP", subscription_data_set=list(self.subscriptions))
        producers = list(self.half_topics | dict.fromkeys(self.topics)) if self.send is not None else []
        self.brokers.announce(producers[: MAX_TOPICS - bool(consumer)], consumer)


def _name(resource: Any) -> str:
    return with_namespace(resource.resource_namespace, resource.name)


def _subscription_of(entry: Any) -> Subscription:
    kind = SQL92 if entry.expression.type == FilterType.SQL else TAG
    return Subscription.build(_name(entry.topic), entry.expression.expression, kind)


def too_many_clients(host: str) -> RemoteError:
    """The error for a new client of an address that has enough. An address may invent any number of ids."""
    return refusal(
        Status.TOO_MANY_REQUESTS,
        f"{host} has {MAX_CLIENTS:,} clients here; give each client one id, and close it at its end",
    )


class Clients:
    """All clients, by their ids. `on_left` is called with the id of a client that is forgotten."""

    def __init__(self, clock: Clock, on_left: Callable[[str], object]) -> None:
        self._clock = clock
        self._on_left = on_left
        self._by_id: dict[str, Client] = {}
        self._client_count_by_owner: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._by_id)

    def note_seen(self, client_id: str, address: str = "") -> Client:
        """The client, which has just shown that it lives. Raises: RemoteError, its address has too many."""
        client = self._by_id.get(client_id)
        if client is None:
            host = address.rpartition(":")[0]
            owner = client_id_of(account_of(client_id), host)
            if self._client_count_by_owner[owner] >= MAX_CLIENTS:
                raise too_many_clients(host)
            self._client_count_by_owner[owner] += 1
            client = self._by_id[client_id] = Client(client_id, self._clock.now_ms(), owner=owner)
        client.last_seen_s = self._clock.monotonic()
        return client

    def with_settings(self, client_id: str) -> Client:
        """The client with its settings. Raises: RemoteError, it has sent none."""
        client = self._by_id.get(client_id)
        if client is None or not client.settings_arrived.is_set():
            raise refusal(
                Status.UNRECOGNIZED_CLIENT_TYPE,
                "the settings of this client are unknown; open the Telemetry stream and send them first",
            )
        client.last_seen_s = self._clock.monotonic()
        return client

    def has_settings(self, client_id: str) -> bool:
        client = self._by_id.get(client_id)
        return client is not None and client.settings_arrived.is_set()

    async def wait_for_settings(self, client_id: str, address: str = "") -> Client:
        """The client, once its settings have come, or do not come in time. Raises: RemoteError, as `note_seen`."""
        client = self.note_seen(client_id, address)
        if not client.settings_arrived.is_set():
            with suppress(TimeoutError):
                await self._clock.wait_for(client.settings_arrived.wait(), SETTINGS_WAIT_S)
        return client

    def configure(self, client: Client, settings: Any, brokers: Brokers) -> None:
        client.subscriptions = [_subscription_of(topic) for topic in settings.subscription.subscriptions]
        client.version = settings.user_agent.version[:_MAX_VERSION_LENGTH]
        client.brokers = brokers
        client.client_type = settings.client_type
        client.group = _name(settings.subscription.group) if settings.HasField("subscription") else ""
        client.is_fifo = settings.subscription.fifo
        client.topics = [_name(topic) for topic in settings.publishing.topics]
        client.settings_arrived.set()
        client.announce()

    def note_half_topic(self, client_id: str, topic: str, brokers: Brokers, address: str = "") -> None:
        """Note that a client sends half messages to a topic, for whose ends it may be asked. Raises: RemoteError."""
        client = self.note_seen(client_id, address)
        client.brokers = brokers
        if topic not in client.half_topics:
            client.half_topics[topic] = None
            if len(client.half_topics) > MAX_TOPICS:
                del client.half_topics[next(iter(client.half_topics))]
            client.announce()

    def remove(self, client_id: str) -> None:
        client = self._by_id.pop(client_id, None)
        if client is None:
            return
        client.brokers = None  # its messages are renewed no more, and the end of its stream announces nothing
        self._client_count_by_owner[client.owner] -= 1
        if not self._client_count_by_owner[client.owner]:
            del self._client_count_by_owner[client.owner]
        self._on_left(client_id)

    def stream_began(self, client: Client, send: Send) -> None:
        """Use a new stream at once: some clients send their settings on it minutes later."""
        client.send = send
        client.announce()

    def stream_ended(self, client: Client, send: Send) -> None:
        """Forget a stream that has ended, unless the client has opened another one."""
        if client.send is send:
            client.send = None
            client.announce()

    def expire(self) -> Steps[None]:
        """Forget clients without a stream that were silent for too long."""
        oldest = self._clock.monotonic() - MAX_SILENCE_S
        for client_id, client in list(self._by_id.items()):
            if client.send is None and client.last_seen_s < oldest and self._by_id.get(client_id) is client:
                self.remove(client_id)
            yield

    def producers_of(self, topic: str, client_ids: Collection[str]) -> list[Client]:
        """Those of the clients that send half messages to a topic and have a stream."""
        clients = [self._by_id[client_id] for client_id in client_ids if client_id in self._by_id]
        return [
            client
            for client in clients
            if client.send is not None and (topic in client.half_topics or topic in client.topics)
        ]
