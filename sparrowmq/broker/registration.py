"""Announces the broker to its name servers: at the start, when topics change, and every 30 s.

    each name server has a link of its own, so a name server that is down delays no other one:

    ask for the route of our own topic ── it does not lead to us ───── register all topics
    and which version of our topics it knows ── ours ──────────────── done; it counts as a heartbeat
                                             ── one that we sent ───── register the topics changed since
                                             ── none, or another ───── register all topics

If another broker had our name and id for a while, Apache's name server still knows our version, but its routes do not
lead to us. So the link asks for the route too. Name servers merge a registration with the topics that they know. A link
that fails tries again after 1, 2, 4, 5, 5 s ..., and at once when an open connection ends.
Source: BrokerController.registerBrokerAll and BrokerOuterAPI, Java 4.9.8, and the answers of 4.9.7 and 5.4.0.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final
from weakref import ReferenceType, ref

import msgspec

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.part import Part, Task
from sparrowmq.broker.topics import Topics
from sparrowmq.errors import RemoteError, SparrowError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import Steps, empty_in_steps, run_to_end
from sparrowmq.loop.watermark import Watermark
from sparrowmq.metrics.condition_kinds import NAME_SERVER_AWAY, NAME_TAKEN, UNREGISTERED
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.message import Perm
from sparrowmq.protocol.requests.bodies import DataVersion, TopicConfig, TopicConfigTable, TopicRoute
from sparrowmq.protocol.requests.namesrv_headers import (
    GetRoute,
    QueryDataVersion,
    RegisterBroker,
    UnregisterBroker,
    if_broker,
)
from sparrowmq.protocol.requests.registration_bodies import RegisterBrokerBody, sum_in_steps
from sparrowmq.remoting.pool import Pool
from sparrowmq.remoting.session import Session

log = logging.getLogger(__name__)

FIRST_RETRY_S: Final = 1.0
MAX_RETRY_S: Final = 5.0
# A client that creates a topic gives up after 5 s. Before that it should get the answer that the topic exists.
ANNOUNCE_LIMIT_S: Final = 3.0
LEAVE_LIMIT_S: Final = 1.0
# Longer bodies are sent compressed, because a frame has at most 16 MiB.
LARGE_BODY_BYTES: Final = 8 << 20


class Registration:
    """The broker's registration at all its name servers.

    `on_master` gets the addresses of a slave's master, for clients and for log shipping. Both may be "".
    """

    def __init__(
        self,
        settings: BrokerSettings,
        topics: Topics,
        clock: Clock,
        pool: Pool,
        address: str,
        ha_address: str,
        may_register: Callable[[], bool] = lambda: True,
    ) -> None:
        self._clock = clock
        self._topics = topics
        self.on_master: Callable[[str, str], object] = lambda master, shipping: None
        self.may_register = may_register
        self._links = [
            NameServerLink(namesrv, settings, topics, clock, pool, (address, ha_address), self)
            for namesrv in settings.namesrv
        ]

    @property
    def is_known(self) -> bool:
        """Whether at least one name server knows the broker, or none is configured."""
        return not self._links or any(link.is_up for link in self._links)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for link in self._links:
                tasks.create_task(link.run(), name=f"registration at {link.namesrv}")

    def apply_settings(self, settings: BrokerSettings) -> None:
        for link in self._links:
            link.apply_settings(settings)

    def refuse_writes(self) -> None:
        """Announce that clients can no longer send to this broker: register its topics without write permission."""
        for link in self._links:
            link.refuse_writes()
        self._topics.announce_all()

    def part(self) -> Part:
        probes = (
            (UNREGISTERED, self._unregistered_condition),
            (NAME_SERVER_AWAY, lambda: self._problems() if self.is_known else ""),
            (NAME_TAKEN, self._rival_condition),
        )
        return Part(tasks=(Task("registration", self.run),), probes=probes)

    def _unregistered_condition(self) -> str:
        if self.is_known or not self.may_register():
            return ""
        return f"no name server knows this broker, so no client finds it: {self._problems()}"

    def _rival_condition(self) -> str:
        rivals = sorted({link.rival for link in self._links if link.rival and self.may_register()})
        if not rivals:
            return ""
        rivals_text = ", ".join(rivals)
        return f"{rivals_text} registers with the same brokerName and brokerId: clients find now one, now the other"

    def _problems(self) -> str:
        return "; ".join(f"{link.namesrv}: {link.problem}" for link in self._links if link.is_up is False)

    def topics_changed(self) -> None:
        for link in self._links:
            link.wake()

    async def announced(self) -> None:
        awaitables = [link.registered_once() for link in self._links if link.is_up is not False]
        await self._wait_for_all(awaitables, ANNOUNCE_LIMIT_S)

    async def leave(self) -> None:
        """Unregister at every name server that can be reached. Nothing is announced after that."""
        await self._wait_for_all([link.leave() for link in self._links], LEAVE_LIMIT_S)

    async def _wait_for_all(self, awaitables: Iterable[Awaitable[None]], limit_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await self._clock.wait_for(asyncio.gather(*awaitables), limit_s)


class NameServerLink:
    """The registration at one name server. `rival` is the address of another broker that has our name and id."""

    def __init__(
        self,
        namesrv: str,
        settings: BrokerSettings,
        topics: Topics,
        clock: Clock,
        pool: Pool,
        addresses: tuple[str, str],
        owner: Registration,
    ) -> None:
        self.namesrv = namesrv
        self.is_up: bool | None = None
        self.problem = "not asked yet"
        self.rival = ""
        address, self._ha_address = addresses
        self._owner = owner
        self._identity = (settings.name, address, settings.cluster, settings.broker_id)
        self._settings = settings
        self._permission_limit: int = Perm.READ_WRITE
        self._topics = topics
        self._clock = clock
        self._pool = pool
        # Invariant: attempts.value <= wanted. They are equal if nothing changed since the last attempt began.
        self._next_attempt = 1
        self._finished_attempts = Watermark()
        self._wake = asyncio.Event()
        self._has_left = False
        self._watched_session: Session | None = None
        # The version and topics that we sent. The name server has them while it answers with this version.
        self._known_version: DataVersion | None = None
        self._known_topics: dict[str, TopicConfig] = {}

    def apply_settings(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._known_version, self._known_topics = None, {}
        self.wake()

    def refuse_writes(self) -> None:
        self._permission_limit = Perm.READ
        self.apply_settings(self._settings)

    def wake(self) -> None:
        self._next_attempt += 1
        self._wake.set()

    async def registered_once(self) -> None:
        await self._finished_attempts.reached(self._next_attempt)

    async def run(self) -> None:
        retry_s = FIRST_RETRY_S
        while not self._has_left:
            attempt = self._next_attempt
            self._wake.clear()
            error = await self._try_to_announce()
            self._note_result(error)
            self._finished_attempts.advance(attempt)
            if error is None:
                retry_s = FIRST_RETRY_S
                await self._pause(self._settings.register_period_ms / 1000)
            else:
                await self._pause(retry_s)
                retry_s = min(2 * retry_s, MAX_RETRY_S)

    async def leave(self) -> None:
        self._has_left = True
        self._wake.set()
        session = self._pool.live_session(self.namesrv)
        if session is None or not self._owner.may_register():
            return
        try:
            await session.call(UnregisterBroker(*self._identity), timeout_s=LEAVE_LIMIT_S)
        except SparrowError as error:
            log.warning("name server %s did not unregister this broker: %s", self.namesrv, error)

    async def _try_to_announce(self) -> SparrowError | None:
        try:
            session = await self._pool.session(self.namesrv)
            self._watch_session(session)
            if not self._has_left:
                await self._announce(session)
        except SparrowError as error:
            return error
        return None

    async def _announce(self, session: Session) -> None:
        is_routed_here, known_version = await asyncio.gather(
            self._is_routed_here(session), self._known_at_name_server(session)
        )
        known_topics = known_version if is_routed_here else {}
        if known_topics is None and self._settings.is_slave:
            known_topics = self._known_topics  # The answer to a registration has the master's address now.
        if known_topics is None or not self._may_register():
            return
        settings = self._settings
        version, topics = self._topics.version, dict(self._topics.table)
        header, body = await run_to_end(self._registration(version, topics, known_topics))
        if not self._may_register():
            return
        answer = await session.call(header, body, timeout_s=self._timeout_s)
        if settings.is_slave:
            self._owner.on_master(answer.header.master_addr or "", answer.header.ha_server_addr or "")
        if settings is self._settings:  # otherwise all topics have to be registered again
            self._known_version, self._known_topics = version, topics

    def _may_register(self) -> bool:
        return not self._has_left and self._owner.may_register()

    async def _known_at_name_server(self, session: Session) -> dict[str, TopicConfig] | None:
        """Return the topics that this name server still knows from us; None if it knows our present version."""
        query, body = QueryDataVersion(*self._identity), self._topics.version.encode()
        answer = await session.call(query, body, timeout_s=self._timeout_s)
        if not answer.header.changed:
            return None
        version = DataVersion.decode(answer.body) if answer.body else None
        is_ours = version is not None and self._known_version is not None and version.is_same(self._known_version)
        return self._known_topics if is_ours else {}

    async def _is_routed_here(self, session: Session) -> bool:
        name, address, _, broker_id = self._identity
        try:
            answer = await session.call(GetRoute(name), timeout_s=self._timeout_s)
        except RemoteError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                self._note_rival("")
                return False
            raise if_broker(error, GetRoute(name), self.namesrv) from None
        brokers = TopicRoute.decode(answer.body).broker_datas
        addresses = {broker.broker_addrs.get(broker_id, "") for broker in brokers if broker.broker_name == name}
        self._note_rival(next(iter(addresses - {"", address}), ""))
        return address in addresses

    def _note_rival(self, other_address: str) -> None:
        """Note the other address that the routes show. Before our first registration it may be one that we had."""
        self.rival = other_address if self.is_up else ""

    def _registration(
        self, version: DataVersion, topics: dict[str, TopicConfig], known_topics: dict[str, TopicConfig]
    ) -> Steps[tuple[RegisterBroker, bytes]]:
        """Write the topics that have changed. Neither table changes meanwhile."""
        permission = self._settings.permission & self._permission_limit & ~(Perm.WRITE if self._settings.drained else 0)
        changed_topics = {}
        for name, topic in topics.items():
            if known_topics.get(name) is not topic:
                if permission != Perm.READ_WRITE:
                    perm = topic.perm & (permission | ~Perm.READ_WRITE)
                    topic = msgspec.structs.replace(topic, perm=perm)
                changed_topics[name] = topic
            yield
        content = RegisterBrokerBody(TopicConfigTable(version, changed_topics))
        body = yield from content.encode_in_steps()
        is_compressed = len(body) > LARGE_BODY_BYTES
        if is_compressed:
            body = yield from content.pack_in_steps()
        checksum = yield from sum_in_steps(body)
        yield from empty_in_steps(changed_topics)
        name, address, cluster, broker_id = self._identity
        header = RegisterBroker(
            name, address, cluster, self._ha_address, broker_id, compressed=is_compressed, body_crc32=checksum
        )
        return header, body

    def _watch_session(self, session: Session) -> None:
        """Try again at once when the connection ends: a name server that restarts does not know this broker."""
        if session is not self._watched_session:
            self._watched_session = session
            session.on_end(partial(_ended, ref(self)))  # a member's connection outlives its brokers

    def on_session_end(self, session: Session) -> None:
        if session is self._watched_session:
            self._wake.set()

    def _note_result(self, error: SparrowError | None) -> None:
        is_up = error is None
        if is_up and not self.is_up:
            log.info("registered at name server %s", self.namesrv)
        elif error is not None and self.is_up is not False:
            log.warning("not registered at name server %s, trying again and again: %s", self.namesrv, error)
        self.is_up, self.problem = is_up, str(error or "")

    async def _pause(self, pause_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            await self._clock.wait_for(self._wake.wait(), pause_s)

    @property
    def _timeout_s(self) -> float:
        return self._settings.register_timeout_ms / 1000


def _ended(link: ReferenceType[NameServerLink], session: Session) -> None:
    if (registration_link := link()) is not None:
        registration_link.on_session_end(session)
