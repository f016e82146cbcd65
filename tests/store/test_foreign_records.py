"""What an Apache broker stored behind a store of ours stays, whatever our checkpoint and the abort file say."""

from pathlib import Path

import pytest

from sparrowmq.errors import CorruptRecord
from sparrowmq.protocol.messages import record as records
from sparrowmq.protocol.messages.entry import Entry, Placed
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.store.store_settings import CorruptPolicy
from tests.store.stores import HOST, Stores, bodies, put
from tests.store.test_recovery import FIVE, fill, log_file, overwrite


def as_java(offset: int, queue_offset: int, text: bytes, properties: str = "") -> bytes:
    """A record as 4.9 makes them: with a CRC of its body alone."""
    entry = Entry("Orders", 0, text, Properties(properties), 1, HOST)
    return records.encode(entry, Placed(offset, queue_offset, 1 << 41, HOST), False)


def test_what_somebody_stored_behind_a_store_closed_in_order_stays(stores: Stores, caplog):
    """As an Apache broker does that has the same log, and its abort file and its checkpoint in another folder."""
    store = stores.open()
    offsets = fill(store)
    store.close()
    first = as_java(offsets[5], 5, b"from Apache")
    second = as_java(offsets[5] + len(first), 6, b"from Apache again")
    overwrite(log_file(store), offsets[5], first + second)
    store = stores.open()
    assert bodies(store) == [*FIVE, b"from Apache", b"from Apache again"]
    assert store.end == offsets[5] + len(first + second)
    assert "another broker appended to the log at offset" in caplog.text
    assert put(store)[1] == 7


def test_what_is_torn_behind_a_store_closed_in_order_is_kept_before_it_is_cut(stores: Stores):
    store = stores.open()
    offsets = fill(store)
    store.close()
    torn = as_java(offsets[5], 5, b"from Apache")[:-8]
    overwrite(log_file(store), offsets[5], torn)
    store = stores.open()
    assert bodies(store) == FIVE and store.end == offsets[5]
    (saved,) = Path(store.settings.layout.set_aside).iterdir()
    assert saved.read_bytes() == torn
    assert not any(log_file(store).read_bytes()[offsets[5] :])


def with_copy_of_java(stores: Stores, killed: bool, last: bytes) -> None:
    """A store behind which Java stored a delayed message of ours, with the CRC property of the first record.

    Args:
        last: the content of the lock file, which names the last broker.
    """
    store = stores.open()
    offsets = fill(store)
    stores.crash(store) if killed else store.close()
    copy = as_java(offsets[5], 5, b"a copy", "KEYS\x01a\x02__CRC32#\x010123456789\x02")
    assert records.check(copy) == "its CRC does not fit its bytes"
    overwrite(log_file(store), offsets[5], copy)
    lock = Path(store.settings.layout.lock)
    assert lock.read_bytes() == b"ours"
    lock.write_bytes(last)  # as each start of Java's broker does


@pytest.mark.parametrize("killed", [False, True])
def test_a_copy_that_java_made_of_our_message_is_no_damage(stores: Stores, killed: bool):
    with_copy_of_java(stores, killed, b"lock")
    store = stores.open()
    assert bodies(store) == [*FIVE, b"a copy"]
    assert Path(store.settings.layout.lock).read_bytes() == b"ours"


def test_a_wrong_crc_behind_a_store_that_we_closed_is_cut(stores: Stores):
    with_copy_of_java(stores, False, b"ours")
    assert bodies(stores.open()) == FIVE


def test_a_wrong_crc_in_a_store_that_we_left_is_damage(stores: Stores):
    with_copy_of_java(stores, True, b"ours")
    with pytest.raises(CorruptRecord):
        stores.open()
    assert bodies(stores.open(corrupt_policy=CorruptPolicy.QUARANTINE)) == FIVE
