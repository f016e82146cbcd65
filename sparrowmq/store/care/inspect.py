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

The store may be one of Java, damaged, or open in a broker: no lock is taken. Files are read piece by piece and never
mapped, because a disk error in mapped memory kills the process. The summary of a store reads no more than needed: the
last file of the log, by the sizes of its records, and the last file of each queue, by binary search.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from sparrowmq.core.digits import whole_number
from sparrowmq.core.safe_text import counted
from sparrowmq.errors import BadStore
from sparrowmq.loop.clock import Clock, SystemClock
from sparrowmq.store import checkpoint
from sparrowmq.store.care.inspect_file import (
    Line,
    LogFile,
    StoreFile,
    described,
    printable,
    text,
    time_text,
)
from sparrowmq.store.keys import index
from sparrowmq.store.layout import ENTRY_SIZE, Layout, offset_name, parse_offset_name
from sparrowmq.store.queues.entries import halve
from sparrowmq.store.vfs import Disk, Vfs

_TOPICS_SHOWN: Final = 10
_UNITS: Final = ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes"), (1000, "seconds"))


def describe(
    path: Path | str, start: int | None = None, limit: int | None = None, clock: Clock | None = None
) -> Iterator[str]:
    """Describe a file or folder of a store, line by line.

    Args:
        start: the first item to show: an offset in the log, a queue offset, or the number of an index entry.
        limit: the largest number of records or entries to show.
        clock: the current time, for the age of a store's checkpoint.
    Raises:
        BadStore: the path is no part of a store, or `start` is outside the file.
        OSError: the file or folder cannot be read.
    """
    vfs, path = Disk(), os.path.abspath(path)
    if os.path.isfile(path):
        with closing(StoreFile(vfs, path)) as file:
            heading, lines = described(file, start)
            yield heading
            yield from _shown(lines, limit)
    elif os.path.isdir(path):
        yield from _folder(vfs, path, clock or SystemClock())
    else:
        raise BadStore(f"{printable(path)} is neither a file nor a folder; name one of a store")


def _shown(lines: Iterator[Line], limit: int | None) -> Iterator[str]:
    shown = 0
    for number, words in lines:
        if number is None:
            yield f"  {words}"
            continue
        if shown == limit:
            yield f"  more follow, from {number} on"
            return
        shown += 1
        yield f"{number:>12}  {words}"


def _folder(vfs: Vfs, path: str, clock: Clock) -> Iterator[str]:
    """Describe a store, or another folder. Raises: BadStore, it contains no file of a store."""
    layout = Layout.of(path)
    if any(map(vfs.exists, (layout.commit_log, layout.consume_queue, layout.checkpoint))):
        for part in (_state, _log, _queues, _index, _rest):
            try:
                yield from part(vfs, layout)
            except OSError as error:  # an open store creates and deletes files
                yield f"{printable(str(error.filename or path))} cannot be read: {error.strerror}"
        yield from _checkpoint(vfs, layout, clock)
    else:
        yield from _files(vfs, path)


def _state(vfs: Vfs, layout: Layout) -> Iterator[str]:
    state = "open in a broker, or left by a crash" if vfs.exists(layout.abort) else "closed in order"
    yield f"store {printable(layout.root)}: {state}"


def _log(vfs: Vfs, layout: Layout) -> Iterator[str]:
    begins = _begins(vfs, layout.commit_log)
    if not begins:
        yield "log: no files" + ("" if vfs.exists(layout.commit_log) else "; it is elsewhere, or lost")
        return
    last = expected = begins[0]
    for begin in begins:
        with closing(StoreFile(vfs, _path(layout.commit_log, begin))) as file:
            if begin != expected:
                yield f"log: the file of offset {expected} is missing"
            expected = begin + file.size
            if any(file.read(0, 8)):
                last = begin
    with closing(StoreFile(vfs, _path(layout.commit_log, last))) as file:
        end, stored_ms = LogFile(file).written()
    stored = f", the last message stored {time_text(stored_ms)}" if stored_ms else ""
    yield f"log: {counted(len(begins), 'file')}, offsets {begins[0]} to {end}{stored}"


def _queues(vfs: Vfs, layout: Layout) -> Iterator[str]:
    counts: dict[str, list[int]] = {}
    for topic in _names(vfs, layout.consume_queue):
        where = os.path.join(layout.consume_queue, topic)
        names = [name for name in _names(vfs, where) if whole_number(name) is not None]
        counts[topic] = [_entry_count(vfs, os.path.join(where, name)) for name in names]
    queues, entries = sum(map(len, counts.values())), sum(map(sum, counts.values()))
    yield f"queues: {counted(queues, 'queue')} of {counted(len(counts), 'topic')}, {counted(entries, 'entry')}"
    largest = sorted(counts, key=lambda topic: (-sum(counts[topic]), topic))
    for topic in largest[:_TOPICS_SHOWN]:
        queues, entries = len(counts[topic]), sum(counts[topic])
        yield f"  {text(topic)}: {counted(queues, 'queue')}, {counted(entries, 'entry')}"
    if len(largest) > _TOPICS_SHOWN:
        yield f"  ... and {len(largest) - _TOPICS_SHOWN} topics with fewer"


def _index(vfs: Vfs, layout: Layout) -> Iterator[str]:
    names = [name for name in _names(vfs, layout.index) if index.is_index_name(name)]
    yield f"index: {counted(len(names), 'file')}"
    if names:
        yield f"  the last: {_heading(vfs, os.path.join(layout.index, names[-1]))}"


def _rest(vfs: Vfs, layout: Layout) -> Iterator[str]:
    lost = _names(vfs, layout.set_aside)
    if lost:
        yield f"set-aside: {counted(len(lost), 'piece')} that recovery cut off"
    config = _names(vfs, os.path.join(layout.root, "config"))
    if config:
        yield f"config: {printable(', '.join(config))}"


def _checkpoint(vfs: Vfs, layout: Layout, clock: Clock) -> Iterator[str]:
    if not os.path.isfile(layout.checkpoint):
        yield "checkpoint: none"
        return
    found = checkpoint.load(vfs, layout.checkpoint)
    ms = min(found.log_ms, found.queues_ms)
    age = f"{time_text(ms)}, {_age(clock.now_ms() - ms)}" if ms else "never written"
    offsets = f"; the log is on disk up to offset {found.positions.flushed}" if found.positions else ""
    yield f"checkpoint: {age}{offsets}"


def _heading(vfs: Vfs, path: str) -> str:
    """The first line about a file."""
    if not os.path.isfile(path):  # opening a pipe would wait for its other end
        raise BadStore(f"{printable(path)} is no file")
    with closing(StoreFile(vfs, path)) as file:
        return described(file, None)[0]


def _files(vfs: Vfs, path: str) -> Iterator[str]:
    """A line for each file beneath a folder."""
    found = False
    for where, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            try:
                words = _heading(vfs, os.path.join(where, name))
            except BadStore:
                continue
            found = True
            yield f"{printable(os.path.relpath(os.path.join(where, name), path))}: {words}"
    if not found:
        raise BadStore(f"there is no store at {printable(path)}, nor a file of one")


def _entry_count(vfs: Vfs, queue: str) -> int:
    begins = _begins(vfs, queue)
    if not begins:
        return 0
    with closing(StoreFile(vfs, _path(queue, begins[-1]))) as file:
        return (begins[-1] - begins[0]) // ENTRY_SIZE + halve(file.read, file.size // ENTRY_SIZE)


def _begins(vfs: Vfs, path: str) -> list[int]:
    return [begin for begin in map(parse_offset_name, _names(vfs, path)) if begin is not None]


def _path(where: str, begin: int) -> str:
    return os.path.join(where, offset_name(begin))


def _names(vfs: Vfs, path: str) -> list[str]:
    """The names in a folder; none if the path is no folder."""
    return vfs.list_folder(path) if os.path.isdir(path) else []


def _age(ms: int) -> str:
    for unit_ms, name in _UNITS:
        if ms >= 2 * unit_ms:
            return f"{ms // unit_ms} {name} ago"
    return "just now" if ms >= 0 else "in the future"
