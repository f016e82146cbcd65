"""A lease ends here before it ends in etcd, whatever becomes of the questions: on a clock that is turned by hand."""

from __future__ import annotations

import asyncio

import pytest

from sparrowmq.broker.failover.etcd import Etcd
from sparrowmq.broker.failover.group_keys import Lease
from sparrowmq.errors import EtcdFailed
from sparrowmq.loop.clock import SystemClock
from sparrowmq.testing import ManualClock
from tests.interop.etcd import LiveEtcd, needs_etcd

TTL_S = 4


class OneLease:
    """An etcd of one lease, on the test's clock, whose answers can be late or fail."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.ends_s = 0.0
        self.late_s = 0.0
        self.fails = False
        self.revoked: list[int] = []

    async def grant(self, ttl_s: int) -> int:
        self.ends_s = self.clock.monotonic() + ttl_s
        await self._answer()
        return 77

    async def keep_alive(self, lease: int) -> int:
        is_alive = self.clock.monotonic() < self.ends_s
        if is_alive and not self.fails:
            self.ends_s = self.clock.monotonic() + TTL_S
        await self._answer()
        return TTL_S if is_alive else 0

    async def revoke(self, lease: int) -> None:
        await self._answer()
        self.revoked.append(lease)

    async def _answer(self) -> None:
        if self.fails:
            raise EtcdFailed("no answer")
        if self.late_s:
            await self.clock.sleep(self.late_s)


async def begun(clock: ManualClock) -> tuple[Lease, OneLease, asyncio.Task[None]]:
    etcd = OneLease(clock)
    lease = Lease(etcd, clock, TTL_S)
    await lease.begin()
    return lease, etcd, asyncio.ensure_future(lease.renew())


async def test_it_lives_as_long_as_etcd_answers() -> None:
    clock = ManualClock()
    lease, etcd, renewing = await begun(clock)
    for _ in range(100):
        await clock.advance(0.5)
        assert lease.is_valid and clock.monotonic() < lease.deadline < etcd.ends_s
    renewing.cancel()


async def test_it_ends_here_before_it_ends_in_etcd_when_that_answers_no_more() -> None:
    clock = ManualClock()
    lease, etcd, renewing = await begun(clock)
    await clock.advance(10)
    etcd.fails = True
    while lease.is_valid:
        await clock.advance(0.05)
    await renewing
    assert etcd.ends_s - 1 < clock.monotonic() < etcd.ends_s - 0.2


async def test_a_late_answer_counts_from_when_it_was_asked() -> None:
    clock = ManualClock()
    lease, etcd, renewing = await begun(clock)
    etcd.late_s = 1.5
    for _ in range(40):
        await clock.advance(0.25)
        assert not lease.is_valid or lease.deadline < etcd.ends_s
    assert lease.is_valid
    renewing.cancel()


async def test_it_has_ended_when_etcd_knows_it_no_more() -> None:
    clock = ManualClock()
    lease, etcd, renewing = await begun(clock)
    etcd.ends_s = 0.0
    await clock.advance(TTL_S)
    await renewing
    assert not lease.is_valid


async def test_it_has_ended_when_what_it_stands_for_is_anothers_or_cannot_be_seen_for_its_time() -> None:
    clock, is_ours = ManualClock(), True
    etcd = OneLease(clock)

    async def stands() -> bool:
        if etcd.late_s:
            raise EtcdFailed("no answer")
        return is_ours

    for how in ("another's", "not seen"):
        lease, is_ours, etcd.late_s = Lease(etcd, clock, TTL_S), True, 0.0
        await lease.begin()
        renewing = asyncio.ensure_future(lease.renew(stands))
        await clock.advance(10 * TTL_S / 4)
        assert lease.is_valid
        if how == "another's":
            is_ours = False
            await clock.advance(TTL_S / 4)
        else:
            etcd.late_s = 0.01
            await clock.advance(TTL_S)
        await renewing
        assert not lease.is_valid


async def test_who_was_halted_for_longer_believes_in_it_no_more() -> None:
    clock = ManualClock()
    lease, _, renewing = await begun(clock)
    renewing.cancel()
    assert lease.is_valid
    await clock.advance(TTL_S)
    assert not lease.is_valid


@pytest.mark.parametrize("fails", [False, True])
async def test_ended_it_is_not_valid_whether_or_not_etcd_can_be_told(fails: bool) -> None:
    clock = ManualClock()
    lease, etcd, renewing = await begun(clock)
    etcd.fails = fails
    await lease.end()
    assert not lease.is_valid and etcd.revoked == ([] if fails else [77])
    renewing.cancel()


async def test_a_renewal_that_is_answered_after_the_end_does_not_revive_it() -> None:
    clock = ManualClock()
    lease, etcd, renewing = await begun(clock)
    await clock.advance(0)
    etcd.late_s = 0.5
    await clock.advance(TTL_S / 4 + 0.1)  # a renewal waits for its answer
    ending = asyncio.ensure_future(lease.end())
    await clock.advance(0.45)
    assert not lease.is_valid
    await clock.advance(TTL_S)
    await asyncio.gather(ending, renewing)
    assert (lease.is_valid, etcd.revoked) == (False, [77])


@needs_etcd
async def test_a_real_one_is_renewed_and_ended() -> None:
    with LiveEtcd() as live:
        etcd = Etcd([live.endpoint], SystemClock(), 5.0)
        lease = Lease(etcd, SystemClock(), 60)
        await lease.begin()
        before = lease.deadline
        renewing = asyncio.ensure_future(lease.renew())
        async with asyncio.timeout(10):
            while lease.deadline == before:
                await asyncio.sleep(0.01)
        assert lease.is_valid
        renewing.cancel()
        await lease.end()
        assert not lease.is_valid and await etcd.keep_alive(lease.number) == 0


@pytest.mark.parametrize("is_given_up", [True, False])
async def test_only_a_lease_that_was_not_renewed_in_time_is_an_error(
    caplog: pytest.LogCaptureFixture, is_given_up: bool
) -> None:
    clock = ManualClock()
    lease, etcd, renewing = await begun(clock)
    etcd.fails = not is_given_up
    if is_given_up:  # the lead was handed over
        lease.deadline = 0.0
    for _ in range(4 * TTL_S):
        await clock.advance(0.5)
    assert renewing.done()
    assert ("the lease was not renewed in time" in caplog.text) != is_given_up
