"""The connected clients: members and subscriptions of each consumer group, and members of each producer group.

The broker knows a client by its heartbeats, every 30 s, and by the connection on which they arrive. A client leaves by
UNREGISTER_CLIENT, by closing the connection, or by 120 s of silence. When the members or topics of a consumer group
change, the broker notifies all its members (code 40), also the new one. So they share out the queues again at once,
instead of within 20 s.

The broker keeps the groups of each connection, and the members of each group by client id, so joining and leaving cost
the same however many there are. One connection is in 500 groups at most.
Source: ConsumerManager, ConsumerGroupInfo and ProducerManager, Java 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from sparrowmq.broker.part import Chore, Part
from sparrowmq.core.digits import whole_number
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.slices import Steps, run_to_end
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.names import REPLY_SUFFIX, RETRY
from sparrowmq.protocol.requests.client_bodies import ConsumerBeat, ConsumerList
from sparrowmq.protocol.requests.headers import NotifyConsumerIdsChanged
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.peer import Peer, owner_of

K = TypeVar("K")
V = TypeVar("V")
log = logging.getLogger(__name__)
SILENCE_S = 120.0
# The groups of one connection, of consumers and producers together. A client of an application has a few dozen.
MAX_GROUPS: Final = 500
# Above this number, one line of the log counts the groups that a client joins or leaves.
_MAX_LOGGED_GROUPS: Final = 5
_LOG_LINES_PER_MINUTE: Final = 200  # a minute of each kind: all clients of most clusters, after a broker's restart
NOTICE_ROUND_S: Final = 1.0
MAX_NOTICES_AT_ONCE: Final = 100  # to one group between two rounds, before they are collected; a portion of a round
NOTICE_PAUSE_S: Final = 0.01  # between two portions
NOTICE_SPREAD_S: Final = 0.5  # at most: the pauses of a huge round are shorter
MAX_WAITERS: Final = 20_000  # about 10 MB; the oldest go first
MAX_REPLY_WAIT_S: Final = 600.0
DEFAULT_REPLY_WAIT_S: Final = 30.0
MAX_ID_CHARACTERS: Final = 255  # the ids of Java, Go and Python are UUIDs


@dataclass(slots=True)
class Member:
    """A client on one connection, in one group, with the filter of each topic in its last heartbeat."""

    client_id: str
    peer: Peer
    language: str
    version: int
    joined: float
    last_seen: float
    owner: str | None
    is_clash_logged: bool = False
    filters: dict[str, str] = field(default_factory=dict)
    difference: str = ""


@dataclass(slots=True)
class _ProducerId:
    owner: str | None
    joined: float
    groups: int = 0


@dataclass(slots=True)
class _Presence:
    consumer_groups: dict[str, Member] = field(default_factory=dict)
    producer_groups: dict[str, Member] = field(default_factory=dict)


@dataclass(slots=True)
class ConsumerGroup:
    name: str
    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""
    fingerprint: int | None = None
    members: dict[Peer, Member] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    # The members with the same id, in the order of arrival: a client that reconnects has two connections for a while.
    by_id: dict[str, dict[Peer, Member]] = field(default_factory=dict)
    # The answer to GET_CONSUMER_LIST_BY_GROUP, which every member asks for after each change.
    _encoded_ids: bytes | None = None

    def add(self, member: Member) -> None:
        self.members[member.peer] = member
        self.by_id.setdefault(member.client_id, {})[member.peer] = member
        self._encoded_ids = None

    def remove(self, member: Member) -> None:
        del self.members[member.peer]
        _remove_peer(self.by_id, member.client_id, member.peer)
        self._encoded_ids = None

    def encoded_ids(self) -> bytes:
        if self._encoded_ids is None:
            self._encoded_ids = ConsumerList(sorted(self.by_id)).encode()
        return self._encoded_ids

    def latest(self, client_id: str) -> Member | None:
        """Return the latest member with an id, of the account that came first: no account takes a used id over."""
        connections = self.by_id.get(client_id)
        return connections[_latest_peer(connections)] if connections else None

    @property
    def is_shared(self) -> bool:
        return self.consume_type == "CONSUME_PASSIVELY" and self.message_model == "CLUSTERING"

    def wanted_topics(self) -> set[str]:
        return self.subscriptions.keys() | {topic for member in self.members.values() for topic in member.filters}

    def differing_topics(self) -> set[str]:
        members = self.members.values() if self.is_shared else ()
        wanted_topics = [member.filters.keys() for member in members if member.filters]
        return (
            set().union(*wanted_topics) - set[str](wanted_topics[0]).intersection(*wanted_topics)
            if wanted_topics
            else set()
        )

    def subscribe(self, subscriptions: Collection[Subscription]) -> bool:
        """Take over newer subscriptions. Returns whether topics were added or removed."""
        topics = {subscription.topic for subscription in subscriptions}
        has_changed = topics != self.subscriptions.keys()
        for topic in self.subscriptions.keys() - topics:
            del self.subscriptions[topic]
        for subscription in subscriptions:
            former = self.subscriptions.get(subscription.topic)
            if former is None or subscription.version > former.version:
                self.subscriptions[subscription.topic] = subscription
        return has_changed


@dataclass(slots=True)
class _ProducerGroup:
    """The connected members of a producer group. Each account is asked about its own transactions only."""

    members: dict[Peer, Member] = field(default_factory=dict)
    by_owner: dict[str | None, dict[Peer, Member]] = field(default_factory=dict)

    def add(self, member: Member) -> None:
        self.members[member.peer] = member
        self.by_owner.setdefault(member.owner, {})[member.peer] = member

    def remove(self, member: Member) -> None:
        del self.members[member.peer]
        _remove_peer(self.by_owner, member.owner, member.peer)


def _remove_peer(by_key: dict[K, dict[Peer, V]], key: K, peer: Peer) -> None:
    del by_key[key][peer]
    if not by_key[key]:
        del by_key[key]


def _latest_peer(connections: Mapping[Peer, Member | _ProducerId]) -> Peer:
    owner = next(iter(connections.values())).owner
    return next(peer for peer, client in reversed([*connections.items()]) if client.owner == owner)


class Clients:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.notices = Notices(clock)
        self._log_limit = LogLimit(clock, _LOG_LINES_PER_MINUTE)  # a client can join and leave at will
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, _ProducerGroup] = {}
        # A producer's connections by its id, in the order of arrival.
        self._by_id: dict[str, dict[Peer, _ProducerId]] = {}
        self._presences: dict[Peer, _Presence] = {}
        self.version = 0  # rises when the subscriptions or the model of a consumer group change

    def part(self) -> Part:
        return Part(
            chores=(
                Chore("close silent clients", 10, self.expire),
                Chore("notify consumer groups", NOTICE_ROUND_S, self.notices.send_round),
            )
        )

    def check_groups(self, peer: Peer, client_id: str, consumed: Collection[str], produced: Collection[str]) -> None:
        """Check the groups of a heartbeat before any is joined, and log new ones. Raises: RemoteError, too many."""
        presence = self._presences.get(peer) or _Presence()
        consumers = [name for name in consumed if name not in presence.consumer_groups]
        producers = [name for name in produced if name not in presence.producer_groups]
        joined_count = len(set(consumers)) + len(set(producers))
        count = joined_count + len(presence.consumer_groups) + len(presence.producer_groups)
        if joined_count and count > MAX_GROUPS:
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR,
                f"a connection is in {MAX_GROUPS} consumer and producer groups at most; this heartbeat would make it "
                f"{count}: use several clients, or unregister groups",
            )
        self._log_groups("consumer", client_id, consumers, f"connected from {peer.address}")
        self._log_groups("producer", client_id, producers, f"connected from {peer.address}")

    def consume(
        self, peer: Peer, client_id: str, beat: ConsumerBeat, *, keep_subscriptions: bool = False, notify: bool = True
    ) -> bool:
        """Handle one consumer group's part of a heartbeat. Returns whether members or topics changed.

        With `keep_subscriptions` the heartbeat has none, because they have not changed. `notify`: the group wants
        notices.
        """
        group = self._consumers.get(beat.group_name)
        if group is None:
            group = self._consumers[beat.group_name] = ConsumerGroup(beat.group_name)
        former_model, former_subscriptions = group.message_model, dict(group.subscriptions)
        group.consume_type = str(beat.consume_type)
        group.message_model = str(beat.message_model)
        group.consume_from_where = str(beat.consume_from_where)
        has_changed = self._join(group, peer, client_id)
        self._log_clash(group, group.members[peer])
        if not keep_subscriptions:
            self._log_difference(group, group.members[peer], beat)
            has_changed |= group.subscribe(beat.subscription_data_set)
        if group.message_model != former_model or group.subscriptions != former_subscriptions:
            self.version += 1
        if has_changed and notify:
            self.notices.notify(group)
        return has_changed

    def produce(self, peer: Peer, client_id: str, group: str) -> None:
        producers = self._producers.get(group)
        if producers is None:
            producers = self._producers[group] = _ProducerGroup()
        former = producers.members.get(peer)
        member = self._refreshed_member(former, peer, client_id)
        if member is None:
            return
        if former is not None:
            producers.remove(former)
            self._forget_producer_id(former)
        producers.add(member)
        self._presences[peer].producer_groups[group] = member
        connections = self._by_id.setdefault(client_id, {})
        if peer not in connections:
            connections[peer] = _ProducerId(member.owner, member.joined)
        connections[peer].groups += 1

    def must_send_all(self, group: str, fingerprint: int, without_subscriptions: bool) -> bool:
        """Whether a client of 5.x, which shortens its heartbeats, should send its subscriptions in full next time.

        Unlike Java: also if the broker knows no subscriptions of the group.
        """
        consumers = self._consumers.get(group)
        if consumers is None or not consumers.subscriptions:
            return without_subscriptions
        return consumers.fingerprint not in (None, fingerprint)

    def keep_fingerprint(self, group: str, fingerprint: int | None) -> None:
        self._consumers[group].fingerprint = fingerprint

    def leave(self, peer: Peer, consumer_group: str | None, producer_group: str | None, *, notify: bool = True) -> None:
        presence = self._presences.get(peer)
        if presence is None:
            return
        if producer_group is not None and (departed := presence.producer_groups.pop(producer_group, None)) is not None:
            self._remove_producer(departed, producer_group)
            self._log_groups("producer", departed.client_id, [producer_group], "left")
        if consumer_group is not None and (departed := presence.consumer_groups.pop(consumer_group, None)) is not None:
            self._remove_consumer(departed, consumer_group, notify)
            self._log_groups("consumer", departed.client_id, [consumer_group], "left")

    def expire(self) -> Coroutine[Any, Any, None]:
        return run_to_end(self._close_silent())

    def _close_silent(self) -> Steps[None]:
        age = self._clock.age
        for peer, presence in list(self._presences.items()):
            members = (*presence.consumer_groups.values(), *presence.producer_groups.values())
            if any(age(member.last_seen) > SILENCE_S for member in members):
                log.warning(
                    "client at %s sent no heartbeat for %.0f s; closing its connection", peer.address, SILENCE_S
                )
                self._on_connection_end(peer)
                peer.close()
            yield

    def difference(self, group: str, peer: Peer) -> str:
        """Return how a member differs from others of its group in what it wants; "" if it does not."""
        consumers = self._consumers.get(group)
        return consumers.members[peer].difference if consumers is not None and peer in consumers.members else ""

    def group_view(self, group: str) -> ConsumerGroup | None:
        return self._consumers.get(group)

    def consumer_groups(self) -> list[ConsumerGroup]:
        return list(self._consumers.values())

    def members(self, group: str) -> list[Member]:
        consumers = self._consumers.get(group)
        return list(consumers.members.values()) if consumers else []

    def member(self, group: str, client_id: str) -> Member | None:
        consumers = self._consumers.get(group)
        return consumers.latest(client_id) if consumers else None

    def subscription(self, group: str, topic: str) -> Subscription | None:
        consumers = self._consumers.get(group)
        return consumers.subscriptions.get(topic) if consumers else None

    def groups_subscribed_to(self, topic: str) -> Steps[list[str]]:
        groups = []
        for group in list(self._consumers.values()):
            if topic in group.subscriptions:
                groups.append(group.name)
            yield
        return groups

    def producers(self, group: str) -> list[Member]:
        producers = self._producers.get(group)
        return list(producers.members.values()) if producers else []

    def producers_by_owner(self, group: str) -> Mapping[str | None, Mapping[Peer, Member]]:
        producers = self._producers.get(group)
        return producers.by_owner if producers else {}

    def producer_groups(self) -> Iterator[tuple[str, list[Member]]]:
        return ((name, list(group.members.values())) for name, group in list(self._producers.items()))

    def producer_by_id(self, client_id: str) -> Peer | None:
        """Return the latest connection of a producer with this client id, of the account that announced it first."""
        connections = self._by_id.get(client_id)
        return _latest_peer(connections) if connections else None

    def peer_for_reply(self, waiter: ReplyWaiter) -> Peer:
        """Return the connection that gets the answer to a request.

        It is the one that sent the request, or the client's latest one since then, with the same account.
        """
        connections = self._by_id.get(waiter.client_id, {})
        latest = next((peer for peer, client in reversed(connections.items()) if client.owner == waiter.owner), None)
        if latest is None or (waiter.peer in connections and connections[latest].joined <= waiter.requested_s):
            return waiter.peer
        return latest

    def _refreshed_member(self, member: Member | None, peer: Peer, client_id: str) -> Member | None:
        """Return the member of a group that a client becomes; None if it is the known one."""
        now = self._clock.monotonic()
        if member is not None and member.client_id == client_id:
            member.last_seen = now
            return None
        if peer not in self._presences:
            self._presences[peer] = _Presence()
            peer.on_end(self._on_connection_end)
        return Member(client_id, peer, peer.language, peer.version, now, now, owner_of(peer))

    def _join(self, group: ConsumerGroup, peer: Peer, client_id: str) -> bool:
        former = group.members.get(peer)
        member = self._refreshed_member(former, peer, client_id)
        if member is None:
            return False
        if former is not None:
            group.remove(former)
        group.add(member)
        self._presences[peer].consumer_groups[group.name] = member
        return True

    def _log_clash(self, group: ConsumerGroup, member: Member) -> None:
        """Log that two running programs use one client id, the usual reason for queues without a consumer.

        A client that reconnects has two connections for a while. So only a heartbeat on the OLDER one is logged.
        """
        other = group.latest(member.client_id)
        if other is None or member.is_clash_logged or other.joined <= member.joined:
            return
        member.is_clash_logged = True
        self._log_limit.log(
            log,
            logging.WARNING,
            "client id %s is used in group %s from both %s and %s; queues are shared out by client id, so give "
            "each program its own (instanceName, or clientIP), or some queues will be consumed twice or never",
            shown(member.client_id),
            shown(group.name),
            member.peer.address,
            other.peer.address,
        )

    def _log_difference(self, group: ConsumerGroup, member: Member, beat: ConsumerBeat) -> None:
        """Log that members of a group want other topics or filters, another reason for queues without a consumer.

        Members change one after the other. So this logs only if a member repeats what it wanted.
        """
        own_filters, filters_of_others = (
            _filters_by_topic(beat.subscription_data_set),
            _filters_by_topic(group.subscriptions.values()),
        )
        is_repeated, member.filters = own_filters == member.filters, own_filters
        former_difference, member.difference = member.difference, ""
        if own_filters == filters_of_others or not is_repeated or not group.is_shared:
            return
        member.difference = (
            f"members of group {shown(group.name)} differ: {shown(member.client_id)} wants "
            f"{shown(str(own_filters))}, and others {shown(str(filters_of_others))}; queues are shared out as if all "
            "wanted the same, so some messages reach no consumer: give each set of topics and filters a group of "
            "its own"
        )
        if not former_difference:
            self._log_limit.log(log, logging.WARNING, "%s: %s", member.peer.address, member.difference)

    def _on_connection_end(self, peer: Peer) -> None:
        presence = self._presences.pop(peer, None)
        if presence is None:
            return
        for name, departed in presence.producer_groups.items():
            self._remove_producer(departed, name)
        for name, departed in presence.consumer_groups.items():
            self._remove_consumer(departed, name, notify=True)
        for kind, members in (("producer", presence.producer_groups), ("consumer", presence.consumer_groups)):
            for departed in list(members.values())[:1]:
                self._log_groups(kind, departed.client_id, list(members), "left")

    def _log_groups(self, kind: str, client_id: str, groups: Sequence[str], action: str) -> None:
        client = shown(client_id)
        if len(groups) > _MAX_LOGGED_GROUPS:
            text = "%s %s of %d groups, such as %s, %s"
            self._log_limit.log(log, logging.INFO, text, kind, client, len(groups), shown(groups[0]), action)
            return
        for group in groups:
            self._log_limit.log(log, logging.INFO, "%s %s of group %s %s", kind, client, shown(group), action)

    def _remove_producer(self, member: Member, name: str) -> None:
        group = self._producers[name]
        group.remove(member)
        self._forget_producer_id(member)
        if not group.members:
            del self._producers[name]

    def _forget_producer_id(self, member: Member) -> None:
        producer_id = self._by_id[member.client_id][member.peer]
        producer_id.groups -= 1
        if not producer_id.groups:
            _remove_peer(self._by_id, member.client_id, member.peer)

    def _remove_consumer(self, member: Member, name: str, notify: bool) -> None:
        group = self._consumers[name]
        group.remove(member)
        if not group.members:
            del self._consumers[name]
            self.version += 1
        elif notify:
            self.notices.notify(group)


def _filters_by_topic(subscriptions: Collection[Subscription]) -> dict[str, str]:
    return {
        subscription.topic: subscription.filter_text
        for subscription in subscriptions
        if not subscription.topic.startswith(RETRY)
    }


class Notices:
    """Notices to the members of a consumer group that its members or topics have changed (code 40).

        a change in a small group       all members are notified at once
        more changes, or a large group  collected; one round of notices each second

    A group gets up to 100 notices a second at once, so a small group shares out its queues without a delay. In a large
    group each join would notify every member: 2,000 members that join make 2 million notices. With one round a second,
    a member gets one notice for all changes of that second. A notified member asks at once for the member list, so a
    large round goes out in portions.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent_counts: dict[str, int] = {}  # since the last round
        self._waiting_groups: dict[str, ConsumerGroup] = {}

    def notify(self, group: ConsumerGroup) -> None:
        sent_count = self._sent_counts.get(group.name, 0) + len(group.members)
        if sent_count > MAX_NOTICES_AT_ONCE:
            self._waiting_groups[group.name] = group
            return
        self._sent_counts[group.name] = sent_count
        for peer in group.members:
            peer.tell(NotifyConsumerIdsChanged(group.name))

    async def send_round(self) -> None:
        """Notify the members of the groups that wait, within NOTICE_SPREAD_S. Call it each second."""
        waiting = self._waiting_groups
        self._sent_counts, self._waiting_groups = {}, {}
        portions = sum(len(group.members) for group in waiting.values()) / MAX_NOTICES_AT_ONCE
        for number, (group, peer) in enumerate(_members(waiting.values())):
            if number and number % MAX_NOTICES_AT_ONCE == 0:
                await self._clock.sleep(min(NOTICE_PAUSE_S, NOTICE_SPREAD_S / portions))
            if peer in group.members:
                peer.tell(NotifyConsumerIdsChanged(group.name))


def _members(groups: Iterable[ConsumerGroup]) -> Iterator[tuple[ConsumerGroup, Peer]]:
    return ((group, peer) for group in groups for peer in list(group.members))


@dataclass(slots=True)
class ReplyWaiter:
    peer: Peer
    owner: str | None  # the account that signed the request
    client_id: str
    requested_s: float  # when the request came; until `expires` it may be answered
    expires: float


class ReplyWaiters:
    """The connections that wait for answers, by the correlation id of their requests.

        requester ── request (REPLY_TO_CLIENT, CORRELATION_ID, TTL) ──> broker: stored, and noted here
        requester <── answer ── broker: found here by CORRELATION_ID <── replier

    Any client can announce any client id, so the id alone does not say where an answer belongs. The first request with
    a correlation id counts, unless the same account sends it again. Other clients know the id only after that.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_id: dict[str, ReplyWaiter] = {}

    def note(self, topic: str, properties: Properties, peer: Peer) -> None:
        """Note a stored message that asks for an answer. An answer has the same properties; its topic tells it."""
        correlation_id = properties.get(Property.CORRELATION_ID)
        client_id = properties.get(Property.REPLY_TO_CLIENT)
        if not correlation_id or not client_id or topic.endswith(REPLY_SUFFIX):
            return
        if len(correlation_id) > MAX_ID_CHARACTERS or len(client_id) > MAX_ID_CHARACTERS:
            return
        now, owner = self._clock.monotonic(), owner_of(peer)
        waiter = self._by_id.get(correlation_id)
        if waiter is not None and waiter.expires > now and waiter.owner != owner:
            return
        self._by_id.pop(correlation_id, None)
        ttl_ms = whole_number(properties.get(Property.TTL))
        wait_s = DEFAULT_REPLY_WAIT_S if ttl_ms is None else min(ttl_ms / 1000, MAX_REPLY_WAIT_S)
        self._by_id[correlation_id] = ReplyWaiter(peer, owner, client_id, now, now + wait_s)
        self._forget_old(now)

    def find(self, correlation_id: str | None, client_id: str) -> ReplyWaiter | None:
        """Return the connection that waits for an answer, if the request came to this broker."""
        waiter = self._by_id.get(correlation_id or "")
        if waiter is None or waiter.client_id != client_id or waiter.expires <= self._clock.monotonic():
            return None
        return waiter

    def _forget_old(self, now: float) -> None:
        while self._by_id:
            oldest = next(iter(self._by_id))
            if self._by_id[oldest].expires > now and len(self._by_id) <= MAX_WAITERS:
                return
            del self._by_id[oldest]
