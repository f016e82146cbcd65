"""A turn of the relay over real tables: what is sent in which order, and what waits."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import Future
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from sparrowmq import (
    ClientClosed,
    InvalidMessage,
    InvalidName,
    Message,
    MessageQueue,
    Producer,
    SendFailed,
    connect,
    sync,
)
from sparrowmq.errors import ConfigError
from sparrowmq.once import ONCE_ID
from sparrowmq.once.relay import Trouble, columns_of
from sparrowmq.once.sql import ROWS, AsyncSqlOutbox, SqlOutbox, add
from tests.once.postgres import needs_postgres


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


def taking(*refused: bytes) -> Any:
    return Sent(*refused)


def fill(engine, *rows: tuple[str, bytes]) -> None:
    with engine.begin() as connection:
        for fifo, body in rows:
            add(connection, "orders", body, fifo=fifo or None)


def left(engine) -> list[bytes]:
    with engine.connect() as connection:
        return [
            bytes(body) for body in connection.execute(sa.select(ROWS.c.body).order_by(ROWS.c.id)).scalars()
        ]


def due_now(engine) -> None:
    with engine.begin() as connection:
        connection.execute(sa.update(ROWS).values(due=0.0))


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
    monkeypatch.setattr("sparrowmq.once.relay.FAILED_S", 0.0)
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


def test_a_long_failure_of_a_database_is_logged_once(caplog):
    caplog.set_level(logging.WARNING)
    trouble = Trouble()
    for _ in range(2):
        trouble.over()
        for _ in range(3):
            trouble.report()
    assert caplog.text.count("cannot be read or settled") == 2 and caplog.text.count("can be read again") == 1


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
    assert (
        columns["fifo"] == "o-1" and columns["topic"] == "orders" and message.properties == {"region": "EU"}
    )
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
