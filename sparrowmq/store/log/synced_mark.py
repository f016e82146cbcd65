"""The file `abort`: it exists while a broker runs, and notes how far the log has been synced.

      0  8  "SYNCED-1"
      8  8  an offset: the log is on disk up to there
     16  4  CRC-32 of bytes 0 to 16
     24 16  the system's boot in which it was written (Linux's boot_id); zeros if that is not known
     40  4  CRC-32 of bytes 24 to 40
    512 44  the same, of the sync before or after that one

After each sync of the log, and before any of its messages is acknowledged, the sync's thread writes one of the two
sectors. These writes are not synced, which would double the cost of a message:

    the process is killed     the system still has the last write: the mark is exact
    the power fails           the mark may be seconds old; what it says is true all the same

A start believes the higher mark. Bytes before it had been on disk, so damage there is no torn tail (recovery.py). After
a restart of the machine, damage behind the mark can look like a log that ended there: the store is in doubt.
Java leaves the file empty (4.9) or writes the id of its process into it (5.x).
"""

from __future__ import annotations

import logging
import struct
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final
from uuid import UUID
from zlib import crc32

from sparrowmq.errors import DiskFull
from sparrowmq.store.layout import SECTOR
from sparrowmq.store.vfs import File, Vfs, content_of

log = logging.getLogger(__name__)

_MARK: Final = struct.Struct(">8sq")
_CRC: Final = struct.Struct(">I")
_MAGIC: Final = b"SYNCED-1"
_SIZE: Final = 2 * SECTOR
_BOOT_AT: Final = 24
_BOOT_SIZE: Final = 16
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@cache
def boot_id() -> bytes:
    """Return what identifies this boot of the system; zeros where the system does not say it."""
    with suppress(OSError, ValueError):
        return UUID(_BOOT_ID.read_text().strip()).bytes
    return bytes(_BOOT_SIZE)


class SyncedMark:
    """The mark of an open store. Only one thread at a time may write it.

    Args:
        path: of the file `abort`.
    """

    def __init__(self, vfs: Vfs, path: str) -> None:
        self._vfs = vfs
        self._path = path
        self._file: File | None = None
        self._sector = 0

    def begin(self, end: int) -> None:
        """Create the file, or take over that of a crash. It says `end` on disk when this returns, and no higher mark.

        The caller syncs the folder. On a full disk the file exists, and is empty.
        """
        exists = self._vfs.exists(self._path)
        try:
            self._file = self._vfs.open(self._path, True) if exists else self._vfs.create(self._path, _SIZE, True)
            if self._file.size != _SIZE:
                self._vfs.truncate(self._file, _SIZE)
            self._vfs.write(self._file, 0, _packed(end).ljust(SECTOR, b"\0") + _packed(end))
            self._vfs.sync(self._file)
        except DiskFull as full:
            log.warning("the file %s does not note how far the log is on disk: %s", self._path, full)
            self.close()
            if not self._vfs.exists(self._path):
                self._vfs.close(self._vfs.create(self._path, 0, allocate=False))

    def note(self, end: int) -> None:
        """Write down that the log is on disk up to `end`. Never raises: the log does not need the mark."""
        if self._file is None:
            return
        try:
            self._vfs.write(self._file, self._sector * SECTOR, _packed(end))
        except (OSError, DiskFull) as error:
            log.warning("%s is not written any more: %s", self._path, error)
            self.close()
        self._sector = 1 - self._sector

    def close(self) -> None:
        """Close the file. It stays, as after a crash."""
        if self._file is not None:
            self._vfs.close(self._file)
            self._file = None


def load(vfs: Vfs, path: str) -> int:
    """Return the higher mark in a file `abort`; 0 without a mark."""
    with suppress(FileNotFoundError):
        return highest(content_of(vfs, path, _SIZE))
    return 0


def highest(content: bytes) -> int:
    """Return the higher mark in the content of a file `abort`; 0 without a mark."""
    return max(_unpacked(content[at : at + SECTOR]) for at in (0, SECTOR))


def lower(vfs: Vfs, path: str, end: int) -> None:
    """Let the marks of a store that is not open say at most `end`, on disk, before its log is cut there."""
    if load(vfs, path) > end:
        mark = SyncedMark(vfs, path)
        mark.begin(end)
        mark.close()


def is_of_earlier_boot(vfs: Vfs, path: str) -> bool:
    """Whether the machine was restarted since the marks were written; False if that is not known."""
    with suppress(FileNotFoundError):
        content = content_of(vfs, path, _SIZE)
        boots = {_boot(content[at : at + SECTOR]) for at in (0, SECTOR)} - {bytes(_BOOT_SIZE)}
        return boot_id() not in boots and bool(boots)
    return False


def _packed(end: int) -> bytes:
    covered, boot = _MARK.pack(_MAGIC, end), boot_id()
    return (covered + _CRC.pack(crc32(covered))).ljust(_BOOT_AT, b"\0") + boot + _CRC.pack(crc32(boot))


def _boot(sector: bytes) -> bytes:
    boot = sector[_BOOT_AT : _BOOT_AT + _BOOT_SIZE]
    crc = sector[_BOOT_AT + _BOOT_SIZE : _BOOT_AT + _BOOT_SIZE + _CRC.size]
    return boot if crc == _CRC.pack(crc32(boot)) else bytes(_BOOT_SIZE)


def _unpacked(sector: bytes) -> int:
    covered = sector[: _MARK.size]
    if len(sector) < _MARK.size + _CRC.size or _CRC.unpack_from(sector, _MARK.size)[0] != crc32(covered):
        return 0
    magic, end = _MARK.unpack(covered)
    return int(end) if magic == _MAGIC else 0
