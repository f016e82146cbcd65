"""Every file of a store: names, sizes, numbers. Read this first.

    store/
      commitlog/00000000000000000000       1 GiB each, named after the offset of its first byte: all messages of all
                00000000001073741824       topics in the order of arrival, as protocol/messages/record.py draws them
      consumequeue/TOPIC/QUEUE/%020d       6,000,000 bytes each, named after its first byte in the queue:
                                           300,000 entries, one for each message of that queue
      index/yyyyMMddHHmmssSSS              420,000,040 bytes each: messages by key (drawn in index.py)
      timers/%020d                         timers that were pending once (ours; drawn in timer_file.py)
      checkpoint                           4,096 bytes: up to where everything is on disk (drawn in checkpoint.py)
      ends/%020d                           where each queue ends, for the checkpoint (ours; drawn in queue_ends.py)
      abort                                there while a broker runs; found at the start, it tells of a crash
      lock                                 byte 0 is locked while a broker runs; "lock": Java's was the last, "ours"
      set-aside/                           what recovery cut away, and kept (ours; Java has none)
      config/                              JSON of the broker, none of the store's business

Only the commit log is truth: queues and index say nothing that it does not, and are rebuilt from it.

    A log file      | record | record | ... | BLANK: size 4, magic 4 | nothing, up to the end |
                    The last 8 bytes are kept for that BLANK: a record which would reach into them goes to the next
                    file, and BLANK's size says how many bytes are left. A batch goes to one file or the next, whole.

    A queue entry   | offset in the log 8 | size 4 | tags code 8 |
                    Tags code: Java's hash of the tag, 0 for none; in SCHEDULE_TOPIC_XXXX when to deliver, in ms, and in
                    our rmq_sys_wheel_timer likewise, with bit 61 set for a recall (Java's has the hash there).
                    A queue whose first entry is not at the start of a file has the gap before it filled with
                    (0, 0x7fffffff, 0).

All numbers are big-endian. A commit-log or index file has its full size from birth, allocated, for it is
mapped; a queue file is sparse, for it is written with pwrite, where a full disk is an error and not a signal.
Source: files that Apache RocketMQ 4.9.7 wrote; StorePathConfigHelper, CommitLog, ConsumeQueue, Java 4.9.8.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparrowmq.errors import BadStore, InvalidName

NAME_DIGITS: Final = 20
BLANK: Final = struct.Struct(">ii")
BLANK_SIZE: Final = BLANK.size

ENTRY: Final = struct.Struct(">qiq")
ENTRY_SIZE: Final = ENTRY.size
GAP_ENTRY: Final = ENTRY.pack(0, 0x7FFFFFFF, 0)

NO_CRC: Final = (1 << 63) - 1  # an offset that no log reaches: records may lack the property CRC

# What the lock file holds tells who opened the store last. Source: DefaultMessageStore.start, Java 4.9.8 and 5.4.
LOCK_OF_JAVA: Final = b"lock"
LOCK_OF_OURS: Final = b"ours"

SECTOR: Final = 512  # what a disk writes whole


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the files of one store are."""

    root: str
    commit_log: str

    @classmethod
    def of(cls, root: Path | str, commit_log: Path | str | None = None) -> Layout:
        return cls(str(root), str(commit_log or os.path.join(root, "commitlog")))

    @property
    def above(self) -> list[str]:
        """The folders above those of the store, from the top: a start may have made them, and a crash may take them."""
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
        # Not lost+found: a store at the root of a disk finds one there, which is root's.
        return os.path.join(self.root, "set-aside")

    def topic(self, topic: str) -> str:
        """The folder of a topic's queues.

        Raises:
            InvalidName: the name would lead out of the store.
        """
        if topic in ("", ".", "..") or "/" in topic or "\0" in topic:
            raise InvalidName(f"{topic!r} cannot be a topic: it is no name of a folder")
        return os.path.join(self.consume_queue, topic)

    def queue(self, topic: str, queue_id: int) -> str:
        return os.path.join(self.topic(topic), str(queue_id))


def offset_name(offset: int) -> str:
    """The file name of an offset."""
    return f"{offset:0{NAME_DIGITS}d}"


def parse_offset_name(name: str) -> int | None:
    """The offset in a file name; None if it is not one."""
    return int(name) if len(name) == NAME_DIGITS and name.isascii() and name.isdigit() else None


def row_of_files(folder: str, names: list[str], file_size: int) -> tuple[list[int], list[int]]:
    """The offsets of the files in a folder: those that follow each other, and those behind a hole.

    Names of other form are not ours and are left alone.

    Raises:
        BadStore: a name is no multiple of the file size.
    """
    begins = sorted(begin for begin in map(parse_offset_name, names) if begin is not None)
    for begin in begins:
        if begin % file_size:
            path = os.path.join(folder, offset_name(begin))
            raise BadStore(f"{path}: no multiple of the file size {file_size}; set the size it was made with")
    count = sum(begin == begins[0] + i * file_size for i, begin in enumerate(begins))
    return begins[:count], begins[count:]


def missing_file(folder: str, begin: int, remedy: str) -> BadStore:
    """What to raise when the file of `begin` is not there though later ones are."""
    return BadStore(f"{os.path.join(folder, offset_name(begin))} is missing, later files are there; {remedy}")
