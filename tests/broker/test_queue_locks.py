import pytest

from sparrowmq.broker.change_log import Holder
from sparrowmq.broker.queue_locks import LOCK_LIFE_S, TRUSTED_S, Holders, QueueLocks, take_holders
from sparrowmq.testing.clock import ManualClock

QUEUES = [("g", "Orders", queue_id) for queue_id in range(4)]


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def locks(clock):
    return QueueLocks(clock)


def lock(locks, client_id, queues=QUEUES):
    """The queues of these that the client holds then."""
    return [queue for queue in queues if locks.lock(queue, client_id)]


def changes(locks):
    return [each for piece in locks.take_changes() for each in piece]


def test_a_queue_has_one_holder(locks):
    assert lock(locks, "one", QUEUES[:2]) == QUEUES[:2]
    assert lock(locks, "two") == QUEUES[2:]


def test_a_client_may_lock_again_what_it_holds(locks):
    lock(locks, "one")
    assert lock(locks, "one") == QUEUES


def test_groups_do_not_hinder_each_other(locks):
    lock(locks, "one")
    assert locks.lock(("h", "Orders", 0), "two")


async def test_a_lock_that_is_not_repeated_is_free_after_a_minute(locks, clock):
    lock(locks, "one")
    await clock.advance(LOCK_LIFE_S - 1)
    assert lock(locks, "two") == []
    await clock.advance(1)
    assert locks.holder(QUEUES[0]) is None
    assert lock(locks, "two") == QUEUES


async def test_locking_again_starts_the_minute_anew(locks, clock):
    lock(locks, "one")
    await clock.advance(40)
    lock(locks, "one", QUEUES[:1])
    await clock.advance(40)
    assert lock(locks, "two", QUEUES[:2]) == QUEUES[1:2]


async def test_a_pause_of_the_broker_expires_no_lock(locks, clock):
    lock(locks, "one", QUEUES[:1])
    await clock.pause(90)
    assert lock(locks, "two", QUEUES[:1]) == []
    locks.forget_expired()
    assert locks.holder(QUEUES[0]) == "one"


def test_unlocking_frees_at_once_but_only_ones_own(locks):
    lock(locks, "one", QUEUES[:1])
    locks.unlock(QUEUES[0], "two")
    assert locks.holder(QUEUES[0]) == "one"
    locks.unlock(QUEUES[0], "one")
    assert lock(locks, "two", QUEUES[:1]) == QUEUES[:1]


def test_unlocking_for_a_group_that_never_locked_does_nothing(locks):
    locks.unlock(("nobody", "Orders", 0), "one")


async def test_expired_locks_take_no_memory(locks, clock):
    lock(locks, "one", QUEUES[:1])
    await clock.advance(30)
    locks.lock(("h", "Orders", 0), "one")
    await clock.advance(30)
    locks.forget_expired()
    assert list(locks._locks) == [("h", "Orders", 0)]


# The journal --------------------------------------------------------------------------------------------------------


@pytest.fixture
def logged(locks):
    locks.is_logged = True
    return locks


def test_each_new_holder_is_a_change_and_a_renewal_is_none(logged):
    lock(logged, "one", QUEUES[:2])
    assert changes(logged) == [Holder(*queue, "one") for queue in QUEUES[:2]]
    lock(logged, "one", QUEUES[:2])
    logged.unlock(QUEUES[0], "two")
    assert changes(logged) == []
    logged.unlock(QUEUES[0], "one")
    assert changes(logged) == [Holder(*QUEUES[0])]


async def test_an_expired_lock_is_a_change_when_another_client_gets_it_or_the_chore_drops_it(logged, clock):
    lock(logged, "one", QUEUES[:2])
    changes(logged)
    await clock.advance(LOCK_LIFE_S)
    lock(logged, "two", QUEUES[:1])
    assert changes(logged) == [Holder(*QUEUES[0], "two")]
    logged.forget_expired()
    assert changes(logged) == [Holder(*QUEUES[1])]


def test_without_a_journal_no_change_is_kept(locks):
    lock(locks, "one")
    locks.unlock(QUEUES[0], "one")
    assert changes(locks) == []


def test_many_changes_are_several_records(logged):
    queues = [("g", "Orders", queue_id) for queue_id in range(450)]
    lock(logged, "one", queues)
    assert [len(piece) for piece in logged.take_changes()] == [200, 200, 50]
    assert [len(piece) for piece in logged.snapshot()] == [200, 200, 50]


def test_records_make_the_holders():
    holders: Holders = {}
    take_holders(holders, [Holder(*QUEUES[0], "one"), Holder(*QUEUES[1], "two")])
    take_holders(holders, [Holder(*QUEUES[0]), Holder(*QUEUES[2])])
    assert holders == {QUEUES[1]: "two"}


async def test_holders_keep_their_queues_over_a_start_as_long_as_they_trust_their_locks(clock):
    after = QueueLocks(clock, {QUEUES[0]: "one", QUEUES[1]: "one"})
    assert lock(after, "two", QUEUES[:3]) == QUEUES[2:3]
    await clock.advance(TRUSTED_S)
    assert after.holder(QUEUES[0]) is None
    assert lock(after, "two", QUEUES[:1]) == QUEUES[:1]


async def test_a_holder_that_repeats_its_lock_after_a_start_keeps_it(clock):
    after = QueueLocks(clock, dict.fromkeys(QUEUES, "one"))
    await clock.advance(20)
    lock(after, "one")
    await clock.advance(LOCK_LIFE_S - 1)
    assert lock(after, "two") == []
