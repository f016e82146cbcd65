"""A cluster in the test's process: quick, real, gone afterwards."""

from pathlib import Path

import pytest

from sparrowmq.client.client import connect
from sparrowmq.errors import BrokerUnreachable
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.requests.bodies import TopicRoute
from sparrowmq.protocol.requests.namesrv_headers import GetRoute
from sparrowmq.remoting.pool import Pool
from sparrowmq.store.vfs import Disk
from sparrowmq.testing import Cluster, ManualClock


async def brokers_of(topic: str, namesrv: str) -> set[str]:
    pool = Pool(SystemClock())
    try:
        response = await (await pool.session(namesrv)).call(GetRoute(topic))
        return {broker.broker_name for broker in TopicRoute.decode(response.body).broker_datas}
    finally:
        pool.close()


async def test_every_broker_is_registered_when_the_context_is_entered(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=3) as cluster:
        assert await brokers_of("TBW102", cluster.namesrv) == {"broker-0", "broker-1", "broker-2"}


async def test_nothing_listens_any_more_afterwards(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        addresses = [cluster.namesrv, cluster.brokers[0].address]
    for address in addresses:
        with pytest.raises(BrokerUnreachable):
            await Pool(SystemClock()).session(address)


async def test_settings_reach_every_broker(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=2, auto_create_topic=False) as cluster:
        assert [broker.settings.auto_create_topic for broker in cluster.brokers] == [False, False]


async def test_on_a_nearly_full_disk_messages_are_taken_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Disk, "used_ratio", lambda disk, path: 0.94)
    clock = ManualClock()
    async with Cluster(tmp_path, clock=clock) as cluster, connect(cluster.namesrv) as mq:
        await clock.advance(11)  # the store looks at its disk every ten seconds
        await mq.send("t", b"body")
