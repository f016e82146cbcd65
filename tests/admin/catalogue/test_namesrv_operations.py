import pytest

from sparrowmq.admin import catalogue as namesrv
from sparrowmq.errors import RemoteError


async def test_brokers_and_routes_are_found_with_and_without_an_address(two, admin):
    await admin.create_topic("orders", queues=1)
    for address in (None, two.namesrv):
        table = await namesrv.cluster_table(admin.servers, address)
        assert set(table.broker_addr_table) == {"broker-0", "broker-1"}
        route = await namesrv.topic_route(admin.servers, "orders", address)
        assert route is not None
        assert {each.broker_name for each in route.queue_datas} == {"broker-0", "broker-1"}
        assert await namesrv.topic_route(admin.servers, "absent", address) is None
    assert "orders" in await namesrv.topic_names(admin.servers)
    assert "orders" in await namesrv.topic_names(admin.servers, "DefaultCluster")


async def test_a_value_is_put_found_and_deleted(two, admin):
    await namesrv.put_value(admin.servers, two.namesrv, "space", "key", "value")
    assert await namesrv.value_of(admin.servers, "space", "key") == "value"
    await namesrv.delete_value(admin.servers, two.namesrv, "space", "key")
    with pytest.raises(RemoteError):
        await namesrv.value_of(admin.servers, "space", "key")


async def test_a_name_server_reports_its_settings(two, admin):
    assert "listenPort" in await namesrv.namesrv_settings(admin.servers, two.namesrv)
