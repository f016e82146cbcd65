"""The messages of one queue that are not done, by message group. Orderly pops give messages of free groups.

    group "a"    3 hidden, 7, 8        not free: 7 and 8 wait for 3
    group "b"    4, 9                  free: an orderly pop gives 4, and then 9
    group ""     5 hidden              all messages without a message group

A group has its messages in their order. It is free if none of them is with a consumer. So the messages of a free group
are visible again, or wait. `PopQueue` reports each change of a message.

Groups are only in memory. After a start, or after plain pops, an orderly pop reads the message group of each message
from the log.

The answer to an orderly pop may be lost: then the same attempt id gets the same messages again (`PopQueue.attempts`). A
message belongs to the last pop that got it, until it is done or its time is changed. Steps have a number for each
attempt id.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Final

from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.properties import NAME_END, VALUE_END
from sparrowmq.protocol.messages.property_names import Property

_GROUP_MARK: Final = f"{Property.SHARDING_KEY}{NAME_END}".encode()
_VALUE_END: Final = VALUE_END.encode()
NO_GROUP: Final = 0
NO_ATTEMPT: Final = 0


def key_of(view: memoryview) -> int:
    """Return the key of the message group of a record. Two groups with one key would only share an order."""
    raw = bytes(view)
    begin = record.properties_at(raw, 0)
    position = raw.rfind(_GROUP_MARK, begin)
    while position >= 0:
        start = position + len(_GROUP_MARK)
        end = raw.find(_VALUE_END, start)
        name = raw[start : end if end >= 0 else len(raw)]
        if name and (position == begin or raw[position - 1] == _VALUE_END[0]):  # else it is the end of another name
            return hash(name)
        position = raw.rfind(_GROUP_MARK, begin, position)
    return NO_GROUP


class MessageGroup:
    __slots__ = ("hidden_count", "key", "offsets")

    def __init__(self, key: int) -> None:
        self.key = key
        self.offsets: list[int] = []
        self.hidden_count = 0


class MessageGroups:
    """The message groups of one queue. `unread` has the messages whose group is not read yet, the last one first."""

    def __init__(self, live_offsets: Iterable[int]) -> None:
        self.unread = list(live_offsets)[::-1]
        self.is_full = False
        self._by_key: dict[int, MessageGroup] = {}
        self._group_of: dict[int, MessageGroup] = {}  # by offset
        self._hidden_offsets: set[int] = set()
        # A heap of the first messages of free groups. It may have others too, and one message twice.
        self._head_offsets: list[int] = []

    def __len__(self) -> int:
        return len(self._by_key)

    def add(self, offset: int, key: int, is_hidden: bool) -> None:
        group = self._by_key.get(key)
        if group is None:
            group = self._by_key[key] = MessageGroup(key)
        group.offsets.append(offset)
        self._group_of[offset] = group
        if is_hidden:
            self._hidden_offsets.add(offset)
            group.hidden_count += 1
        elif len(group.offsets) == 1:
            heapq.heappush(self._head_offsets, offset)

    def is_free(self, key: int) -> bool:
        group = self._by_key.get(key)
        return group is None or not group.hidden_count

    def hide(self, offset: int) -> None:
        group = self._group_of.get(offset)
        if group is not None and offset not in self._hidden_offsets:
            self._hidden_offsets.add(offset)
            group.hidden_count += 1

    def show(self, offset: int) -> None:
        if offset in self._hidden_offsets:
            self._hidden_offsets.discard(offset)
            group = self._group_of[offset]
            group.hidden_count -= 1
            self._offer_head(group)

    def drop(self, offset: int) -> None:
        group = self._group_of.pop(offset, None)
        if group is None:
            return
        if offset in self._hidden_offsets:
            self._hidden_offsets.discard(offset)
            group.hidden_count -= 1
        group.offsets.remove(offset)
        if group.offsets:
            self._offer_head(group)
        else:
            del self._by_key[group.key]

    def ready(self) -> Iterator[int]:
        """Take the messages of free groups out, in their order. Those that are not taken must be put back."""
        heads, last_offset = self._head_offsets, -1
        offsets_of_group: dict[int, Iterator[int]] = {}  # by the key of their group
        while heads:
            offset = heapq.heappop(heads)
            group = self._group_of.get(offset)
            if group is None or group.hidden_count or offset == last_offset:
                continue
            remaining_offsets = offsets_of_group.get(group.key)
            if remaining_offsets is None:
                if group.offsets[0] != offset:
                    continue
                remaining_offsets = offsets_of_group[group.key] = iter(group.offsets)
                next(remaining_offsets)
            last_offset = offset
            yield offset
            next_offset = next(remaining_offsets, None)
            if next_offset is not None:
                heapq.heappush(heads, next_offset)

    def put_back(self, offset: int) -> None:
        heapq.heappush(self._head_offsets, offset)

    def has_ready(self) -> bool:
        heads = self._head_offsets
        while heads:
            group = self._group_of.get(heads[0])
            if group is not None and not group.hidden_count and group.offsets[0] == heads[0]:
                return True
            heapq.heappop(heads)
        return False

    def leading(self, offsets: list[int]) -> list[int]:
        """Return the messages of these that have no others before them in their groups."""
        members = frozenset(offsets)
        groups = {group.key: group for offset in offsets if (group := self._group_of.get(offset)) is not None}
        leading = {
            offset_of_group
            for group in groups.values()
            for offset_of_group in takewhile(members.__contains__, group.offsets)
        }
        return [offset for offset in offsets if offset in leading]

    def _offer_head(self, group: MessageGroup) -> None:
        if not group.hidden_count:
            heapq.heappush(self._head_offsets, group.offsets[0])


def number_of(attempt_id: str) -> int:
    """Return the number of an attempt id, of 63 bits."""
    if not attempt_id:
        return NO_ATTEMPT
    from hashlib import blake2b  # a broker loads it only for orderly pops

    return int.from_bytes(blake2b(attempt_id.encode("utf-8", "replace"), digest_size=8).digest()) >> 1
