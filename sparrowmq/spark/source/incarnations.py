"""The end of what a stream can read, when topics may have been deleted and made again since its last batch.

    read to 120, incarnation 7        the broker says: end 300, incarnation 9
                                      rows 0 to 300 of the new topic are next; later rows of the old one are lost

Pure: the answers of brokers in, offsets out. `partition_ranges.py` has how incarnations are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.headers import UNKNOWN_INCARNATION
from sparrowmq.spark.source.partition_ranges import Bounds, Offsets, Part, lose, made_again, part_of, settle


def advanced(
    begin: Offsets,
    held: Mapping[MessageQueue, Bounds],
    new_start: Callable[[Bounds], int],
    *,
    fail: bool,
) -> Offsets:
    """Return the ends of all queues; of queues that `begin` does not know, the place where they begin.

    Args:
        held: the answers of the brokers that are there.
    Raises:
        RowsLost: a topic was made again, or a queue has lost rows, and `fail` is set.
    """
    end = Offsets(begin, begin.incarnations | _named(begin, held), begin.numbers)
    again = made_again(begin, end)
    for part in sorted(again):
        lose_old(part, begin, is_named=end.incarnations[part] > 0, fail=fail)
    for queue in begin:
        if part_of(queue) in again:
            end[queue] = 0
    in_doubt = _in_doubt(held)
    for queue, bounds in held.items():
        if part_of(queue) in in_doubt:
            continue
        if queue not in begin:
            end[queue] = new_start(bounds)
        elif part_of(queue) in again or begin[queue] <= bounds.end:
            end[queue] = bounds.end
        else:
            end[queue] = settle(queue, begin[queue], bounds, fail=fail)
    return end


def ends_of(held: Mapping[MessageQueue, Bounds]) -> Offsets:
    ends = {queue: bounds.end for queue, bounds in held.items()}
    return Offsets(ends, incarnations_in(held))


def incarnations_in(held: Mapping[MessageQueue, Bounds]) -> dict[Part, int]:
    return _named(Offsets(), held)


def _named(begin: Offsets, held: Mapping[MessageQueue, Bounds]) -> dict[Part, int]:
    """The incarnations of the topics that answered, if they are known now."""
    in_doubt, said = _in_doubt(held), {part_of(queue): bounds.incarnation for queue, bounds in held.items()}
    shrunk = {part_of(queue) for queue, bounds in held.items() if begin.get(queue, 0) > bounds.end}
    found: dict[Part, int] = {}
    for part in said.keys() - in_doubt:
        known = _next(begin.incarnations.get(part), said[part], has_shrunk=part in shrunk)
        if known is not None:
            found[part] = known
    return found


def _next(known: int | None, said: int | None, *, has_shrunk: bool) -> int | None:
    """The incarnation of a topic, by the one that was read, and by what its broker says now."""
    is_named = said is not None and said > UNKNOWN_INCARNATION
    was_named = known is not None and known > 0
    if was_named and (is_named or said == UNKNOWN_INCARNATION):
        return said if is_named else known
    if has_shrunk:
        return min(known or 0, 0) - 1
    return said if is_named else known


def _in_doubt(held: Mapping[MessageQueue, Bounds]) -> frozenset[Part]:
    """The topics that were made again between two answers; the next look sees them whole."""
    said: dict[Part, set[int | None]] = {}
    for queue, bounds in held.items():
        said.setdefault(part_of(queue), set()).add(bounds.incarnation)
    return frozenset(part for part, each in said.items() if len(each) > 1)


def lose_old(part: Part, begin: Offsets, *, is_named: bool, fail: bool) -> None:
    """Report the later rows of a topic that was made again. Raises: RowsLost, `fail` is set."""
    topic, broker = part
    sign = "" if is_named else ", because a queue ends before the offset that was read"
    read = ", ".join(
        f"queue {queue.queue_id} to {offset}" for queue, offset in sorted(begin.items()) if part_of(queue) == part
    )
    lose(
        f"topic {topic} on {broker} was deleted and made again{sign}. Of the topic before, {read} was read, and later "
        "rows are gone",
        fail=fail,
        advice=NEW_TOPIC_ADVICE,
    )


NEW_TOPIC_ADVICE = (
    "To go on with the first row of the new topic set failOnDataLoss=false, or begin with a new checkpoint"
)
