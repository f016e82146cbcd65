"""The relay of an outbox: takes rows, sends them, deletes them. Several relays may run at a time.

    transaction    take rows, and lock them        a row that another relay has locked is skipped
                   send them in waves              of each key one row at a time, the next after its answer
                   delete what was acknowledged    what failed is put off by a second, and its key waits

A crash anywhere leaves the rows that are not deleted; they are sent again with the same `once_id`. A row is sent only
after all older rows of its key, so none overtakes a row that failed or that another relay has.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from threading import Event
from typing import Any, ClassVar, Final, NamedTuple, Protocol, Unpack, cast
from uuid import uuid4

import msgspec

from sparrowmq.client.arguments import check_text
from sparrowmq.client.blocking_client import SyncClient, SyncProducer
from sparrowmq.client.functions import is_coroutine_function
from sparrowmq.client.sending.packing import Packing
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.client.sending.send_arguments import Body, OnewayArguments, check_names, sending
from sparrowmq.errors import ClientClosed, ConfigError, InvalidMessage
from sparrowmq.once.identity import ONCE_ID
from sparrowmq.protocol.messages.message import Message

log = logging.getLogger(__name__)

BATCH: Final = 100
IDLE_S: Final = 0.5
FAILED_S: Final = 1.0
BEHIND_S: Final = 0.1
LONGEST_FIFO: Final = 255  # the column of both tables
FAILED: Final = "the outbox cannot be read or settled; rows that were sent may be sent again"
_PACKING: Final = Packing(ProducerSettings(), lambda: "", "")
_FIELDS: Final = ("tag", "keys", "properties", "flag", "delay_level", "delay_ms", "deliver_at_ms")


class Row(NamedTuple):
    """A message that waits. `fifo` is the key whose rows keep their order, or ""; `fields` is JSON."""

    id: int
    fifo: str
    topic: str
    body: bytes
    fields: str

    @property
    def sending(self) -> dict[str, Any]:
        """The arguments of the row's send."""
        message = Message(self.topic, bytes(self.body), **msgspec.json.decode(self.fields))
        return {"topic": message, "fifo": self.fifo or None}


def columns_of(
    topic: str | Message, body: Body | None = None, **arguments: Unpack[OnewayArguments]
) -> dict[str, Any]:
    """Return the columns of a new row.

    Raises: InvalidMessage, InvalidName, ConfigError, the message could never be sent.
    """
    check_names("add", arguments, OnewayArguments)
    wanted = sending(topic, body, **arguments)
    message = replace(wanted.message, properties={ONCE_ID: uuid4().hex, **wanted.message.properties})
    _PACKING.prepare(message)
    fifo = wanted.fifo or ""
    is_text: bool = isinstance(cast(object, fifo), str)
    if wanted.queue is not None or not is_text or len(fifo) > LONGEST_FIFO:
        raise InvalidMessage(
            f"an outbox takes no queue=, and its fifo= is text of at most {LONGEST_FIFO} characters: rows of one key "
            "keep their order"
        )
    check_text("fifo", fifo)
    fields = msgspec.json.encode({name: getattr(message, name) for name in _FIELDS}).decode()
    return {"fifo": fifo, "topic": message.topic, "body": message.body, "fields": fields}


def check_sender(mq: object, *, is_async: bool) -> None:
    """Check the client of a relay, before it sends anything. Raises: ConfigError."""
    is_sender = callable(getattr(mq, "send_soon", None))
    if not is_sender or is_coroutine_function(getattr(mq, "send", None)) != is_async:
        wanted = "sparrowmq.connect()" if is_async else "sparrowmq.sync.connect()"
        raise ConfigError(
            f"mq={mq!r} cannot send for this outbox; give a client of {wanted}, or its producer"
        )


class Rows(Protocol):
    """The table of an outbox inside a transaction. Lists of ids are not empty."""

    def take(self) -> Iterable[Row]:
        """`BATCH` rows that are due, the longest due first, locked where a database can skip the rows of others."""

    def of_keys(self, keys: set[str], last: int) -> Iterable[tuple[int, str]]:
        """Id and key of all rows of these keys up to an id, by id; also of those that are locked or put off."""

    def delete(self, ids: list[int]) -> None: ...

    def put_off(self, ids: list[int], until: float) -> None: ...


class Turn:
    """The rows of one transaction, and the fate of each."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        taken = sorted(rows.take())
        first = self._first(taken)
        self._behind = [row.id for row in taken if row.id not in first]
        self._failed: list[int] = []
        self._reasons: dict[str, tuple[int, object]] = {}  # a row and its error, of each topic
        self._sent: list[int] = []
        self._chains: dict[object, list[Row]] = {}
        for row in taken:
            if row.id in first:
                self._chains.setdefault(row.fifo or row.id, []).append(row)

    def _first(self, taken: list[Row]) -> set[int]:
        """The rows without an older row of their key outside of this transaction."""
        ours, others = {row.id for row in taken}, set[str]()
        first = {row.id for row in taken if not row.fifo}
        keys = {row.fifo for row in taken if row.fifo}
        for row, key in self._rows.of_keys(keys, taken[-1].id) if keys else ():
            if row not in ours:
                others.add(key)
            elif key not in others:
                first.add(row)
        return first

    def wave(self) -> list[Row]:
        """Return the next row of each key."""
        return [chain.pop(0) for chain in self._chains.values() if chain]

    def note(self, wave: list[Row], outcomes: Iterable[object]) -> None:
        """Keep the outcome of each send, an exception if it failed. Raises: ClientClosed."""
        for row, outcome in zip(wave, outcomes, strict=True):
            if isinstance(outcome, ClientClosed):
                raise outcome
            if isinstance(outcome, BaseException):
                self._reasons.setdefault(row.topic, (row.id, outcome))
                self._failed += [row.id, *(each.id for each in self._chains.pop(row.fifo or row.id))]
            else:
                self._sent.append(row.id)

    def settle(self) -> int:
        """Write the outcomes, and return the number of rows that were sent. Log an error of each topic."""
        for topic, (row, why) in self._reasons.items():
            log.warning("row %d of the outbox waits, and perhaps others, for topic %s: %s", row, topic, why)
        if self._sent:
            self._rows.delete(self._sent)
        for ids, pause_s in ((self._failed, FAILED_S), (self._behind, BEHIND_S)):
            if ids:
                self._rows.put_off(ids, time.time() + pause_s)
        return len(self._sent)


class Trouble:
    """Logs a failure of the database once, however long it lasts."""

    _is_reported = False

    def report(self) -> None:
        """Log the exception that is being handled."""
        log.log(logging.DEBUG if self._is_reported else logging.ERROR, FAILED, exc_info=True)
        self._is_reported = True

    def over(self) -> None:
        if self._is_reported:
            log.warning("the outbox can be read again")
        self._is_reported = False


class BlockingOutbox:
    """An outbox whose relay is for programs without `async`. Its rows are those of `_rows`."""

    _failures: ClassVar[type[Exception]]

    def _rows(self) -> AbstractContextManager[Rows]:
        raise NotImplementedError

    def relay_batch(self, mq: SyncClient | SyncProducer) -> int:
        """Send at most 100 rows that are due, and return how many were sent. Raises: ClientClosed, ConfigError."""
        check_sender(mq, is_async=False)
        with self._rows() as rows:
            turn = Turn(rows)
            while wave := turn.wave():
                turn.note(wave, [each.exception() for each in [mq.send_soon(**row.sending) for row in wave]])
            return turn.settle()

    def relay(self, mq: SyncClient | SyncProducer, stop: Event) -> None:
        """Send rows until `stop` is set. A failure of the database is logged. Raises: ClientClosed, ConfigError."""
        if not callable(getattr(stop, "is_set", None)) or is_coroutine_function(getattr(stop, "wait", None)):
            raise ConfigError(f"stop={stop!r}: give a threading.Event; setting it ends the relay")
        trouble = Trouble()
        while not stop.is_set():
            try:
                is_idle = not self.relay_batch(mq)
                trouble.over()
            except self._failures:
                trouble.report()
                is_idle = True
            if is_idle:
                stop.wait(IDLE_S)
