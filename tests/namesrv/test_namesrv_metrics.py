"""A name server's metrics."""

import pytest

from sparrowmq.admin.findings import Verdict
from sparrowmq.client.client import connect
from sparrowmq.errors import SparrowError
from sparrowmq.testing import Cluster
from tests.broker.metrics.visits import ON, samples, visit


async def test_brokers_topics_and_connections_are_counted(tmp_path):
    async with Cluster(tmp_path, brokers=2, namesrv_settings=ON) as cluster, connect(cluster.namesrv) as mq:
        address = cluster._namesrv.metrics_address
        before = await samples(address, "cluster")
        await mq.admin.create_topic("t")
        found = await samples(address, "cluster")
        assert found["sparrowmq_namesrv_brokers"] == {("DefaultCluster",): 2}
        assert found["sparrowmq_namesrv_topics"][()] == before["sparrowmq_namesrv_topics"][()] + 1
        assert found["sparrowmq_connections"][()] == 3
        took = await samples(address, "request_code", "response_code")
        assert took["rocketmq_rpc_latency_milliseconds_count"][("register_broker", "success")] >= 2
        assert await visit(address, "/readyz") == (200, "ok\n")


async def test_there_is_no_such_port_unless_asked_for(tmp_path):
    async with Cluster(tmp_path) as cluster:
        assert cluster._namesrv.metrics_address == ""


async def test_what_is_wrong_with_a_name_server_shows_in_every_place(tmp_path, eventually, caplog):
    caplog.set_level("INFO", "sparrowmq")
    folder = tmp_path / "values"
    settings = ON | {"kv_path": folder / "kvConfig.json"}
    async with Cluster(tmp_path, namesrv_settings=settings) as cluster, connect(cluster.namesrv) as mq:
        await mq.admin.create_topic("orders", ordered=True)
        address, away = cluster._namesrv.metrics_address, tmp_path / "away"
        folder.rename(away)
        folder.write_text("a file")
        with pytest.raises(SparrowError):
            await mq.admin.create_topic("payments", ordered=True)
        status, text = await visit(address, "/readyz")
        assert status == 200 and "values_not_saved: " in text
        conditions = (await samples(address, "condition", "severity"))["sparrowmq_condition"]
        assert conditions == {("values_not_saved", "warning"): 1}
        (found,) = [each for each in await mq.admin.examine() if "values_not_saved" in each.what]
        assert found.verdict is Verdict.WRONG and found.what.startswith("name server ")
        assert "kvConfigPath" in (found.mend or "")
        folder.unlink()
        away.rename(folder)
        await eventually(lambda: "condition values_not_saved is over" in caplog.text)
        assert await visit(address, "/readyz") == (200, "ok\n")


async def test_settings_that_let_clients_without_a_certificate_in_are_a_notice_of_both_servers(tmp_path, caplog):
    both = ON | {"checks_client": True}
    async with Cluster(tmp_path, namesrv_settings=both, **both) as cluster, connect(cluster.namesrv) as mq:
        for address in (cluster._namesrv.metrics_address, cluster.brokers[0].metrics_address):
            status, text = await visit(address, "/readyz")
            assert status == 200 and text.startswith("ok\ncertificates_not_required: tls.server.authClient=true wit")
        found = [each for each in await mq.admin.examine() if "certificates_not_required" in each.what]
        assert [each.verdict for each in found] == [Verdict.WARNING] * 2
        assert all("tls.server.need.client.auth=require" in each.mend for each in found)
    assert caplog.text.count("condition certificates_not_required: ") == 2
