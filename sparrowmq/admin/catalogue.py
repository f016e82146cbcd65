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

from sparrowmq.client.cluster.routes import with_proxy_addresses
from sparrowmq.errors import RemoteError, RemoteProtocolError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.attributes import text_of
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.names import CONDITIONS, DEFAULT_TOPIC, LOST_BROKERS, TOOLS_GROUP
from sparrowmq.protocol.requests import (
    admin_headers,
    bodies,
    client_bodies,
    headers,
    namesrv_headers,
    offset_bodies,
    pop_headers,
    settings_text,
    user_headers,
)
from sparrowmq.protocol.subscription import ALL, TAG, Subscription, check_tags
from sparrowmq.protocol.wire.header import Header, Request
from sparrowmq.remoting.log_limit import LogLimit
from sparrowmq.remoting.request_in_flight import Response

R = TypeVar("R", bound=Header)
SLOW_ANSWER: Final = 3  # Java's tools wait so many times as long for an answer that takes a broker long
_VERY_SLOW_ANSWER = 10  # a broker goes through all groups and queues
_LOG_LIMIT: Final = LogLimit(SystemClock())  # about damaged answers, of all readers in this program
PAGE: Final = 32  # Apache's brokers give no more at once


class RequestSender(Protocol):
    """Sends requests to the servers of one cluster."""

    async def ask(
        self,
        address: str,
        request: Request[R],
        body: bytes = b"",
        *,
        accept: Collection[int] = (),
        timeout_factor: int = 1,
    ) -> Response[R]:
        """Return the answer of one broker; `accept` has codes that are no error. A sender may ignore the factor."""

    async def ask_namesrv(
        self, request: Request[R], body: bytes = b"", *, accept: Collection[int] = (), address: str | None = None
    ) -> Response[R]:
        """Return the answer of the name server at an address; without an address of the first one that answers."""


@dataclass(frozen=True, slots=True)
class Page:
    """The answer to one pull. `code` is SUCCESS, or one of `pulling.ACCEPTED`."""

    code: int
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[StoredMessage]


async def cluster_table(sender: RequestSender, address: str | None = None) -> bodies.ClusterTable:
    """Return all brokers with their addresses. The address of one that a proxy hides names the broker."""
    table = bodies.ClusterTable.decode(
        (await sender.ask_namesrv(namesrv_headers.GetBrokerCluster(), address=address)).body
    )
    rows = with_proxy_addresses(table.broker_addr_table.values(), names_brokers=table.names_brokers)
    return replace(table, broker_addr_table=dict(zip(table.broker_addr_table, rows, strict=True)))


async def topic_route(sender: RequestSender, topic: str, address: str | None = None) -> bodies.TopicRoute | None:
    """Return the brokers that have a topic, with addresses as in `cluster_table`; None if none has."""
    request = namesrv_headers.GetRoute(topic=topic, accept_standard_json_only=True)
    answer = await sender.ask_namesrv(request, accept=(ResponseCode.TOPIC_NOT_EXIST,), address=address)
    if answer.code:
        return None
    route = bodies.TopicRoute.decode(answer.body)
    return replace(route, broker_datas=with_proxy_addresses(route.broker_datas, names_brokers=route.names_brokers))


async def topic_names(sender: RequestSender, cluster: str | None = None) -> list[str]:
    request = (
        namesrv_headers.GetAllTopicListFromNameserver()
        if cluster is None
        else namesrv_headers.GetTopicsByCluster(cluster=cluster)
    )
    return bodies.TopicList.decode((await sender.ask_namesrv(request)).body).topic_list


async def system_topics_of_cluster(sender: RequestSender) -> bodies.TopicList:
    """Return the names of clusters and brokers, which are topics, and the address of a broker."""
    return bodies.TopicList.decode((await sender.ask_namesrv(namesrv_headers.GetSystemTopicListFromNs())).body)


async def delete_route(sender: RequestSender, address: str, topic: str, cluster: str | None) -> None:
    """Delete a topic's route: brokers only ever add to it."""
    await sender.ask_namesrv(namesrv_headers.DeleteTopicInNamesrv(topic=topic, cluster_name=cluster), address=address)


async def hide_from_producers(sender: RequestSender, address: str, broker: str) -> int:
    """Take the write permission of a broker out of all routes; returns the number of topics."""
    return (
        await sender.ask_namesrv(namesrv_headers.WipeWritePermOfBroker(broker), address=address)
    ).header.wipe_topic_count


async def show_to_producers(sender: RequestSender, address: str, broker: str) -> int:
    """Give a broker its write permission back in all routes; returns the number of topics."""
    return (
        await sender.ask_namesrv(namesrv_headers.AddWritePermOfBroker(broker), address=address)
    ).header.add_topic_count


async def value_of(sender: RequestSender, namespace: str, key: str) -> str | None:
    return (await sender.ask_namesrv(namesrv_headers.GetKVConfig(namespace, key))).header.value


async def values_of(sender: RequestSender, namespace: str, address: str) -> dict[str, str]:
    request = namesrv_headers.GetKVListByNamespace(namespace)
    answer = await sender.ask_namesrv(request, accept=(ResponseCode.QUERY_NOT_FOUND,), address=address)
    return {} if answer.code else bodies.KVTable.decode(answer.body).table


async def lost_brokers(sender: RequestSender, address: str) -> dict[str, bodies.LostBroker]:
    """Return the brokers by name that died, as a name server remembers; Apache's remember none."""
    texts = await values_of(sender, LOST_BROKERS, address)
    return {name: bodies.LostBroker.decode(text.encode()) for name, text in texts.items()}


async def conditions_of_namesrv(sender: RequestSender, address: str) -> dict[str, str]:
    """Return the conditions of a name server, in the form of a brokerStatus; Apache's report none."""
    return await values_of(sender, CONDITIONS, address)


async def put_value(sender: RequestSender, address: str, namespace: str, key: str, value: str) -> None:
    await sender.ask_namesrv(namesrv_headers.PutKVConfig(namespace, key, value), address=address)


async def delete_value(sender: RequestSender, address: str, namespace: str, key: str) -> None:
    await sender.ask_namesrv(namesrv_headers.DeleteKVConfig(namespace, key), address=address)


async def namesrv_settings(sender: RequestSender, address: str) -> dict[str, str]:
    return dict(
        settings_text.parse((await sender.ask_namesrv(namesrv_headers.GetNamesrvConfig(), address=address)).body)
    )


async def namesrv_diagnosis(sender: RequestSender, address: str) -> dict[str, str]:
    return bodies.KVTable.decode((await sender.ask_namesrv(admin_headers.GetDiagnosis(), address=address)).body).table


async def change_namesrv_settings(sender: RequestSender, address: str, changes: Mapping[str, str]) -> None:
    await sender.ask_namesrv(namesrv_headers.UpdateNamesrvConfig(), settings_text.render(changes), address=address)


async def broker_figures(sender: RequestSender, address: str) -> dict[str, str]:
    """Return all figures by Java's names: `putTps`, `msgPutTotalTodayNow` and so on."""
    return bodies.KVTable.decode((await sender.ask(address, admin_headers.GetBrokerRuntime())).body).table


def version_of(figures: Mapping[str, str]) -> str | None:
    """Return a broker's own version. One of Apache only names its release."""
    return figures.get(bodies.OWN_VERSION) or figures.get(bodies.PROTOCOL_RELEASE)


async def broker_ha_status(sender: RequestSender, address: str) -> bodies.HaStatus:
    return bodies.HaStatus.decode((await sender.ask(address, admin_headers.GetHaStatus())).body)


async def broker_diagnosis(sender: RequestSender, address: str) -> dict[str, str]:
    """Return the logs and stacks of a broker of ours."""
    return bodies.KVTable.decode((await sender.ask(address, admin_headers.GetDiagnosis())).body).table


async def broker_statistic(sender: RequestSender, address: str, name: str, key: str) -> bodies.BrokerStats:
    """Return one figure over the last minute, hour and day. A broker that has counted nothing answers with an error."""
    return bodies.BrokerStats.decode((await sender.ask(address, admin_headers.ViewBrokerStats(name, key))).body)


async def broker_settings(sender: RequestSender, address: str) -> dict[str, str]:
    return dict(settings_text.parse((await sender.ask(address, admin_headers.GetBrokerConfig())).body))


async def change_broker_settings(sender: RequestSender, address: str, changes: Mapping[str, str]) -> None:
    """Change settings of a running broker, and for its next start."""
    await sender.ask(address, admin_headers.UpdateBrokerConfig(), settings_text.render(changes))


async def restart_broker(sender: RequestSender, address: str, began_ms: int) -> None:
    """Let a broker end in order and begin again, if it has begun at this time; Apache's cannot."""
    await sender.ask(address, admin_headers.RestartBroker(boot_timestamp=began_ms))


async def progress_of_all_groups(
    sender: RequestSender, address: str, *, only_ordered: bool = False
) -> offset_bodies.BrokerConsumeStats:
    """Return the offsets of every group that has consumed at a broker."""
    request = admin_headers.GetBrokerConsumeStats(is_order=only_ordered)
    return offset_bodies.BrokerConsumeStats.decode(
        (await sender.ask(address, request, timeout_factor=_VERY_SLOW_ANSWER)).body
    )


async def producers(sender: RequestSender, address: str) -> dict[str, list[client_bodies.ProducerEntry]]:
    return client_bodies.ProducerTable.decode((await sender.ask(address, admin_headers.GetAllProducers())).body).data


async def producer_connections(sender: RequestSender, address: str, group: str) -> client_bodies.ProducerConnections:
    return client_bodies.ProducerConnections.decode(
        (await sender.ask(address, admin_headers.GetProducerConnectionList(group))).body
    )


async def queue_entries(
    sender: RequestSender, address: str, request: admin_headers.QueryConsumeQueue
) -> bodies.QueueEntries:
    """Return entries of a consume queue: where its messages are stored, and the hashes of their tags.

    Raises: RemoteError, the queue has no entry at this index. Apache's broker says so in the remark of a success.
    """
    answer = await sender.ask(address, request)
    if not answer.body:
        remark = answer.remark or f"Index {request.index} of {request.queue_id}@{request.topic} is not exist!"
        raise RemoteError(ResponseCode.SYSTEM_ERROR, remark)
    return bodies.QueueEntries.decode(answer.body)


async def clean_expired_queues(sender: RequestSender, address: str) -> None:
    """Delete the consume queue entries of messages that are gone."""
    await sender.ask(address, admin_headers.CleanExpiredConsumeQueue())


async def clean_unused_topics(sender: RequestSender, address: str) -> None:
    await sender.ask(address, admin_headers.CleanUnusedTopic())


async def delete_expired_log(sender: RequestSender, address: str) -> None:
    """Delete the log files that are older than the retention."""
    await sender.ask(address, admin_headers.DeleteExpiredCommitLog())


async def topic_table(sender: RequestSender, address: str) -> dict[str, bodies.TopicConfig]:
    """Return all topics of a broker. Raises: RemoteProtocolError, it keeps returning the same page."""
    topics: dict[str, bodies.TopicConfig] = {}
    while True:
        # Brokers of 5.x give some at a time with the total; those of 4.9 give all, without a total.
        answer = await sender.ask(address, admin_headers.GetAllTopicConfig(topic_seq=len(topics) or None))
        page = bodies.TopicConfigTable.decode(answer.body).topic_config_table
        total = answer.header.total_topic_num
        if total is not None and page and page.keys() <= topics.keys():
            raise RemoteProtocolError(f"the broker reports {total} topics, but keeps returning the same {len(topics)}")
        topics |= page
        if not page or total is None or len(topics) >= total:
            return topics


async def topic_config(sender: RequestSender, address: str, topic: str) -> bodies.TopicConfig:
    """Return one topic. Brokers of 4.9 do not know the request. Raises: RemoteError."""
    return bodies.TopicConfig.decode((await sender.ask(address, admin_headers.GetTopicConfig(topic))).body)


async def put_topic(
    sender: RequestSender,
    address: str,
    topic: bodies.TopicConfig,
    attributes: Mapping[str, str] | None = None,
    *,
    modification: str | None = None,
) -> None:
    """Create a topic, or replace its settings.

    `attributes` are those to set. The others stay as they are, those of `topic` too: brokers refuse to set some again.
    `modification` has the changes in the protocol's form instead, as `+a=b,-c`.
    """
    request = admin_headers.UpdateAndCreateTopic(
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
    await sender.ask(address, request)


async def delete_topic(sender: RequestSender, address: str, topic: str) -> None:
    """Delete a topic with its messages; an absent topic is no error."""
    await sender.ask(address, admin_headers.DeleteTopic(topic=topic))


async def topic_offsets(
    sender: RequestSender, address: str, topic: str
) -> dict[MessageQueue, offset_bodies.TopicOffset]:
    return offset_bodies.TopicStats.decode(
        (await sender.ask(address, admin_headers.GetTopicStats(topic=topic))).body
    ).offset_table


async def groups_of_topic(sender: RequestSender, address: str, topic: str) -> list[str]:
    """Return the groups that consume a topic, or have."""
    return bodies.GroupList.decode(
        (await sender.ask(address, admin_headers.QueryTopicConsumeByWho(topic=topic))).body
    ).group_list


async def system_topics_of_broker(sender: RequestSender, address: str) -> list[str]:
    return bodies.TopicList.decode(
        (await sender.ask(address, admin_headers.GetSystemTopicListFromBroker())).body
    ).topic_list


async def group_table(sender: RequestSender, address: str) -> dict[str, bodies.GroupConfig]:
    answer = await sender.ask(address, admin_headers.GetAllSubscriptionGroup())
    return bodies.GroupConfigTable.decode(answer.body).subscription_group_table


async def put_group(sender: RequestSender, address: str, group: bodies.GroupConfig) -> None:
    """Create a group, or replace its settings. Attributes that it does not have stay as they are."""
    signed_attributes = {f"+{name}": value for name, value in (group.attributes or {}).items()} or None
    body = msgspec.structs.replace(group, attributes=signed_attributes).encode()
    await sender.ask(address, admin_headers.UpdateAndCreateSubscriptionGroup(), body)


async def put_request_mode(sender: RequestSender, address: str, mode: client_bodies.RequestMode) -> None:
    """Let a group pull or pop a topic, where the broker shares queues. Brokers of 4.9 do not know the request."""
    await sender.ask(address, pop_headers.SetRequestMode(), mode.encode())


async def delete_group(sender: RequestSender, address: str, group: str, *, with_offsets: bool) -> None:
    # Brokers of 4.9 read `remove_offset`, those of 5.x `clean_offset`.
    request = admin_headers.DeleteSubscriptionGroup(group, remove_offset=with_offsets, clean_offset=with_offsets)
    await sender.ask(address, request)


async def group_progress(
    sender: RequestSender, address: str, group: str, topic: str | None = None
) -> offset_bodies.ConsumeStats:
    """Return the offsets of a group in one topic or in all, and its messages per second."""
    request = admin_headers.GetConsumeStats(consumer_group=group, topic=topic)
    return offset_bodies.ConsumeStats.decode((await sender.ask(address, request, timeout_factor=SLOW_ANSWER)).body)


async def group_connections(sender: RequestSender, address: str, group: str) -> client_bodies.ConsumerConnections:
    """Return the online members; without any a broker answers CONSUMER_NOT_ONLINE (206)."""
    request = admin_headers.GetConsumerConnectionList(consumer_group=group)
    return client_bodies.ConsumerConnections.decode((await sender.ask(address, request)).body)


async def running_member(
    sender: RequestSender, address: str, group: str, client_id: str, *, jstack: bool = False
) -> client_bodies.ConsumerRunning:
    """Return a member's own report, for which the broker asks it."""
    request = headers.GetConsumerRunning(consumer_group=group, client_id=client_id, jstack_enable=jstack)
    return client_bodies.ConsumerRunning.decode((await sender.ask(address, request, timeout_factor=SLOW_ANSWER)).body)


async def consume_directly(
    sender: RequestSender, address: str, group: str, client_id: str, offset_id: str, broker_name: str | None = None
) -> client_bodies.ConsumeOutcome:
    """Let one member handle a message now, independent of its offsets; return the outcome."""
    request = headers.ConsumeMessageDirectly(
        consumer_group=group, client_id=client_id, msg_id=offset_id, broker_name=broker_name
    )
    return client_bodies.ConsumeOutcome.decode((await sender.ask(address, request, timeout_factor=SLOW_ANSWER)).body)


async def reset_members(
    sender: RequestSender, address: str, group: str, topic: str, timestamp: int, *, force: bool = True
) -> dict[MessageQueue, int]:
    """Reset the online members to a time; -1 is the end. Without `force` only back. Returns the new offsets."""
    request = admin_headers.ResetOffset(topic=topic, group=group, timestamp=timestamp, is_force=force)
    return offset_bodies.ResetOffsets.decode((await sender.ask(address, request)).body).offset_table


async def commit_offset(sender: RequestSender, address: str, group: str, queue: MessageQueue, offset: int) -> None:
    request = headers.UpdateConsumerOffset(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
    )
    await sender.ask(address, request)


async def view_message(sender: RequestSender, address: str, physical_offset: int) -> StoredMessage:
    return record.decode((await sender.ask(address, headers.ViewMessage(offset=physical_offset))).body)


async def query_messages(sender: RequestSender, address: str, request: headers.QueryMessage) -> list[StoredMessage]:
    """Return the messages whose key has the same hash, perhaps others too. Without any the broker answers error 22."""
    return [record.decode(encoded) for encoded in record.walk((await sender.ask(address, request)).body)]


async def min_offset(sender: RequestSender, address: str, queue: MessageQueue) -> int:
    answer = await sender.ask(address, headers.GetMinOffset(topic=queue.topic, queue_id=queue.queue_id))
    return answer.header.offset


async def max_offset(sender: RequestSender, address: str, queue: MessageQueue) -> int:
    answer = await sender.ask(address, headers.GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id))
    return answer.header.offset


async def offset_since(sender: RequestSender, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
    """Return the offset of the first message that was stored at a time or later."""
    request = headers.SearchOffset(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, boundary_type=headers.FIRST_AT_OR_AFTER
    )
    return (await sender.ask(address, request)).header.offset


async def pull_page(
    sender: RequestSender,
    address: str,
    queue: MessageQueue,
    offset: int,
    *,
    expression: str = ALL,
    count: int = PAGE,
    group: str = TOOLS_GROUP,
) -> Page:
    """Return messages of a queue with these tags from an offset on, without waiting. Raises: RemoteProtocolError."""
    from sparrowmq.client.consuming import (  # they load all consumers
        pulling,
        received_message,
    )

    check_tags(expression)
    subscription = Subscription.build(queue.topic, expression, TAG, 0)
    request = pulling.request(group, queue, offset, subscription, count=count, hold_s=0)
    answer = await sender.ask(address, request, accept=pulling.ACCEPTED)
    header = answer.header
    if answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
        pulling.check_progress(queue, offset, header.next_begin_offset)
    kind = received_message.ReceivedMessage
    messages = [each.stored for each in pulling.messages_in(kind, answer.body, queue, subscription, _LOG_LIMIT)]
    return Page(answer.code, header.next_begin_offset, header.min_offset, header.max_offset, messages)


async def accounts(sender: RequestSender, address: str) -> bodies.AccountList:
    return bodies.AccountList.decode((await sender.ask(address, admin_headers.GetBrokerClusterAclConfig())).body)


async def account_versions(sender: RequestSender, address: str) -> admin_headers.GetBrokerClusterAclReply:
    return (await sender.ask(address, admin_headers.GetBrokerClusterAcl())).header


async def put_account(sender: RequestSender, address: str, account: admin_headers.UpdateAndCreateAclConfig) -> None:
    """Create an account, or change the given fields of one."""
    await sender.ask(address, account)


async def delete_account(sender: RequestSender, address: str, access_key: str) -> None:
    await sender.ask(address, admin_headers.DeleteAclConfig(access_key))


async def set_white_addresses(sender: RequestSender, address: str, patterns: str, file: str | None = None) -> None:
    """Replace the addresses that need no account: patterns with commas between them; `file` is one of several."""
    await sender.ask(address, admin_headers.UpdateGlobalWhiteAddrsConfig(patterns, file))


async def user(sender: RequestSender, address: str, name: str) -> user_headers.UserEntry | None:
    body = (await sender.ask(address, user_headers.GetUser(name))).body
    return user_headers.UserEntry.decode(body) if body else None


async def users(sender: RequestSender, address: str, part: str = "") -> list[user_headers.UserEntry]:
    """Return the users whose names contain a text."""
    return user_headers.decode_users(bytes((await sender.ask(address, user_headers.ListUsers(part or None))).body))


async def create_user(sender: RequestSender, address: str, entry: user_headers.UserEntry) -> None:
    await sender.ask(address, user_headers.CreateUser(entry.username), entry.encode())


async def update_user(sender: RequestSender, address: str, entry: user_headers.UserEntry) -> None:
    await sender.ask(address, user_headers.UpdateUser(entry.username), entry.encode())


async def delete_user(sender: RequestSender, address: str, name: str) -> None:
    await sender.ask(address, user_headers.DeleteUser(name))


async def policies(sender: RequestSender, address: str, subject: str) -> user_headers.UserPolicies | None:
    body = (await sender.ask(address, user_headers.GetAcl(subject))).body
    return user_headers.UserPolicies.decode(body) if body else None


async def all_policies(
    sender: RequestSender, address: str, subject: str = "", resource: str = ""
) -> list[user_headers.UserPolicies]:
    """Return the policies whose subject and resources contain the texts."""
    request = user_headers.ListAcls(subject or None, resource or None)
    return user_headers.decode_policies(bytes((await sender.ask(address, request)).body))


async def create_policies(
    sender: RequestSender, address: str, subject: str, policies: list[user_headers.Policy]
) -> None:
    await sender.ask(address, user_headers.CreateAcl(subject), user_headers.UserPolicies(subject, policies).encode())


async def update_policies(
    sender: RequestSender, address: str, subject: str, policies: list[user_headers.Policy]
) -> None:
    """Replace the entries of the same resources."""
    await sender.ask(address, user_headers.UpdateAcl(subject), user_headers.UserPolicies(subject, policies).encode())


async def delete_policies(sender: RequestSender, address: str, subject: str, resource: str | None) -> None:
    """Delete the entry of a resource, or all policies of a subject."""
    await sender.ask(address, user_headers.DeleteAcl(subject, resource=resource))
