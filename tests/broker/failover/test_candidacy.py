"""Who lets others go first: members of a real etcd with a port, a disk or a store in the way."""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparrowmq.broker import broker
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.broker.failover import candidacy
from sparrowmq.broker.failover.candidacy import Candidacy, Reason
from sparrowmq.broker.failover.group_keys import Present
from sparrowmq.broker.failover.group_state import GroupState, Leader, OwnEpoch
from sparrowmq.broker.member import POLL_S, Member
from sparrowmq.broker.replication import ha_master
from sparrowmq.broker.replication.ha_master import port_for_slaves
from sparrowmq.errors import DiskFull, EtcdFailed, RemoteError
from sparrowmq.protocol.requests.admin_headers import ElectMember
from sparrowmq.remoting.listener import Listener
from sparrowmq.store.message_store import MessageStore
from sparrowmq.testing import ManualClock
from tests.broker.members import LEASE_S, LONG_LEASE_S, OK, Members
from tests.interop.etcd import needs_etcd
from tests.store.faulty_disk import FaultyDisk

pytestmark = needs_etcd


@pytest.fixture
def members(members: Members) -> Members:
    """Members that keep the lead if the machine lets none of them run for some seconds."""
    for number in (1, 2, 3):
        members.change(number, lease_s=LONG_LEASE_S)
    return members


@contextmanager
def taken(port: int) -> Iterator[None]:
    """Another program listens there."""
    with socket.create_server(("127.0.0.1", port)):
        yield


@pytest.mark.slow
async def test_a_member_whose_port_is_taken_is_not_elected_and_the_others_still_can(members: Members) -> None:
    await members.two_in_sync()
    assert await members.send(1, b"both") == OK
    port = members.member(2).settings.ha_port
    assert port
    with taken(port):
        await members.stop(1)
        await members.shows(2, "haListenPort")
        assert (await members.state()).in_sync == (1, 2)
        await members.start(1, lease_s=LEASE_S)  # it waits twice as long for others
        assert await members.leader() == 1
    await members.in_sync(1, 2)
    assert await members.bodies(1) == [b"both"]


async def test_a_member_leads_once_its_port_is_free(members: Members) -> None:
    await members.two_in_sync()
    port = members.member(2).settings.ha_port
    assert port
    with taken(port):
        await members.stop(1)
        await members.shows(2, "haListenPort")
    assert await members.leader(2) == 2
    assert await members.problem(2) == ""


async def test_a_member_that_cannot_start_as_the_master_gives_up_and_the_next_one_leads(
    members: Members, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await members.all_in_sync()
    assert await members.send(1, b"all") == OK
    door = ha_master.ha_door
    note_failed_start: list[int] = []

    def ha_door(settings: BrokerSettings, port: int) -> Listener | None:
        if not settings.is_slave and not note_failed_start:
            note_failed_start.append(settings.port)
            raise DiskFull("no room for the start of a master")
        return door(settings, port)

    monkeypatch.setattr(broker, "ha_door", ha_door)
    await members.stop(1)
    next_one = await members.leader(2, 3)
    (port,) = note_failed_start
    (other,) = {2, 3} - {next_one}
    assert port == members.settings(other).port
    assert "cannot start as the master: no room for the start of a master" in caplog.text
    await members.in_sync(2, 3)  # the one that failed follows
    assert await members.bodies(next_one) == [b"all"]


async def test_a_member_that_leaves_because_of_its_disk_lets_others_go_first_also_if_etcd_fails(
    members: Members,
) -> None:
    await members.two_in_sync()
    first = members.member(1)
    endpoints, first._etcd._endpoints = first._etcd._endpoints, ["127.0.0.1:1"]
    await first._leave_slow_disk("the disk hangs")
    first._etcd._endpoints = endpoints
    assert await members.leader() == 2
    await members.in_sync(1, 2)


async def test_a_candidate_that_cannot_ask_etcd_lets_others_go_first(members: Members) -> None:
    async with Member(members.settings(1)) as member:
        assert member.broker is not None
        member._etcd._endpoints = ["127.0.0.1:1"]
        with pytest.raises(EtcdFailed):
            await member._campaign(member.broker)
        await member._try_to_lead()  # does not ask etcd
        assert member._problem.startswith("it could not start as the master: etcd cannot be asked")


async def second_death(members: Members) -> None:
    await members.all_in_sync()
    assert await members.send(1, b"all") == OK
    await members.power_cut(1)
    second = await members.until_leads(2, 3)
    await members.power_cut(second)
    (third,) = {2, 3} - {second}
    assert await members.leader(third) == third
    assert await members.bodies(third) == [b"all"]


@pytest.mark.slow
async def test_the_death_of_a_successor_just_after_its_election_leaves_the_third_member(
    members: Members,
) -> None:
    await second_death(members)


async def test_a_member_with_a_slow_or_full_disk_lets_others_go_first_and_leads_if_there_are_none(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, disk = ManualClock(), FaultyDisk()
    settings = members.settings(1)
    own = OwnEpoch.load(settings.config_path)
    found = Candidacy(1, "broker-a", 4, own, clock)

    async def obstacle() -> Reason | None:
        return await found.obstacle(store, port_for_slaves(settings), disk)

    found.note_group(None, None)
    with MessageStore.open(settings.store(1), vfs=disk) as store:
        assert await obstacle() is None
        disk.full_for = ("commitlog",)
        reason = await obstacle()
        assert reason is not None and reason.text.startswith("other members go first: ")
        disk.full_for = ()
        await clock.advance(8)
        disk.full_for = ("commitlog",)
        assert await obstacle() is None  # to serve reads, at least
        reason = await found.obstacle(store, port_for_slaves(settings), disk, is_chosen=True)
        assert reason is not None and "no room" in reason.text, "etcd would have it in sync alone"
        disk.full_for, disk.sync_errors = (), {str(settings.store_path / "trial"): errno.EROFS}
        reason = await obstacle()
        assert reason is not None and "cannot start as the master" in reason.text
        disk.sync_errors = {}
        monkeypatch.setattr(candidacy, "SLOW_S", -1.0)
        found.note_group(Leader(member=2, epoch=1, store="", address="", shipping=""), None)
        found.note_group(None, None)
        reason = await obstacle()
        assert reason is not None and "its disk took" in reason.text
        assert await found.obstacle(store, port_for_slaves(settings), disk, is_chosen=True) is None, (
            "an operator lets it go first"
        )
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        try:
            reason = await obstacle()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert reason is not None and "may open 200 files and connections together" in reason.text


async def test_after_etcd_lost_its_data_no_stale_member_leads_before_an_operator_decides(
    members: Members, caplog: pytest.LogCaptureFixture
) -> None:
    await members.two_in_sync()
    assert await members.send(1, b"both") == OK
    await members.stop(2)
    await members.in_sync(1)
    await members.send(1, b"one alone")
    await members.stop(1)
    await members.wipe_etcd()
    with caplog.at_level(logging.CRITICAL):
        second = await members.start(2)
        await members.shows(2, "etcd has lost its data")
    assert f"sparrowmq cluster elect -b {members.name}`" in caplog.text
    third = await members.start(3)  # without a store: it cannot know what the others have
    await members.shows(3, "that of member 2 of epoch 1")
    first = await members.start(1)
    await asyncio.sleep(2 * POLL_S)
    assert not first.leads and not second.leads and not third.leads
    with pytest.raises(RemoteError, match="this is member 1"):
        await members.order(1, ElectMember(2))
    with pytest.raises(RemoteError, match="member 1 has more"):
        await members.order(2, ElectMember(2))
    with socket.create_server(("127.0.0.1", members.settings(1).ha_port or 0)):
        with pytest.raises(RemoteError, match=r"this member is not to lead: .*cannot listen on .*another haListen"):
            await members.order(1, ElectMember(1))
        await asyncio.sleep(2 * POLL_S)
        assert not first.leads, "an order that was refused has no effect later"
    first._member_start.disk_full_reason = "the disk was full at the start"
    with pytest.raises(RemoteError, match="not to lead: the disk was full at the start"):
        await members.order(1, ElectMember(1))
    first._member_start.disk_full_reason = ""
    await members.order(1, ElectMember(1))
    assert await members.leader() == 1
    await members.in_sync(1, 2, 3)
    assert await members.bodies(1) == [b"both", b"one alone"]
    with pytest.raises(RemoteError, match="member 1 is the master; stop it first"):
        await members.order(2, ElectMember(2))
    with pytest.raises(RemoteError, match="this member is the master"):
        await members.order(1, ElectMember(1))


async def test_a_disk_that_fills_after_an_order_leaves_etcd_as_it_was(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    await members.two_in_sync()
    await members.stop(2)
    await members.stop(1)
    await members.wipe_etcd()
    first = await members.start(1)
    await members.shows(1, "etcd has lost its data")
    first._candidacy._vacant_since_s = 0.0  # for so long that a full disk would not keep a member from leading
    trials: list[object] = []

    def fills(*_: object) -> None:
        trials.append(None)
        if len(trials) > 1:
            raise DiskFull("no room")

    monkeypatch.setattr(candidacy, "probe_writes", fills)
    await members.order(1, ElectMember(1))
    await members.shows(1, "it cannot start as the master: no room")
    assert not any(
        key.endswith("/state") for key in await members.ask.below(f"/sparrowmq/DefaultCluster/{members.name}/")
    )
    monkeypatch.undo()
    assert await members.leader() == 1


async def test_an_operator_gives_up_what_only_lost_members_have(members: Members) -> None:
    await members.two_in_sync()
    assert await members.send(1, b"both") == OK
    await members.stop(2)
    await members.in_sync(1)
    await members.send(1, b"one alone")
    await members.stop(1)
    members.take_disk(1)
    await members.start(2)
    await members.shows(2, "there is no master, and this member is not in sync (in sync: 1)")
    with pytest.raises(RemoteError, match="`--force` discards them"):
        await members.order(2, ElectMember(2))
    await members.order(2, ElectMember(2, force=True))
    assert await members.leader() == 2
    assert await members.bodies(2) == [b"both"]
    state = await members.state()
    assert (state.epoch, len(state.begins), state.in_sync) == (2, 1, (2,))


async def test_a_group_that_was_killed_leads_again_as_soon_as_all_members_in_sync_are_back(
    members: Members,
) -> None:
    """They need not wait for two leases: no member is missing that could have more."""
    await members.two_in_sync()
    assert await members.send(1, b"both") == OK
    await members.power_cut(1, 2)
    await members.start(1, lease_s=16)
    await members.start(2, lease_s=16)
    assert await members.leader() in (1, 2)


async def test_members_in_sync_are_named_with_the_addresses_where_they_were_last(tmp_path: Path) -> None:
    found = Candidacy(1, "broker-a", 4, OwnEpoch.load(tmp_path), ManualClock())
    state = GroupState(epoch=3, line="x", leader=2, in_sync=(2, 3, 4), begins=((3, 0),))
    leader = Leader(member=2, epoch=3, store="s", address="10.0.0.2:10911", shipping="10.0.0.2:10912")
    found.note_group(leader, state)
    found.note_group(None, state)
    present = Present(member=3, store="s", address="10.0.0.3:10911", epoch=3, line="x")
    reason = found.reason(state, 1, 0, [present])
    assert reason is not None and reason.text.endswith("(in sync: 2 at 10.0.0.2:10911, 3 at 10.0.0.3:10911, 4)")
