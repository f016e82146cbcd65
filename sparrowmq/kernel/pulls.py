"""Plain pulls: the short way of a PULL_MESSAGE, from the bytes of a frame to the bytes of its answer.

    frame ── PullHeader.read ── PullTaker.take: the lane of all its other bytes ── Pull
    entries of the queue ── PullLane.select: which messages, in which part of the log
    that part, read at once ── PullAnswers.add: checked if need be, and copied behind the head of the answer

A header is plain as in lanes.py. Its **shape** is all of it but the numbers `queueOffset`, `commitOffset` and `opaque`.
A lane belongs to one shape. It is opened after a request of this shape took the long way, which alone knows all rules,
and answers only what the long way would answer with messages that are read at once. Who knows the rules closes all
lanes when one has changed. A request that is not taken has changed nothing.
"""

from __future__ import annotations

from sparrowmq.kernel.cursor import In, Out
from sparrowmq.kernel.json_text import quoted_end
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
_QUOTE, _COMMA, _COLON, _OPEN, _CLOSE = 0x22, 0x2C, 0x3A, 0x7B, 0x7D
_OPAQUE, _QUEUE_OFFSET, _COMMIT_OFFSET, _ALL = 1, 2, 4, 7
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


class PullHeader:
    """The header of a plain pull: its three numbers, and `shape`, the bytes around them."""

    __slots__ = ("_copied", "_seen", "commit_offset", "opaque", "queue_offset", "shape")

    def __init__(self) -> None:
        self.shape = Out()
        self.opaque = self.queue_offset = self.commit_offset = 0
        self._seen = 0
        self._copied = 0

    def read(self, source: In, at: int, end: int) -> bool:
        """Read the header from `at` to `end`. Returns False if it is not plain."""
        if at >= end or end - at > _MAX_SHAPE_BYTES or source.u8(at) != _OPEN:
            return False
        self.shape.cut(0)
        self._seen, self._copied = 0, at
        at = self._members(source, at + 1, end, False)
        if at != end or self._seen != _ALL:
            return False
        self.shape.copy(source, self._copied, end)
        return True

    def _members(self, source: In, at: int, end: int, is_inner: bool) -> int:
        """Read the members of an object. Returns the end of its closing brace; -1 if it is not plain."""
        while True:
            name_end = quoted_end(source, at, end)
            if name_end < 0 or end - name_end < 4 or source.u8(name_end + 1) != _COLON:
                return -1
            at = self._value(source, at + 1, name_end, end, is_inner)
            if at < 0 or at >= end:
                return -1
            byte = source.u8(at)
            at += 1
            if byte == _CLOSE:
                return at
            if byte != _COMMA:
                return -1

    def _value(self, source: In, name_at: int, name_end: int, end: int, is_inner: bool) -> int:
        """Read the value of the member with this name. Returns its end; -1 if it is not plain."""
        number, at = _number_named(source, name_at, name_end, is_inner), name_end + 2
        byte = source.u8(at)
        if byte == _QUOTE:
            text_end = quoted_end(source, at, end)
            if text_end < 0 or (number != 0 and not (is_inner and self._keep(source, number, at + 1, text_end))):
                return -1
            return text_end + 1
        if is_inner:
            return -1
        if byte == _OPEN:
            is_fields = name_end - name_at == 9 and source.is_at(b"extFields", name_at)
            return self._members(source, at + 1, end, True) if is_fields else -1
        number_end = at
        while number_end < end and 0x30 <= source.u8(number_end) <= 0x39:
            number_end += 1
        if number_end == at:
            return at + 4 if number == 0 and end - at > 4 and source.is_at(b"null", at) else -1
        return number_end if number == 0 or self._keep(source, number, at, number_end) else -1

    def _keep(self, source: In, number: int, at: int, end: int) -> bool:
        """Keep a number with the digits from `at` to `end`, which are not of the shape."""
        value = source.number(at, end)
        if value < 0 or self._seen & number:
            return False
        self._seen |= number
        self.shape.copy(source, self._copied, at)
        self._copied = end
        if number == _OPAQUE:
            self.opaque = value
        elif number == _QUEUE_OFFSET:
            self.queue_offset = value
        else:
            self.commit_offset = value
        return True


def _number_named(source: In, at: int, end: int, is_inner: bool) -> int:
    """Which number of a header has this name; 0 for other members."""
    size = end - at
    if not is_inner:
        return _OPAQUE if size == 6 and source.is_at(b"opaque", at) else 0
    if size == 11:
        return _QUEUE_OFFSET if source.is_at(b"queueOffset", at) else 0
    return _COMMIT_OFFSET if size == 12 and source.is_at(b"commitOffset", at) else 0


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

    def __init__(self, lane: PullLane, header: PullHeader, source: In, at: int, end: int) -> None:
        self.lane = lane
        self.opaque = header.opaque
        self.queue_offset = header.queue_offset
        self.commit_offset = header.commit_offset
        self._source = source
        self._at = at
        self._end = end

    @property
    def header(self) -> bytes:
        """The bytes of its header, for the long way."""
        return self._source.slice(self._at, self._end)


class PullLanes:
    """The lanes of one broker. `unknown` are headers whose shapes have none, for who may open one."""

    __slots__ = ("_by_shape", "_header", "is_open", "unknown")

    def __init__(self) -> None:
        self.is_open = False
        self._by_shape: dict[bytes, PullLane | None] = {}
        self._header = PullHeader()
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

    def find(self, source: In, at: int, end: int) -> Pull | None:
        """The pull with the header from `at` to `end`; None if it needs the long way."""
        header = self._header
        if not self.is_open or not header.read(source, at, end):
            return None
        shape = header.shape.content()
        lane = self._by_shape.get(shape)
        if lane is not None:
            return Pull(lane, header, source, at, end)
        if shape not in self._by_shape and len(self.unknown) < _MAX_UNKNOWN:
            self.unknown[shape] = source.slice(at, end)
        return None


class PullTaker:
    """One connection whose pulls may take lanes. `taken_pulls` are those that are not answered yet."""

    __slots__ = ("_lanes", "taken_pulls")

    def __init__(self, lanes: PullLanes) -> None:
        self._lanes = lanes
        self.taken_pulls: list[Pull] = []

    def take(self, source: In, at: int, body_at: int, end: int) -> bool:
        if body_at != end or len(self.taken_pulls) >= _MAX_TAKEN:
            return False
        pull = self._lanes.find(source, at, end)
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
