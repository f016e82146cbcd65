"""The log files of a store, or of a copy of one: which there are, and what of them is to be read.

The store may be open in a broker, ours or Java's, and grow meanwhile: what is read is settled when the query is
planned.

    | 00000000000000000000 | 00000000001073741824 | 00000000002147483648 | 00000000003221225472 |
      record ... BLANK       record ... BLANK       record ... | 0 0 0     0 0 0 0 0 0 0 0 0 0 0
      |-------- span -------|-------- span --------|-- span ---|           made in advance: no span
                                                               ^ behind the last sound record

A broker writes the end of its log while we look: a record of which a part is there yet is left to the next query.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from sparrowmq.errors import BadStore
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.record_layout import LONGEST_HEAD, MAGIC_V1, MAGIC_V2, MIN_SIZE_BYTES, PREFIX
from sparrowmq.spark.source.partition_ranges import lose
from sparrowmq.spark.stored.blocks import LogFile, Opened, Span, blocks
from sparrowmq.store.layout import parse_offset_name

_LOG_FOLDERS: Final = ("commitlog", "store/commitlog", "")
_UNSURE_BLOCKS: Final = 2  # so much of a growing log's end may be in the writing


def spans(path: str, at_least: int, since_ms: int | None, *, fail: bool) -> list[Span]:
    """Find the log files below a path: a store, its folder `commitlog`, or one file of it.

    Args:
        at_least: files are cut into so many spans, if there is as much in them.
        since_ms: leave out files that ended before it.
        fail: whether a missing file is an error.
    Raises:
        BadStore: there are no log files.
        RowsLost: a file between others is missing.
        OSError: a file cannot be read.
    """
    files = log_files(path)
    for one, other in pairwise(files):
        if one.begin + one.size != other.begin:
            missing = f"behind {one.path} the log files do not go on at offset {one.begin + one.size}"
            lose(missing, fail=fail)
    whole = [span for span in written(files) if since_ms is None or _reaches(span, files, since_ms)]
    total = sum(map(len, whole))
    return [part for span in whole for part in _cut(span, -(-len(span) * at_least // max(total, 1)))]


def log_files(path: str) -> list[LogFile]:
    """The files, in the order of the log, by names that mean the same wherever they are read. Raises: BadStore."""
    whole = os.path.abspath(path)
    if os.path.isfile(whole):
        found = [whole]
    else:
        places = (os.path.join(whole, folder) for folder in _LOG_FOLDERS)
        found = next((names for names in map(_files_in, places) if names), [])
    files = []
    for name in found:
        begin = parse_offset_name(os.path.basename(name))
        if begin is not None:
            files.append(LogFile(name, begin, os.path.getsize(name)))
    if not files:
        raise BadStore(
            f"{path} has no log files; option path names a store, its folder commitlog, or one file of that. "
            "(To read from a broker give the option nameServer.)"
        )
    return sorted(files, key=lambda file: file.begin)


def _files_in(folder: str) -> list[str]:
    if not os.path.isdir(folder):
        return []
    return [os.path.join(folder, name) for name in os.listdir(folder) if parse_offset_name(name) is not None]


def full(files: Sequence[LogFile]) -> list[LogFile]:
    """The files behind which the log goes on: nothing more comes into them."""
    return _used(files)[:-1]


def written(files: Sequence[LogFile]) -> Iterator[Span]:
    """The part of each file that has been written."""
    used = _used(files)
    for file in used[:-1]:
        yield Span(file, 0, file.size)
    if used:
        yield Span(used[-1], 0, _end_of(used[-1]))


def _used(files: Sequence[LogFile]) -> list[LogFile]:
    """Without those at the end that brokers made in advance."""
    used = list(files)
    while used and not any(_head(used[-1])):
        used.pop()
    return used


def _end_of(file: LogFile) -> int:
    """Return the end of the last sound record in the log's last file; its size, if it is full or damaged inside."""
    with Opened(file) as opened:
        last = deque(blocks(opened, Span(file, 0, file.size), may_end=True), maxlen=_UNSURE_BLOCKS)
        unsure = [place for block in last for place in block.places()]
        end = unsure[-1][1] if unsure else 0
        if opened.next_sound(end) is not None:
            return file.size
        while unsure and not opened.is_sound(*unsure[-1]):
            end = unsure.pop()[0]
        return end


def _reaches(span: Span, files: Sequence[LogFile], since_ms: int) -> bool:
    """Whether a span may hold messages of that time: not if the next file, too, begins before it."""
    following = files[files.index(span.file) + 1 :]
    if not following:
        return True
    begin_ms = _begin_ms(following[0])
    return begin_ms is None or begin_ms >= since_ms


def _begin_ms(file: LogFile) -> int | None:
    """When the first record of a file was stored; None if there is none, or it is damaged."""
    head = _head(file)
    size, magic = PREFIX.unpack_from(head)
    if magic not in (MAGIC_V1, MAGIC_V2) or not MIN_SIZE_BYTES <= size <= file.size:
        return None
    try:
        with Opened(file) as opened:
            return record.store_timestamp_ms(head) if opened.is_sound(0, size) else None
    except FileNotFoundError:
        return None


def _head(file: LogFile) -> bytes:
    try:
        with Opened(file) as opened:
            return opened.read(0, LONGEST_HEAD).ljust(LONGEST_HEAD, b"\0")
    except FileNotFoundError:  # Its broker's retention was quicker.
        return bytes(LONGEST_HEAD)


def _cut(span: Span, parts: int) -> Iterator[Span]:
    """The span in about so many parts, each of whole records."""
    if parts <= 1:
        yield span
        return
    with Opened(span.file) as opened:
        wanted = (span.start + len(span) * part // parts for part in range(1, parts))
        bounds = {opened.next_sound(position) or span.end for position in wanted}
    places = sorted(bounds | {span.start, span.end})
    for start, end in pairwise(places):
        if end <= span.end:
            yield Span(span.file, start, end)
