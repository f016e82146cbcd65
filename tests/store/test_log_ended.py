"""A log that is ended takes nothing, until it continues."""

import pytest

from sparrowmq.errors import DiskFull
from sparrowmq.store.appender import LogEnded
from tests.store.stores import bodies, put

WHY = LogEnded("the lead is handed over")


def test_an_ended_log_takes_no_record_until_it_continues(stores):
    store = stores.open()
    put(store, b"before")
    end = store.end
    store.appender.end_log(WHY)
    for _ in range(2):
        with pytest.raises(LogEnded, match="handed over"):
            put(store, b"late")
    assert not store.appender.try_again_if_due()
    assert store.end == end and store.appender.full_error is WHY
    store.appender.continue_log()
    assert store.appender.full_error is None
    put(store, b"after")
    store.publish()
    assert bodies(store) == [b"before", b"after"]


def test_a_full_disk_does_not_end_because_a_handover_fails(stores):
    store = stores.open()
    store.appender.stall(DiskFull("no room"), pause_s=60)
    store.appender.continue_log()
    with pytest.raises(DiskFull, match="no room"):
        put(store, b"x")
