"""`sparrowmq user`: users and policies (ACL 2.0) of brokers with authenticationEnabled=true.

Each master has users of its own, and its slaves have them, too. Without --cluster a command needs that there is only
one cluster. Passwords are set here and shown nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

import click

from sparrowmq.admin import catalogue
from sparrowmq.admin.admin import Admin
from sparrowmq.cli.terminal.cluster_command import (
    CLUSTER_OPTION,
    HELP,
    ask,
    check_changes,
    options,
    print_change,
    query,
    verb,
)
from sparrowmq.cli.terminal.output import ask_secret, confirm, print_tables, split_heads
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.requests.user_headers import (
    DISABLED,
    ENABLED,
    NORMAL,
    SUBJECT,
    SUPER,
    Policy,
    PolicyRule,
    UserEntry,
    UserPolicies,
)

_USER_HEADS: Final = split_heads("BROKER|USER|TYPE|STATUS")
_POLICY_HEADS: Final = split_heads("BROKER|USER|POLICY|RESOURCE|ACTIONS|FROM|DECISION")
_ACTIONS: Final = ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")

_NAME_AND_CLUSTER = options(CLUSTER_OPTION, click.argument("name"))
_PASSWORD_OPTION = click.option("--password", metavar="KEY", help="Its password; - asks for it without showing it.")
_SUPER_OPTION = click.option("--super/--normal", "is_super", default=None, help="A Super user may do everything.")
_YES_OPTION = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group(context_settings=HELP)
def user() -> None:
    """Add, change, delete and look at users of brokers, and what they may do."""


@verb(user, "list")
@CLUSTER_OPTION
def list_users(cluster: str | None) -> None:
    """Show the users of each master, and their policies."""

    async def run(admin: Admin) -> dict[str, tuple[list[UserEntry], list[UserPolicies]]]:
        masters, servers = await admin.servers.all_masters(cluster), admin.servers

        async def read_users(_: str, address: str) -> tuple[list[UserEntry], list[UserPolicies]]:
            return await catalogue.users(servers, address), await catalogue.all_policies(servers, address)

        return await servers.all(masters, read_users)

    answers = query(run)
    users = [
        (broker, user.username, user.user_type, user.user_status)
        for broker, (entries, _) in answers.items()
        for user in entries
    ]
    policies = [(broker, *row) for broker, (_, of_users) in answers.items() for user in of_users for row in _rows(user)]
    print_tables(users=(_USER_HEADS, users), policies=(_POLICY_HEADS, policies))


@verb(user)
@_NAME_AND_CLUSTER
@_PASSWORD_OPTION
@_SUPER_OPTION
def add(name: str, cluster: str | None, password: str | None, is_super: bool | None) -> None:
    """Add the user NAME at every master of the cluster."""
    entry = UserEntry(name, _ask_password(password or "-"), SUPER if is_super else NORMAL)
    _change_masters("added", name, cluster, lambda admin, address: catalogue.create_user(admin.servers, address, entry))


@verb(user)
@_NAME_AND_CLUSTER
@_PASSWORD_OPTION
@_SUPER_OPTION
@click.option("--enable/--disable", "is_enabled", default=None, help="Brokers refuse requests of a disabled user.")
def change(
    name: str, cluster: str | None, password: str | None, is_super: bool | None, is_enabled: bool | None
) -> None:
    """Change the user NAME at every master; what is not given stays as it is."""
    check_changes({"password": password, "super": is_super, "enabled": is_enabled})
    entry = UserEntry(
        name,
        _ask_password(password),
        None if is_super is None else SUPER if is_super else NORMAL,
        None if is_enabled is None else ENABLED if is_enabled else DISABLED,
    )
    _change_masters(
        "changed", name, cluster, lambda admin, address: catalogue.update_user(admin.servers, address, entry)
    )


@verb(user)
@_NAME_AND_CLUSTER
@_YES_OPTION
def delete(name: str, cluster: str | None, yes: bool) -> None:
    """Delete the user NAME and its policies at every master."""
    if not yes:
        confirm(f"delete user {name}? Brokers refuse its requests from then on")

    async def work(admin: Admin, address: str) -> None:
        if await catalogue.user(admin.servers, address, name) is None:
            raise ConfigError(f"there is no user {name}; `sparrowmq user list` shows all")
        await catalogue.delete_user(admin.servers, address, name)

    _change_masters("deleted", name, cluster, work)


_RULE_OPTIONS = options(
    _NAME_AND_CLUSTER,
    click.argument("resources", nargs=-1, required=True),
    click.option(
        "--action",
        "actions",
        type=click.Choice(_ACTIONS, case_sensitive=False),
        multiple=True,
        required=True,
        help="May be repeated.",
    ),
    click.option("--from", "sources", metavar="ADDRESS", multiple=True, help="Only from there: 10.0.0.7, 10.0.0.0/8."),
)


@verb(user)
@_RULE_OPTIONS
def allow(name: str, cluster: str | None, **rule: tuple[str, ...]) -> None:
    """Allow the user NAME actions on RESOURCES, such as Topic:orders, 'Group:*', 'Cluster:*' or '*'.

    Entries of the same resources are replaced.
    """
    _put_policy("allowed", name, cluster, "Allow", **rule)


@verb(user)
@_RULE_OPTIONS
def deny(name: str, cluster: str | None, **rule: tuple[str, ...]) -> None:
    """Deny the user NAME actions on RESOURCES. Among equally close resources, a denial wins."""
    _put_policy("denied", name, cluster, "Deny", **rule)


@verb(user)
@_NAME_AND_CLUSTER
@click.argument("resource", required=False)
@_YES_OPTION
def revoke(name: str, cluster: str | None, resource: str | None, yes: bool) -> None:
    """Delete what the user NAME is allowed and denied for RESOURCE; without it, all of the user's policies."""
    if resource == "":
        raise click.UsageError('RESOURCE is "", which names no resource; leave it out for all policies of the user')
    if resource is None and not yes:
        confirm(f"delete all policies of user {name}?")
    subject = f"{SUBJECT}{name}"

    async def work(admin: Admin, address: str) -> None:
        before = await catalogue.policies(admin.servers, address, subject)
        await catalogue.delete_policies(admin.servers, address, subject, resource)
        if before is not None and before == await catalogue.policies(admin.servers, address, subject):
            known = ", ".join(rule.resource for policy in before.policies for rule in policy.entries)
            raise ConfigError(f"user {name} has no entry for {resource}; it has {known}")

    _change_masters("revoked", name, cluster, work)


def _put_policy(
    past_verb: str,
    name: str,
    cluster: str | None,
    decision: str,
    resources: tuple[str, ...],
    actions: tuple[str, ...],
    sources: tuple[str, ...],
) -> None:
    rules = [PolicyRule(resource, list(actions), list(sources) or None, decision) for resource in resources]
    subject, policies = f"{SUBJECT}{name}", [Policy(None, rules)]
    _change_masters(
        past_verb,
        name,
        cluster,
        lambda admin, address: catalogue.update_policies(admin.servers, address, subject, policies),
    )


def _change_masters(
    past_verb: str, name: str, cluster: str | None, work: Callable[[Admin, str], Coroutine[Any, Any, None]]
) -> None:
    async def run(admin: Admin) -> list[str]:
        masters = await admin.servers.masters(cluster)
        return await admin.servers.change(f"changing user {name}", masters, lambda _, address: work(admin, address))

    print_change(past_verb, name, ask(run))


def _ask_password(password: str | None) -> str | None:
    if password != "-":
        return password
    return ask_secret("its password", "give the password itself after --password")


def _rows(policies: UserPolicies) -> Iterator[tuple[object, ...]]:
    for policy in policies.policies:
        for rule in policy.entries:
            actions, sources = ", ".join(rule.actions), ", ".join(rule.source_ips or ()) or None
            name = policies.subject.removeprefix(SUBJECT)
            yield name, policy.policy_type, rule.resource, actions, sources, rule.decision
