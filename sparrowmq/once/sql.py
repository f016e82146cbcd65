"""Marks and outboxes in any database of SQLAlchemy. `metadata` has both tables: create them as your own ones.

SqlStore(engine)                        for @idempotent; an AsyncEngine for asynchronous handlers
SqlOutbox(engine), AsyncSqlOutbox(...)  `add` a message in your transaction; `relay` sends the rows
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, TypeAlias, Unpack

from sparrowmq.client.arguments import check_kind, check_seconds
from sparrowmq.client.client import Client
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.client.handlers import wait_for_first
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.sending.producer_settings import Body, OnewayArguments
from sparrowmq.errors import ConfigError
from sparrowmq.once import relay
from sparrowmq.once.idempotent import Attempt, Key, identity, mark_of
from sparrowmq.protocol.messages.message import Message

try:
    import sqlalchemy as sa
    from sqlalchemy.dialects import postgresql, sqlite
    from sqlalchemy.exc import IntegrityError, SQLAlchemyError
    from sqlalchemy.ext.asyncio import AsyncEngine
    from sqlalchemy.orm import Session, scoped_session
except ImportError as error:
    needed = "the packages sqlalchemy and greenlet: pip install 'sparrowmq[sql]'"
    raise ConfigError(f"{__name__} needs {needed}") from error

__all__ = ["MARKS", "OUTBOX", "AsyncSqlOutbox", "SqlOutbox", "SqlStore", "add", "forget", "is_new", "metadata"]
metadata: Final = sa.MetaData()
MARKS: Final = sa.Table(
    "once_marks",
    metadata,
    sa.Column("mark", sa.String(64), primary_key=True),
    sa.Column("marked_at", sa.Double, nullable=False, index=True),
)
# SQLite counts ids only in columns of the very type INTEGER.
_ID_TYPE: Final = sa.BigInteger().with_variant(sa.Integer, "sqlite")
OUTBOX: Final = sa.Table(
    "once_outbox",
    metadata,
    sa.Column("id", _ID_TYPE, primary_key=True),
    sa.Column("due", sa.Double, nullable=False, index=True),
    sa.Column("fifo", sa.String(255), nullable=False, index=True),
    sa.Column("topic", sa.String(255), nullable=False),
    sa.Column("body", sa.LargeBinary(2**24 - 1), nullable=False),
    sa.Column("fields", sa.Text, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("error", sa.Text),
    sqlite_autoincrement=True,
)
_INSERTS: Final[dict[str, Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
_GAP_LOCKING_DIALECTS: Final = {"mysql", "mariadb", "postgresql"}
_ADDED_KEY: Final = "sparrowmq_added"  # of a database connection: its transaction has put rows into the outbox

# Asynchronous drivers raise OSError while no server listens.
_DATABASE_ERRORS: Final = (SQLAlchemyError, OSError)
Transaction: TypeAlias = "sa.Connection | Session | scoped_session[Any]"


class SqlStore:
    """Keeps marks in the table `once_marks`. An effect through `connection` commits together with the mark."""

    has_connection = True

    def __init__(self, engine: sa.Engine | AsyncEngine) -> None:
        if not isinstance(engine, sa.Engine | AsyncEngine):
            raise ConfigError(f"{engine!r} is no engine; give one of create_engine or create_async_engine")
        self.is_async = isinstance(engine, AsyncEngine)
        self._engine: Any = engine

    def attempt(self, marks: Sequence[str]) -> Any:
        return self._async_attempt(marks) if self.is_async else self._blocking_attempt(marks)

    @contextmanager
    def _blocking_attempt(self, marks: Sequence[str]) -> Iterator[Attempt]:
        with self._engine.begin() as connection:
            yield Attempt(_mark_all(connection, marks), connection)

    @asynccontextmanager
    async def _async_attempt(self, marks: Sequence[str]) -> AsyncIterator[Attempt]:
        async with self._engine.begin() as connection:
            yield Attempt(await connection.run_sync(_mark_all, marks), connection)


def is_new(connection: Transaction, message: ReceivedMessage, *, name: str, key: Key = identity) -> bool:
    """Mark a message in a transaction of your own, and return whether it had no mark: an inbox in one call.

    Asynchronous connections and sessions have `await connection.run_sync(is_new, message, name="billing")`.
    Raises: ConfigError, the connection is asynchronous, or no connection.
    """
    _check_blocking(connection, "is_new")
    bound = connection if isinstance(connection, sa.Connection) else connection.connection()
    return _mark(bound, mark_of(message, name, key))


def forget(connection: Transaction, older_than_s: float) -> None:
    """Delete marks that are older, which must be longer than any duplicate may take to come.
    Raises: ConfigError, the connection is asynchronous, or no connection; this is no time above 0, which would delete
    all marks.
    """
    _check_blocking(connection, "forget")
    check_seconds("older_than_s", older_than_s)
    connection.execute(sa.delete(MARKS).where(MARKS.c.marked_at < time.time() - older_than_s))


def _check_blocking(connection: object, call: str) -> None:
    """Check a connection. One of `async` would return a coroutine that nothing awaits, and write nothing."""
    if not isinstance(connection, sa.Connection | Session | scoped_session):
        raise ConfigError(
            f"{connection!r} is no blocking connection or session; "
            f"an asynchronous one has `await connection.run_sync({call}, ...)`"
        )


def _mark_all(connection: sa.Connection, marks: Sequence[str]) -> list[bool]:
    return [_mark(connection, mark) for mark in marks]


def _mark(connection: sa.Connection, mark: str) -> bool:
    """Insert a mark; a concurrent transaction with the same mark is waited for."""
    row = {"mark": mark, "marked_at": time.time()}
    if insert := _INSERTS.get(connection.dialect.name):
        inserted = insert(MARKS).on_conflict_do_nothing().returning(MARKS.c.mark)
        return connection.execute(inserted, row).first() is not None
    try:
        with connection.begin_nested():
            connection.execute(sa.insert(MARKS), row)
    except IntegrityError:
        return False
    return True


def add(
    connection: Transaction, topic: str | Message, body: Body | None = None, **arguments: Unpack[OnewayArguments]
) -> None:
    """Put a message into the outbox, in your transaction; arguments are those of `send`.

    Asynchronous connections and sessions have `await connection.run_sync(add, "orders", body)`.
    Raises: InvalidMessage, InvalidName, the message could never be sent; ConfigError, the connection is asynchronous,
    or no connection.
    """
    _check_blocking(connection, "add")
    connection.execute(sa.insert(OUTBOX), {"due": time.time(), **relay.columns_of(topic, body, **arguments)})
    if not isinstance(connection, sa.Connection):
        connection = connection.connection(bind_arguments={"clause": OUTBOX})
    connection.info[_ADDED_KEY] = True


@sa.event.listens_for(sa.Pool, "checkin")
def _wake_after_add(_: object, record: sa.pool.ConnectionPoolEntry) -> None:
    """Wake relays when a transaction that called `add` has ended: a pool has its connection again."""
    if record.info.pop(_ADDED_KEY, False):
        relay.wake_relays()


class _Rows:
    """The table `once_outbox` in a transaction."""

    def __init__(self, connection: sa.Connection) -> None:
        self._execute = connection.execute

    def take(self) -> Iterable[relay.Row]:
        order = [OUTBOX.c.due, OUTBOX.c.id]
        columns = [OUTBOX.c[name] for name in relay.Row._fields]
        due_rows = sa.select(*columns).where(OUTBOX.c.due <= time.time()).order_by(*order).limit(relay.MAX_ROWS)
        return [relay.Row(*row) for row in self._execute(due_rows.with_for_update(skip_locked=True))]

    def of_keys(self, keys: set[str], last_id: int) -> Iterable[tuple[int, str]]:
        conditions = (OUTBOX.c.fifo.in_(keys), OUTBOX.c.id <= last_id, OUTBOX.c.failures < relay.HOLDING_REFUSALS)
        older_rows = sa.select(OUTBOX.c.id, OUTBOX.c.fifo).where(*conditions).order_by(OUTBOX.c.id)
        return [(row_id, key) for row_id, key in self._execute(older_rows)]

    def delete(self, ids: list[int]) -> None:
        self._execute(sa.delete(OUTBOX).where(OUTBOX.c.id.in_(ids)))

    def put_off(self, ids: list[int], due: float) -> None:
        self._execute(sa.update(OUTBOX).where(OUTBOX.c.id.in_(ids)).values(due=due))

    def count_refusal(self, row_id: int, error: str) -> None:
        values = {"failures": OUTBOX.c.failures + 1, "error": error}
        self._execute(sa.update(OUTBOX).where(OUTBOX.c.id == row_id).values(values))


class SqlOutbox(relay.BlockingOutbox):
    """Relays the table `once_outbox`."""

    _database_errors = _DATABASE_ERRORS

    def __init__(self, engine: sa.Engine) -> None:
        check_kind("engine", engine, sa.Engine, "one of create_engine; AsyncSqlOutbox takes an asynchronous one")
        self._engine = _read_committed(engine)

    @contextmanager
    def _rows(self) -> Iterator[_Rows]:
        with self._engine.begin() as connection:
            yield _Rows(connection)


class AsyncSqlOutbox:
    """Relays the table `once_outbox` in programs with `async`."""

    def __init__(self, engine: AsyncEngine) -> None:
        check_kind("engine", engine, AsyncEngine, "one of create_async_engine; SqlOutbox takes a blocking one")
        self._engine = _read_committed(engine)
        # SQLAlchemy 2.0 hands on asyncpg's own errors while a server starts.
        driver = getattr(engine.dialect.dbapi, "asyncpg", None)
        self._database_errors = (*_DATABASE_ERRORS, *((driver.PostgresError, driver.InterfaceError) if driver else ()))

    async def relay_batch(self, mq: Client | Producer) -> int:
        """Send at most 100 rows that are due, and return how many were sent. Raises: ClientClosed, ConfigError."""
        relay.check_sender(mq, is_async=True)
        async with self._engine.begin() as connection:
            turn: relay.Turn = await connection.run_sync(lambda inner: relay.Turn(_Rows(inner)))
            while wave := turn.next_wave():
                sends = (mq.send(**row.send_arguments) for row in wave)
                turn.note_outcomes(wave, await asyncio.gather(*sends, return_exceptions=True))
            sent: int = await connection.run_sync(lambda _: turn.settle())
            return sent

    async def relay(self, mq: Client | Producer, stop: asyncio.Event | None = None) -> None:
        """Send rows until `stop` is set. Failures of the database are logged, and it waits longer after each.
        Cancelling leaves up to 100 rows that were sent, which are sent again. `stop` leaves none. Raises: ClientClosed,
        ConfigError.
        """
        relay.check_sender(mq, is_async=True)
        stop = asyncio.Event() if stop is None else stop
        check_kind("stop", stop, asyncio.Event, "an asyncio.Event; setting it ends the relay")
        trouble, wake, loop = relay.DatabaseOutage(), asyncio.Event(), asyncio.get_running_loop()
        with relay.wake_on_commit(lambda: loop.call_soon_threadsafe(wake.set)):
            while not stop.is_set():
                wake.clear()
                try:
                    sent = await self.relay_batch(mq)
                    trouble.end()
                    if sent:
                        continue
                    pause_s = relay.IDLE_PAUSE_S
                except self._database_errors as error:
                    pause_s = trouble.report(error)
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await wait_for_first(stop.wait(), wake.wait())


def _read_committed(engine: Any) -> Any:
    """The engine as a relay uses it: each statement sees what is committed, and locks rows, not gaps between them."""
    locks_gaps = engine.dialect.name in _GAP_LOCKING_DIALECTS
    return engine.execution_options(isolation_level="READ COMMITTED") if locks_gaps else engine
