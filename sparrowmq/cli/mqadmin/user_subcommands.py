"""Users and policies (ACL 2.0): createUser, updateUser, deleteUser, getUser, listUser, copyUser, createAcl, updateAcl,
deleteAcl, getAcl, listAcl, copyAcl.

With a cluster, changes go to its masters; slaves follow their master. As Java's tool, getUser and listUser show
passwords, which a broker gives only to a Super user.
Source: the classes of org.apache.rocketmq.tools.command.auth, Java 5.4.0.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from sparrowmq.cli.mqadmin import brokers_of, java
from sparrowmq.cli.mqadmin.call import Call
from sparrowmq.cli.mqadmin.failures import client_failure
from sparrowmq.client.admin import operations as operations
from sparrowmq.protocol.requests.user_headers import Policy, PolicyRule, UserEntry, UserPolicies

T = TypeVar("T")

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
    subject, given = call.text("s"), _given(call)
    await _change(
        call,
        lambda address: operations.create_policies(call, address, subject, given),
        "create acl to %s success.",
    )


async def update_acl(call: Call) -> None:
    subject, given = call.text("s"), _given(call)
    await _change(
        call,
        lambda address: operations.update_policies(call, address, subject, given),
        "update acl to %s success.",
    )


async def delete_acl(call: Call) -> None:
    subject, resource = call.text("s"), call.text("r") or None
    await _change(
        call,
        lambda address: operations.delete_policies(call, address, subject, resource),
        "delete acl to %s success.",
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

    for found in await call.each(await _places(call), policies):
        if found:
            _print_policies(call, found)


async def copy_acl(call: Call) -> None:
    async def put(target: str, each: UserPolicies) -> str:
        is_there = await operations.policies(call, target, each.subject) is not None
        change = operations.update_policies if is_there else operations.create_policies
        await change(call, target, each.subject, each.policies)
        return each.subject

    await _copy(call, "acl", call.text("s"), operations.policies, operations.all_policies, put)


async def _copy(
    call: Call,
    what: str,
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
            call.line("copy %s of %s from %s to %s success.", what, await put(target, each), source, target)


async def _change(call: Call, change: Callable[[str], Awaitable[None]], done: str) -> None:
    for address in await _places(call):
        await change(address)
        call.line(done, address)


async def _places(call: Call) -> list[str]:
    """The broker of -b, or the masters of -c. Raises: Failure, the cluster has none."""
    found = await brokers_of.chosen(call)
    if not found:
        raise client_failure("there is no broker in cluster.")
    return found


def _given(call: Call) -> list[Policy]:
    actions = _listed(call.text("a"))
    sources = _listed(call.text("i")) or None
    rules = [PolicyRule(resource, actions, sources, call.text("d")) for resource in _listed(call.text("r"))]
    return [Policy(None, rules)]


def _listed(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _shown(texts: list[str] | None) -> str:
    return "null" if texts is None else f"[{', '.join(texts)}]"


def _print_users(call: Call, entries: Iterable[UserEntry]) -> None:
    call.heads(_USER, "#UserName|#Password|#UserType|#UserStatus")
    for entry in entries:
        row = entry.username, entry.password, entry.user_type, entry.user_status
        call.line(_USER, *map(java.truth, row))


def _print_policies(call: Call, found: Iterable[UserPolicies]) -> None:
    call.heads(_RULE, "#Subject|#PolicyType|#Resource|#Actions|#SourceIp|#Decision")
    for each in found:
        for policy in each.policies:
            for rule in policy.entries:
                actions, sources = _shown(rule.actions), _shown(rule.source_ips)
                place = each.subject, policy.policy_type, rule.resource
                call.line(_RULE, *place, actions, sources, rule.decision)
