"""Recognise a message that is sent again, because its producer got no answer, and answer as the first time.

    send, answer lost     stored                                     found by its unique id (UNIQ_KEY) in the index
    send, MAY_BE_STORED   looked up: stored before ── the first answer    likewise, after a crash or a failover
                                     not stored    ── stored, and its id noted for two minutes
    the first send, late  another connection overtook it: its id is noted ── the answer of the second

Only a repeated send has the field MAY_BE_STORED, so the first send of a message costs nothing. The log and its index
are what the broker remembers: they survive a crash, and each slave has them too.

An id is only a claim: another account can send a message with it first. So the broker compares the whole message,
body and properties too. What differs is stored. One message for another can be taken only if both are the same.

A delayed message is looked up where it waits, then in its topic; a half message where it waits. If the broker cannot
find out whether it has the message, it stores nothing and says so (SYSTEM_BUSY), and the producer asks again.
Unlike Java, which stores each repeated send again.

After a repeated send was stored, the first send may still come, on another connection. So the broker notes the unique
ids of stored repeated sends (`RetriedIds`):

    first send ── in a buffer of the network, or of the broker's system ─────────> recognised by its id
    the producer's connection ends ── second send, on a new one ──> stored, noted

On one connection the first send always comes first. So few messages are noted, and for two minutes at most, in two
generations. Each account has its own ids and its own limit: it cannot displace those of others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from sparrowmq.broker.transactions import half_message
from sparrowmq.core.digits import whole_number
from sparrowmq.errors import BadStore, CorruptRecord, RemoteError
from sparrowmq.loop.clock import Clock
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.message import SysFlag
from sparrowmq.protocol.messages.properties import TIMERS, mark, parse
from sparrowmq.protocol.messages.property_names import TIMER_NOTES, Property
from sparrowmq.protocol.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from sparrowmq.store.message_store import MessageStore

# The broker adds these properties, or removes them.
_BROKERS: Final = frozenset(
    {
        Property.WAIT,
        Property.CLUSTER,
        Property.CRC32,
        Property.REAL_TOPIC,
        Property.REAL_QID,
        Property.PGROUP,
        Property.TRAN_OWNER,
        Property.TRAN_PREPARED_QUEUE_OFFSET,
        Property.TRANSACTION_CHECK_TIMES,
        *TIMER_NOTES,
    }
)
_PARKED: Final = frozenset({HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC})
_DELAY: Final = mark(Property.DELAY)
_AHEAD_MS: Final = 60_000  # the store's time may be ahead of the clock
GENERATION_S: Final = 60.0  # noted ids stay for one or two generations
MAX_IDS_OF_ACCOUNT: Final = 20_000  # in a generation; all clients without accounts count as one account
MAX_IDS: Final = 100_000  # ids of all accounts in a generation

Key = tuple[str | None, str, str]  # account, topic, unique id


class StoredBefore(NamedTuple):
    """The place of a message that was stored before, as its first answer named it."""

    offset: int
    queue_id: int  # of its topic, also while the message waits elsewhere
    queue_offset: int
    end: int  # the end of its record in the log
    due_ms: int  # the delivery time of a timer; 0 for others


class RepeatedSends:
    """The repeated sends to one broker, of messages that were stored up to `window_ms` ago; 0 disables this."""

    def __init__(self, store: MessageStore, clock: Clock, window_ms: int, figures: Figures) -> None:
        self.retried = RetriedIds(clock)
        self._store = store
        self._clock = clock
        self._window_ms = window_ms if store.settings.index else 0
        self._counts = {"stored_before": 0, "stored_now": 0, "came_late": 0, "unknown": 0}
        figures.counters(
            "sparrowmq_repeated_sends_total",
            "messages that a producer sent again, by what the broker found",
            ("result",),
            lambda: [((name,), count) for name, count in self._counts.items()],
        )

    @property
    def window_ms(self) -> int | None:
        """The window, as clients get it; None if repeated sends are not recognised."""
        return self._window_ms or None

    def status_lines(self) -> dict[str, str]:
        if not any(self._counts.values()):
            return {}
        return {"repeatedSends": " ".join([f"{name}:{count}" for name, count in self._counts.items()])}

    def before(self, entry: Entry, is_repeated: bool) -> StoredBefore | None:
        """Return the place of a message that was stored before, as its producer sent it; None if it must be stored.

        Without `is_repeated` only a message that came late is found. Raises: RemoteError, SYSTEM_BUSY, this is unknown.
        """
        retried = self.retried
        if retried.pending and retried.is_under_way(key(entry)):
            raise in_progress()
        return self.look_up(entry, is_repeated)

    def look_up(self, entry: Entry, is_repeated: bool) -> StoredBefore | None:
        """As `before`, for a message of a batch that is looked up now."""
        unique_id = entry.properties.unique_key
        if unique_id is None or not self._window_ms:
            return None
        if not is_repeated:
            return self._stored_late(entry, unique_id)
        try:
            stored_before = self._look_up(entry, unique_id)
        except (BadStore, CorruptRecord) as error:
            self._counts["unknown"] += 1
            raise RemoteError(
                ResponseCode.SYSTEM_BUSY,
                f"it is unknown whether this message was stored before, so it was not stored now: {error}",
            ) from error
        self._counts["stored_now" if stored_before is None else "stored_before"] += 1
        return stored_before

    @contextmanager
    def under_way(self, keys: list[set[Key]], topic: str | None = None) -> Iterator[None]:
        """Let a batch be looked up and stored in slices: its messages are refused meanwhile if they are sent again.

        With a `topic`, it was sent before: its first send may come meanwhile, and is refused, too.
        """
        self.retried.begin(keys, topic)
        try:
            yield
        finally:
            self.retried.end()

    def note(self, entry: Entry, topic: str, offset: int) -> None:
        unique_id = entry.properties.unique_key
        if unique_id is not None and self._window_ms:
            self.retried.add(entry.owner, topic, unique_id, offset)

    def _stored_late(self, entry: Entry, unique_id: str) -> StoredBefore | None:
        offset = self.retried.offset(entry.owner, entry.topic, unique_id)
        raw_record = None if offset is None else self._store.record_at(offset)
        stored_before = None if raw_record is None else _place_if_same(raw_record, entry)
        if stored_before is not None:
            self._counts["came_late"] += 1
        return stored_before

    def _look_up(self, entry: Entry, unique_id: str) -> StoredBefore | None:
        now_ms = max(self._clock.now_ms(), self._store.newest_ms)
        for topic in _possible_topics(entry):
            raw_records = self._store.find_by_unique_id(topic, unique_id, now_ms - self._window_ms, now_ms + _AHEAD_MS)
            for raw_record in reversed(raw_records):  # the first one, as others may be copies of it
                stored_before = _place_if_same(raw_record, entry)
                if stored_before is not None:
                    return stored_before
        return None


def key(entry: Entry) -> Key:
    return entry.owner, entry.topic, entry.properties.unique_key or ""


def keys(entries: Iterable[Entry]) -> set[Key]:
    return {key(entry) for entry in entries if entry.properties.unique_key is not None}


def in_progress() -> RemoteError:
    return RemoteError(
        ResponseCode.SYSTEM_BUSY,
        "the broker still looks for this message, or stores it, which is in another request; try again",
    )


def _possible_topics(entry: Entry) -> tuple[str, ...]:
    """The topics where the message may be stored, first the one where it begins."""
    properties = entry.properties
    if half_message.is_half(properties) and not half_message.comes_back(entry):
        return (HALF_TOPIC,)
    if properties.has(_DELAY):
        return (SCHEDULE_TOPIC, entry.topic)
    if properties.has(TIMERS):
        return (TIMER_TOPIC, entry.topic)
    return (entry.topic,)


def _place_if_same(raw: memoryview, entry: Entry) -> StoredBefore | None:
    """The place of a record if it is this message; None if anything differs that its producer decides."""
    stored = record.decode(raw)
    is_parked = stored.topic in _PARKED
    topic = stored.properties.get(Property.REAL_TOPIC) if is_parked else stored.topic
    if (
        topic != entry.topic
        or stored.body != entry.body
        or stored.flag != entry.flag
        or stored.reconsume_times != entry.reconsume_times
        or (stored.sys_flag ^ entry.sys_flag) & SysFlag.COMPRESSED
        or _producer_properties(stored.properties) != _producer_properties(parse(entry.properties.render()))
        or (stored.topic == HALF_TOPIC and stored.properties.get(Property.TRAN_OWNER) != entry.owner)
    ):
        return None
    due = stored.properties.get(Property.TIMER_OUT_MS) if stored.topic == TIMER_TOPIC else None
    queue_id = whole_number(stored.properties.get(Property.REAL_QID)) if is_parked else None
    return StoredBefore(
        stored.physical_offset,
        stored.queue_id if queue_id is None else queue_id,
        stored.queue_offset,
        stored.physical_offset + stored.store_size,
        whole_number(due) or 0,
    )


def _producer_properties(properties: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in _BROKERS}


class RetriedIds:
    """The ids of one broker, with the log offsets of their messages, and the ids of the batch that is stored now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._young: dict[Key, int] = {}
        self._old: dict[Key, int] = {}
        self._counts: dict[str | None, int] = {}
        self._turned_s = 0.0
        self.topics: set[str] = set()
        self.version = 0  # rises when a topic is added
        self.pending: list[set[Key]] = []
        self._young_topics: set[str] = set()
        self._pending_topic: str | None = None

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def add(self, owner: str | None, topic: str, unique_id: str, offset: int) -> None:
        self._turn()
        count = self._counts.get(owner, 0)
        if count < MAX_IDS_OF_ACCOUNT and len(self._young) < MAX_IDS:
            self._young[owner, topic, unique_id] = offset
            self._counts[owner] = count + 1
            self._young_topics.add(topic)
            self.topics.add(topic)
            self.version += 1

    def begin(self, pending: list[set[Key]], topic: str | None) -> None:
        """Set `pending`. A topic is in `topics` until the end."""
        self.pending, self._pending_topic = pending, topic
        if topic is not None:
            self.topics.add(topic)
            self.version += 1

    def end(self) -> None:
        self.pending, self._pending_topic = [], None

    def is_under_way(self, key: Key) -> bool:
        return any(key in some_keys for some_keys in self.pending)

    def offset(self, owner: str | None, topic: str, unique_id: str) -> int | None:
        """The log offset of the message with a noted id; None if the id is not noted."""
        self._turn()
        key = owner, topic, unique_id
        offset = self._young.get(key)
        return self._old.get(key) if offset is None else offset

    def _turn(self) -> None:
        """Forget the older generation once the younger one is old."""
        now_s = self._clock.monotonic()
        passed_s = now_s - self._turned_s
        if passed_s < GENERATION_S:
            return
        self._old = self._young if passed_s < 2 * GENERATION_S else {}
        self.topics = self._young_topics if self._old else set()
        if self._pending_topic is not None:
            self.topics.add(self._pending_topic)
        self._young, self._counts, self._young_topics, self._turned_s = {}, {}, set(), now_s
