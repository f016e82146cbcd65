"""An operator's side of a cluster: topics, groups, offsets, and searches for messages.

    async with sparrowmq.Admin("127.0.0.1:9876") as admin:
        await admin.create_topic("orders", queues=16)
        print((await admin.lag("billing")).lag)

A client has one too, over its own connections: `await mq.admin.topics()`. A change of a topic or a group goes to every
master of the cluster, and returns the names of the masters; if some failed, `ChangeFailed` names them. Nothing is
cached: each call asks servers. Source: DefaultMQAdminExtImpl, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Final, Self

from sparrowmq.admin import brokers, dead_letters, doctor, groups, message_search, topics
from sparrowmq.admin.brokers import Standing, standings
from sparrowmq.admin.catalogue import broker_figures, broker_settings, change_broker_settings
from sparrowmq.admin.findings import Finding
from sparrowmq.admin.groups import Group, GroupLag, Member, ResetTo
from sparrowmq.admin.servers import BrokerPlace, Servers
from sparrowmq.admin.topics import Topic, TopicPerm, TopicType
from sparrowmq.client.arguments import check_count, check_kind, check_seconds, check_text, check_texts
from sparrowmq.client.cluster.credentials import Credentials, Tls
from sparrowmq.client.cluster.network import Network
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.loop_affinity import checks_loop
from sparrowmq.client.tracebacks import short_tracebacks
from sparrowmq.errors import ConfigError
from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.messages.trace import Trace
from sparrowmq.protocol.names import TRACE_TOPIC, check_topic
from sparrowmq.protocol.requests.bodies import MOST_QUEUES, GroupConfig, TopicConfig
from sparrowmq.protocol.requests.group_settings import policy_of

TIMEOUT_S: Final = 5.0


@short_tracebacks
@checks_loop()
class Admin:
    """Asks and changes a cluster; use it in `async with`, or take `Client.admin`.

    All calls raise NetworkError if a server does not answer in time, RemoteError if it refuses, NoBroker for an unknown
    cluster or broker, and ConfigError if an argument is wrong. Without `cluster` a change needs that there is only one
    cluster, and everything else looks at all.

    Args:
        namesrv: name servers as `connect` takes them; or a client's network, which then lives as long as the client.
        timeout_s: the time limit of each server's answer.
        credentials, tls, namespace: as `connect` takes them; a client's network has its own. With a namespace all names
            are those inside it, and RocketMQ's own.
    Raises: ConfigError, there is no such address.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | Network | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        credentials: Credentials | None = None,
        tls: Tls = False,
        namespace: str = "",
        clock: Clock | None = None,
    ) -> None:
        self._own_network: Network | None = None
        if isinstance(namesrv, Network):
            network = namesrv
        else:
            network = self._own_network = Network(
                namesrv, credentials=credentials, tls=tls, namespace=namespace, clock=clock
            )
        check_seconds("timeout_s", timeout_s)
        self._loop_affinity = network.loop_affinity
        self._clock = clock or SystemClock()
        self._servers = Servers(network, timeout_s)
        self._full_topic, self._full_group = network.full_topic, network.full_group

    async def __aenter__(self) -> Self:
        if self._own_network is not None:
            await self._own_network.__aenter__()
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._own_network is not None:
            await self._own_network.__aexit__(error_type, error, trace)

    @property
    def servers(self) -> Servers:
        """The layer below, for tools that need a request without a call here."""
        return self._servers

    async def brokers(self, cluster: str | None = None) -> list[BrokerPlace]:
        """Return all brokers, or those of one cluster."""
        return await self._servers.brokers(cluster)

    async def standings(self, cluster: str | None = None, *, count: bool = False) -> list[Standing]:
        """Return the role of brokers and the lag of slaves; `count`: also in messages, by a request for each topic."""
        return await standings(self._servers, cluster, count)

    async def clusters(self) -> list[str]:
        return sorted({each.cluster for each in await self._servers.brokers()})

    async def examine(
        self, topic: str | None = None, group: str | None = None, expected: Collection[str] = ()
    ) -> list[Finding]:
        """Return the problems that `sparrowmq doctor` shows. The brokers named in `expected` have to be registered."""
        if topic is not None:
            self._full_topic(topic)
        check_texts("expected", expected)
        full_group = self._full_group(group) if group is not None else None
        return await doctor.examine(self._servers, topic, full_group, self._clock.now_ms, expected)

    async def broker_figures(self, broker: str) -> dict[str, str]:
        """Return a broker's figures by Java's names; `broker` is a name, whose master is asked, or an address."""
        return await broker_figures(self._servers, await brokers.address_of(self._servers, broker))

    async def broker_settings(self, broker: str) -> dict[str, str]:
        """Return a broker's settings by key; `broker` as above."""
        return await broker_settings(self._servers, await brokers.address_of(self._servers, broker))

    async def change_broker(self, broker: str, changes: Mapping[str, str]) -> None:
        """Change settings of a running broker, and for its next start; `broker` as above.
        Raises: RemoteError, one of them is wrong, or cannot be changed in a running broker; none was changed.
        """
        if not changes:
            raise ConfigError("nothing is to be changed; give settings by their keys")
        check_kind("changes", changes, Mapping, "settings by their keys, as {'fileReservedTime': '48'}")
        address = await brokers.address_of(self._servers, broker)
        await change_broker_settings(self._servers, address, changes)

    async def behind(self, broker: str) -> dict[str, int]:
        """Return, by group, the messages at a broker that it has still to consume; those that expired are left out."""
        return await brokers.lag_by_group(self._servers, await brokers.address_of(self._servers, broker))

    async def drain(self, broker: str) -> int:
        """Hide a broker from producers, not from consumers; returns the number of its topics.

        The broker keeps this in its settings file, so restarts do not end it; without a file it lasts until the broker
        ends. Apache's brokers do not know it: their name servers forget it at a restart. Raises: NoBroker,
        ChangeFailed.
        """
        return await brokers.drain(self._servers, broker)

    async def undrain(self, broker: str) -> int:
        """Show a broker to producers again."""
        return await brokers.undrain(self._servers, broker)

    async def forget_broker(self, broker: str) -> None:
        """Let name servers forget a broker that died and does not come back. Raises: AlreadyThere, it is registered."""
        await brokers.forget(self._servers, broker)

    async def hand_over(self, broker: str, member: int | None = None) -> int:
        """Let another member of a replicated group lead, by default the one that has most; return its brokerId.
        Raises: RemoteError, no other member, or not this one, is in sync.
        """
        return await brokers.hand_over(self._servers, broker, member or 0)

    async def elect(self, broker: str, member: int | None = None, *, force: bool = False) -> int:
        """Let a member of a replicated group lead with its log where no member can be elected. Return that member once
        it leads.

        Without `member` it chooses the one that has most. `force` gives up messages that only lost members have.

        Raises:
            RemoteError: there is a master, members in sync may come back, or another member has more.
            BrokerUnreachable: there is no such member, or none that is elected.
            ConfigError: `force` without a member, and the longest log is not that of the last epoch.
            NotElected: the member does not answer, or does not lead within 20 s; or one is to be chosen without
                `force`, and any of them does not answer.
        """
        if member is not None:
            check_count("member", member, at_least=0)
        check_kind("force", force, bool, "True or False")
        return await brokers.elect(self._servers, broker, member, force)

    async def topics(self, cluster: str | None = None, *, hidden: bool = False) -> list[str]:
        """Return the names of all topics, or of a cluster's; `hidden` adds retry topics, dead letters and others."""
        return await topics.names(self._servers, cluster, hidden)

    async def topic(self, name: str) -> Topic:
        """Return a topic with its settings at each broker, and the offsets of its queues. Raises: NoRoute."""
        return await topics.show(self._servers, self._full_topic(name))

    async def create_topic(
        self,
        name: str,
        *,
        queues: int = 8,
        perm: TopicPerm = "rw",
        cluster: str | None = None,
        exist_ok: bool = False,
        ordered: bool = False,
        message_type: TopicType | None = None,
    ) -> list[str]:
        """Create a topic at every master; returns their names.

        Args:
            queues: the number of queues on each broker.
            perm: what clients may do with it: "rw", "r", "w" or "none".
            exist_ok: replace the settings of an existing topic. An ordered topic stays ordered.
            ordered: keys keep their queue while a broker is away: a send with `fifo=` waits or fails. The queues are
                those of the brokers that are there now, and cannot be changed. All name servers are written, so name
                them all.
            message_type: the only type of messages that producers of 5.x may send, "NORMAL" by default; "MIXED" is all.
                Producers of the remoting protocol send any type.
        Raises: AlreadyThere, a master has it, and `exist_ok` is not given; InvalidName; ChangeFailed; ConfigError, the
        topic is ordered with another number of queues, or is to be ordered, and a name server does not give orders to
        clients, or `queues` is not from 1 to 65535.
        """
        check_count("queues", queues, at_most=MOST_QUEUES)
        check_kind("ordered", ordered, bool, "True or False")
        check_kind("exist_ok", exist_ok, bool, "True or False")
        config = TopicConfig(
            *(self._full_topic(name), queues, queues, topics.number_of(perm)),
            attributes=topics.attributes_of(message_type),
        )
        return await topics.create(self._servers, config, cluster, exist_ok, ordered)

    async def change_topic(
        self,
        name: str,
        *,
        queues: int | None = None,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: TopicPerm | None = None,
        message_type: TopicType | None = None,
        hide_unread: bool = False,
        cluster: str | None = None,
    ) -> list[str]:
        """Change a topic at every master that has it; without a value a setting stays. Returns their names.

        If queues that are to go have messages that a group has not consumed, only the write queues are lowered. With
        `hide_unread` the read queues are lowered all the same, and consumers do not see these messages any more.
        `queues` sets both counts.
        Raises: StillUnread, the read queues stay, try again when the messages are consumed; NoRoute, it does not exist;
        ChangeFailed; ConfigError, it is ordered, and another number of queues would move its keys.
        """
        for name_of_count, count in (("queues", queues), ("read_queues", read_queues), ("write_queues", write_queues)):
            if count is not None:
                check_count(name_of_count, count, at_least=0, at_most=MOST_QUEUES)
        check_kind("hide_unread", hide_unread, bool, "True or False")
        return await topics.change(
            self._servers,
            self._full_topic(name),
            cluster,
            read_queues=queues if read_queues is None else read_queues,
            write_queues=queues if write_queues is None else write_queues,
            perm=perm,
            message_type=message_type,
            hide_unread=hide_unread,
        )

    async def delete_topic(self, name: str, *, cluster: str | None = None) -> list[str]:
        """Delete a topic with its messages and its route; returns the masters' names. Raises: NoRoute, ChangeFailed."""
        return await topics.delete(self._servers, self._full_topic(name), cluster)

    async def groups(self, cluster: str | None = None, *, hidden: bool = False) -> list[str]:
        """Return the names of all consumer groups, or of a cluster's; `hidden` adds RocketMQ's own."""
        return await groups.names(self._servers, cluster, hidden)

    async def group(self, name: str) -> Group:
        """Return a group with its settings at each broker, and its online members. Raises: NoGroup."""
        return await groups.show(self._servers, self._full_group(name))

    async def create_group(
        self,
        name: str,
        *,
        max_retries: int = 16,
        retry_queues: int = 1,
        may_consume: bool = True,
        may_broadcast: bool = True,
        ordered: bool = False,
        retry_pauses: str | None = None,
        cluster: str | None = None,
        exist_ok: bool = False,
    ) -> list[str]:
        """Create a consumer group at every master; returns their names.

        Args:
            max_retries: failures before a message goes to the dead-letter queue.
            retry_queues: the number of queues of its retry topic on each broker; 0 is no retries.
            ordered: consumers of 5.x, and those that pop, get the messages of a queue in order.
            retry_pauses: the pauses before the tries: "10s 1m 5m", where the last one stays, or "5s..2h", where each
                is twice as long; None for the delay levels from 3 on.
            exist_ok: replace the settings of an existing group.
        Raises: AlreadyThere, a master has it, and `exist_ok` is not given; InvalidName; ChangeFailed.
        """
        config = GroupConfig(
            self._full_group(name),
            consume_enable=may_consume,
            consume_broadcast_enable=may_broadcast,
            retry_queue_nums=retry_queues,
            retry_max_times=max_retries,
            consume_message_orderly=ordered,
            group_retry_policy=policy_of(retry_pauses),
        )
        return await groups.create(self._servers, config, cluster, exist_ok)

    async def change_group(
        self,
        name: str,
        *,
        max_retries: int | None = None,
        retry_queues: int | None = None,
        may_consume: bool | None = None,
        may_broadcast: bool | None = None,
        ordered: bool | None = None,
        retry_pauses: str | None = None,
        cluster: str | None = None,
    ) -> list[str]:
        """Change a group at every master; without a value a setting stays. Returns their names. `retry_pauses` as in
        `create_group`; "levels" for the delay levels. Raises: NoGroup, ChangeFailed.
        """
        changes = {
            "retry_max_times": max_retries,
            "retry_queue_nums": retry_queues,
            "consume_enable": may_consume,
            "consume_broadcast_enable": may_broadcast,
            "consume_message_orderly": ordered,
            "group_retry_policy": None if retry_pauses is None else policy_of(retry_pauses),
        }
        return await groups.change(self._servers, self._full_group(name), cluster, changes)

    async def delete_group(self, name: str, *, cluster: str | None = None) -> list[str]:
        """Delete a group with its offsets, retries and dead letters; returns the masters. Raises: NoGroup,
        ChangeFailed.
        """
        return await groups.delete(self._servers, self._full_group(name), cluster)

    async def members(self, group: str) -> list[Member]:
        """Return the online members of a group with their own reports, by client id. Raises: NoGroup."""
        return await groups.members(self._servers, self._full_group(group))

    async def lag(self, group: str, topic: str | None = None) -> GroupLag:
        """Return the lag of a group, in one topic or in all that it consumes. Raises: NoGroup, NoRoute."""
        return await groups.lag(
            self._servers, self._full_group(group), None if topic is None else self._full_topic(topic)
        )

    async def reset(self, group: str, topic: str, to: ResetTo, *, dry_run: bool = False) -> dict[MessageQueue, int]:
        """Reset the offsets of a group, forward or back; returns the new offset of each queue.

        Brokers reset online members, which continue there within seconds. For members that are offline the offsets are
        committed in their place. `to` is "earliest", "latest", a time (the first message stored since; without a zone
        it is local), or an offset for each queue. Offsets are kept within the queue, and need that no member is online.
        `dry_run` only returns the new offsets. Raises: NoGroup, NoRoute.
        """
        if dry_run:
            await groups.show(self._servers, self._full_group(group))
            return await groups.targets(self._servers, self._full_topic(topic), to)
        return await groups.reset(self._servers, self._full_group(group), self._full_topic(topic), to)

    async def dead_letters(self, group: str, *, limit: int = 64) -> list[ReceivedMessage]:
        """Return the messages that failed every try, the oldest first, as long as brokers keep them."""
        check_count("limit", limit)
        return await dead_letters.of_group(self._servers, self._full_group(group), limit)

    async def resend(self, dead_letter: ReceivedMessage) -> None:
        """Let the group of a dead letter try it again, from the first time on; other groups do not get it.

        It stays in the dead-letter queue; sent again twice, it comes twice. Raises: InvalidMessage, it is no dead
        letter.
        """
        await dead_letters.resend(self._servers, dead_letter)

    async def replay(self, message: ReceivedMessage, group: str) -> None:
        """Let one group handle a message again, or for the first time; other groups do not get it.

        It comes by the group's retries, so not in the order of its queue; consumers in order do not get it.
        """
        await dead_letters.replay(self._servers, message, self._full_group(group))

    async def message(self, msg_id: str, topic: str | None = None) -> ReceivedMessage:
        """Return the message of an id: `SendResult.msg_id`, which needs its topic, or `offset_msg_id`, which does not.
        Raises: NoMessage, no broker has it (any more); NoRoute, there is no such topic.
        """
        return await message_search.by_id(self._servers, msg_id, None if topic is None else self._full_topic(topic))

    async def find(
        self,
        topic: str,
        key: str | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 64,
    ) -> list[ReceivedMessage]:
        """Return messages with a key, or those stored in a span of time, in the order of their storage.

        They were stored at or after `since` and before `until`; times without a zone are local. Without a key `since`
        is needed. At most `limit` messages come: the newest ones with the key, the oldest ones of the span. With a key
        each broker returns at most 64. Raises: NoRoute, there is no such topic.
        """
        check_count("limit", limit)
        topic = self._full_topic(topic)
        if key is not None:
            return await message_search.by_key(self._servers, topic, key, since, until, limit)
        if since is None:
            raise ConfigError("give a key, or a time with `since`; to read a whole topic use `pull_consumer`")
        return await message_search.by_time(self._servers, topic, since, until, limit)

    async def trace(self, msg_id: str, topic: str = TRACE_TOPIC) -> list[Trace]:
        """Return the traces of a message from producers and consumers, the oldest first.

        `msg_id` is that of a `SendResult`; `topic` is the trace topic that they report to, which is in no namespace.
        Raises: NoRoute, there is no such topic; brokers have it with traceTopicEnable=true.
        """
        check_text("topic", topic)
        return await message_search.traces(self._servers, check_topic(topic), msg_id)
