"""The way of every message into the store: redirects, complete properties, one append.

    send ─┐
    send back ─┤── Writer.put ── a redirect? divert it ── complete its properties ── store.append
    delay due ─┘

Source: SendMessageProcessor and CommitLog.asyncPutMessage, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sparrowmq.broker.redirect import Redirect
from sparrowmq.errors import RemoteError
from sparrowmq.kernel.lanes import Lanes
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.entry import Entry, Placed, PlacedBatch
from sparrowmq.protocol.messages.plain_batch import PlainBatch, scan
from sparrowmq.protocol.messages.properties import MAX_SIZE_BYTES, VALUE_END, Properties, mark
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.store.message_store import MessageStore

# The record adds a checksum of 20 bytes to the properties. The length of both together is an int16.
MAX_PROPERTIES_BYTES: Final = MAX_SIZE_BYTES - 20

# Of a record, besides body, properties, topic and the name of the cluster: at most.
_ADDED_BYTES: Final = 140

_WAITS: Final = f"{mark(Property.WAIT)}true{VALUE_END}"
_CLUSTER: Final = mark(Property.CLUSTER)
_POP_CK: Final = mark(Property.POP_CK)


class Writer:
    def __init__(self, store: MessageStore, cluster: str, redirects: Sequence[Redirect]) -> None:
        self._store = store
        self._cluster = f"{Property.CLUSTER}\x01{cluster}\x02"
        self._redirects = tuple(redirects)
        redirected = [redirect.mark.strip("\x01\x02") for redirect in redirects]
        self._not_plain = [Property.CLUSTER, Property.POP_CK, *redirected]
        self._not_plain_names = tuple([begin.encode() for begin in self._not_plain])

    def lanes(self, not_plain: Iterable[str]) -> Lanes:
        """Lanes for messages as `put` stores them, unless they have a property that begins with one of `not_plain`."""
        return self._store.appender.lanes(self._cluster, [*self._not_plain, *not_plain], MAX_PROPERTIES_BYTES)

    def put(self, entry: Entry, back_from: Redirect | None = None) -> Placed:
        """Append one message; one that comes `back_from` a redirect passes only the redirects after it.

        Raises: RemoteError, MESSAGE_ILLEGAL, the properties are too long or impossible; StoreFailed, DiskFull, nothing
        was stored.
        """
        if entry.properties.size_chars > MAX_SIZE_BYTES:  # before redirects search and edit them
            raise _too_long(entry.properties.size_chars)
        may_divert = back_from is None
        for redirect in self._redirects:
            if may_divert and entry.properties.has(redirect.mark) and redirect.divert(entry):
                placed = self._put_straight(entry, redirect.reserved_bytes)
                if redirect.on_stored is not None:
                    redirect.on_stored(entry, placed)
                return placed
            may_divert = may_divert or redirect is back_from
        return self._put_straight(entry)

    def _put_straight(self, entry: Entry, reserved_bytes: int = 0) -> Placed:
        self._complete(entry, reserved_bytes)
        return self._store.append(entry)[0]

    def put_batch(self, entries: Sequence[Entry]) -> list[Placed]:
        """Append messages of one queue: all of them or none. Raises: as `put`; also if one needs a redirect."""
        for entry in entries:
            self.prepare(entry)
        return self._store.append(*entries)

    def prepare(self, entry: Entry) -> None:
        for redirect in self._redirects:
            if entry.properties.has(redirect.mark) and redirect.divert(entry):
                raise RemoteError(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"a batch cannot hold a message with the property {redirect.mark[1:-1]}; send it by itself",
                )
        self._complete(entry)

    def put_prepared(self, entries: Sequence[Entry]) -> list[Placed]:
        return self._store.append(*entries)

    def check_room(self, topic: str, content_bytes: int, count: int) -> None:
        """Make room in the log for `count` messages before the first of them is put. Raises: StoreFailed, DiskFull."""
        added_bytes = len(topic) + len(self._cluster) + _ADDED_BYTES
        self._store.appender.reserve_room(content_bytes + count * added_bytes)

    def put_plain(self, common_entry: Entry, content: bytes, places: bytes) -> PlacedBatch | None:
        """Do `put_batch` in one pass; None if a message is not plain. The messages are at `places` in `content`."""
        batch = self.plain(common_entry, content, places)
        if batch is None:
            return None
        placed = self._store.append(batch)[0]
        return PlacedBatch(batch.offsets, placed.queue_offset, placed.end)

    def plain(self, common_entry: Entry, content: bytes, places: bytes) -> PlainBatch | None:
        """The batch that `put_plain` appends; `put_batch` refuses none of its messages. None if one is not plain."""
        return scan(common_entry, content, places, self._not_plain_names, self._cluster.encode())

    def check_plain(self, properties: Properties) -> None:
        for redirect in self._redirects:
            if properties.has(redirect.mark):
                raise RemoteError(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"a staged batch cannot hold a message with the property {redirect.mark[1:-1]}: it waits",
                )
        size = len(properties.encode()) + len(self._cluster.encode())
        if size > MAX_PROPERTIES_BYTES:
            raise _too_long(size)

    def _complete(self, entry: Entry, reserved_bytes: int = 0) -> None:
        """Complete the properties: without wish to wait and receipt handle, and with the cluster's name for Go."""
        properties = entry.properties
        if properties.has(_WAITS):
            properties.strike(_WAITS)
        if properties.has(_POP_CK):
            properties.remove(Property.POP_CK)
        if not properties.has(_CLUSTER):
            properties.add(self._cluster)
        size = len(properties.encode())
        if size > MAX_PROPERTIES_BYTES - reserved_bytes:
            raise _too_long(size, reserved_bytes)


def _too_long(size: int, reserved_bytes: int = 0) -> RemoteError:
    limit_text = f"at most {MAX_PROPERTIES_BYTES - reserved_bytes} can be stored"
    if reserved_bytes:
        limit_text += f" of a message that waits, as {reserved_bytes} come to them"
    return RemoteError(ResponseCode.MESSAGE_ILLEGAL, f"the properties take {size} bytes; {limit_text}, use the body")
