"""The catalogue of operations: every request that an operator sends to a server is built here, and nowhere else.

An operation builds its request, hands it to a sender, and decodes the answer. The sender chooses the connection and the
time limit, and raises its own errors: `Servers` raises ours, and the `Call` of mqadmin raises Java's.

    name servers    with `address` that one is asked, without it the first one that answers. Changes always need an
                    address, because each name server keeps its own state
    one broker      settings and figures, topics, groups, messages; its accounts of 4.x, and its users and policies
                    (ACL 2.0), of which slaves have those of their master

Source: the classes of org.apache.rocketmq.tools.command, Java 4.9.8 and 5.4.0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from sparrowmq.client.cluster.routes import of_brokers
from sparrowmq.client.consuming import pulling
from sparrowmq.errors import RemoteError, RemoteProtocolError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.attributes import text_of
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.names import CONDITIONS, DEFAULT_TOPIC, LOST_BROKERS, TOOLS_GROUP
from sparrowmq.protocol.requests import settings_text
from sparrowmq.protocol.requests.admin_headers import (
    CleanExpiredConsumeQueue,
    CleanUnusedTopic,
    DeleteAclConfig,
    DeleteExpiredCommitLog,
    DeleteSubscriptionGroup,
    DeleteTopic,
    GetAllProducers,
    GetAllSubscriptionGroup,
    GetAllTopicConfig,
    GetBrokerClusterAcl,
    GetBrokerClusterAclConfig,
    GetBrokerClusterAclReply,
    GetBrokerConfig,
    GetBrokerConsumeStats,
    GetBrokerRuntime,
    GetConsumerConnectionList,
    GetConsumeStats,
    GetDiagnosis,
    GetHaStatus,
    GetProducerConnectionList,
    GetSystemTopicListFromBroker,
    GetTopicConfig,
    GetTopicStats,
    QueryConsumeQueue,
    QueryTopicConsumeByWho,
    ResetOffset,
    RestartBroker,
    UpdateAndCreateAclConfig,
    UpdateAndCreateSubscriptionGroup,
    UpdateAndCreateTopic,
    UpdateBrokerConfig,
    UpdateGlobalWhiteAddrsConfig,
    ViewBrokerStats,
)
from sparrowmq.protocol.requests.bodies import (
    OWN_VERSION,
    PROTOCOL_RELEASE,
    AccountList,
    BrokerStats,
    ClusterTable,
    GroupConfig,
    GroupConfigTable,
    GroupList,
    HaStatus,
    KVTable,
    LostBroker,
    QueueEntries,
    TopicConfig,
    TopicConfigTable,
    TopicList,
    TopicRoute,
)
from sparrowmq.protocol.requests.client_bodies import (
    ConsumeOutcome,
    ConsumerConnections,
    ConsumerRunning,
    ProducerConnections,
    ProducerEntry,
    ProducerTable,
    RequestMode,
)
from sparrowmq.protocol.requests.headers import (
    FIRST_AT_OR_AFTER,
    ConsumeMessageDirectly,
    GetConsumerRunning,
    GetMaxOffset,
    GetMinOffset,
    QueryMessage,
    SearchOffset,
    UpdateConsumerOffset,
    ViewMessage,
)
from sparrowmq.protocol.requests.namesrv_headers import (
    AddWritePermOfBroker,
    DeleteKVConfig,
    DeleteTopicInNamesrv,
    GetAllTopicListFromNameserver,
    GetBrokerCluster,
    GetKVConfig,
    GetKVListByNamespace,
    GetNamesrvConfig,
    GetRoute,
    GetSystemTopicListFromNs,
    GetTopicsByCluster,
    PutKVConfig,
    UpdateNamesrvConfig,
    WipeWritePermOfBroker,
)
from sparrowmq.protocol.requests.offset_bodies import (
    BrokerConsumeStats,
    ConsumeStats,
    ResetOffsets,
    TopicOffset,
    TopicStats,
)
from sparrowmq.protocol.requests.pop_headers import SetRequestMode
from sparrowmq.protocol.requests.user_headers import (
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetUser,
    ListAcls,
    ListUsers,
    Policy,
    UpdateAcl,
    UpdateUser,
    UserEntry,
    UserPolicies,
    decode_policies,
    decode_users,
)
from sparrowmq.protocol.subscription import ALL, TAG, Subscription, check_tags
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.request_in_flight import Response

R = TypeVar("R", bound=Header)

PATIENT: Final = 3  # Java's tools wait so many times as long for an answer that takes a broker long

_VERY_PATIENT = 10  # a broker goes through all groups and queues

_LINES: Final = LogLimit(SystemClock())  # about damaged answers, of all readers in this program

PAGE: Final = 32  # Apache's brokers give no more at once


class Asker(Protocol):
    """Sends requests to the servers of one cluster."""

    async def ask(
        self,
        address: str,
        request: Request[R],
        body: bytes = b"",
        *,
        accept: Collection[int] = (),
        patience: int = 1,
    ) -> Response[R]:
        """Return the answer of one broker.

        Args:
            accept: response codes besides 0 that are no error.
            patience: a multiple of the usual time limit; an asker may ignore it.
        """

    async def ask_namesrv(
        self,
        request: Request[R],
        body: bytes = b"",
        *,
        accept: Collection[int] = (),
        address: str | None = None,
    ) -> Response[R]:
        """Return the answer of the name server at an address; without an address of the first one that answers."""


@dataclass(frozen=True, slots=True)
class Page:
    """The answer to one pull.

    Attributes:
        code: SUCCESS, or one of `pulling.ACCEPTED`.
        next_offset: the offset of the next page.
    """

    code: int
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[StoredMessage]


# Name servers ---------------------------------------------------------------------------------------------------------


async def cluster_table(asker: Asker, address: str | None = None) -> ClusterTable:
    """Return all brokers with their addresses. The address of one that a proxy hides names the broker."""
    table = ClusterTable.decode((await asker.ask_namesrv(GetBrokerCluster(), address=address)).body)
    rows = of_brokers(table.broker_addr_table.values(), names_brokers=table.names_brokers)
    return replace(table, broker_addr_table=dict(zip(table.broker_addr_table, rows, strict=True)))


async def topic_route(asker: Asker, topic: str, address: str | None = None) -> TopicRoute | None:
    """Return the brokers that have a topic, with addresses as in `cluster_table`; None if none has."""
    request = GetRoute(topic=topic, accept_standard_json_only=True)
    answer = await asker.ask_namesrv(request, accept=(ResponseCode.TOPIC_NOT_EXIST,), address=address)
    if answer.code:
        return None
    route = TopicRoute.decode(answer.body)
    return replace(route, broker_datas=of_brokers(route.broker_datas, names_brokers=route.names_brokers))


async def topic_names(asker: Asker, cluster: str | None = None) -> list[str]:
    request = GetAllTopicListFromNameserver() if cluster is None else GetTopicsByCluster(cluster=cluster)
    return TopicList.decode((await asker.ask_namesrv(request)).body).topic_list


async def system_topics_of_cluster(asker: Asker) -> TopicList:
    """Return the names of clusters and brokers, which are topics, and the address of a broker."""
    return TopicList.decode((await asker.ask_namesrv(GetSystemTopicListFromNs())).body)


async def delete_route(asker: Asker, address: str, topic: str, cluster: str | None) -> None:
    """Delete a topic's route: brokers only ever add to it."""
    await asker.ask_namesrv(DeleteTopicInNamesrv(topic=topic, cluster_name=cluster), address=address)


async def hide_from_producers(asker: Asker, address: str, broker: str) -> int:
    """Take the write permission of a broker out of all routes; returns the number of topics."""
    return (await asker.ask_namesrv(WipeWritePermOfBroker(broker), address=address)).header.wipe_topic_count


async def show_to_producers(asker: Asker, address: str, broker: str) -> int:
    """Give a broker its write permission back in all routes; returns the number of topics."""
    return (await asker.ask_namesrv(AddWritePermOfBroker(broker), address=address)).header.add_topic_count


async def value_of(asker: Asker, namespace: str, key: str) -> str | None:
    return (await asker.ask_namesrv(GetKVConfig(namespace, key))).header.value


async def values_of(asker: Asker, namespace: str, address: str) -> dict[str, str]:
    request = GetKVListByNamespace(namespace)
    answer = await asker.ask_namesrv(request, accept=(ResponseCode.QUERY_NOT_FOUND,), address=address)
    return {} if answer.code else KVTable.decode(answer.body).table


async def lost_brokers(asker: Asker, address: str) -> dict[str, LostBroker]:
    """Return the brokers by name that died, as a name server remembers; Apache's remember none."""
    found = await values_of(asker, LOST_BROKERS, address)
    return {name: LostBroker.decode(text.encode()) for name, text in found.items()}


async def conditions_of_namesrv(asker: Asker, address: str) -> dict[str, str]:
    """Return what is wrong with a name server, in the form of a brokerStatus; Apache's do not say."""
    return await values_of(asker, CONDITIONS, address)


async def put_value(asker: Asker, address: str, namespace: str, key: str, value: str) -> None:
    await asker.ask_namesrv(PutKVConfig(namespace, key, value), address=address)


async def delete_value(asker: Asker, address: str, namespace: str, key: str) -> None:
    await asker.ask_namesrv(DeleteKVConfig(namespace, key), address=address)


async def namesrv_settings(asker: Asker, address: str) -> dict[str, str]:
    """Return a name server's settings by key."""
    return dict(settings_text.parse((await asker.ask_namesrv(GetNamesrvConfig(), address=address)).body))


async def namesrv_diagnosis(asker: Asker, address: str) -> dict[str, str]:
    """Return what a name server of ours says of its process."""
    return KVTable.decode((await asker.ask_namesrv(GetDiagnosis(), address=address)).body).table


async def change_namesrv_settings(asker: Asker, address: str, changes: Mapping[str, str]) -> None:
    await asker.ask_namesrv(UpdateNamesrvConfig(), settings_text.render(changes), address=address)


# A broker -------------------------------------------------------------------------------------------------------------


async def broker_figures(asker: Asker, address: str) -> dict[str, str]:
    """Return all figures by Java's names: `putTps`, `msgPutTotalTodayNow` and so on."""
    return KVTable.decode((await asker.ask(address, GetBrokerRuntime())).body).table


def version_of(figures: Mapping[str, str]) -> str | None:
    """Return a broker's own version. One of Apache only names its release."""
    return figures.get(OWN_VERSION) or figures.get(PROTOCOL_RELEASE)


async def broker_ha_status(asker: Asker, address: str) -> HaStatus:
    """Return the state of replication at a broker."""
    return HaStatus.decode((await asker.ask(address, GetHaStatus())).body)


async def broker_diagnosis(asker: Asker, address: str) -> dict[str, str]:
    """Return what a broker of ours says of its process."""
    return KVTable.decode((await asker.ask(address, GetDiagnosis())).body).table


async def broker_statistic(asker: Asker, address: str, name: str, key: str) -> BrokerStats:
    """Return one figure over the last minute, hour and day, such as `TOPIC_PUT_NUMS` of a topic.

    A broker that has counted nothing for the key answers with an error.
    """
    return BrokerStats.decode((await asker.ask(address, ViewBrokerStats(name, key))).body)


async def broker_settings(asker: Asker, address: str) -> dict[str, str]:
    return dict(settings_text.parse((await asker.ask(address, GetBrokerConfig())).body))


async def change_broker_settings(asker: Asker, address: str, changes: Mapping[str, str]) -> None:
    """Change settings of a running broker, and for its next start."""
    await asker.ask(address, UpdateBrokerConfig(), settings_text.render(changes))


async def restart_broker(asker: Asker, address: str, began_ms: int) -> None:
    """Let a broker end in order and begin again, if it has begun at this time; Apache's cannot."""
    await asker.ask(address, RestartBroker(boot_timestamp=began_ms))


async def progress_of_all_groups(asker: Asker, address: str, *, only_ordered: bool = False) -> BrokerConsumeStats:
    """Return the offsets of every group that has consumed at a broker."""
    request = GetBrokerConsumeStats(is_order=only_ordered)
    return BrokerConsumeStats.decode((await asker.ask(address, request, patience=_VERY_PATIENT)).body)


async def producers(asker: Asker, address: str) -> dict[str, list[ProducerEntry]]:
    return ProducerTable.decode((await asker.ask(address, GetAllProducers())).body).data


async def producer_connections(asker: Asker, address: str, group: str) -> ProducerConnections:
    return ProducerConnections.decode((await asker.ask(address, GetProducerConnectionList(group))).body)


async def queue_entries(asker: Asker, address: str, request: QueryConsumeQueue) -> QueueEntries:
    """Return entries of a consume queue: where its messages are stored, and the hashes of their tags.

    Raises: RemoteError, the queue has no entry at this index. Apache's broker says so in the remark of a success.
    """
    answer = await asker.ask(address, request)
    if not answer.body:
        remark = answer.remark or f"Index {request.index} of {request.queue_id}@{request.topic} is not exist!"
        raise RemoteError(ResponseCode.SYSTEM_ERROR, remark)
    return QueueEntries.decode(answer.body)


async def clean_expired_queues(asker: Asker, address: str) -> None:
    """Delete the consume queue entries of messages that are gone."""
    await asker.ask(address, CleanExpiredConsumeQueue())


async def clean_unused_topics(asker: Asker, address: str) -> None:
    """Delete the queues of topics that do not exist."""
    await asker.ask(address, CleanUnusedTopic())


async def delete_expired_log(asker: Asker, address: str) -> None:
    """Delete the log files that are older than the retention."""
    await asker.ask(address, DeleteExpiredCommitLog())


# Topics ---------------------------------------------------------------------------------------------------------------


async def topic_table(asker: Asker, address: str) -> dict[str, TopicConfig]:
    """Return all topics of a broker. Raises: RemoteProtocolError, it gives some again and again, and never the rest."""
    found: dict[str, TopicConfig] = {}
    while True:
        # Brokers of 5.x give some at a time with the total; those of 4.9 give all, without a total.
        answer = await asker.ask(address, GetAllTopicConfig(topic_seq=len(found) or None))
        page = TopicConfigTable.decode(answer.body).topic_config_table
        total = answer.header.total_topic_num
        if total is not None and page and page.keys() <= found.keys():
            raise RemoteProtocolError(f"the broker says that it has {total} topics, and gives {len(found)} of them")
        found |= page
        if not page or total is None or len(found) >= total:
            return found


async def topic_config(asker: Asker, address: str, topic: str) -> TopicConfig:
    """Return one topic. Brokers of 4.9 do not know the request. Raises: RemoteError."""
    return TopicConfig.decode((await asker.ask(address, GetTopicConfig(topic))).body)


async def put_topic(
    asker: Asker,
    address: str,
    topic: TopicConfig,
    attributes: Mapping[str, str] | None = None,
    *,
    modification: str | None = None,
) -> None:
    """Create a topic, or replace its settings.

    Args:
        attributes: those to set. The others stay as they are, those of `topic` too: brokers refuse to set some again.
        modification: the changes in the protocol's form instead, as `+a=b,-c`.
    """
    request = UpdateAndCreateTopic(
        topic=topic.topic_name,
        read_queue_nums=topic.read_queue_nums,
        write_queue_nums=topic.write_queue_nums,
        perm=topic.perm,
        default_topic=DEFAULT_TOPIC,
        topic_filter_type=topic.topic_filter_type,
        topic_sys_flag=topic.topic_sys_flag,
        order=topic.order,
        attributes=modification or text_of(attributes),
    )
    await asker.ask(address, request)


async def delete_topic(asker: Asker, address: str, topic: str) -> None:
    """Delete a topic with its messages; an absent topic is no error."""
    await asker.ask(address, DeleteTopic(topic=topic))


async def topic_offsets(asker: Asker, address: str, topic: str) -> dict[MessageQueue, TopicOffset]:
    return TopicStats.decode((await asker.ask(address, GetTopicStats(topic=topic))).body).offset_table


async def groups_of_topic(asker: Asker, address: str, topic: str) -> list[str]:
    """Return the groups that consume a topic, or have."""
    return GroupList.decode((await asker.ask(address, QueryTopicConsumeByWho(topic=topic))).body).group_list


async def system_topics_of_broker(asker: Asker, address: str) -> list[str]:
    return TopicList.decode((await asker.ask(address, GetSystemTopicListFromBroker())).body).topic_list


# Groups ---------------------------------------------------------------------------------------------------------------


async def group_table(asker: Asker, address: str) -> dict[str, GroupConfig]:
    answer = await asker.ask(address, GetAllSubscriptionGroup())
    return GroupConfigTable.decode(answer.body).subscription_group_table


async def put_group(asker: Asker, address: str, group: GroupConfig) -> None:
    """Create a group, or replace its settings. Attributes that it does not have stay as they are."""
    signed = {f"+{name}": value for name, value in (group.attributes or {}).items()} or None
    body = msgspec.structs.replace(group, attributes=signed).encode()
    await asker.ask(address, UpdateAndCreateSubscriptionGroup(), body)


async def put_request_mode(asker: Asker, address: str, mode: RequestMode) -> None:
    """Let a group pull or pop a topic, where the broker shares queues. Brokers of 4.9 do not know the request."""
    await asker.ask(address, SetRequestMode(), mode.encode())


async def delete_group(asker: Asker, address: str, group: str, *, with_offsets: bool) -> None:
    # Brokers of 4.9 read `remove_offset`, those of 5.x `clean_offset`.
    request = DeleteSubscriptionGroup(group, remove_offset=with_offsets, clean_offset=with_offsets)
    await asker.ask(address, request)


async def group_progress(asker: Asker, address: str, group: str, topic: str | None = None) -> ConsumeStats:
    """Return the offsets of a group in one topic or in all, and its messages per second."""
    request = GetConsumeStats(consumer_group=group, topic=topic)
    return ConsumeStats.decode((await asker.ask(address, request, patience=PATIENT)).body)


async def group_connections(asker: Asker, address: str, group: str) -> ConsumerConnections:
    """Return the online members; without any a broker answers CONSUMER_NOT_ONLINE (206)."""
    request = GetConsumerConnectionList(consumer_group=group)
    return ConsumerConnections.decode((await asker.ask(address, request)).body)


async def running_member(
    asker: Asker, address: str, group: str, client_id: str, *, jstack: bool = False
) -> ConsumerRunning:
    """Return what a member reports of itself; the broker asks it."""
    request = GetConsumerRunning(consumer_group=group, client_id=client_id, jstack_enable=jstack)
    return ConsumerRunning.decode((await asker.ask(address, request, patience=PATIENT)).body)


async def consume_directly(
    asker: Asker,
    address: str,
    group: str,
    client_id: str,
    offset_id: str,
    broker_name: str | None = None,
) -> ConsumeOutcome:
    """Let one member handle a message now, independent of its offsets; return the outcome."""
    request = ConsumeMessageDirectly(
        consumer_group=group, client_id=client_id, msg_id=offset_id, broker_name=broker_name
    )
    return ConsumeOutcome.decode((await asker.ask(address, request, patience=PATIENT)).body)


async def reset_members(
    asker: Asker, address: str, group: str, topic: str, timestamp: int, *, force: bool = True
) -> dict[MessageQueue, int]:
    """Reset the online members to a time; -1 is the end. Returns the new offsets.

    Args:
        force: also forward; without it only back.
    """
    request = ResetOffset(topic=topic, group=group, timestamp=timestamp, is_force=force)
    return ResetOffsets.decode((await asker.ask(address, request)).body).offset_table


async def commit_offset(asker: Asker, address: str, group: str, queue: MessageQueue, offset: int) -> None:
    """Commit an offset in place of a group."""
    request = UpdateConsumerOffset(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
    )
    await asker.ask(address, request)


# Messages -------------------------------------------------------------------------------------------------------------


async def view_message(asker: Asker, address: str, physical_offset: int) -> StoredMessage:
    return record.decode((await asker.ask(address, ViewMessage(offset=physical_offset))).body)


async def query_messages(asker: Asker, address: str, request: QueryMessage) -> list[StoredMessage]:
    """Return the messages whose key has the same hash, so possibly others too.

    A broker without any answers QUERY_NOT_FOUND (22), an error.
    """
    return [record.decode(each) for each in record.walk((await asker.ask(address, request)).body)]


async def min_offset(asker: Asker, address: str, queue: MessageQueue) -> int:
    answer = await asker.ask(address, GetMinOffset(topic=queue.topic, queue_id=queue.queue_id))
    return answer.header.offset


async def max_offset(asker: Asker, address: str, queue: MessageQueue) -> int:
    """Return the offset that the next message will get."""
    answer = await asker.ask(address, GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id))
    return answer.header.offset


async def offset_since(
    asker: Asker,
    address: str,
    queue: MessageQueue,
    timestamp_ms: int,
) -> int:
    """Return the offset of the first message that was stored at a time or later."""
    request = SearchOffset(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, boundary_type=FIRST_AT_OR_AFTER
    )
    return (await asker.ask(address, request)).header.offset


async def pull_page(
    asker: Asker,
    address: str,
    queue: MessageQueue,
    offset: int,
    *,
    expression: str = ALL,
    count: int = PAGE,
    group: str = TOOLS_GROUP,
) -> Page:
    """Return messages of a queue from an offset on; the broker does not wait for new ones.

    Args:
        expression: only messages with these tags.
    Raises:
        RemoteProtocolError: a reader that goes on at the page's next offset would never come to an end.
    """
    check_tags(expression)
    wanted = Subscription.build(queue.topic, expression, TAG, 0)
    request = pulling.request(group, queue, offset, wanted, count=count, hold_s=0)
    answer = await asker.ask(address, request, accept=pulling.ACCEPTED)
    header = answer.header
    if answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
        pulling.demand_progress(queue, offset, header.next_begin_offset)
    messages = [each.stored for each in pulling.messages_in(answer.body, queue, wanted, _LINES)]
    return Page(answer.code, header.next_begin_offset, header.min_offset, header.max_offset, messages)


# Accounts of 4.x: each broker has its own -----------------------------------------------------------------------------


async def accounts(asker: Asker, address: str) -> AccountList:
    return AccountList.decode((await asker.ask(address, GetBrokerClusterAclConfig())).body)


async def account_versions(asker: Asker, address: str) -> GetBrokerClusterAclReply:
    return (await asker.ask(address, GetBrokerClusterAcl())).header


async def put_account(asker: Asker, address: str, account: UpdateAndCreateAclConfig) -> None:
    """Create an account, or change the given fields of one."""
    await asker.ask(address, account)


async def delete_account(asker: Asker, address: str, access_key: str) -> None:
    await asker.ask(address, DeleteAclConfig(access_key))


async def set_white_addresses(asker: Asker, address: str, patterns: str, file: str | None = None) -> None:
    """Replace the addresses that need no account.

    Args:
        patterns: with commas between them.
        file: the broker's file with accounts, if it has several.
    """
    await asker.ask(address, UpdateGlobalWhiteAddrsConfig(patterns, file))


# Users and policies of 5.x --------------------------------------------------------------------------------------------


async def user(asker: Asker, address: str, name: str) -> UserEntry | None:
    body = (await asker.ask(address, GetUser(name))).body
    return UserEntry.decode(body) if body else None


async def users(asker: Asker, address: str, part: str = "") -> list[UserEntry]:
    """Return the users whose names contain a text."""
    return decode_users(bytes((await asker.ask(address, ListUsers(part or None))).body))


async def create_user(asker: Asker, address: str, entry: UserEntry) -> None:
    await asker.ask(address, CreateUser(entry.username), entry.encode())


async def update_user(asker: Asker, address: str, entry: UserEntry) -> None:
    await asker.ask(address, UpdateUser(entry.username), entry.encode())


async def delete_user(asker: Asker, address: str, name: str) -> None:
    await asker.ask(address, DeleteUser(name))


async def policies(asker: Asker, address: str, subject: str) -> UserPolicies | None:
    body = (await asker.ask(address, GetAcl(subject))).body
    return UserPolicies.decode(body) if body else None


async def all_policies(asker: Asker, address: str, subject: str = "", resource: str = "") -> list[UserPolicies]:
    """Return the policies whose subject and resources contain the texts."""
    request = ListAcls(subject or None, resource or None)
    return decode_policies(bytes((await asker.ask(address, request)).body))


async def create_policies(asker: Asker, address: str, subject: str, policies: list[Policy]) -> None:
    await asker.ask(address, CreateAcl(subject), UserPolicies(subject, policies).encode())


async def update_policies(asker: Asker, address: str, subject: str, policies: list[Policy]) -> None:
    """Likewise; entries of the same resource are replaced."""
    await asker.ask(address, UpdateAcl(subject), UserPolicies(subject, policies).encode())


async def delete_policies(asker: Asker, address: str, subject: str, resource: str | None) -> None:
    """Delete the entry of a resource, or all policies of a subject."""
    await asker.ask(address, DeleteAcl(subject, resource=resource))
