r"""The log files of a store, or of a copy of one: which there are, and what of them is to be read.

The store may be open in a broker, ours or Java's, and grow: what is read is settled when the query is planned.

    | 00000000000000000000 | 00000000001073741824 | 00000000002147483648 | 00000000003221225472 |
      record ... BLANK       record ... BLANK       record ... | 0 0 0     0 0 0 0 0 0 0 0 0 0 0
      |-------- span -------|-------- span --------|-- span ---|           made in advance: no span
                                                               ^ the end of the last sound record

A file is decoded in blocks of whole records, about a mebibyte each:

    file    | record | record | record | record | record | ... | BLANK |
    read    |------ 1 MiB -------|
    block   |-----------------|  |
                               |------ the next read ...

Files are read, never mapped: a disk that fails under a map kills the process. An incomplete record at the end of the
log is left to the next query. Where no record begins the log is damaged; reading goes on at the next sound record that
names its place.

Checksums over all bytes of a record find damaged ones, for about 0.2 us a record:

    ... properties | __CRC32#\x01dddddddddd\x02       the last 20 bytes: a name, ten digits, an end

The kernel checks a whole block at once. A record without a checksum is Java's, whose checksum covers the body alone;
among records that have one it is checked too, because the name may be damaged.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from sparrowmq.errors import BadStore
from sparrowmq.kernel import records as kernel
from sparrowmq.kernel.columns import sound
from sparrowmq.kernel.record_layout import (
    INT,
    LONGEST_HEAD,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_SIZE_BYTES,
    PREFIX,
)
from sparrowmq.protocol.messages import record
from sparrowmq.spark.columns import Mask, Positions
from sparrowmq.spark.source.partition_ranges import lose
from sparrowmq.store.layout import parse_offset_name
from sparrowmq.store.log.damage import record_places

_LOG_FOLDERS: Final = ("commitlog", "store/commitlog", "")
_UNSURE_BLOCKS: Final = 2  # so much of a growing log's end may be in the writing
BLOCK_BYTES: Final = 1 << 20
_MAX_RECORD_BYTES: Final = 256 << 20  # far above maxMessageSize; a size beyond it is damage


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of the log; `begin` is the offset of its first byte."""

    path: str
    begin: int
    size: int


@dataclass(frozen=True, slots=True)
class Span:
    """Whole records of one file: the bytes from `start` to `end`, counted from the file's first one."""

    file: LogFile
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


def plan_spans(path: str, at_least: int, since_ms: int | None, *, fail: bool) -> list[Span]:
    """Find the log files below a path: a store, its folder `commitlog`, or one file of it.

    Files are cut into `at_least` spans, if there is as much in them; those that ended before `since_ms` are left out.
    Raises: BadStore, there are no log files; RowsLost, a file between others is missing, and `fail` is set; OSError.
    """
    files = log_files(path)
    for file, next_file in pairwise(files):
        if file.begin + file.size != next_file.begin:
            missing = f"behind {file.path} the log files do not go on at offset {file.begin + file.size}"
            lose(missing, fail=fail)
    written = [span for span in written_spans(files) if since_ms is None or _may_reach(span, files, since_ms)]
    total = sum(map(len, written))
    return [part for span in written for part in _cut_span(span, -(-len(span) * at_least // max(total, 1)))]


def log_files(path: str) -> list[LogFile]:
    """The files, in the order of the log, by names that mean the same wherever they are read. Raises: BadStore."""
    absolute_path = os.path.abspath(path)
    if os.path.isfile(absolute_path):
        paths = [absolute_path]
    else:
        folders = (os.path.join(absolute_path, folder) for folder in _LOG_FOLDERS)
        paths = next((names for names in map(_list_log_files, folders) if names), [])
    files = []
    for name in paths:
        begin = parse_offset_name(os.path.basename(name))
        if begin is not None:
            files.append(LogFile(name, begin, os.path.getsize(name)))
    if not files:
        raise BadStore(
            f"{path} has no log files; option path names a store, its folder commitlog, or one file of that. "
            "(To read from a broker give the option nameServer.)"
        )
    return sorted(files, key=lambda file: file.begin)


def _list_log_files(folder: str) -> list[str]:
    if not os.path.isdir(folder):
        return []
    return [os.path.join(folder, name) for name in os.listdir(folder) if parse_offset_name(name) is not None]


def full_files(files: Sequence[LogFile]) -> list[LogFile]:
    """The files behind which the log goes on: nothing more comes into them."""
    return _used_files(files)[:-1]


def written_spans(files: Sequence[LogFile]) -> Iterator[Span]:
    """The part of each file that has been written."""
    used = _used_files(files)
    for file in used[:-1]:
        yield Span(file, 0, file.size)
    if used:
        yield Span(used[-1], 0, _written_end(used[-1]))


def _used_files(files: Sequence[LogFile]) -> list[LogFile]:
    used = list(files)
    while used and not any(_read_head(used[-1])):
        used.pop()
    return used


def _written_end(file: LogFile) -> int:
    """Return the end of the last sound record in the log's last file; its size, if it is full or damaged inside."""
    with OpenLogFile(file) as opened:
        last_blocks = deque(blocks(opened, Span(file, 0, file.size), may_end=True), maxlen=_UNSURE_BLOCKS)
        unsure_places = [place for block in last_blocks for place in block.places()]
        end = unsure_places[-1][1] if unsure_places else 0
        if opened.next_sound(end) is not None:
            return file.size
        while unsure_places and not opened.is_sound(*unsure_places[-1]):
            end = unsure_places.pop()[0]
        return end


def _may_reach(span: Span, files: Sequence[LogFile], since_ms: int) -> bool:
    """Whether a span may hold messages of that time: not if the next file, too, begins before it."""
    later_files = files[files.index(span.file) + 1 :]
    if not later_files:
        return True
    begin_ms = _begin_ms(later_files[0])
    return begin_ms is None or begin_ms >= since_ms


def _begin_ms(file: LogFile) -> int | None:
    """When the first record of a file was stored; None if there is none, or it is damaged."""
    head = _read_head(file)
    size, magic = PREFIX.unpack_from(head)
    if magic not in (MAGIC_V1, MAGIC_V2) or not MIN_SIZE_BYTES <= size <= file.size:
        return None
    try:
        with OpenLogFile(file) as opened:
            return record.store_timestamp_ms(head) if opened.is_sound(0, size) else None
    except FileNotFoundError:
        return None


def _read_head(file: LogFile) -> bytes:
    try:
        with OpenLogFile(file) as opened:
            return opened.read(0, LONGEST_HEAD).ljust(LONGEST_HEAD, b"\0")
    except FileNotFoundError:  # Its broker's retention was quicker.
        return bytes(LONGEST_HEAD)


def _cut_span(span: Span, parts: int) -> Iterator[Span]:
    if parts <= 1:
        yield span
        return
    with OpenLogFile(span.file) as opened:
        targets = (span.start + len(span) * part // parts for part in range(1, parts))
        bounds = {opened.next_sound(position) or span.end for position in targets}
    borders = sorted(bounds | {span.start, span.end})
    for start, end in pairwise(borders):
        if end <= span.end:
            yield Span(span.file, start, end)


class Block(NamedTuple):
    """Records end to end."""

    begin: int  # where in the file `content` begins
    content: bytes
    starts: Positions  # of the records, in `content`
    ends: Positions

    def places(self) -> list[tuple[int, int]]:
        return list(zip((self.starts + self.begin).tolist(), (self.ends + self.begin).tolist(), strict=True))

    @property
    def end(self) -> int:
        return self.begin + int(self.ends[-1])


class OpenLogFile:
    def __init__(self, file: LogFile) -> None:
        """Raises: OSError."""
        self.file = file
        self._descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the file's end. Raises: OSError."""
        return os.pread(self._descriptor, size, position)

    def is_sound(self, start: int, end: int) -> bool:
        """Whether the bytes are a record that names this place and fits its CRCs."""
        return record.check(self.read(start, end - start), self.file.begin + start) is None

    def next_sound(self, position: int) -> int | None:
        """The next place of a sound record, from `position` on."""
        file = self.file
        for place in record_places(self.read, file.begin, position, file.size):
            (size,) = INT.unpack(self.read(place, INT.size))
            fits = MIN_SIZE_BYTES <= size <= min(file.size - place, _MAX_RECORD_BYTES)
            if fits and self.is_sound(place, place + size):
                return place
        return None

    def __enter__(self) -> OpenLogFile:
        return self

    def __exit__(self, *_error: object) -> None:
        os.close(self._descriptor)


def blocks(opened: OpenLogFile, span: Span, *, fail: bool = True, may_end: bool = False) -> Iterator[Block]:
    """The records of a span.

    Without `fail`, damage is passed over, and the log says how much. With `may_end`, the log may end within the span:
    where neither record nor BLANK follows. Raises: RowsLost, the file is damaged; OSError.
    """
    position = span.start
    while position < span.end:
        content, record_starts, used = _read_records(opened, position, span.end - position)
        if used:
            begins = np.array(record_starts, np.int64)
            yield Block(position, content, begins, np.append(begins[1:], used))
            position += used
        elif may_end or _is_blank(content, remaining=opened.file.size - position):
            return
        else:
            next_position = min(opened.next_sound(position + 1) or span.end, span.end)
            lose_damaged(opened.file, position, next_position, fail=fail)
            position = next_position


def lose_damaged(file: LogFile, start: int, end: int, *, fail: bool) -> None:
    """Damage was found: end the query, or say it in the log and go on. Raises: RowsLost."""
    problem = f"{file.path} is damaged from offset {file.begin + start} to {file.begin + end}"
    lose(problem, fail=fail, advice="Read another copy of it, or set failOnDataLoss=false to read what is sound")


def _read_records(opened: OpenLogFile, position: int, remaining: int) -> tuple[bytes, list[int], int]:
    """The bytes at a position, where records begin in them, and where the last whole one ends; 0 if there is none."""
    content = opened.read(position, min(BLOCK_BYTES, remaining))
    record_starts, used, _ = kernel.starts(content)
    if not used and len(content) >= PREFIX.size:
        size, magic = PREFIX.unpack_from(content)
        if magic in (MAGIC_V1, MAGIC_V2) and len(content) < size <= min(remaining, _MAX_RECORD_BYTES):
            content = opened.read(position, size)
            record_starts, used, _ = kernel.starts(content)
    return content, record_starts, used


def _is_blank(content: bytes, remaining: int) -> bool:
    """Whether the log goes on in the next file: a BLANK, or no room for one."""
    return remaining < PREFIX.size or (len(content) >= PREFIX.size and PREFIX.unpack_from(content)[1] == MAGIC_BLANK)


def sound_mask(content: bytes, starts: Positions, ends: Positions, origin: int, *, all_of_them: bool) -> Mask:
    """True for each sound record of `content`, at `origin` in the log; `all_of_them`: also blocks of Java's."""
    return np.frombuffer(sound(content, starts.tobytes(), ends.tobytes(), origin, all_of_them), np.bool_)
