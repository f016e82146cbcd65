"""A batch that is sent again: its messages that were stored before keep their places, and the others are stored.

Usually the broker has all of its messages, or none. A crash may have cut the log in the middle of the batch, and a
client may put the messages into other batches. Then the answer names the queue and the queue offset of each message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.repeated.recognition import Before, Repeats
from sparrowmq.errors import RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.entry import Entry

MOST: Final = 4096  # of our client's batches; each message is looked up


def put_missing(
    writer: Writer, repeats: Repeats, entries: Sequence[Entry], is_repeated: bool
) -> tuple[list[Before], int]:
    """Store the messages of a batch that were not stored before, in the queue of those that were.

    Returns: the place of each message, and the number of those that were stored now.
    Raises: RemoteError, as `Repeats.before` and `Writer.put_batch`; nothing was stored.
    """
    if is_repeated and len(entries) > MOST:
        raise RemoteError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"a batch that is sent again holds at most {MOST} messages, and this has {len(entries)}",
        )
    found = [repeats.before(entry, is_repeated) for entry in entries]
    known = next((each for each in found if each is not None), None)
    missing = [entry for entry, before in zip(entries, found, strict=True) if before is None]
    if known is not None:
        for entry in missing:
            entry.queue_id = known.queue_id
    places = iter(writer.put_batch(missing) if missing else ())
    whole: list[Before] = []
    for entry, before in zip(entries, found, strict=True):
        if before is None:
            placed = next(places)
            before = Before(placed.offset, entry.queue_id, placed.queue_offset, placed.end, 0)
            if is_repeated:
                repeats.note(entry, entry.topic, placed.offset)
        whole.append(before)
    return whole, len(missing)


def in_a_row(found: Sequence[Before]) -> bool:
    """Whether the messages are neighbours in one queue, as an answer without `stored_at` says."""
    first = found[0]
    return all(
        each.queue_id == first.queue_id and each.queue_offset == first.queue_offset + index
        for index, each in enumerate(found)
    )


def written(found: Sequence[Before]) -> str:
    """The queue and the queue offset of each message, for `SendMessageReply.stored_at`."""
    return ",".join([f"{each.queue_id}:{each.queue_offset}" for each in found])
