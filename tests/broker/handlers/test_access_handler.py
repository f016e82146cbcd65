"""Accounts over the wire: codes 50 to 54."""

import json

import pytest

from sparrowmq.auth.account_files import AccountFiles
from sparrowmq.auth.users import SUB
from sparrowmq.errors import AccessDenied, RemoteError
from sparrowmq.protocol.requests.admin_headers import (
    DeleteAclConfig,
    GetBrokerClusterAcl,
    GetBrokerClusterAclConfig,
    UpdateAndCreateAclConfig,
    UpdateGlobalWhiteAddrsConfig,
)
from sparrowmq.protocol.requests.bodies import AccountList
from tests.auth.asked import ADMIN, SAMPLE, USER
from tests.broker.live import live_broker, send_request
from tests.broker.test_access_control import Pools

NEW = ("accountOne", "secretOne")
CHANGES = [
    UpdateAndCreateAclConfig(*NEW),
    DeleteAclConfig("rocketmq2"),
    UpdateGlobalWhiteAddrsConfig("*"),
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "plain_acl.yml"
    path.write_text(SAMPLE)
    return path


@pytest.fixture
async def who(tmp_path, file):
    async with live_broker(tmp_path / "stores", acl=True, acl_file=file) as live:
        people = Pools(live.broker.address)
        yield people
        people.close()


async def test_an_account_is_made_changed_and_removed_at_once_and_on_disk(who, file):
    admin, one = await who.session(*ADMIN), await who.session(*NEW)
    with pytest.raises(AccessDenied, match="No acl config for accountOne"):
        await one.call(send_request("orders"))
    await admin.call(UpdateAndCreateAclConfig(*NEW, topic_perms="orders=PUB,bills=SUB", default_group_perm="SUB"))
    await one.call(send_request("orders"))
    with pytest.raises(AccessDenied, match="topic:bills"):
        await one.call(send_request("bills"))
    await admin.call(UpdateAndCreateAclConfig(NEW[0], topic_perms="bills=PUB"))
    await one.call(send_request("bills"))
    with pytest.raises(AccessDenied, match="topic:orders"):
        await one.call(send_request("orders"))
    kept = AccountFiles(file).current
    account = kept.by_key["accountOne"]
    assert account.perms == {"bills": 1} and account.may("%RETRY%billing", SUB)
    assert kept.versions[str(file)].counter == 2
    await admin.call(DeleteAclConfig(NEW[0]))
    with pytest.raises(AccessDenied, match="No acl config for accountOne"):
        await one.call(send_request("bills"))
    assert set(AccountFiles(file).current.by_key) == {"RocketMQ", "rocketmq2"}


async def test_the_white_list_is_replaced(who):
    admin, nobody = await who.session(*ADMIN), await who.session()
    with pytest.raises(AccessDenied):
        await nobody.call(send_request("orders"))
    await admin.call(UpdateGlobalWhiteAddrsConfig("10.0.0.1, 127.0.0.1"))
    await nobody.call(send_request("orders"))


@pytest.mark.parametrize(
    ("request_header", "code", "words"),
    [
        (UpdateAndCreateAclConfig("accountOne"), 209, "its secretKey has 0 characters"),
        (UpdateAndCreateAclConfig("short", "12345678"), 209, "its accessKey has 5 characters"),
        (UpdateAndCreateAclConfig("RocketMQ", "short"), 209, "its secretKey has 5 characters"),
        (UpdateAndCreateAclConfig("RocketMQ", default_topic_perm="ALL"), 209, "'ALL' is not a permission"),
        (UpdateAndCreateAclConfig("RocketMQ", topic_perms="orders"), 209, "'orders' is not a permission"),
        (UpdateAndCreateAclConfig("RocketMQ", group_perms="a=SUB,b=pub"), 209, "'pub' is not a permission"),
        (UpdateAndCreateAclConfig("RocketMQ", white_remote_address="10.*"), 209, "is no address"),
        (DeleteAclConfig("accountOne"), 210, "there is no account accountOne"),
        (UpdateGlobalWhiteAddrsConfig("everybody"), 211, "'everybody' is no address"),
        (UpdateGlobalWhiteAddrsConfig("*", "/etc/passwd"), 211, "not one of the account files"),
    ],
    ids=str,
)
async def test_what_would_break_the_file_is_refused(who, file, request_header, code, words):
    with pytest.raises(RemoteError) as caught:
        await (await who.session(*ADMIN)).call(request_header)
    assert caught.value.code == code and words in caught.value.remark
    assert str(file.parent) not in caught.value.remark
    assert file.read_text() == SAMPLE


@pytest.mark.covers("S-ACL-04")
@pytest.mark.parametrize("request_header", [*CHANGES, GetBrokerClusterAcl(), GetBrokerClusterAclConfig()], ids=str)
async def test_administrators_alone_may_ask(who, file, request_header):
    with pytest.raises(AccessDenied, match=f"code={request_header.code}"):
        await (await who.session(*USER)).call(request_header)
    assert file.read_text() == SAMPLE


async def test_secrets_are_told_to_whoever_signed_as_an_administrator(who, file):
    admin = await who.session(*ADMIN)
    shown = AccountList.decode((await admin.call(GetBrokerClusterAclConfig())).body)
    assert shown.global_white_addrs == ["10.10.103.*", "192.168.0.*"]
    first, second = shown.plain_access_configs
    assert (first.access_key, first.secret_key, first.admin) == ("RocketMQ", "12345678", False)
    assert first.topic_perms == ["topicA=DENY", "topicB=PUB|SUB", "topicC=SUB"]
    assert (second.access_key, second.white_remote_address, second.admin) == (
        "rocketmq2",
        "192.168.1.*",
        True,
    )
    await admin.call(UpdateGlobalWhiteAddrsConfig("127.0.0.1"))
    await admin.call(UpdateAndCreateAclConfig("rocketmq2", admin=True, white_remote_address="127.0.0.1"))
    for session in (await who.session(), await who.session("rocketmq2", "wrong secret")):
        body = (await session.call(GetBrokerClusterAclConfig())).body
        assert b"12345678" not in body and b"RocketMQ" in body
    assert b"12345678" in (await admin.call(GetBrokerClusterAclConfig())).body


async def test_the_versions_of_the_files_are_told(who, file):
    admin = await who.session(*ADMIN)
    await admin.call(UpdateAndCreateAclConfig(*NEW))
    header = (await admin.call(GetBrokerClusterAcl())).header
    assert (header.cluster_name, header.broker_name) == ("DefaultCluster", "broker-0")
    assert json.loads(header.version)["counter"] == 1
    assert json.loads(header.all_acl_file_version)[str(file)]["counter"] == 1


async def test_a_file_that_cannot_be_written_is_told_and_nothing_changes(who, file):
    admin = await who.session(*ADMIN)
    file.with_name("plain_acl.yml.tmp").mkdir()
    with pytest.raises(RemoteError, match="cannot be written") as caught:
        await admin.call(UpdateAndCreateAclConfig(*NEW))
    assert caught.value.code == 209
    assert str(file.parent) not in caught.value.remark and "plain_acl.yml" in caught.value.remark
    with pytest.raises(AccessDenied):
        await (await who.session(*NEW)).call(send_request("orders"))


@pytest.mark.parametrize("request_header", [*CHANGES, GetBrokerClusterAcl(), GetBrokerClusterAclConfig()], ids=str)
async def test_without_access_control_nobody_changes_or_sees_accounts(tmp_path, file, request_header):
    async with live_broker(tmp_path / "stores", acl_file=file) as live:
        with pytest.raises(RemoteError, match="access control is not supported here") as caught:
            await live.session.call(request_header)
    assert caught.value.code == 3
    assert file.read_text() == SAMPLE
