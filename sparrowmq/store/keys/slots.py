"""The slots of an index file: each contains the number of its newest entry, 4 bytes big endian, 0 for none.

Keys fall into slots all over 20 MB. Single slots are written directly to their places. Some thousand keys at once would
need as many system calls. So the slots of the growing file are kept in memory then. Changed parts are written to the
file before a checkpoint says that the keys are there:

    loop      put put put ── take: the parts that changed ── put put ...
    thread                   └─ write: part, part ... sync      then the checkpoint

A checkpoint before which no part changed frees the memory, so a quiet broker uses none. The next batch of many keys
reads the file again (5 ms). A part may contain slots of later keys, which does no harm. A start after a kill links the
slots of that file again from its entries. No memory is mapped. A store into a map kills the process if the file was
truncated or its sector cannot be read.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any, Final

from sparrowmq.store.log.log_file import LogFile
from sparrowmq.store.vfs import Vfs

SLOT_SIZE: Final = 4
_PART_BITS: Final = 14  # 64 KiB: 10 us to write, and 306 of them in a file of the usual size
_PART: Final = 1 << _PART_BITS
_FEW: Final = 1 << 10  # so few are counted faster than numpy is loaded


class Slots:
    """The slots of one file, from position `begin` on."""

    def __init__(self, file: LogFile, begin: int, count: int) -> None:
        self.count = count
        self._file = file
        self._begin = begin
        self._numbers: Any = None
        self._changed: Any = None
        self._in_writing: Unwritten | None = None

    def newest(self, slot: int) -> int:
        if self._numbers is not None:
            return int(self._numbers[slot])
        return int.from_bytes(self._file.read(self._begin + slot * SLOT_SIZE, SLOT_SIZE), "big")

    def put(self, slot: int, number: int) -> None:
        """Make a slot lead to an entry. Raises: OSError."""
        if self._numbers is not None:
            self._numbers[slot] = number
        self._file.write(self._begin + slot * SLOT_SIZE, number.to_bytes(SLOT_SIZE, "big"))

    def count_used(self) -> int:
        """Return the number of slots that lead to an entry."""
        if self._numbers is None and self.count <= _FEW:
            content = self._file.read(self._begin, self.count * SLOT_SIZE)
            return sum(any(content[at : at + SLOT_SIZE]) for at in range(0, len(content), SLOT_SIZE))
        import numpy

        if self._numbers is not None:
            return int(numpy.count_nonzero(self._numbers))
        used, size = 0, _PART * SLOT_SIZE
        end = self._begin + self.count * SLOT_SIZE
        for begin in range(self._begin, end, size):
            content = self._file.read(begin, min(size, end - begin))
            used += int(numpy.count_nonzero(numpy.frombuffer(content, "i4")))
        return used

    def in_memory(self) -> Any:
        """Return all slots as a numpy array. A caller that changes it calls `note_changed`."""
        if self._numbers is None:
            import numpy  # takes 0.1 s; a store without an index does not need it

            self._numbers = numpy.zeros(self.count, ">i4")
            self._changed = numpy.zeros((self.count >> _PART_BITS) + 1, bool)
            self._load(self._numbers.view("u1"))
        return self._numbers

    def _load(self, room: Any) -> None:
        """Read the slots that may be used."""
        file, end = self._file, self._begin + len(room)
        for low, high in file.used_parts(self._begin):
            if low >= end:
                break
            content = file.read(low, min(high, end) - low)
            room[low - self._begin : low - self._begin + len(content)] = bytearray(content)

    def note_changed(self, slots: Any) -> None:
        """Note that these slots, a numpy array, are not in the file yet."""
        self._changed[slots >> _PART_BITS] = True

    def replace(self, content: bytes) -> None:
        """Write all slots again. Raises: OSError."""
        self._numbers = None
        self._file.write(self._begin, content)

    def take(self) -> Unwritten | None:
        """Return the parts that are not in the file yet; the caller writes them, or gives them back.

        It frees the memory if nothing has changed since the last call, and the parts of that call are in the file.
        """
        if self._numbers is None:
            return None
        if not self._changed.any():
            if self._in_writing is None or self._in_writing.is_written:
                self._numbers = self._in_writing = None
            return None
        parts = self._changed.nonzero()[0].tolist()
        self._changed[:] = False
        self._in_writing = Unwritten(self._file.path, self._file.size, self._begin, self._numbers, parts)
        return self._in_writing

    def give_back(self, unwritten: Unwritten) -> None:
        """Note that these parts are not in the file after all; in any thread."""
        if self._numbers is unwritten.numbers:
            self._changed[unwritten.parts] = True

    def let_go(self) -> None:
        """Write all slots, and free the memory: the file is full. Raises: OSError."""
        if self._numbers is not None:
            self._file.write(self._begin, self._numbers.tobytes())
            self._numbers = self._in_writing = None


@dataclass(slots=True)
class Unwritten:
    """Parts of a file's slots that have to be written to it.

    The file is opened again. It may be deleted meanwhile, and another file may have its descriptor by then.
    """

    path: str
    file_size: int
    begin: int
    numbers: Any
    parts: list[int]
    is_written: bool = False

    def write(self, vfs: Vfs) -> None:
        """Write the parts, in any thread. Does nothing if the file was deleted. Raises: OSError."""
        try:
            file = vfs.open(self.path, writable=True)
        except FileNotFoundError:
            return
        try:
            if file.size < self.file_size:
                raise was_cut(self.path, self.file_size)
            for part in self.parts:
                at = part << _PART_BITS
                vfs.write(file, self.begin + at * SLOT_SIZE, self.numbers[at : at + _PART].tobytes())
            self.is_written = True
        finally:
            vfs.close(file)


def was_cut(path: str, size: int) -> OSError:
    """Return the error for an index file that is shorter than at its creation."""
    return OSError(errno.EIO, f"somebody cut it, it had {size} bytes", path)
