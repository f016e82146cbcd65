"""Our own batches: STAGE_BATCH (32001), COMMIT_BATCH (32002) and COPY_BATCH (32007). Not in RocketMQ.

Staged batches appear once or not at all. Staging makes the same checks as a send, so a commit never has to refuse a
message. Both need PUB of their topics, and a writer that belongs to the account (staging/writers.py).

Copies of messages of another queue are stored in order, and none twice:

    request     follows 500, reaches 900     ── copies of 500 to 899 are stored, if the copies before end at 500
    request     follows 900, reaches 1200    ── stored behind them
    the same again, or from a copier that counts as dead: not stored, because the copies end at 1200 now

So a mirror may have many requests under way, and may send all again after a lost answer. An answer that says where the
copies end waits until they are as safe as sent messages. The broker knows the ends in memory only. After its restart,
or if it has forgotten a source, the mirror looks for the last copy in the queue, and its next request `begins`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from sparrowmq.broker.batches import PART_OF_ENTRIES, while_leading
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.handlers.handler import Handler, SharedParts, body_too_large, system_error
from sparrowmq.broker.part import Part
from sparrowmq.broker.staging.staged_batches import Staging
from sparrowmq.broker.staging.writers import CommitBody, Source, owner_for
from sparrowmq.broker.topics import Topics
from sparrowmq.broker.transactions import half_message
from sparrowmq.errors import AccessDenied, MessageTooLarge, RemoteError
from sparrowmq.loop.slices import Steps, WorkQueue
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol import names
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import batch, copied_batch
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.message import Perm
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.protocol.requests.bodies import TopicConfig
from sparrowmq.protocol.requests.headers import CommitBatch, CommitBatchReply, CopyBatch, CopyBatchReply, StageBatch
from sparrowmq.remoting.handler import ReplyWhenDurable, handles
from sparrowmq.remoting.peer import Peer, owner_of

if TYPE_CHECKING:
    pass

_MAX_NAME_CHARACTERS: Final = 255
_TEMPLATE_QUEUES: Final = 4
_END_OF_BATCHES: Final = 1 << 63
# A commit names some thousands of attempts at most. To read more of them would keep the event loop for too long.
_MAX_COMMIT_BYTES: Final = 512 << 10
_MAX_BROKERS: Final = 1000
_MAX_ATTEMPTS: Final = 20_000
_PUB: Final = 1  # the permission of auth/accounts.py, which a broker without access control does not load
MAX_SOURCES: Final = 20_000
_MAX_SOURCE_CHARACTERS: Final = 512
# A message may be as large as its limit; its properties and born time come on top.
_ENVELOPE_BYTES: Final = 64 << 10


def batch_parts(shared: SharedParts, settings: BrokerSettings, figures: Figures) -> tuple[Part, ...]:
    path, max_body_bytes = settings.config_path / "stagedBatches.json", settings.max_message_bytes
    store, writer, topics = shared.store, shared.writer, shared.topics
    staging = Staging(store, writer, topics, path, shared.clock, figures, is_slave=settings.is_slave)
    handlers = StagingHandler(shared, staging, max_body_bytes), CopyHandler(shared, max_body_bytes)
    return staging.part(), Part(handlers)


class StagingHandler(Handler):
    """Store the parts of batches, and commit them, but not while the lead is handed over (`accepts_writes`)."""

    def __init__(self, shared: SharedParts, staging: Staging, max_body_bytes: int) -> None:
        super().__init__(shared)
        self._staging = staging
        self._max_body_bytes = max_body_bytes
        self._work_queue = WorkQueue()  # of parts, which are checked in slices

    @handles(StageBatch)
    def stage(self, header: StageBatch, body: bytes, peer: Peer) -> ReplyWhenDurable | Awaitable[ReplyWhenDurable]:
        """Store a part of a batch; the answer waits until the part is as safe as a sent message."""
        if len(body) > self._max_body_bytes:
            raise body_too_large(len(body), self._max_body_bytes)
        self._check_target(header.topic, header.queue_id, peer)
        return self._work_queue.work(while_leading(self._store, self._accepts_writes, self._stage(header, body, peer)))

    def _stage(self, header: StageBatch, body: bytes, peer: Peer) -> Steps[ReplyWhenDurable]:
        entry = Entry(header.topic, header.queue_id, body, Properties(), header.born_timestamp, peer.host)
        yield from self._staging.check(entry, batch.places(body))
        source = self._source(header, peer)
        placed = self._staging.stage(source, _check_name("attempt", header.attempt), header.number, entry)
        return ReplyWhenDurable(self._store.durability(True), self._store.end if placed is None else placed.end, None)

    @handles(CommitBatch)
    def commit(self, header: CommitBatch, body: bytes, peer: Peer) -> ReplyWhenDurable:
        if len(body) > self._max_body_bytes:
            raise body_too_large(len(body), self._max_body_bytes)
        _check_commit(body)
        try:
            commit_body = msgspec.json.decode(body, type=CommitBody)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise system_error(f"the body of a commit: {error}") from error
        source, principal = self._source(header, peer), peer.principal
        if principal is not None:
            topics = self._staging.topics_of(source, commit_body.attempts)
            if not topics and not principal.may_publish:  # a decision takes room in the log for days
                raise AccessDenied("No default permission: a commit needs PUB for a topic")
            for topic in topics:
                if not principal.may_from(peer.host, topic, _PUB):
                    raise AccessDenied(f"No default permission for topic:{topic}")
        decision = self._staging.commit(source, commit_body.attempts, commit_body.others, header.plan or "")
        reply = CommitBatchReply(decision.is_repeated, decision.others.decode() or None)
        return ReplyWhenDurable(self._store.durability(True), decision.end, reply)

    def _source(self, header: StageBatch | CommitBatch, peer: Peer) -> Source:
        if not 0 <= header.batch < _END_OF_BATCHES:
            raise system_error(f"batch {header.batch}: batches begin at 0, and end at 2^63-1")
        writer = _check_name("writer", header.writer)
        owner = owner_for(self._staging.writers, writer, peer)
        return Source(writer, _check_name("run", header.run), header.batch, owner)

    def _check_target(self, name: str, queue_id: int, peer: Peer) -> None:
        _check_open(self._topics, name)
        if name.startswith(names.RETRY):
            raise RemoteError(ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {name}")
        topic = self._topics.get(name) or self._topics.ensure_for_send(
            name, names.DEFAULT_TOPIC, _TEMPLATE_QUEUES, peer.address
        )
        _check_queue(topic, queue_id)


def _check_open(topics: Topics, name: str) -> None:
    if not topics.permission & Perm.WRITE or names.is_closed_to_clients(name):
        raise RemoteError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden.")


def _check_queue(topic: TopicConfig, queue_id: int) -> None:
    if not 0 <= queue_id < max(topic.write_queue_nums, topic.read_queue_nums):
        raise system_error(
            f"request queueId[{queue_id}] is illegal, topic[{topic.topic_name}] has {topic.write_queue_nums} write "
            "queues"
        )


def _check_commit(body: bytes) -> None:
    """Limit the work of decoding. Each broker has a `{`, each attempt a `:`."""
    if (
        len(body) > _MAX_COMMIT_BYTES
        or body.count(b"{") > _MAX_BROKERS + 2
        or body.count(b":") > _MAX_BROKERS + _MAX_ATTEMPTS
    ):
        raise RemoteError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a commit has at most {_MAX_COMMIT_BYTES} bytes, {_MAX_ATTEMPTS} attempts and {_MAX_BROKERS} other "
            f"brokers, and this one has {len(body)} bytes: write the batch with fewer tasks",
        )


def _check_name(field: str, name: str) -> str:
    if not name or len(name) > _MAX_NAME_CHARACTERS or not name.isprintable():
        raise system_error(f"the {field} must have 1 to {_MAX_NAME_CHARACTERS} printable characters")
    return name


class _CopyPath(NamedTuple):
    """A source and its target: an account sees only its own, and a topic that was made again has no copies."""

    owner: str | None
    source: str
    topic: str
    incarnation: int
    queue_id: int


class CopyHandler(Handler):
    """Store copies, but not while the lead is handed over (`accepts_writes`)."""

    def __init__(self, shared: SharedParts, max_body_bytes: int) -> None:
        super().__init__(shared)
        self._max_body_bytes = max_body_bytes
        self._work_queue = WorkQueue()  # of batches, which are stored in slices
        self._copies_end: dict[_CopyPath, int] = {}  # the source that waited longest is first

    @handles(CopyBatch)
    def copy(
        self, header: CopyBatch, body: bytes, peer: Peer
    ) -> ReplyWhenDurable | CopyBatchReply | Awaitable[ReplyWhenDurable | CopyBatchReply]:
        """Store copies behind those that are there; the answer waits until they are as safe as a sent message."""
        self._check_target(header)
        return self._work_queue.work(
            while_leading(self._store, self._accepts_writes, self._store_copies(header, body, peer))
        )

    def _store_copies(self, header: CopyBatch, body: bytes, peer: Peer) -> Steps[ReplyWhenDurable | CopyBatchReply]:
        path = _CopyPath(
            owner_of(peer), header.source, header.topic, self._topics.incarnation(header.topic), header.queue_id
        )
        reached = self._copies_end.get(path)
        if reached is None and header.begins:
            reached = header.follows
        if reached is None:
            return CopyBatchReply(stored=False, reached=-1)
        if reached != header.follows:
            reply = CopyBatchReply(stored=False, reached=reached)
            return ReplyWhenDurable(self._store.durability(True), self._store.end, reply)
        parts = yield from self._read_parts(header, body, peer)
        # If only the first of several parts is stored, the copier has to look where the copies end.
        self._copies_end.pop(path, None)
        end = 0
        for part in parts:
            self._check_target(header)  # in a pause its topic may be deleted
            end = self._put_in_halves(part)
            yield
        self._note_end(path, header.reaches)
        return ReplyWhenDurable(self._store.durability(True), end, CopyBatchReply(True, header.reaches))

    def _put_in_halves(self, entries: list[Entry]) -> int:
        try:
            return self._writer.put_prepared(entries)[-1].end
        except MessageTooLarge:
            if len(entries) == 1:
                raise
        half = len(entries) // 2
        self._put_in_halves(entries[:half])
        return self._put_in_halves(entries[half:])

    def _note_end(self, path: _CopyPath, reached: int) -> None:
        self._copies_end[path] = reached  # as the newest
        if len(self._copies_end) > MAX_SOURCES:
            del self._copies_end[next(iter(self._copies_end))]

    def _read_parts(self, header: CopyBatch, body: bytes, peer: Peer) -> Steps[list[list[Entry]]]:
        shared = Entry(header.topic, header.queue_id, b"", Properties(), 0, peer.host)
        parts: list[list[Entry]] = []
        largest_bytes = 0
        for entries in copied_batch.entries(shared, body, PART_OF_ENTRIES):
            for entry in entries:
                largest_bytes = max(largest_bytes, len(entry.body))
                if half_message.is_half(entry.properties):
                    raise _illegal("a copy cannot belong to a transaction; copy what consumers see")
                self._writer.prepare(entry)
            parts.append(entries)
            yield
        if largest_bytes > self._max_body_bytes or len(body) > self._max_body_bytes + _ENVELOPE_BYTES:
            raise _illegal(
                f"a body takes {largest_bytes} bytes, and all copies {len(body)}; this broker's maxMessageSize is "
                f"{self._max_body_bytes}"
            )
        return parts

    def _check_target(self, header: CopyBatch) -> None:
        name = header.topic
        _check_open(self._topics, name)
        topic = self._topics.get(name)
        if topic is None:
            raise RemoteError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please! Copies create no topics"
            )
        if name.startswith(names.RETRY):
            raise _illegal(f"copies to the retry topic {name} are not allowed")
        _check_queue(topic, header.queue_id)
        if len(header.source) > _MAX_SOURCE_CHARACTERS or not 0 <= header.follows < header.reaches:
            raise _illegal(
                f"copies need a source of at most {_MAX_SOURCE_CHARACTERS} characters and rising offsets, not "
                f"{header.follows} to {header.reaches}"
            )


def _illegal(remark: str) -> RemoteError:
    return RemoteError(ResponseCode.MESSAGE_ILLEGAL, remark)
