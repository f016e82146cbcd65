"""Which rows belong to which batch and which task: pure planning, with offsets in and offsets out.

An offset is always the NEXT one to read, a range is half open. Offsets travel through Spark's checkpoint as JSON and
are compared there as text, so the same offsets must always give the same text:

    {"v":1,"topics":{"Orders":{"broker-a":{"0":123,"1":77}}},"incarnations":{"Orders":{"broker-a":1795444532123}}}

A topic that was deleted and made again begins at offset 0 again. Its incarnation shows it: a number that a broker of
ours gives each topic. An older checkpoint has no incarnations, and other brokers give none. Then an end below the
offset that was read shows it, and the stream counts incarnations itself: -1, -2, ...

    read to 120, incarnation 7        the broker says: end 300, incarnation 9
                                      rows 0 to 300 of the new topic are next; later rows of the old one are lost

A stream with `kafkaCompat` also keeps the numbers of its partitions, unique among the queues of a topic. The checkpoint
has them as runs of queues, as the sink's column `partition` orders them:
{"orders":[["broker-a",0,4],["broker-b",0,4],["broker-a",4,1]]}.

    orders   broker-a 0..3, broker-b 0..3   ->   partitions 0..3, 4..7
    later    broker-a 4                     ->   partition 8: the others keep their numbers

Spark replays a batch with its first offsets, and everything here is deterministic, so the replay has the same tasks.
Whether missing data ends the query is decided in one place, `lose`.
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
_EMPTY: Final[Mapping[Any, int]] = MappingProxyType({})
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
    """The next offset of each queue, its topics' known incarnations, and partition numbers if a query has them."""

    def __init__(
        self,
        offsets: Mapping[MessageQueue, int] = _EMPTY,
        incarnations: Mapping[BrokerTopic, int] = _EMPTY,
        numbers: PartitionNumbers = _EMPTY,
    ) -> None:
        super().__init__(offsets)
        self.incarnations = dict(incarnations)
        self.numbers = numbers


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The rows `[start, end)` of a queue, of an incarnation of its topic, with its number as a partition, if known."""

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
    for (topic, broker), incarnation in sorted(known_incarnations(offsets).items()):
        incarnations.setdefault(topic, {})[broker] = incarnation
    checkpoint: dict[str, object] = {"v": VERSION, "topics": topics}
    if incarnations:
        checkpoint["incarnations"] = incarnations
    if numbers := partition_numbers(offsets):
        checkpoint["partitions"] = to_runs(numbers)
    return checkpoint


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
        from_runs(partitions) if isinstance(partitions, dict) else _EMPTY,
    )


class Checkpoints:
    """`from_json` with a cache: Spark passes the same few checkpoints again with each question."""

    def __init__(self) -> None:
        # A batch's beginning and its end.
        self._cached: deque[tuple[Mapping[str, object], Offsets]] = deque(maxlen=2)

    def offsets(self, checkpoint: Mapping[str, object]) -> Offsets:
        """Parse offsets, as an unchangeable mapping. Raises: as `from_json`."""
        for cached, offsets in self._cached:
            if cached == checkpoint:
                return offsets
        offsets = from_json(checkpoint)
        self._cached.append((checkpoint, offsets))
        return offsets


def lose(problem: str, *, fail: bool, advice: str = _LOSS_ADVICE) -> None:
    """Missing data was found: say it in the log and go on. Raises: RowsLost, `fail` (the option failOnDataLoss)."""
    if fail:
        raise RowsLost(f"{problem}. {advice}")
    _log.warning("data lost: %s", problem)


def clamp_offset(queue: MessageQueue, offset: int, bounds: Bounds, *, fail: bool) -> int:
    """`offset`, or the nearest that the queue still holds when that one is lost. Raises: RowsLost, `fail` is set."""
    if offset < bounds.start:
        lose(f"offsets {offset} to {bounds.start - 1} of {queue} are gone", fail=fail)
        return bounds.start
    if offset > bounds.end:
        lose(f"{queue} ends at offset {bounds.end}, but was read or asked for up to {offset}", fail=fail)
        return bounds.end
    return offset


def between(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> list[Range]:
    """The rows from `start` to `end`, of queues that both know; of a topic that was made again, its first ones."""
    recreated, incarnations, numbers = recreated_topics(start, end), known_incarnations(end), partition_numbers(end)
    # Of many queues few have new rows: only they get an object.
    return sorted(
        Range(queue, first, range_end, incarnations.get(broker_topic(queue)), numbers.get(queue))
        for queue, offset in start.items()
        if (range_end := end.get(queue, offset))
        > (first := 0 if recreated and broker_topic(queue) in recreated else offset)
    )


def broker_topic(queue: MessageQueue) -> BrokerTopic:
    return queue.topic, queue.broker_name


def recreated_topics(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int]) -> frozenset[BrokerTopic]:
    """Return the topics that were made again after `start`; the first known incarnation is that of the topic read."""
    old_incarnations = known_incarnations(start)
    return frozenset(
        part
        for part, incarnation in known_incarnations(end).items()
        if incarnation != old_incarnations.get(part) and (incarnation < 0 or old_incarnations.get(part, 0) > 0)
    )


def known_incarnations(offsets: Mapping[MessageQueue, int]) -> Mapping[BrokerTopic, int]:
    return offsets.incarnations if isinstance(offsets, Offsets) else _EMPTY


def partition_numbers(offsets: Mapping[MessageQueue, int]) -> PartitionNumbers:
    return offsets.numbers if isinstance(offsets, Offsets) else _EMPTY


def stream_ends(
    begin: Offsets, answers: Mapping[MessageQueue, Bounds], new_start: Callable[[Bounds], int], *, fail: bool
) -> Offsets:
    """Return the ends of all queues; of queues that `begin` does not know, the place where they begin.

    `answers` are those of the brokers that are there.
    Raises: RowsLost, a topic was made again, or a queue has lost rows, and `fail` is set.
    """
    end = Offsets(begin, begin.incarnations | _known_incarnations(begin, answers), begin.numbers)
    recreated = recreated_topics(begin, end)
    for part in sorted(recreated):
        lose_old_topic(part, begin, is_named=end.incarnations[part] > 0, fail=fail)
    for queue in begin:
        if broker_topic(queue) in recreated:
            end[queue] = 0
    in_doubt = _recreated_meanwhile(answers)
    for queue, bounds in answers.items():
        if broker_topic(queue) in in_doubt:
            continue
        if queue not in begin:
            end[queue] = new_start(bounds)
        elif broker_topic(queue) in recreated or begin[queue] <= bounds.end:
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
    in_doubt = _recreated_meanwhile(answers)
    reported = {broker_topic(queue): bounds.incarnation for queue, bounds in answers.items()}
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


def _recreated_meanwhile(answers: Mapping[MessageQueue, Bounds]) -> frozenset[BrokerTopic]:
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


def skip_gaps(start: Mapping[MessageQueue, int], begins: Mapping[MessageQueue, int]) -> Offsets:
    """`start`, but behind rows before `begins`, which brokers no longer have: a batch has all of a gap, for a limit."""
    moved = {queue: begin for queue, begin in begins.items() if begin > start.get(queue, begin)}
    return Offsets({**start, **moved}, known_incarnations(start), partition_numbers(start))


def limit_ends(start: Mapping[MessageQueue, int], end: Mapping[MessageQueue, int], max_rows: int) -> Offsets:
    """The end of a batch of about `max_rows`, split by what queues have; each gets one at least, so none starves."""
    ranges = between(start, end)
    total = sum(map(len, ranges))
    ends = Offsets(end, known_incarnations(end), partition_numbers(end))
    if total > max_rows:
        ends |= {range.queue: range.start + max(1, max_rows * len(range) // total) for range in ranges}
    return ends


def sample_ranges(ranges: Iterable[Range], count: int, most_a_range: int) -> Iterator[tuple[Range, int, int]]:
    """About `count` places, spread over ranges: each range with an offset in it, and the rows that it speaks for."""
    pieces = [piece for piece in ranges if len(piece)]
    sample = pieces[:: max(1, math.ceil(len(pieces) / count))]
    for piece in sample:
        places = min(len(piece), most_a_range, max(1, count // len(sample)))
        for place in range(places):
            yield piece, piece.start + len(piece) * place // places, math.ceil(len(piece) / places)


def is_worth_a_batch(rows: int, min_rows: int | None, waited_ms: float, max_delay_ms: int) -> bool:
    return min_rows is None or rows >= min_rows or waited_ms >= max_delay_ms


def share(
    ranges: Iterable[Range], min_partitions: int, max_partitions: int | None = None, at_once: int = DEFAULT_TASKS
) -> list[tuple[Range, ...]]:
    """The tasks of a batch: few enough to be worth their cost, of similar size.

    Queues are put together in up to `max_partitions` tasks, or as many as are worth it; ranges are cut only to reach
    `min_partitions`. Within a task a queue's rows keep their order. The cluster runs `at_once` tasks at the same time.
    """
    pieces = [task_ranges for task_ranges in ranges if len(task_ranges)]
    rows = sum(map(len, pieces))
    useful_tasks = math.ceil(rows / ROWS_WORTH_A_TASK)
    if max_partitions is None:
        useful_tasks = min(useful_tasks, max(at_once, rows // ROWS_WORTH_MANY_TASKS))
    count = max(min_partitions, useful_tasks if max_partitions is None else min(useful_tasks, max_partitions))
    tasks = pack(_cut(pieces, min(min_partitions, rows)), count, len)
    return [tuple(sorted(task_ranges)) for task_ranges in tasks]


def _cut(ranges: Sequence[Range], count: int) -> list[Range]:
    cuts = [(-len(whole), whole, 1) for whole in ranges]
    heapq.heapify(cuts)
    for _ in range(count - len(ranges)):
        _, whole, parts = cuts[0]
        heapq.heapreplace(cuts, (-math.ceil(len(whole) / (parts + 1)), whole, parts + 1))
    return [piece for _, whole, parts in sorted(cuts, key=lambda cut: cut[1]) for piece in _slices(whole, parts)]


def _slices(whole: Range, parts: int) -> list[Range]:
    borders = [whole.start + len(whole) * part // parts for part in range(parts + 1)]
    return [replace(whole, start=start, end=end) for start, end in pairwise(borders)]


def pack(pieces: Sequence[P], count: int, cost: Callable[[P], int]) -> list[list[P]]:
    """Pieces as tasks of similar cost: the most expensive first, always to the task with the least."""
    tasks: list[list[P]] = [[] for _ in range(min(count, len(pieces)))]
    costs = [(0, number) for number in range(len(tasks))]
    for piece in sorted(pieces, key=cost, reverse=True):
        cost_so_far, number = heapq.heappop(costs)
        tasks[number].append(piece)
        heapq.heappush(costs, (cost_so_far + cost(piece), number))
    return tasks


def search_time(wanted_ms: int, hint: int, bounds: Bounds) -> Generator[int, int, int]:
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
