"""Marks and rows in real databases: what commits together, and what waits for another transaction."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from sparrowmq import ConfigError, ReceivedMessage, sync
from sparrowmq.once import ONCE_ID, idempotent
from sparrowmq.once.sql import MARKS, OUTBOX, AsyncSqlOutbox, SqlOutbox, SqlStore, add, forget, is_new, metadata
from tests.client.conftest import until
from tests.once.conftest import BILLS
from tests.once.messages import received
from tests.once.postgres import needs_postgres


def rows_of(engine, table: sa.Table) -> int:
    with engine.connect() as connection:
        found: int = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
        return found


def test_effect_and_mark_commit_together(engine):
    @idempotent(SqlStore(engine), name="billing")
    def bill(message: ReceivedMessage, connection: sa.Connection) -> None:
        connection.execute(sa.insert(BILLS), {"bill": message.msg_id})
        if message.tag == "fails":
            raise ValueError("after the effect")

    with pytest.raises(ValueError, match="after the effect"):
        bill(received("U-1", TAGS="fails"))
    assert rows_of(engine, BILLS) == rows_of(engine, MARKS) == 0
    bill(received("U-1"))
    bill(received("U-1"))
    assert rows_of(engine, BILLS) == rows_of(engine, MARKS) == 1


def test_an_inbox_in_a_transaction_of_your_own(engine):
    for _ in range(2):
        with Session(engine) as session, session.begin():
            if is_new(session, received("U-1"), name="billing"):
                session.execute(sa.insert(BILLS), {"bill": "b-1"})
    with pytest.raises(ValueError, match="later"), engine.begin() as connection:
        assert is_new(connection, received("U-2"), name="billing")
        raise ValueError("later")
    with engine.begin() as connection:
        assert is_new(connection, received("U-2"), name="billing")
    assert rows_of(engine, BILLS) == 1 and rows_of(engine, MARKS) == 2


def test_a_session_of_flask_is_a_transaction(engine):
    session = scoped_session(sessionmaker(engine))
    with session.begin():
        assert is_new(session, received("U-1"), name="billing")
        add(session, "t", b"x")
    session.remove()
    assert rows_of(engine, MARKS) == rows_of(engine, OUTBOX) == 1


async def test_a_call_that_would_write_nothing_is_refused(tmp_path):
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db")
    for connection in (engine.connect(), AsyncSession(engine), engine, None):
        for call in (
            lambda wrong: add(wrong, "t", b"x"),
            lambda wrong: is_new(wrong, received("U-1"), name="billing"),
            lambda wrong: forget(wrong, 60.0),
        ):
            with pytest.raises(ConfigError, match=r"no blocking connection.*run_sync"):
                call(connection)


def test_a_relay_refuses_an_engine_of_the_other_kind():
    with pytest.raises(ConfigError, match="AsyncSqlOutbox takes an asynchronous one"):
        SqlOutbox(create_async_engine("sqlite+aiosqlite://"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="SqlOutbox takes a blocking one"):
        AsyncSqlOutbox(sa.create_engine("sqlite://"))  # type: ignore[arg-type]


def test_old_marks_are_forgotten(engine):
    with engine.begin() as connection:
        is_new(connection, received("U-1"), name="billing")
        connection.execute(sa.update(MARKS).values(marked_at=time.time() - 100))
        is_new(connection, received("U-2"), name="billing")
        forget(connection, older_than_s=50)
        for wrong in (None, "5", 0, -1):
            with pytest.raises(ConfigError, match="older_than_s"):
                forget(connection, wrong)  # type: ignore[arg-type]
        assert not is_new(connection, received("U-2"), name="billing")
        assert is_new(connection, received("U-1"), name="billing")


@needs_postgres
@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
@pytest.mark.parametrize("fails", [False, True])
def test_a_concurrent_duplicate_waits_for_the_outcome(engine, fails):
    calls: list[str] = []
    started, go_on = threading.Event(), threading.Event()

    @idempotent(SqlStore(engine), name="billing")
    def bill(message: ReceivedMessage) -> None:
        calls.append(message.tag or "")
        if message.tag == "first":
            started.set()
            go_on.wait(10)
            if fails:
                raise ValueError("not now")

    def first() -> None:
        try:
            bill(received("U-1", TAGS="first"))
        except ValueError:
            assert fails

    threads = [
        threading.Thread(target=first),
        threading.Thread(target=bill, args=(received("U-1", TAGS="second"),)),
    ]
    threads[0].start()
    started.wait(10)
    threads[1].start()
    waiting = sa.text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        while not connection.execute(waiting).scalar_one():
            assert threads[1].is_alive()
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert calls == (["first", "second"] if fails else ["first"])


def test_other_databases_have_savepoints(engine, monkeypatch):
    """As MySQL has it: an INSERT that fails, and a transaction that goes on."""
    monkeypatch.setattr("sparrowmq.once.sql._INSERTS", {})
    with engine.begin() as connection:
        connection.execute(sa.insert(BILLS), {"bill": "before"})
        assert is_new(connection, received("U-1"), name="billing")
        assert not is_new(connection, received("U-1"), name="billing")
        connection.execute(sa.insert(BILLS), {"bill": "after"})
    assert rows_of(engine, BILLS) == 2


def test_a_message_of_a_transaction_that_fails_is_never_sent(engine, background):
    with pytest.raises(ValueError, match="changed my mind"), engine.begin() as connection:
        add(connection, "orders", b"1")
        raise ValueError("changed my mind")
    with Session(engine) as session, session.begin():
        add(session, "orders", b"2", tag="paid", keys="o-2", fifo="o-2", properties={"region": "EU"})
    with sync.connect(background.namesrv) as mq:
        assert SqlOutbox(engine).relay_batch(mq) == 1
        with mq.subscribe("orders", group="billing", start="earliest") as orders:
            message = next(iter(orders))
            message.ack()
    assert (message.body, message.tag, message.keys) == (b"2", "paid", ["o-2"])
    assert message.properties["region"] == "EU" and len(message.properties[ONCE_ID]) == 32


async def test_an_asynchronous_outbox_keeps_the_order_of_a_key(tmp_path, mq):
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db")
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
        for number in range(120):
            await connection.run_sync(add, "orders", b"%d" % number, fifo="o-1" if number % 2 else None)
    relaying = asyncio.create_task(AsyncSqlOutbox(engine).relay(mq))
    got: list[int] = []
    async with mq.subscribe(
        "orders", lambda each: got.append(int(each.text())), group="billing", start="earliest", ordered=True
    ):
        await until(lambda: len(got) == 120, 30)
    async with asyncio.timeout(10), engine.connect() as connection:
        while (await connection.execute(sa.select(sa.func.count()).select_from(OUTBOX))).scalar_one():
            await connection.rollback()
    relaying.cancel()
    await asyncio.gather(relaying, return_exceptions=True)
    await engine.dispose()
    keyed = [number for number in got if number % 2]
    assert sorted(got) == list(range(120)) and keyed == sorted(keyed)
