"""The role of a broker in replication."""

from __future__ import annotations

from pathlib import Path

from sparrowmq.loop.clock import SystemClock
from sparrowmq.remoting.pool import Pool
from tests.broker.replication.pairs import pair


async def test_a_slave_knows_its_master_also_without_a_name_server(tmp_path: Path) -> None:
    unconnected = Pool(SystemClock())
    unconnected.close()
    async with pair(tmp_path) as both, Pool(SystemClock()) as pool:
        master = await both.start("master")
        slave = await both.start("slave")
        await both.send(b"one")
        await both.same()
        assert list(await slave._role.peers(unconnected)) == [master.address]
        assert (await master._role.peers(pool)) == [slave.address]


async def test_a_broker_without_a_port_for_slaves_leads_alone(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        master = await both.start("master", ha_port=0)
        await both.send(b"one")
        status = master._role.status()
        assert (status.master, status.master_commit_log_max_offset) == (True, master.store.end)
        assert status.ha_connection_info == [] and master._role.problem == ""
        assert master.stop_following() == master.store.end
