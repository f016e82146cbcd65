"""The relay of an outbox: takes rows, sends them, deletes them. Several relays may run at a time.

    transaction    take rows, and lock them        a row that another relay has locked is skipped
                   send them in waves              of each key one row at a time, the next after its answer
                   delete what was acknowledged    what failed is put off by a second, and its key waits
                   count the refusals of others    a row is put off longer each time; its key waits for the first five

A crash anywhere leaves the rows that are not deleted; they are sent again with the same `once_id`. A row is sent only
after all older rows of its key, so none overtakes a row that failed or that another relay has.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from threading import Event
from typing import Any, ClassVar, Final, NamedTuple, Protocol, Unpack, cast
from uuid import uuid4

import msgspec

from sparrowmq.client.arguments import check_names, check_text, is_coroutine_function
from sparrowmq.client.blocking_client import SyncClient, SyncProducer
from sparrowmq.client.sending.encoder import MessageEncoder
from sparrowmq.client.sending.producer_settings import Body, OnewayArguments, ProducerSettings, make_send_call
from sparrowmq.client.sending.send_result import is_from_slave, is_retriable
from sparrowmq.core.safe_text import shown
from sparrowmq.errors import ClientClosed, ConfigError, InvalidMessage, InvalidName, RemoteError, SendFailed
from sparrowmq.once.idempotent import ONCE_ID
from sparrowmq.protocol.messages.delay_fields import level_s, nearest_level
from sparrowmq.protocol.messages.message import Message

log = logging.getLogger(__name__)
MAX_ROWS: Final = 100
IDLE_PAUSE_S: Final = 0.5
FAILED_PAUSE_S: Final = 1.0
BEHIND_PAUSE_S: Final = 0.1
MAX_OUTAGE_PAUSE_S: Final = 10.0
MAX_REFUSAL_PAUSE_S: Final = 600.0
LEVEL_SLACK_S: Final = 1.0
HOLDING_REFUSALS: Final = 5  # a key waits for a refused row so many times, which takes 15 s
MAX_FIFO_CHARACTERS: Final = 255  # the column of both tables
MAX_REASON_CHARACTERS: Final = 1000
FAILED_TEXT: Final = "the outbox cannot be read or settled; rows that were sent may be sent again: %s"
_ENCODER: Final = MessageEncoder(ProducerSettings(), lambda: "", "")
_MESSAGE_FIELDS: Final = ("tag", "keys", "properties", "flag", "delay_level", "delay_ms", "deliver_at_ms")


# What wakes each relay of this process.
_wakers: Final[set[Callable[[], object]]] = set()


@contextmanager
def wake_on_commit(wake: Callable[[], object]) -> Iterator[None]:
    """Have `wake` called, in any thread, after each commit of this process that has put a row into an outbox."""
    _wakers.add(wake)
    try:
        yield
    finally:
        _wakers.discard(wake)


def wake_relays() -> None:
    """Let the relays of this process look for rows now."""
    for wake in tuple(_wakers):
        with suppress(RuntimeError):  # An event loop was closed meanwhile.
            wake()


class Row(NamedTuple):
    """A message that waits. `fifo` is the key whose rows keep their order, or ""; `fields` is JSON."""

    id: int
    fifo: str
    topic: str
    body: bytes
    fields: str
    failures: int

    @property
    def send_arguments(self) -> dict[str, Any]:
        fields = msgspec.json.decode(self.fields)
        if fields["delay_level"] and fields["deliver_at_ms"]:
            fields |= _rest_of_delay(fields["delay_level"], fields["deliver_at_ms"], self.failures > 0)
        message = Message(self.topic, bytes(self.body), **fields)
        return {"topic": message, "fifo": self.fifo or None}

    @property
    def chain(self) -> object:
        """Rows with the same one are sent one after the other."""
        return self.fifo if self.fifo and self.failures < HOLDING_REFUSALS else self.id


def _rest_of_delay(level: int, deliver_at_ms: int, was_refused: bool) -> dict[str, int]:
    """The rest of a delay that has a level. Brokers of 4.x know levels alone, and refuse a time."""
    left_s = deliver_at_ms / 1000 - time.time()
    if left_s <= 0:
        return {"delay_level": 0, "deliver_at_ms": 0}
    if level_s(level) - left_s < LEVEL_SLACK_S:
        return {"deliver_at_ms": 0}
    return {"delay_level": nearest_level(left_s), "deliver_at_ms": 0} if was_refused else {"delay_level": 0}


def columns_of(topic: str | Message, body: Body | None = None, **arguments: Unpack[OnewayArguments]) -> dict[str, Any]:
    """Return the columns of a new row. Raises: InvalidMessage, InvalidName, ConfigError, it could never be sent."""
    check_names("add", arguments, OnewayArguments)
    call = make_send_call(topic, body, **arguments)
    message = replace(call.message, properties={ONCE_ID: uuid4().hex, **call.message.properties})
    _ENCODER.prepare(message)
    fifo = call.fifo or ""
    is_text: bool = isinstance(cast(object, fifo), str)
    if call.queue is not None or not is_text or len(fifo) > MAX_FIFO_CHARACTERS:
        raise InvalidMessage(
            f"an outbox takes no queue=, and its fifo= is text of at most {MAX_FIFO_CHARACTERS} characters: rows of "
            "one key keep their order"
        )
    check_text("fifo", fifo)
    fields = {name: getattr(message, name) for name in _MESSAGE_FIELDS}
    delay_ms = message.delay_ms
    if arguments.get("delay") is not None and message.delay_level:
        delay_ms = round(level_s(message.delay_level) * 1000)
    if delay_ms:  # It counts from now, however late the relay comes.
        fields |= {"delay_ms": 0, "deliver_at_ms": time.time_ns() // 1_000_000 + delay_ms}
    text = msgspec.json.encode(fields).decode()
    return {"fifo": fifo, "topic": message.topic, "body": message.body, "fields": text}


def check_sender(mq: object, *, is_async: bool) -> None:
    """Check the client of a relay, before it sends anything. Raises: ConfigError."""
    is_sender = callable(getattr(mq, "send_soon", None))
    if not is_sender or is_coroutine_function(getattr(mq, "send", None)) != is_async:
        expected = "sparrowmq.connect()" if is_async else "sparrowmq.sync.connect()"
        raise ConfigError(f"mq={mq!r} cannot send for this outbox; give a client of {expected}, or its producer")


class Rows(Protocol):
    """The table of an outbox inside a transaction. Lists of ids are not empty."""

    def take(self) -> Iterable[Row]:
        """`MAX_ROWS` rows that are due, the longest due first, locked where a database can skip the rows of others."""

    def of_keys(self, keys: set[str], last_id: int) -> Iterable[tuple[int, str]]:
        """Id and key of the rows that hold up these keys up to an id, by id; also if they are locked or put off. Rows
        with `HOLDING_REFUSALS` failures hold up nothing.
        """

    def delete(self, ids: list[int]) -> None: ...

    def put_off(self, ids: list[int], due: float) -> None: ...

    def count_refusal(self, row_id: int, error: str) -> None: ...


class Turn:
    """The rows of one transaction, and the fate of each."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        due_rows = sorted(rows.take())
        first_ids = self._first_ids(due_rows)
        self._behind_ids = [row.id for row in due_rows if row.id not in first_ids]
        self._failed_ids: list[int] = []
        self._refusals: list[tuple[Row, list[int], str]] = []  # a row, the rows behind it, and its error
        self._reasons: dict[str, tuple[int, str, object]] = {}  # of each topic a row, its fate and its error
        self._sent_ids: list[int] = []
        self._chains: dict[object, list[Row]] = {}
        for row in due_rows:
            if row.id in first_ids:
                self._chains.setdefault(row.chain, []).append(row)

    def _first_ids(self, rows: list[Row]) -> set[int]:
        """The rows without an older row of their key outside of this transaction."""
        own_ids, held_keys = {row_or_id.id for row_or_id in rows}, set[str]()
        first_ids = {row_or_id.id for row_or_id in rows if row_or_id.chain == row_or_id.id}
        keys = {row_or_id.fifo for row_or_id in rows if row_or_id.chain != row_or_id.id}
        for row_or_id, key in self._rows.of_keys(keys, rows[-1].id) if keys else ():
            if row_or_id not in own_ids:
                held_keys.add(key)
            elif key not in held_keys:
                first_ids.add(row_or_id)
        return first_ids

    def next_wave(self) -> list[Row]:
        return [chain.pop(0) for chain in self._chains.values() if chain]

    def note_outcomes(self, wave: list[Row], outcomes: Iterable[object]) -> None:
        """Keep the outcome of each send, an exception if it failed. Raises: ClientClosed."""
        for row, outcome in zip(wave, outcomes, strict=True):
            if isinstance(outcome, ClientClosed):
                raise outcome
            if not isinstance(outcome, BaseException):
                self._sent_ids.append(row.id)
                continue
            ids, fate = [row.id, *(row_behind.id for row_behind in self._chains.pop(row.chain))], "waits"
            if is_refusal(outcome):
                self._refusals.append((row, ids, shown(outcome, MAX_REASON_CHARACTERS)))
                is_released = row.fifo and row.failures + 1 == HOLDING_REFUSALS
                fate = f"waits {_pause_s(row):.0f} s after refusal {row.failures + 1}"
                fate += ", its key goes on without it" if is_released else ""
            else:
                self._failed_ids += ids
            self._reasons.setdefault(row.topic, (row.id, fate, outcome))

    def settle(self) -> int:
        """Write the outcomes, and return the number of rows that were sent. Log an error of each topic."""
        for topic, (row_id, fate, error) in self._reasons.items():
            log.warning("row %d of the outbox %s, and perhaps others, for topic %s: %s", row_id, fate, topic, error)
        if self._sent_ids:
            self._rows.delete(self._sent_ids)
        for row, _, reason in self._refusals:
            self._rows.count_refusal(row.id, reason)
        refused = [(ids, _pause_s(row)) for row, ids, _ in self._refusals]
        for ids, pause_s in (*refused, (self._failed_ids, FAILED_PAUSE_S), (self._behind_ids, BEHIND_PAUSE_S)):
            if ids:
                self._rows.put_off(ids, time.time() + pause_s)
        return len(self._sent_ids)


def _pause_s(row: Row) -> float:
    return min(MAX_REFUSAL_PAUSE_S, 2.0 ** min(row.failures, 10))


def is_refusal(error: BaseException) -> bool:
    """Return whether the same send would fail again for its message's sake, and not for the state of the cluster."""
    cause = error.cause or error if isinstance(error, SendFailed) else error
    is_about_message = isinstance(cause, RemoteError | InvalidMessage | InvalidName)
    return is_about_message and not is_retriable(cause) and not is_from_slave(cause)


class DatabaseOutage:
    """Logs a failure of the database once, however long it lasts."""

    def __init__(self) -> None:
        self._pause_s = 0.0

    def report(self, error: BaseException) -> float:
        """Log an error, and return the seconds until the next attempt."""
        reason = str(error).partition("\n")[0]  # SQLAlchemy's go on with the statement and an address
        log.log(logging.DEBUG if self._pause_s else logging.ERROR, FAILED_TEXT, shown(reason, MAX_REASON_CHARACTERS))
        self._pause_s = min(MAX_OUTAGE_PAUSE_S, 2 * self._pause_s or IDLE_PAUSE_S)
        return self._pause_s

    def end(self) -> None:
        if self._pause_s:
            log.warning("the outbox can be read again")
        self._pause_s = 0.0


class BlockingOutbox:
    """An outbox whose relay is for programs without `async`. Its rows are those of `_rows`."""

    _database_errors: ClassVar[tuple[type[Exception], ...]]

    def _rows(self) -> AbstractContextManager[Rows]:
        raise NotImplementedError

    def relay_batch(self, mq: SyncClient | SyncProducer) -> int:
        """Send at most 100 rows that are due, and return how many were sent. Raises: ClientClosed, ConfigError."""
        check_sender(mq, is_async=False)
        with self._rows() as rows:
            turn = Turn(rows)
            while wave := turn.next_wave():
                turn.note_outcomes(
                    wave, [future.exception() for future in [mq.send_soon(**row.send_arguments) for row in wave]]
                )
            return turn.settle()

    def relay(self, mq: SyncClient | SyncProducer, stop: Event) -> None:
        """Send rows until `stop` is set; wait longer after each database failure. Raises: ClientClosed, ConfigError."""
        check_sender(mq, is_async=False)
        if not callable(getattr(stop, "is_set", None)) or is_coroutine_function(getattr(stop, "wait", None)):
            raise ConfigError(f"stop={stop!r}: give a threading.Event; setting it ends the relay")
        trouble, wake = DatabaseOutage(), Event()
        with wake_on_commit(wake.set):
            while not stop.is_set():
                wake.clear()
                try:
                    is_idle = not self.relay_batch(mq)
                except self._database_errors as error:
                    stop.wait(trouble.report(error))
                    continue
                trouble.end()
                if is_idle:
                    wake.wait(IDLE_PAUSE_S)
