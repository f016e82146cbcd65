"""STAGE_BATCH (32001) and COMMIT_BATCH (32002): batches of messages that appear once or not at all. Not in RocketMQ.

Staging makes the same checks as a send, so a commit never has to refuse a message.
Both need PUB of the topics that they write to, and a writer that belongs to the account (staging/writers.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from sparrowmq.broker.batches.large_batch import storing
from sparrowmq.broker.handlers.handler import Handler, SharedParts
from sparrowmq.broker.staging.batch_staging import Staging
from sparrowmq.broker.staging.writers import CommitBody, Source, owner_for
from sparrowmq.broker.topics import Topics
from sparrowmq.errors import AccessDenied, RemoteError
from sparrowmq.loop.slices import Line, Steps
from sparrowmq.protocol import names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.message import Perm
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.protocol.requests.bodies import TopicConfig
from sparrowmq.protocol.requests.headers import CommitBatch, CommitBatchReply, StageBatch
from sparrowmq.remoting.handler import ReplyWhenDurable, handles
from sparrowmq.remoting.peer import Peer

_MOST_NAME: Final = 255
_TEMPLATE_QUEUES: Final = 4
_END_OF_BATCHES: Final = 1 << 63
# A commit names some thousands of attempts at most. To read more of them would keep the event loop for too long.
_MOST_COMMIT_BYTES: Final = 512 << 10
_MOST_BROKERS: Final = 1000
_MOST_ATTEMPTS: Final = 20_000
_PUB: Final = 1  # the permission of auth/accounts.py, which a broker without access control does not load


class StagingHandler(Handler):
    """Store the parts of batches, and commit them.

    Args:
        max_body_bytes: the limit for one request.
        takes: whether messages are taken; not while the lead is handed over.
    """

    def __init__(self, shared: SharedParts, staging: Staging, max_body_bytes: int, takes: Callable[[], bool]) -> None:
        super().__init__(shared)
        self._staging = staging
        self._max_body_bytes = max_body_bytes
        self._takes = takes
        self._line = Line()  # of parts, which are checked in slices

    @handles(StageBatch)
    def stage(self, header: StageBatch, body: bytes, peer: Peer) -> ReplyWhenDurable | Awaitable[ReplyWhenDurable]:
        """Store a part of a batch; the answer waits until the part is as safe as a sent message."""
        self._check_size(body)
        self._admit(header.topic, header.queue_id, peer)
        return self._line.work(storing(self._store, self._takes, self._stage(header, body, peer)))

    def _stage(self, header: StageBatch, body: bytes, peer: Peer) -> Steps[ReplyWhenDurable]:
        entry = Entry(header.topic, header.queue_id, body, Properties(), header.born_timestamp, peer.host)
        yield from self._staging.check(entry, batch.places(body))
        source = self._source(header, peer)
        placed = self._staging.stage(source, _name("attempt", header.attempt), header.number, entry)
        return ReplyWhenDurable(self._store.safety(True), self._store.end if placed is None else placed.end, None)

    @handles(CommitBatch)
    def commit(self, header: CommitBatch, body: bytes, peer: Peer) -> ReplyWhenDurable:
        """Decide on a batch; the answer waits until the decision is as safe as a sent message."""
        self._check_size(body)
        _check_commit(body)
        try:
            given = msgspec.json.decode(body, type=CommitBody)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RemoteError(ResponseCode.SYSTEM_ERROR, f"the body of a commit: {error}") from error
        source, principal = self._source(header, peer), peer.principal
        if principal is not None:
            topics = self._staging.topics_of(source, given.attempts)
            if not topics and not principal.may_publish:  # a decision takes room in the log for days
                raise AccessDenied("No default permission: a commit needs PUB for a topic")
            for topic in topics:
                if not principal.may_from(peer.host, topic, _PUB):
                    raise AccessDenied(f"No default permission for topic:{topic}")
        decided = self._staging.commit(source, given.attempts, given.others, header.plan or "")
        told = CommitBatchReply(decided.is_repeated, decided.others.decode() or None)
        return ReplyWhenDurable(self._store.safety(True), decided.end, told)

    def _check_size(self, body: bytes) -> None:
        if len(body) > self._max_body_bytes:
            raise RemoteError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the body takes {len(body)} bytes; this broker's maxMessageSize is {self._max_body_bytes}",
            )

    def _source(self, header: StageBatch | CommitBatch, peer: Peer) -> Source:
        if not 0 <= header.batch < _END_OF_BATCHES:
            raise RemoteError(ResponseCode.SYSTEM_ERROR, f"batch {header.batch}: batches begin at 0, and end at 2^63-1")
        writer = _name("writer", header.writer)
        owner = owner_for(self._staging.writers, writer, peer)
        return Source(writer, _name("run", header.run), header.batch, owner)

    def _admit(self, name: str, queue_id: int, peer: Peer) -> None:
        """Refuse a topic or queue that takes no messages. Creates the topic if a send would."""
        demand_open(self._topics, name)
        if name.startswith(names.RETRY):
            raise RemoteError(ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {name}")
        topic = self._topics.get(name) or self._topics.ensure_for_send(
            name, names.DEFAULT_TOPIC, _TEMPLATE_QUEUES, peer.address
        )
        demand_queue(topic, queue_id)


def demand_open(topics: Topics, name: str) -> None:
    """Raises: RemoteError, no client may send to the topic."""
    if not topics.permission & Perm.WRITE or names.is_closed_to_clients(name):
        raise RemoteError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")


def demand_queue(topic: TopicConfig, queue_id: int) -> None:
    """Raises: RemoteError, the topic has no such queue."""
    if not 0 <= queue_id < max(topic.write_queue_nums, topic.read_queue_nums):
        raise RemoteError(
            ResponseCode.SYSTEM_ERROR,
            f"request queueId[{queue_id}] is illegal, topic[{topic.topic_name}] has {topic.write_queue_nums} write "
            "queues",
        )


def _check_commit(body: bytes) -> None:
    """Limit the work of decoding. Each broker has a `{`, each attempt a `:`."""
    if (
        len(body) > _MOST_COMMIT_BYTES
        or body.count(b"{") > _MOST_BROKERS + 2
        or body.count(b":") > _MOST_BROKERS + _MOST_ATTEMPTS
    ):
        raise RemoteError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a commit has at most {_MOST_COMMIT_BYTES} bytes, {_MOST_ATTEMPTS} attempts and {_MOST_BROKERS} other "
            f"brokers, and this one has {len(body)} bytes: write the batch with fewer tasks",
        )


def _name(kind: str, name: str) -> str:
    """Return a name that fits into a property."""
    if not name or len(name) > _MOST_NAME or not name.isprintable():
        raise RemoteError(
            ResponseCode.SYSTEM_ERROR, f"the {kind} must have 1 to {_MOST_NAME} characters that can be shown"
        )
    return name
