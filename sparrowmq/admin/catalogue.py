"""The catalogue of operations: every request that an operator sends to a server is built here, and nowhere else.

An operation that is one request is a row: its target, its header, and how its answer is read. Those that send a body,
or choose between requests, are functions with the same parameters. Both hand their request to a sender. The sender
chooses the connection and the time limit, and raises its own errors: `Servers` raises ours, the `Call` of mqadmin
Java's.

    topic_config = AtBroker(admin_headers.GetTopicConfig, reply=in_body(bodies.TopicConfig.decode))
    await topic_config(sender, address, "orders")    parameters are the fields of the header

    name servers    with `address` that one is asked, without it the first one that answers. Changes always need an
                    address, because each name server keeps its own state
    one broker      settings and figures, topics, groups, messages; its accounts of 4.x, and its users and policies
                    (ACL 2.0), of which slaves have those of their master

Source: the classes of org.apache.rocketmq.tools.command, Java 4.9.8 and 5.4.0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, ParamSpec, Protocol, TypeVar

import msgspec

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

P = ParamSpec("P")
R = TypeVar("R", bound=Header)
T = TypeVar("T")
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


def done(_: Response[Any]) -> None:
    """Read the answer to a change: it has succeeded."""


def in_body(decode: Callable[[bytes], T]) -> Callable[[Response[Any]], T]:
    """Return what an answer has in its body."""
    return lambda answer: decode(answer.body)


@dataclass(frozen=True, slots=True)
class Row(Generic[P, R, T]):
    """An operation that is one request. It is called with a sender, its target, and the arguments of `request`.

    Attributes:
        request: makes the header of the request.
        reply: reads the answer.
        timeout_factor: a broker may take so many times as long as for other requests.
    """

    request: Callable[P, Request[R]]
    reply: Callable[[Response[R]], T]
    timeout_factor: int = 1


class AtBroker(Row[P, R, T]):
    """An operation at one broker. Raises: RemoteError, NetworkError; or those of the sender."""

    async def __call__(self, sender: RequestSender, address: str, *args: P.args, **options: P.kwargs) -> T:
        answer = await sender.ask(address, self.request(*args, **options), timeout_factor=self.timeout_factor)
        return self.reply(answer)


class AtNameServer(Row[P, R, T]):
    """An operation at one name server: each has a state of its own."""

    async def __call__(self, sender: RequestSender, address: str, *args: P.args, **options: P.kwargs) -> T:
        return self.reply(await sender.ask_namesrv(self.request(*args, **options), address=address))


class AtAnyNameServer(Row[P, R, T]):
    """A question to the first name server that answers."""

    async def __call__(self, sender: RequestSender, *args: P.args, **options: P.kwargs) -> T:
        return self.reply(await sender.ask_namesrv(self.request(*args, **options)))


_table = in_body(lambda raw: bodies.KVTable.decode(raw).table)


@dataclass(frozen=True, slots=True)
class Page:
    """The answer to one pull. `code` is SUCCESS, or one of `pulling.ACCEPTED`."""

    code: int
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[StoredMessage]


async def cluster_table(sender: RequestSender, address: str | None = None) -> bodies.ClusterTable:
    """Return all brokers with their addresses."""
    return bodies.ClusterTable.decode(
        (await sender.ask_namesrv(namesrv_headers.GetBrokerCluster(), address=address)).body
    )


async def topic_route(sender: RequestSender, topic: str, address: str | None = None) -> bodies.TopicRoute | None:
    """Return the brokers that have a topic; None if none has."""
    request = namesrv_headers.GetRoute(topic=topic, accept_standard_json_only=True)
    answer = await sender.ask_namesrv(request, accept=(ResponseCode.TOPIC_NOT_EXIST,), address=address)
    if answer.code:
        return None
    return bodies.TopicRoute.decode(answer.body)


async def topic_names(sender: RequestSender, cluster: str | None = None) -> list[str]:
    request = (
        namesrv_headers.GetAllTopicListFromNameserver()
        if cluster is None
        else namesrv_headers.GetTopicsByCluster(cluster=cluster)
    )
    return bodies.TopicList.decode((await sender.ask_namesrv(request)).body).topic_list


# The names of clusters and brokers, which are topics, and the address of a broker.
system_topics_of_cluster = AtAnyNameServer(
    namesrv_headers.GetSystemTopicListFromNs, reply=in_body(bodies.TopicList.decode)
)
# Brokers only ever add to a topic's route.
delete_route = AtNameServer(namesrv_headers.DeleteTopicInNamesrv, reply=done)
# Take the write permission of a broker out of all routes, or give it back; the number of topics.
hide_from_producers = AtNameServer(
    namesrv_headers.WipeWritePermOfBroker, reply=lambda answer: answer.header.wipe_topic_count
)
show_to_producers = AtNameServer(
    namesrv_headers.AddWritePermOfBroker, reply=lambda answer: answer.header.add_topic_count
)
value_of = AtAnyNameServer(namesrv_headers.GetKVConfig, reply=lambda answer: answer.header.value)


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


put_value = AtNameServer(namesrv_headers.PutKVConfig, reply=done)
delete_value = AtNameServer(namesrv_headers.DeleteKVConfig, reply=done)
namesrv_settings = AtNameServer(namesrv_headers.GetNamesrvConfig, reply=in_body(settings_text.parse))
namesrv_diagnosis = AtNameServer(admin_headers.GetDiagnosis, reply=_table)


async def change_namesrv_settings(sender: RequestSender, address: str, changes: Mapping[str, str]) -> None:
    await sender.ask_namesrv(namesrv_headers.UpdateNamesrvConfig(), settings_text.render(changes), address=address)


# All figures by Java's names: `putTps`, `msgPutTotalTodayNow` and so on.
broker_figures = AtBroker(admin_headers.GetBrokerRuntime, reply=_table)


def version_of(figures: Mapping[str, str]) -> str | None:
    """Return a broker's own version. One of Apache only names its release."""
    return figures.get(bodies.OWN_VERSION) or figures.get(bodies.PROTOCOL_RELEASE)


broker_ha_status = AtBroker(admin_headers.GetHaStatus, reply=in_body(bodies.HaStatus.decode))
# The logs and stacks of a broker of ours.
broker_diagnosis = AtBroker(admin_headers.GetDiagnosis, reply=_table)
# A figure over the last minute, hour and day, by name and key. A broker that has counted nothing answers with an error.
broker_statistic = AtBroker(admin_headers.ViewBrokerStats, reply=in_body(bodies.BrokerStats.decode))
broker_settings = AtBroker(admin_headers.GetBrokerConfig, reply=in_body(settings_text.parse))


async def change_broker_settings(sender: RequestSender, address: str, changes: Mapping[str, str]) -> None:
    """Change settings of a running broker, and for its next start."""
    await sender.ask(address, admin_headers.UpdateBrokerConfig(), settings_text.render(changes))


# Let a broker end in order and begin again, if it has begun at this time; Apache's cannot.
restart_broker = AtBroker(admin_headers.RestartBroker, reply=done)
# The offsets of every group that has consumed at a broker; with `is_order` only of those that consume in order.
progress_of_all_groups = AtBroker(
    admin_headers.GetBrokerConsumeStats,
    reply=in_body(offset_bodies.BrokerConsumeStats.decode),
    timeout_factor=_VERY_SLOW_ANSWER,
)
producers = AtBroker(
    admin_headers.GetAllProducers, reply=in_body(lambda raw: client_bodies.ProducerTable.decode(raw).data)
)
producer_connections = AtBroker(
    admin_headers.GetProducerConnectionList, reply=in_body(client_bodies.ProducerConnections.decode)
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


# Delete the consume queue entries of messages that are gone.
clean_expired_queues = AtBroker(admin_headers.CleanExpiredConsumeQueue, reply=done)
clean_unused_topics = AtBroker(admin_headers.CleanUnusedTopic, reply=done)
# Delete the log files that are older than the retention.
delete_expired_log = AtBroker(admin_headers.DeleteExpiredCommitLog, reply=done)


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


# One topic. Brokers of 4.9 do not know the request.
topic_config = AtBroker(admin_headers.GetTopicConfig, reply=in_body(bodies.TopicConfig.decode))


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


# Delete a topic with its messages; an absent topic is no error.
delete_topic = AtBroker(admin_headers.DeleteTopic, reply=done)
topic_offsets = AtBroker(
    admin_headers.GetTopicStats, reply=in_body(lambda raw: offset_bodies.TopicStats.decode(raw).offset_table)
)
# The groups that consume a topic, or have.
groups_of_topic = AtBroker(
    admin_headers.QueryTopicConsumeByWho, reply=in_body(lambda raw: bodies.GroupList.decode(raw).group_list)
)
system_topics_of_broker = AtBroker(
    admin_headers.GetSystemTopicListFromBroker, reply=in_body(lambda raw: bodies.TopicList.decode(raw).topic_list)
)
group_table = AtBroker(
    admin_headers.GetAllSubscriptionGroup,
    reply=in_body(lambda raw: bodies.GroupConfigTable.decode(raw).subscription_group_table),
)


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


# The offsets of a group in one topic or in all, and its messages per second.
group_progress = AtBroker(
    admin_headers.GetConsumeStats, reply=in_body(offset_bodies.ConsumeStats.decode), timeout_factor=SLOW_ANSWER
)
# The online members; without any a broker answers CONSUMER_NOT_ONLINE (206).
group_connections = AtBroker(
    admin_headers.GetConsumerConnectionList, reply=in_body(client_bodies.ConsumerConnections.decode)
)


async def running_member(
    sender: RequestSender, address: str, group: str, client_id: str, *, jstack: bool = False
) -> client_bodies.ConsumerRunning:
    """Return a member's own report, for which the broker asks it."""
    request = headers.GetConsumerRunning(consumer_group=group, client_id=client_id, jstack_enable=jstack)
    return client_bodies.ConsumerRunning.decode((await sender.ask(address, request, timeout_factor=SLOW_ANSWER)).body)


# Let one member handle a message now, whose id is its offset id, independent of the member's offsets.
consume_directly = AtBroker(
    headers.ConsumeMessageDirectly, reply=in_body(client_bodies.ConsumeOutcome.decode), timeout_factor=SLOW_ANSWER
)
# Reset the online members to a time; -1 is the end. Without `is_force` only back. The answer has the new offsets.
reset_members = AtBroker(
    admin_headers.ResetOffset, reply=in_body(lambda raw: offset_bodies.ResetOffsets.decode(raw).offset_table)
)


async def commit_offset(sender: RequestSender, address: str, group: str, queue: MessageQueue, offset: int) -> None:
    request = headers.UpdateConsumerOffset(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
    )
    await sender.ask(address, request)


# The message at a position in the log.
view_message = AtBroker(headers.ViewMessage, reply=in_body(record.decode))


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


accounts = AtBroker(admin_headers.GetBrokerClusterAclConfig, reply=in_body(bodies.AccountList.decode))
account_versions = AtBroker(admin_headers.GetBrokerClusterAcl, reply=lambda answer: answer.header)


async def put_account(sender: RequestSender, address: str, account: admin_headers.UpdateAndCreateAclConfig) -> None:
    """Create an account, or change the given fields of one."""
    await sender.ask(address, account)


delete_account = AtBroker(admin_headers.DeleteAclConfig, reply=done)
# Replace the addresses that need no account: patterns with commas between them; the file is one of several.
set_white_addresses = AtBroker(admin_headers.UpdateGlobalWhiteAddrsConfig, reply=done)
user = AtBroker(user_headers.GetUser, reply=in_body(lambda raw: user_headers.UserEntry.decode(raw) if raw else None))


async def users(sender: RequestSender, address: str, part: str = "") -> list[user_headers.UserEntry]:
    """Return the users whose names contain a text."""
    return user_headers.decode_users(bytes((await sender.ask(address, user_headers.ListUsers(part or None))).body))


async def create_user(sender: RequestSender, address: str, entry: user_headers.UserEntry) -> None:
    await sender.ask(address, user_headers.CreateUser(entry.username), entry.encode())


async def update_user(sender: RequestSender, address: str, entry: user_headers.UserEntry) -> None:
    await sender.ask(address, user_headers.UpdateUser(entry.username), entry.encode())


delete_user = AtBroker(user_headers.DeleteUser, reply=done)
policies = AtBroker(
    user_headers.GetAcl, reply=in_body(lambda raw: user_headers.UserPolicies.decode(raw) if raw else None)
)


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
