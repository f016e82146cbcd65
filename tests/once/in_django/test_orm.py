"""Marks and an outbox in Django's database, with a real file."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection as django_connection
from django.db import connections, transaction

from sparrowmq import InvalidMessage, ReceivedMessage, sync
from sparrowmq.errors import ConfigError
from sparrowmq.once import ONCE_ID, idempotent
from sparrowmq.once.in_django.models import Mark, Waiting
from sparrowmq.once.in_django.orm import DjangoOutbox, DjangoStore, add, forget, is_new
from sparrowmq.once.relay import wake_on_commit
from tests.once.messages import received
from tests.once.test_relay import taking


def bill(text: str) -> None:
    """An effect in the database: a row of a table that is there."""
    Waiting.objects.create(topic="bills", fifo="", body=text.encode(), fields="{}")


def test_effect_and_mark_commit_together():
    @idempotent(DjangoStore(), name="billing")
    def handle(message: ReceivedMessage) -> None:
        bill(message.msg_id)
        if message.tag == "fails":
            raise ValueError("after the effect")

    with pytest.raises(ValueError, match="after the effect"):
        handle(received("U-1", TAGS="fails"))
    assert not Waiting.objects.exists() and not Mark.objects.exists()
    for _ in range(2):
        handle(received("U-1"))
    assert Waiting.objects.count() == Mark.objects.count() == 1


def test_a_handler_gets_the_connection():
    got = []

    @idempotent(DjangoStore())
    def handle(message: ReceivedMessage, connection: object) -> None:
        got.append(connection)

    handle(received())
    assert got == [django_connection]


def test_an_inbox_in_a_transaction_of_your_own():
    for _ in range(2):
        with transaction.atomic():
            if is_new(received("U-1"), name="billing"):
                bill("b-1")
    assert Waiting.objects.count() == 1
    Mark.objects.update(marked_at=time.time() - 10)
    forget(older_than_s=11)
    assert Mark.objects.exists()
    forget(older_than_s=9)
    assert not Mark.objects.exists()


def test_handlers_that_run_at_the_same_time_wait_for_each_other():
    def handle_some(first: int) -> None:
        barrier.wait()
        for number in range(first, first + 10):
            with DjangoStore().attempt([f"m{number}"]) as attempt:
                assert attempt.is_new == [True]
                bill(f"b-{number}")
        connections.close_all()

    barrier = threading.Barrier(4)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(handle_some, range(0, 40, 10)))
    assert Waiting.objects.count() == Mark.objects.count() == 40


@pytest.mark.parametrize("older_than_s", [None, "5", 0, -1])
def test_marks_of_no_time_are_not_forgotten(older_than_s):
    assert is_new(received("U-1"), name="billing")
    with pytest.raises(ConfigError, match="older_than_s"):
        forget(older_than_s)
    assert Mark.objects.exists()


@pytest.mark.parametrize("kind", [DjangoStore, DjangoOutbox])
@pytest.mark.parametrize("using", ["nope", None, 5])
def test_a_database_that_django_does_not_have_is_refused(kind, using):
    with pytest.raises(ConfigError, match="is not a configured database; DATABASES has default"):
        kind(using=using)


def test_a_message_of_a_transaction_that_fails_is_never_sent(background):
    with pytest.raises(ValueError, match="changed my mind"), transaction.atomic():
        add("orders", b"1")
        raise ValueError("changed my mind")
    with transaction.atomic():
        add("orders", b"2", tag="paid", fifo="o-2", properties={"region": "EU"})
    stop = threading.Event()
    with sync.connect(background.namesrv) as mq:
        relay = threading.Thread(target=DjangoOutbox().relay, args=(mq, stop))
        relay.start()
        with mq.subscribe("orders", group="billing", start="earliest") as orders:
            message = next(iter(orders))
            message.ack()
        while Waiting.objects.exists():
            assert relay.is_alive()
        stop.set()
        relay.join(10)
    assert (message.body, message.tag, message.properties["region"]) == (b"2", "paid", "EU")
    assert message.properties[ONCE_ID]


def test_a_refused_row_is_counted_and_a_commit_wakes_relays():
    add("orders", b"1")
    sent, woken = taking(b"1"), threading.Event()
    sent.error = InvalidMessage("too large")
    DjangoOutbox().relay_batch(sent)
    assert [(row.failures, row.error) for row in Waiting.objects.filter(failures__gt=0)] == [(1, "too large")]
    with wake_on_commit(woken.set):
        with transaction.atomic():
            add("orders", b"2")
            assert not woken.is_set()
        assert woken.is_set()


def test_the_key_of_a_failed_row_waits():
    for fifo, body in [("k", b"1"), ("k", b"2"), ("", b"3")]:
        add("orders", body, fifo=fifo or None)
    sent, outbox = taking(b"1"), DjangoOutbox()
    assert outbox.relay_batch(sent) == 1 and sent.bodies == [b"3"]
    assert outbox.relay_batch(sent) == 0, "they are put off"
    sent.refused.clear()
    Waiting.objects.update(due=0)
    assert outbox.relay_batch(sent) == 2 and sent.bodies == [b"3", b"1", b"2"]
