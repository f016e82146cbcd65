"""sparrowmq.broker.saved_state: a start reads the records of a queue in their order."""

from types import SimpleNamespace
from typing import Any

import pytest

from sparrowmq.broker.saved_state import records_from
from sparrowmq.errors import BadStore
from sparrowmq.protocol.messages import record
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.store_settings import StoreSettings
from tests.store.stores import put


def test_the_records_of_a_queue_come_from_an_offset_on_to_its_end(tmp_path):
    settings = StoreSettings(tmp_path, commit_log_file_size=1 << 16, consume_queue_file_entries=16)
    with MessageStore.open(settings) as store:
        for number in range(700):
            put(store, b"%d" % number, topic="Own")
            put(store, b"of another queue", topic="Other")
        store.publish()

        def bodies(offset):
            return [int(record.decode(each).body) for each in records_from(store, "Own", 0, offset)]

        assert bodies(0) == list(range(700))
        assert bodies(699) == [699]
        assert bodies(700) == []
        assert list(records_from(store, "Absent", 0, 0)) == []


@pytest.mark.timeout(10)
def test_a_read_that_does_not_advance_ends_the_start():
    queue = SimpleNamespace(min_offset=0, max_offset=1)
    stuck: Any = SimpleNamespace(
        queues=SimpleNamespace(get=lambda *_: queue), read=lambda *_: SimpleNamespace(next_offset=0, views=[])
    )
    with pytest.raises(BadStore, match=r"Own\[0\] cannot be read at offset 0"):
        list(records_from(stuck, "Own", 0, 0))
