"""Stores that Apache's brokers wrote (tests/golden/README.md) open here, and hold what was put into them."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from sparrowmq.errors import CorruptRecord
from sparrowmq.kernel.record_layout import MAGIC_BLANK, MAGIC_V2
from sparrowmq.protocol.messages import record as records
from sparrowmq.protocol.messages.message import StoredMessage
from sparrowmq.store.care.check import verify
from sparrowmq.store.checkpoint import load
from sparrowmq.store.layout import BLANK, ENTRY, SECTOR
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import CorruptPolicy, StoreSettings
from sparrowmq.store.vfs import Disk
from tests.golden import STORES
from tests.golden.stores import LONG_TOPIC
from tests.store.stores import bodies, messages, put

ALL = ["4.9.7", "4.9.7-killed", "5.4.0", "5.4.0-crc"]
COUNTED = [b"%03d " % number * 32 for number in range(20)]
FOREVER = (64, 0, 1 << 60)


@pytest.fixture(params=ALL)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def settings(version: str, tmp_path: Path) -> StoreSettings:
    """A copy of the store, and the sizes of its files."""
    shutil.copytree(STORES / version, tmp_path / "store")
    return StoreSettings(
        tmp_path / "store",
        commit_log_file_size=8192,
        consume_queue_file_entries=8,
        index_slots=64,
        index_entries=256,
    )


def sent(version: str) -> dict[tuple[str, int], list[bytes]]:
    """What tests/golden/stores.py sent to each queue, and what the broker made of it."""
    is_5 = version.startswith("5")
    queues = {
        ("StoreTopic", 0): [b"plain", "中文".encode(), b"half", *COUNTED[0::2]],
        ("StoreTopic", 1): [] if is_5 else [b""],
        ("SCHEDULE_TOPIC_XXXX", 2): [b"delayed"],
        ("RMQ_SYS_TRANS_HALF_TOPIC", 0): [b"half"],
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0): [b"0," if is_5 else b"0"],
    }
    queues["StoreTopic", 1] += COUNTED[1::2]
    if is_5:
        queues["StoreTopic", 0].append(b"delayed")
    if version == "5.4.0":
        queues[LONG_TOPIC, 0] = [b"a long topic"]
    return queues


def found(store: MessageStore) -> dict[tuple[str, int], list[bytes]]:
    return {(queue.topic, queue.queue_id): bodies(store, queue.topic, queue.queue_id) for queue in store.queues}


def queried(store: MessageStore, key: str) -> list[StoredMessage]:
    return [records.decode(record) for record in store.query("StoreTopic", key, *FOREVER)]


def test_a_java_store_is_sound_before_we_touch_it(settings: StoreSettings):
    assert list(verify(settings)) == []


@pytest.mark.covers("S-STORE-03")
def test_a_java_store_opens_with_all_that_was_sent(settings: StoreSettings, version: str):
    with MessageStore.open(settings) as store:
        assert found(store) == sent(version)
    assert list(verify(settings)) == []


def test_tags_keys_and_properties_beyond_ascii_are_read(settings: StoreSettings):
    with MessageStore.open(settings) as store:
        first, second = messages(store.read("StoreTopic", 0, 0, 2))
        assert (first.tags, first.keys, first.properties["colour"]) == ("TagA", ["key-1", "key-2"], "blue")
        assert (second.tags, second.keys) == ("标签", ["键"])
        assert first.unique_key == f"7F000001{1:024X}"


@pytest.mark.covers("S-STORE-05", "S-STORE-06")
def test_the_index_that_java_wrote_is_searched(settings: StoreSettings):
    with MessageStore.open(settings) as store:
        for key in ("key-1", "key-2", f"7F000001{1:024X}"):
            assert [message.body for message in queried(store, key)] == [b"plain"]
        assert [message.body for message in queried(store, "键")] == ["中文".encode()]
        assert [message.body for message in queried(store, "many-7")] == [COUNTED[7]]
        assert queried(store, "many-77") == []


@pytest.mark.covers("S-DELAY-03")
def test_the_entry_of_a_delayed_message_tells_when_it_is_due(settings: StoreSettings):
    with MessageStore.open(settings) as store:
        queue = store.queues.get("SCHEDULE_TOPIC_XXXX", 2)
        stored_ms = store.store_time("SCHEDULE_TOPIC_XXXX", 2, 0)
        assert queue is not None and stored_ms is not None
        due_ms = ENTRY.unpack(Path(queue.paths[0]).read_bytes()[: ENTRY.size])[2]
        assert due_ms == stored_ms + 10_000  # the third level


@pytest.mark.parametrize("version", ["5.4.0"])
def test_a_record_of_version_2_holds_a_long_topic(settings: StoreSettings):
    with MessageStore.open(settings) as store:
        (record,) = store.read(LONG_TOPIC, 0, 0, 1).views
        assert int.from_bytes(record[4:8], signed=True) == MAGIC_V2
        assert records.decode(record).topic == LONG_TOPIC and len(LONG_TOPIC) == 147


@pytest.mark.parametrize("version", ["5.4.0", "5.4.0-crc"])
def test_a_file_of_java_ends_in_a_blank(settings: StoreSettings):
    with MessageStore.open(settings) as store:
        offset = 0
        while (record := store.record_at(offset)) is not None:
            offset += len(record)
        blank = (Path(settings.layout.commit_log) / f"{0:020d}").read_bytes()[offset : offset + BLANK.size]
        assert BLANK.unpack(blank) == (8192 - offset, MAGIC_BLANK)
        assert store.record_at(8192) is not None


def test_queues_made_anew_are_those_of_java_byte_for_byte(settings: StoreSettings):
    folder = Path(settings.layout.consume_queue)
    java = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("0*") if path.is_file()}
    shutil.rmtree(folder)
    MessageStore.open(settings).close()
    ours = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("0*") if path.is_file()}
    assert ours == java


@pytest.mark.covers("S-STORE-04")
@pytest.mark.parametrize("version", ["4.9.7"])
def test_an_index_made_anew_is_that_of_java_byte_for_byte(settings: StoreSettings):
    (path,) = Path(settings.layout.index).iterdir()
    java = path.read_bytes()
    path.unlink()
    MessageStore.open(settings).close()
    (path,) = Path(settings.layout.index).iterdir()
    assert path.read_bytes() == java


def test_we_go_on_where_java_stopped(settings: StoreSettings, version: str):
    with MessageStore.open(settings) as store:
        expected = sent(version)["StoreTopic", 0]
        assert put(store, b"ours", "StoreTopic", key="many-7")[1] == len(expected)
        store.publish()
        assert [message.body for message in queried(store, "many-7")] == [b"ours", COUNTED[7]]
    with MessageStore.open(settings) as store:
        assert bodies(store, "StoreTopic") == [*expected, b"ours"]
    assert list(verify(settings)) == []


def test_java_goes_on_and_we_read_it_again(settings: StoreSettings, version: str):
    """Java keeps its own part of the checkpoint; ours is void then, and the log is checked as Java checks it."""
    MessageStore.open(settings).close()
    checkpoint = Path(settings.layout.checkpoint)
    content = bytearray(checkpoint.read_bytes())
    content[:24] = b"".join((int.from_bytes(content[i : i + 8]) + 1).to_bytes(8) for i in (0, 8, 16))
    checkpoint.write_bytes(content)
    assert load(Disk(), settings.layout.checkpoint).positions is None
    with MessageStore.open(settings) as store:
        assert found(store) == sent(version)
    assert list(verify(settings)) == []


@pytest.mark.parametrize("version", ["5.4.0-crc"])
def test_the_crc_that_java_wrote_covers_the_whole_record(settings: StoreSettings):
    with MessageStore.open_to_read(settings) as store:
        read = store.read("StoreTopic", 0, 0, 32)
        for record in [bytes(record) for view in read.views for record in records.walk(view)]:
            assert records.check(record, needs_crc=True) is None
            damaged = record[:50] + bytes([record[50] ^ 1]) + record[51:]
            assert records.check(damaged) == "its CRC does not fit its bytes"


def damage_last_file(settings: StoreSettings) -> None:
    """Flip a bit in the body of the first record of the last file that is used."""
    last = max(path for path in Path(settings.layout.commit_log).iterdir() if any(path.read_bytes()))
    content = bytearray(last.read_bytes())
    content[90] ^= 1
    last.write_bytes(content)


@pytest.mark.parametrize(("version", "lost"), [("4.9.7", b"plain"), ("5.4.0", COUNTED[18]), ("5.4.0-crc", COUNTED[17])])
def test_damage_in_a_java_store_is_refused_or_fenced_off(settings: StoreSettings, version: str, lost: bytes):
    damage_last_file(settings)
    with pytest.raises(CorruptRecord, match="corruptPolicy=quarantine"):
        MessageStore.open(settings)
    expected = {key: [body for body in texts if body != lost] for key, texts in sent(version).items()}
    with MessageStore.open(replace(settings, corrupt_policy=CorruptPolicy.QUARANTINE)) as store:
        assert found(store) == expected
        bodies_by_key = [message.body for number in range(20) for message in queried(store, f"many-{number}")]
        assert bodies_by_key == [body for body in COUNTED if body != lost]
    with MessageStore.open(settings) as store:
        assert found(store) == expected
    assert list(verify(settings)) == []


@pytest.mark.parametrize("version", ["4.9.7-killed"])
def test_what_the_checkpoint_of_a_killed_java_broker_does_not_cover_is_a_torn_tail(settings: StoreSettings):
    path = Path(settings.layout.commit_log) / f"{0:020d}"
    content = path.read_bytes()
    path.write_bytes(content[:90] + bytes(SECTOR - 90) + content[SECTOR:])  # the disk has an older version of a sector
    with MessageStore.open(settings) as store:
        assert store.end == 0
    (saved,) = Path(settings.layout.set_aside).iterdir()
    assert saved.read_bytes()[SECTOR:] == content.rstrip(b"\0")[SECTOR:]
    assert list(verify(settings)) == []


@pytest.mark.parametrize("version", ["4.9.7-killed"])
def test_a_flipped_bit_in_the_tail_of_a_killed_java_broker_is_damage(settings: StoreSettings):
    damage_last_file(settings)
    with pytest.raises(CorruptRecord):
        MessageStore.open(settings)


@pytest.mark.parametrize("version", ["4.9.7-killed-behind-ours"])
@pytest.mark.parametrize("has_abort", [True, False])
def test_what_java_wrote_behind_our_checkpoint_is_kept_with_its_keys(settings: StoreSettings, has_abort: bool):
    """Java looks at the checkpoint a second after its start, and then once a minute: until then ours stays valid."""
    positions = load(Disk(), settings.layout.checkpoint).positions
    assert positions is not None and positions.crc_from == 0
    if not has_abort:  # it was deleted, or lies in another folder
        Path(settings.layout.abort).unlink()
    with MessageStore.open(settings) as store:
        assert found(store) == {
            ("StoreTopic", queue): [
                b"%s %d" % (who, number) for who in (b"ours", b"apache") for number in (queue, queue + 2)
            ]
            for queue in (0, 1)
        }
        for who in ("ours", "apache"):
            for number in range(4):
                (message,) = queried(store, f"{who}-{number}")
                assert message.body == f"{who} {number}".encode()
        put(store, b"ours again", "StoreTopic")
        end = store.end
    positions = load(Disk(), settings.layout.checkpoint).positions
    assert positions is not None and positions.crc_from < end
    assert list(verify(settings)) == []


@pytest.mark.parametrize("version", ["4.9.7-killed-behind-ours"])
@pytest.mark.parametrize("at", [30, 92, 100, 115, 190])
def test_what_is_torn_behind_our_checkpoint_is_no_message_of_java(settings: StoreSettings, at: int):
    """A sector that was not written is zero: in the head, the body, the topic or the properties of a record."""
    positions = load(Disk(), settings.layout.checkpoint).positions
    assert positions is not None
    log = Path(settings.layout.commit_log) / f"{0:020d}"
    content = bytearray(log.read_bytes())
    content[positions.flushed + at : positions.flushed + at + 8] = bytes(8)
    log.write_bytes(content)
    with MessageStore.open(settings) as store:
        assert store.end == positions.flushed
    assert list(verify(settings)) == []
