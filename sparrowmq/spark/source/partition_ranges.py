"""Which rows belong to which batch and which task: pure planning, with offsets in and offsets out.

An offset is always the NEXT one to read, a range is half open. Offsets travel through Spark's checkpoint as JSON and
are compared there as text, so the same offsets must always give the same text:

    {"v":1,"topics":{"Orders":{"broker-a":{"0":123,"1":77}}},"incarnations":{"Orders":{"broker-a":1795444532123}}}

A topic that was deleted and made again begins at offset 0 again. Its incarnation shows it: a number that a broker of
ours gives each topic. An older checkpoint has no incarnations, and other brokers give none. Then an end below the
offset that was read shows it, and the stream counts incarnations itself: -1, -2, ...

    read to 120, incarnation 7        the broker says: end 300, incarnation 9
                                      rows 0 to 300 of the new topic are next; later rows of the old one are lost

A stream with `kafkaCompat` also keeps the numbers of its partitions: unique among the queues of a topic, on whichever
brokers. The sink's column `partition` has the same order.

    orders   broker-a 0..3, broker-b 0..3   ->   partitions 0..3, 4..7
    later    broker-a 4                     ->   partition 8: the others keep their numbers

The checkpoint has them as runs of queues in the order of their numbers, because brokers come and go:
{"orders":[["broker-a",0,4],["broker-b",0,4],["broker-a",4,1]]}.

Spark replays a batch with the offsets of the first attempt; everything here is deterministic, so the replay has the
same tasks in the same order. Whether missing data ends the query is decided in one place, `lose`.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from sparrowmq.errors import ConfigError, SparrowError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.protocol.requests.headers import UNKNOWN_INCARNATION

P = TypeVar("P")
# A topic on one broker.
BrokerTopic: TypeAlias = tuple[str, str]
PartitionNumbers: TypeAlias = Mapping[MessageQueue, int]
NumberRuns: TypeAlias = dict[str, list[list[str | int]]]  # by topic: broker, first queue, count

VERSION: Final = 1
_NONE: Final[Mapping[Any, int]] = MappingProxyType({})
# A task costs Spark about 30 ms, as long as to read 25,000 rows. More tasks than a cluster runs at once are worth it
# only with ten times as many rows each. A source does not always know how many tasks that are.
ROWS_WORTH_A_TASK: Final = 25_000
ROWS_WORTH_MANY_TASKS: Final = 250_000
DEFAULT_TASKS: Final = 8

_LOSS_ADVICE: Final = (
    "The rows may have been removed by retention, or the topic or broker was created again. To go on without them set "
    "failOnDataLoss=false; to keep rows longer raise fileReservedTime on the broker"
)

NEW_TOPIC_ADVICE = (
    "To go on with the first row of the new topic set failOnDataLoss=false, or begin with a new checkpoint"
)

_log = logging.getLogger(__name__)


class RowsLost(SparrowError):
    """Rows that the query should read are not there any more."""


class Bounds(NamedTuple):
    """The messages of a queue: `[start, end)`; `incarnation` is that of its topic, 0 if the topic does not exist."""

    start: int
    end: int
    incarnation: int | None = None


class Offsets(dict[MessageQueue, int]):
    """The next offset of each queue, and the known incarnations of the topics that the offsets belong to.

    Attributes:
        numbers: of the queues as partitions, if the query shows them.
    """

    def __init__(
        self,
        offsets: Mapping[MessageQueue, int] = _NONE,
        incarnations: Mapping[BrokerTopic, int] = _NONE,
        numbers: PartitionNumbers = _NONE,
    ) -> None:
        super().__init__(offsets)
        self.incarnations = dict(incarnations)
        self.numbers = numbers


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The rows `[start, end)` of one queue, of this incarnation of its topic if it is known.

    Attributes:
        number: of the queue as a partition, if the query shows it.
    """

    queue: MessageQueue
    start: int
    end: int
    incarnation: int | None = field(default=None, compare=False)
    number: int | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.queue} {self.start}..{self.end}"


def to_json(offsets: Mapping[MessageQueue, int]) -> dict[str, object]:
    """Return the checkpoint's form, in the same order for every mapping."""
    topics: dict[str, dict[str, dict[str, int]]] = {}
    for queue, offset in sorted(offsets.items()):
        topics.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    incarnations: dict[str, dict[str, int]] = {}
    for (topic, broker), incarnation in sorted(incarnations_of(offsets).items()):
        incarnations.setdefault(topic, {})[broker] = incarnation
    written: dict[str, object] = {"v": VERSION, "topics": topics}
    if incarnations:
        written["incarnations"] = incarnations
    if numbers := numbers_of(offsets):
        written["partitions"] = to_runs(numbers)
    return written


def from_json(checkpoint: Mapping[str, object]) -> Offsets:
    """Offsets from a checkpoint. Raises: ConfigError, a later release wrote it, or it is not ours."""
    version, topics = checkpoint.get("v"), checkpoint.get("topics")
    if isinstance(version, int) and version > VERSION:
        raise ConfigError(f"the checkpoint was written by a later release (v{version}); update sparrowmq to read it")
    if version != VERSION or not isinstance(topics, dict):
        raise ConfigError(
            f"the checkpoint is not one of this source: {str(dict(checkpoint))[:200]}; use a new location"
        )
    offsets = {
        MessageQueue(topic, broker, int(queue_id)): offset
        for topic, brokers in topics.items()
        for broker, queues in brokers.items()
        for queue_id, offset in queues.items()
    }
    incarnations, partitions = checkpoint.get("incarnations"), checkpoint.get("partitions")
    by_topic = incarnations if isinstance(incarnations, dict) else {}
    return Offsets(
        offsets,
        {
            (topic, broker): incarnation
            for topic, by_broker in by_topic.items()
            for broker, incarnation in by_broker.items()
        },
        from_runs(partitions) if isinstance(partitions, dict) else _NONE,
    )


class Checkpoints:
    """`from_json` with a cache: Spark passes the same few checkpoints again with each question."""

    def __init__(self) -> None:
        # A batch's beginning and its end.
        self._last: deque[tuple[Mapping[str, object], Offsets]] = deque(maxlen=2)

    def offsets(self, checkpoint: Mapping[str, object]) -> Offsets:
        """Parse offsets, as an unchangeable mapping. Raises: as `from_json`."""
        for cached, offsets in self._last:
            if cached == checkpoint:
                return offsets
        offsets = from_json(checkpoint)
        self._last.append((checkpoint, offsets))
        return offsets


def lose(problem: str, *, fail: bool, advice: str = _LOSS_ADVICE) -> None:
    """Missing data was found: end the query, or say it in the log and go on.

    Raises: RowsLost, `fail` (the option failOnDataLoss), with what to do.
    """
    if fail:
        raise RowsLost(f"{problem}. {advice}")
    _log.warning("data lost: %s", problem)


def clamp_offset(queue: MessageQueue, offset: int, bounds: Bounds, *, fail: bool) -> int:
    """`offset`, or the nearest that the queue still holds when that one is lost.

    Raises: RowsLost, it is outside of `bounds` and `fail` is set.
    """
    if offset < bounds.start:
        lose(f"offsets {offset} to {bounds.start - 1} of {queue} are gone", fail=fail)
        return bounds.start
    if offset > bounds.end:
        lose(f"{queue} ends at offset {bounds.end}, but was read or asked for up to {offset}", fail=fail)
        return bounds.end
    return offset


def between(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> list[Range]:
    """The rows from `start` to `end`; queues that only one of them knows have none.

    Those of a topic that was made again since `start` are its first ones.
    """
    again, incarnations, numbers = recreated_topics(start, end), incarnations_of(end), numbers_of(end)
    # Of many queues few have new rows: only they get an object.
    return sorted(
        Range(queue, first, upto, incarnations.get(broker_topic(queue)), numbers.get(queue))
        for queue, offset in start.items()
        if (upto := end.get(queue, offset)) > (first := 0 if again and broker_topic(queue) in again else offset)
    )


def broker_topic(queue: MessageQueue) -> BrokerTopic:
    return queue.topic, queue.broker_name


def recreated_topics(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> frozenset[BrokerTopic]:
    """Return the topics that were deleted and made again after `start`.

    The first incarnation that a broker names is that of the topic read so far.
    """
    before = incarnations_of(start)
    return frozenset(
        part
        for part, incarnation in incarnations_of(end).items()
        if incarnation != before.get(part) and (incarnation < 0 or before.get(part, 0) > 0)
    )


def incarnations_of(offsets: Mapping[MessageQueue, int]) -> Mapping[BrokerTopic, int]:
    return offsets.incarnations if isinstance(offsets, Offsets) else _NONE


def numbers_of(offsets: Mapping[MessageQueue, int]) -> PartitionNumbers:
    return offsets.numbers if isinstance(offsets, Offsets) else _NONE


def stream_ends(
    begin: Offsets, answers: Mapping[MessageQueue, Bounds], new_start: Callable[[Bounds], int], *, fail: bool
) -> Offsets:
    """Return the ends of all queues; of queues that `begin` does not know, the place where they begin.

    Args:
        answers: the answers of the brokers that are there.
    Raises:
        RowsLost: a topic was made again, or a queue has lost rows, and `fail` is set.
    """
    end = Offsets(begin, begin.incarnations | _known_incarnations(begin, answers), begin.numbers)
    again = recreated_topics(begin, end)
    for part in sorted(again):
        lose_old_topic(part, begin, is_named=end.incarnations[part] > 0, fail=fail)
    for queue in begin:
        if broker_topic(queue) in again:
            end[queue] = 0
    in_doubt = _in_doubt(answers)
    for queue, bounds in answers.items():
        if broker_topic(queue) in in_doubt:
            continue
        if queue not in begin:
            end[queue] = new_start(bounds)
        elif broker_topic(queue) in again or begin[queue] <= bounds.end:
            end[queue] = bounds.end
        else:
            end[queue] = clamp_offset(queue, begin[queue], bounds, fail=fail)
    return end


def ends_of(answers: Mapping[MessageQueue, Bounds]) -> Offsets:
    ends = {queue: bounds.end for queue, bounds in answers.items()}
    return Offsets(ends, incarnations_in(answers))


def incarnations_in(answers: Mapping[MessageQueue, Bounds]) -> dict[BrokerTopic, int]:
    return _known_incarnations(Offsets(), answers)


def _known_incarnations(begin: Offsets, answers: Mapping[MessageQueue, Bounds]) -> dict[BrokerTopic, int]:
    in_doubt, reported = (
        _in_doubt(answers),
        {broker_topic(queue): bounds.incarnation for queue, bounds in answers.items()},
    )
    shrunk = {broker_topic(queue) for queue, bounds in answers.items() if begin.get(queue, 0) > bounds.end}
    incarnations: dict[BrokerTopic, int] = {}
    for part in reported.keys() - in_doubt:
        incarnation = _next_incarnation(begin.incarnations.get(part), reported[part], has_shrunk=part in shrunk)
        if incarnation is not None:
            incarnations[part] = incarnation
    return incarnations


def _next_incarnation(read: int | None, reported: int | None, *, has_shrunk: bool) -> int | None:
    """The incarnation of a topic, by the one that was read, and by what its broker says now."""
    is_named = reported is not None and reported > UNKNOWN_INCARNATION
    was_named = read is not None and read > 0
    if was_named and (is_named or reported == UNKNOWN_INCARNATION):
        return reported if is_named else read
    if has_shrunk:
        return min(read or 0, 0) - 1
    return reported if is_named else read


def _in_doubt(answers: Mapping[MessageQueue, Bounds]) -> frozenset[BrokerTopic]:
    """The topics that were made again between two answers; the next look sees them whole."""
    reported: dict[BrokerTopic, set[int | None]] = {}
    for queue, bounds in answers.items():
        reported.setdefault(broker_topic(queue), set()).add(bounds.incarnation)
    return frozenset(part for part, incarnations in reported.items() if len(incarnations) > 1)


def lose_old_topic(part: BrokerTopic, begin: Offsets, *, is_named: bool, fail: bool) -> None:
    """Report the later rows of a topic that was made again. Raises: RowsLost, `fail` is set."""
    topic, broker = part
    sign = "" if is_named else ", because a queue ends before the offset that was read"
    read = ", ".join(
        f"queue {queue.queue_id} to {offset}" for queue, offset in sorted(begin.items()) if broker_topic(queue) == part
    )
    lose(
        f"topic {topic} on {broker} was deleted and made again{sign}. Of the topic before, {read} was read, and later "
        "rows are gone",
        fail=fail,
        advice=NEW_TOPIC_ADVICE,
    )


def extend_numbers(numbers: PartitionNumbers, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
    """Return the known numbers, and the next ones for the other queues, by broker and queue."""
    extended, ends = dict(numbers), dict[str, int]()
    for queue, number in numbers.items():
        ends[queue.topic] = max(ends.get(queue.topic, 0), number + 1)
    for queue in sorted(set(queues) - numbers.keys()):
        extended[queue] = ends.get(queue.topic, 0)
        ends[queue.topic] = extended[queue] + 1
    return extended


def to_runs(numbers: PartitionNumbers) -> NumberRuns:
    """Return the form of checkpoints, the same for each order of the mapping."""
    runs: NumberRuns = {}
    last: MessageQueue | None = None
    for queue in sorted(numbers, key=lambda queue: (queue.topic, numbers[queue])):
        of_topic = runs.setdefault(queue.topic, [])
        if last is not None and queue == MessageQueue(last.topic, last.broker_name, last.queue_id + 1):
            of_topic[-1][2] = int(of_topic[-1][2]) + 1
        else:
            of_topic.append([queue.broker_name, queue.queue_id, 1])
        last = queue
    return runs


def from_runs(runs: Mapping[str, Iterable[tuple[str, int, int]]]) -> dict[MessageQueue, int]:
    numbers: dict[MessageQueue, int] = {}
    for topic, of_topic in runs.items():
        queues = (
            MessageQueue(topic, broker, first + place) for broker, first, count in of_topic for place in range(count)
        )
        numbers |= {queue: number for number, queue in enumerate(queues)}
    return numbers


def past_gaps(start: Mapping[MessageQueue, int], begins: Mapping[MessageQueue, int]) -> Offsets:
    """`start`, but behind rows before `begins`, which the brokers no longer have.

    A limit counts from there, so one batch has all of a gap: it is reported once, and no batch is empty for it.
    """
    behind = {queue: begin for queue, begin in begins.items() if begin > start.get(queue, begin)}
    return Offsets({**start, **behind}, incarnations_of(start), numbers_of(start))


def capped(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int], max_rows: int) -> Offsets:
    """The end of a batch of about `max_rows`, split over the queues by what each has waiting.

    As in Kafka's source no queue with rows starves: each gets at least one, so a batch can exceed a limit that is
    smaller than the number of queues.
    """
    waiting = between(start, end)
    total = sum(map(len, waiting))
    upto = Offsets(end, incarnations_of(end), numbers_of(end))
    if total > max_rows:
        upto |= {each.queue: each.start + max(1, max_rows * len(each) // total) for each in waiting}
    return upto


def sampled(ranges: Iterable[Range], count: int, most_a_range: int) -> Iterator[tuple[Range, int, int]]:
    """About `count` places, spread over ranges: each range with an offset in it, and the rows that it speaks for."""
    pieces = [each for each in ranges if len(each)]
    chosen = pieces[:: max(1, math.ceil(len(pieces) / count))]
    for each in chosen:
        places = min(len(each), most_a_range, max(1, count // len(chosen)))
        for place in range(places):
            yield each, each.start + len(each) * place // places, math.ceil(len(each) / places)


def is_worth_a_batch(rows: int, min_rows: int | None, waited_ms: float, max_delay_ms: int) -> bool:
    return min_rows is None or rows >= min_rows or waited_ms >= max_delay_ms


def share(
    ranges: Iterable[Range], min_partitions: int, max_partitions: int | None = None, at_once: int = DEFAULT_TASKS
) -> list[tuple[Range, ...]]:
    """The tasks of a batch: few enough to be worth their cost, of similar size.

    Queues are put together in up to `max_partitions` tasks, or as many as are worth it; ranges are cut only to reach
    `min_partitions`. Within a task a queue's rows keep their order.

    Args:
        at_once: tasks that the cluster runs at the same time.
    """
    pieces = [each for each in ranges if len(each)]
    rows = sum(map(len, pieces))
    worth = math.ceil(rows / ROWS_WORTH_A_TASK)
    if max_partitions is None:
        worth = min(worth, max(at_once, rows // ROWS_WORTH_MANY_TASKS))
    count = max(min_partitions, worth if max_partitions is None else min(worth, max_partitions))
    tasks = pack(_cut(pieces, min(min_partitions, rows)), count, len)
    return [tuple(sorted(each)) for each in tasks]


def _cut(ranges: Sequence[Range], count: int) -> list[Range]:
    cuts = [(-len(each), each, 1) for each in ranges]
    heapq.heapify(cuts)
    for _ in range(count - len(ranges)):
        _, each, parts = cuts[0]
        heapq.heapreplace(cuts, (-math.ceil(len(each) / (parts + 1)), each, parts + 1))
    return [piece for _, each, parts in sorted(cuts, key=lambda cut: cut[1]) for piece in _slices(each, parts)]


def _slices(whole: Range, parts: int) -> list[Range]:
    borders = [whole.start + len(whole) * part // parts for part in range(parts + 1)]
    return [replace(whole, start=start, end=end) for start, end in pairwise(borders)]


def pack(pieces: Sequence[P], count: int, cost: Callable[[P], int]) -> list[list[P]]:
    """Pieces as tasks of similar cost: the most expensive first, always to the task with the least."""
    tasks: list[list[P]] = [[] for _ in range(min(count, len(pieces)))]
    filled = [(0, number) for number in range(len(tasks))]
    for piece in sorted(pieces, key=cost, reverse=True):
        so_far, number = heapq.heappop(filled)
        tasks[number].append(piece)
        heapq.heappush(filled, (so_far + cost(piece), number))
    return tasks


def search(wanted_ms: int, hint: int, bounds: Bounds) -> Generator[int, int, int]:
    """Find the first offset whose message was stored at `wanted_ms` or later; `bounds.end` when there is none.

    It gives an offset and wants to be sent when its message was stored, until it returns: so the searches of many
    queues can ask side by side.

    `hint` is what the broker answered: a Java 4.9 broker gives the nearest message, on either side, and any of those
    that share the millisecond. So step away from it, ever further, until the answer is enclosed.
    """
    low = high = min(max(hint, bounds.start), bounds.end)
    step = 1
    while low > bounds.start and (yield low - 1) >= wanted_ms:
        high = low - 1
        low = max(bounds.start, high - step)
        step *= 2
    while high < bounds.end and (yield high) < wanted_ms:
        low = high + 1
        high = min(bounds.end, low + step)
        step *= 2
    while low < high:
        middle = (low + high) // 2
        if (yield middle) < wanted_ms:
            low = middle + 1
        else:
            high = middle
    return low
