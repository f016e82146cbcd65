import asyncio

import pytest

from sparrowmq.loop.turn import Turn
from sparrowmq.store.appender import Appender
from sparrowmq.testing import ManualClock
from tests.store.stores import bodies, message, put, put_batch


def test_a_store_is_the_door_to_its_appender(stores):
    store = stores.open()
    put(store, b"taken")
    assert isinstance(store.appender, Appender) and store.appender.full_error is None
    store.appender.publish()
    assert bodies(store) == [b"taken"]


def test_all_messages_of_a_burst_carry_one_timestamp(stores):
    store = stores.open(clock=(clock := Steps([1000, 2000, 3000])))
    assert put(store)[3] == put(store)[3] == 1000
    store.publish()
    assert put(store)[3] == 2000
    store.publish()
    assert [each[3] for each in put_batch(store, message(), message())] == [3000, 3000]
    assert clock.steps == []


class Steps(ManualClock):
    """A clock that shows one time after the other, and stays at the last one."""

    def __init__(self, steps):
        super().__init__()
        self.steps = list(steps)
        self._shown = 0

    def now_ms(self):
        if self.steps:
            self._shown = self.steps.pop(0)
        return self._shown


def test_store_timestamps_do_not_go_back_when_the_clock_does(stores):
    store = stores.open(clock=Steps([5000, 1000, 6000]))
    stored = []
    for _ in range(3):
        stored.append(put(store)[3])
        store.publish()
    assert stored == [5000, 5000, 6000]


@pytest.mark.parametrize("leave", ["close", "crash"])
def test_store_timestamps_do_not_go_back_when_the_clock_did_while_the_store_was_closed(stores, leave):
    store = stores.open(clock=ManualClock(now_ms=5000))
    put(store)
    store.close() if leave == "close" else stores.crash(store)
    assert put(stores.open(clock=ManualClock(now_ms=1000)))[3] == 5000


async def test_many_pieces_of_a_masters_log_are_one_burst(stores, tmp_path):
    master = stores.open()
    for number in range(30):
        put(master, b"%d" % number)
    slave = stores.open(path=tmp_path / "slave", clock=(clock := Steps(range(1000, 3000))))
    slave.appender.turn = Turn()
    while slave.end < master.end:
        left = len(clock.steps)
        for _ in range(3):
            slave.follow(slave.end, master.log_bytes(slave.end, 333) or b"")
        assert len(clock.steps) == left - 1  # a burst begins with one look at the clock
        await asyncio.sleep(0)
    assert bodies(slave) == bodies(master)
