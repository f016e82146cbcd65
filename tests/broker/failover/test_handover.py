"""The lead goes to another member on purpose: no send fails, and nothing that was acknowledged is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from sparrowmq.admin.admin import Admin
from sparrowmq.broker import batches, journal, member
from sparrowmq.broker.failover import handover
from sparrowmq.broker.failover import in_sync as in_sync_module
from sparrowmq.broker.failover.group_keys import UNKNOWN, EtcdGroup, Present
from sparrowmq.broker.failover.group_state import GroupState, OwnEpoch
from sparrowmq.broker.failover.handover import RoomWatch, check_begin, next_master
from sparrowmq.broker.failover.in_sync import InSync
from sparrowmq.client.client import Client
from sparrowmq.client.sending.producer_settings import ProducerSettings
from sparrowmq.client.sending.send_result import SendResult, SendStatus
from sparrowmq.errors import OF_A_SLAVE, DiskFull, RemoteError
from sparrowmq.loop import slices
from sparrowmq.loop.clock import SystemClock
from sparrowmq.loop.watermark import Watermark
from sparrowmq.namesrv.namesrv import Namesrv
from sparrowmq.namesrv.namesrv_settings import NamesrvSettings
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import batch
from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.protocol.messages.entry import Entry
from sparrowmq.protocol.messages.properties import Properties
from sparrowmq.protocol.requests.admin_headers import HandOverLead
from sparrowmq.protocol.requests.namesrv_headers import GetRoute
from sparrowmq.store.appender import LogEnded
from sparrowmq.testing import ManualClock
from tests.broker.live import COMMIT, SUBSCRIPTION, pull_request, send_request
from tests.broker.members import LEASE_S, LONG_LEASE_S, OK, Members
from tests.interop.etcd import needs_etcd

pytestmark = needs_etcd
PATIENT = ProducerSettings(timeout_s=30)  # a machine that others use, too


@pytest.fixture
def members(members: Members, monkeypatch: pytest.MonkeyPatch) -> Members:
    """Members that keep the lead, and go on to hand it over, if the machine lets none of them run for some seconds."""
    monkeypatch.setattr(handover, "HAND_OVER_S", 30.0)
    for number in (1, 2, 3):
        members.change(number, lease_s=LONG_LEASE_S)
    return members


@asynccontextmanager
async def named(members: Members, path: Path) -> AsyncIterator[str]:
    """A name server that the members register at."""
    async with Namesrv(NamesrvSettings(port=0, kv_path=path / "kv.json"), SystemClock()) as namesrv:
        for number in (1, 2, 3):
            members.change(number, namesrv=(namesrv.address,))
        yield namesrv.address


class Sends:
    """A program that sends one message after the other."""

    def __init__(self, client: Client) -> None:
        self.results: list[SendResult] = []
        self.longest_s = 0.0
        self._client = client
        self._is_over = False
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._is_over:
            began = loop.time()
            self.results.append(await self._client.send("orders", b"%d" % len(self.results)))
            self.longest_s = max(self.longest_s, loop.time() - began)

    async def more(self, count: int = 20) -> None:
        """Return after some more answers."""
        wanted = len(self.results) + count
        async with asyncio.timeout(60):
            while len(self.results) < wanted:
                assert not self._task.done() or self._task.result()
                await asyncio.sleep(0.01)

    async def end(self) -> list[SendResult]:
        """The results; raises what a send has failed with."""
        self._is_over = True
        await self._task
        return self.results


async def has_route(members: Members, namesrv: str, begins: asyncio.Event) -> None:
    """Ask for the route of the topic again and again; fails if there is none any more."""
    session = await members.pool.session(namesrv)
    while not begins.is_set():
        with suppress(RemoteError):  # the master has not registered the new topic yet
            await session.call(GetRoute("orders"))
            begins.set()
        await asyncio.sleep(0.005)
    while True:
        await session.call(GetRoute("orders"))
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("epoch", "end", "why"),
    [
        (5, 100, ""),
        (4, 900, ""),  # the rest of an earlier master's log, which was not acknowledged
        (5, 101, "member 2 has more: its log is of epoch 5 and ends at 101, and ours of epoch 5 at 100"),
        (6, 50, "member 2 has more: its log is of epoch 6 and ends at 50, and ours of epoch 5 at 100"),
        (4, UNKNOWN, ""),
        (5, UNKNOWN, "where the log of member 2 ends is not known: its disk is full"),
    ],
)
def test_who_lacks_what_another_member_has_is_not_chosen(epoch: int, end: int, why: str) -> None:
    other = Present(member=2, store="s", address="a", epoch=epoch, line="l", end=end, problem="its disk is full")
    own = OwnEpoch(Path("epoch.json"), 5, "l", "mine")
    if why:
        with pytest.raises(RemoteError, match=why):
            check_begin(EtcdGroup(others=(other,)), own, 100, is_forced=False, unfit="")
    else:
        check_begin(EtcdGroup(others=(other,)), own, 100, is_forced=False, unfit="")
    check_begin(EtcdGroup(others=(other,)), own, 100, is_forced=True, unfit="")
    for is_forced in (True, False):
        with pytest.raises(
            RemoteError, match=r"the disk is full\. Remove the cause and try again.*Nothing has changed"
        ):
            check_begin(EtcdGroup(others=(other,)), own, 100, is_forced=is_forced, unfit="the disk is full")


@pytest.mark.parametrize("times", [2, pytest.param(8, marks=pytest.mark.slow)])
async def test_the_lead_is_handed_over_without_a_failed_send(members: Members, tmp_path: Path, times: int) -> None:
    async with named(members, tmp_path) as namesrv, Client(namesrv, settings=PATIENT) as client:
        await members.all_in_sync()
        async with Admin(namesrv, timeout_s=20) as admin:
            leader = await members.leader()
            sends = Sends(client)
            for turn in range(times):
                await sends.more()
                wanted = leader % 3 + 1 if turn % 2 else None
                given = await admin.hand_over(members.name, wanted)
                assert given != leader and wanted in (None, given)
                leader = await members.leader()
                assert leader == given
                await members.in_sync(1, 2, 3)
            await sends.more()
        results = await sends.end()
    assert [each.status for each in results] == [SendStatus.OK] * len(results)
    found = await members.all_bodies(leader)
    numbers = [int(body) for body in found]
    assert sorted(numbers) == sorted(set(numbers) | set(range(len(results)))), "one is missing"
    assert len(numbers) == len(set(numbers)), "one is doubled"
    print(f"{len(results)} sends, the longest took {sends.longest_s:.2f} s")


async def test_a_topic_has_a_route_while_the_last_member_becomes_the_master(members: Members, tmp_path: Path) -> None:
    for number in (1, 2):
        members.change(number, lease_s=LEASE_S)  # nothing else ends it
    async with named(members, tmp_path) as namesrv, asyncio.TaskGroup() as tasks:
        await members.two_in_sync()
        assert await members.send(1, b"first") == OK
        watched = tasks.create_task(has_route(members, namesrv, begins := asyncio.Event()))
        await begins.wait()
        await members.power_cut(1)
        assert await members.leader(2) == 2
        watched.cancel()


async def test_a_master_that_is_stopped_in_order_hands_over_first(members: Members, tmp_path: Path) -> None:
    async with named(members, tmp_path) as namesrv, Client(namesrv, settings=PATIENT) as client:
        await members.all_in_sync()
        sends = Sends(client)
        await sends.more()
        await members.stop(1)
        leader = await members.leader(2, 3)
        await sends.more()
        results = await sends.end()
    assert {each.status for each in results} == {SendStatus.OK}
    state = await members.state()
    assert state.leader == leader and state.epoch == 2
    assert sorted(map(int, await members.all_bodies(leader))) == list(range(len(results)))


async def test_a_master_that_hands_over_knows_the_offsets_and_leaves_no_fork(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    await members.two_in_sync()
    assert await members.send(1, b"both") == OK
    broker = members.member(1).broker
    assert broker is not None
    monkeypatch.setattr(journal, "_OFFSETS_AT_ONCE", 1)
    session = await members.pool.session(f"127.0.0.1:{members.settings(1).port}")

    async def commit(group: str) -> None:
        pull = pull_request(sys_flag=SUBSCRIPTION | COMMIT, consumer_group=group, commit_offset=1, offset=1)
        await session.call(pull, accept={ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED})

    async def drain(*given: Any) -> None:
        for group in ("one", "two", "three"):
            await commit(group)
        await handover.drain(*given)
        with pytest.raises(LogEnded, match="handed over"):
            broker.store.append(Entry("orders", 0, b"late", Properties(""), 1, bytes(8)))
        await commit("late")

    monkeypatch.setattr(member, "drain", drain)
    await members.order(1, HandOverLead(2))
    assert await members.leader(2) == 2
    await members.in_sync(1, 2)
    assert not list(members.settings(1).store_path.glob("set-aside/*"))
    now = members.member(2).broker
    assert now is not None and now.journal is not None
    assert [now.journal._tables.offsets.query(group, "orders", 0) for group in ("one", "two", "three")] == [1, 1, 1]


async def test_the_log_goes_on_if_the_lead_cannot_be_handed_over(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    await members.two_in_sync()
    etcd = members.member(1)._etcd

    async def change(*given: object, **more: object) -> bool:
        return False

    with monkeypatch.context() as patch:
        patch.setattr(etcd, "change", change)
        with pytest.raises(RemoteError, match="have just changed"):
            await members.order(1, HandOverLead(2))
    assert await members.send(1, b"after") == OK
    assert members.member(1).leads and (await members.state()).epoch == 1


async def test_of_two_orders_to_hand_over_at_once_one_is_refused(members: Members) -> None:
    await members.all_in_sync()
    answers = await asyncio.gather(
        *(members.order(1, HandOverLead(number)) for number in (2, 3)), return_exceptions=True
    )
    (refusal,) = [each for each in answers if isinstance(each, RemoteError)]
    assert "hands over the lead already" in str(refusal)
    assert await members.leader(2, 3) == (3 if refusal is answers[0] else 2)
    assert (await members.state()).epoch == 2


async def test_lead_stays_while_the_other_members_in_sync_lack_a_part_of_the_log(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "HAND_OVER_S", 0.3)
    await members.two_in_sync()
    first = members.member(1)
    assert first._in_sync is not None
    monkeypatch.setattr(first._in_sync, "replicated", Watermark())
    with pytest.raises(RemoteError, match="do not have the whole log"):
        await members.order(1, HandOverLead(2))
    monkeypatch.undo()
    assert await members.send(1, b"after") == OK
    assert first.leads and (await members.state()).epoch == 1


async def test_handover_waits_for_a_member_that_is_about_to_be_in_sync(members: Members) -> None:
    await members.two_in_sync()
    first, may_end = members.member(1), asyncio.Event()
    in_sync = first._in_sync
    assert in_sync is not None
    commit = in_sync._commit

    async def late(wanted: GroupState) -> GroupState | None:
        await may_end.wait()
        return await commit(wanted)

    in_sync._commit = late
    await members.start(3)
    async with asyncio.timeout(20):
        while not in_sync._unconfirmed:
            await asyncio.sleep(0.01)
    order = asyncio.ensure_future(first._hand_over(2, stays=True))
    await asyncio.wait({order}, timeout=0.5)
    assert not order.done()
    may_end.set()
    assert await order == 2 and in_sync.members == {1, 2, 3}


async def test_send_waits_for_a_member_that_runs_but_was_out_of_sync_as_the_master_left(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_sync_module, "SETTLE_S", 20.0)
    for number in (1, 2, 3):
        members.change(number, slave_timeout_ms=25_000)
    await members.two_in_sync()
    monkeypatch.setattr(members.member(1)._in_sync, "may_connect", lambda member: member == 2)
    third, may_follow = await members.start(3), asyncio.Event()
    follow = third._follow

    async def late() -> None:
        await may_follow.wait()
        await follow()

    monkeypatch.setattr(third, "_follow", late)
    await members.stop(1)
    await members.until_leads(2)

    async def send() -> int:
        while (code := await members.send(2, b"to two")) == ResponseCode.SERVICE_NOT_AVAILABLE:
            await asyncio.sleep(0.02)
        return code

    async with asyncio.timeout(20):
        sent = asyncio.ensure_future(send())
        await asyncio.wait({sent}, timeout=1)
        may_follow.set()
        assert await sent == OK
    await members.in_sync(2, 3)


async def test_handover_waits_for_a_large_batch_that_is_stored_in_part(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "PART_OF_ENTRIES", 4)
    monkeypatch.setattr(slices, "SLICE_S", 1e-6)
    await members.two_in_sync()
    broker = members.member(1).broker
    assert broker is not None
    session = await members.pool.session(f"127.0.0.1:{members.settings(1).port}")
    parts = [BatchPart(b"%d" % number, "KEYS\x01ü\x02".encode()) for number in range(1200)]
    sent, waits = (session.call(send_request(batch=True), batch.encode(parts), timeout_s=60) for _ in range(2))
    added = broker.store.appender.count_added
    before = added()[0]
    async with asyncio.timeout(60):
        while added()[0] == before:
            await asyncio.sleep(0)
    order = asyncio.ensure_future(members.order(1, HandOverLead(2)))
    assert len((await sent).header.msg_id.split(",")) == 1200
    with pytest.raises(RemoteError, match=OF_A_SLAVE):
        await waits
    await order
    assert await members.leader(2) == 2
    assert len(await members.all_bodies(2)) == 1200


async def test_lead_stays_while_a_large_batch_is_stored_in_part(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "HAND_OVER_S", 0.3)
    await members.two_in_sync()
    first = members.member(1)
    assert first.broker is not None
    monkeypatch.setattr(first.broker.store.appender, "unfinished_batches", 1)
    with pytest.raises(RemoteError, match="a large batch is not stored"):
        await members.order(1, HandOverLead(2))
    assert await members.send(1, b"after") == OK
    assert first.leads and (await members.state()).epoch == 1


async def test_handover_that_outlives_the_lead_leaves_the_next_master_alone(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    await members.two_in_sync()
    first, may_end = members.member(1), asyncio.Event()
    monkeypatch.setattr(member, "drain", lambda *_: may_end.wait())
    order = asyncio.ensure_future(first._hand_over(2, stays=True))
    await asyncio.sleep(0)
    first._candidacy.note_failed_start("a test")
    first._is_deposed = True
    first._wake.set()
    assert await members.leader(2) == 2
    await members.in_sync(1, 2)
    await first._poll_etcd()
    may_end.set()
    with pytest.raises(RemoteError, match="does not lead any more"):
        await order
    assert (await members.state()).epoch == 2 and members.member(2).leads


async def test_slow_disk_does_not_end_the_lead_while_it_is_handed_over(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    await members.all_in_sync()
    first, may_end = members.member(1), asyncio.Event()
    monkeypatch.setattr(member, "drain", lambda *_: may_end.wait())
    order = asyncio.ensure_future(first._hand_over(3, stays=True))
    await asyncio.sleep(0)
    await first._leave_slow_disk("the disk is slow")
    assert first.leads and not first._is_deposed
    may_end.set()
    assert await order == 3
    assert await members.leader(2, 3) == 3


async def test_a_handover_that_is_impossible_changes_nothing(members: Members) -> None:
    await members.start(1)
    await members.leader()
    with pytest.raises(RemoteError, match="no other member is in sync"):
        await members.order(1, HandOverLead())
    await members.start(2)
    await members.in_sync(1, 2)
    with pytest.raises(RemoteError, match="member 3 is not in sync; the other members in sync: 2"):
        await members.order(1, HandOverLead(3))
    with pytest.raises(RemoteError, match="not the master"):
        await members.order(2, HandOverLead())
    assert await members.send(1, b"after") == OK


async def test_a_master_without_room_hands_the_lead_to_a_member_that_has_some(members: Members) -> None:
    await members.two_in_sync()
    assert await members.send(1, b"both") == OK
    members.member(1)._space_watch = RoomWatch(SystemClock(), LEASE_S)
    first = members.member(1).broker
    assert first is not None
    async with asyncio.timeout(40):
        while members.member(1).leads:
            first.store.appender.stall(DiskFull("no room"), 5)
            await asyncio.sleep(0.1)
    assert await members.leader(2) == 2
    await members.in_sync(1, 2)
    assert await members.send(2, b"there") == OK


def test_the_member_with_most_leads_next() -> None:
    state = GroupState(epoch=1, line="a", leader=1, in_sync=(1, 2, 3), begins=((1, 0),))

    async def commit(wanted: GroupState) -> GroupState:
        return wanted

    in_sync = InSync(1, state, commit, ManualClock(), 15, lambda: True)
    in_sync.note_report(2, 50)
    in_sync.note_report(3, 60)
    assert next_master(in_sync, 1, 0) == 3 and next_master(in_sync, 1, 2) == 2
    unsettled = InSync(1, structs.replace(state, settled=0), commit, ManualClock(), 15, lambda: True)
    with pytest.raises(RemoteError, match="no other member"):
        next_master(unsettled, 1, 2)
