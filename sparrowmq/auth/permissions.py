"""The permissions that a request needs on topics and groups, and the check whether an account has them.

    access of its row      needs
    WRITE                  PUB of the topic; to %RETRY%group SUB of the group
    READ                   SUB of the topic and of the group that the header names
    CLIENT                 any account; for the offsets of a topic's queues PUB or SUB of the topic
    ADMIN                  an administrator
    CLUSTER                an administrator, or an account of a broker

Every account may send to the trace topic, and answer requests. The broker's own topics belong to administrators. A
group is checked as its retry topic. Some requests name their topics and groups in the body, or only by an offset:
NEEDS_ELSEWHERE lists them. Absent names are not checked here; the handler refuses them.

Unlike Java 4.9.7, which checks only 10, 310, 11, 12, 15, 34, 35, 36 and 38, and wants an administrator only for 17, 25,
200, 207 and 215. Here batches (320) need the permission of a send, lite pulls (361) and locks (41, 42) that of a pull,
and so does reading or giving back a message by its offset (33, 36). Every code that changes or shows the state of
others needs an administrator (docs/understand/differences.md).
Source: PlainAccessValidator.parse and PlainPermissionManager.checkPerm, Java 4.9.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

from sparrowmq.auth.users import PUB, SUB, User
from sparrowmq.errors import AccessDenied, DenialKind
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.names import RETRY, retry_topic
from sparrowmq.protocol.requests.client_bodies import AssignmentQuery, ClientConfigCheck, Heartbeat, LockQueues
from sparrowmq.protocol.requests.pop_headers import BatchAcks
from sparrowmq.protocol.requests.request_table import Access, Row
from sparrowmq.protocol.wire.header import Request


class Peer(Protocol):
    """The sender of a request (remoting/peer.py). `host` is the address, packed by `hosts.pack`. `certificate` is the
    common name in its verified certificate. `principal` is the account that signed its last request, once that is
    checked."""

    address: str
    host: bytes
    certificate: str | None
    principal: Any


Need = tuple[str, int]  # a topic or retry topic, and the permissions of which one is enough

# The topic of the record at an offset of the log; for a message that waits, the topic of the broker where it waits.
# None: no record begins there. UNKNOWN: the bytes resemble a record, but are none of a queue.
TopicAt = Callable[[int], str | None]
UNKNOWN: Final = ""  # only administrators may read it
ADMINISTRATORS: Final = frozenset({Access.ADMIN, Access.CLUSTER})


def needs(row: Row, header: Request[Any], body: bytes, topic_at: TopicAt) -> Iterator[Need]:
    """The topics and groups of a request, each with the permission that it needs. Raises: RemoteProtocolError, its body
    cannot be decoded."""
    find_needs = NEEDS_ELSEWHERE.get(row.code)
    if find_needs is not None:
        yield from find_needs(header, body, topic_at)
    elif row.access in (Access.WRITE, Access.READ):
        topic, group = [getattr(header, name) if name else None for name in (row.topic, row.group)]
        if topic is not None:
            # A consumer gives a message back by a send to its retry topic. Unlike Java 4.9, which asks for SUB of the
            # producer group in place of this group; Java 5 asks as here.
            yield topic, PUB if row.access is Access.WRITE and not topic.startswith(RETRY) else SUB
        if group is not None:
            yield retry_topic(group), SUB


def check(account: User, row: Row, needs: Iterable[Need], source: bytes = b"") -> None:
    """Raises: AccessDenied, the account lacks a permission, from a packed address."""
    check_admin(account, row)
    if account.is_broker and row.code == RequestCode.VIEW_MESSAGE_BY_ID:
        return  # a broker that repairs its log; with haSecret it gets all of the log anyway
    for resource, needed in needs:
        if not account.may(resource, needed, source):
            raise denial_of(resource)


def check_admin(account: User, row: Row) -> None:
    """Do nothing unless the request is for administrators, or for brokers. Raises: AccessDenied."""
    is_for_brokers = account.is_broker and row.access is Access.CLUSTER
    if row.access in ADMINISTRATORS and not (account.is_admin or is_for_brokers):
        raise AccessDenied(
            f"Need admin permission for request code={int(row.code)}, but accessKey={account.access_key} is not"
        ).of_kind(DenialKind.NEEDS_ADMIN)


def check_own_broker(account: User, row: Row, header: Request[Any]) -> None:
    """Do nothing unless the account registers or unregisters a broker that is not its own. Raises: AccessDenied."""
    name = getattr(header, "broker_name", None)
    if account.broker_names and row.access is Access.CLUSTER and name is not None and name not in account.broker_names:
        raise AccessDenied(
            f"accessKey={account.access_key} may register {', '.join(sorted(account.broker_names))} and not {name}"
        )


def denial_of(resource: str) -> AccessDenied:
    if resource == UNKNOWN:
        return AccessDenied("No permission for this record: no queue has it, so only administrators may read it")
    kind = "group" if resource.startswith(RETRY) else "topic"
    return AccessDenied(f"No default permission for {kind}:{resource.removeprefix(RETRY)}")


def _sub(*names: str) -> Iterator[Need]:
    return ((name, SUB) for name in names)


def _needs_of_reply(header: Any, body: bytes, topic_at: TopicAt) -> Iterator[Need]:
    """A reply goes to the client that asked. ReplyHandler accepts only the topic of answers, also in a namespace."""
    if "%" in header.topic:
        yield header.topic, PUB


def _needs_of_queue(header: Any, body: bytes, topic_at: TopicAt) -> Iterator[Need]:
    """The offsets of a queue are for those who may send to its topic or consume it. Unlike Java: not for everybody."""
    yield header.topic, SUB if header.topic.startswith(RETRY) else PUB | SUB


def _needs_of_heartbeat(header: Any, body: bytes, topic_at: TopicAt) -> Iterator[Need]:
    for consumer in Heartbeat.of_request(body).consumer_data_set:
        yield from _sub(retry_topic(consumer.group_name), *(each.topic for each in consumer.subscription_data_set))


def _needs_of_unregister(header: Any, body: bytes, topic_at: TopicAt) -> Iterator[Need]:
    """The C++ client names an empty group when it has none."""
    return _sub(retry_topic(header.consumer_group)) if header.consumer_group else iter(())


def _needs_of_locks(header: Any, body: bytes, topic_at: TopicAt) -> Iterator[Need]:
    locks = LockQueues.of_request(body)
    return _sub(retry_topic(locks.consumer_group), *{queue.topic for queue in locks.mq_set})


def _needs_of_filter(header: Any, body: bytes, topic_at: TopicAt) -> Iterator[Need]:
    filter_check = ClientConfigCheck.of_request(body)
    subscription = filter_check.subscription_data
    return _sub(retry_topic(filter_check.group), *([subscription.topic] if subscription is not None else []))


def _needs_of_record(header: Any, body: bytes, topic_at: TopicAt) -> Iterator[Need]:
    """A read by offset needs the topic of the message, even if the header names another topic."""
    topic = topic_at(header.offset)
    return _sub(topic) if topic is not None else iter(())


def _needs_of_send_back(header: Any, body: bytes, topic_at: TopicAt) -> Iterator[Need]:
    """The group will read the message at the offset, so its topic counts too."""
    yield retry_topic(header.group), SUB
    yield from _needs_of_record(header, body, topic_at)


def _needs_of_handle(header: Any, body: bytes, topic_at: TopicAt) -> Iterator[Need]:
    """A message of a retry topic of Apache's broker belongs to the topic that the name of the retry topic has."""
    group_topic, topic = retry_topic(header.consumer_group), header.topic
    if topic.startswith((f"{group_topic}_", f"{group_topic}+")):
        topic = topic[len(group_topic) + 1 :]
    return _sub(topic, group_topic)


def _needs_of_acks(header: Any, body: bytes, topic_at: TopicAt) -> Iterator[Need]:
    for ack in BatchAcks.of_request(body).acks:
        yield from _sub(ack.topic, retry_topic(ack.consumer_group))


def _needs_of_assignment(header: Any, body: bytes, topic_at: TopicAt) -> Iterator[Need]:
    query = AssignmentQuery.of_request(body)
    return _sub(query.topic, retry_topic(query.consumer_group))


NEEDS_ELSEWHERE: Final[dict[int, Callable[[Any, bytes, TopicAt], Iterator[Need]]]] = {
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _needs_of_queue,
    RequestCode.GET_MAX_OFFSET: _needs_of_queue,
    RequestCode.GET_MIN_OFFSET: _needs_of_queue,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _needs_of_queue,
    RequestCode.HEART_BEAT: _needs_of_heartbeat,
    RequestCode.SEND_REPLY_MESSAGE: _needs_of_reply,
    RequestCode.SEND_REPLY_MESSAGE_V2: _needs_of_reply,
    RequestCode.UNREGISTER_CLIENT: _needs_of_unregister,
    RequestCode.LOCK_BATCH_MQ: _needs_of_locks,
    RequestCode.UNLOCK_BATCH_MQ: _needs_of_locks,
    RequestCode.CHECK_CLIENT_CONFIG: _needs_of_filter,
    RequestCode.BATCH_ACK_MESSAGE: _needs_of_acks,
    RequestCode.ACK_MESSAGE: _needs_of_handle,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _needs_of_handle,
    RequestCode.QUERY_ASSIGNMENT: _needs_of_assignment,
    RequestCode.VIEW_MESSAGE_BY_ID: _needs_of_record,
    RequestCode.CONSUMER_SEND_MSG_BACK: _needs_of_send_back,
}
