"""How messages enter the store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparrowmq.broker.delayed.delay import delay_levels
from sparrowmq.broker.message_writer import MAX_PROPERTIES_BYTES, Writer
from sparrowmq.broker.redirect import Redirect
from sparrowmq.errors import RemoteError
from sparrowmq.kernel.string_hash import string_hash
from sparrowmq.protocol import hosts
from sparrowmq.protocol.delay_levels import DelayLevels
from sparrowmq.protocol.messages import batch as batches
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.properties import Properties, render
from sparrowmq.protocol.selector import Selector
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import Flush, StoreSettings
from sparrowmq.testing import ManualClock

HOST = hosts.pack("127.0.0.1:1")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Iterator[MessageStore]:
    settings = StoreSettings(
        tmp_path, commit_log_file_size=1 << 20, flush=Flush.ASYNC, index_slots=10, index_entries=100
    )
    with MessageStore.open(settings, clock=clock) as opened:
        yield opened


@pytest.fixture
def writer(store: MessageStore, clock: ManualClock) -> Writer:
    return Writer(store, "C", (delay_levels(DelayLevels.parse("1s 5s"), clock),))


def put(writer: Writer, text: str, topic: str = "t", queue_id: int = 1) -> None:
    writer.put(Entry(topic, queue_id, b"body", Properties(text), 1, HOST))


def stored(store: MessageStore, topic: str = "t", queue_id: int = 1) -> StoredMessage:
    store.publish()
    return record.decode(store.read(topic, queue_id, 0, 1).views[0])


def test_a_receipt_handle_of_a_producer_is_not_stored_in_a_batch_either(writer: Writer) -> None:
    content = batches.encode([BatchPart(b"x", b"a\x01b\x02POP_CK\x011 2 3\x02")])
    shared = Entry("t", 1, b"", Properties(), 1, HOST)
    assert writer.put_plain(shared, content, batches.places(content)) is None


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("", "CLUSTER\x01C\x02"),
        ("a\x01b", "a\x01b\x02CLUSTER\x01C\x02"),
        ("a\x01b\x02", "a\x01b\x02CLUSTER\x01C\x02"),
        ("WAIT\x01true\x02a\x01b", "a\x01b\x02CLUSTER\x01C\x02"),
        ("a\x01b\x02WAIT\x01true", "a\x01b\x02CLUSTER\x01C\x02"),
        ("a\x01b\x02WAIT\x01false\x02", "a\x01b\x02WAIT\x01false\x02CLUSTER\x01C\x02"),
        ("aWAIT\x01true\x02", "aWAIT\x01true\x02CLUSTER\x01C\x02"),
        ("POP_CK\x01x\x02a\x01b\x02POP_CK\x01y", "a\x01b\x02CLUSTER\x01C\x02"),
        ("CLUSTER\x01other\x02", "CLUSTER\x01other\x02"),
        ("name\x01caf\u00e9 \u6d88\u606f\x02", "name\x01caf\u00e9 \u6d88\u606f\x02CLUSTER\x01C\x02"),
    ],
)
def test_properties_are_stored_without_the_wish_to_wait_and_with_the_cluster(
    writer: Writer, sent: str, kept: str
) -> None:
    one, other = (Entry("t", 1, b"", Properties(sent), 1, HOST) for _ in range(2))
    writer.put(one)
    writer.put_batch([other])
    assert one.properties.encode() == other.properties.encode() == kept.encode()


def test_properties_that_no_record_can_hold_are_refused_before_a_detour_reads_them(
    store: MessageStore,
) -> None:
    def divert(_: Entry) -> bool:
        raise AssertionError("asked")

    writer = Writer(
        store, "C", (Redirect("\x02DELAY\x01", divert, lambda _: Entry("t", 0, b"", Properties(), 1, HOST)),)
    )
    with pytest.raises(RemoteError, match="the properties take 255012 bytes; at most 32747"):
        put(writer, "DELAY\x011\x02" + "REAL_QID\x01\x02" * 25_500 + "a\x01b\x02")


def test_properties_that_a_record_cannot_hold_are_refused(writer: Writer) -> None:
    room = MAX_PROPERTIES_BYTES - len("a\x01\x02CLUSTER\x01C\x02")
    put(writer, f"a\x01{'x' * room}\x02")
    with pytest.raises(RemoteError, match="use the body"):
        put(writer, f"a\x01{'x' * (room + 1)}\x02")


def test_the_queue_knows_the_hash_of_the_tags(writer: Writer, store: MessageStore) -> None:
    put(writer, "TAGS\x01TagA\x02")
    store.publish()
    assert store.read("t", 1, 0, 1, selector=Selector(frozenset({string_hash("TagA")}))).count == 1
    assert store.read("t", 1, 0, 1, selector=Selector(frozenset({string_hash("TagB")}))).count == 0


def test_keys_and_the_unique_key_are_indexed(writer: Writer, store: MessageStore) -> None:
    put(writer, render({"KEYS": "k1 k2", "UNIQ_KEY": "U1"}))
    store.publish()
    for key in ("k1", "k2", "U1"):
        assert len(store.query("t", key, 10, 0, 1 << 50)) == 1


def test_a_delay_parks_the_message_with_its_address_and_due_time(
    writer: Writer, store: MessageStore, clock: ManualClock
) -> None:
    put(writer, "DELAY\x012\x02TAGS\x01TagA\x02")
    parked = stored(store, "SCHEDULE_TOPIC_XXXX", 1)
    assert (parked.properties["REAL_TOPIC"], parked.properties["REAL_QID"]) == ("t", "1")
    queue = store.queues.get("SCHEDULE_TOPIC_XXXX", 1)
    assert queue is not None
    assert queue.read(0, 1).tags_code(0) == clock.now_ms() + 5000


@pytest.mark.parametrize("delay", ["0", "-1"])
def test_no_delay_is_no_detour(writer: Writer, store: MessageStore, delay: str) -> None:
    put(writer, f"DELAY\x01{delay}\x02")
    assert stored(store).body == b"body"


def test_a_batch_in_one_pass_is_stored_as_message_by_message(tmp_path: Path, clock: ManualClock):
    parts = [
        BatchPart(
            b"%d" % n * 30_000,
            f"UNIQ_KEY\x01{n}\x02KEYS\x01k{n} all\x02TAGS\x01paid\x02WAIT\x01true\x02".encode(),
        )
        for n in range(12)
    ]
    logs, queues, keys = [], [], []
    for way in ("one pass", "one by one"):
        settings = StoreSettings(tmp_path / way, commit_log_file_size=1 << 20, store_host=HOST)
        with MessageStore.open(settings, clock=clock) as store:
            writer = Writer(store, "C", (delay_levels(DelayLevels.parse("1s 5s"), clock),))
            for _ in range(5):  # over the end of a file
                content = batches.encode(parts)
                shared = Entry("t", 1, b"", Properties(), 1, HOST)
                if way == "one pass":
                    assert writer.put_plain(shared, content, batches.places(content)) is not None
                else:
                    taken = [
                        Entry("t", 1, bytes(part.body), Properties.decode(part.properties), 1, HOST)
                        for part in batches.decode(content)
                    ]
                    writer.put_batch(taken)
            store.publish()
            assert store.queues.max_offset("t", 1) == 60
            queues.append([store.read("t", 1, 0, 60, 1 << 30, Selector(frozenset({string_hash("paid")}))).count])
            keys.append(
                [
                    [record.physical_offset(each) for each in store.query("t", key, 64, 0, 1 << 62)]
                    for key in ("k3", "all", "7")
                ]
            )
        files = sorted((tmp_path / way / "commitlog").iterdir())
        logs.append([file.read_bytes() for file in files])
    assert len(logs[0]) == 3 and logs[0] == logs[1] and queues == [[60], [60]]
    assert keys[0] == keys[1] and list(map(len, keys[0])) == [5, 60, 5]


def test_a_batch_with_a_delayed_message_is_looked_at_more_closely_and_refused(store: MessageStore, writer: Writer):
    content = batches.encode([BatchPart(b"x", b"a\x01b\x02"), BatchPart(b"y", b"DELAY\x011\x02")])
    shared = Entry("t", 1, b"", Properties(), 1, HOST)
    assert writer.put_plain(shared, content, batches.places(content)) is None and store.end == 0
