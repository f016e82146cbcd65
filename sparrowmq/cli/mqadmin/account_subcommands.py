"""Accounts of brokers with access control: updateAclConfig, deleteAclConfig, updateGlobalWhiteAddr,
clusterAclConfigVersion.

Source: the classes of org.apache.rocketmq.tools.command.acl, Java 4.9.8.
"""

from __future__ import annotations

from typing import Final

import msgspec

from sparrowmq.cli.mqadmin import brokers_of, java
from sparrowmq.cli.mqadmin.call import Call
from sparrowmq.client.admin import operations as operations
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateAclConfig
from sparrowmq.protocol.requests.bodies import DataVersion

_VERSION: Final = "%-16s  %-22s  %-22s  %-20s  %-22s  %-22s"


async def update_acl_config(call: Call) -> None:
    def given(letter: str) -> str | None:
        return call.text(letter) if call.has(letter) else None

    request = UpdateAndCreateAclConfig(
        access_key=call.text("a"),
        secret_key=given("s"),
        white_remote_address=given("w"),
        admin=call.is_true("m"),
        default_topic_perm=given("i"),
        default_group_perm=given("u"),
        topic_perms=given("t"),
        group_perms=given("g"),
    )
    for address in await brokers_of.chosen(call, brokers_of.all_addresses):
        await operations.put_account(call, address, request)
        call.line("create or update plain access config to %s success.", address)
    call.write(_text(request))


def _text(request: UpdateAndCreateAclConfig) -> str:
    """Describe the account. Unlike Java, which prints an object's address; without the secret key."""
    perms = [request.topic_perms, request.group_perms]
    topics, groups = ("null" if each is None else f"[{', '.join(each.split(','))}]" for each in perms)
    return (
        f"PlainAccessConfig{{accessKey='{request.access_key}', "
        f"whiteRemoteAddress='{java.truth(request.white_remote_address)}', admin={java.truth(request.admin)}, "
        f"defaultTopicPerm='{java.truth(request.default_topic_perm)}', "
        f"defaultGroupPerm='{java.truth(request.default_group_perm)}', topicPerms={topics}, groupPerms={groups}}}"
    )


async def delete_acl_config(call: Call) -> None:
    access_key = call.text("a")
    for address in await brokers_of.chosen(call, brokers_of.all_addresses):
        await operations.delete_account(call, address, access_key)
        call.line("delete plain access config account from %s success.", address)
    call.write(f"account's accesskey is:{access_key}")


async def update_global_white_addr(call: Call) -> None:
    for address in await brokers_of.chosen(call, brokers_of.all_addresses):
        await operations.set_white_addresses(call, address, call.text("g"), call.text("p") or None)
        call.line("update global white remote addresses to %s success.", address)


async def cluster_acl_config_version(call: Call) -> None:
    if call.has("b"):
        await _show_versions(call, call.text("b"))
        call.line("get broker's plain access config version success.")
        return
    addresses = await brokers_of.masters(call, call.text("c"))
    call.heads(
        _VERSION,
        "#Cluster Name|#Broker Name|#Broker Addr|#AclFilePath|#AclConfigVersionNum|#AclLastUpdateTime",
    )
    await call.each(addresses, lambda address: _show_versions(call, address))
    call.line("get cluster's plain access config version success.")


async def _show_versions(call: Call, address: str) -> None:
    header = await operations.account_versions(call, address)
    versions = msgspec.json.decode(header.all_acl_file_version or "{}", type=dict[str, DataVersion])
    for path, version in java.table(versions):
        place = header.cluster_name, header.broker_name, header.broker_addr, path
        call.line(_VERSION, *place, version.counter, java.when(version.timestamp))
