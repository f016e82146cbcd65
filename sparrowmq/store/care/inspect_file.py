"""Describe one file of a store in words, for `inspect`.

The name and the folder of a file say its kind, or otherwise its first bytes do. The description has a heading and
lines: one for each record of the log, or for each entry of a queue or an index file.

A file may be damaged, cut short, or have any content. So each value is checked before it is used. A damaged size alone
never causes a large read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

from sparrowmq.core.digits import whole_number
from sparrowmq.core.safe_text import counted
from sparrowmq.errors import BadStore, RemoteProtocolError
from sparrowmq.protocol.messages.message import StoredMessage, SysFlag
from sparrowmq.protocol.messages.record import check, decode, store_timestamp_ms
from sparrowmq.protocol.messages.record_layout import (
    BODY_SIZE_BY_HOSTS,
    BODY_SIZE_FIELD,
    HOST_BITS_AT,
    INT,
    LONGEST_HEAD,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MAX_PROPERTIES_BYTES,
    MAX_TOPIC_BYTES,
    MIN_SIZE_BYTES,
    PROPERTIES_SIZE_FIELD,
    TOPIC_SIZE_FIELD_V1,
    TOPIC_SIZE_FIELD_V2,
)
from sparrowmq.protocol.names import SCHEDULE_TOPIC
from sparrowmq.protocol.wire import json
from sparrowmq.store import checkpoint
from sparrowmq.store.keys import index
from sparrowmq.store.keys.slots import SLOT_SIZE
from sparrowmq.store.layout import (
    BLANK,
    BLANK_SIZE,
    ENTRY,
    ENTRY_SIZE,
    NAME_DIGITS,
    NO_CRC,
    SECTOR,
    Layout,
    parse_offset_name,
)
from sparrowmq.store.log import synced_mark
from sparrowmq.store.log.damage import record_places
from sparrowmq.store.queues.entries import GAP_SIZE, Entry
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Vfs

# A number that `start` can name (an offset in the log, the number of an entry; None: neither), and the words.
Line: TypeAlias = tuple[int | None, str]
# The heading, and the lines after it.
Described: TypeAlias = tuple[str, Iterator[Line]]

_WINDOW: Final = 1 << 18
_LONGEST_TEXT: Final = 200
# The size of all fields after the body: with an empty topic and no properties, and at most.
_LEAST_BEHIND_BODY: Final = TOPIC_SIZE_FIELD_V1 + PROPERTIES_SIZE_FIELD
_MOST_BEHIND_BODY: Final = TOPIC_SIZE_FIELD_V2 + MAX_TOPIC_BYTES + PROPERTIES_SIZE_FIELD + MAX_PROPERTIES_BYTES
# The names that recovery gives to pieces of the log in set-aside.
PIECE: Final = re.compile(rf"[0-9]{{{NAME_DIGITS}}}-[0-9]{{{NAME_DIGITS}}}\.[a-z]+")
_TRANSACTION: Final = {
    SysFlag.PREPARED: "prepared",
    SysFlag.COMMIT: "committed",
    SysFlag.ROLLBACK: "rolled back",
}


class StoreFile:
    """A file that is read through a window, so that many small reads need few system calls."""

    def __init__(self, vfs: Vfs, path: str) -> None:
        self.vfs = vfs
        self.path = path
        *self.folders, self.name = path.split("/")
        self._file = vfs.open(path, writable=False)
        self.size = self._file.size
        self._window, self._window_at = b"", 0

    def read(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only at the file's end."""
        at = position - self._window_at
        if not 0 <= at <= len(self._window) - size:
            self._window = self.vfs.read(self._file, position, max(size, _WINDOW))
            self._window_at, at = position, 0
        return self._window[at : at + size]

    def used(self) -> int:
        """The position after the last byte that is not zero; 0 if there is none."""
        for begin in range((self.size - 1) // _WINDOW * _WINDOW, -1, -_WINDOW):
            used = len(self.read(begin, min(_WINDOW, self.size - begin)).rstrip(b"\0"))
            if used:
                return begin + used
        return 0

    def close(self) -> None:
        self.vfs.close(self._file)


def time_text(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def printable(raw: str) -> str:
    """Return a text from outside, without characters that would move the cursor of a terminal."""
    return raw if raw.isprintable() else repr(raw)


def text(raw: str) -> str:
    """As `printable`, and cut if it is too long."""
    return printable(raw if len(raw) <= _LONGEST_TEXT else f"{raw[:_LONGEST_TEXT]}...")


def described(file: StoreFile, start: int | None) -> Described:
    """The description of a file. Raises: BadStore, it is no file of a store."""
    name = file.name
    if name == "checkpoint":
        return "checkpoint", _checkpoint(file)
    if name in ("abort", "lock"):
        return f"{name}, {file.size} bytes", _marker(file)
    if PIECE.fullmatch(name):
        return LogFile(file).described(start)
    if parse_offset_name(name) is not None:
        return _queue(file, start) if _is_queue(file) else LogFile(file).described(start)
    if index.is_index_name(name):
        return _index(file, start)
    if name.removesuffix(".bak").removesuffix(".tmp").endswith(".json") or file.read(0, 1) == b"{":
        return f"JSON, {file.size} bytes", _json(file)
    raise BadStore(
        f"{printable(file.path)} is no file of a store; see the top of docs/understand/disk.md for those there are"
    )


def _is_queue(file: StoreFile) -> bool:
    if file.folders[-3:-2] == ["consumequeue"]:
        return True
    head = file.read(0, BLANK_SIZE)
    is_log = len(head) == BLANK_SIZE and BLANK.unpack(head)[1] in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK)
    return whole_number(file.folders[-1]) is not None and not is_log


def _begin(file: StoreFile, start: int | None, begin: int, end: int) -> int:
    if start is not None and not begin <= start < max(end, begin + 1):
        raise BadStore(f"{printable(file.path)} begins at {begin} and ends at {end}: {start} is not in it")
    return begin if start is None else start


class Part(NamedTuple):
    """A record, blank or damage at a position of the log. `size` is 0 if it is unknown."""

    size: int
    problem: str | None = None
    message: StoredMessage | None = None  # None for a blank, and for bytes without the shape of a record


class Stretch(NamedTuple):
    """The bytes of the log from offset `begin` to `end`: a part, or the unused rest of the file."""

    begin: int
    end: int
    part: Part
    is_unused: bool = False


class LogFile:
    """A file of the log, or a piece of it from set-aside."""

    def __init__(self, file: StoreFile) -> None:
        self.file = file
        self.begin = int(file.name[:NAME_DIGITS])
        self.end = self.begin + file.size
        self._is_piece = len(file.name) > NAME_DIGITS
        layout = Layout.of("/".join(file.folders[:-1]))
        positions = checkpoint.load(file.vfs, layout.checkpoint).positions
        self._crc_from = positions.crc_from if positions else NO_CRC

    def described(self, start: int | None) -> Described:
        begin = _begin(self.file, start, self.begin, self.end)
        return f"commit log, offsets {self.begin} to {self.end}", self._lines(begin, start is not None)

    def written(self) -> tuple[int, int]:
        """The end of the last record or blank, and when that record was stored. Records are not checked."""
        position, stored_ms = 0, 0
        while position < self.file.size:
            size, problem = self._size(position)
            if problem:
                break
            head = self.file.read(position, LONGEST_HEAD)
            if BLANK.unpack_from(head)[1] != MAGIC_BLANK:
                stored_ms = store_timestamp_ms(head)
            position += size
        return self.begin + position, stored_ms

    def stretches(self, offset: int) -> Iterator[Stretch]:
        """Yield each record, each blank and each damage from an offset on, and the unused rest of the file."""
        used: int | None = None
        while offset < self.end:
            part = self._part(offset - self.begin)
            end = offset + part.size
            if part.problem:
                used = self.begin + self.file.used() if used is None else used
                if offset >= used:
                    yield Stretch(offset, self.end, part, is_unused=True)
                    return
                end = self._resume(offset, part) or used
            yield Stretch(offset, end, part)
            offset = end

    def _lines(self, offset: int, is_chosen: bool) -> Iterator[Line]:
        records = damaged = 0
        for at, end, part, is_unused in self.stretches(offset):
            if is_unused:
                yield at, f"unused up to {end}"
            elif not part.problem:
                records += part.message is not None
                yield at, f"{_message(part.message)}, sound" if part.message else _blank(part.size)
            elif is_chosen and at == offset:
                yield at, f"no sound record begins here: {part.problem}; up to {end} there is none"
            else:
                damaged += 1
                said = f" ({_message(part.message)})" if part.message else ""
                yield at, f"DAMAGED up to {end}: {part.problem}{said}"
        yield (
            None,
            counted(records, "sound record") + (f", damage in {counted(damaged, 'place')}" if damaged else ""),
        )

    def _part(self, position: int) -> Part:
        size, problem = self._size(position)
        if problem:
            return Part(0, problem)
        record = self.file.read(position, size)
        if BLANK.unpack_from(record)[1] == MAGIC_BLANK:
            return Part(size)
        offset = self.begin + position
        problem = check(record, offset, offset >= self._crc_from)
        try:
            return Part(size, problem, decode(record, check_crc=False))
        except RemoteProtocolError:
            return Part(0, problem)

    def _size(self, position: int) -> tuple[int, str | None]:
        """The size of the record or blank at a position, or the problem of its head.

        A damaged size alone never causes a large read: it must match the body's size, as the other fields have a few
        KiB at most.
        """
        left, head = self.file.size - position, self.file.read(position, LONGEST_HEAD)
        size, magic = BLANK.unpack_from(head) if left >= BLANK_SIZE else (0, 0)
        if magic == MAGIC_BLANK and (size == left or (self._is_piece and BLANK_SIZE <= size < left)):
            return size, None
        if magic not in (MAGIC_V1, MAGIC_V2):
            return 0, f"magic {magic & 0xFFFFFFFF:#010x} and size {size} are none of a record"
        if size < MIN_SIZE_BYTES:
            return 0, f"its size says {size} bytes, which are too few"
        if size > left:
            return 0, f"its size says {size} bytes, the file ends after {left}"
        size_at = BODY_SIZE_BY_HOSTS[head[HOST_BITS_AT] >> 4 & 3]
        body_size = INT.unpack_from(head, size_at)[0]
        behind = size - body_size - size_at - BODY_SIZE_FIELD
        if body_size < 0 or not _LEAST_BEHIND_BODY <= behind <= _MOST_BEHIND_BODY:
            return 0, f"its size says {size} bytes, its body {body_size}"
        return size, None

    def _resume(self, offset: int, damaged: Part) -> int | None:
        """The next offset after damage at which a sound record or blank begins."""
        following = offset + damaged.size - self.begin
        if damaged.size and following < self.file.size and not self._part(following).problem:
            return self.begin + following
        first = offset + 1 - self.begin
        for position in record_places(self.file.read, self.begin, first, self.file.size):
            if not self._part(position).problem:
                return self.begin + position
        return None


def _blank(size: int) -> str:
    return f"blank, {size} bytes: the log goes on in the next file"


def _message(message: StoredMessage) -> str:
    words = [
        f"{text(message.topic)}/{message.queue_id} #{message.queue_offset}",
        f"{message.store_size} bytes with a body of {len(message.body)}",
        f"stored {time_text(message.store_timestamp_ms)}",
    ]
    if message.sys_flag & SysFlag.COMPRESSED:
        words.append("compressed")
    if message.sys_flag & SysFlag.TRANSACTION_MASK:
        words.append(_TRANSACTION[message.sys_flag & SysFlag.TRANSACTION_MASK])
    if message.tags:
        words.append(f"tag {text(message.tags)}")
    if message.keys:
        words.append(f"keys {text(' '.join(message.keys))}")
    if message.unique_key:
        words.append(f"id {text(message.unique_key)}")
    return ", ".join(words)


def _queue(file: StoreFile, start: int | None) -> Described:
    topic, queue_id = file.folders[-2:]
    begin, room = int(file.name) // ENTRY_SIZE, file.size // ENTRY_SIZE
    first = _begin(file, start, begin, begin + room)
    words = f"queue {text(topic)}/{queue_id}, entries {begin} to {begin + room}"
    return words, _queue_lines(file, topic, first, begin, begin + room)


def _queue_lines(file: StoreFile, topic: str, first: int, begin: int, end: int) -> Iterator[Line]:
    last = -1
    entries = ((n, Entry(*ENTRY.unpack(file.read((n - begin) * ENTRY_SIZE, ENTRY_SIZE)))) for n in range(first, end))
    for kind, run in groupby(entries, lambda numbered: _EMPTY_ENTRIES.get(numbered[1])):
        if kind:
            numbers = [number for number, _ in run]
            wrong = ", though entries follow" if kind == "unused" and numbers[-1] + 1 < end else ""
            yield numbers[0], f"{kind} up to {numbers[-1] + 1}{wrong}"
            continue
        for number, (offset, size, code) in run:
            what = f"due {time_text(code)}" if topic == SCHEDULE_TOPIC else f"tags code {code}"
            wrong = "" if size > 0 else ", WRONG: no size of a record"
            wrong += "" if offset > last else f", WRONG: not behind the entry before it, of offset {last}"
            yield number, f"log offset {offset}, {size} bytes, {what}{wrong}"
            last = offset
    if file.size % ENTRY_SIZE:
        yield None, f"{file.size % ENTRY_SIZE} bytes behind the last whole entry"


_EMPTY_ENTRIES: Final = {Entry(0, 0, 0): "unused", Entry(0, GAP_SIZE, 0): "gap"}


def _index(file: StoreFile, start: int | None) -> Described:
    if file.size < index.HEADER.size:
        return f"index, cut short to {file.size} bytes", iter(())
    header = index.HEADER.unpack(file.read(0, index.HEADER.size))
    begin_ms, end_ms, begin_offset, end_offset, used_slots, following = header
    slots = _slots(file, following, end_offset)
    first = _begin(file, start, 1, max(following, 1))
    words = f"index, {counted(max(following - 1, 0), 'entry')} in {counted(used_slots, 'slot')}"
    if following > 1:
        words += f" of {slots}" if slots else ""
        words += f", log offsets {begin_offset} to {end_offset}"
        words += f", stored from {time_text(begin_ms)} to {time_text(end_ms)}"
    return words, _index_lines(file, slots, first, following, begin_ms)


def _index_lines(file: StoreFile, slots: int, first: int, following: int, begin_ms: int) -> Iterator[Line]:
    entries_at = index.HEADER.size + slots * SLOT_SIZE
    room = (file.size - entries_at) // index.ENTRY.size
    if following > 1 and not slots:
        yield None, "the entries do not end where the header says; sparrowmq store check tells more"
        return
    for number in range(first, min(following, room)):
        key_hash, offset, seconds, previous = index.ENTRY.unpack(
            file.read(entries_at + number * index.ENTRY.size, index.ENTRY.size)
        )
        chain = f"after entry {previous}" if previous else "first of its slot"
        wrong = "" if 0 <= previous < number and key_hash >= 0 else ", WRONG"
        stored = time_text(begin_ms + seconds * 1000)
        yield (
            number,
            f"hash {key_hash} (slot {key_hash % slots}), log offset {offset}, stored about {stored}, {chain}{wrong}",
        )
    if following > room:
        yield None, f"the header says that entry {following} is next, the file ends before entry {room}"


def _slots(file: StoreFile, following: int, end_offset: int) -> int:
    """The number of slots in an index file, which the file does not contain; 0 if it cannot be found out.

    Entries reach up to the file's end. So they begin at positions that differ from its size by multiples of an entry.
    Only one such position fits the last used byte: the last entry is there.
    """
    usual = StoreSettings("")
    entries_size = usual.index_entries * index.ENTRY.size
    if file.size == index.HEADER.size + usual.index_slots * SLOT_SIZE + entries_size:
        return usual.index_slots
    last_used = file.used() - 1
    last_at = last_used - (last_used - file.size) % index.ENTRY.size
    slots_size = last_at - index.HEADER.size - (following - 1) * index.ENTRY.size
    if following <= 1 or slots_size <= 0 or last_at + index.ENTRY.size > file.size:
        return 0
    is_last = index.ENTRY.unpack(file.read(last_at, index.ENTRY.size))[1] == end_offset
    return slots_size // SLOT_SIZE if is_last else 0


def _checkpoint(file: StoreFile) -> Iterator[Line]:
    found = checkpoint.unpack(file.read(0, SECTOR))
    if file.size < SECTOR:
        yield None, f"cut short: {file.size} bytes of {checkpoint.FILE_SIZE}"
    for what, ms in (("log", found.log_ms), ("queues", found.queues_ms), ("index", found.index_ms)):
        yield None, f"{what}: on disk up to {time_text(ms) if ms else 'an unknown time'}"
    if found.flushed_by_master or found.confirmed:
        yield None, f"flushed by the master up to {found.flushed_by_master}, confirmed to {found.confirmed}"
    if found.positions is None:
        yield None, "no offsets: Java wrote it last, or it is damaged"
        return
    at = found.positions
    yield None, f"log: on disk up to offset {at.flushed}; a start reads it from {at.scan_from}"
    yield None, f"queues and index: know the log up to offset {at.dispatched}"
    if at.index_file == checkpoint.UNKNOWN_INDEX:
        yield None, "index: switched off, or found damaged; a start with it builds it again from the log"
    elif at.index_file:
        yield None, f"index: entry {at.index_next} of file {at.index_file} is next"
    if at.crc_from != NO_CRC:
        yield None, f"records from offset {at.crc_from} on have a CRC over all of their bytes"


def _marker(file: StoreFile) -> Iterator[Line]:
    if file.name == "abort":
        yield None, "a broker has the store open, or did not close it in order"
        if synced := synced_mark.highest(file.read(0, file.size)):
            yield None, f"log: on disk up to offset {synced}, by the last sync"
    else:
        yield None, "locked while a broker has the store open; its being there says nothing"


def _json(file: StoreFile) -> Iterator[Line]:
    try:
        found = json.loads(file.read(0, file.size))
    except json.NotJson as bad:
        yield None, f"DAMAGED: {text(str(bad))}"
        return
    for name, value in found.items() if isinstance(found, dict) else ():
        if not isinstance(value, dict):
            yield None, f"{text(str(name))}: {text(str(value))}"
            continue
        yield None, f"{text(str(name))}: {counted(len(value), 'entry')}"
        for key, entry in value.items():
            yield None, f"  {text(str(key))}: {_members(entry)}"


def _members(value: object) -> str:
    if not isinstance(value, dict):
        return text(str(value))
    return text(", ".join(f"{key}={member}" for key, member in value.items()))
