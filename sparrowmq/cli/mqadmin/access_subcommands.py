"""Users and policies (ACL 2.0): createUser, updateUser, deleteUser, getUser, listUser, copyUser, createAcl, updateAcl,
deleteAcl, getAcl, listAcl, copyAcl. Accounts (ACL 1.0): updateAclConfig, deleteAclConfig, updateGlobalWhiteAddr,
clusterAclConfigVersion.

With a cluster, changes of users go to its masters; slaves follow their master. As Java's tool, getUser and listUser
show passwords, which a broker gives only to a Super user.
Source: the classes of org.apache.rocketmq.tools.command.auth, Java 5.4.0, and of .acl, Java 4.9.8.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar, TypeVarTuple

import msgspec

from sparrowmq.admin import catalogue
from sparrowmq.cli.mqadmin import java
from sparrowmq.cli.mqadmin.call import Call, addresses_of, masters_of, target_addresses
from sparrowmq.cli.mqadmin.java import client_failure
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateAclConfig
from sparrowmq.protocol.requests.bodies import DataVersion
from sparrowmq.protocol.requests.user_headers import Policy, PolicyRule, UserEntry, UserPolicies

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Subcommand = Callable[[Call], Coroutine[Any, Any, None]]

_VERSION_ROW: Final = "%-16s  %-22s  %-22s  %-20s  %-22s  %-22s"
_USER_ROW: Final = "%-16s  %-22s  %-22s  %-22s"
_RULE_ROW: Final = "%-16s  %-10s  %-22s  %-20s  %-24s  %-10s"


async def _target_addresses(call: Call) -> list[str]:
    addresses = await target_addresses(call)
    if not addresses:
        raise client_failure("there is no broker in cluster.")
    return addresses


def _policies_of_call(call: Call) -> tuple[str, list[Policy]]:
    actions = _split_list(call.text("a"))
    sources = _split_list(call.text("i")) or None
    rules = [PolicyRule(resource, actions, sources, call.text("d")) for resource in _split_list(call.text("r"))]
    return call.text("s"), [Policy(None, rules)]


def _split_list(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _list_text(texts: list[str] | None) -> str:
    return "null" if texts is None else f"[{', '.join(texts)}]"


def _print_users(call: Call, entries: Iterable[UserEntry]) -> None:
    call.heads(_USER_ROW, "#UserName|#Password|#UserType|#UserStatus")
    for user in entries:
        call.line(_USER_ROW, *map(java.value_text, (user.username, user.password, user.user_type, user.user_status)))


def _print_policies(call: Call, entries: Iterable[UserPolicies]) -> None:
    call.heads(_RULE_ROW, "#Subject|#PolicyType|#Resource|#Actions|#SourceIp|#Decision")
    for entry in entries:
        for policy in entry.policies:
            for rule in policy.entries:
                actions, sources = _list_text(rule.actions), _list_text(rule.source_ips)
                call.line(_RULE_ROW, entry.subject, policy.policy_type, rule.resource, actions, sources, rule.decision)


def _change_each_target(
    operation: Callable[[Call, str, *Ts], Awaitable[object]],
    arguments_of: Callable[[Call], tuple[*Ts]],
    sentence: str,
    targets: Callable[[Call], Awaitable[list[str]]] = _target_addresses,
) -> Subcommand:
    """A subcommand that changes each target by one operation, and prints a sentence for each."""

    async def run(call: Call) -> None:
        arguments = arguments_of(call)
        for address in await targets(call):
            await operation(call, address, *arguments)
            call.line(sentence, address)

    return run


def _show_first(
    operation: Callable[[Call, str, str], Awaitable[T | None]], letter: str, show: Callable[[Call, list[T]], None]
) -> Subcommand:
    """A subcommand that shows what the first target has under a name."""

    async def run(call: Call) -> None:
        name, addresses = call.text(letter), await _target_addresses(call)
        async for entry in call.answers(addresses, lambda address: operation(call, address, name)):
            if entry is not None:
                show(call, [entry])
                return

    return run


create_user = _change_each_target(
    catalogue.create_user,
    lambda call: (UserEntry(call.text("u"), call.text("p"), call.text("t") or None),),
    "create user to %s success.",
)
update_user = _change_each_target(
    catalogue.update_user,
    lambda call: (UserEntry(call.text("u"), *(call.text(letter) or None for letter in "pts")),),
    "update user to %s success.",
)
delete_user = _change_each_target(catalogue.delete_user, lambda call: (call.text("u"),), "delete user to %s success.")
get_user = _show_first(catalogue.user, "u", _print_users)


async def list_user(call: Call) -> None:
    async def users(address: str) -> tuple[str, list[UserEntry]]:
        return address, await catalogue.users(call, address, call.text("f"))

    async for address, entries in call.answers(await _target_addresses(call), users):
        if entries:
            _print_users(call, entries)
            if call.has("c"):
                call.line("get user from %s success.", address)
            return


async def copy_user(call: Call) -> None:
    async def put(target: str, entry: UserEntry) -> str:
        exists = await catalogue.user(call, target, entry.username) is not None
        await (catalogue.update_user if exists else catalogue.create_user)(call, target, entry)
        return entry.username

    await _copy(call, "user", call.text("u"), catalogue.user, catalogue.users, put)


create_acl = _change_each_target(catalogue.create_policies, _policies_of_call, "create acl to %s success.")
update_acl = _change_each_target(catalogue.update_policies, _policies_of_call, "update acl to %s success.")
delete_acl = _change_each_target(
    catalogue.delete_policies, lambda call: (call.text("s"), call.text("r") or None), "delete acl to %s success."
)
get_acl = _show_first(catalogue.policies, "s", _print_policies)


async def list_acl(call: Call) -> None:
    subject, resource = call.text("s"), call.text("r")
    for answer in await call.all_answers(
        await _target_addresses(call), lambda address: catalogue.all_policies(call, address, subject, resource)
    ):
        if answer:
            _print_policies(call, answer)


async def copy_acl(call: Call) -> None:
    async def put(target: str, entry: UserPolicies) -> str:
        exists = await catalogue.policies(call, target, entry.subject) is not None
        change = catalogue.update_policies if exists else catalogue.create_policies
        await change(call, target, entry.subject, entry.policies)
        return entry.subject

    await _copy(call, "acl", call.text("s"), catalogue.policies, catalogue.all_policies, put)


async def _copy(
    call: Call,
    noun: str,
    names: str,
    read_one: Callable[[Call, str, str], Awaitable[T | None]],
    read_all: Callable[[Call, str], Awaitable[list[T]]],
    put: Callable[[str, T], Awaitable[str]],
) -> None:
    """Copy the named entries, or all, from one broker to another; `put` returns the name of the entry."""
    source, target = call.text("f"), call.text("t")
    if names:
        entries = [await read_one(call, source, name) for name in names.split(",") if name]
    else:
        entries = list(await read_all(call, source))
    for entry in entries:
        if entry is not None:
            call.line("copy %s of %s from %s to %s success.", noun, await put(target, entry), source, target)


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
        await catalogue.put_account(call, address, request)
        call.line("create or update plain access config to %s success.", address)
    call.write(_account_text(request))


def _account_text(request: UpdateAndCreateAclConfig) -> str:
    """Describe the account. Unlike Java, which prints an object's address; without the secret key."""
    topics, groups = (
        _list_text(None if perms is None else perms.split(",")) for perms in (request.topic_perms, request.group_perms)
    )
    return (
        f"PlainAccessConfig{{accessKey='{request.access_key}', "
        f"whiteRemoteAddress='{java.value_text(request.white_remote_address)}', "
        f"admin={java.value_text(request.admin)}, "
        f"defaultTopicPerm='{java.value_text(request.default_topic_perm)}', "
        f"defaultGroupPerm='{java.value_text(request.default_group_perm)}', topicPerms={topics}, groupPerms={groups}}}"
    )


async def delete_acl_config(call: Call) -> None:
    access_key = call.text("a")
    for address in await target_addresses(call, addresses_of):
        await catalogue.delete_account(call, address, access_key)
        call.line("delete plain access config account from %s success.", address)
    call.write(f"account's accesskey is:{access_key}")


update_global_white_addr = _change_each_target(
    catalogue.set_white_addresses,
    lambda call: (call.text("g"), call.text("p") or None),
    "update global white remote addresses to %s success.",
    lambda call: target_addresses(call, addresses_of),
)


async def cluster_acl_config_version(call: Call) -> None:
    if call.has("b"):
        await _show_versions(call, call.text("b"))
        call.line("get broker's plain access config version success.")
        return
    addresses = await masters_of(call, call.text("c"))
    call.heads(
        _VERSION_ROW, "#Cluster Name|#Broker Name|#Broker Addr|#AclFilePath|#AclConfigVersionNum|#AclLastUpdateTime"
    )
    await call.all_answers(addresses, lambda address: _show_versions(call, address))
    call.line("get cluster's plain access config version success.")


async def _show_versions(call: Call, address: str) -> None:
    header = await catalogue.account_versions(call, address)
    versions = msgspec.json.decode(header.all_acl_file_version or "{}", type=dict[str, DataVersion])
    for path, version in java.in_map_order(versions):
        place = header.cluster_name, header.broker_name, header.broker_addr, path
        call.line(_VERSION_ROW, *place, version.counter, java.time_text(version.timestamp))
