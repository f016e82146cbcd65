"""Carries the offsets of consumer groups to the copies of their topics, so that a group can go on at the target.

    source   group billing has read orders, queue 3 of broker-a, up to 5,000
    target   the copy of 4,999 is message 812 of its queue: billing goes on at 813

Each round reads what is new in the target queues, and notes which messages are copies of which. A group's offset is
written only if it moves forward, and only while the group has no member at the target. It never passes a message that
the group has not read. Messages that were written at the target stay unread, until a mirror in the other direction has
copied them, and the group has read the copies.

    positions   0   1   2   3   4   5   6
    originals  100 101 102  -  103 104 105     a group that has read 100 to 103 goes on at 3

The message at 3 was written at the target, so the group has not read it, unless a mirror in the other direction has
brought a copy of it to the group. Copies that follow each other are one run: a queue that only its mirror writes to has
a single one.
"""

from __future__ import annotations

import asyncio
import re
import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, Self

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.catalogue import put_group
from sparrowmq.admin.topics import consumers_of
from sparrowmq.client.cluster.blocking_network import BlockingNetwork
from sparrowmq.core.digits import whole_number
from sparrowmq.errors import ChangeFailed, ConfigError, NetworkError, NoGroup, NoRoute, RemoteError, SparrowError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import MessageQueue, StoredMessage
from sparrowmq.protocol.names import is_system_group
from sparrowmq.protocol.requests.client_bodies import ConsumerList
from sparrowmq.protocol.requests.headers import (
    GetConsumerListByGroup,
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from sparrowmq.spark.options import DIVIDER, SinkOptions, SourceOptions
from sparrowmq.spark.pipelines.message_copies import ORIGIN, pull_messages
from sparrowmq.spark.pipelines.running.pipeline_state import Pairs, State
from sparrowmq.spark.pipelines.running.report import Say
from sparrowmq.spark.pipelines.target_topics import admin_of
from sparrowmq.spark.worker import connect

# The next message of each queue, by group.
_GroupOffsets = dict[str, dict[MessageQueue, int]]
_NewOffsets = Mapping[tuple[str, MessageQueue], int]

_ROUND_INTERVAL_S: Final = 1.0
_ANSWER_LIMIT_S: Final = 2.0
_ROUNDS_PER_SEARCH: Final = 30  # between two looks for groups
_ORIGIN_BYTES: Final = ORIGIN.encode()
_MAX_CLOCK_DIFFERENCE_MS: Final = 60_000
_MAX_RUNS: Final = 10_000  # of copies in a part of a queue that is in memory: 1.5 MB
_PLAIN_NAME: Final = re.compile(r"[\w%-]+")


class MirroredGroups:
    """The groups whose offsets a mirror carries: names as `a,b`, or a regular expression. Raises: ConfigError."""

    def __init__(
        self, groups: str, source: SourceOptions, sink: SinkOptions, state: State, cluster: str | None, say: Say
    ) -> None:
        self._names = parse_group_names(groups)
        self._group_pattern = re.compile("|".join(f"(?:{name})" for name in self._names))
        self._source = source
        self._sink = sink
        self._state = state
        self._cluster = cluster
        self._say = say
        self._groups: dict[str, frozenset[str]] = {}  # of each topic
        self._rounds = 0
        self._groups_to_make: set[str] = set()  # groups that some broker of the target refused, or was away for
        # In each target queue: one part of it, or several if groups are far from each other.
        self._copied_parts: dict[MessageQueue, list[_QueuePart]] = {}
        # Of each source queue and its target: what mirrors in the other direction have brought.
        self._returned: dict[tuple[MessageQueue, MessageQueue], ReturnedPlaces] = {}
        self._known_origins: dict[Origin, bool] = {}  # whether they name a queue of the target
        self._source_network = connect(source)
        self._target_network = connect(sink)
        self._is_ending = threading.Event()
        self._printed_lines: set[str] = set()
        self._failure = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._source_network.forget()
        self._target_network.forget()

    @contextmanager
    def in_background(self, *, once: bool) -> Iterator[None]:
        """Carry offsets each second beside what is done here; with `once` also at its end. Raises: SparrowError."""
        thread = threading.Thread(target=self._run_rounds, name="mirrored groups", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_ending.set()
            thread.join()
        if once:
            self._is_ending.clear()
            self.find_groups_again()
            while self.carry() and not all(part.has_room() for parts in self._copied_parts.values() for part in parts):
                pass

    def _run_rounds(self) -> None:
        while not self._is_ending.wait(_ROUND_INTERVAL_S):
            try:
                self.carry()
                self._printed_lines.discard(self._failure)
            except (SparrowError, OSError, ValueError) as error:
                self._failure = f"the offsets of groups cannot be carried now: {error}"
                self._say_once(self._failure)
                self._source_network.forget()  # brokers may have moved
                self._target_network.forget()

    def find_groups_again(self) -> None:
        """Search for new groups in the next round, instead of half a minute later."""
        self._rounds = 0

    def carry(self) -> int:
        """Do one round; returns how many offsets were written. Raises: NetworkError, NoRoute, RemoteError."""
        pairs = dict(self._state.targets)
        if not pairs:
            return 0
        if self._rounds % _ROUNDS_PER_SEARCH == 0:
            self._groups = asyncio.run(self._find_groups({queue.topic for queue in pairs}))
        self._rounds += 1
        queues = {
            group: {queue for queue in pairs if group in self._groups.get(queue.topic, ())}
            for group in sorted(set[str]().union(*self._groups.values()))
        }
        read = {
            group: offsets for group, offsets in _offsets(self._source_network, queues).items() if any(offsets.values())
        }
        read = {group: read[group] for group in self._offline_groups(read, pairs)}
        reached = self._target_offsets({group: {pairs[queue] for queue in offsets} for group, offsets in read.items()})
        self._read_copies(reached)
        moves = {
            (group, queue): offset
            for group, offsets in read.items()
            for queue, offset in self._find_moves(group, offsets, pairs, reached.get(group, {})).items()
        }
        written = self._write_offsets(moves, pairs)
        self._forget_copies(reached)
        return written

    def _write_offsets(self, moves: _NewOffsets, pairs: Pairs) -> int:
        """Write offsets of groups that are still offline, and not as far by themselves; returns how many."""
        offline = self._offline_groups({group for group, _ in moves}, pairs)
        reached = self._target_offsets({group: {queue for name, queue in moves if name == group} for group in offline})
        forward_moves = {
            (group, queue): offset
            for (group, queue), offset in moves.items()
            if queue in reached.get(group, {}) and offset > reached[group][queue]
        }
        _send_offsets(self._target_network, forward_moves)
        for group in sorted({group for group, _ in forward_moves}):
            self._say_once(f"carries the offsets of group {group}")
        return len(forward_moves)

    def _say_once(self, line: str) -> None:
        if line not in self._printed_lines:
            self._printed_lines.add(line)
            self._say(line)

    async def _find_groups(self, topics: Collection[str]) -> dict[str, frozenset[str]]:
        """Find the chosen groups of topics, and make those that the target lacks; groups of absent brokers stay."""
        groups_by_topic: dict[str, frozenset[str]] = {}
        failure: NetworkError | None = None
        async with admin_of(self._source) as source, admin_of(self._sink) as target:
            source.servers.missing, target.servers.missing = {}, {}
            for topic in sorted(topics):
                known_groups, names = self._groups.get(topic, frozenset()), list[str]()
                try:
                    names = await consumers_of(source.servers, topic)
                except NoRoute:  # it was deleted
                    continue
                except NetworkError as error:
                    failure = error
                chosen = {name for name in names if self._group_pattern.fullmatch(name) and not is_system_group(name)}
                groups_by_topic[topic] = known_groups.union(chosen) if source.servers.missing else frozenset(chosen)
            groups = set[str]().union(*groups_by_topic.values())
            if failure is not None and not groups:
                raise failure
            for name in self._names:
                if _PLAIN_NAME.fullmatch(name) and name not in groups:
                    self._say_once(f"group {name} has not read these topics; it is looked for each half minute")
            existing = set(await target.groups(self._cluster)) - self._groups_to_make
            self._groups_to_make = {
                name for name in sorted(groups - existing) if not await self._make_group(name, source, target)
            }
        return groups_by_topic

    async def _make_group(self, name: str, source: Admin, target: Admin) -> bool:
        """Make a group at the target as it is at the source; returns False if a broker of the target lacks it."""
        try:
            config = next(iter((await source.group(name)).settings.values()))
            masters = await target.servers.masters(self._cluster)
            await target.servers.change(
                f"setting group {name}", masters, lambda _, address: put_group(target.servers, address, config)
            )
        except NoGroup:
            return True
        except (ChangeFailed, NetworkError) as error:
            self._say_once(f"group {name} cannot be made at each broker now: {error}")
            return False
        self._say(f"made group {name} with the settings of its original")
        return True

    def _offline_groups(self, groups: Collection[str], pairs: Pairs) -> list[str]:
        """Return those of the groups that have no member at the brokers of the target that answer."""
        online, is_answered = set[str](), False
        for queue in sorted({queue.broker_name: queue for queue in pairs.values()}.values()):
            try:
                replies = self._target_network.ask_for_bodies(
                    {group: (queue, GetConsumerListByGroup(group)) for group in groups}
                )
            except (NetworkError, NoRoute):
                continue
            is_answered = True
            online |= {
                group
                for group, reply in replies.items()
                if isinstance(reply, bytes) and ConsumerList.decode(reply).consumer_id_list
            }
        return [group for group in groups if is_answered and group not in online]

    def _target_offsets(self, queues: Mapping[str, Collection[MessageQueue]]) -> _GroupOffsets:
        offsets = _offsets(self._target_network, queues)
        return {
            group: {
                queue: offset
                for queue, offset in group_offsets.items()
                if self._target_network.has_master(queue.broker_name)
            }
            for group, group_offsets in offsets.items()
        }

    def _find_moves(
        self, group: str, read: Mapping[MessageQueue, int], pairs: Pairs, reached: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, int]:
        """Return the target queues in which a group goes on further than it has reached there, and where."""
        moves: dict[MessageQueue, int] = {}
        for target in sorted(reached.keys() & self._copied_parts.keys()):
            sources = [queue for queue in read if pairs[queue] == target]
            is_read = partial(self._is_read, target, {queue: read[queue] for queue in sources})
            copies = _part_at(self._copied_parts[target], reached[target]).places
            place = copies.first_unread(reached[target], read, is_read)
            if place > reached[target]:
                moves[target] = place
            if place < copies.end and not copies.has_copy_at(place):
                self._say_once(
                    f"group {group} stays at offset {place} of {target}: this message was written there, and the "
                    "group has not read it"
                )
        return moves

    def _is_read(self, target: MessageQueue, read: Mapping[MessageQueue, int], place: int) -> bool:
        """Whether a group has read a message of the target, which is no copy, as a copy at the source."""
        for source, offset in read.items():
            returned = self._returned.get((source, target))
            if returned is None or place < returned.begin:
                original = _read_message(self._target_network, target, place)
                begin_ms = 0 if original is None else original.store_timestamp_ms - _MAX_CLOCK_DIFFERENCE_MS
                search = SearchOffset(source.topic, source.queue_id, max(0, begin_ms))
                begin = self._source_network.link(source).call(search)[0].offset
                returned = self._returned[source, target] = ReturnedPlaces(place, begin)
            for position, message in _read_messages(
                self._source_network, source, returned.end, offset, self._is_ending
            ):
                origin = _read_origin(message)
                is_returned = origin is not None and self._is_returned(origin, target, message)
                returned.add(position, origin.offset if origin and is_returned else None)
            copy = returned.place_of(place)
            if copy is not None and copy < offset:
                return True
        return False

    def _is_returned(self, origin: Origin, target: MessageQueue, message: memoryview) -> bool:
        """Whether a copy at the source is that of a message of the target, and not of a third cluster's queue."""
        if origin.queue != target:
            return False
        origin_queue = origin._replace(offset=0)
        if origin_queue not in self._known_origins:
            original = _read_message(self._target_network, target, origin.offset)
            if original is None:
                return False
            copied_key = record.decode(message).unique_key
            self._known_origins[origin_queue] = copied_key is not None and copied_key == original.unique_key
        return self._known_origins[origin_queue]

    def _read_copies(self, reached: _GroupOffsets) -> None:
        for queue, starts in _offsets_by_queue(reached).items():
            try:
                self._read_queue(queue, starts)
            except (NetworkError, NoRoute, RemoteError) as error:
                self._copied_parts.pop(queue, None)
                self._say_once(f"{queue} cannot be read, and no offset in it is carried: {error}")

    def _read_queue(self, queue: MessageQueue, starts: Collection[int]) -> None:
        link = self._target_network.link(queue)
        first = link.call(GetMinOffset(queue.topic, queue.queue_id))[0].offset
        last = link.call(GetMaxOffset(queue.topic, queue.queue_id, with_incarnation=True))[0]
        parts_before = self._copied_parts.get(queue, [])
        if not parts_before or any(
            part.incarnation != last.incarnation or not first <= part.places.end <= last.offset for part in parts_before
        ):  # at the start, or the topic was made again, or its log was cut
            self._forget_returned(queue)
            parts_before = []
        parts: list[_QueuePart] = []
        for start in sorted({max(first, start) for start in starts}):
            if parts and parts[-1].contains(start):
                continue
            part = next((known_part for known_part in parts_before if known_part.contains(start)), None)
            if part is None:
                part = _QueuePart(CopiedPlaces(start), last.incarnation)
            self._read_part(queue, part, last.offset)
            parts.append(part)
        self._copied_parts[queue] = parts

    def _read_part(self, queue: MessageQueue, part: _QueuePart, end: int) -> None:
        end = end if part.has_room() else part.places.end
        for position, message in _read_messages(self._target_network, queue, part.places.end, end, self._is_ending):
            origin = _read_origin(message)
            part.places.add(position, origin if origin and origin.label == self._state.label else None)
            if not part.has_room():
                return

    def _forget_returned(self, target: MessageQueue) -> None:
        self._returned = {pair: places for pair, places in self._returned.items() if pair[1] != target}
        self._known_origins = {
            places: is_ours for places, is_ours in self._known_origins.items() if places.queue != target
        }

    def _forget_copies(self, reached: _GroupOffsets) -> None:
        by_queue = _offsets_by_queue(reached)
        for queue in by_queue.keys() & self._copied_parts.keys():
            lowest: dict[int, int] = {}
            parts = self._copied_parts[queue]
            for place in by_queue[queue]:
                number = parts.index(_part_at(parts, place))
                lowest[number] = min(place, lowest.get(number, place))
            for number, place in lowest.items():
                parts[number].places.forget(place)
        for (_, target), returned in self._returned.items():
            returned.forget(min(by_queue.get(target, [0])))


def parse_group_names(groups: str) -> list[str]:
    """Return the names, or expressions, of `a,b`. Raises: ConfigError, one is empty, or no regular expression."""
    names = [name.strip() for name in DIVIDER.split(groups)]
    if not all(names):
        raise ConfigError(f"groups={groups!r} contains an empty name; write a,b, or .* for all groups")
    for name in names:
        try:
            re.compile(name)
        except re.error as error:
            raise ConfigError(f"groups={groups!r} is no regular expression: {error}") from None
    return names


class _QueuePart(NamedTuple):
    """The copies in a part of a target queue, and the incarnation of its topic; Apache's brokers name none."""

    places: CopiedPlaces
    incarnation: int | None

    def has_room(self) -> bool:
        return self.places.run_count < _MAX_RUNS

    def contains(self, place: int) -> bool:
        """Whether the next message of a group that has reached a place is in this part, or will be."""
        end = self.places.end
        return self.places.begin <= place and (place < end or (place == end and self.has_room()))


def _part_at(parts: Sequence[_QueuePart], place: int) -> _QueuePart:
    return next((part for part in parts if part.contains(place)), parts[0])


def _offsets_by_queue(reached: _GroupOffsets) -> dict[MessageQueue, list[int]]:
    by_queue: dict[MessageQueue, list[int]] = {}
    for places in reached.values():
        for queue, place in places.items():
            by_queue.setdefault(queue, []).append(place)
    return dict(sorted(by_queue.items()))


def _read_messages(
    network: BlockingNetwork, queue: MessageQueue, start: int, end: int, ends: threading.Event
) -> Iterator[tuple[int, memoryview]]:
    for message in pull_messages(network.link(queue), queue, start, end) if start < end else ():
        if ends.is_set():
            return
        yield record.queue_offset(message), message


def _read_origin(message: memoryview) -> Origin | None:
    if _ORIGIN_BYTES not in bytes(message):
        return None
    return parse_origin(record.decode(message).properties.get(ORIGIN, ""))


def _read_message(network: BlockingNetwork, queue: MessageQueue, place: int) -> StoredMessage | None:
    first = next(iter(pull_messages(network.link(queue), queue, place, place + 1)), None)
    return None if first is None or record.queue_offset(first) != place else record.decode(first)


def _offsets(network: BlockingNetwork, queues: Mapping[str, Collection[MessageQueue]]) -> _GroupOffsets:
    """Return the offsets of groups, where brokers answer; 0 where a group has none. Raises: RemoteError."""
    requests = {
        (group, queue): (queue, QueryConsumerOffset(group, queue.topic, queue.queue_id))
        for group, queues_of_group in queues.items()
        for queue in queues_of_group
    }
    offsets: _GroupOffsets = defaultdict(dict)
    for (group, queue), reply in network.ask_reachable(requests, _ANSWER_LIMIT_S).items():
        if isinstance(reply, NetworkError | NoRoute):
            continue
        if not isinstance(reply, RemoteError):
            offsets[group][queue] = reply.offset
        elif reply.code in (ResponseCode.QUERY_NOT_FOUND, ResponseCode.TOPIC_NOT_EXIST):
            offsets[group][queue] = 0
        else:
            raise reply
    return offsets


def _send_offsets(network: BlockingNetwork, moves: _NewOffsets) -> None:
    requests = {
        (group, queue): (queue, UpdateConsumerOffset(group, queue.topic, queue.queue_id, place))
        for (group, queue), place in moves.items()
    }
    for reply in network.ask(requests).values():
        if isinstance(reply, RemoteError):
            raise reply


class Origin(NamedTuple):
    """The place that a copy names: of the pipeline `label`; `incarnation` is that of a topic made again, or ""."""

    label: str
    queue: MessageQueue
    incarnation: str
    offset: int


@dataclass(slots=True)
class _Run:
    """Copies at `position` and behind, of the originals from `offset` on."""

    position: int
    queue: MessageQueue
    incarnation: str
    offset: int
    count: int = 1


def parse_origin(text: str) -> Origin | None:
    """Take the property SPARROW_ORIGIN apart; None if a mirror cannot have written it."""
    label, _, rest = text.partition("/")
    place, _, offset = rest.rpartition(":")
    queue_name, _, number = place.rpartition(":")
    topic, _, broker = queue_name.rpartition("@")
    queue_id, _, incarnation = number.partition("+")
    queue, source_offset = whole_number(queue_id), whole_number(offset)
    if not (label and topic and broker) or queue is None or source_offset is None:
        return None
    return Origin(label, MessageQueue(topic, broker, queue), incarnation, source_offset)


class CopiedPlaces:
    """The copies among the messages `[begin, end)` of a queue."""

    def __init__(self, begin: int) -> None:
        self.begin = self.end = begin
        self._runs: list[_Run] = []
        self._incarnations: dict[MessageQueue, str] = {}  # of each original queue, the last one seen
        self._queues: dict[MessageQueue, MessageQueue] = {}

    def add(self, position: int, origin: Origin | None) -> None:
        """Note the next message; None is one that no mirror has copied."""
        self.end = position + 1
        if origin is None:
            return
        if origin.queue not in self._incarnations:
            self._queues[origin.queue] = origin.queue
        self._incarnations[origin.queue] = origin.incarnation
        last = self._runs[-1] if self._runs else None
        if (
            last is not None
            and (last.queue, last.incarnation) == (origin.queue, origin.incarnation)
            and (last.position + last.count, last.offset + last.count) == (position, origin.offset)
        ):
            last.count += 1
        else:
            queue = self._queues[origin.queue]  # the same object for all runs
            self._runs.append(_Run(position, queue, origin.incarnation, origin.offset))

    @property
    def run_count(self) -> int:
        return len(self._runs)

    def first_unread(self, start: int, read: Mapping[MessageQueue, int], is_read: Callable[[int], bool]) -> int:
        """Return the first position from `start` on whose message a group has not read; the end if it read all.

        Copies from an earlier life of a topic count as read, as their originals are gone. `read` has the next original
        of each queue that the group reads; `is_read` is for messages that are no copies.
        """
        position = max(start, self.begin)
        for run in islice(self._runs, self._index_of(position), None):
            for between in range(position, run.position):
                if not is_read(between):
                    return between
            position = max(position, run.position)
            next_position = run.position + max(0, read.get(run.queue, 0) - run.offset)
            if run.incarnation == self._incarnations[run.queue] and next_position < run.position + run.count:
                return max(position, next_position)
            position = run.position + run.count
        return next((between for between in range(position, self.end) if not is_read(between)), self.end)

    def has_copy_at(self, position: int) -> bool:
        index = self._index_of(position)
        return index < len(self._runs) and self._runs[index].position <= position

    def forget(self, before: int) -> None:
        """Forget the runs that end before a position; what is there counts as unknown."""
        del self._runs[: self._index_of(before)]
        self.begin = max(self.begin, min(before, self.end))

    def _index_of(self, position: int) -> int:
        return bisect_right(self._runs, position, key=lambda run: run.position + run.count)


class ReturnedPlaces:
    """Messages of a target queue, from `begin` on, that another mirror brought to a source queue, read up to `end`."""

    def __init__(self, begin: int, end: int) -> None:
        self.begin = begin
        self.end = end
        self._places: dict[int, int] = {}

    def add(self, position: int, original: int | None) -> None:
        """Note the next message of the source queue; None is one that is no such copy."""
        self.end = position + 1
        if original is not None:
            self._places[original] = position

    def place_of(self, original: int) -> int | None:
        """Return where the copy of a message of the target queue is; None if it is not among these."""
        return self._places.get(original)

    def forget(self, before: int) -> None:
        """Forget the copies of what is before a place of the target queue."""
        if before <= self.begin:
            return
        self.begin = before
        self._places = {original: position for original, position in self._places.items() if original >= before}
