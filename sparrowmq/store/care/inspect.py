"""Describe any file or folder of a store in words (the idea of tigerbeetle's `inspect`). It reads, and repairs nothing.

    for line in describe(path):
        print(line)

    commitlog/00000000000000000000       each record, sound or not; what is damaged or unused; the blank at the end
    consumequeue/TOPIC/QUEUE/%020d       each entry; gaps
    index/yyyyMMddHHmmssSSS              the header, each entry
    checkpoint, abort, lock              their meaning
    config/*.json                        each entry of each table
    set-aside/*                          as a file of the log
    the store                            a summary of a dozen lines
    any other folder                     a line for each file in it

The store may be one of Java, damaged, or open in a broker: no lock is taken. Each value is checked before it is used.
Files are read piece by piece and never mapped, because a disk error in mapped memory kills the process. The summary of
a store reads only the last file of the log and of each queue.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from sparrowmq.core.digits import whole_number
from sparrowmq.core.safe_text import counted
from sparrowmq.errors import BadStore, CorruptRecord, RemoteProtocolError
from sparrowmq.kernel.index_layout import SLOT_BYTES
from sparrowmq.kernel.record_layout import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.protocol.messages.message import StoredMessage, SysFlag
from sparrowmq.protocol.messages.record import decode, store_timestamp_ms
from sparrowmq.protocol.names import SCHEDULE_TOPIC
from sparrowmq.protocol.wire import json
from sparrowmq.store import checkpoint, index
from sparrowmq.store.layout import (
    BLANK,
    BLANK_SIZE,
    ENTRY,
    ENTRY_SIZE,
    NAME_DIGITS,
    NO_CRC,
    SECTOR,
    Layout,
    offset_name,
    parse_offset_name,
)
from sparrowmq.store.log import flush
from sparrowmq.store.log.log_file import FileQueue, LogFile
from sparrowmq.store.log.log_reader import LogReader
from sparrowmq.store.queues.entries import GAP_SIZE, Entry, count_by_bisection
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Disk, Vfs

# A number that `start` can name (an offset in the log, the number of an entry; None: neither), and the words.
Line: TypeAlias = tuple[int | None, str]
# The heading, and the lines after it.
Description: TypeAlias = tuple[str, Iterator[Line]]

_WINDOW_BYTES: Final = 1 << 18
_MAX_TEXT_CHARACTERS: Final = 200
# The names that recovery gives to pieces of the log in set-aside.
PIECE_NAME: Final = re.compile(rf"[0-9]{{{NAME_DIGITS}}}-[0-9]{{{NAME_DIGITS}}}\.[a-z]+")
_MAX_TOPICS_SHOWN: Final = 10
_AGE_UNITS: Final = ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1000, "seconds"))
_TRANSACTION_STATES: Final = {
    SysFlag.PREPARED: "prepared",
    SysFlag.COMMIT: "committed",
    SysFlag.ROLLBACK: "rolled back",
}


def describe(
    path: Path | str, start: int | None = None, limit: int | None = None, clock: Clock | None = None
) -> Iterator[str]:
    """Describe a file or folder of a store, line by line: from item `start` on (an offset in the log, a queue offset,
    or the number of an index entry), and at most `limit` items. Raises: BadStore, the path is no part of a store, or
    `start` is outside the file; OSError.
    """
    vfs, path = Disk(), os.path.abspath(path)
    if os.path.isfile(path):
        with closing(StoreFile(vfs, path)) as file:
            heading, lines = describe_file(file, start)
            yield heading
            yield from _limit_lines(lines, limit)
    elif os.path.isdir(path):
        yield from _describe_folder(vfs, path, clock or SystemClock())
    else:
        raise BadStore(f"{printable(path)} is neither a file nor a folder; name one of a store")


def _limit_lines(lines: Iterator[Line], limit: int | None) -> Iterator[str]:
    shown_count = 0
    for number, words in lines:
        if number is None:
            yield f"  {words}"
            continue
        if shown_count == limit:
            yield f"  more follow, from {number} on"
            return
        shown_count += 1
        yield f"{number:>12}  {words}"


def _describe_folder(vfs: Vfs, path: str, clock: Clock) -> Iterator[str]:
    """Describe a store, or another folder. Raises: BadStore, it contains no file of a store."""
    layout = Layout.of(path)
    if any(map(vfs.exists, (layout.commit_log, layout.consume_queue, layout.checkpoint))):
        state = "open in a broker, or left by a crash" if vfs.exists(layout.abort) else "closed in order"
        yield f"store {printable(layout.root)}: {state}"
        for part in (_describe_log, _describe_queues, _describe_index, _describe_other_files):
            try:
                yield from part(vfs, layout)
            except OSError as error:  # an open store creates and deletes files
                yield f"{printable(str(error.filename or path))} cannot be read: {error.strerror}"
        yield from _describe_checkpoint(vfs, layout, clock)
    else:
        yield from _describe_files(vfs, path)


def _describe_log(vfs: Vfs, layout: Layout) -> Iterator[str]:
    begins = _file_offsets(vfs, layout.commit_log)
    if not begins:
        yield "log: no files" + ("" if vfs.exists(layout.commit_log) else "; it is elsewhere, or lost")
        return
    last = expected = begins[0]
    for begin in begins:
        with closing(StoreFile(vfs, _file_path(layout.commit_log, begin))) as file:
            if begin != expected:
                yield f"log: the file of offset {expected} is missing"
            expected = begin + file.size
            if any(file.read(0, 8)):
                last = begin
    with closing(StoreFile(vfs, _file_path(layout.commit_log, last))) as file:
        log = _log_in(file)
        end, stored_ms = log.begin, 0
        with suppress(CorruptRecord):
            while True:
                record, end = log.parse(end)
                stored_ms = store_timestamp_ms(record) if record is not None else stored_ms
    stored_text = f", the last message stored {format_time(stored_ms)}" if stored_ms else ""
    yield f"log: {counted(len(begins), 'file')}, offsets {begins[0]} to {end}{stored_text}"


def _describe_queues(vfs: Vfs, layout: Layout) -> Iterator[str]:
    counts: dict[str, list[int]] = {}
    for topic in _list_names(vfs, layout.consume_queue):
        folder = os.path.join(layout.consume_queue, topic)
        names = [name for name in _list_names(vfs, folder) if whole_number(name) is not None]
        counts[topic] = [_entry_count(vfs, os.path.join(folder, name)) for name in names]
    queues, entries = sum(map(len, counts.values())), sum(map(sum, counts.values()))
    yield f"queues: {counted(queues, 'queue')} of {counted(len(counts), 'topic')}, {counted(entries, 'entry')}"
    largest = sorted(counts, key=lambda topic: (-sum(counts[topic]), topic))
    for topic in largest[:_MAX_TOPICS_SHOWN]:
        queues, entries = len(counts[topic]), sum(counts[topic])
        yield f"  {one_line(topic)}: {counted(queues, 'queue')}, {counted(entries, 'entry')}"
    if len(largest) > _MAX_TOPICS_SHOWN:
        yield f"  ... and {len(largest) - _MAX_TOPICS_SHOWN} topics with fewer"


def _describe_index(vfs: Vfs, layout: Layout) -> Iterator[str]:
    names = [name for name in _list_names(vfs, layout.index) if index.is_index_name(name)]
    yield f"index: {counted(len(names), 'file')}"
    if names:
        yield f"  the last: {_heading(vfs, os.path.join(layout.index, names[-1]))}"


def _describe_other_files(vfs: Vfs, layout: Layout) -> Iterator[str]:
    set_aside_names = _list_names(vfs, layout.set_aside)
    if set_aside_names:
        yield f"set-aside: {counted(len(set_aside_names), 'piece')} that recovery cut off"
    config = _list_names(vfs, os.path.join(layout.root, "config"))
    if config:
        yield f"config: {printable(', '.join(config))}"


def _describe_checkpoint(vfs: Vfs, layout: Layout, clock: Clock) -> Iterator[str]:
    if not os.path.isfile(layout.checkpoint):
        yield "checkpoint: none"
        return
    saved = checkpoint.load(vfs, layout.checkpoint)
    ms = min(saved.log_ms, saved.queues_ms)
    age = f"{format_time(ms)}, {_age_text(clock.now_ms() - ms)}" if ms else "never written"
    offsets = f"; the log is on disk up to offset {saved.positions.flushed}" if saved.positions else ""
    yield f"checkpoint: {age}{offsets}"


def _heading(vfs: Vfs, path: str) -> str:
    if not os.path.isfile(path):  # opening a pipe would wait for its other end
        raise BadStore(f"{printable(path)} is no file")
    with closing(StoreFile(vfs, path)) as file:
        return describe_file(file, None)[0]


def _describe_files(vfs: Vfs, path: str) -> Iterator[str]:
    """A line for each file beneath a folder."""
    has_files = False
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            try:
                words = _heading(vfs, os.path.join(folder, name))
            except BadStore:
                continue
            has_files = True
            yield f"{printable(os.path.relpath(os.path.join(folder, name), path))}: {words}"
    if not has_files:
        raise BadStore(f"there is no store at {printable(path)}, nor a file of one")


def _entry_count(vfs: Vfs, queue: str) -> int:
    begins = _file_offsets(vfs, queue)
    if not begins:
        return 0
    with closing(StoreFile(vfs, _file_path(queue, begins[-1]))) as file:
        return (begins[-1] - begins[0]) // ENTRY_SIZE + count_by_bisection(file.read, file.size // ENTRY_SIZE)


def _file_offsets(vfs: Vfs, path: str) -> list[int]:
    return [begin for begin in map(parse_offset_name, _list_names(vfs, path)) if begin is not None]


def _file_path(folder: str, begin: int) -> str:
    return os.path.join(folder, offset_name(begin))


def _list_names(vfs: Vfs, path: str) -> list[str]:
    return vfs.list_folder(path) if os.path.isdir(path) else []


def _age_text(ms: int) -> str:
    for unit_ms, name in _AGE_UNITS:
        if ms >= 2 * unit_ms:
            return f"{ms // unit_ms} {name} ago"
    return "just now" if ms >= 0 else "in the future"


class StoreFile:
    """A file that is read through a window, so that many small reads need few system calls."""

    def __init__(self, vfs: Vfs, path: str) -> None:
        self.vfs = vfs
        self.path = path
        *self.folders, self.name = path.split("/")
        self.file = vfs.open(path, writable=False)
        self.size = self.file.size
        self._window, self._window_at = b"", 0

    def read(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer only at the file's end."""
        at = position - self._window_at
        if not 0 <= at <= len(self._window) - size:
            self._window = self.vfs.read(self.file, position, max(size, _WINDOW_BYTES))
            self._window_at, at = position, 0
        return self._window[at : at + size]

    def find_used_end(self) -> int:
        """Return the position after the last byte that is not zero; 0 if there is none."""
        for begin in range((self.size - 1) // _WINDOW_BYTES * _WINDOW_BYTES, -1, -_WINDOW_BYTES):
            used_size = len(self.read(begin, min(_WINDOW_BYTES, self.size - begin)).rstrip(b"\0"))
            if used_size:
                return begin + used_size
        return 0

    def close(self) -> None:
        self.vfs.close(self.file)


def format_time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(" ", "milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def printable(raw: str) -> str:
    """Return a text from outside, without characters that would move the cursor of a terminal."""
    return raw if raw.isprintable() else repr(raw)


def one_line(raw: str) -> str:
    return printable(raw if len(raw) <= _MAX_TEXT_CHARACTERS else f"{raw[:_MAX_TEXT_CHARACTERS]}...")


def describe_file(file: StoreFile, start: int | None) -> Description:
    """The description of a file. Raises: BadStore, it is no file of a store."""
    name = file.name
    if name == "checkpoint":
        return "checkpoint", _checkpoint_lines(file)
    if name in ("abort", "lock"):
        return f"{name}, {file.size} bytes", _marker_lines(file)
    if PIECE_NAME.fullmatch(name):
        return _describe_log_file(file, start)
    if parse_offset_name(name) is not None:
        return _describe_queue(file, start) if _is_queue(file) else _describe_log_file(file, start)
    if index.is_index_name(name):
        return _describe_index_file(file, start)
    if name.removesuffix(".bak").removesuffix(".tmp").endswith(".json") or file.read(0, 1) == b"{":
        return f"JSON, {file.size} bytes", _json_lines(file)
    raise BadStore(
        f"{printable(file.path)} is no file of a store; see the top of docs/understand/disk.md for those there are"
    )


def _is_queue(file: StoreFile) -> bool:
    if file.folders[-3:-2] == ["consumequeue"]:
        return True
    head = file.read(0, BLANK_SIZE)
    is_log = len(head) == BLANK_SIZE and BLANK.unpack(head)[1] in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK)
    return whole_number(file.folders[-1]) is not None and not is_log


def _first_shown(file: StoreFile, start: int | None, begin: int, end: int) -> int:
    if start is not None and not begin <= start < max(end, begin + 1):
        raise BadStore(f"{printable(file.path)} begins at {begin} and ends at {end}: {start} is not in it")
    return begin if start is None else start


class Stretch(NamedTuple):
    """A record, a blank or damage: the bytes of the log from offset `begin` to `end`."""

    begin: int
    end: int
    record: memoryview | None  # None for a blank, and for bytes without the shape of a record
    problem: str | None


def _log_in(file: StoreFile) -> LogReader:
    """Return a file of the log, or a piece of it from set-aside, as a log."""
    part = LogFile(file.vfs, file.file, int(file.name[:NAME_DIGITS]), is_piece=len(file.name) > NAME_DIGITS)
    log = LogReader(FileQueue(file.vfs, "/".join(file.folders), file.size, [part]))
    positions = checkpoint.load(file.vfs, Layout.of("/".join(file.folders[:-1])).checkpoint).positions
    if positions is not None:
        log.crc_from = positions.crc_from
    return log


def _stretches(log: LogReader, offset: int) -> Iterator[Stretch]:
    """Yield each record, each blank and each damage from an offset on; the rest of the file is unused."""
    used_end = log.last_used_byte(offset)
    while offset < used_end:
        record, end, problem = log.examine(offset)
        if problem is not None:
            is_before_blank = record is not None and log.is_blank(end)
            end = end if is_before_blank else log.next_sound(offset, used_end) or used_end
        yield Stretch(offset, end, record, problem)
        offset = end


def _describe_log_file(file: StoreFile, start: int | None) -> Description:
    log = _log_in(file)
    begin = _first_shown(file, start, log.begin, log.row.end)
    return f"commit log, offsets {log.begin} to {log.row.end}", _log_lines(log, begin, start is not None)


def _log_lines(log: LogReader, offset: int, is_chosen: bool) -> Iterator[Line]:
    records = damaged = 0
    end = offset
    for at, end, record, problem in _stretches(log, offset):
        if problem is None and record is None:
            yield at, f"blank, {end - at} bytes: the log continues in the next file"
        elif problem is None:
            records += 1
            yield at, f"{_message_text(record)}, sound"
        elif is_chosen and at == offset:
            yield at, f"no sound record begins here: {problem}; up to {end} there is none"
        else:
            damaged += 1
            message_text = _message_text(record)
            yield at, f"DAMAGED up to {end}: {problem}" + (f" ({message_text})" if message_text else "")
    if end < log.row.end:
        yield end, f"unused up to {log.row.end}"
    yield None, counted(records, "sound record") + (f", damage in {counted(damaged, 'place')}" if damaged else "")


def _message_text(record: memoryview | None) -> str:
    """Describe a record, sound or not; "" if that is not possible."""
    try:
        message = decode(record or b"", check_crc=False)
    except RemoteProtocolError:
        return ""
    words = [
        f"{one_line(message.topic)}/{message.queue_id} #{message.queue_offset}",
        f"{message.store_size} bytes with a body of {len(message.body)}",
        f"stored {format_time(message.store_timestamp_ms)}",
    ]
    if message.sys_flag & SysFlag.COMPRESSED:
        words.append("compressed")
    if message.sys_flag & SysFlag.TRANSACTION_MASK:
        words.append(_TRANSACTION_STATES[message.sys_flag & SysFlag.TRANSACTION_MASK])
    if message.tags:
        words.append(f"tag {one_line(message.tags)}")
    if message.keys:
        words.append(f"keys {one_line(' '.join(message.keys))}")
    if message.unique_key:
        words.append(f"id {one_line(message.unique_key)}")
    return ", ".join(words)


def _describe_queue(file: StoreFile, start: int | None) -> Description:
    topic, queue_id = file.folders[-2:]
    begin, room = int(file.name) // ENTRY_SIZE, file.size // ENTRY_SIZE
    first = _first_shown(file, start, begin, begin + room)
    words = f"queue {one_line(topic)}/{queue_id}, entries {begin} to {begin + room}"
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
            tags = f"due {format_time(code)}" if topic == SCHEDULE_TOPIC else f"tags code {code}"
            wrong = "" if size > 0 else ", WRONG: no size of a record"
            wrong += "" if offset > last else f", WRONG: not behind the entry before it, of offset {last}"
            yield number, f"log offset {offset}, {size} bytes, {tags}{wrong}"
            last = offset
    if file.size % ENTRY_SIZE:
        yield None, f"{file.size % ENTRY_SIZE} bytes behind the last whole entry"


_EMPTY_ENTRIES: Final = {Entry(0, 0, 0): "unused", Entry(0, GAP_SIZE, 0): "gap"}


def _describe_index_file(file: StoreFile, start: int | None) -> Description:
    if file.size < index.HEADER.size:
        return f"index, cut short to {file.size} bytes", iter(())
    header = index.HEADER.unpack(file.read(0, index.HEADER.size))
    begin_ms, end_ms, begin_offset, end_offset, used_slots, following = header
    slots = _count_slots(file, following, end_offset)
    first = _first_shown(file, start, 1, max(following, 1))
    words = f"index, {counted(max(following - 1, 0), 'entry')} in {counted(used_slots, 'slot')}"
    if following > 1:
        words += f" of {slots}" if slots else ""
        words += f", log offsets {begin_offset} to {end_offset}"
        words += f", stored from {format_time(begin_ms)} to {format_time(end_ms)}"
    return words, _index_lines(file, slots, first, following, begin_ms)


def _index_lines(file: StoreFile, slots: int, first: int, following: int, begin_ms: int) -> Iterator[Line]:
    entries_at = index.HEADER.size + slots * SLOT_BYTES
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
        stored_at = format_time(begin_ms + seconds * 1000)
        yield (
            number,
            f"hash {key_hash} (slot {key_hash % slots}), log offset {offset}, stored about {stored_at}, {chain}{wrong}",
        )
    if following > room:
        yield None, f"the header says that entry {following} is next, the file ends before entry {room}"


def _count_slots(file: StoreFile, following: int, end_offset: int) -> int:
    """Return the number of slots in an index file, which the file does not contain; 0 if it cannot be found out.

    Entries reach up to the file's end. Only one position of a first entry fits the last used byte: the last entry is
    there.
    """
    usual = StoreSettings("")
    entries_size = usual.index_entries * index.ENTRY.size
    if file.size == index.HEADER.size + usual.index_slots * SLOT_BYTES + entries_size:
        return usual.index_slots
    last_used = file.find_used_end() - 1
    last_at = last_used - (last_used - file.size) % index.ENTRY.size
    slots_size = last_at - index.HEADER.size - (following - 1) * index.ENTRY.size
    if following <= 1 or slots_size <= 0 or last_at + index.ENTRY.size > file.size:
        return 0
    is_last = index.ENTRY.unpack(file.read(last_at, index.ENTRY.size))[1] == end_offset
    return slots_size // SLOT_BYTES if is_last else 0


def _checkpoint_lines(file: StoreFile) -> Iterator[Line]:
    saved = checkpoint.unpack(file.read(0, SECTOR))
    if file.size < SECTOR:
        yield None, f"cut short: {file.size} bytes of {checkpoint.FILE_SIZE}"
    for part, ms in (("log", saved.log_ms), ("queues", saved.queues_ms), ("index", saved.index_ms)):
        yield None, f"{part}: on disk up to {format_time(ms) if ms else 'an unknown time'}"
    if saved.flushed_by_master or saved.confirmed:
        yield None, f"flushed by the master up to {saved.flushed_by_master}, confirmed to {saved.confirmed}"
    if saved.positions is None:
        yield None, "no offsets: Java wrote it last, or it is damaged"
        return
    positions = saved.positions
    yield None, f"log: on disk up to offset {positions.flushed}; a start reads it from {positions.scan_from}"
    yield None, f"queues and index: know the log up to offset {positions.dispatched}"
    if positions.index_file == checkpoint.UNKNOWN_INDEX:
        yield None, "index: switched off, or found damaged; a start with it builds it again from the log"
    elif positions.index_file:
        yield None, f"index: entry {positions.index_next} of file {positions.index_file} is next"
    if positions.crc_from != NO_CRC:
        yield None, f"records from offset {positions.crc_from} on have a CRC over all of their bytes"


def _marker_lines(file: StoreFile) -> Iterator[Line]:
    if file.name == "abort":
        yield None, "a broker has the store open, or did not close it in order"
        if synced := flush.highest_mark(file.read(0, file.size)):
            yield None, f"log: on disk up to offset {synced}, by the last sync"
    else:
        yield None, "locked while a broker has the store open; that the file exists says nothing"


def _json_lines(file: StoreFile) -> Iterator[Line]:
    try:
        content = json.loads(file.read(0, file.size))
    except json.NotJson as bad:
        yield None, f"DAMAGED: {one_line(str(bad))}"
        return
    for name, value in content.items() if isinstance(content, dict) else ():
        if not isinstance(value, dict):
            yield None, f"{one_line(str(name))}: {one_line(str(value))}"
            continue
        yield None, f"{one_line(str(name))}: {counted(len(value), 'entry')}"
        for key, entry in value.items():
            yield None, f"  {one_line(str(key))}: {_members_text(entry)}"


def _members_text(value: object) -> str:
    if not isinstance(value, dict):
        return one_line(str(value))
    return one_line(", ".join(f"{key}={member}" for key, member in value.items()))


class PieceRecord(NamedTuple):
    """A sound message of a piece, or damage in it."""

    offset: int  # in the log
    size: int  # in bytes
    message: StoredMessage | None  # None for damage


def check_piece_name(path: Path) -> None:
    """Refuse what is no piece of a log. Raises: BadStore."""
    if not path.is_file():
        raise BadStore(f"there is no file {printable(str(path))}; `ls STORE/set-aside` shows those of a store")
    if not PIECE_NAME.fullmatch(path.name):
        raise BadStore(
            f"{printable(str(path))} is no piece of a log: such files are in the folder set-aside of a store, as "
            "BEGIN-END.forked, BEGIN-END.lost and so on"
        )


def read_piece(path: Path) -> Iterator[PieceRecord]:
    """Yield the messages of a piece in the order of the log, and each damage. Raises: OSError, it cannot be read."""
    with closing(StoreFile(Disk(), os.path.abspath(path))) as file:
        piece = _log_in(file)
        for begin, end, record, problem in _stretches(piece, piece.begin):
            if record is not None or problem is not None:
                message = decode(record, check_crc=False) if record is not None and problem is None else None
                yield PieceRecord(begin, end - begin, message)
