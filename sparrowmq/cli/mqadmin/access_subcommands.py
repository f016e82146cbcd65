"""Users and policies (ACL 2.0): createUser, updateUser, deleteUser, getUser, listUser, copyUser, createAcl, updateAcl,
deleteAcl, getAcl, listAcl, copyAcl. Accounts (ACL 1.0): updateAclConfig, deleteAclConfig, updateGlobalWhiteAddr,
clusterAclConfigVersion.

With a cluster, changes of users go to its masters; slaves follow their master. As Java's tool, getUser and listUser
show passwords, which a broker gives only to a Super user.
Source: the classes of org.apache.rocketmq.tools.command.auth, Java 5.4.0, and of .acl, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

import msgspec

from sparrowmq.cli.mqadmin import java
from sparrowmq.cli.mqadmin.call import Call, addresses_of, masters_of, target_addresses
from sparrowmq.cli.mqadmin.java import client_failure
from sparrowmq.client.admin import operations
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateAclConfig
from sparrowmq.protocol.requests.bodies import DataVersion
from sparrowmq.protocol.requests.user_headers import Policy, PolicyRule, UserEntry, UserPolicies

T = TypeVar("T")

_VERSION: Final = "%-16s  %-22s  %-22s  %-20s  %-22s  %-22s"
_USER: Final = "%-16s  %-22s  %-22s  %-22s"
_RULE: Final = "%-16s  %-10s  %-22s  %-20s  %-24s  %-10s"


async def create_user(call: Call) -> None:
    entry = UserEntry(call.text("u"), call.text("p"), call.text("t") or None)
    await _change(call, lambda address: operations.create_user(call, address, entry), "create user to %s success.")


async def update_user(call: Call) -> None:
    entry = UserEntry(call.text("u"), call.text("p") or None, call.text("t") or None, call.text("s") or None)
    await _change(call, lambda address: operations.update_user(call, address, entry), "update user to %s success.")


async def delete_user(call: Call) -> None:
    name = call.text("u")
    await _change(call, lambda address: operations.delete_user(call, address, name), "delete user to %s success.")


async def get_user(call: Call) -> None:
    places = await _places(call)
    async for entry in call.answers(places, lambda address: operations.user(call, address, call.text("u"))):
        if entry is not None:
            _print_users(call, [entry])
            return


async def list_user(call: Call) -> None:
    async def users(address: str) -> tuple[str, list[UserEntry]]:
        return address, await operations.users(call, address, call.text("f"))

    async for address, entries in call.answers(await _places(call), users):
        if entries:
            _print_users(call, entries)
            if call.has("c"):
                call.line("get user from %s success.", address)
            return


async def copy_user(call: Call) -> None:
    async def put(target: str, entry: UserEntry) -> str:
        is_there = await operations.user(call, target, entry.username) is not None
        await (operations.update_user if is_there else operations.create_user)(call, target, entry)
        return entry.username

    await _copy(call, "user", call.text("u"), operations.user, operations.users, put)


async def create_acl(call: Call) -> None:
    subject, policies = call.text("s"), _policies_of_call(call)
    await _change(
        call, lambda address: operations.create_policies(call, address, subject, policies), "create acl to %s success."
    )


async def update_acl(call: Call) -> None:
    subject, policies = call.text("s"), _policies_of_call(call)
    await _change(
        call, lambda address: operations.update_policies(call, address, subject, policies), "update acl to %s success."
    )


async def delete_acl(call: Call) -> None:
    subject, resource = call.text("s"), call.text("r") or None
    await _change(
        call, lambda address: operations.delete_policies(call, address, subject, resource), "delete acl to %s success."
    )


async def get_acl(call: Call) -> None:
    places = await _places(call)
    async for found in call.answers(places, lambda address: operations.policies(call, address, call.text("s"))):
        if found is not None:
            _print_policies(call, [found])
            return


async def list_acl(call: Call) -> None:
    async def policies(address: str) -> list[UserPolicies]:
        return await operations.all_policies(call, address, call.text("s"), call.text("r"))

    for found in await call.all_answers(await _places(call), policies):
        if found:
            _print_policies(call, found)


async def copy_acl(call: Call) -> None:
    async def put(target: str, entry: UserPolicies) -> str:
        is_there = await operations.policies(call, target, entry.subject) is not None
        change = operations.update_policies if is_there else operations.create_policies
        await change(call, target, entry.subject, entry.policies)
        return entry.subject

    await _copy(call, "acl", call.text("s"), operations.policies, operations.all_policies, put)


async def _copy(
    call: Call,
    noun: str,
    names: str,
    one: Callable[[Call, str, str], Awaitable[T | None]],
    every: Callable[[Call, str], Awaitable[list[T]]],
    put: Callable[[str, T], Awaitable[str]],
) -> None:
    """Copy the named ones, or all, from one broker to another; `put` returns the name of what it copied."""
    source, target = call.text("f"), call.text("t")
    if names:
        found = [await one(call, source, name) for name in names.split(",") if name]
    else:
        found = list(await every(call, source))
    for each in found:
        if each is not None:
            call.line("copy %s of %s from %s to %s success.", noun, await put(target, each), source, target)


async def _change(call: Call, change: Callable[[str], Awaitable[None]], done: str) -> None:
    for address in await _places(call):
        await change(address)
        call.line(done, address)


async def _places(call: Call) -> list[str]:
    found = await target_addresses(call)
    if not found:
        raise client_failure("there is no broker in cluster.")
    return found


def _policies_of_call(call: Call) -> list[Policy]:
    actions = _split_list(call.text("a"))
    sources = _split_list(call.text("i")) or None
    rules = [PolicyRule(resource, actions, sources, call.text("d")) for resource in _split_list(call.text("r"))]
    return [Policy(None, rules)]


def _split_list(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _list_text(texts: list[str] | None) -> str:
    return "null" if texts is None else f"[{', '.join(texts)}]"


def _print_users(call: Call, entries: Iterable[UserEntry]) -> None:
    call.heads(_USER, "#UserName|#Password|#UserType|#UserStatus")
    for entry in entries:
        row = entry.username, entry.password, entry.user_type, entry.user_status
        call.line(_USER, *map(java.text, row))


def _print_policies(call: Call, entries: Iterable[UserPolicies]) -> None:
    call.heads(_RULE, "#Subject|#PolicyType|#Resource|#Actions|#SourceIp|#Decision")
    for each in entries:
        for policy in each.policies:
            for rule in policy.entries:
                actions, sources = _list_text(rule.actions), _list_text(rule.source_ips)
                place = each.subject, policy.policy_type, rule.resource
                call.line(_RULE, *place, actions, sources, rule.decision)


# Accounts ------------------------------------------------------------------------------------------------------------


async def update_acl_config(call: Call) -> None:
    def option(letter: str) -> str | None:
        return call.text(letter) if call.has(letter) else None

    request = UpdateAndCreateAclConfig(
        access_key=call.text("a"),
        secret_key=option("s"),
        white_remote_address=option("w"),
        admin=call.is_true("m"),
        default_topic_perm=option("i"),
        default_group_perm=option("u"),
        topic_perms=option("t"),
        group_perms=option("g"),
    )
    for address in await target_addresses(call, addresses_of):
        await operations.put_account(call, address, request)
        call.line("create or update plain access config to %s success.", address)
    call.write(_account_text(request))


def _account_text(request: UpdateAndCreateAclConfig) -> str:
    """Describe the account. Unlike Java, which prints an object's address; without the secret key."""
    perms = [request.topic_perms, request.group_perms]
    topics, groups = ("null" if each is None else f"[{', '.join(each.split(','))}]" for each in perms)
    return (
        f"PlainAccessConfig{{accessKey='{request.access_key}', "
        f"whiteRemoteAddress='{java.text(request.white_remote_address)}', admin={java.text(request.admin)}, "
        f"defaultTopicPerm='{java.text(request.default_topic_perm)}', "
        f"defaultGroupPerm='{java.text(request.default_group_perm)}', topicPerms={topics}, groupPerms={groups}}}"
    )


async def delete_acl_config(call: Call) -> None:
    access_key = call.text("a")
    for address in await target_addresses(call, addresses_of):
        await operations.delete_account(call, address, access_key)
        call.line("delete plain access config account from %s success.", address)
    call.write(f"account's accesskey is:{access_key}")


async def update_global_white_addr(call: Call) -> None:
    for address in await target_addresses(call, addresses_of):
        await operations.set_white_addresses(call, address, call.text("g"), call.text("p") or None)
        call.line("update global white remote addresses to %s success.", address)


async def cluster_acl_config_version(call: Call) -> None:
    if call.has("b"):
        await _show_versions(call, call.text("b"))
        call.line("get broker's plain access config version success.")
        return
    addresses = await masters_of(call, call.text("c"))
    call.heads(_VERSION, "#Cluster Name|#Broker Name|#Broker Addr|#AclFilePath|#AclConfigVersionNum|#AclLastUpdateTime")
    await call.all_answers(addresses, lambda address: _show_versions(call, address))
    call.line("get cluster's plain access config version success.")


async def _show_versions(call: Call, address: str) -> None:
    header = await operations.account_versions(call, address)
    versions = msgspec.json.decode(header.all_acl_file_version or "{}", type=dict[str, DataVersion])
    for path, version in java.table(versions):
        place = header.cluster_name, header.broker_name, header.broker_addr, path
        call.line(_VERSION, *place, version.counter, java.time_text(version.timestamp))
