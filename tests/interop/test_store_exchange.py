"""A store changes hands: ours reads what Apache wrote, and Apache goes on with what ours wrote."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from sparrowmq.cli.store import LogCopy
from sparrowmq.core import snapshot
from sparrowmq.protocol import hosts
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.store.care.check import verify
from sparrowmq.store.care.repair import repair
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Disk
from tests.interop.apache import ApacheBroker, ApacheNamesrv
from tests.interop.wire import Wire

pytestmark = pytest.mark.slow

# Small files, so that a few hundred messages fill several of each kind.
CONF: Mapping[str, object] = {
    "mapedFileSizeCommitLog": 65536,
    "mapedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 1000,
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxMessageSize": 32768,
}
QUEUES = 2
HOST = hosts.pack("127.0.0.1:10911")
SEND, PULL, QUERY, QUERY_OFFSET, CREATE_TOPIC = 10, 11, 12, 14, 17
LIMIT_S = 30
REST_S = 0.2


def settings(store: Path) -> StoreSettings:
    return StoreSettings(
        store,
        commit_log_file_size=65536,
        consume_queue_file_entries=100,
        index_slots=500,
        index_entries=1000,
        store_host=HOST,
    )


def body(number: int) -> bytes:
    return f"message {number} ".encode() * (1 + number % 40)


def properties(number: int) -> str:
    return f"KEYS\x01key-{number} all\x02UNIQ_KEY\x01U{number:031d}\x02TAGS\x01{'ab'[number % 2]}\x02"


def send_to_apache(port: int, numbers: range) -> None:
    with Wire(port) as wire:
        assert wire.ask(CREATE_TOPIC, _topic()).code == 0
        for number in numbers:
            reply = wire.ask(SEND, _message(number), body(number))
            assert reply.code == 0, reply.remark


def append_to_ours(store: MessageStore, numbers: range) -> None:
    for number in numbers:
        store.append(Entry("Exchange", number % QUEUES, body(number), Properties(properties(number)), 1, HOST))


def ours(store: MessageStore) -> dict[int, list[StoredMessage]]:
    """All messages of the topic as our store reads them, by queue."""
    found: dict[int, list[StoredMessage]] = {}
    for queue_id in range(QUEUES):
        queue, messages = store.queues.get("Exchange", queue_id), []
        assert queue is not None
        offset = queue.min_offset
        while offset < queue.max_offset:
            read = store.read("Exchange", queue_id, offset, 32)
            messages += [record.decode(each) for view in read.views for each in record.walk(view)]
            offset = read.next_offset
        found[queue_id] = messages
    return found


def apaches(port: int) -> dict[int, list[StoredMessage]]:
    """The same as Apache serves them."""
    found: dict[int, list[StoredMessage]] = {}
    with Wire(port) as wire:
        for queue_id in range(QUEUES):
            messages: list[StoredMessage] = []
            while (reply := wire.ask(PULL, _pull(queue_id, len(messages)))).code == 0:
                messages += [record.decode(each) for each in record.walk(reply.body)]
            assert reply.code == 19, reply.remark  # nothing new
            found[queue_id] = messages
    return found


def wait_for_index(port: int, folder: Path, newest: bytes) -> None:
    """Return when Apache's index has its newest message, and rests: it is made after the answers."""
    deadline, seen = time.monotonic() + LIMIT_S, b""
    with Wire(port) as wire:
        while True:
            reply, before = wire.ask(QUERY, _query("all", 1)), seen
            seen = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
            found = [record.decode(each).body for each in record.walk(reply.body)]
            if found == [newest] and seen == before:
                return
            assert time.monotonic() < deadline, reply.remark
            time.sleep(REST_S)


def expected(numbers: range) -> dict[int, list[bytes]]:
    return {queue_id: [body(number) for number in numbers if number % QUEUES == queue_id] for queue_id in range(QUEUES)}


def bodies(messages: dict[int, list[StoredMessage]]) -> dict[int, list[bytes]]:
    return {queue_id: [message.body for message in found] for queue_id, found in messages.items()}


@pytest.mark.parametrize("version", ["4.9.7", pytest.param("5.4.0", marks=pytest.mark.nightly)])
def test_a_store_goes_from_apache_to_ours_and_back_and_back_again(version, tmp_path):
    folder = tmp_path / "store"
    with ApacheNamesrv(version) as namesrv:
        with ApacheBroker(version, namesrv.address, folder, CONF) as broker:
            send_to_apache(broker.port, range(300))
            theirs = apaches(broker.port)
        assert list(verify(settings(folder))) == []
        with MessageStore.open(settings(folder)) as store:
            assert ours(store) == theirs
            assert bodies(theirs) == expected(range(300))
            assert [record.decode(each).body for each in store.query("Exchange", "key-77", 9, 0, 1 << 62)] == [body(77)]
            assert len(store.query("Exchange", "all", 64, 0, 1 << 62)) == 64
            append_to_ours(store, range(300, 600))
        assert list(verify(settings(folder))) == []
        with ApacheBroker(version, namesrv.address, folder, CONF) as broker:
            assert bodies(apaches(broker.port)) == expected(range(600))
            with Wire(broker.port) as wire:
                for number in (77, 577):
                    reply = wire.ask(QUERY, _query(f"key-{number}"))
                    assert [record.decode(each).body for each in record.walk(reply.body)] == [body(number)]
            send_to_apache(broker.port, range(600, 700))
            broker.kill()  # once in order is enough: it takes nine seconds
        with MessageStore.open(settings(folder)) as store:
            assert bodies(ours(store)) == expected(range(700))
        assert list(verify(settings(folder))) == []


@pytest.mark.nightly  # tests/store reads what a killed one left (tests/golden/stores)
def test_what_a_killed_apache_left_is_recovered_and_what_ours_left_too(tmp_path):
    folder = tmp_path / "store"
    with ApacheNamesrv("4.9.7") as namesrv:
        with ApacheBroker("4.9.7", namesrv.address, folder, CONF) as broker:
            send_to_apache(broker.port, range(300))
            broker.kill()
        assert (folder / "abort").exists()
        store = MessageStore.open(settings(folder))
        assert bodies(ours(store)) == expected(range(300))
        append_to_ours(store, range(300, 500))
        store.publish()
        leave = tmp_path / "left"
        shutil.copytree(folder, leave)  # as a kill leaves it: not closed, with its abort file
        store.close()
        with ApacheBroker("4.9.7", namesrv.address, leave, CONF) as broker:
            assert bodies(apaches(broker.port)) == expected(range(500))
    for path in (folder, leave):
        with MessageStore.open(settings(path)) as store:
            assert bodies(ours(store)) == expected(range(500))
        assert list(verify(settings(path))) == []


@pytest.mark.nightly  # tests/cli/store/test_log_copy.py asks a broker of ours
def test_damaged_records_are_taken_from_an_apache_that_has_the_same_log(tmp_path):
    folder, theirs = tmp_path / "store", tmp_path / "theirs"
    with MessageStore.open(settings(folder)) as store:
        append_to_ours(store, range(300))
        store.publish()
        places = [record.physical_offset(each) for each in store._log.walk(store.begin, store.end)]
    shutil.copytree(folder, theirs)
    for number in (0, 77, 78, 299):
        path = folder / "commitlog" / f"{places[number] // 65536 * 65536:020d}"
        content = bytearray(path.read_bytes())
        content[places[number] % 65536 + 60] ^= 1
        path.write_bytes(content)
    with (
        ApacheNamesrv("4.9.7") as namesrv,
        ApacheBroker("4.9.7", namesrv.address, theirs, CONF) as broker,
        LogCopy(f"127.0.0.1:{broker.port}") as copy,
    ):
        replaced = repair(settings(folder), Disk(), copy)
        broker.kill()
    assert (replaced.count, replaced.remaining_damage) == (4, [])
    assert list(verify(settings(folder))) == []
    with MessageStore.open(settings(folder)) as store:
        assert bodies(ours(store)) == expected(range(300))


@pytest.mark.covers("S-STORE-01", "S-STORE-03", "S-STORE-04", "S-STORE-05")
def test_queues_and_index_that_ours_makes_from_apaches_log_are_apaches_byte_for_byte(tmp_path):
    folder = tmp_path / "store"
    with ApacheNamesrv("4.9.7") as namesrv, ApacheBroker("4.9.7", namesrv.address, folder, CONF) as broker:
        send_to_apache(broker.port, range(400))
        wait_for_index(broker.port, folder / "index", body(399))
        broker.kill()  # what it mapped is in its files; to stop in order takes it nine seconds
    again = tmp_path / "again"
    shutil.copytree(folder / "commitlog", again / "commitlog")
    MessageStore.open(settings(again)).close()
    queues = sorted(path.relative_to(folder) for path in (folder / "consumequeue" / "Exchange").rglob("?" * 20))
    assert len(queues) == 2 * QUEUES
    for path in queues:
        assert (again / path).read_bytes() == (folder / path).read_bytes(), path
    theirs, made = sorted((folder / "index").iterdir()), sorted((again / "index").iterdir())
    assert len(theirs) == len(made) == 2  # 400 messages with three keys each
    for path, copy in zip(theirs, made, strict=True):
        assert copy.read_bytes() == path.read_bytes(), path.name


@pytest.mark.nightly
@pytest.mark.parametrize("version", ["4.9.7", "5.4.0"])
def test_apache_reads_small_files_that_end_with_our_checksum(version, tmp_path):
    folder = tmp_path / "store"
    snapshot.save(folder / "config" / "consumerOffset.json", {"offsetTable": {"Exchange@readers": {"0": 7}}})
    asked = {"consumerGroup": "readers", "topic": "Exchange", "queueId": 0}
    with ApacheNamesrv(version) as namesrv, ApacheBroker(version, namesrv.address, folder, CONF) as broker:
        with Wire(broker.port) as wire:
            assert wire.ask(CREATE_TOPIC, _topic()).code == 0
            reply = wire.ask(QUERY_OFFSET, asked)
        broker.kill()
    assert (reply.code, reply.fields["offset"]) == (0, "7")


def _topic() -> dict[str, object]:
    return {
        "topic": "Exchange",
        "defaultTopic": "TBW102",
        "readQueueNums": QUEUES,
        "writeQueueNums": QUEUES,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
    }


def _message(number: int) -> dict[str, object]:
    return {
        "producerGroup": "P",
        "topic": "Exchange",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": QUEUES,
        "queueId": number % QUEUES,
        "sysFlag": 0,
        "bornTimestamp": 1,
        "flag": 0,
        "properties": properties(number),
        "reconsumeTimes": 0,
        "unitMode": "false",
        "batch": "false",
    }


def _pull(queue_id: int, offset: int) -> dict[str, object]:
    return {
        "consumerGroup": "C",
        "topic": "Exchange",
        "queueId": queue_id,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }


def _query(key: str, most: int = 9) -> dict[str, object]:
    return {"topic": "Exchange", "key": key, "maxNum": most, "beginTimestamp": 0, "endTimestamp": 1 << 62}
