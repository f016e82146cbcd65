"""The connected clients: members and subscriptions of each consumer group, and members of each producer group.

The broker knows a client by its heartbeats, every 30 s, and by the connection on which they arrive. A client leaves by
UNREGISTER_CLIENT, by closing the connection, or by 120 s of silence. When the members or topics of a consumer group
change, the broker notifies all its members (code 40), also the new one. So they share out the queues again at once,
instead of within 20 s.
Source: ConsumerManager, ConsumerGroupInfo and ProducerManager, Java 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from sparrowmq.broker.part import Chore, Part
from sparrowmq.loop.clock import Clock
from sparrowmq.protocol.requests.bodies import ConsumerBeat
from sparrowmq.protocol.requests.headers import NotifyConsumerIdsChanged
from sparrowmq.protocol.subscription import Subscription
from sparrowmq.remoting.peer import Peer
from sparrowmq.safe_text import shown

log = logging.getLogger(__name__)

SILENCE_S = 120.0


@dataclass(slots=True)
class Member:
    """A client on one connection, in one group."""

    client_id: str
    peer: Peer
    language: str
    version: int
    joined: float
    last_seen: float
    clash_told: bool = False


@dataclass(slots=True)
class ConsumerGroup:
    """The connected members of a group, and its subscriptions by their latest heartbeats."""

    name: str
    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""
    fingerprint: int | None = None
    members: dict[Peer, Member] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)

    def subscribe(self, subscriptions: Collection[Subscription]) -> bool:
        """Take over newer subscriptions. Returns whether topics were added or removed."""
        topics = {subscription.topic for subscription in subscriptions}
        changed = topics != self.subscriptions.keys()
        for gone in self.subscriptions.keys() - topics:
            del self.subscriptions[gone]
        for subscription in subscriptions:
            known = self.subscriptions.get(subscription.topic)
            if known is None or subscription.version > known.version:
                self.subscriptions[subscription.topic] = subscription
        return changed


class Clients:
    """All clients of the broker."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Peer, Member]] = {}
        # The producers with the same id, in the order of arrival: of several groups, or of a former connection.
        self._by_id: dict[str, list[Member]] = {}
        self._watched: set[Peer] = set()

    def part(self) -> Part:
        """A part that looks for silent clients every ten seconds."""
        return Part(chores=(Chore("part with silent clients", 10, self.expire),))

    # Heartbeats -----------------------------------------------------------------------------------------------------

    def consume(
        self,
        peer: Peer,
        client_id: str,
        language: str,
        version: int,
        beat: ConsumerBeat,
        *,
        keep_subscriptions: bool = False,
        notify: bool = True,
    ) -> bool:
        """Handle one consumer group's part of a heartbeat.

        Args:
            keep_subscriptions: the heartbeat has no subscriptions, because they have not changed.
            notify: whether the group wants notices for its members (notifyConsumerIdsChangedEnable).
        Returns:
            Whether members or topics changed.
        """
        group = self._consumers.setdefault(beat.group_name, ConsumerGroup(beat.group_name))
        group.consume_type = str(beat.consume_type)
        group.message_model = str(beat.message_model)
        group.consume_from_where = str(beat.consume_from_where)
        changed = self._seen(group.members, peer, client_id, language, version)
        if changed:
            log.info(
                "consumer %s of group %s connected from %s", shown(client_id), shown(group.name), peer.address
            )
        self._tell_of_clash(group, peer)
        if not keep_subscriptions:
            changed |= group.subscribe(beat.subscription_data_set)
        if changed and notify:
            _notify(group)
        return changed

    def produce(self, peer: Peer, client_id: str, language: str, version: int, group: str) -> None:
        """Handle one producer group's part of a heartbeat."""
        members = self._producers.setdefault(group, {})
        former = members.get(peer)
        if self._seen(members, peer, client_id, language, version):
            if former is not None:
                self._forget_id(former)
            self._by_id.setdefault(client_id, []).append(members[peer])
            log.info(
                "producer %s of group %s connected from %s", shown(client_id), shown(group), peer.address
            )

    def must_send_all(self, group: str, fingerprint: int, without_subscriptions: bool) -> bool:
        """Whether a client of 5.x, which shortens its heartbeats, should send its subscriptions in full next time.

        Unlike Java: also if the broker knows no subscriptions of the group. After a restart, a Java broker is without
        them until the consumer changes them.
        """
        known = self._consumers.get(group)
        if known is None or not known.subscriptions:
            return without_subscriptions
        return known.fingerprint not in (None, fingerprint)

    def keep_fingerprint(self, group: str, fingerprint: int | None) -> None:
        """Note the fingerprint of the subscriptions in the group's latest heartbeat."""
        self._consumers[group].fingerprint = fingerprint

    # Leaving --------------------------------------------------------------------------------------------------------

    def leave(
        self, peer: Peer, consumer_group: str | None, producer_group: str | None, *, notify: bool = True
    ) -> None:
        """Remove a client from the groups that it leaves."""
        if producer_group is not None:
            self._remove_producer(peer, producer_group)
        if consumer_group is not None:
            self._remove_consumer(peer, consumer_group, notify)

    def expire(self) -> None:
        """Remove clients that have been silent for too long, and close their connections."""
        latest = self._clock.monotonic() - SILENCE_S
        silent = {member.peer for member in self._all_members() if member.last_seen < latest}
        for peer in silent:
            log.warning("client at %s sent no heartbeat for %.0f s; parting with it", peer.address, SILENCE_S)
            self._ended(peer)
            peer.close()

    # Questions ------------------------------------------------------------------------------------------------------

    def group_view(self, group: str) -> ConsumerGroup | None:
        """Return a consumer group with members; None if no member is online."""
        return self._consumers.get(group)

    def consumer_groups(self) -> list[ConsumerGroup]:
        """All consumer groups with members."""
        return list(self._consumers.values())

    def members(self, group: str) -> list[Member]:
        """The connected members of a consumer group."""
        known = self._consumers.get(group)
        return list(known.members.values()) if known else []

    def member(self, group: str, client_id: str) -> Member | None:
        """Return the member with a client id; of several, the one that joined last."""
        found = [member for member in self.members(group) if member.client_id == client_id]
        return max(found, key=lambda member: member.joined, default=None)

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """Return the subscription of a group to a topic, by its members' heartbeats."""
        known = self._consumers.get(group)
        return known.subscriptions.get(topic) if known else None

    def groups_subscribed_to(self, topic: str) -> set[str]:
        """The online consumer groups that subscribe a topic."""
        return {name for name, group in self._consumers.items() if topic in group.subscriptions}

    def producers(self, group: str) -> list[Member]:
        """The connected members of a producer group."""
        return list(self._producers.get(group, {}).values())

    def producer_groups(self) -> Iterator[tuple[str, list[Member]]]:
        """All producer groups with members."""
        return ((group, list(members.values())) for group, members in self._producers.items())

    def producer_by_id(self, client_id: str) -> Member | None:
        """Return the latest connection of a producer with this client id. Replies to its requests go there."""
        found = self._by_id.get(client_id)
        return found[-1] if found else None

    # Inside ---------------------------------------------------------------------------------------------------------

    def _seen(
        self, members: dict[Peer, Member], peer: Peer, client_id: str, language: str, version: int
    ) -> bool:
        now = self._clock.monotonic()
        known = members.get(peer)
        if known is not None and known.client_id == client_id:
            known.last_seen = now
            return False
        members[peer] = Member(client_id, peer, language, version, now, now)
        if peer not in self._watched:
            self._watched.add(peer)
            peer.on_end(self._ended)
        return True

    def _tell_of_clash(self, group: ConsumerGroup, peer: Peer) -> None:
        """Log that two running programs use one client id, the usual reason for queues without a consumer.

        A client that reconnects has two connections with one id for a while. So this logs only if a heartbeat arrives
        on the OLDER connection after the newer one has joined. A dead connection never sends one.
        """
        member = group.members[peer]
        for other in group.members.values():
            if other.client_id != member.client_id or other is member or member.clash_told:
                continue
            if other.joined > member.joined:
                member.clash_told = True
                log.warning(
                    "client id %s is used in group %s from both %s and %s; queues are shared out by client id, so give "
                    "each program its own (instanceName, or clientIP), or some queues will be consumed twice or never",
                    shown(member.client_id),
                    shown(group.name),
                    member.peer.address,
                    other.peer.address,
                )

    def _ended(self, peer: Peer) -> None:
        self._watched.discard(peer)
        for name in [name for name, members in self._producers.items() if peer in members]:
            self._remove_producer(peer, name)
        for name in [name for name, group in self._consumers.items() if peer in group.members]:
            self._remove_consumer(peer, name, notify=True)

    def _remove_producer(self, peer: Peer, name: str) -> None:
        members = self._producers.get(name, {})
        if (gone := members.pop(peer, None)) is not None:
            self._forget_id(gone)
            log.info("producer %s of group %s left", shown(gone.client_id), shown(name))
        if not members:
            self._producers.pop(name, None)

    def _forget_id(self, gone: Member) -> None:
        left = [member for member in self._by_id[gone.client_id] if member is not gone]
        if left:
            self._by_id[gone.client_id] = left
        else:
            del self._by_id[gone.client_id]

    def _remove_consumer(self, peer: Peer, name: str, notify: bool) -> None:
        group = self._consumers.get(name)
        gone = group.members.pop(peer, None) if group else None
        if group is None or gone is None:
            return
        log.info("consumer %s of group %s left", shown(gone.client_id), shown(name))
        if not group.members:
            del self._consumers[name]
        elif notify:
            _notify(group)

    def _all_members(self) -> Iterable[Member]:
        for group in self._consumers.values():
            yield from group.members.values()
        for members in self._producers.values():
            yield from members.values()


def _notify(group: ConsumerGroup) -> None:
    for member in group.members.values():
        member.peer.tell(NotifyConsumerIdsChanged(group.name))
