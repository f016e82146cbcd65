"""The hash index: find messages by topic and key. It is derived from the log, so it can always be built again.

    | header 40 | slots: 5,000,000 x 4 | entries: 20,000,000 x 20 |

header   begin timestamp 8 | end timestamp 8 | begin offset 8 | end offset 8 | used slots 4 | next entry 4

Entry 0 is not used, so the next entry of a new file is 1. The hash is Java's hash of `topic#key`, made positive. The
slot is hash % slots. Different keys may have one hash, so a search compares the keys of the messages that it finds.

Keys come in batches, as hashes (`KeyHashes`); kernel/index_slots.py links them. Source: IndexFile,
IndexHeader and IndexService, Java 4.9.8; files that 4.9.7 wrote.
"""

from __future__ import annotations

import errno
import logging
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sparrowmq.core.digits import whole_number
from sparrowmq.errors import BadStore, DiskFull
from sparrowmq.kernel.index_layout import PART_BITS, SLOT_BYTES
from sparrowmq.kernel.index_slots import IndexSlots, count_used
from sparrowmq.kernel.log_tail import KeyHashes
from sparrowmq.store.index_keys import key_hash
from sparrowmq.store.log.log_file import LogFile, is_unused
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Unsynced, Vfs

log = logging.getLogger(__name__)

HEADER: Final = struct.Struct(">qqqqii")
ENTRY: Final = struct.Struct(">iqii")
NAME_DIGITS: Final = 17  # yyyyMMddHHmmssSSS
_ENTRIES_PER_READ: Final = 1 << 16  # entries per read
_ENTRIES_PER_PAUSE: Final = 64  # entries, about 100 us
_END_TIME_TOLERANCE_MS: Final = 1000  # the end time of a truncated file comes from its last entry, in whole seconds
_PIECE_BYTES: Final = 1 << 16  # of slots that are read at once
BATCH: Final = 2048  # keys that are linked at once, at most: 0.3 ms
_KEY: Final = struct.Struct(">qqq")  # of KeyHashes
_REMEDY: Final = "start the broker again, which builds the index again from the log"


class Slots:
    """The slots of one file, from position `begin` on: each contains the number of its newest entry, 0 for none.

    Keys fall into slots all over 20 MB. To write each to its place would need as many system calls, so the growing
    file's slots are kept in memory. Changed parts are written before a checkpoint says that the keys are there:

        loop      link link link ── take: the parts that changed ── link link ...
        thread                   └─ write: part, part ... sync      then the checkpoint

    A checkpoint before which no part changed frees the memory. A part may contain slots of later keys, which does no
    harm. A start after a kill links the slots of that file again from its entries. No memory is mapped: a store into a
    map kills the process if the file was truncated or its sector cannot be read.
    """

    def __init__(self, file: LogFile, begin: int, count: int) -> None:
        self.count = count
        self._file = file
        self._begin = begin
        self._slots: IndexSlots | None = None
        self._being_written: Unwritten | None = None

    def newest_entry(self, slot: int) -> int:
        if self._slots is not None:
            return self._slots.newest(slot)
        return int.from_bytes(self._file.read(self._begin + slot * SLOT_BYTES, SLOT_BYTES), "big")

    def count_used(self) -> int:
        if self._slots is not None:
            return count_used(self._slots.content())
        return sum(count_used(content) for _, content in self._used_pieces())

    def load_all(self) -> IndexSlots:
        if self._slots is None:
            slots = self._slots = IndexSlots(self.count)
            for at, content in self._used_pieces():
                slots.load(at, content)
        return self._slots

    def _used_pieces(self) -> Iterator[tuple[int, bytes]]:
        """Yield the parts of the slots that are no hole in the file, each with its position from the first slot."""
        end = self._begin + self.count * SLOT_BYTES
        for low, high in self._file.used_parts(self._begin):
            for begin in range(low, min(high, end), _PIECE_BYTES):
                size = min(_PIECE_BYTES, min(high, end) - begin)
                yield begin - self._begin, self._file.read(begin, size)

    def replace(self, content: bytes) -> None:
        self._slots = None
        self._file.write(self._begin, content)

    def take(self) -> Unwritten | None:
        """Return the parts that are not in the file yet; the caller writes them, or gives them back. It frees the
        memory if nothing has changed since the last call, and the parts of that call are in the file.
        """
        if self._slots is None:
            return None
        parts = self._slots.take_changed()
        if not parts:
            if self._being_written is None or self._being_written.is_written:
                self._slots = self._being_written = None
            return None
        self._being_written = Unwritten(self._file.path, self._file.size, self._begin, self._slots, parts)
        return self._being_written

    def give_back(self, unwritten: Unwritten) -> None:
        """Note that these parts are not in the file after all; in any thread."""
        if self._slots is not None and self._slots is unwritten.slots:
            self._slots.note_changed(unwritten.parts)

    def write_all(self) -> None:
        """Write all slots, and free the memory: the file is full. Raises: OSError."""
        if self._slots is not None:
            self._file.write(self._begin, self._slots.content())
            self._slots = self._being_written = None


@dataclass(slots=True)
class Unwritten:
    """Parts of a file's slots that have to be written to it. The file is opened again, as it may be deleted meanwhile,
    and its descriptor be another file's.
    """

    path: str
    file_size: int
    begin: int
    slots: IndexSlots
    parts: list[int]
    is_written: bool = False

    def write(self, vfs: Vfs) -> None:
        """Write the parts, in any thread, unless the file was deleted. Raises: OSError."""
        try:
            file = vfs.open(self.path, writable=True)
        except FileNotFoundError:
            return
        try:
            if file.size < self.file_size:
                raise cut_error(self.path, self.file_size)
            for part in self.parts:
                vfs.write(file, self.begin + (part << PART_BITS) * SLOT_BYTES, self.slots.part(part))
            self.is_written = True
        finally:
            vfs.close(file)


class IndexFile:
    def __init__(self, file: LogFile, slot_count: int) -> None:
        self.file = file
        self.slot_count = slot_count
        self.slot_table = Slots(file, HEADER.size, slot_count)
        self.max_entries = (file.size - HEADER.size - slot_count * SLOT_BYTES) // ENTRY.size
        header = HEADER.unpack(file.read(0, HEADER.size).ljust(HEADER.size, b"\0"))
        self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, self.used_slots, self.next_entry = header
        self._entries_at = HEADER.size + slot_count * SLOT_BYTES
        self.was_cut = False  # truncated before it was opened
        self._lacks_slots: bool | None = None  # None: not counted yet

    @property
    def name(self) -> str:
        return self.file.path.rpartition("/")[2]

    @property
    def room(self) -> int:
        room: int = self.max_entries - self.next_entry
        return room

    def put(self, keys: bytes) -> None:
        """Add some of the columns of `KeyHashes`; there must be room. The slots are in the file once the parts that
        `Slots.take` returns were written. Raises: OSError.
        """
        self._begin(*_KEY.unpack_from(keys)[1:])
        slots = self.slot_table.load_all()
        used_before = slots.used
        entries = slots.link(keys, self.next_entry, self.begin_ms)
        try:
            self.file.write(self._entry_at(self.next_entry), entries)
        except (DiskFull, OSError):
            slots.unlink(entries)
            raise
        self.used_slots += slots.used - used_before
        self.next_entry += len(keys) // _KEY.size
        self._finish(*_KEY.unpack_from(keys, len(keys) - _KEY.size)[1:])

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Yield the offsets of entries with that hash, newest first, and -1 at least after each 64 other entries.

        Raises: BadStore, a slot or an entry leads to an entry of another slot, or to a later one; or a used slot is
        empty; or an entry is older than the file.
        """
        slot = key_hash % self.slot_count
        number = self.slot_table.newest_entry(slot)
        if number == 0 and self.lacks_slots():
            raise BadStore(
                f"{self.file.path} is damaged: slots that are used lead nowhere, so messages would be missed; {_REMEDY}"
            )
        visited_count = 0
        while 0 < number < self.next_entry:
            entry_hash, offset, seconds, previous = self.entry(number)
            if entry_hash % self.slot_count != slot:
                break
            if previous >= number or seconds < 0:
                raise BadStore(f"{self.file.path} is damaged: entry {number} cannot be what it was; {_REMEDY}")
            stored_ms = self.begin_ms + seconds * 1000
            # Entries contain whole seconds only.
            visited_count += 1
            if entry_hash == key_hash and begin_ms - 999 <= stored_ms <= end_ms:
                yield offset
            elif visited_count % _ENTRIES_PER_PAUSE == 0:
                yield -1
            if stored_ms < begin_ms - 999:
                return
            number = previous
        # The entry may have been written after the header.
        is_of_slot = 0 < number < self.max_entries and self.entry(number)[0] % self.slot_count == slot
        if number != 0 and not is_of_slot:
            raise BadStore(
                f"{self.file.path} is damaged: slot {slot} leads to entry {number} of another slot; {_REMEDY}"
            )

    def lacks_slots(self) -> bool:
        """Whether slots that should be used are empty: a part of the file was lost. They are counted once, in 6 ms."""
        if self._lacks_slots is None:
            self._lacks_slots = self.slot_table.count_used() < self._expected_slots()
        return self._lacks_slots

    def _expected_slots(self) -> int:
        used_slots: int = self.used_slots
        if used_slots != self.next_entry - 1:
            return used_slots
        # Each entry has its own slot, or Java before 4.4 wrote the file: it counted each entry as a new slot.
        return self._rebuilt_slots()[1] if self.next_entry <= _ENTRIES_PER_READ else 0

    def is_damaged(self) -> bool:
        is_whole = self.file.is_whole and not self.was_cut and not self.file.unreadable
        return not is_whole or self.lacks_slots()

    def has_valid_header(self, stored_ms: Callable[[int], int | None]) -> bool:
        """Whether the header fits the first and the last entry, and the times at which their records were stored. A
        search skips files by the header.
        """
        if self.next_entry <= 1:
            return True
        ends = (1, self.begin_offset, self.begin_ms), (self.next_entry - 1, self.end_offset, self.end_ms)
        return self.next_entry <= self.max_entries and all(
            self.entry(number)[1] == offset and abs(ms - (stored_ms(offset) or ms)) < _END_TIME_TOLERANCE_MS
            for number, offset, ms in ends
        )

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Return hash, offset, seconds, and the number of the previous entry in the chain."""
        entry: tuple[int, int, int, int] = ENTRY.unpack(self.file.read(self._entry_at(number), ENTRY.size))
        return entry

    def cut(self, next_entry: int, end_offset: int) -> None:
        """Keep the entries before number `next_entry` whose records are before `end_offset`; link the slots again."""
        self.next_entry = max(1, min(next_entry, self.next_entry))
        while self.next_entry > 1 and self.entry(self.next_entry - 1)[1] >= end_offset:
            self.next_entry -= 1
        slots, self.used_slots = self._rebuilt_slots()
        self.slot_table.replace(slots)
        last_offset, seconds = self.entry(self.next_entry - 1)[1:3] if self.next_entry > 1 else (self.begin_offset, 0)
        self._finish(last_offset, self.begin_ms + seconds * 1000)

    def _rebuilt_slots(self) -> tuple[bytes, int]:
        """Return the slots for the existing entries, and the number of used ones."""
        slots = IndexSlots(self.slot_count)
        for begin in range(1, self.next_entry, _ENTRIES_PER_READ):
            end = min(begin + _ENTRIES_PER_READ, self.next_entry)
            slots.link_again(self.file.read(self._entry_at(begin), (end - begin) * ENTRY.size), begin)
        return slots.content(), slots.used

    def _entry_at(self, number: int) -> int:
        return self._entries_at + number * ENTRY.size

    def _begin(self, offset: int, stored_ms: int) -> None:
        if self.next_entry <= 1:
            self.next_entry, self.begin_offset, self.begin_ms = 1, offset, stored_ms

    def _finish(self, offset: int, stored_ms: int) -> None:
        self.end_offset, self.end_ms = offset, stored_ms
        ends = self.begin_ms, self.end_ms, self.begin_offset, self.end_offset
        self.file.write(0, HEADER.pack(*ends, self.used_slots, self.next_entry))


class Index:
    """The index of a store: files of which the last one grows.

    It is derived from the log, so neither its damage nor a full disk stops a message. If the last file cannot be read
    or written, or the disk has no room for the next one, no more keys are put into it, and searches report the missing
    keys. Once the disk has room, `fill` adds them from the log.
    """

    def __init__(
        self, vfs: Vfs, folder: str, slots: int, entries: int, unsynced: Unsynced, writable: bool = True
    ) -> None:
        self._vfs = vfs
        self._folder = folder
        self._slots = slots
        self._file_size = HEADER.size + slots * SLOT_BYTES + entries * ENTRY.size
        self.files: list[IndexFile] = []
        self.is_damaged = False  # a write failed, or a search has found damage; the next start builds the index again
        # Keys of records that were stored from this time on are missing; None if no key is.
        self.lacks_from_ms: int | None = None
        self.lacks_from = 0  # the log offset of the first record whose keys are missing, while `no_room` is set
        self.no_room: DiskFull | None = None  # why keys are missing that `fill` can add; None if there are none
        self._unsynced = unsynced
        for name in vfs.list_folder(folder):
            if is_index_name(name):
                self._open(name, writable)

    @classmethod
    def from_settings(
        cls, settings: StoreSettings, vfs: Vfs, unsynced: Unsynced, writable: bool = True
    ) -> Index | None:
        """Return the index of a store; None if its settings disable it. Raises: BadStore."""
        if not settings.index:
            return None
        return cls(vfs, settings.layout.index, settings.index_slots, settings.index_entries, unsynced, writable)

    @property
    def end_offset(self) -> int:
        return self.files[-1].end_offset if self.files and self.files[-1].next_entry > 1 else -1

    @property
    def end_ms(self) -> int:
        return self.files[-1].end_ms if self.files else 0

    @property
    def is_complete(self) -> bool:
        """Whether a checkpoint may say that the index has all keys."""
        return not self.is_damaged and self.no_room is None

    def put(self, keys: KeyHashes) -> None:
        """Add keys, unless earlier ones are missing."""
        columns, at = keys.columns.content(), 0
        while at < len(columns) and self.lacks_from_ms is None:
            _, offset, stored_ms = _KEY.unpack_from(columns, at)
            try:
                at += self._put_some(columns, at, stored_ms)
            except DiskFull as full:
                self._wait_for_room(full, stored_ms, offset)
            except OSError as error:
                self.lacks_from_ms = stored_ms
                self.mark_damaged(error)

    @property
    def _lacks_keys(self) -> bool:
        return self.lacks_from_ms is not None

    def begin_full(self, full: DiskFull) -> None:
        """Begin without room for the keys that a crash had left out."""
        self.no_room, self.lacks_from_ms = full, self.end_ms

    def _wait_for_room(self, full: DiskFull, lacks_from_ms: int, lacks_from: int) -> None:
        if self.no_room is None:
            log.warning(
                "the index has no room for its next file, of %.1f MiB (%s): messages are stored, but new ones cannot "
                "be found by key until there is room",
                self._file_size / (1 << 20),
                full,
            )
        self.no_room, self.lacks_from_ms, self.lacks_from = full, lacks_from_ms, lacks_from

    def fill(self, keys: KeyHashes, following: int, is_last: bool) -> bool:
        """Add missing keys: those of the records from `lacks_from` to `following`. Returns whether there was room. If
        `is_last`, no record comes after them, and `put` goes on.
        """
        since_ms, self.lacks_from_ms = self.lacks_from_ms, None
        self.put(keys)
        if self._lacks_keys:  # again no room, or damage
            return False
        if is_last:
            self.no_room = None
            log.warning("the index has all keys again")
        else:
            self.lacks_from_ms, self.lacks_from = max(since_ms or 0, self.end_ms), following
        return True

    def _put_some(self, columns: bytes, at: int, stored_ms: int) -> int:
        """Add keys from byte `at` on: as many as fit into one file, at most a batch. Returns the bytes of them."""
        file = self._with_room(stored_ms)
        if not file.file.is_whole:  # a write after its end would make it look whole again
            raise cut_error(file.file.path, file.file.size)
        self._unsynced.files.add(file.file.path)
        part = columns[at : at + min(file.room, BATCH) * _KEY.size]
        file.put(part)
        if file.file.unreadable:
            raise OSError(errno.EIO, "slots of it cannot be read", file.file.path)
        return len(part)

    def find(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Yield the offsets of records that may have the key, newest first, and -1 after some other entries. Files may
        be deleted between two of them. Raises: BadStore, a file is damaged, or keys of that time are missing.
        """
        wanted_hash = key_hash(topic, key)
        for file in reversed(list(self.files)):
            if file in self.files and file.begin_ms - 999 <= end_ms and begin_ms <= file.end_ms + 999:
                try:
                    for offset in file.find(wanted_hash, begin_ms, end_ms):
                        yield offset
                        if file not in self.files:
                            break
                except BadStore:
                    self.is_damaged = True
                    raise
                if file.file.unreadable:
                    self.is_damaged = True
                    raise BadStore(f"{file.file.path} cannot be read; {_REMEDY}")
        if self.lacks_from_ms is not None and self.lacks_from_ms <= end_ms:
            since_text = datetime.fromtimestamp(self.lacks_from_ms / 1000).isoformat(" ", "seconds")
            if self.no_room is not None and not self.is_damaged:
                raise BadStore(
                    f"the index lacks the keys of messages stored since {since_text}: the disk has no room for its "
                    f"next file ({self._file_size >> 20} MiB); free some space, and the broker adds them"
                )
            raise BadStore(f"the index is damaged, and lacks the keys of messages stored since {since_text}; {_REMEDY}")

    def mark_damaged(self, error: OSError) -> None:
        """Mark the index as damaged, and log that once; in any thread."""
        if not self.is_damaged:
            log.error(
                "the index is damaged (%s): messages are stored, but new ones cannot be found by key; %s",
                error,
                _REMEDY,
            )
        self.is_damaged = True

    def take_unwritten(self) -> list[Unwritten]:
        """Return the slots to write to the files before a checkpoint says that the files have the keys."""
        return [unwritten for file in self.files if (unwritten := file.slot_table.take()) is not None]

    def give_back(self, unwritten: list[Unwritten]) -> None:
        for part in unwritten:
            for file in self.files:
                file.slot_table.give_back(part)

    def has(self, path: str) -> bool:
        return os.path.dirname(path) == self._folder

    def cut(self, name: str, next_entry: int, end_offset: int) -> None:
        """Go back to a checkpoint: file `name`, before entry `next_entry`, records before `end_offset`."""
        while self.files and (
            self.files[-1].name > name or not name or (len(self.files) > 1 and self.files[-2].end_offset >= end_offset)
        ):
            self.drop_last()
        if self.files:
            last = self.files[-1]
            self._unsynced.files.add(last.file.path)
            last.cut(next_entry if last.name == name else last.next_entry, end_offset)

    def drop_all(self, set_aside_folder: str | None = None) -> None:
        """Delete the index, to build it again. With a folder, damaged files are moved there."""
        while self.files:
            file = self.files[-1]
            if set_aside_folder is not None and file.is_damaged():
                self._set_aside(self.files.pop(), set_aside_folder)
            else:
                self.drop_last()
        self.is_damaged, self.lacks_from_ms, self.no_room = False, None, None

    def _set_aside(self, file: IndexFile, folder: str) -> None:
        file.file.close()
        self._vfs.make_folder(folder)
        new_path = os.path.join(folder, f"{file.name}.index")
        self._vfs.rename(file.file.path, new_path)
        self._unsynced.folders.update((folder, self._folder))
        log.warning("the damaged file %s of the index is kept in %s", file.name, new_path)

    def has_unreadable(self) -> bool:
        return any(file.file.unreadable for file in self.files)

    def drop_last(self) -> None:
        self.files.pop().file.remove()
        self._unsynced.folders.add(self._folder)

    def forget_before(self, log_begin: int) -> None:
        """Delete the files that only have records before `log_begin`. The growing file stays."""
        while len(self.files) > 1 and self.files[0].end_offset < log_begin:
            self.files.pop(0).file.remove()
            self._unsynced.folders.add(self._folder)

    def close(self) -> None:
        for file in self.files:
            file.file.close()

    def _open(self, name: str, writable: bool) -> None:
        path = os.path.join(self._folder, name)
        size = self._vfs.size(path)
        if size < self._file_size and self._is_unused(path):
            if writable:
                self._vfs.unlink(path)
            return
        if size > self._file_size or (size < self._file_size and not writable):
            raise BadStore(
                f"{path} has {size} bytes, not {self._file_size}; set maxHashSlotNum and maxIndexNum "
                "as they were, or delete the folder: it will be built again"
            )
        self.files.append(IndexFile(LogFile.open(self._vfs, path, 0, writable), self._slots))
        if size < self._file_size:
            log.warning("%s was cut to %d bytes, it had %d", path, size, self._file_size)
            self.is_damaged = self.files[-1].was_cut = True

    def _is_unused(self, path: str) -> bool:
        try:
            return is_unused(self._vfs, path)
        except OSError:  # a sector cannot be read
            return False

    def _with_room(self, stored_ms: int) -> IndexFile:
        last = self.files[-1] if self.files else None
        if last is not None and last.room > 0:
            return last
        name = _name(stored_ms) if last is None else max(_name(stored_ms), f"{int(last.name) + 1:0{NAME_DIGITS}d}")
        self._vfs.make_folder(self._folder)
        if last is not None:
            last.slot_table.write_all()
        new_file = LogFile.create(self._vfs, os.path.join(self._folder, name), 0, self._file_size)
        self._unsynced.folders.add(self._folder)
        file = IndexFile(new_file, self._slots)
        if last is not None:
            file.begin_ms, file.begin_offset = last.end_ms, last.end_offset
        file.next_entry = 1
        file._finish(file.begin_offset, file.begin_ms)
        self.files.append(file)
        return file


def is_index_name(name: str) -> bool:
    return len(name) == NAME_DIGITS and whole_number(name) is not None


def _name(stored_ms: int) -> str:
    return datetime.fromtimestamp(stored_ms / 1000).strftime("%Y%m%d%H%M%S") + f"{stored_ms % 1000:03d}"


def cut_error(path: str, size: int) -> OSError:
    """Return the error for an index file that is shorter than at its creation."""
    return OSError(errno.EIO, f"another program truncated it; it had {size} bytes", path)
