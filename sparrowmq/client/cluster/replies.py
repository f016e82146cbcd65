"""Answers to this client's requests, which brokers push, and its own answers to other clients.

    sender of the request:  expect(correlation) ── request sent ── a broker pushes the answer (326)
    its consumer:           give(request, body) ── SEND_REPLY_MESSAGE_V2 (325) to a broker that knows the sender

A broker pushes answers only to clients with a producer in their heartbeat. So the sender first sends a heartbeat to all
brokers that may get the answer: those of the topic `<cluster>_REPLY_TOPIC`. While it waits, it connects to each new
master at once, which would not know it before its next heartbeat. A consumer that answers tries for some seconds, while
the master hands over its lead, or dies. Unlike Java, which loses these answers.
Source: RequestFutureHolder and ClientRemotingProcessor.receiveReplyMessage, Java 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from sparrowmq.client.cluster.broker_sessions import Brokers
from sparrowmq.client.cluster.routes import MASTER, TEMPLATE_QUEUES, Routes
from sparrowmq.client.loop_affinity import LoopAffinity
from sparrowmq.client.message_ids import MessageIds
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import InvalidMessage, NetworkError, NoRoute, RemoteError, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.tasks import Spawn
from sparrowmq.protocol.messages import properties
from sparrowmq.protocol.messages.message import Property, StoredMessage, SysFlag
from sparrowmq.protocol.messages.typed_bodies import CONTENT_TYPE
from sparrowmq.protocol.names import DEFAULT_TOPIC, INNER_PRODUCER_GROUP, REPLY_SUFFIX
from sparrowmq.protocol.requests.headers import PushReply, SendReplyV2

log = logging.getLogger(__name__)
REPLY_TYPE: Final = "reply"  # the MSG_TYPE of an answer
# The properties of a request that its answer repeats.
_REPEATED: Final = (Property.CORRELATION_ID, Property.REPLY_TO_CLIENT, Property.TTL)
# A broker waits 10 s for the sender of the request, and then reports that it did not accept the answer.
REPLY_TIMEOUT_S: Final = 12.0
GREETING_S: Final = 1.0  # a request waits so long until the brokers know its sender
POLL_S: Final = 0.5  # how often a client that waits checks that it is connected to each master
PAUSE_S: Final = 0.5
ELECTION_LIMIT_S: Final = 8.0  # meanwhile another master is elected


class Answers:
    """The answers that one client waits for, and those that it gives."""

    def __init__(
        self, routes: Routes, brokers: Brokers, clock: Clock, spawn: Spawn, ids: MessageIds, loop_affinity: LoopAffinity
    ) -> None:
        self._routes = routes
        self._brokers = brokers
        self._clock = clock
        self._spawn = spawn
        self.loop_affinity = loop_affinity
        self._ids = ids
        self._greeted_topics: set[str] = set()
        self._futures: dict[str, asyncio.Future[StoredMessage]] = {}
        self._is_watching_masters = False

    @contextmanager
    def expect_reply(self, correlation_id: str) -> Iterator[asyncio.Future[StoredMessage]]:
        """The future of an answer. An answer after the block is dropped."""
        future: asyncio.Future[StoredMessage] = asyncio.get_running_loop().create_future()
        if not self._is_watching_masters and not self._futures:
            self._is_watching_masters = True
            self._spawn(self._watch_masters(), "stay known")
        self._futures[correlation_id] = future
        try:
            yield future
        finally:
            del self._futures[correlation_id]
            future.cancel()

    async def _watch_masters(self) -> None:
        """Connect to masters that do not know this client, as long as answers are expected."""
        try:
            while True:
                await self._clock.sleep(POLL_S)
                if not self._futures:
                    return
                for address in [self._routes.master(name) for name in self._routes.brokers]:
                    if address is None:
                        self._routes.doubt()
                    elif self._brokers.open_session(address) is None:
                        with suppress(SparrowError):
                            await self._brokers.session(address)
        finally:
            self._is_watching_masters = False

    async def greet_brokers(self, topic: str) -> None:
        """Announce this client to every broker that may push answers to requests in `topic`, once for each topic. Those
        that cannot be reached at once go on being tried without us: answers may come through the others.
        Raises: NoRoute, NetworkError, the topic does not exist, or no name server answers.
        """
        if topic in self._greeted_topics:
            return
        addresses: set[str] = set()
        for cluster in (await self._routes.for_sending(topic)).clusters:
            try:
                route = await self._routes.of(cluster + REPLY_SUFFIX)
            except NoRoute:
                log.debug("cluster %s has no topic for answers", cluster)
            else:
                addresses |= {each[MASTER] for each in route.brokers.values() if MASTER in each}
        greetings = [self._spawn(self._greet(each), f"greet {each}") for each in sorted(addresses)]
        if greetings:
            with suppress(TimeoutError):
                await self._clock.wait_for(asyncio.wait(greetings), GREETING_S)
        self._greeted_topics.add(topic)

    async def _greet(self, address: str) -> None:
        try:
            await self._brokers.session(address)
        except NetworkError as error:
            self._brokers.log_limit.log(log, logging.WARNING, "answers cannot come through %s: %s", address, error)

    def on_reply(self, push: PushReply, body: bytes, origin: str) -> None:
        """Take an answer that a broker pushed. It is dropped if no request waits for it."""
        reply_properties = properties.parse(push.properties or "")
        future = self._futures.get(reply_properties.get(Property.CORRELATION_ID, ""))
        if future is None or future.done():
            text = "an answer from %s came too late, or twice"
            self._brokers.log_limit.log(log, logging.INFO, text, shown(push.born_host or origin))
            return
        reply_properties[Property.ARRIVE_TIME] = str(self._clock.now_ms())
        future.set_result(_message(push, reply_properties, body, origin))

    async def send_answer(self, request: StoredMessage, broker_name: str, body: bytes, content_type: str = "") -> bool:
        """Send the answer to a request. Return whether its sender got it.

        Brokers are tried one by one. The first is the broker of the request, which has seen its sender.
        Raises: InvalidMessage, the message asks for no answer; NetworkError, no broker answered, and whether the sender
        of the request has the answer is unknown.
        """
        if not body:
            raise InvalidMessage("the answer is empty; clients of other languages refuse that, send a byte")
        topic = _reply_topic(request)
        reply_properties = _properties(request, self._ids.next(), content_type)
        broker_names = await self._brokers_for(topic, broker_name)
        began_at, was_broker_away = self._clock.monotonic(), False
        while True:
            failures = await self._send_once(broker_names, topic, reply_properties, body)
            if failures is None:
                return True
            refusals = [failure for failure in failures if isinstance(failure, RemoteError) and not failure.is_slaves]
            was_broker_away |= len(refusals) < len(failures)
            if not was_broker_away or self._clock.age(began_at) >= ELECTION_LIMIT_S:
                break
            self._routes.doubt()
            await self._clock.sleep(PAUSE_S)
        if not refusals:
            raise failures[-1]
        text = "the answer to %s was not taken: %s"
        self._brokers.log_limit.log(log, logging.WARNING, text, request, failures[-1])
        return False

    async def _send_once(
        self, names: list[str], topic: str, reply_properties: str, body: bytes
    ) -> list[NetworkError | RemoteError] | None:
        """Try brokers until one of them has given the answer; return None then, and else the error of each."""
        failures: list[NetworkError | RemoteError] = []
        for name in names:
            try:
                session = await self._brokers.of(name)
                header = _header(topic, reply_properties, name, self._clock.now_ms())
                await session.call(header, body, timeout_s=REPLY_TIMEOUT_S)
            except (NetworkError, RemoteError) as error:
                failures.append(error)
            else:
                return None
        return failures

    async def _brokers_for(self, topic: str, first: str) -> list[str]:
        try:
            other_names = (await self._routes.of(topic)).brokers
        except (NoRoute, NetworkError) as error:
            log.info("answering by %s only: %s", first, error)
            return [first]
        return [first, *(name for name in other_names if name != first)]


def wants_answer(message: StoredMessage) -> bool:
    return Property.REPLY_TO_CLIENT in message.properties and Property.CORRELATION_ID in message.properties


def _reply_topic(request: StoredMessage) -> str:
    if not wants_answer(request):
        raise InvalidMessage(
            f"message {request.message_id} asks for no answer: it has no {Property.REPLY_TO_CLIENT}; only what "
            "`request` sent can be answered"
        )
    cluster = request.properties.get(Property.CLUSTER)
    if cluster is None:
        raise InvalidMessage(f"message {request.message_id} does not say where its sender is ({Property.CLUSTER})")
    return cluster + REPLY_SUFFIX


def _properties(request: StoredMessage, msg_id: str, content_type: str) -> str:
    repeated = {name: request.properties[name] for name in _REPEATED if name in request.properties}
    own_properties = {Property.MSG_TYPE: REPLY_TYPE, Property.WAIT: "true", Property.UNIQ_KEY: msg_id}
    typed = {CONTENT_TYPE: content_type} if content_type else {}
    return properties.render(own_properties | repeated | typed)


def _header(topic: str, reply_properties: str, broker_name: str, now_ms: int) -> SendReplyV2:
    return SendReplyV2(
        producer_group=INNER_PRODUCER_GROUP,
        topic=topic,
        default_topic=DEFAULT_TOPIC,
        default_topic_queue_nums=TEMPLATE_QUEUES,
        queue_id=0,
        sys_flag=0,
        born_timestamp=now_ms,
        flag=0,
        properties=reply_properties,
        reconsume_times=0,
        unit_mode=False,
        batch=False,
        broker_name=broker_name,
    )


def _message(push: PushReply, properties: dict[str, str], body: bytes, origin: str) -> StoredMessage:
    return StoredMessage(  # It was not read from a queue, so it has no offset.
        topic=push.topic,
        queue_id=push.queue_id,
        queue_offset=0,
        physical_offset=0,
        store_size=0,
        body_crc=0,
        flag=push.flag,
        sys_flag=push.sys_flag & SysFlag.OF_BODY,
        born_timestamp_ms=push.born_timestamp,
        born_host=push.born_host or origin,
        store_timestamp_ms=push.store_timestamp or 0,
        store_host=push.store_host or origin,
        reconsume_times=push.reconsume_times or 0,
        prepared_offset=0,
        body=bytes(body),
        properties=properties,
    )
