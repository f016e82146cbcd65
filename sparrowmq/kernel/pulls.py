"""Plain pulls: the short way of a PULL_MESSAGE, from the bytes of a frame to the bytes of its answer.

    frame ── Header.read ── PullTaker.take: the lane of all its other bytes ── Pull
    entries of the queue ── PullLane.select: which messages, in which part of the log
    that part, read at once ── PullAnswers.add: checked if need be, and copied behind the head of the answer

The **shape** of a plain header (headers.py) is all of it but the numbers `queueOffset`, `commitOffset` and `opaque`.
A lane belongs to one shape. It is opened after a request of this shape took the long way, which alone knows all rules,
and answers only what the long way would answer with messages that are read at once. Who knows the rules closes all
lanes when one has changed. A request that is not taken has changed nothing.
"""

from __future__ import annotations

from sparrowmq.kernel.cursor import In, Out
from sparrowmq.kernel.headers import Header
from sparrowmq.kernel.records import Buffer, is_sound

PULL_CODE = 11
ENTRY_BYTES = 20
CHOSEN, LACKS_ENTRIES, OTHERWISE = range(3)
_LACKS_ENTRIES, _CHOSEN, _OTHERWISE = LACKS_ENTRIES, CHOSEN, OTHERWISE
_SIZE_AT, _TAGS_CODE_AT = 8, 12
_GAP_SIZE = 0x7FFFFFFF
_MAX_PLACE = 1 << 60
# Bytes of other records between the chosen ones: on average, and together.
_MAX_MEAN_GAP_BYTES = 8192
_MAX_GAP_BYTES = 256 << 10
_MAX_SHAPE_BYTES = 2048
_MAX_SHAPES = 16_384
_MAX_UNKNOWN = 64
_MAX_TAKEN = 1024
_QUEUE_OFFSET, _COMMIT_OFFSET = b"queueOffset", b"commitOffset"
_HEAD_BEGIN = b'{"code":0,"extFields":{"suggestWhichBrokerId":"0","nextBeginOffset":"'
_HEAD_MIN = b'","minOffset":"'
_HEAD_MAX = b'","maxOffset":"'
_HEAD_OPAQUE = b'"},"flag":1,"language":"PYTHON","opaque":'
_HEAD_END = b',"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":409}'
_NO_ENTRIES = In(b"")


def are_valid(content: bytes) -> bool:
    """Whether sizes of entries are positive, and each record begins behind the one before."""
    entries = In(content)
    at, free = 0, 0
    while at <= entries.size - ENTRY_BYTES:
        place, size = entries.i64(at), entries.i32(at + _SIZE_AT)
        if size <= 0:
            return False
        if size != _GAP_SIZE:
            if place < free or place > _MAX_PLACE:
                return False
            free = place + size
        at += ENTRY_BYTES
    return True


class PullLane:
    """The lane of the pulls of one shape.

    Args:
        max_count, max_bytes: limits of one answer. The first message may be larger.
        max_scanned: the most entries that one pull looks at.
        codes: the hashes of the wanted tags; None: all messages.

    `select` sets the attributes:
        begin, end: the part of the log with the chosen messages.
        next_offset: the queue offset behind the entries that were looked at.
        count, size_bytes: of the chosen messages.
    """

    __slots__ = (
        "_codes",
        "_entries",
        "_first",
        "_max_bytes",
        "_max_count",
        "_selected",
        "begin",
        "count",
        "end",
        "is_open",
        "max_scanned",
        "next_offset",
        "size_bytes",
    )

    def __init__(self, max_count: int, max_bytes: int, max_scanned: int, codes: frozenset[int] | None) -> None:
        self.is_open = True  # until a rule changes
        self.max_scanned = max_scanned
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._codes = codes
        self._entries = _NO_ENTRIES
        self._first = 0
        self._selected = 0
        self.begin = self.end = self.next_offset = self.count = self.size_bytes = 0

    def keep(self, first: int, entries: bytes) -> None:
        """Keep entries of the queue from the queue offset `first` on for the next pulls."""
        self._first, self._entries = first, In(entries)

    def drop(self) -> None:
        self._entries = _NO_ENTRIES

    def select(self, offset: int, end: int) -> int:
        """Choose the messages of an answer from the entries from `offset` to before `end`.

        Returns: `CHOSEN`; `LACKS_ENTRIES`, the kept ones do not reach so far; `OTHERWISE`, take the long way: no entry
        is wanted, they are far apart, or make no sense.
        """
        entries, codes = self._entries, self._codes
        self.count = self.size_bytes = self.begin = self.end = 0
        if offset < self._first or offset - self._first > entries.size:
            return _LACKS_ENTRIES
        at, free = (offset - self._first) * ENTRY_BYTES, 0
        self._selected = at
        while offset < end:
            if at > entries.size - ENTRY_BYTES:
                return _LACKS_ENTRIES
            place, size = entries.i64(at), entries.i32(at + _SIZE_AT)
            if size <= 0 or (size != _GAP_SIZE and (place < free or place > _MAX_PLACE)):
                return _OTHERWISE
            if size != _GAP_SIZE:
                free = place + size
                if codes is None or entries.i64(at + _TAGS_CODE_AT) in codes:
                    if self.count == self._max_count or (self.count and self.size_bytes + size > self._max_bytes):
                        break
                    if self.count == 0:
                        self.begin = place
                    self.count += 1
                    self.size_bytes += size
                    self.end = free
            offset += 1
            at += ENTRY_BYTES
        self.next_offset = offset
        room = self.end - self.begin - self.size_bytes
        if self.count == 0 or room > _MAX_GAP_BYTES or room > self.count * _MAX_MEAN_GAP_BYTES:
            return _OTHERWISE
        return _CHOSEN

    def copy_records(self, out: Out, records: In) -> None:
        """Append the chosen messages, of the part of the log with them. Raises: IndexError, it ends too early."""
        entries, codes, at, copied = self._entries, self._codes, self._selected, 0
        run_begin = run_end = 0
        while copied < self.count:
            size = entries.i32(at + _SIZE_AT)
            if size != _GAP_SIZE and (codes is None or entries.i64(at + _TAGS_CODE_AT) in codes):
                begin = entries.i64(at) - self.begin
                if begin != run_end:
                    out.copy(records, run_begin, run_end)
                    run_begin = begin
                run_end = begin + size
                copied += 1
            at += ENTRY_BYTES
        out.copy(records, run_begin, run_end)

    def are_sound(self, records: Buffer, verified_from: int, crc_from: int) -> bool:
        """Whether all chosen records before the log offset `verified_from` are sound."""
        entries, codes, at, checked = self._entries, self._codes, self._selected, 0
        while checked < self.count:
            place, size = entries.i64(at), entries.i32(at + _SIZE_AT)
            if size != _GAP_SIZE and (codes is None or entries.i64(at + _TAGS_CODE_AT) in codes):
                if place < verified_from and not is_sound(records, place - self.begin, size, place, place >= crc_from):
                    return False
                checked += 1
            at += ENTRY_BYTES
        return True


class Pull:
    """A plain pull of a lane, which is not answered yet."""

    __slots__ = ("_at", "_end", "_source", "commit_offset", "lane", "opaque", "queue_offset")

    def __init__(
        self, lane: PullLane, opaque: int, queue_offset: int, commit_offset: int, source: In, at: int, end: int
    ) -> None:
        self.lane = lane
        self.opaque = opaque
        self.queue_offset = queue_offset
        self.commit_offset = commit_offset
        self._source = source
        self._at = at
        self._end = end

    @property
    def header(self) -> bytes:
        """The bytes of its header, for the long way."""
        return self._source.slice(self._at, self._end)


class PullLanes:
    """The lanes of one broker. `unknown` are headers whose shapes have none, for who may open one."""

    __slots__ = ("_by_shape", "_shape", "is_open", "unknown")

    def __init__(self) -> None:
        self.is_open = False
        self._by_shape: dict[bytes, PullLane | None] = {}
        self._shape = Out()
        self.unknown: dict[bytes, bytes] = {}

    def open(self, shape: bytes, lane: PullLane | None) -> None:
        """Let pulls of a shape take a lane; without one they take the long way until a rule changes."""
        if len(self._by_shape) >= _MAX_SHAPES:
            self.close()
            self.is_open = True
        self._by_shape[shape] = lane

    def close(self) -> None:
        """Close all lanes, as a rule has changed. The next pull of each shape takes the long way."""
        self.is_open = False
        for lane in self._by_shape.values():
            if lane is not None:
                lane.is_open = False
        self._by_shape.clear()
        self.unknown.clear()

    @property
    def open_count(self) -> int:
        return sum([lane is not None for lane in self._by_shape.values()])

    def find(self, header: Header, source: In, at: int, end: int) -> Pull | None:
        """The pull with the plain header from `at` to `end`; None if it needs the long way."""
        if not self.is_open or end - at > _MAX_SHAPE_BYTES:
            return None
        commit_field = header.find_named(source, _COMMIT_OFFSET)
        commit_at, commit_end = header.value_at, header.value_end
        queue_field = header.find_named(source, _QUEUE_OFFSET)
        if queue_field < 0 or commit_field < 0:
            return None
        queue_offset = source.number(header.value_at, header.value_end)
        commit_offset = source.number(commit_at, commit_end)
        if queue_offset < 0 or commit_offset < 0:
            return None
        shape = self._shape_of(header, source, at, end, commit_at, commit_end)
        lane = self._by_shape.get(shape)
        if lane is not None:
            return Pull(lane, header.opaque, queue_offset, commit_offset, source, at, end)
        if shape not in self._by_shape and len(self.unknown) < _MAX_UNKNOWN:
            self.unknown[shape] = source.slice(at, end)
        return None

    def _shape_of(self, header: Header, source: In, at: int, end: int, commit_at: int, commit_end: int) -> bytes:
        """The bytes of a header without its three numbers, of which the header has the place of `queueOffset`."""
        out, queue_at, queue_end = self._shape, header.value_at, header.value_end
        out.cut(0)
        if header.opaque_at < queue_at:  # and so before all fields
            out.copy(source, at, header.opaque_at)
            at = header.opaque_end
        if commit_at < queue_at:
            out.copy(source, at, commit_at)
            at = commit_end
        out.copy(source, at, queue_at)
        at = queue_end
        if commit_at > queue_at:
            out.copy(source, at, commit_at)
            at = commit_end
        if header.opaque_at > queue_at:
            out.copy(source, at, header.opaque_at)
            at = header.opaque_end
        out.copy(source, at, end)
        return out.content()


class PullTaker:
    """One connection whose pulls may take lanes. `taken_pulls` are those that are not answered yet."""

    __slots__ = ("_lanes", "taken_pulls")

    def __init__(self, lanes: PullLanes) -> None:
        self._lanes = lanes
        self.taken_pulls: list[Pull] = []

    def take(self, header: Header, source: In, at: int, end: int) -> bool:
        """Take the pull with the plain header from `at` to `end`. Returns False if it needs the long way."""
        pull = self._lanes.find(header, source, at, end) if len(self.taken_pulls) < _MAX_TAKEN else None
        if pull is None:
            return False
        self.taken_pulls.append(pull)
        return True


class PullAnswers:
    """The answers of the pulls of one chunk."""

    __slots__ = ("_out",)

    def __init__(self) -> None:
        self._out = Out()

    @property
    def size(self) -> int:
        return self._out.size

    def add(self, pull: Pull, records: Buffer, min_offset: int, max_offset: int) -> None:
        """Add the answer to a pull with what its lane has selected. Raises: IndexError, and nothing was added.

        Args:
            records: begins with the part of the log that the lane named.
            min_offset, max_offset: of the queue.
        Source: PullMessageProcessor, Java 4.9.8.
        """
        out, lane = self._out, pull.lane
        begin = out.size
        out.i64(0)
        out.raw(_HEAD_BEGIN)
        out.decimal(lane.next_offset)
        out.raw(_HEAD_MIN)
        out.decimal(min_offset)
        out.raw(_HEAD_MAX)
        out.decimal(max_offset)
        out.raw(_HEAD_OPAQUE)
        out.decimal(pull.opaque)
        out.raw(_HEAD_END)
        body_at = out.size
        try:
            lane.copy_records(out, In(records))
        except IndexError:
            out.cut(begin)
            raise
        out.put_i32(begin, out.size - begin - 4)
        out.put_i32(begin + 4, body_at - begin - 8)

    def take(self) -> bytes:
        return self._out.take()
