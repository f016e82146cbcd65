"""A slave follows its master, whole brokers both: through restarts, other addresses, silence; or stops."""

from __future__ import annotations

import asyncio
import io
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from sparrowmq.broker.broker_settings import BrokerRole, SlaveAck
from sparrowmq.broker.replication import ha_slave
from sparrowmq.broker.replication.ha_slave import COMPARE_AGAIN_S, HaSlave, HaSlaveRules
from sparrowmq.cli.mqadmin.main import run as mqadmin
from sparrowmq.errors import LogsDiffer, RemoteError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.metrics.figures import Figures
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.names import OP_HALF_TOPIC
from sparrowmq.protocol.requests.headers import EndTransaction
from sparrowmq.protocol.signature import signer
from sparrowmq.remoting.pool import Pool
from sparrowmq.store.message_store import MessageStore
from sparrowmq.testing.clock import ManualClock
from tests.broker.conftest import until
from tests.broker.live import send_request
from tests.broker.replication.masters import scripted_master
from tests.broker.replication.pairs import Pair, pair
from tests.broker.replication.proxies import wire_to
from tests.interop.apache import free_ports
from tests.store.conftest import stores as stores
from tests.store.stores import Stores, put


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ha_slave, "PAUSE_S", 0.2)


async def test_a_slave_finds_its_master_by_the_name_server_and_takes_its_log(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.start("master")
        for number in range(20):
            await both.send(b"%d" % number)
        await both.start("slave")
        await both.same()
        await until(lambda: len(both.log("slave")) > 0)
        await both.send(b"last")
        await both.same()
        assert (await both.bodies("slave", max_msg_nums=32))[-1] == b"last"


async def test_tool_shows_the_state_of_replication_at_both_ends(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        master = await both.start("master")
        await both.start("slave")
        await both.send(b"x" * 1000)
        await both.same()
        end = len(both.log("master"))

        async def shown(who: str) -> list[str]:
            address = getattr(both, f"{who}_settings").port
            out = io.StringIO()
            words = ["haStatus", "-b", f"127.0.0.1:{address}", "-n", both.namesrv]
            assert await asyncio.to_thread(mqadmin, words, out, io.StringIO()) == 0
            return out.getvalue().splitlines()

        while (row := (await shown("master"))[-1].split())[2] != "0":
            await asyncio.sleep(0.05)
        assert (row[1], row[4], row[5]) == (str(end), "OK", str(end))
        of_slave = await shown("slave")
        assert f"#MasterAddr\t{master.ha_address}" in of_slave
        assert f"#CommitLogMaxOffset\t{end}" in of_slave and f"#MasterFlushOffset\t{end}" in of_slave
        (read,) = [line for line in of_slave if line.startswith("#LastReadTime\t")]
        assert abs(datetime.fromisoformat(read.split("\t")[1]) - datetime.now()) < timedelta(minutes=5)


@pytest.mark.parametrize("ack", SlaveAck)
async def test_a_synchronous_masters_answers_say_that_the_slave_has_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ack: SlaveAck
) -> None:
    caplog.set_level("INFO")
    async with pair(tmp_path) as both:
        await both.start("master", role=BrokerRole.SYNC_MASTER, slave_timeout_ms=20_000)
        with pytest.raises(RemoteError) as told:
            await both.send(b"alone")
        assert told.value.code == ResponseCode.SLAVE_NOT_AVAILABLE
        await both.start("slave", slave_ack=ack)
        await both.same()
        for number in range(5):
            await both.send(b"%d" % number)
            assert b"%d" % number in both.log("slave")
        await both.stop("slave")
        await until(lambda: "has gone" in caplog.text)
        with pytest.raises(RemoteError) as told:
            await both.send(b"alone again")
        assert told.value.code == ResponseCode.SLAVE_NOT_AVAILABLE


async def test_a_slave_goes_on_where_it_was_when_either_of_them_comes_back(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.start("master")
        await both.start("slave")
        await both.send(b"one")
        await both.same()
        await both.stop("slave")
        await both.send(b"two")
        await both.start("slave")
        await both.same()
        await both.stop("master")
        assert await both.bodies("slave") == [b"one", b"two"]  # served without a master
        await both.start("master")
        await both.send(b"three")
        await both.same()


async def test_a_slave_soon_follows_its_master_to_another_address(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.start("master")
        await both.start("slave")
        await both.send(b"one")
        await both.same()
        await both.stop("master")
        moved = free_ports(2)[0]
        both.master_settings = replace(both.master_settings, port=moved)
        await both.start("master")
        await both.send(b"two")
        await both.same(limit_s=15)


async def test_a_slave_that_is_there_before_its_master_soon_finds_it(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.start("slave")
        await both.start("master")
        await both.send(b"one")
        await both.same()


async def test_a_transaction_whose_end_came_in_part_is_not_ended_by_a_slave(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        await both.start("master")
        half = send_request("orders", properties={"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": "k"}, sys_flag=4)
        sent = await (await both.session("master")).call(half, b"half")
        offset = int(sent.header.msg_id[-16:], 16)
        end = EndTransaction("p", sent.header.queue_offset, offset, 8, sent.header.msg_id)
        await (await both.session("master")).call(end)
        await both.stop("master")
        whole = both.log("master")
        records = [(bytes(each), record.decode(each).topic) for each in record.walk(memoryview(whole))]
        topics = [topic for _, topic in records]
        # The half message and that of the commit, without what says that it has ended.
        parts = [each for each, _ in records[: topics.index(OP_HALF_TOPIC)]]
        assert topics[len(parts) - 1] == "orders"
        with MessageStore.open(both.slave_settings.store(1)) as store:
            store.follow(0, b"".join(parts))
        await both.start("slave")
        await both.stop("slave")
        assert both.log("slave") == b"".join(parts)
        await both.start("master")
        await both.start("slave")
        await both.same()


async def test_hamasteraddress_counts_whatever_name_servers_say(tmp_path: Path) -> None:
    async with scripted_master() as other, pair(tmp_path) as both:
        await both.start("master")
        await both.send(b"one")
        await both.start("slave", ha_master=other.address)
        assert await (await other.slave()).report() == 0
        assert both.log("slave") == b""


async def test_with_access_control_and_a_secret_the_log_is_followed(tmp_path: Path) -> None:
    accounts = tmp_path / "acl.yml"
    accounts.write_text('globalWhiteRemoteAddresses: ["127.0.0.1"]\naccounts: []\n')
    async with pair(tmp_path, acl=True, acl_file=accounts, ha_secret="Xq3") as both:
        await both.start("master")
        await both.send(b"one")
        await both.start("slave")
        await both.same()
        await both.stop("slave")
        await both.send(b"two")
        await both.start("slave", ha_secret="another")
        await asyncio.sleep(0.5)
        assert b"two" not in both.log("slave")


async def test_a_slave_with_an_account_of_brokers_copies_the_state_of_its_master(tmp_path: Path) -> None:
    accounts = tmp_path / "acl.yml"
    accounts.write_text(
        "accounts:\n  - {accessKey: brokers, secretKey: brokers-secret, broker: true, defaultTopicPerm: PUB}\n"
    )
    keys = {"access_key": "brokers", "secret_key": "brokers-secret"}
    async with pair(tmp_path, acl=True, acl_file=accounts, ha_secret="Xq3", **keys) as both:
        both.pool = Pool(SystemClock(), sign=signer(*keys.values()))
        await both.start("master")
        await both.send(b"one")
        await both.start("slave")
        await both.same()
        table = tmp_path / "slave" / "config" / "topics.json"
        await until(lambda: table.exists() and "orders" in table.read_text())


@pytest.mark.slow
async def test_a_network_that_is_cut_and_mended_costs_acknowledgements_and_no_message(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        settings = {"slave_timeout_ms": 300, "ha_silence_ms": 1000}
        master = await both.start("master", role=BrokerRole.SYNC_MASTER, **settings)
        async with wire_to(master.ha_address) as wire:
            await both.start("slave", ha_master=wire.address, ha_silence_ms=1000)
            await until(lambda: both.log("slave") == both.log("master"))
            for number in range(3):
                while await status(both, b"before %d" % number):
                    await asyncio.sleep(0.05)
                wire.is_whole.clear()
                assert await status(both, b"cut %d" % number) == ResponseCode.FLUSH_SLAVE_TIMEOUT
                if number:  # long enough that both hang up
                    await asyncio.sleep(1.5)
                    assert await status(both, b"lost") == ResponseCode.SLAVE_NOT_AVAILABLE
                wire.is_whole.set()
                await both.same()
            assert b"cut 2" in both.log("slave")


async def status(both: Pair, body: bytes) -> int:
    """The code of the answer to a send."""
    try:
        await both.send(body)
    except RemoteError as error:
        return error.code
    return 0


# One that is alone --------------------------------------------------------------------------------------------------


def alone(stores: Stores, address: str, **rules: object) -> tuple[HaSlave, ManualClock]:
    clock = ManualClock()
    store = stores.open(clock=clock)
    put(store)
    store.publish()
    given = HaSlaveRules(master=address, **rules)  # type: ignore[arg-type]
    return HaSlave(store, clock, given, Figures()), clock


async def test_logs_that_differ_are_an_alarm_and_never_looped_on(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_master() as master:
        following, clock = alone(stores, master.address)
        running = asyncio.ensure_future(following.run())
        slave = await master.slave()
        slave.ship(0, bytes(50))
        assert await slave.has_left()
        await until(lambda: following.alarm is not None)
        for _ in range(20):
            await clock.advance(60)
        assert master.count == 1 and not following.is_following
        running.cancel()
    (alarm,) = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert "nothing is discarded" in alarm.getMessage() and "start it again, empty" in alarm.getMessage()


async def test_an_elected_master_that_repaired_its_log_is_followed_after_all(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_master() as master:
        following, clock = alone(stores, master.address, introduction=b"a member")
        ours = bytes(following._store.log_bytes(0, following._store.end) or b"")
        running = asyncio.ensure_future(following.run())
        for _ in range(2):
            slave = await master.slave()
            slave.ship(0, bytes(50))
            assert await slave.has_left()
            await until(lambda: following.link is None and following.alarm is not None)
            for _ in range(3):
                await asyncio.sleep(0.01)
                await clock.advance(COMPARE_AGAIN_S / 2)
        repaired = await master.slave()
        repaired.ship(0, ours)
        await until(lambda: following.is_following)
        assert following.alarm is None and following.problem == ""
        running.cancel()
    assert len([record for record in caplog.records if record.levelname == "CRITICAL"]) == 1


async def test_logs_that_differ_are_compared_again_in_ten_seconds(stores: Stores) -> None:
    following, clock = alone(stores, "127.0.0.1:1", introduction=b"a member")
    following.alarm, following._differed_s = LogsDiffer("they differ"), clock.monotonic()
    assert not following._may_compare_again()
    await clock.advance(COMPARE_AGAIN_S)
    assert following._may_compare_again()


async def test_after_an_alarm_a_master_at_another_address_is_tried(stores: Stores) -> None:
    async with scripted_master() as wrong, scripted_master() as right:
        following, _ = alone(stores, "")
        following._rules = replace(following._rules, master=None)
        following.set_master(wrong.address)
        running = asyncio.ensure_future(following.run())
        slave = await wrong.slave()
        slave.ship(0, bytes(50))
        assert await slave.has_left()
        following.set_master(right.address)
        assert await (await right.slave()).report() == 0
        running.cancel()


async def test_a_master_that_says_nothing_is_left_and_tried_again(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_master() as master:
        following, clock = alone(stores, master.address, silence_s=3, report_s=1)
        running = asyncio.ensure_future(following.run())
        slave = await master.slave()
        for _ in range(3):
            await clock.advance(1.1)
            assert await slave.report() == 0  # its sign of life
        await clock.advance(2)
        assert await slave.has_left()
        await clock.advance(1)
        await master.slave()
        running.cancel()
    assert "it was silent for 3 s" in caplog.text


async def test_that_nobody_is_there_is_told_once_and_tried_again_and_again(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_ports(1)[0]
    following, clock = alone(stores, f"127.0.0.1:{port}")
    running = asyncio.ensure_future(following.run())
    for _ in range(5):
        await clock.advance(0.3)
        await asyncio.sleep(0.02)
    assert caplog.text.count("is not followed now; retrying") == 1
    async with scripted_master(port) as master:
        await clock.advance(0.3)
        await asyncio.wait_for(master.slave(), 10)
        running.cancel()


async def test_a_master_that_ends_the_connection_at_once_may_want_a_secret(
    stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_master() as master:
        following, _ = alone(stores, master.address)
        running = asyncio.ensure_future(following.run())
        (await master.slave()).writer.close()
        await until(lambda: "or set haSecret here" in caplog.text)
        running.cancel()
