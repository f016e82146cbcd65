"""A batch that is sent again: its messages that were stored before keep their places, and the others are stored.

Usually the broker has all of its messages, or none. A crash may have cut the log in the middle of the batch, and a
client may put the messages into other batches. Then the answer names the queue and the queue offset of each message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

from sparrowmq.broker.batches.large_batch import PART, PART_OF_ENTRIES, in_doubt
from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.repeated.recognition import Before, Repeats, keys
from sparrowmq.broker.repeated.retried_ids import Key
from sparrowmq.errors import RemoteError
from sparrowmq.loop.slices import Steps, emptied
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.entry import Entry

MOST: Final = 4096  # of our client's batches; each message is looked up


def demand_few(count: int) -> None:
    """Raises: RemoteError, a batch that is sent again has too many messages."""
    if count > MOST:
        raise RemoteError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a batch that is sent again holds at most {MOST} messages, and this has {count}",
        )


def put_missing(
    writer: Writer, repeats: Repeats, entries: Sequence[Entry], is_repeated: bool
) -> Steps[tuple[list[Before], int]]:
    """Store the messages of a batch that were not stored before, in the queue of those that were.

    Returns: the place of each message, and the number of those that were stored now.
    Raises:
        RemoteError: as `Repeats.before` and `Writer.put_batch`; nothing was stored.
        StoreFailed, DiskFull: nothing was stored, or the sender is in doubt anyway.
        Unanswered: the batch was not sent before, and the disk became full, or broke, between two parts.
    """
    pending: list[set[Key]] = []
    for at in range(0, len(entries), PART_OF_ENTRIES):
        pending.append(keys(entries[at : at + PART_OF_ENTRIES]))
        yield
    with repeats.under_way(pending, entries[0].topic):
        found: list[Before | None] = []
        missing: list[int] = []
        known: Before | None = None
        for index, entry in enumerate(entries):
            before = repeats.look_up(entry, is_repeated)
            found.append(before)
            if before is None:
                missing.append(index)
            known = known or before
            yield
        size_bytes = 0
        for index in missing:
            entry = entries[index]
            if known is not None:
                entry.queue_id = known.queue_id
            writer.prepare(entry)
            size_bytes += len(entry.body) + len(entry.properties.encode())
            yield
        if len(missing) > PART_OF_ENTRIES:
            writer.demand_room(entries[0].topic, size_bytes, len(missing))
        for at in range(0, len(missing), PART_OF_ENTRIES):
            part = missing[at : at + PART_OF_ENTRIES]
            with in_doubt(at > 0 and not is_repeated):
                stored = writer.put_prepared([entries[index] for index in part])
            for index, placed in zip(part, stored, strict=True):
                entry = entries[index]
                found[index] = Before(placed.offset, entry.queue_id, placed.queue_offset, placed.end, 0)
                if is_repeated:
                    repeats.note(entry, entry.topic, placed.offset)
            yield
    yield from emptied(pending)
    return cast(list[Before], found), len(missing)  # none is missing now


def in_a_row(earlier: Sequence[Before]) -> Steps[bool]:
    """Whether the messages are neighbours in one queue, as an answer without `stored_at` says."""
    queue_id, following = earlier[0].queue_id, earlier[0].queue_offset
    for each in earlier:
        if each.queue_id != queue_id or each.queue_offset != following:
            return False
        following += 1
        yield
    return True


def written(earlier: Sequence[Before]) -> Steps[str]:
    """The queue and the queue offset of each message, for `SendMessageReply.stored_at`."""
    texts: list[str] = []
    for at in range(0, len(earlier), PART):
        texts.append(",".join([f"{each.queue_id}:{each.queue_offset}" for each in earlier[at : at + PART]]))
        yield
    return ",".join(texts)
