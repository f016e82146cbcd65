"""What a request needs: which topics and groups, and what of them; and whether an account has it.

    access of its row      needs
    WRITE                  PUB of the topic; to %RETRY%group SUB of the group, and of the producer's own
    READ                   SUB of the topic and of the group that the header names
    CLIENT                 to be known
    ADMIN, CLUSTER         an administrator

A group is asked about as its retry topic. Some requests name in their body, or by an offset alone, what they are about:
NAMED_ELSEWHERE knows them. What is None or not there is not asked about; the handler refuses it.

Unlike Java 4.9.7, which asks about nothing but 10, 310, 11, 12, 15, 34, 35, 36 and 38, and wants an administrator for
17, 25, 200, 207 and 215 alone: batches (320), lite pulls (361), locks (41, 42) and reading or giving back by offset
(33, 36) need what a send, a pull, or a pull of that message's topic needs, and every code that changes or shows what
belongs to others needs an administrator (docs/understand/differences.md).
Source: PlainAccessValidator.parse and PlainPermissionManager.checkPerm, Java 4.9.7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from sparrowmq.auth.accounts import Account, Perm
from sparrowmq.errors import AccessDenied
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.names import RETRY, TRACE_TOPIC, retry_topic
from sparrowmq.protocol.requests import headers
from sparrowmq.protocol.requests.bodies import ClientConfigCheck, Heartbeat, LockQueues
from sparrowmq.protocol.requests.request_table import Access, Row
from sparrowmq.protocol.wire.header import Request


class Caller(Protocol):
    """Whoever asks. (remoting/peer.py)

    Attributes:
        address: `host:port`.
        host: the same as `hosts.pack` gives it.
    """

    address: str
    host: bytes


Need = tuple[str, int]  # a topic or retry topic, and what of it
TopicAt = Callable[[int], str | None]  # the topic of the record at an offset of the log

PUB: Final = int(Perm.PUB)
SUB: Final = int(Perm.SUB)
ADMINISTRATORS: Final = frozenset({Access.ADMIN, Access.CLUSTER})


def needs(row: Row, header: Request[Any], body: bytes, topic_at: TopicAt) -> Iterator[Need]:
    """The topics and groups that a request is about.

    Raises:
        RemoteProtocolError: its body cannot be read.
    """
    elsewhere = NAMED_ELSEWHERE.get(row.code)
    if elsewhere is not None:
        return elsewhere(header, body, topic_at)
    if row.access is Access.WRITE:
        return _to_write(row, header)
    return _to_read(row, header) if row.access is Access.READ else iter(())


def check(account: Account, row: Row, asked: list[Need]) -> None:
    """Do nothing if the account may do that. Raises: AccessDenied."""
    if (TRACE_TOPIC, PUB) in asked:
        return  # traces tell what happened, whoever it happened to
    if row.access in ADMINISTRATORS and not account.is_admin:
        raise needs_admin(account, row)
    for resource, needed in asked:
        if not account.may(resource, needed):
            raise denied(resource)


def needs_admin(account: Account, row: Row) -> AccessDenied:
    return AccessDenied(
        f"Need admin permission for request code={int(row.code)}, but accessKey={account.access_key} is not"
    )


def denied(resource: str) -> AccessDenied:
    kind = "group" if resource.startswith(RETRY) else "topic"
    return AccessDenied(f"No default permission for {kind}:{resource.removeprefix(RETRY)}")


def _to_write(row: Row, header: Request[Any]) -> Iterator[Need]:
    topic = getattr(header, row.topic, None) if row.topic else None
    if topic is None:
        return
    if not topic.startswith(RETRY):
        yield topic, PUB
        return
    # A consumer gives a message back so, in the name of some producer group, as whose retry topic Java takes it. Unlike
    # Java: who may not consume as the group does not put messages before it either.
    yield topic, SUB
    group = getattr(header, "producer_group", None)
    if group is not None:
        yield retry_topic(group), SUB


def _to_read(row: Row, header: Request[Any]) -> Iterator[Need]:
    topic = getattr(header, row.topic) if row.topic else None
    group = getattr(header, row.group) if row.group else None
    if topic is not None:
        yield topic, SUB
    if group is not None:
        yield retry_topic(group), SUB


def _of_reply(header: Request[Any], body: bytes, topic_at: TopicAt) -> Iterator[Need]:
    """An answer goes to whoever asked, and to nobody's topic."""
    return iter(())


def _of_heartbeat(header: Request[Any], body: bytes, topic_at: TopicAt) -> Iterator[Need]:
    """One denied group denies them all; producers need nothing."""
    for consumer in Heartbeat.decode(body).consumer_data_set:
        yield retry_topic(consumer.group_name), SUB
        for subscription in consumer.subscription_data_set:
            yield subscription.topic, SUB


def _of_leaving(header: Request[Any], body: bytes, topic_at: TopicAt) -> Iterator[Need]:
    """The C++ client names an empty group when it has none."""
    assert isinstance(header, headers.UnregisterClient)
    if header.consumer_group:
        yield retry_topic(header.consumer_group), SUB


def _of_locks(header: Request[Any], body: bytes, topic_at: TopicAt) -> Iterator[Need]:
    wish = LockQueues.decode(body)
    yield retry_topic(wish.consumer_group), SUB
    for topic in {queue.topic for queue in wish.mq_set}:
        yield topic, SUB


def _of_filter(header: Request[Any], body: bytes, topic_at: TopicAt) -> Iterator[Need]:
    wish = ClientConfigCheck.decode(body)
    yield retry_topic(wish.group), SUB
    if wish.subscription_data is not None:
        yield wish.subscription_data.topic, SUB


def _of_record(header: Request[Any], body: bytes, topic_at: TopicAt) -> Iterator[Need]:
    """Whoever reads a message by its offset reads its topic, whatever topic the header names."""
    assert isinstance(header, headers.ViewMessage)
    topic = topic_at(header.offset)
    if topic is not None:
        yield topic, SUB


def _of_giving_back(header: Request[Any], body: bytes, topic_at: TopicAt) -> Iterator[Need]:
    """The message at the offset will be the group's to read."""
    assert isinstance(header, headers.ConsumerSendMsgBack)
    yield retry_topic(header.group), SUB
    topic = topic_at(header.offset)
    if topic is not None:
        yield topic, SUB


NAMED_ELSEWHERE: Final[dict[int, Callable[[Request[Any], bytes, TopicAt], Iterator[Need]]]] = {
    RequestCode.HEART_BEAT: _of_heartbeat,
    RequestCode.SEND_REPLY_MESSAGE: _of_reply,
    RequestCode.SEND_REPLY_MESSAGE_V2: _of_reply,
    RequestCode.UNREGISTER_CLIENT: _of_leaving,
    RequestCode.LOCK_BATCH_MQ: _of_locks,
    RequestCode.UNLOCK_BATCH_MQ: _of_locks,
    RequestCode.CHECK_CLIENT_CONFIG: _of_filter,
    RequestCode.VIEW_MESSAGE_BY_ID: _of_record,
    RequestCode.CONSUMER_SEND_MSG_BACK: _of_giving_back,
}
