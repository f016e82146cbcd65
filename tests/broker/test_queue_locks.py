import pytest

from sparrowmq.broker.queue_locks import LOCK_LIFE_S, TRUSTED_S, QueueLocks
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.testing.clock import ManualClock

QUEUES = [MessageQueue("Orders", "broker-a", queue_id) for queue_id in range(4)]


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def locks(clock):
    return QueueLocks(clock)


def test_only_what_was_locked_is_answered(locks):
    assert locks.lock("g", "one", QUEUES[:2]) == QUEUES[:2]
    assert locks.lock("g", "two", QUEUES) == QUEUES[2:]


def test_a_client_may_lock_again_what_it_holds(locks):
    locks.lock("g", "one", QUEUES)
    assert locks.lock("g", "one", QUEUES) == QUEUES


def test_groups_do_not_hinder_each_other(locks):
    locks.lock("g", "one", QUEUES)
    assert locks.lock("h", "two", QUEUES) == QUEUES


async def test_a_lock_that_is_not_repeated_is_free_after_a_minute(locks, clock):
    locks.lock("g", "one", QUEUES)
    await clock.advance(LOCK_LIFE_S - 1)
    assert locks.lock("g", "two", QUEUES) == []
    await clock.advance(1)
    assert locks.holder("g", QUEUES[0]) is None
    assert locks.lock("g", "two", QUEUES) == QUEUES


async def test_locking_again_starts_the_minute_anew(locks, clock):
    locks.lock("g", "one", QUEUES)
    await clock.advance(40)
    locks.lock("g", "one", QUEUES[:1])
    await clock.advance(40)
    assert locks.lock("g", "two", QUEUES[:2]) == QUEUES[1:2]


async def test_a_pause_of_the_broker_expires_no_lock(locks, clock):
    locks.lock("g", "one", QUEUES[:1])
    await clock.pause(90)
    assert locks.lock("g", "two", QUEUES[:1]) == []
    locks.forget_expired()
    assert locks.holder("g", QUEUES[0]) == "one"


def test_unlocking_frees_at_once_but_only_ones_own(locks):
    locks.lock("g", "one", QUEUES[:1])
    locks.unlock("g", "two", QUEUES)
    assert locks.holder("g", QUEUES[0]) == "one"
    locks.unlock("g", "one", QUEUES)
    assert locks.lock("g", "two", QUEUES) == QUEUES


def test_unlocking_for_a_group_that_never_locked_does_nothing(locks):
    locks.unlock("nobody", "one", QUEUES)


@pytest.mark.guards("QueueLocks.forget_expired: drop not locks")
async def test_expired_locks_take_no_memory(locks, clock):
    locks.lock("g", "one", QUEUES[:1])
    await clock.advance(30)
    locks.lock("h", "one", QUEUES[:1])
    await clock.advance(30)
    locks.forget_expired()
    assert list(locks._groups) == ["h"]


# A broker that starts again -----------------------------------------------------------------------------------------


@pytest.mark.guards("queue_locks.QueueLocks.__init__: drop self._restore")
@pytest.mark.guards("QueueLocks.save: drop written.replace")
async def test_holders_keep_their_queues_over_a_restart_as_long_as_they_trust_their_locks(tmp_path, clock):
    folder = tmp_path / "config"
    before = QueueLocks(clock, folder)
    before.lock("g", "one", QUEUES[:2])
    before.lock("h", "two", QUEUES[:1])
    before.save()
    before.unlock("h", "two", QUEUES)
    before.save()
    after = QueueLocks(clock, folder)
    assert after.lock("g", "two", QUEUES[:3]) == QUEUES[2:3]
    assert after.lock("h", "one", QUEUES[:1]) == QUEUES[:1], "it was free"
    await clock.advance(TRUSTED_S)
    assert after.holder("g", QUEUES[0]) is None
    assert after.lock("g", "two", QUEUES[:1]) == QUEUES[:1]


async def test_a_holder_that_repeats_its_lock_after_a_restart_keeps_it(tmp_path, clock):
    before = QueueLocks(clock, tmp_path)
    before.lock("g", "one", QUEUES)
    before.save()
    after = QueueLocks(clock, tmp_path)
    await clock.advance(20)
    after.lock("g", "one", QUEUES)
    await clock.advance(LOCK_LIFE_S - 1)
    assert after.lock("g", "two", QUEUES) == []


def test_a_repeated_lock_writes_nothing(tmp_path, clock):
    locks = QueueLocks(clock, tmp_path)
    locks.lock("g", "one", QUEUES)
    locks.save()
    (tmp_path / "queueLocks.json").unlink()
    locks.lock("g", "one", QUEUES)
    locks.save()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{", b"\0" * 50, b'{"locks": 5}'])
def test_a_damaged_file_frees_all_queues(tmp_path, clock, caplog, content):
    (tmp_path / "queueLocks.json").write_bytes(content)
    locks = QueueLocks(clock, tmp_path)
    assert locks.lock("g", "one", QUEUES) == QUEUES
    assert "so all queues are unlocked" in caplog.text


def test_a_folder_that_cannot_be_written_hinders_no_lock(tmp_path, clock, caplog):
    (tmp_path / "config").write_text("no folder")
    locks = QueueLocks(clock, tmp_path / "config")
    assert locks.lock("g", "one", QUEUES) == QUEUES
    locks.save()
    assert "cannot be saved" in caplog.text
