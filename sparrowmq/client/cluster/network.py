"""A program's connections to a cluster: its identity, name servers, routes and brokers.

    async with Network("127.0.0.1:9876") as network:
        session = await network.brokers.of("broker-a")
        reply = await session.call(GetMaxOffset(topic="orders", queue_id=0))

It sends heartbeats once it has producers or consumers. A program in a namespace has plain names, and its brokers have
full ones:

    the program      orders          %RETRY%billing          %DLQ%billing
    its brokers      shop%orders     %RETRY%shop%billing     %DLQ%shop%billing

A program may use either name, and gets its own. RocketMQ's own topics and groups are in no namespace. Logs and the
texts of servers have full names, which operators can look up. Source: ClientConfig and NamespaceUtil, Java 4.9.8.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Self

from sparrowmq.client.arguments import check_kind, check_queue, check_text
from sparrowmq.client.cluster.broker_sessions import Brokers
from sparrowmq.client.cluster.connection_hooks import ConnectionHookCalls, ConnectionHooks, Server
from sparrowmq.client.cluster.credentials import Credentials, Tls, tls_context
from sparrowmq.client.cluster.membership import Member, Membership, PushHandler
from sparrowmq.client.cluster.name_servers import NameServerList, NameServers, addresses_of, local_ip
from sparrowmq.client.cluster.replies import Answers
from sparrowmq.client.cluster.routes import Routes
from sparrowmq.client.loop_affinity import LoopAffinity, check_asyncio
from sparrowmq.client.message_ids import MessageIds
from sparrowmq.errors import ClientClosed, ConfigError
from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.loop.tasks import LEFT_FROM_INSIDE, Background
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.names import check_group, check_namespace, check_topic, with_namespace, without_namespace
from sparrowmq.protocol.requests.headers import UnregisterClient
from sparrowmq.protocol.requests.request_table import Role
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.request_dispatch import Dispatcher


class Network:
    """One program's connections to a cluster; use it as an async context manager.

    Entering returns at once, even if no server can be reached. Leaving ends all connections.

    Args:
        namesrv: the name servers, in the form that `addresses_of` takes.
        instance: the name of this program among those on one machine. It must stay the same over restarts for the
            files of broadcast offsets.
        client_id: the id that brokers and other members of a group see; the default is generated and never repeats.
        tls: encrypts every connection, in the form that `tls_context` takes.
        namespace: the prefix of the names of topics and groups at the brokers.
        hooks: see connections begin and end.
    Attributes:
        ip: this machine's address as seen from the name server.
        background: tasks that end when the network is left.
        answers: the answers to this client's requests, and its answers to requests of others.
    Raises: ConfigError, there is no such address, or `tls` or `credentials` are invalid; InvalidName, the namespace
    cannot be part of a name.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        instance: str = "DEFAULT",
        client_id: str | None = None,
        credentials: Credentials | None = None,
        tls: Tls = False,
        namespace: str = "",
        hooks: Sequence[ConnectionHooks] = (),
        clock: Clock | None = None,
    ) -> None:
        self.loop_affinity = LoopAffinity()
        check_text("namespace", namespace)
        check_text("instance", instance)
        check_text("client_id", client_id, or_none=True, or_blank=False)
        if clock is not None:
            check_kind("clock", clock, Clock, "a clock, as sparrowmq.testing.ManualClock, or leave it out")
        addresses, page = addresses_of(namesrv)
        self.ip = local_ip(addresses)
        self.instance = instance
        self.namespace = check_namespace(namespace)
        self.client_id = client_id or unique_client_id(self.ip)
        self._is_named = client_id is not None
        self.clock = clock or SystemClock()
        self.background = Background()
        self.membership = Membership(self.client_id)
        pushes = PushHandler(self.membership)
        dispatcher = Dispatcher(Role.CLIENT, [pushes], lambda coroutine: self.background.spawn(coroutine, "push"))
        if credentials is not None:
            check_kind("credentials", credentials, Credentials, "Credentials(access_key, secret_key)")
        sign = credentials._signer() if credentials is not None else None
        on_change = ConnectionHookCalls(hooks, self._server_at).on_change if hooks else None
        self._pool = Pool(self.clock, dispatcher, sign=sign, tls=tls_context(tls), on_connection_change=on_change)
        self.name_servers = NameServers(NameServerList(addresses), self._pool, page)
        self.routes = Routes(self.name_servers, self.clock)
        self.brokers = Brokers(self._pool, self.routes, self.clock, self.membership.heartbeat)
        self.ids = MessageIds(self.ip, self.clock.now_ms)
        spawn = self.background.spawn
        self.answers = Answers(self.routes, self.brokers, self.clock, spawn, self.ids, self.loop_affinity)
        pushes.on_reply = self.answers.on_reply

    def full_name(self, name: str) -> str:
        """The name of a topic or group, or the full one already, as brokers know it. Raises: ConfigError, no text."""
        check_text("the name of a topic or group", name)
        return with_namespace(self.namespace, name) if self.namespace else name

    def full_topic(self, name: str) -> str:
        """The name of a topic as brokers know it. Raises: ConfigError, no text; InvalidName."""
        check_text("topic", name)
        return check_topic(self.full_name(name))

    def full_group(self, name: str) -> str:
        """The name of a group as brokers know it. Raises: ConfigError, no text; InvalidName."""
        check_text("group", name)
        return check_group(self.full_name(name))

    def plain_name(self, name: str) -> str:
        """The name of a topic or group as the program knows it."""
        return without_namespace(self.namespace, name) if self.namespace else name

    def full_queue(self, queue: MessageQueue) -> MessageQueue:
        """The queue, or the full one already, as brokers know it. Raises: ConfigError, no queue."""
        check_queue(queue)
        return full_queue(self.namespace, queue) if self.namespace else queue

    def plain_queue(self, queue: MessageQueue) -> MessageQueue:
        return plain_queue(self.namespace, queue) if self.namespace else queue

    def plain_queues(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [self.plain_queue(queue) for queue in queues]

    def names_inside(self, names: Iterable[str]) -> set[str]:
        """The names in the namespace, as the program knows them; without a namespace all names."""
        return {self.plain_name(name) for name in names if self.full_name(name) == name}

    def _server_at(self, address: str) -> Server:
        if address in self.name_servers.addresses:
            return Server(address, "name server")
        brokers = self.routes.brokers.items()
        names = [name for name, replicas in brokers if address in replicas.values()]
        return Server(address, "broker", names[0] if names else "")

    @property
    def is_inside(self) -> bool:
        """Return whether the caller is a task of this client or of one of its consumers, such as a handler."""
        parts = (self.background, *(each._background for each in self.membership.consumers.values()))
        return any(each.is_inside for each in parts)

    def check_outside(self) -> None:
        """Raises: ConfigError, the caller is such a task, so leaving would wait for itself forever."""
        if self.is_inside:
            raise ConfigError(LEFT_FROM_INSIDE)

    def check_open(self) -> None:
        """Raises: ClientClosed, the client was left, or was not entered; ConfigError, the caller is not in its loop."""
        self.loop_affinity.check()
        if not self.background.is_open:
            raise ClientClosed("the client is closed, or was not entered; consume inside its `with` block")

    async def leave_group(self, consumer: Member) -> None:
        self.membership.remove_consumer(consumer)
        await self.brokers.tell_all(UnregisterClient(client_id=self.client_id, consumer_group=consumer.full_group))

    async def __aenter__(self) -> Self:
        if self.loop_affinity.is_forked:  # The client is entered in a child, and perhaps in others, too.
            if not self._is_named:
                self.client_id = self.membership.client_id = unique_client_id(self.ip)
            self.ids.renew()
        check_asyncio()
        await self.background.__aenter__()
        self.loop_affinity.enter()
        self.background.spawn(self.name_servers.keep_fresh(self.clock), "name servers")
        self.background.spawn(self.routes.keep_fresh(), "routes")
        self.background.spawn(self.brokers.keep_alive(), "heartbeats")
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.loop_affinity.is_forked:
            return  # The connections are the parent's.
        self.loop_affinity.leave()
        self._pool.close()
        self.membership.end_consumers()
        try:
            await self._pool.wait_until_ended()
        finally:
            await self.background.__aexit__(error_type, error, trace)


def unique_client_id(ip: str) -> str:
    """An id as Java makes it: address, process, and a number that is unique in the process."""
    return f"{ip}@{os.getpid()}#{time.monotonic_ns()}"


@lru_cache(maxsize=65536)
def plain_queue(namespace: str, queue: MessageQueue) -> MessageQueue:
    topic = without_namespace(namespace, queue.topic)
    return queue if topic == queue.topic else MessageQueue(topic, queue.broker_name, queue.queue_id)


@lru_cache(maxsize=65536)
def full_queue(namespace: str, queue: MessageQueue) -> MessageQueue:
    """The queue as brokers know it."""
    topic = with_namespace(namespace, queue.topic)
    return queue if topic == queue.topic else MessageQueue(topic, queue.broker_name, queue.queue_id)
