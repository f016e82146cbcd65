from typing import Any

from sparrowmq.admin import catalogue as catalogue
from sparrowmq.client.client import connect
from sparrowmq.client.cluster.credentials import Credentials
from sparrowmq.protocol.requests.user_headers import Policy, PolicyRule, UserEntry
from sparrowmq.testing.cluster import Cluster

ADMIN = Credentials("admin", "secretOfAdmin")
ORDERS = [Policy("Custom", [PolicyRule("Topic:orders", ["Pub"], None, "Allow")])]


async def test_users_and_policies_are_created_changed_and_deleted(tmp_path):
    settings: dict[str, Any] = {
        "authentication": True,
        "first_user": '{"username":"admin","password":"secretOfAdmin"}',
    }
    async with (
        Cluster(tmp_path / "one", **settings) as cluster,
        connect(cluster.namesrv, credentials=ADMIN) as mq,
    ):
        servers, address = mq.admin.servers, cluster.brokers[0].address
        await catalogue.create_user(servers, address, UserEntry("alice", "secretOfAlice"))
        await catalogue.update_user(servers, address, UserEntry("alice", user_status="disable"))
        assert await catalogue.user(servers, address, "alice") == UserEntry(
            "alice", "secretOfAlice", "Normal", "disable"
        )
        assert [each.username for each in await catalogue.users(servers, address)] == ["admin", "alice"]
        assert len(await catalogue.users(servers, address, "ali")) == 1
        await catalogue.create_policies(servers, address, "User:alice", ORDERS)
        await catalogue.update_policies(servers, address, "User:alice", ORDERS)
        found = await catalogue.policies(servers, address, "User:alice")
        assert found is not None and found.policies == ORDERS
        assert await catalogue.all_policies(servers, address, "alice", "orders") == [found]
        assert await catalogue.all_policies(servers, address, "bob") == []
        await catalogue.delete_policies(servers, address, "User:alice", "Topic:orders")
        assert await catalogue.policies(servers, address, "User:alice") is None
        await catalogue.delete_user(servers, address, "alice")
        assert await catalogue.user(servers, address, "alice") is None
