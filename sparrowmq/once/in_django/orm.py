"""A store for `@idempotent` and an outbox, both in a database of Django; handlers and relays are plain functions.

add("orders", body, fifo="o-1")               in a view, in its transaction
DjangoOutbox().relay(mq, threading.Event())   in a program of its own, such as a management command

`using` is the name of the database in DATABASES.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Unpack

from django.db import DEFAULT_DB_ALIAS, Error, IntegrityError, close_old_connections, connections, transaction
from django.db.models import F

from sparrowmq.client.arguments import check_seconds
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.sending.producer_settings import Body, OnewayArguments
from sparrowmq.errors import ConfigError
from sparrowmq.once.idempotent import Attempt, Key, identity, mark_of
from sparrowmq.once.in_django.models import Mark, Waiting
from sparrowmq.once.relay import HOLDING_REFUSALS, MAX_ROWS, BlockingOutbox, Row, columns_of, wake_relays
from sparrowmq.protocol.messages.message import Message


class DjangoStore:
    """Keeps marks, each in one transaction with the effect in the same database. Raises: ConfigError."""

    is_async = False
    has_connection = True

    def __init__(self, using: str = DEFAULT_DB_ALIAS) -> None:
        self._using = _check_database(using)

    @contextmanager
    def attempt(self, marks: Sequence[str]) -> Iterator[Attempt]:
        close_old_connections()
        with transaction.atomic(self._using):
            yield Attempt([_mark(mark, self._using) for mark in marks], connections[self._using])


def is_new(message: ReceivedMessage, *, name: str, key: Key = identity, using: str = DEFAULT_DB_ALIAS) -> bool:
    """Mark a message inside `transaction.atomic()`, and return whether it had no mark: an inbox in one call."""
    return _mark(mark_of(message, name, key), using)


def forget(older_than_s: float, using: str = DEFAULT_DB_ALIAS) -> None:
    """Delete marks that are older, which must be longer than any duplicate may take to come. Raises: ConfigError."""
    check_seconds("older_than_s", older_than_s)
    Mark.objects.using(using).filter(marked_at__lt=time.time() - older_than_s).delete()


def _mark(mark: str, using: str) -> bool:
    """Mark, and return whether the mark is new. SQLite refuses to write after a read, so the insert goes first."""
    try:
        with transaction.atomic(using):
            Mark.objects.using(using).create(mark=mark)
    except IntegrityError:
        return False
    return True


def _check_database(using: object) -> str:
    if not isinstance(using, str) or using not in connections:
        raise ConfigError(f"using={using!r} is not a configured database; DATABASES has {', '.join(connections)}")
    return using


def add(
    topic: str | Message,
    body: Body | None = None,
    *,
    using: str = DEFAULT_DB_ALIAS,
    **arguments: Unpack[OnewayArguments],
) -> None:
    """Put a message into the outbox, in the open transaction. Raises: InvalidMessage, InvalidName, it could never be
    sent.
    """
    Waiting.objects.using(using).create(**columns_of(topic, body, **arguments))
    transaction.on_commit(wake_relays, using=using)


class _Rows:
    """The table `once_outbox` in a transaction."""

    def __init__(self, using: str, skips: bool) -> None:
        self._waiting_rows = Waiting.objects.using(using)
        self._skips_locked = skips

    def take(self) -> Iterable[Row]:
        unlocked_rows = (
            self._waiting_rows.select_for_update(skip_locked=True) if self._skips_locked else self._waiting_rows
        )
        due_rows = unlocked_rows.filter(due__lte=time.time()).order_by("due", "id")
        return [Row(*row) for row in due_rows.values_list(*Row._fields)[:MAX_ROWS]]

    def of_keys(self, keys: set[str], last_id: int) -> Iterable[tuple[int, str]]:
        older_rows = self._waiting_rows.filter(fifo__in=keys, id__lte=last_id, failures__lt=HOLDING_REFUSALS).order_by(
            "id"
        )
        ids: Iterable[tuple[int, str]] = older_rows.values_list("id", "fifo")
        return ids

    def delete(self, ids: list[int]) -> None:
        self._waiting_rows.filter(id__in=ids).delete()

    def put_off(self, ids: list[int], due: float) -> None:
        self._waiting_rows.filter(id__in=ids).update(due=due)

    def count_refusal(self, row_id: int, error: str) -> None:
        self._waiting_rows.filter(id=row_id).update(failures=F("failures") + 1, error=error)


class DjangoOutbox(BlockingOutbox):
    """Relays the table `once_outbox` of a database. Raises: ConfigError, DATABASES has no such one."""

    _database_errors = (Error, OSError)

    def __init__(self, using: str = DEFAULT_DB_ALIAS) -> None:
        self._using = _check_database(using)

    @contextmanager
    def _rows(self) -> Iterator[_Rows]:
        close_old_connections()
        skips = connections[self._using].features.has_select_for_update_skip_locked
        # Without locks no transaction either: SQLite's would keep all writers out until the answers come.
        with transaction.atomic(self._using) if skips else nullcontext():
            yield _Rows(self._using, skips)
