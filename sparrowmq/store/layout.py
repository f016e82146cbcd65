"""Every file of a store: names, sizes, numbers. Read this first.

    store/
      commitlog/00000000000000000000       1 GiB each, named after the offset of its first byte: all messages of all
                00000000001073741824       topics in the order of arrival, as protocol/messages/record.py draws them
      consumequeue/TOPIC/QUEUE/%020d       6,000,000 bytes each, named after its first byte in the queue:
                                           300,000 entries, one for each message of that queue
      index/yyyyMMddHHmmssSSS              420,000,040 bytes each: messages by key (drawn in index.py)
      timers/%020d                         timers that were pending once (ours; drawn in timers.py)
      checkpoint                           4,096 bytes: offsets up to which all is on disk (drawn in checkpoint.py)
      ends/%020d                           the end of each queue, for the checkpoint (ours; drawn in queue_ends.py)
      abort                                exists while a broker runs; if a start finds it, the broker crashed; notes
                                           how far the log is on disk (drawn in log/flush.py)
      lock                                 byte 0 is locked while a broker runs; its text names the last broker:
                                           "lock" is Java's, "ours" is ours
      set-aside/                           bytes that recovery cut off, and kept (ours; Java has none)
      config/                              JSON files of the broker; the store does not use them

Only the commit log is the source of truth. Queues and index have no other facts, and are rebuilt from it.

    A log file      | record | record | ... | BLANK: size 4, magic 4 | nothing, up to the end |
                    The last 8 bytes are kept for that BLANK: a record that would reach into them goes to the next
                    file. BLANK's size is the number of bytes left. A batch is never split between two files.

    A queue entry   | offset in the log 8 | size 4 | tags code 8 |
                    Tags code: Java's hash of the tag, 0 for none. In SCHEDULE_TOPIC_XXXX it is the delivery time in ms;
                    in our rmq_sys_wheel_timer too, with bit 61 set for a recall (Java's has the hash there).
                    If a queue's first entry is not at the start of a file, the gap before it is filled with
                    (0, 0x7fffffff, 0).

All numbers are big-endian. A commit-log or index file is created with its full size, allocated, because it is mapped. A
queue file is sparse, because it is written with pwrite: there a full disk is an error, not a signal.
Source: files that Apache RocketMQ 4.9.7 wrote; StorePathConfigHelper, CommitLog, ConsumeQueue, Java 4.9.8.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparrowmq.core.digits import whole_number
from sparrowmq.errors import BadStore, InvalidName

NAME_DIGITS: Final = 20
_MAX_NAME_BYTES: Final = 255  # bytes that file systems allow
BLANK: Final = struct.Struct(">ii")
BLANK_SIZE: Final = BLANK.size

ENTRY: Final = struct.Struct(">qiq")
ENTRY_SIZE: Final = ENTRY.size
GAP_ENTRY: Final = ENTRY.pack(0, 0x7FFFFFFF, 0)

NO_CRC: Final = (1 << 63) - 1  # an offset that no log reaches: records may lack the property CRC

# The content of the lock file names the last broker of the store. Source: DefaultMessageStore.start, Java 4.9.8, 5.4.
LOCK_OF_JAVA: Final = b"lock"
LOCK_OF_OURS: Final = b"ours"

SECTOR: Final = 512  # bytes that a disk writes whole


@dataclass(frozen=True, slots=True)
class Layout:
    root: str
    commit_log: str

    @classmethod
    def of(cls, root: Path | str, commit_log: Path | str | None = None) -> Layout:
        return cls(str(root), str(commit_log or os.path.join(root, "commitlog")))

    @property
    def above(self) -> list[str]:
        """The folders above those of the store, from the top: a start may create them, and a crash lose them."""
        paths = (Path(self.root), Path(self.commit_log))
        return sorted({str(folder) for path in paths for folder in path.absolute().parents})

    @property
    def consume_queue(self) -> str:
        return os.path.join(self.root, "consumequeue")

    @property
    def index(self) -> str:
        return os.path.join(self.root, "index")

    @property
    def timers(self) -> str:
        return os.path.join(self.root, "timers")

    @property
    def checkpoint(self) -> str:
        return os.path.join(self.root, "checkpoint")

    @property
    def ends(self) -> str:
        return os.path.join(self.root, "ends")

    @property
    def abort(self) -> str:
        return os.path.join(self.root, "abort")

    @property
    def lock(self) -> str:
        return os.path.join(self.root, "lock")

    @property
    def set_aside(self) -> str:
        # Not lost+found: the root folder of a disk already has one, which belongs to root.
        return os.path.join(self.root, "set-aside")

    def topic(self, topic: str) -> str:
        """The folder of a topic's queues. Raises: InvalidName, the path would be outside the store."""
        if topic in ("", ".", "..") or "/" in topic or "\0" in topic or len(topic.encode()) > _MAX_NAME_BYTES:
            raise InvalidName(f"{topic!r} cannot be a topic: it is not a valid folder name")
        return os.path.join(self.consume_queue, topic)

    def queue(self, topic: str, queue_id: int) -> str:
        return os.path.join(self.topic(topic), str(queue_id))


def offset_name(offset: int) -> str:
    return f"{offset:0{NAME_DIGITS}d}"


def parse_offset_name(name: str) -> int | None:
    return whole_number(name, NAME_DIGITS) if len(name) == NAME_DIGITS else None


def row_of_files(folder: str, names: list[str], file_size: int) -> tuple[list[int], list[int]]:
    """The offsets of the files in a folder: those in an unbroken row, and those after the first hole.

    Names of another form are not ours, and are ignored.

    Raises: BadStore, a name is no multiple of the file size.
    """
    begins = sorted(begin for begin in map(parse_offset_name, names) if begin is not None)
    for begin in begins:
        if begin % file_size:
            path = os.path.join(folder, offset_name(begin))
            raise BadStore(
                f"{path} is not at a multiple of the file size {file_size}; set the size with which it was created"
            )
    count = sum(begin == begins[0] + i * file_size for i, begin in enumerate(begins))
    return begins[:count], begins[count:]


def missing_file(folder: str, begin: int, remedy: str) -> BadStore:
    return BadStore(f"{os.path.join(folder, offset_name(begin))} is missing, but later files exist; {remedy}")
