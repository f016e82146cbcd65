"""Brokers of one name that elect their master in a real etcd: who leads and follows, and what becomes of their logs."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from sparrowmq.broker.failover.group_state import GroupState, Leader, OwnEpoch
from sparrowmq.broker.member import Member
from sparrowmq.broker.replication.slave_link import VISIBLE_END_DELAY_S
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.store.care.backup import backup
from sparrowmq.store.vfs import Disk
from tests.broker.members import ANSWERED, LEASE_S, OK, Members
from tests.interop.apache import free_ports
from tests.interop.etcd import LiveEtcd, needs_etcd
from tests.store.stores import put

pytestmark = needs_etcd


async def never(member: Member, leader: Leader) -> None:
    """In place of what a member does with a lease of an earlier life: nothing."""


async def test_a_slave_in_sync_takes_the_place_of_a_master_that_stops_with_all_that_was_acknowledged(
    members: Members,
) -> None:
    await members.start(1)
    assert await members.leader() == 1
    assert await members.send(1, b"alone") == ResponseCode.SLAVE_NOT_AVAILABLE
    await members.start(2)
    await members.in_sync(1, 2)
    assert await members.send(1, b"both") == OK
    assert await members.send(2, b"no") == ResponseCode.SERVICE_NOT_AVAILABLE
    await members.shows_bodies(2, b"alone", b"both")
    await members.stop(1)
    assert await members.leader() == 2
    assert await members.bodies(2) == [b"alone", b"both"]
    await members.start(1)
    await members.in_sync(1, 2)
    assert await members.send(2, b"again") == OK
    await members.same(1, 2)
    await members.shows_bodies(1, b"alone", b"both", b"again")


async def test_what_a_member_in_sync_does_not_have_is_shown_to_no_consumer(members: Members) -> None:
    first = await members.start(1, slave_timeout_ms=300)
    await members.leader()
    await members.start(2)
    await members.in_sync(1, 2)
    assert await members.send(1, b"both") == OK
    await members.shows_bodies(2, b"both")
    assert first.broker is not None
    in_sync = first.broker.term.in_sync
    assert in_sync is not None
    commit, in_sync._commit = in_sync._commit, members.no_answer
    in_sync.members.add(3)  # which has nothing yet
    assert await members.send(1, b"not at 3") == ResponseCode.FLUSH_SLAVE_TIMEOUT
    await members.same(1, 2)
    await asyncio.sleep(5 * VISIBLE_END_DELAY_S)
    assert await members.bodies(1) == await members.bodies(2) == [b"both"]
    in_sync._commit = commit
    await members.shows_bodies(1, b"both", b"not at 3")
    await members.shows_bodies(2, b"both", b"not at 3")


async def test_what_only_the_former_master_has_is_put_aside_and_its_log_becomes_the_new_masters(
    members: Members,
) -> None:
    await members.second_leads()
    with members.store(1) as store:  # as if it had died with this on its way to the slave
        put(store, b"mine alone", "orders")
    assert await members.send(2, b"the next") == ResponseCode.SLAVE_NOT_AVAILABLE
    await members.start(1)
    await members.in_sync(1, 2)
    await members.same(1, 2)
    assert await members.bodies(1) == [b"both", b"the next"]
    (aside,) = (members.settings(1).store_path / "set-aside").glob("*.forked")
    assert b"mine alone" in aside.read_bytes()


async def test_a_log_is_not_cut_below_what_all_in_sync_had_acknowledged(
    members: Members, caplog: pytest.LogCaptureFixture
) -> None:
    await members.second_leads()
    before = members.log(1)
    key = f"/sparrowmq/DefaultCluster/{members.name}/state"
    found = GroupState.decode((await members.ask.below(key))[key].value)
    first, (epoch, _) = found.begins
    lost = structs.replace(found, begins=(first, (epoch, 0)))  # as if it had been elected with an empty log
    await members.ask.change({}, {key: lost.encode()})
    with caplog.at_level(logging.CRITICAL):
        await members.start(1)
    (told,) = [each.message for each in caplog.records if each.levelno == logging.CRITICAL]
    assert f"up to offset 0; all members in sync had the log up to {len(before)}" in told
    assert "is not followed: it has lost messages that we have" in await members.problem(1)
    await asyncio.sleep(1.5)
    assert members.log(1) == before and not (members.settings(1).store_path / "set-aside").exists()


async def test_who_is_not_in_sync_does_not_become_the_master(members: Members) -> None:
    await members.two_in_sync()
    await members.stop(2)
    await members.in_sync(1)
    assert await members.send(1, b"alone") == ResponseCode.SLAVE_NOT_AVAILABLE
    await members.stop(1)
    second = await members.start(2)
    await asyncio.sleep(1.5)
    assert not second.leads
    await members.start(1)
    assert await members.leader() == 1
    await members.in_sync(1, 2)
    await members.same(1, 2)


@pytest.mark.slow
async def test_a_member_in_sync_that_comes_back_empty_is_not_elected_and_cuts_nobody(
    members: Members, caplog: pytest.LogCaptureFixture
) -> None:
    await members.two_in_sync()
    assert await members.send(1, b"both") == OK
    await members.power_cut(1, 2)
    members.take_disk(2)
    second = await members.start(2)
    await asyncio.sleep(2 * LEASE_S + 1.5)  # so long it lets others go first anyway
    assert not second.leads
    (told,) = [each.message for each in caplog.records if each.levelno == logging.CRITICAL]
    assert "not elected, though in sync: this is not the store that was" in told
    assert "never was part of one" in told and re.search(r"in sync: 1 at [\d.:]+, 2", told)
    assert "not elected, though in sync: this is not the store" in await members.problem(2)
    await members.start(1)
    assert await members.leader() == 1
    await members.in_sync(1, 2)
    await members.same(1, 2)
    assert await members.bodies(1) == [b"both"]
    assert not (members.settings(1).store_path / "set-aside").exists()


async def test_the_only_one_in_sync_is_not_elected_without_its_disk_and_is_with_it(members: Members) -> None:
    await members.two_in_sync()
    await members.stop(1)
    assert await members.leader(2) == 2
    assert await members.send(2, b"alone") == ResponseCode.SLAVE_NOT_AVAILABLE
    await members.stop(2)
    members.take_disk(2)
    first, second = await members.start(1), await members.start(2)
    await asyncio.sleep(1.5)
    assert not first.leads and not second.leads
    await members.stop(2)
    members.give_disk_back(2)
    await members.start(2)
    assert await members.leader() == 2
    await members.in_sync(1, 2)
    await members.same(1, 2)
    assert await members.bodies(2) == [b"alone"]


async def test_who_dies_before_it_wrote_down_that_it_was_elected_is_elected_again(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(own: OwnEpoch, epoch: int, line: str) -> None:
        raise RuntimeError("as if the process ended here")

    with monkeypatch.context() as broken:
        broken.setattr(Member, "_end_earlier_life", never)  # the key stays until the lease has ended
        await members.start(1)
        await members.leader()
        await members.power_cut(1)
        broken.setattr(OwnEpoch, "save", dies)
        await members.start(1)
        with pytest.raises(RuntimeError, match="ended here"):
            await asyncio.wait_for(members.task(1), 30)
        with suppress(RuntimeError):
            await members.stop(1)
    assert OwnEpoch.load(members.settings(1).config_path).epoch == 1
    await members.start(1)
    assert await members.leader() == 1
    assert OwnEpoch.load(members.settings(1).config_path).epoch == 3


async def test_a_member_that_etcd_still_has_in_sync_gets_nothing_by_a_new_connection(
    members: Members,
) -> None:
    first = await members.start(1)
    await members.leader()
    await members.start(2)
    await members.in_sync(1, 2)
    assert await members.send(1, b"both") == OK
    assert first.broker is not None
    in_sync = first.broker.term.in_sync
    assert in_sync is not None
    commit, in_sync._commit = in_sync._commit, members.no_answer
    await members.power_cut(2)
    members.take_disk(2)
    await members.start(2)
    await asyncio.sleep(1.5)
    own = OwnEpoch.load(members.settings(2).config_path)
    assert (own.epoch, members.log(2)) == (0, b"")
    in_sync._commit = commit
    await members.in_sync(1, 2)
    await members.same(1, 2)


async def test_a_log_that_was_never_part_of_an_epoch_is_not_cut_not_mixed_and_not_shown(
    members: Members, caplog: pytest.LogCaptureFixture
) -> None:
    await members.start(1)
    await members.leader()
    assert await members.send(1, b"its own") == ResponseCode.SLAVE_NOT_AVAILABLE
    with members.store(2) as store:
        for number in range(50):
            put(store, b"other %d" % number, "orders")
    before = members.log(2)
    with caplog.at_level(logging.CRITICAL):
        await members.start(2)
        async with asyncio.timeout(20):
            while not any("is not followed any more" in each.message for each in caplog.records):
                await asyncio.sleep(0.02)
    assert "the master's log differs from ours between" in await members.problem(2)
    assert members.log(2) == before
    assert not (members.settings(2).store_path / "set-aside").exists()
    assert await members.bodies(2) == []
    await members.in_sync(1)


async def test_a_second_broker_with_the_same_id_ends_and_says_so(members: Members, tmp_path: Path) -> None:
    await members.start(1)
    await members.leader()
    ports = free_ports(2)
    twin = replace(members.settings(1), store_path=tmp_path / "twin", port=ports[0], ha_port=ports[1])
    with pytest.raises(ConfigError, match="each member needs its own"):
        async with asyncio.timeout(20), Member(twin) as second:
            await second.serve()
    assert await members.leader() == 1


async def test_a_broker_on_a_copy_of_its_store_does_not_take_a_masters_place(members: Members, tmp_path: Path) -> None:
    first = await members.start(1)
    await members.leader()
    assert await members.send(1, b"one") == ResponseCode.SLAVE_NOT_AVAILABLE
    backup(members.settings(1).store(members.settings(1).port), tmp_path / "copy", Disk())
    ports = free_ports(2)
    twin = replace(members.settings(1), store_path=tmp_path / "copy", port=ports[0], ha_port=ports[1])
    with pytest.raises(ConfigError, match="each member needs its own"):
        async with asyncio.timeout(20), Member(twin) as second:
            await second.serve()
    assert first.leads


async def test_a_master_whose_place_is_taken_though_its_lease_lives_leads_no_more(members: Members) -> None:
    first = await members.start(1)
    await members.leader()
    key = f"/sparrowmq/DefaultCluster/{members.name}/leader"
    await members.ask.change({}, {}, deletes=[key])  # as a process does that takes it for an earlier life of its own
    async with asyncio.timeout(LEASE_S):
        while first.leads:
            await asyncio.sleep(0.02)
    assert await members.send(await members.leader(), b"after") in ANSWERED


@pytest.mark.slow
async def test_without_etcd_a_master_goes_on_for_its_lease_and_then_refuses_until_etcd_is_back(
    tmp_path: Path,
) -> None:
    with LiveEtcd() as own:
        members = Members(tmp_path, own, "broker-a")
        try:
            first = await members.start(1)
            await members.leader()
            await members.start(2)
            await members.in_sync(1, 2)
            own.kill()
            assert await members.send(1, b"in its lease") == OK
            async with asyncio.timeout(20):
                while await members.send(1, b"x", "probe") == OK:
                    assert first.leads
                    await asyncio.sleep(0.05)
            async with asyncio.timeout(20):
                while first.broker is None or not first.broker.settings_now.is_slave:
                    await asyncio.sleep(0.05)
            assert await members.bodies(1) == []  # What only it has nobody may read.
            own.restart()
            number = await members.leader()
            await members.in_sync(1, 2)
            assert await members.send(number, b"after") == OK
        finally:
            await members.stop_all()


async def test_what_is_not_ours_in_etcd_is_told_once_and_waited_out(
    members: Members, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sparrowmq.broker.member")
    key = f"/sparrowmq/DefaultCluster/{members.name}/state"
    await members.ask.change({}, {key: b"nonsense"})
    member = await members.start(1)
    async with asyncio.timeout(20):
        while "set another etcdPrefix" not in caplog.text:
            await asyncio.sleep(0.02)
    assert not member.leads
    await members.ask.change({}, {}, deletes=[key])
    assert await members.leader() == 1
    async with asyncio.timeout(20):
        while "etcd answers again" not in caplog.text:
            await asyncio.sleep(0.02)
    assert caplog.text.count("the master is unknown") == 1


async def test_doubt_about_a_store_ends_once_its_log_is_proved_and_not_before(members: Members) -> None:
    await members.two_in_sync()
    await members.power_cut(1, 2)
    folder = members.settings(2).config_path
    OwnEpoch.load(folder).note_doubt("it lost power")
    await members.start(2)
    await members.shows(2, "it lost power, and no other member in sync runs")
    await members.start(1)
    await members.in_sync(1, 2)
    async with asyncio.timeout(20):
        while OwnEpoch.load(folder).doubt:
            await asyncio.sleep(0.02)


async def test_a_master_of_another_line_is_followed_though_its_epoch_has_the_same_number(
    members: Members,
) -> None:
    """As after etcd has lost its data: an operator begins a line at a member that did not know the last epoch."""
    prefix = f"/sparrowmq/DefaultCluster/{members.name}/"

    async def elected(number: int) -> Leader:
        to = members.settings(number)
        leader = Leader(
            member=number,
            epoch=7,
            store=f"store of {number}",
            address=to.address(to.port),
            shipping=to.ha_address(to.ha_port or 0),
        )
        state = GroupState(epoch=7, line=f"line of {number}", leader=number, in_sync=(number,), begins=((7, 0),))
        await members.ask.change({}, {prefix + "leader": leader.encode(), prefix + "state": state.encode()})
        return leader

    async with Member(members.settings(3)) as member:
        for number in (1, 2):
            leader = await elected(number)
            await member._change_role_if_needed()
            term = member.broker.term if member.broker is not None else None
            assert term is not None and term.leader == leader


async def test_settings_read_anew_count_now_and_in_the_next_role(members: Members) -> None:
    member = await members.start(1)
    assert await members.leader() == 1
    member.reload(replace(members.settings(1), max_message_bytes=999, port=1))
    assert await members.send(1, b"x" * 1000) == ResponseCode.MESSAGE_ILLEGAL
    assert member.leads and member.settings.max_message_bytes == 999
    assert member.settings.port == members.settings(1).port


async def test_settings_that_are_reloaded_while_a_member_changes_its_role_count_in_that_role(
    members: Members,
) -> None:
    member = await members.start(1)
    assert await members.leader() == 1
    member._is_deposed = True
    member._wake.set()
    async with asyncio.timeout(20):
        while member.broker is not None:
            await asyncio.sleep(0)
    member.reload(replace(members.settings(1), max_message_bytes=999))
    assert await members.leader() == 1
    assert await members.send(1, b"x" * 1000) == ResponseCode.MESSAGE_ILLEGAL
