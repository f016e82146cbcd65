"""Batches that are stored in parts, so that they do not keep the event loop from other requests.

    batch of 10,000 ── read and check all of it, in slices ── part, pause, part, pause, ... ── one answer

A batch of plain messages is stored at once, however many it has. Two kinds of batches are stored in parts: those that
are sent again, as each message is looked up, and those of hundreds of messages that are not plain. Between two parts,
other requests may add messages to the queue: then the answer names the place of each message. All is checked before the
first part is stored, and the log has room for all of them. So only a full or broken disk, or the end of the broker, can
separate the parts. The producer gets no answer then: after any error it would send the batch to another broker, which
doubles the first part.

If the topic is deleted between two parts, the parts are deleted with it, and the batch is refused. A handover of the
lead waits for a batch that has begun.

These batches wait in one line (`WorkQueue`), and keep only their bodies there: what is made of a body takes ten times
its memory. If a batch that is sent again is in the line already, it is refused: clients try again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, cast

from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.repeated_sends import Key, RepeatedSends, StoredBefore, keys
from sparrowmq.broker.replication.slave_guard import not_the_master
from sparrowmq.errors import RemoteError, SparrowError
from sparrowmq.kernel.batch_layout import PLACE_BYTES
from sparrowmq.loop.slices import Steps, empty_in_steps
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.entry import Entry, Placed, PlacedBatch
from sparrowmq.remoting.handler import Unanswered
from sparrowmq.store.message_store import MessageStore

T = TypeVar("T")
PART: Final = 1024  # messages that are not plain, and are stored at once
PART_OF_ENTRIES: Final = 256  # those of one part of a batch that has more
MAX_REPEATED_MESSAGES: Final = 4096  # of our client's batches; each message is looked up


def while_leading(store: MessageStore, accepts_writes: Callable[[], bool], steps: Steps[T]) -> Steps[T]:
    """Do work that stores messages; until its end the lead is not handed over. Raises: RemoteError, it was before."""
    if not accepts_writes():
        raise not_the_master()
    store.appender.unfinished_batches += 1
    try:
        return (yield from steps)
    finally:
        store.appender.unfinished_batches -= 1


def pieces(places: bytes, count: int) -> list[bytes]:
    """The places, for `count` messages at a time."""
    size = count * PLACE_BYTES
    return [places[begin : begin + size] for begin in range(0, len(places), size)]


def as_one(placed: list[Placed]) -> PlacedBatch:
    return PlacedBatch([message.offset for message in placed], placed[0].queue_offset, placed[-1].end)


def check_repeated_size(count: int) -> None:
    if count > MAX_REPEATED_MESSAGES:
        raise RemoteError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a repeated batch may have at most {MAX_REPEATED_MESSAGES} messages; this one has {count}",
        )


def put_missing(
    writer: Writer, repeats: RepeatedSends, entries: Sequence[Entry], is_repeated: bool
) -> Steps[tuple[list[StoredBefore], int]]:
    """Store the messages of a repeated batch that were not stored before, in the queue of those that were.

    Usually the broker has all of its messages, or none. A crash may have cut the log in the middle of the batch, and a
    client may put the messages into other batches. Returns the place of each message, and the number stored now.

    Raises:
        RemoteError: as `RepeatedSends.before` and `Writer.put_batch`; nothing was stored.
        StoreFailed, DiskFull: nothing was stored, or the sender is in doubt anyway.
        Unanswered: the batch was not sent before, and the disk became full, or broke, between two parts.
    """
    pending: list[set[Key]] = []
    for begin in range(0, len(entries), PART_OF_ENTRIES):
        pending.append(keys(entries[begin : begin + PART_OF_ENTRIES]))
        yield
    with repeats.under_way(pending, entries[0].topic if is_repeated else None):
        before_by_index: list[StoredBefore | None] = []
        missing: list[int] = []
        first_known: StoredBefore | None = None
        for index, entry in enumerate(entries):
            earlier_send = repeats.look_up(entry, is_repeated)
            before_by_index.append(earlier_send)
            if earlier_send is None:
                missing.append(index)
            first_known = first_known or earlier_send
            yield
        size_bytes = 0
        for index in missing:
            entry = entries[index]
            if first_known is not None:
                entry.queue_id = first_known.queue_id
            writer.prepare(entry)
            size_bytes += len(entry.body) + len(entry.properties.encode())
            yield
        if len(missing) > PART_OF_ENTRIES:
            writer.check_room(entries[0].topic, size_bytes, len(missing))
        for begin in range(0, len(missing), PART_OF_ENTRIES):
            part = missing[begin : begin + PART_OF_ENTRIES]
            try:
                stored = writer.put_prepared([entries[index] for index in part])
            except SparrowError as error:
                if begin > 0 and not is_repeated:  # no code says that a part is stored
                    raise Unanswered("only a part of a batch was stored") from error
                raise
            for index, placed in zip(part, stored, strict=True):
                entry = entries[index]
                before_by_index[index] = StoredBefore(placed.offset, entry.queue_id, placed.queue_offset, placed.end, 0)
                if is_repeated:
                    repeats.note(entry, entry.topic, placed.offset)
            yield
    yield from empty_in_steps(pending)
    return cast(list[StoredBefore], before_by_index), len(missing)  # none is missing now


def are_neighbours(stored_messages: Sequence[StoredBefore]) -> Steps[bool]:
    queue_id, following = stored_messages[0].queue_id, stored_messages[0].queue_offset
    for message in stored_messages:
        if message.queue_id != queue_id or message.queue_offset != following:
            return False
        following += 1
        yield
    return True


def render_positions(stored_messages: Sequence[StoredBefore]) -> Steps[str]:
    texts: list[str] = []
    for begin in range(0, len(stored_messages), PART):
        texts.append(
            ",".join(
                [f"{message.queue_id}:{message.queue_offset}" for message in stored_messages[begin : begin + PART]]
            )
        )
        yield
    return ",".join(texts)
