from sparrowmq.admin import catalogue as accounts
from sparrowmq.client.client import connect
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateAclConfig
from sparrowmq.testing.cluster import Cluster


async def test_accounts_are_made_and_removed(tmp_path):
    file = tmp_path / "plain_acl.yml"
    file.write_text(
        "globalWhiteRemoteAddresses: [127.0.0.1]\n"
        "accounts:\n- {accessKey: administrator, secretKey: secretOfAdmin, admin: true}\n"
    )
    async with Cluster(tmp_path / "one", acl=True, acl_file=file) as cluster, connect(cluster.namesrv) as mq:
        servers, address = mq.admin.servers, cluster.brokers[0].address
        await accounts.put_account(servers, address, UpdateAndCreateAclConfig("newcomer", "secretOfNew"))
        found = await accounts.accounts(servers, address)
        assert [each.access_key for each in found.plain_access_configs] == ["administrator", "newcomer"]
        assert found.global_white_addrs == ["127.0.0.1"]
        await accounts.delete_account(servers, address, "newcomer")
        await accounts.set_white_addresses(servers, address, "127.0.0.1,10.0.0.*")
        found = await accounts.accounts(servers, address)
        assert len(found.plain_access_configs) == 1
        assert found.global_white_addrs == ["127.0.0.1", "10.0.0.*"]
