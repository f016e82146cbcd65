"""What a master's answers say about its slaves: a whole broker on real sockets, and slaves by their bytes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.broker.broker_settings import BrokerRole
from sparrowmq.broker.failover.in_sync import InSync
from sparrowmq.broker.replication import ha_master
from sparrowmq.core import descriptors
from sparrowmq.errors import RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.names import STATE_TOPIC
from sparrowmq.protocol.requests.admin_headers import GetHaStatus
from sparrowmq.protocol.requests.bodies import HaStatus
from sparrowmq.protocol.requests.headers import SendMessageReply
from sparrowmq.protocol.requests.namesrv_headers import RegisterBroker
from sparrowmq.protocol.requests.registration_bodies import RegisterBrokerBody
from sparrowmq.remoting.pool import Pool
from sparrowmq.store.store_settings import Flush
from tests.broker.conftest import until
from tests.broker.live import Live, live_broker
from tests.broker.members import Members
from tests.broker.metrics.visits import ON, samples, visit
from tests.broker.replication.slaves import ScriptedSlave, slave_at
from tests.broker.test_safety import Held
from tests.broker.told import conditions_of, shows
from tests.interop.etcd import needs_etcd

BOTH = {"role": BrokerRole.SYNC_MASTER, "flush": Flush.ASYNC}


@asynccontextmanager
async def master(path: Path, **settings: Any) -> AsyncIterator[Live]:
    async with live_broker(path, **(BOTH | settings)) as live:
        yield live


@asynccontextmanager
async def following(live: Live) -> AsyncIterator[ScriptedSlave]:
    """A slave that has nothing, as its master has, and is known to it."""
    async with slave_at(live.broker.ha_address) as slave:
        slave.report(0)
        assert await slave.piece() == (0, b"")
        yield slave


async def code_of(send: Awaitable[SendMessageReply]) -> int:
    try:
        await send
    except RemoteError as error:
        return error.code
    return 0


async def test_without_a_slave_a_synchronous_master_starts_stores_and_says_so_at_once(tmp_path: Path) -> None:
    async with master(tmp_path, slave_timeout_ms=60_000) as live:
        with pytest.raises(RemoteError, match="no slave is connected") as told:
            await asyncio.wait_for(live.send(b"kept"), 10)
        assert told.value.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert [each.body for each in await live.messages()] == [b"kept"]


@pytest.mark.parametrize("secret", [None, "x" * 19, "x" * 20])
async def test_a_secret_that_strangers_could_guess_is_a_condition(tmp_path: Path, secret: str | None) -> None:
    async with master(tmp_path, ha_secret=secret) as live:
        assert ("secret_short" in await conditions_of(live.broker.address)) is (secret == "x" * 19)


async def test_a_master_with_accounts_and_no_secret_serves_clients_lets_no_slave_in_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text("accounts: []\nglobalWhiteRemoteAddresses: ['127.0.0.1']\n")
    async with master(tmp_path / "store", acl=True, acl_file=accounts, **ON) as live:
        status, text = await visit(live.broker.metrics_address, "/readyz")
        assert status == 200 and "secret_missing: no slave is let in" in text and "no_slave: " in text
        async with slave_at(live.broker.ha_address) as slave:
            slave.report(0)
            assert await slave.heard() == b""
        assert "haSecret is not set" in caplog.text
        assert await code_of(live.send(b"kept")) == ResponseCode.SLAVE_NOT_AVAILABLE
        assert [each.body for each in await live.messages()] == [b"kept"]


async def test_an_answer_waits_until_a_slave_says_that_it_has_the_message(tmp_path: Path) -> None:
    async with master(tmp_path) as live, following(live) as slave:
        sending = asyncio.ensure_future(code_of(live.send(b"first")))
        offset, content = await slave.piece()
        *journal, first = [record.decode(each) for each in record.walk(memoryview(content))]
        assert first.body == b"first" and {each.topic for each in journal} == {STATE_TOPIC}
        slave.report(offset + len(content) - 1)
        await asyncio.sleep(0.05)
        assert not sending.done()
        slave.report(offset + len(content))
        assert await sending == ResponseCode.SUCCESS


async def test_the_first_report_of_a_slave_acknowledges_nothing(tmp_path: Path) -> None:
    async with master(tmp_path) as live, following(live) as slave:
        sending = asyncio.ensure_future(code_of(live.send(b"first")))
        offset, content = await slave.piece()
        end = offset + len(content)
        async with slave_at(live.broker.ha_address) as other:
            other.report(end)  # it may find that its log differs
            assert await other.piece() == (end, b"")
            await asyncio.sleep(0.05)
            assert not sending.done()
            other.report(end)
            assert await sending == ResponseCode.SUCCESS


async def test_state_of_replication_is_shown_at_both_ends(tmp_path: Path) -> None:
    async with master(tmp_path, role=BrokerRole.ASYNC_MASTER) as live, following(live) as slave:
        await live.send(b"x" * 1000)
        offset, content = await slave.piece()
        end = offset + len(content)
        status = HaStatus.decode((await live.session.call(GetHaStatus())).body)
        (shown,) = status.ha_connection_info
        assert status.master and status.in_sync_slave_nums == 1
        assert (status.master_commit_log_max_offset, shown.slave_ack_offset, shown.diff) == (end, 0, end)
        assert shown.in_sync and shown.transfer_from_where == end and shown.addr.startswith("127.0.0.1:")


async def test_a_slave_that_lacks_nearest_slave_bytes_is_not_in_sync(tmp_path: Path) -> None:
    settings = {"role": BrokerRole.ASYNC_MASTER, "nearest_slave_bytes": 500}
    async with master(tmp_path, **settings) as live, following(live) as slave:
        await live.send(b"x" * 1000)
        offset, content = await slave.piece()
        for lacks, is_near in ((500, False), (499, True)):
            acked = offset + len(content) - lacks
            slave.report(acked)
            async with asyncio.timeout(10):
                shown = None
                while shown is None or shown.slave_ack_offset != acked:
                    status = HaStatus.decode((await live.session.call(GetHaStatus())).body)
                    (shown,) = status.ha_connection_info
            assert (shown.diff, shown.in_sync) == (lacks, is_near)


async def test_what_a_slave_lacks_is_told_in_bytes_and_as_time(tmp_path: Path) -> None:
    names = ("sparrowmq_slave_behind_bytes", "sparrowmq_slave_lag_seconds")

    async def told(live: Live) -> tuple[float, float]:
        found = await samples(live.broker.metrics_address)
        return found[names[0]][()], found[names[1]][()]

    async with master(tmp_path, role=BrokerRole.ASYNC_MASTER, **ON) as live, following(live) as slave:
        await live.send(b"one")
        offset, content = await slave.piece()
        behind, lag_s = await told(live)
        assert behind == len(content) and 0 < lag_s < 60
        slave.report(offset + len(content))
        async with asyncio.timeout(10):
            while await told(live) != (0, 0):
                pass


async def test_a_slave_that_is_far_behind_shows_until_it_has_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ha_master, "BEHIND_S", 0.1)
    async with master(tmp_path, role=BrokerRole.ASYNC_MASTER) as live, following(live) as slave:
        await shows(live.broker)
        await live.send(b"one")
        offset, content = await slave.piece()
        await shows(live.broker, "slave_behind")
        slave.report(offset + len(content))
        await shows(live.broker)


async def test_a_slave_that_is_behind_or_gone_is_named_by_its_address_as_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ha_master, "BEHIND_S", 0.1)
    monkeypatch.setattr(ha_master, "NAMES_S", 0.05)
    async with master(tmp_path, role=BrokerRole.ASYNC_MASTER, **ON) as live, following(live) as slave:

        async def ready() -> str:
            return (await visit(live.broker.metrics_address, "/readyz"))[1]

        pool = Pool(SystemClock())
        session = await pool.session(live.cluster.namesrv)
        registration = RegisterBroker("broker-0", "127.0.0.1:9", "DefaultCluster", "", 1)
        await session.call(registration, RegisterBrokerBody().encode())
        await live.send(b"one")
        await slave.piece()
        async with asyncio.timeout(20):
            while "slave 1 at 127.0.0.1:9 lacks " not in await ready():
                pass
        labels = (await samples(live.broker.metrics_address, "slave"))["sparrowmq_slave_behind_bytes"]
        assert set(labels) == {("127.0.0.1:9",)}
        slave.writer.close()
        async with asyncio.timeout(20):
            while "0 of 1 slaves follow; gone: slave 1 at 127.0.0.1:9\n" not in await ready():
                pass
        pool.close()


async def test_a_send_that_waits_long_for_its_slave_is_told_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with master(tmp_path, slow_request_ms=50) as live, following(live) as slave:
        sending = asyncio.ensure_future(live.send(b"one"))
        offset, content = await slave.piece()
        await asyncio.sleep(0.06)
        slave.report(offset + len(content))
        await sending
        (line,) = [line for line in caplog.messages if line.startswith("slow request ")]
        assert line.startswith("slow request SEND_MESSAGE_V2 of 127.0.0.1:") and "ms until it was safe)" in line


async def test_a_message_that_no_slave_acknowledges_in_time_is_stored_and_its_answer_says_so(
    tmp_path: Path,
) -> None:
    async with master(tmp_path, slave_timeout_ms=300) as live, following(live) as slave:
        with pytest.raises(RemoteError, match=r"not at a slave within 0\.3 s") as told:
            await live.send(b"kept")
        assert told.value.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert [each.body for each in await live.messages()] == [b"kept"]
        sending = asyncio.ensure_future(code_of(live.send(b"second")))
        offset, content = await slave.piece()
        while b"second" not in content:
            offset, content = await slave.piece()
        slave.report(offset + len(content))
        assert await sending == ResponseCode.SUCCESS


async def test_sends_that_wait_for_a_slave_wait_no_longer_when_it_leaves(tmp_path: Path) -> None:
    async with master(tmp_path, slave_timeout_ms=60_000) as live:
        async with following(live) as staying:
            async with following(live) as leaving:
                sending = [asyncio.ensure_future(code_of(live.send(b"%d" % number))) for number in range(3)]
                await leaving.piece()
            await staying.piece()
            await asyncio.sleep(0.1)
            assert not any(each.done() for each in sending)  # the other slave may still take them
        async with asyncio.timeout(30):
            assert set(await asyncio.gather(*sending)) == {ResponseCode.SLAVE_NOT_AVAILABLE}


async def test_a_slave_that_lacks_too_much_is_not_waited_for(tmp_path: Path) -> None:
    settings = {"slave_timeout_ms": 200, "nearest_slave_bytes": 5500}  # 2500 are the journal's
    async with master(tmp_path, **settings) as live, following(live):
        assert await code_of(live.send(bytes(1000))) == ResponseCode.FLUSH_SLAVE_TIMEOUT
        codes = [await code_of(live.send(bytes(1000))) for _ in range(3)]
        assert codes[0] == ResponseCode.FLUSH_SLAVE_TIMEOUT and codes[-1] == ResponseCode.SLAVE_NOT_AVAILABLE
        with pytest.raises(RemoteError, match=r"the nearest slave lacks \d+ bytes"):
            await live.send(b"x")


async def test_one_slave_that_has_it_is_enough(tmp_path: Path) -> None:
    async with master(tmp_path) as live, following(live) as quick, following(live) as slow:
        sending = asyncio.ensure_future(code_of(live.send()))
        offset, content = await quick.piece()
        assert await slow.piece() == (offset, content)
        quick.report(offset + len(content))
        assert await sending == ResponseCode.SUCCESS


async def test_a_message_that_does_not_want_to_wait_does_not(tmp_path: Path) -> None:
    async with master(tmp_path, slave_timeout_ms=60_000) as live:
        assert await code_of(live.send(properties={"WAIT": "false"})) == ResponseCode.SUCCESS


async def test_an_asynchronous_master_waits_for_no_slave_and_ships_all_the_same(tmp_path: Path) -> None:
    async with master(tmp_path, role=BrokerRole.ASYNC_MASTER) as live, following(live) as slave:
        assert await code_of(live.send(b"body")) == ResponseCode.SUCCESS
        _, content = await slave.piece()
        assert b"body" in content


@pytest.mark.parametrize("flush", [Flush.SYNC, Flush.ASYNC])
async def test_with_sync_flush_nothing_is_shipped_before_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: Flush
) -> None:
    async with master(tmp_path, flush=flush, role=BrokerRole.ASYNC_MASTER) as live, following(live) as slave:
        await live.send(b"first")
        await slave.piece()
        disk = Held(monkeypatch)
        sending = asyncio.ensure_future(live.send(b"second"))
        shipped = asyncio.ensure_future(slave.piece())
        if flush is Flush.SYNC:
            assert await asyncio.to_thread(disk.began.wait, 10)
            await asyncio.sleep(0.05)
            assert not shipped.done()
        else:
            await shipped
        disk.may_go_on.set()
        await sending
        assert b"second" in (await shipped)[1]


async def test_with_sync_flush_a_lost_disk_is_told_and_no_slave_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = None
    async with (
        master(tmp_path, flush=Flush.SYNC, safety_timeout_ms=300, slave_timeout_ms=60_000) as live,
        following(live) as slave,
    ):
        sending = asyncio.ensure_future(code_of(live.send(b"first")))
        offset, content = await slave.piece()
        slave.report(offset + len(content))
        assert await sending == ResponseCode.SUCCESS
        disk = Held(monkeypatch)
        assert await code_of(live.send(b"second")) == ResponseCode.FLUSH_DISK_TIMEOUT
        disk.may_go_on.set()


async def test_the_oldest_stranger_makes_room_for_a_slave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "MAX_SLAVES", 3)
    async with master(tmp_path) as live, following(live) as slave:
        strangers = [await asyncio.open_connection(*address(live)) for _ in range(3)]
        async with following(live) as other:
            sending = asyncio.ensure_future(code_of(live.send()))
            offset, content = await other.piece()
            assert await slave.piece() == (offset, content)
            slave.report(offset + len(content))
            assert await sending == ResponseCode.SUCCESS
            assert await asyncio.wait_for(strangers[0][0].read(1), 10) == b""
        for _, writer in strangers:
            writer.close()


async def test_strangers_who_keep_talking_do_not_displace_a_slave_that_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "MAX_SLAVES", 3)
    async with master(tmp_path) as live:
        strangers = [await asyncio.open_connection(*address(live)) for _ in range(2)]
        async with slave_at(live.broker.ha_address) as slave:
            for _, writer in strangers:
                writer.write(b"a")
            await code_of(live.send())  # meanwhile the master has read these bytes
            strangers.append(await asyncio.open_connection(*address(live)))
            slave.report(0)
            assert (await slave.piece())[0] == 0
        for _, writer in strangers:
            writer.close()


async def test_connections_that_come_in_one_turn_do_not_exceed_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "MAX_SLAVES", 3)
    async with master(tmp_path) as live:
        strangers = [socket.socket() for _ in range(12)]
        for each in strangers:
            each.settimeout(10)
            each.connect(address(live))  # the kernel accepts it, and the event loop sees all of them at once
            each.setblocking(False)
        await until(lambda: sum(map(is_ended, strangers)) == len(strangers) - 3)
        for each in strangers:
            each.close()


def is_ended(connection: socket.socket) -> bool:
    """Return whether the master has ended a connection on which it sends nothing."""
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def address(live: Live) -> tuple[str, int]:
    host, _, port = live.broker.ha_address.rpartition(":")
    return host, int(port)


async def test_when_the_master_ends_its_slaves_are_let_go(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        async with master(tmp_path) as live:
            slave = await stack.enter_async_context(following(live))
        assert await slave.is_let_go()


@needs_etcd
async def test_a_member_that_does_not_come_back_after_an_election_shows_at_the_new_master(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> str:
        broker = members.member(2).broker
        assert broker is not None
        return {each.kind.name: each.facts for each in broker._conditions.current()}.get("slave_gone", "")

    await members.second_leads()
    monkeypatch.setattr(ha_master, "FOLLOW_S", 1e9)
    assert gone() == ""  # it has some time to come
    monkeypatch.setattr(ha_master, "FOLLOW_S", 0.0)
    assert gone() == "0 of 1 slaves follow; gone: member 1"
    with monkeypatch.context() as lead_lost_error:
        lead_lost_error.setattr(InSync, "leads", False)
        assert gone() == "", "it is about to become a slave"
    await members.start(1)
    await members.in_sync(1, 2)
    assert gone() == ""
