"""Who is waited for is never fewer than who can be elected: the account of a master, on a clock turned by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec import structs

from sparrowmq.broker.failover.group_state import GroupState, with_in_sync
from sparrowmq.broker.failover.in_sync import NEAR_BYTES, SETTLE_S, InSync
from sparrowmq.errors import EtcdFailed, NoSlaveNear
from sparrowmq.testing import ManualClock

CATCH_UP_S = 15.0


class Told:
    """What etcd was told, and what it answers.

    "yes", "failed", "lost" where it did as it was asked and nobody heard, or "no" where somebody else is the master.
    """

    def __init__(self, *in_sync: int) -> None:
        self.state = GroupState(epoch=3, line="a", leader=1, in_sync=in_sync, begins=((3, 0),))
        self.answer = "yes"
        self.count = 0
        self.wait: asyncio.Event | None = None

    @property
    def members(self) -> list[int]:
        return list(self.state.in_sync)

    async def commit(self, wanted: GroupState) -> GroupState | None:
        self.count += 1
        if self.wait is not None:
            await self.wait.wait()
        if self.answer == "failed":
            raise EtcdFailed("no answer")
        if self.answer == "no":
            return None
        self.state = wanted
        if self.answer == "lost":
            raise EtcdFailed("no answer")
        return wanted


@asynccontextmanager
async def account(
    told: Told, clock: ManualClock, lease_s: float = 1000, expected: frozenset[int] | None = None
) -> AsyncIterator[InSync]:
    """Run the account; by default all members in sync are expected."""
    expected = frozenset(told.members) if expected is None else expected
    holds = lambda: not clock.monotonic() > lease_s  # noqa: E731
    found = InSync(1, told.state, told.commit, clock, CATCH_UP_S, holds, expected)
    task = asyncio.ensure_future(found.run())
    yield found
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_slave_is_in_sync_once_it_has_what_the_master_had_when_it_came_near():
    told, clock = Told(1), ManualClock()
    async with account(told, clock) as found:
        found.shipped.advance(1000)
        found.note_report(2, 400)
        await settle()
        assert told.members == [1]
        found.shipped.advance(5000)
        found.note_report(2, 999)
        await settle()
        assert told.members == [1]
        found.note_report(2, 1000)
        await settle()
        assert told.members == [1, 2] and found.members == {1, 2}
        assert found.replicated.value == 1000


async def test_a_slave_that_comes_near_must_reach_what_was_shown_or_answered_before_it_was_on_disk():
    told, clock = Told(1), ManualClock()
    async with account(told, clock) as found:
        found.log_end = lambda: 1200
        found.shipped.advance(1000)
        assert found.is_alone
        found.note_report(2, 1000)
        await settle()
        assert told.members == [1] and not found.is_alone
        found.shipped.advance(1200)
        found.note_report(2, 1200)
        await settle()
        assert told.members == [1, 2] and not found.is_alone


async def test_who_comes_near_is_waited_for_before_etcd_knows_it():
    told, clock = Told(1, 2), ManualClock()
    async with account(told, clock) as found:
        found.shipped.advance(100)
        found.note_report(2, 100)
        assert found.replicated.value == 100
        found.note_report(3, 50)
        await settle()
        found.shipped.advance(300)
        found.note_report(2, 300)
        assert found.replicated.value == 100  # the third may be elected a moment later, and has only 50
        told.wait = asyncio.Event()
        found.note_report(3, 200)
        await settle()
        assert (found.replicated.value, found.members) == (200, {1, 2})
        told.wait.set()
        await settle()
        assert found.members == {1, 2, 3}


async def test_consumers_see_what_the_next_master_has_whoever_it_is() -> None:
    told, clock, risen = Told(1), ManualClock(), list[int]()
    async with account(told, clock) as found:
        found.on_advance = lambda: risen.append(found.visible_end())
        found.shipped.advance(1000)
        assert found.visible_end() == 1000  # no other one can be elected, and it has that on disk
        found.note_report(2, 400)
        await settle()
        assert found.visible_end() == 400  # though it is not in sync yet
        found.note_report(2, 1000)
        await settle()
        assert (found.members, found.visible_end(), risen[-1]) == ({1, 2}, 1000, 1000)
        told.answer = "failed"
        found.note_disconnected(2)
        await settle()
        assert found.visible_end() == 0  # nothing more, for as long as etcd takes it for one that can be
        told.answer = "yes"
        await clock.advance(1)
        assert found.visible_end() == risen[-1] == 1000


async def test_alone_in_sync_it_shows_what_is_on_disk_as_a_power_cut_takes_the_rest() -> None:
    told, clock, risen = Told(1), ManualClock(), list[int]()
    async with account(told, clock) as found:
        found.on_advance = lambda: risen.append(found.visible_end())
        found.log_end = lambda: 700
        found.shipped.advance(500)
        assert found.visible_end() == found.visible_end() == 500
        found.shipped.advance(700)
        await settle()
        assert risen == [700]


async def test_a_slave_that_is_far_behind_is_not_waited_for():
    told, clock = Told(1, 2), ManualClock()
    async with account(told, clock) as found:
        found.shipped.advance(2 * NEAR_BYTES)
        found.note_report(2, 2 * NEAR_BYTES)
        found.note_report(3, NEAR_BYTES - 1)
        await settle()
        found.shipped.advance(2 * NEAR_BYTES + 1)
        found.note_report(2, 2 * NEAR_BYTES + 1)
        assert found.replicated.value == 2 * NEAR_BYTES + 1


async def test_slave_is_in_sync_as_soon_as_it_has_come_near():
    told, clock = Told(1), ManualClock()
    async with account(told, clock) as found:
        found.shipped.advance(2 * NEAR_BYTES)
        found.note_report(2, 0)
        await settle()
        found.note_report(2, 2 * NEAR_BYTES - 1)
        await settle()
        found.note_report(2, 2 * NEAR_BYTES)
        await settle()
        assert told.members == [1, 2]


async def test_one_whose_connection_ended_is_waited_for_until_etcd_knows_it():
    told, clock = Told(1, 2, 3), ManualClock()
    async with account(told, clock) as found:
        found.shipped.advance(100)
        for member in (2, 3):
            found.note_report(member, 100)
        told.answer = "failed"
        found.note_disconnected(3)
        await settle()
        found.shipped.advance(200)
        found.note_report(2, 200)
        assert (found.replicated.value, found.members) == (100, {1, 2, 3})
        told.answer = "yes"
        await clock.advance(1)
        assert (found.replicated.value, found.members) == (200, {1, 2})


async def test_whom_etcd_may_have_taken_in_is_waited_for_until_it_answers() -> None:
    told, clock = Told(1, 2), ManualClock()
    async with account(told, clock) as found:
        found.shipped.advance(100)
        found.note_report(2, 100)
        found.note_report(3, 50)
        await settle()
        told.answer = "lost"
        found.note_report(3, 100)
        await settle()
        found.note_disconnected(3)
        found.shipped.advance(5000)
        found.note_report(2, 5000)
        await settle()
        told.state = with_in_sync(told.state, {1, 2, 3})  # as the first of them had it, whatever came later
        assert (found.replicated.value, found.visible_end()) == (100, 0)
        told.answer = "yes"
        await clock.advance(1)
        assert told.members == [1, 2]
        assert (found.replicated.value, found.members) == (5000, {1, 2})


async def test_nobody_is_said_to_be_alone_while_etcd_may_have_taken_another_in() -> None:
    told, clock = Told(1), ManualClock()
    async with account(told, clock) as found:
        found.shipped.advance(100)
        told.wait = asyncio.Event()
        found.note_report(2, 100)
        await settle()
        assert told.count == 1 and found.lacks(100) is None
        found.note_disconnected(2)
        await settle()
        assert found.lacks(100) is None and found.visible_end() == 0
        told.wait.set()
        await settle()
        assert told.members == [1] and found.lacks(100) is not None


async def test_one_that_left_before_it_was_in_sync_is_not_let_go_when_it_is():
    told, clock = Told(1, 2), ManualClock()
    async with account(told, clock) as found:
        found.shipped.advance(100)
        found.note_report(2, 100)
        found.note_report(3, 50)
        await settle()
        found.note_disconnected(3)
        await settle()
        found.note_report(3, 100)
        await settle()
        assert (told.members, told.count) == ([1, 2, 3], 1)


async def test_one_that_comes_again_at_once_has_to_prove_itself():
    told, clock = Told(1, 2), ManualClock()
    async with account(told, clock) as found:
        found.shipped.advance(100)
        found.note_report(2, 100)
        await settle()
        found.note_disconnected(2)
        found.note_report(2, 60)
        await settle()
        assert told.members == [1] and found.members == {1}
        found.note_report(2, 100)
        await settle()
        assert told.members == [1, 2] and found.lacks(100) is None


async def test_one_that_does_not_keep_up_is_let_go_in_its_time():
    told, clock = Told(1, 2), ManualClock()
    async with account(told, clock) as found:
        found.shipped.advance(100)
        found.note_report(2, 100)
        await settle()
        for second in range(20):
            found.shipped.advance(200 + second)
            await clock.advance(1)
            assert (2 in found.members) == (second < CATCH_UP_S)


async def test_a_master_alone_in_sync_acknowledges_nothing_as_replicated_and_says_why():
    told, clock = Told(1), ManualClock()
    async with account(told, clock) as found:
        found.shipped.advance(100)
        await settle()
        assert found.replicated.value == 0
        assert "no other member is in sync" in str(found.lacks(100))


async def test_who_waits_is_told_at_once_when_no_other_member_is_in_sync_any_more() -> None:
    told, clock = Told(1, 2), ManualClock()
    async with account(told, clock) as found:
        found.shipped.advance(100)
        found.note_report(2, 50)
        waits = asyncio.ensure_future(found.replicated.reached(100))
        await settle()
        found.note_disconnected(2)
        with pytest.raises(NoSlaveNear, match="no other member is in sync"):
            await asyncio.wait_for(waits, 10)


@asynccontextmanager
async def slave_near() -> AsyncIterator[tuple[Told, InSync]]:
    """A master that is alone in sync, and a slave that is about to be, too."""
    told = Told(1)
    async with account(told, ManualClock()) as found:
        found.shipped.advance(100)
        found.note_report(2, 50)
        await settle()
        yield told, found


async def test_send_waits_for_a_slave_that_is_about_to_be_in_sync() -> None:
    async with slave_near() as (told, found):
        assert told.members == [1] and found.lacks(100) is None
        waits = asyncio.ensure_future(found.replicated.reached(100))
        found.note_report(2, 100)
        assert await asyncio.wait_for(waits, 5) == 100
        assert told.members == [1, 2]


async def test_send_is_answered_at_once_when_the_slave_leaves_that_was_about_to_be_in_sync() -> None:
    async with slave_near() as (_, found):
        waits = asyncio.ensure_future(found.replicated.reached(100))
        await settle()
        found.note_disconnected(2)
        with pytest.raises(NoSlaveNear, match="no other member is in sync"):
            await asyncio.wait_for(waits, 5)


async def test_once_somebody_else_may_be_elected_nothing_is_acknowledged_any_more():
    told, clock = Told(1, 2), ManualClock()
    async with account(told, clock, lease_s=10) as found:
        found.shipped.advance(100)
        found.note_report(2, 50)
        waits = asyncio.ensure_future(found.replicated.reached(100))
        await settle()
        await clock.advance(11)
        found.note_report(2, 100)
        with pytest.raises(NoSlaveNear, match="is the master no more"):
            await waits
        assert found.replicated.value == 50


async def test_it_ends_when_etcd_says_that_somebody_else_is_the_master():
    told, clock = Told(1, 2), ManualClock()
    told.answer = "no"
    found = InSync(1, told.state, told.commit, clock, CATCH_UP_S, lambda: True)
    found.note_disconnected(2)
    await asyncio.wait_for(found.run(), 5)
    assert told.count == 1


# An epoch that is not settled ---------------------------------------------------------------------------------------


def unsettled(told: Told) -> Told:
    told.state = structs.replace(told.state, settled=2)
    return told


async def test_a_new_master_acknowledges_and_shows_nothing_until_its_epoch_is_settled() -> None:
    told, clock = unsettled(Told(1, 2, 3)), ManualClock()
    async with account(told, clock) as found:
        found.shipped.advance(100)
        for member in (2, 3):
            assert found.may_connect(member)
        found.note_report(2, 100)
        await settle()
        assert (told.count, found.replicated.value, found.visible_end()) == (0, 0, 0)
        assert found.hides_log and found.members == {1, 2, 3}
        found.note_report(3, 100)
        await settle()
        assert (told.members, told.count, told.state.settled) == ([1, 2, 3], 1, 3)
        assert found.replicated.value == found.visible_end() == 100 and not found.hides_log


async def test_nothing_is_acknowledged_before_etcd_knows_who_follows_though_all_have_it() -> None:
    told, clock = unsettled(Told(1, 2)), ManualClock()
    told.answer = "lost"
    async with account(told, clock) as found:
        found.shipped.advance(100)
        found.note_report(2, 100)
        await settle()
        assert told.count == 1 and found.replicated.value == 0
        found.note_disconnected(2)
        assert not found.may_connect(2)  # etcd may have it in sync in this epoch
        told.answer = "yes"
        await clock.advance(1)
        assert told.members == [1] and found.may_connect(2)


async def test_without_a_send_or_a_read_all_members_keep_their_right_to_lead() -> None:
    told, clock, settled_at = unsettled(Told(1, 2, 3)), ManualClock(), list[float]()
    async with account(told, clock) as found:
        found.on_settled = lambda: settled_at.append(clock.monotonic())
        found.shipped.advance(100)
        found.note_report(2, 100)
        await clock.advance(60)
        assert told.count == 0
        began = clock.monotonic()
        assert found.lacks(100) is None  # a send waits
        await clock.advance(SETTLE_S - 0.5)
        assert told.count == 0
        await clock.advance(1)
        assert told.members == [1, 2] and SETTLE_S <= settled_at[0] - began < SETTLE_S + 0.5


async def test_nobody_waits_for_a_master_that_died() -> None:
    told, clock = unsettled(Told(1, 2, 3)), ManualClock()
    async with account(told, clock, expected=frozenset({2})) as found:
        found.shipped.advance(100)
        found.note_report(2, 100)
        await settle()
        assert told.count == 0
        found.request_settle()
        await settle()
        assert told.members == [1, 2]


async def test_a_new_master_waits_for_a_member_that_runs_before_it_is_alone_in_sync() -> None:
    told, clock = unsettled(Told(1, 2)), ManualClock()
    async with account(told, clock, expected=frozenset({3})) as found:  # 2 was the master, and died
        found.shipped.advance(100)
        found.request_settle()
        await clock.advance(SETTLE_S - 0.5)
        assert told.count == 0
        found.note_report(3, 100)
        await settle()
        assert (told.members, told.count) == ([1, 3], 1)


async def test_a_new_master_does_not_settle_alone_while_a_member_is_connected() -> None:
    told, clock = unsettled(Told(1, 2)), ManualClock()
    async with account(told, clock, expected=frozenset()) as found:
        found.shipped.advance(2 * NEAR_BYTES)
        found.note_report(2, 0)
        found.request_settle()
        await settle()
        assert told.count == 0
        found.note_report(2, 2 * NEAR_BYTES)
        await settle()
        assert (told.members, told.count) == ([1, 2], 1)


async def test_a_master_with_a_follower_does_not_wait_for_members_that_were_out_of_sync() -> None:
    told, clock = unsettled(Told(1, 2, 3)), ManualClock()
    async with account(told, clock, expected=frozenset({2, 4})) as found:  # 3 was the master, and died
        found.shipped.advance(100)
        found.note_report(2, 100)
        found.request_settle()
        await settle()
        assert told.members == [1, 2]


async def test_the_only_member_in_sync_settles_at_once() -> None:
    told, clock = unsettled(Told(1)), ManualClock()
    async with account(told, clock) as found:
        assert found.lacks(100) is not None and not found.hides_log
        await settle()
        assert told.members == [1] and told.state.settled == 3
        found.shipped.advance(50)
        assert found.visible_end() == 50


async def test_a_former_member_in_sync_that_lacks_much_is_not_taken_over() -> None:
    told, clock = unsettled(Told(1, 2)), ManualClock()
    async with account(told, clock) as found:
        found.shipped.advance(2 * NEAR_BYTES)
        found.note_report(2, 10)
        found.request_settle()
        await clock.advance(SETTLE_S + 1)
        assert told.members == [1]
