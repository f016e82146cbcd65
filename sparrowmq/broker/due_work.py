"""Work that waits in the broker's own topics, and the loop that does it when it is due.

    a client's request ── a record in a system topic ── the feature's state in memory
                                                         start: read again from the log (`records_from`)
    DueWork.run ── run_due ── do_some, one turn at a time; sockets get their turn in between
                └─ sleep: until the next is due, at most a minute, or `wake`
    Redelivery  ── message: the record as it was diverted ── put: through its redirect to its real queue

    system topic               state of the feature    what is due                  a start reads
    SCHEDULE_TOPIC_XXXX        delayed/delay.py        next message of a level      the log from a saved offset on
    rmq_sys_wheel_timer        delayed/timer.py        a slot of the wheel          the same (store/timers.py)
    RMQ_SYS_TRANS_HALF_TOPIC   transactions/           a check with the producer    both topics from saved offsets on
    rmq_sys_STAGED             staging/                a committed batch            the topic from a saved offset on
    rmq_sys_sparrow_state      pop/pop_state.py        an invisible time is over    the steps in the journal

A saved offset counts only when the log that it describes is on disk. The record of what was done names the record that
waited, so a crash between the two doubles nothing. A record that is damaged waits for its repair, and others go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.redirect import Redirect
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import (
    BadStore,
    DiskFull,
    InvalidMessage,
    InvalidName,
    RemoteError,
    RemoteProtocolError,
    StoreError,
)
from sparrowmq.loop.clock import Clock
from sparrowmq.loop.watermark import Watermark
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

RETRY_PAUSE_S: Final = 1.0  # after a full disk, or a queue that cannot be read
# A wait is cut into pieces, so that the loop notices a clock that was set forward.
MAX_WAIT_S: Final = 60.0
LATE_S: Final = 10.0


class DueWork:
    """Does one kind of waiting work when it is due, with the name `subject` in the broker's log.

    `do_some` returns the seconds until more is due; after DiskFull and BadStore the loop calls it again.
    """

    def __init__(self, subject: str, do_some: Callable[[], float], clock: Clock) -> None:
        self._subject = subject
        self._do_some = do_some
        self._clock = clock
        self._wake = asyncio.Event()
        self._failure: BaseException | None = None
        self._awaited_ends: set[Watermark] = set()
        self._logged_damage: dict[str, str] = {}
        self.is_closed = False
        self._logged_problem_type: type[StoreError] | None = None  # the last one logged
        self._last_problem = ""  # the text of the trouble, while it lasts
        self._behind_since_s: float | None = None  # since when there was always something due

    async def run(self) -> None:
        while not self.is_closed:
            self._wake.clear()
            wait_s = await self.run_due()
            if self._failure is not None:
                raise self._failure
            with suppress(TimeoutError):
                await self._clock.wait_for(self._wake.wait(), wait_s)

    def wake(self, error: BaseException | None = None) -> None:
        """Report more messages, or, with `error`, that none will come: the error ends `run`."""
        self._failure = self._failure or error
        self._wake.set()

    def wake_at(self, end: Watermark, target: int) -> None:
        if end not in self._awaited_ends:
            self._awaited_ends.add(end)
            end.when(target, partial(self._on_growth, end))

    def _on_growth(self, end: Watermark, error: BaseException | None) -> None:
        self._awaited_ends.discard(end)
        self.wake(error)

    def late_condition(self) -> str:
        """Return since when due messages wait, and why; "" if they do not."""
        if self._behind_since_s is None or self.is_closed:
            return ""
        late_s = self._clock.age(self._behind_since_s)
        reason = self._last_problem or "more become due than the broker delivers: use more brokers for their topics"
        return f"{self._subject} have waited for {late_s:.0f} s: {reason}" if late_s > LATE_S else ""

    def log_damage(self, subject: str, damage: StoreError) -> None:
        """Log once that something waits for a repair. The caller tries it again after `MAX_WAIT_S`."""
        if self._logged_damage.get(subject) != str(damage):
            self._logged_damage[subject] = str(damage)
            log.error("%s waits; retrying each minute: %s", subject, damage)

    def close(self) -> None:
        self.is_closed = True
        self._wake.set()

    async def run_due(self) -> float:
        while not self.is_closed:
            try:
                wait_s = self._do_some()
            except (DiskFull, BadStore) as error:
                if self._logged_problem_type is not type(error):
                    level = logging.WARNING if isinstance(error, DiskFull) else logging.ERROR
                    log.log(level, "%s wait: %s", self._subject, error)
                self._logged_problem_type, self._last_problem = type(error), str(error)
                self._note_behind()
                return RETRY_PAUSE_S
            self._logged_problem_type, self._last_problem = None, ""
            if wait_s > 0:
                self._behind_since_s = None
                return min(wait_s, MAX_WAIT_S)
            self._note_behind()
            await asyncio.sleep(0)
        return 0

    def _note_behind(self) -> None:
        if self._behind_since_s is None:
            self._behind_since_s = self._clock.monotonic()


class Redelivery:
    def __init__(self, subject: str, store: MessageStore, writer: Writer, redirect: Redirect) -> None:
        self._subject = subject
        self._store = store
        self._writer = writer
        self._redirect = redirect

    def message(self, offset: int, size: int) -> StoredMessage | None:
        """Return a diverted message; None if it can never be delivered. Raises: CorruptRecord, it waits for repair."""
        view = self._store.parked_at(offset, size)
        if view is None:
            if offset < self._store.begin:
                log.error(
                    "the %s at log offset %d is older than fileReservedTime and was deleted", self._subject, offset
                )
            return None
        try:
            return record.decode(view)
        except RemoteProtocolError as error:
            self._skip(offset, error)
            return None

    def put(self, message: StoredMessage, again_at_ms: int | None = None) -> bool:
        """Store a message at its real address, or divert it again for a time; return whether that is possible."""
        try:
            entry = self._redirect.restore(message)
            if again_at_ms is not None:
                entry.topic, entry.queue_id = message.topic, message.queue_id
                entry.deliver_at_ms = again_at_ms
            self._writer.put(entry, back_from=self._redirect)
        except (InvalidMessage, InvalidName, RemoteError) as error:
            self._skip(message.physical_offset, error)
            return False
        return True

    def _skip(self, offset: int, error: Exception) -> None:
        log.error("the %s at log offset %d cannot be delivered: %s", self._subject, offset, shown(error))
