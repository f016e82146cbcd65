"""A turn of the relay over real tables: what is sent in which order, and what waits."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import aiosqlite
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from sparrowmq import (
    AccessDenied,
    BrokerUnreachable,
    ClientClosed,
    InvalidMessage,
    InvalidName,
    Message,
    MessageQueue,
    NoRoute,
    Producer,
    ProducerSettings,
    RemoteError,
    SendFailed,
    connect,
    sync,
)
from sparrowmq.errors import A_SLAVE, ConfigError
from sparrowmq.once import ONCE_ID
from sparrowmq.once.relay import DatabaseOutage, Row, columns_of, wake_relays
from sparrowmq.once.sql import OUTBOX, AsyncSqlOutbox, SqlOutbox, add, metadata
from sparrowmq.protocol.codes import ResponseCode
from tests.client.conftest import until
from tests.once.postgres import LivePostgres, needs_postgres


class Sent:
    """Takes messages as a client does, and refuses those of some bodies."""

    def __init__(self, *refused: bytes) -> None:
        self.bodies: list[bytes] = []
        self.refused = set(refused)
        self.error: Exception = SendFailed("the broker is away")

    def send_soon(self, topic: Message, *, fifo: str | None) -> Future[None]:
        future: Future[None] = Future()
        if topic.body in self.refused:
            future.set_exception(self.error)
        else:
            self.bodies.append(topic.body)
            future.set_result(None)
        return future


class Asking(Sent):
    """The same for a relay with `async`."""

    async def send(self, topic: Message, *, fifo: str | None) -> None:
        self.send_soon(topic, fifo=fifo).result()


def asking() -> Any:
    return Asking()


def taking(*refused: bytes) -> Any:
    return Sent(*refused)


def fill(engine, *rows: tuple[str, bytes]) -> None:
    with engine.begin() as connection:
        for fifo, body in rows:
            add(connection, "orders", body, fifo=fifo or None)


def left(engine) -> list[bytes]:
    with engine.connect() as connection:
        return [bytes(body) for body in connection.execute(sa.select(OUTBOX.c.body).order_by(OUTBOX.c.id)).scalars()]


def due_now(engine) -> None:
    with engine.begin() as connection:
        connection.execute(sa.update(OUTBOX).values(due=0.0))


def test_rows_are_sent_once_and_deleted(engine):
    fill(engine, ("", b"1"), ("k", b"2"), ("k", b"3"))
    sent = taking()
    assert SqlOutbox(engine).relay_batch(sent) == 3
    assert sorted(sent.bodies) == [b"1", b"2", b"3"] and left(engine) == []
    assert SqlOutbox(engine).relay_batch(sent) == 0 and len(sent.bodies) == 3


def test_the_key_of_a_failed_row_waits_and_other_keys_go_on(engine):
    fill(engine, ("k", b"1"), ("k", b"2"), ("other", b"3"), ("", b"4"))
    sent = taking(b"1")
    outbox = SqlOutbox(engine)
    assert outbox.relay_batch(sent) == 2
    assert sorted(sent.bodies) == [b"3", b"4"] and left(engine) == [b"1", b"2"]
    assert outbox.relay_batch(sent) == 0, "they are put off"
    sent.refused.clear()
    due_now(engine)
    outbox.relay_batch(sent)
    assert sent.bodies[2:] == [b"1", b"2"] and left(engine) == []


def test_a_row_does_not_overtake_a_row_of_its_key_that_is_put_off(engine):
    fill(engine, ("k", b"1"))
    sent = taking(b"1")
    outbox = SqlOutbox(engine)
    outbox.relay_batch(sent)
    fill(engine, ("k", b"2"))
    sent.refused.clear()
    assert outbox.relay_batch(sent) == 0 and sent.bodies == []
    due_now(engine)
    assert outbox.relay_batch(sent) == 2 and sent.bodies == [b"1", b"2"]


def test_rows_that_cannot_be_sent_do_not_keep_later_ones_waiting(engine, monkeypatch):
    """The rows of a topic that does not exist would fill each batch, as they are due again at once."""
    monkeypatch.setattr("sparrowmq.once.relay.FAILED_PAUSE_S", 0.0)
    stuck = [b"stuck %d" % number for number in range(120)]
    fill(engine, *(("", body) for body in stuck))
    sent, outbox = taking(*stuck), SqlOutbox(engine)
    outbox.relay_batch(sent)
    fill(engine, ("", b"fresh"))
    for _ in range(3):
        outbox.relay_batch(sent)
    assert sent.bodies == [b"fresh"]


@needs_postgres
@pytest.mark.parametrize("engine", ["postgresql"], indirect=True)
def test_two_relays_send_different_rows_and_keep_the_order_of_a_key(engine):
    """The second relay takes its rows while the first one is sending its own."""
    fill(engine, *[("k" if number % 2 else "", b"%03d" % number) for number in range(150)])
    first, second = taking(), taking()
    sending, go_on = threading.Event(), threading.Event()

    class Slow(Sent):
        def send_soon(self, topic, *, fifo):
            sending.set()
            go_on.wait(10)
            return first.send_soon(topic, fifo=fifo)

    relay = threading.Thread(target=SqlOutbox(engine).relay_batch, args=(Slow(),))
    relay.start()
    sending.wait(10)
    other = SqlOutbox(engine)
    assert other.relay_batch(second) == 25, "those without a key"
    go_on.set()
    relay.join()
    assert len(first.bodies) == 100 and not set(first.bodies) & set(second.bodies)
    due_now(engine)
    assert other.relay_batch(second) == 25
    keyed = [body for body in [*first.bodies, *second.bodies] if int(body) % 2]
    assert keyed == sorted(keyed) and len(keyed) == 75


def test_a_crash_in_the_middle_of_a_turn_loses_nothing(engine):
    fill(engine, ("k", b"1"), ("k", b"2"))

    class Crash(Exception):
        pass

    sent = taking()
    outbox = SqlOutbox(engine)
    with pytest.raises(Crash), outbox._rows() as rows:
        assert len([*rows.take()]) == 2
        rows.delete([1])
        raise Crash
    assert outbox.relay_batch(sent) == 2


def test_a_closed_client_ends_the_relay(engine):
    fill(engine, ("", b"1"))
    sent = taking(b"1")
    sent.error = ClientClosed("closed")
    with pytest.raises(ClientClosed):
        SqlOutbox(engine).relay(sent, threading.Event())
    assert left(engine) == [b"1"]


@pytest.mark.parametrize("stop", [None, False, 5, asyncio.Event()])
def test_a_relay_needs_an_event_of_threads(engine, stop):
    with pytest.raises(ConfigError, match=r"give a threading\.Event"):
        SqlOutbox(engine).relay(taking(), stop)


async def test_a_relay_refuses_a_client_of_the_other_kind_and_sends_nothing(engine):
    fill(engine, ("", b"1"))
    for mq in (None, connect("127.0.0.1:1"), Producer):
        with pytest.raises(ConfigError, match="cannot send for this outbox"):
            SqlOutbox(engine).relay_batch(mq)  # type: ignore[arg-type]
    asynchronous = AsyncSqlOutbox(create_async_engine("sqlite+aiosqlite://"))
    for other in (None, sync.connect("127.0.0.1:1")):
        with pytest.raises(ConfigError, match="cannot send for this outbox"):
            await asynchronous.relay_batch(other)  # type: ignore[arg-type]
    assert left(engine) == [b"1"]


def test_a_relay_outlives_a_failure_of_its_database(engine, caplog):
    metadata_is_missing = sa.text("ALTER TABLE once_outbox RENAME TO gone")
    with engine.begin() as connection:
        connection.execute(metadata_is_missing)
    stop, sent, outbox = threading.Event(), taking(), SqlOutbox(engine)
    relay = threading.Thread(target=outbox.relay, args=(sent, stop))
    relay.start()
    while "cannot be read or settled" not in caplog.text:
        assert relay.is_alive()
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE gone RENAME TO once_outbox"))
    fill(engine, ("", b"1"))
    while not sent.bodies:
        assert relay.is_alive()
    stop.set()
    relay.join(10)
    assert not relay.is_alive() and left(engine) == []
    assert "can be read again" in caplog.text


def test_a_long_failure_of_a_database_is_logged_once_and_makes_pauses_longer(caplog):
    caplog.set_level(logging.WARNING)
    trouble = DatabaseOutage()
    for _ in range(2):
        trouble.end()
        pauses = [trouble.report(OSError("away\n[SQL: SELECT ...]")) for _ in range(7)]
        assert pauses == [0.5, 1, 2, 4, 8, 10, 10]
    assert caplog.text.count("cannot be read or settled") == 2 and caplog.text.count("can be read again") == 1
    assert "may be sent again: away" in caplog.text and "SQL" not in caplog.text


async def test_a_relay_outlives_a_database_that_no_driver_reaches(tmp_path):
    """As asyncpg, whose connections fail with an OSError."""
    is_away, tries = True, []

    async def reach() -> aiosqlite.Connection:
        tries.append(1)
        if is_away:
            raise ConnectionRefusedError("no server there")
        return await aiosqlite.connect(tmp_path / "shop.db")

    engine = create_async_engine("sqlite+aiosqlite://", async_creator=reach)
    sent, stop = asking(), asyncio.Event()
    relay = asyncio.create_task(AsyncSqlOutbox(engine).relay(sent, stop))
    await until(lambda: len(tries) > 1)
    is_away = False
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
        await connection.run_sync(add, "orders", b"1")
    await until(lambda: sent.bodies)
    stop.set()
    async with asyncio.timeout(10):
        await relay
    async with engine.connect() as connection:
        assert (await connection.execute(sa.select(OUTBOX))).all() == [], "its answer was written"
    await engine.dispose()


@needs_postgres
@pytest.mark.slow
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "blocking"])
async def test_relays_outlive_a_restart_of_their_server(is_async, background, caplog):
    with LivePostgres() as server, sync.connect(background.namesrv) as blocking:
        engine, asynchronous = sa.create_engine(server.url), create_async_engine(server.url)
        metadata.create_all(engine)
        stop, stop_thread = asyncio.Event(), threading.Event()
        async with connect(background.namesrv) as mq:
            if is_async:
                relay = asyncio.create_task(AsyncSqlOutbox(asynchronous).relay(mq, stop))
            else:
                relay = asyncio.create_task(asyncio.to_thread(SqlOutbox(engine).relay, blocking, stop_thread))
            for body in (b"1", b"2"):
                fill(engine, ("", body))
                await until(lambda: left(engine) == [], 30)
                server.restart()
                await until(lambda: "cannot be read" in caplog.text)
                engine.dispose()
                caplog.clear()
            fill(engine, ("", b"3"))
            await until(lambda: left(engine) == [], 30)
            stop.set()
            stop_thread.set()
            await relay
        await asynchronous.dispose()
        engine.dispose()


async def test_a_commit_of_the_same_process_wakes_relays(engine, monkeypatch, tmp_path):
    monkeypatch.setattr("sparrowmq.once.relay.IDLE_PAUSE_S", 3600.0)
    sent, stop = taking(), threading.Event()
    relay = threading.Thread(target=SqlOutbox(engine).relay, args=(sent, stop))
    relay.start()
    for body, begin in ((b"1", engine.connect), (b"2", partial(Session, engine))):
        with begin() as transaction:
            add(transaction, "orders", body)
            transaction.commit()
        await until(partial(sent.bodies.__contains__, body))
    stop.set()
    wake_relays()
    relay.join(10)
    assert not relay.is_alive()

    asynchronous = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/other.db")
    async with asynchronous.begin() as connection:
        await connection.run_sync(metadata.create_all)
    other, end = asking(), asyncio.Event()
    task = asyncio.create_task(AsyncSqlOutbox(asynchronous).relay(other, end))
    async with AsyncSession(asynchronous) as session, session.begin():
        await session.run_sync(add, "orders", b"3")
    await until(lambda: other.bodies)
    end.set()
    async with asyncio.timeout(10):
        await task
    await asynchronous.dispose()


def refused(engine) -> list[tuple[int, str | None]]:
    """The query of docs/use/once.md, without its columns of the message."""
    query = "SELECT failures, error FROM once_outbox WHERE failures > 0 ORDER BY failures DESC"
    with engine.connect() as connection:
        return [(failures, error) for failures, error in connection.execute(sa.text(query))]


def pauses_s(engine) -> list[float]:
    with engine.connect() as connection:
        return [round(due - time.time()) for due in connection.execute(sa.select(OUTBOX.c.due)).scalars()]


def test_a_refused_row_pauses_longer_each_time_and_lets_its_key_go_on(engine, caplog):
    fill(engine, ("k", b"1"), ("k", b"2"))
    sent, outbox = taking(b"1"), SqlOutbox(engine)
    sent.error = SendFailed("it was denied", cause=AccessDenied("no permission for topic:orders"))
    for pause_s in (1, 2, 4, 8, 16):
        due_now(engine)
        assert outbox.relay_batch(sent) == 0 and sent.bodies == []
        assert pauses_s(engine) == [pause_s, pause_s]
    assert refused(engine) == [(5, "it was denied")]
    last = "waits 16 s after refusal 5, its key goes on without it, and perhaps others, for topic orders"
    assert last in caplog.text
    fill(engine, ("k", b"3"))
    due_now(engine)
    assert outbox.relay_batch(sent) == 2 and sent.bodies == [b"2", b"3"]
    assert pauses_s(engine) == [32] and refused(engine) == [(6, "it was denied")]
    fill(engine, ("k", b"4"))
    assert outbox.relay_batch(sent) == 1, "also while the refused row is put off"
    sent.refused.clear()
    due_now(engine)
    assert outbox.relay_batch(sent) == 1 and sent.bodies[-1] == b"1" and left(engine) == []


@pytest.mark.parametrize(
    "error",
    [
        SendFailed("no broker answers", cause=BrokerUnreachable("127.0.0.1:1", "refused")),
        SendFailed("busy", cause=RemoteError(ResponseCode.SYSTEM_BUSY)),
        SendFailed("a slave", cause=RemoteError(ResponseCode.SLAVE_NOT_AVAILABLE, A_SLAVE)),
        NoRoute("orders", "127.0.0.1:9876"),
    ],
)
def test_a_cluster_that_is_away_is_no_refusal(engine, error):
    """After an outage, the rows of a key still have their order."""
    fill(engine, ("k", b"1"), ("k", b"2"))
    sent, outbox = taking(b"1"), SqlOutbox(engine)
    sent.error = error
    for _ in range(10):
        due_now(engine)
        assert outbox.relay_batch(sent) == 0
    assert pauses_s(engine) == [1, 1] and refused(engine) == []


def test_messages_that_a_client_or_a_broker_refuses_are_counted(engine, background):
    """One is larger than the client allows, and only brokers write to the topic of the other."""
    fill(engine, ("", b"x" * 2000), ("", b"y"))
    with engine.begin() as connection:
        connection.execute(sa.update(OUTBOX).where(OUTBOX.c.id == 2).values(topic="SCHEDULE_TOPIC_XXXX"))
    with sync.connect(background.namesrv, settings=ProducerSettings(max_bytes=1000)) as mq:
        assert SqlOutbox(engine).relay_batch(mq) == 0
    assert [failures for failures, _ in refused(engine)] == [1, 1]


async def test_an_asynchronous_client_refuses_a_row(tmp_path, mq):
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db")
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
        for body in (b"1", b"2"):
            await connection.run_sync(add, "orders", body)
        await connection.execute(sa.update(OUTBOX).where(OUTBOX.c.id == 1).values(topic="SCHEDULE_TOPIC_XXXX"))
    assert await AsyncSqlOutbox(engine).relay_batch(mq) == 1
    async with engine.connect() as connection:
        assert (await connection.execute(sa.select(OUTBOX.c.id, OUTBOX.c.failures))).all() == [(1, 1)]
    await engine.dispose()


@pytest.mark.parametrize(
    ("waited_s", "was_refused", "level", "is_timed"),
    [(0.1, False, 5, False), (20, False, 0, True), (20, True, 4, False), (61, False, 0, False)],
)
def test_a_delay_counts_from_the_commit(waited_s, was_refused, level, is_timed, monkeypatch):
    """Level 5 is a minute, and level 4 half a minute, which brokers of 4.x need in place of 40 s."""
    columns, added_s = columns_of("orders", b"x", delay="1m"), time.time()
    monkeypatch.setattr("sparrowmq.once.relay.time", SimpleNamespace(time=lambda: added_s + waited_s))
    message = Row(1, **columns, failures=int(was_refused)).send_arguments["topic"]
    assert (message.delay_level, bool(message.deliver_at_ms), message.delay_ms) == (level, is_timed, 0)
    if is_timed:
        assert message.deliver_at_ms == pytest.approx((added_s + 60) * 1000, abs=1000)


def test_other_delays_count_from_the_commit_too():
    now_ms = time.time() * 1000
    for columns in (
        columns_of("orders", b"x", delay="15s"),
        columns_of(Message("orders", b"x", delay_ms=15_000)),
        columns_of("orders", b"x", deliver_at=datetime.now(UTC) + timedelta(seconds=15)),
    ):
        message = Row(1, **columns, failures=0).send_arguments["topic"]
        assert message.deliver_at_ms == pytest.approx(now_ms + 15_000, abs=1000) and not message.delay_ms
    assert Row(1, **columns_of("orders", b"x", delay_level=3), failures=0).send_arguments["topic"].delay_level == 3


@pytest.mark.parametrize("stop", [False, 5, threading.Event()])
async def test_an_asynchronous_relay_needs_an_event_of_asyncio(stop):
    with pytest.raises(ConfigError, match=r"an asyncio\.Event"):
        await AsyncSqlOutbox(create_async_engine("sqlite+aiosqlite://")).relay(asking(), stop)


def test_rows_that_wait_are_one_line_of_the_log_for_each_topic(engine, caplog):
    with engine.begin() as connection:
        for topic in ("orders", "bills", "orders"):
            add(connection, topic, b"1")
    SqlOutbox(engine).relay_batch(taking(b"1"))
    assert len(caplog.messages) == 2
    assert "the outbox waits, and perhaps others, for topic orders: the broker is away" in caplog.messages[0]


def test_a_row_has_all_of_its_message():
    message = Message("orders", b"x", "paid", ["k-1", "k-2"], {"region": "EU"}, 7, 3)
    columns = columns_of(message, fifo="o-1")
    assert columns["fifo"] == "o-1" and columns["topic"] == "orders" and message.properties == {"region": "EU"}
    typed = columns_of("orders", {"id": "o-1"})
    assert typed["body"] == b'{"id":"o-1"}' and '"contentType":"application/json"' in typed["fields"]
    again = columns_of("orders", b"x")
    assert ONCE_ID in again["fields"] and again["fields"] != columns_of("orders", b"x")["fields"]
    assert '"once_id":"mine"' in columns_of("orders", b"x", properties={ONCE_ID: "mine"})["fields"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"topic": "no such name!", "body": b"x"}, InvalidName),
        ({"topic": "orders", "body": b""}, InvalidMessage),
        ({"topic": "orders", "body": object()}, InvalidMessage),
        ({"topic": "orders", "body": b"x" * (5 << 20)}, InvalidMessage),
        ({"topic": "orders", "body": b"x", "keys": "a b"}, InvalidMessage),
        ({"topic": "orders", "body": b"x", "properties": {"TAGS": "own"}}, InvalidMessage),
        ({"topic": "orders", "body": b"x", "queue": MessageQueue("orders", "a", 0)}, InvalidMessage),
        ({"topic": "orders", "body": b"x", "fifo": 5}, InvalidMessage),
        ({"topic": "orders", "body": b"x", "fifo": "x" * 256}, InvalidMessage),
        ({"topic": "orders", "body": b"x", "fifo": "\ud800"}, ConfigError),
        ({"topic": "orders", "body": b"x", "timeout_s": 5}, TypeError),
    ],
)
def test_what_could_never_be_sent_is_refused_before_the_commit(arguments, error):
    with pytest.raises(error):
        columns_of(**arguments)
