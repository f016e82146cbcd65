"""The messages of one queue that are not done, by message group. Orderly pops give messages of free groups.

    lane of "a"    3 hidden, 7, 8        not free: 7 and 8 wait for 3
    lane of "b"    4, 9                  free: an orderly pop gives 4, and then 9
    lane of ""     5 hidden              all messages without a message group

A lane has the messages of one message group, in their order. It is free if none of them is with a consumer. So the
messages of a free lane are visible again, or wait. `PopQueue` reports each change of a message.

Lanes are only in memory. After a start, or after plain pops, an orderly pop reads the message group of each message
from the log. `unread` has the messages that it has not read yet.

The answer to an orderly pop may be lost: then the same attempt id gets the same messages again (`Attempts`). A message
belongs to the last pop that got it, until it is done. Steps have a number for each attempt id, so that a client cannot
make them long.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Final

from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.properties import NAME_END, VALUE_END
from sparrowmq.protocol.messages.property_names import Property

_MARK: Final = f"{Property.SHARDING_KEY}{NAME_END}".encode()
_VALUE_END: Final = VALUE_END.encode()
NO_GROUP: Final = 0
NO_ATTEMPT: Final = 0


def key_of(view: memoryview) -> int:
    """Return the key of the lane of a record. Two groups with one key would only share an order."""
    raw = bytes(view)
    begin = record.properties_at(raw, 0)
    at = raw.rfind(_MARK, begin)
    while at >= 0:
        start = at + len(_MARK)
        end = raw.find(_VALUE_END, start)
        name = raw[start : end if end >= 0 else len(raw)]
        if name and (at == begin or raw[at - 1] == _VALUE_END[0]):  # else it is the end of another name
            return hash(name)
        at = raw.rfind(_MARK, begin, at)
    return NO_GROUP


class Lane:
    """The messages of one message group. Attributes: hidden: the number of messages that are with consumers."""

    __slots__ = ("hidden", "key", "offsets")

    def __init__(self, key: int) -> None:
        self.key = key
        self.offsets: list[int] = []
        self.hidden = 0


class Lanes:
    """The lanes of one queue.

    Attributes:
        unread: messages that are in no lane yet, the last one first.
        is_full: whether the last pop read no new messages, because too many wait.
    """

    def __init__(self, live: Iterable[int]) -> None:
        self.unread = list(live)[::-1]
        self.is_full = False
        self._by_key: dict[int, Lane] = {}
        self._of: dict[int, Lane] = {}  # by offset
        self._hidden: set[int] = set()
        # A heap of the first messages of free lanes. It may have others too, and one message twice.
        self._heads: list[int] = []

    def __len__(self) -> int:
        return len(self._by_key)

    def add(self, offset: int, key: int, is_hidden: bool) -> None:
        """Add a message behind all others."""
        lane = self._by_key.get(key)
        if lane is None:
            lane = self._by_key[key] = Lane(key)
        lane.offsets.append(offset)
        self._of[offset] = lane
        if is_hidden:
            self._hidden.add(offset)
            lane.hidden += 1
        elif len(lane.offsets) == 1:
            heapq.heappush(self._heads, offset)

    def is_free(self, key: int) -> bool:
        """Whether no message of the lane is with a consumer."""
        lane = self._by_key.get(key)
        return lane is None or not lane.hidden

    def hide(self, offset: int) -> None:
        """Note that a message is with a consumer."""
        lane = self._of.get(offset)
        if lane is not None and offset not in self._hidden:
            self._hidden.add(offset)
            lane.hidden += 1

    def show(self, offset: int) -> None:
        """Note that a message is visible again."""
        if offset in self._hidden:
            self._hidden.discard(offset)
            lane = self._of[offset]
            lane.hidden -= 1
            self._offer(lane)

    def drop(self, offset: int) -> None:
        """Forget a message that is done."""
        lane = self._of.pop(offset, None)
        if lane is None:
            return
        if offset in self._hidden:
            self._hidden.discard(offset)
            lane.hidden -= 1
        lane.offsets.remove(offset)
        if lane.offsets:
            self._offer(lane)
        else:
            del self._by_key[lane.key]

    def ready(self) -> Iterator[int]:
        """Take the messages of free lanes out, in their order. Those that are not taken must be put back."""
        heads, last = self._heads, -1
        walks: dict[int, Iterator[int]] = {}  # by the key of their lane
        while heads:
            offset = heapq.heappop(heads)
            lane = self._of.get(offset)
            if lane is None or lane.hidden or offset == last:
                continue
            walk = walks.get(lane.key)
            if walk is None:
                if lane.offsets[0] != offset:
                    continue
                walk = walks[lane.key] = iter(lane.offsets)
                next(walk)
            last = offset
            yield offset
            behind = next(walk, None)
            if behind is not None:
                heapq.heappush(heads, behind)

    def put_back(self, offset: int) -> None:
        """Undo the last message of `ready`."""
        heapq.heappush(self._heads, offset)

    def has_ready(self) -> bool:
        """Whether a lane with messages is free."""
        heads = self._heads
        while heads:
            lane = self._of.get(heads[0])
            if lane is not None and not lane.hidden and lane.offsets[0] == heads[0]:
                return True
            heapq.heappop(heads)
        return False

    def leading(self, offsets: list[int]) -> list[int]:
        """Return those of some messages that have no others before them in their lanes."""
        some = frozenset(offsets)
        lanes = {lane.key: lane for offset in offsets if (lane := self._of.get(offset)) is not None}
        leading = {each for lane in lanes.values() for each in takewhile(some.__contains__, lane.offsets)}
        return [offset for offset in offsets if offset in leading]

    def _offer(self, lane: Lane) -> None:
        if not lane.hidden:
            heapq.heappush(self._heads, lane.offsets[0])


def number_of(attempt_id: str) -> int:
    """Return the number of an attempt id, of 63 bits."""
    if not attempt_id:
        return NO_ATTEMPT
    from hashlib import blake2b  # a broker loads it only for orderly pops

    return int.from_bytes(blake2b(attempt_id.encode("utf-8", "replace"), digest_size=8).digest()) >> 1


class Attempts:
    """The messages of the attempts of one queue."""

    __slots__ = ("_messages", "_of")

    def __init__(self) -> None:
        self._of: dict[int, int] = {}  # by offset
        self._messages: dict[int, set[int]] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def take(self, offsets: Sequence[int], attempt: int) -> None:
        """Note that a pop got messages. One without an attempt only takes them from others."""
        for offset in offsets:
            if offset in self._of:
                self.drop(offset)
            if attempt != NO_ATTEMPT:
                self._of[offset] = attempt
        if attempt != NO_ATTEMPT:
            self._messages.setdefault(attempt, set()).update(offsets)

    def drop(self, offset: int) -> None:
        """Forget a message."""
        attempt = self._of.pop(offset, NO_ATTEMPT)
        if attempt != NO_ATTEMPT:
            messages = self._messages[attempt]
            messages.discard(offset)
            if not messages:
                del self._messages[attempt]

    def messages(self, attempt: int) -> list[int]:
        """Return the messages of an attempt, in their order."""
        return sorted(self._messages.get(attempt, ()))

    def attempt_of(self, offset: int) -> int:
        return self._of.get(offset, NO_ATTEMPT)

    def clear(self) -> None:
        self._of.clear()
        self._messages.clear()
