"""Detours: the way out and back, and the order in which the writer asks them."""

from pathlib import Path

import pytest

from sparrowmq.broker import redirect
from sparrowmq.broker.message_writer import Writer
from sparrowmq.broker.redirect import Redirect
from sparrowmq.errors import InvalidMessage, RemoteError
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.properties import Properties, mark, parse
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import Flush, StoreSettings
from tests.records import encoded

HOST = hosts.pack("127.0.0.1:1")


def entry(text: str = "KEYS\x01k\x02DELAY\x013\x02", topic: str = "Orders", queue_id: int = 2) -> Entry:
    return Entry(topic, queue_id, b"body", Properties(text), 7, HOST, 3, 1, 2)


def stored(parked: Entry) -> StoredMessage:
    """The message as it lies in the system topic."""
    properties = parked.properties.encode()
    return record.decode(
        encoded(
            parked.topic, parked.queue_id, parked.body, properties, flag=parked.flag, sys_flag=parked.sys_flag,
            born_timestamp_ms=parked.born_timestamp_ms, born_host=parked.born_host, reconsume_times=2,
        )
    )  # fmt: skip


@pytest.mark.covers("S-DELAY-02", "S-DELAY-04")
def test_a_message_comes_back_to_its_address_as_it_was_and_with_what_java_leaves_in_it():
    parked = entry()
    redirect.move(parked, "SYSTEM", 5)
    assert (parked.topic, parked.queue_id) == ("SYSTEM", 5)
    back = redirect.restore(stored(parked))
    assert (back.topic, back.queue_id, back.body) == ("Orders", 2, b"body")
    assert (back.flag, back.sys_flag, back.reconsume_times) == (3, 1, 2)
    assert (back.born_timestamp_ms, back.born_host) == (7, HOST)
    kept = {"KEYS": "k", "DELAY": "3", "REAL_TOPIC": "Orders", "REAL_QID": "2"}
    assert parse(back.properties.render()) == kept


def test_parking_again_replaces_the_old_address():
    again = entry("REAL_TOPIC\x01Old\x02REAL_QID\x019\x02")
    redirect.move(again, "SYSTEM", 0)
    back = redirect.restore(stored(again))
    assert (back.topic, back.queue_id) == ("Orders", 2)


@pytest.mark.parametrize(
    "properties",
    [
        "",
        "REAL_TOPIC\x01T",
        "REAL_QID\x011",
        "REAL_TOPIC\x01T\x02REAL_QID\x01-1",
        "REAL_TOPIC\x01\x02REAL_QID\x011",
    ],
)
def test_a_message_without_an_address_cannot_come_back(properties):
    with pytest.raises(InvalidMessage, match="no address"):
        redirect.restore(stored(entry(properties)))


def one(name: str) -> Redirect:
    """A redirect for every message that has the property of its name."""

    def divert(parked: Entry) -> bool:
        if parked.properties.get(name) == "no":
            return False
        redirect.move(parked, f"PARKED_{name}", 0)
        return True

    return Redirect(mark(name), divert, redirect.restore)


@pytest.fixture
def store(tmp_path: Path):
    with MessageStore.open(
        StoreSettings(tmp_path, commit_log_file_size=1 << 20, index=False, flush=Flush.ASYNC)
    ) as store:
        yield store


def topics(store: MessageStore) -> list[str]:
    store.publish()
    return [queue.topic for queue in store.queues if queue.max_offset]


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("", "Orders"),
        ("HALF\x01yes", "PARKED_HALF"),
        ("TIMER\x01yes", "PARKED_TIMER"),
        ("TIMER\x01yes\x02HALF\x01yes", "PARKED_HALF"),
        ("HALF\x01no\x02TIMER\x01yes", "PARKED_TIMER"),
        ("HALF\x01no", "Orders"),
    ],
)
def test_the_first_detour_that_wants_a_message_takes_it(store, text, topic):
    Writer(store, "C", (one("HALF"), one("TIMER"))).put(entry(text))
    assert topics(store) == [topic]


@pytest.mark.parametrize(("back_from", "topic"), [(0, "PARKED_TIMER"), (1, "Orders")])
def test_what_comes_back_takes_only_detours_behind_the_one_that_it_comes_from(store, back_from, topic):
    redirects = (one("HALF"), one("TIMER"))
    Writer(store, "C", redirects).put(entry("HALF\x01yes\x02TIMER\x01yes"), back_from=redirects[back_from])
    assert topics(store) == [topic]


def test_a_batch_with_a_message_for_a_detour_is_refused_whole(store):
    writer = Writer(store, "C", (one("TIMER"),))
    with pytest.raises(RemoteError, match="property TIMER; send it by itself"):
        writer.put_batch([entry(""), entry("TIMER\x01yes")])
    assert store.end == 0
    assert len(writer.put_batch([entry(""), entry("TIMER\x01no")])) == 2
