"""`sparrowmq acl`: the accounts of brokers with access control, and the addresses that need none.

Each broker has accounts of its own, slaves too; without --broker or --cluster a command goes to all of them, one after
the other. Secret keys are set here and shown nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.catalogue import accounts, delete_account, put_account, set_white_addresses
from sparrowmq.admin.servers import Servers
from sparrowmq.cli.terminal.arguments import BROKER
from sparrowmq.cli.terminal.cluster_command import CLUSTER_OPTION, HELP, ask, check_changes, options, query, verb
from sparrowmq.cli.terminal.output import (
    ask_secret,
    confirm,
    is_for_people,
    print_table,
    print_tables,
    say,
    split_heads,
)
from sparrowmq.errors import NoBroker, RemoteError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.requests.admin_headers import UpdateAndCreateAclConfig
from sparrowmq.protocol.requests.bodies import AccountEntry, AccountList

Place: TypeAlias = tuple[str, str]  # a broker's name, and its address

_ACCOUNT_HEADS: Final = split_heads(
    "BROKER|ADDRESS|ACCOUNT|ADMIN|OTHER TOPICS|OTHER GROUPS|TOPICS|GROUPS|UNSIGNED FROM"
)
_WHITE_HEADS: Final = ("BROKER", "ADDRESS", "NEEDS NO ACCOUNT")
_PERMS: Final = {"deny": "DENY", "pub": "PUB", "sub": "SUB", "pubsub": "PUB|SUB"}


def _parse_perm(context: click.Context, option: click.Parameter, text: str | None) -> str | None:
    if text is None:
        return None
    perm = _PERMS.get(text.strip().lower().replace("|", ""))
    if perm is None:
        raise click.BadParameter(f"{text!r} is not one of {', '.join(_PERMS)}", context, option)
    return perm


def _parse_perms(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> str | None:
    """Return NAME=PERM, ... in the brokers' words; None if there is none."""
    perms = []
    for text in texts:
        name, _, perm = map(str.strip, text.rpartition("="))
        if not name or "," in name:
            raise click.BadParameter(f"{text!r} is not NAME=PERM", context, option)
        perms.append(f"{name}={_parse_perm(context, option, perm)}")
    return ",".join(perms) or None


broker_options = options(
    CLUSTER_OPTION, click.option("--broker", type=BROKER, metavar="NAME", help="Only at this broker and its slaves.")
)


@click.group(context_settings=HELP)
def acl() -> None:
    """Make, change, delete and look at the accounts of brokers with access control."""


@verb(acl, "list")
@broker_options
def list_accounts(cluster: str | None, broker: str | None) -> None:
    """Show the accounts of each broker, and the addresses that need none. It takes an admin's signature.

    Without --broker, brokers that keep no accounts are named and left out.
    """

    async def run(admin: Admin) -> list[tuple[Place, list[AccountEntry], list[str]]]:
        places = {
            f"{name} at {address}": (name, address) for name, address in await _places(admin.servers, cluster, broker)
        }
        addresses = {label: address for label, (_, address) in places.items()}

        async def read_accounts(label: str, address: str) -> AccountList | None:
            try:
                return await accounts(admin.servers, address)
            except RemoteError as error:
                if broker is not None or error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
                say(f"{label} keeps no accounts")
                return None

        answers = await admin.servers.all(addresses, read_accounts)
        return [
            (places[label], answer.plain_access_configs, answer.global_white_addrs)
            for label, answer in answers.items()
            if answer is not None
        ]

    answers = query(run)
    print_tables(
        accounts=(_ACCOUNT_HEADS, [(*place, *_row(entry)) for place, entries, _ in answers for entry in entries]),
        white=(_WHITE_HEADS, [(*place, address) for place, _, addresses in answers for address in addresses]),
    )


@verb(acl, "set")
@broker_options
@click.argument("account")
@click.option("--secret", metavar="KEY", help="Its secret key; - asks for it without showing it.")
@click.option("--admin/--no-admin", "is_admin", default=None, help="Whether it may do everything.")
@click.option("--other-topics", callback=_parse_perm, metavar="PERM", help="For topics that are not named.")
@click.option("--other-groups", callback=_parse_perm, metavar="PERM", help="For groups that are not named.")
@click.option("--topic", "topics", callback=_parse_perms, metavar="NAME=PERM", multiple=True, help="May be repeated.")
@click.option("--group", "groups", callback=_parse_perms, metavar="NAME=PERM", multiple=True, help="May be repeated.")
@click.option("--unsigned-from", metavar="ADDRESSES", help="It need not sign from there: 10.0.0.*,10.1.2.3")
def set_account(cluster: str | None, broker: str | None, account: str, **options: Any) -> None:
    """Make ACCOUNT, or change what is given of it; what is not given stays.

    PERM is pub, sub, pubsub or deny. The topics that are given replace all that it had, and so do the groups.
    """
    check_changes(options)
    if options["secret"] == "-":
        options["secret"] = ask_secret("its secret key", "give the key itself after --secret")

    async def put(servers: Servers, place: Place) -> None:
        is_admin = options["is_admin"]
        if is_admin is None:  # the request has no word for "as it is"
            known = (await accounts(servers, place[1])).plain_access_configs
            is_admin = any(entry.admin for entry in known if entry.access_key == account)
        request = UpdateAndCreateAclConfig(
            access_key=account,
            secret_key=options["secret"],
            white_remote_address=options["unsigned_from"],
            admin=is_admin,
            default_topic_perm=options["other_topics"],
            default_group_perm=options["other_groups"],
            topic_perms=options["topics"],
            group_perms=options["groups"],
        )
        await put_account(servers, place[1], request)

    _change_each(cluster, broker, put, f"set account {account}")


@verb(acl)
@broker_options
@click.argument("account")
@click.option("--yes", is_flag=True, help="Do not ask.")
def delete(cluster: str | None, broker: str | None, account: str, yes: bool) -> None:
    """Delete ACCOUNT: brokers refuse its requests from then on."""
    if not yes:
        confirm(f"delete account {account}? Brokers refuse its requests from then on")
    _change_each(
        cluster,
        broker,
        lambda servers, place: delete_account(servers, place[1], account),
        f"deleted account {account}",
    )


@verb(acl)
@broker_options
@click.argument("addresses", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
def white(cluster: str | None, broker: str | None, addresses: tuple[str, ...], yes: bool) -> None:
    """Replace the ADDRESSES that need no account: 10.0.0.* 192.168.1.1-9

    Clients at these addresses may do everything.
    """
    if "," in "".join(addresses):  # brokers take it for the end of an address, so 10.0.0.{1,2} cannot be sent
        raise click.UsageError("write each address by itself, without a comma")
    patterns = " ".join(addresses)
    if not yes:
        confirm(f"clients from {patterns} may do everything without signing; go on?")
    _change_each(
        cluster,
        broker,
        lambda servers, place: set_white_addresses(servers, place[1], ",".join(addresses)),
        f"set the addresses {patterns}",
    )


def _change_each(
    cluster: str | None, broker: str | None, work: Callable[[Servers, Place], Coroutine[Any, Any, None]], sentence: str
) -> None:
    """Change one broker after the other, and print each; the first refusal ends it."""
    changed_places: list[Place] = []

    async def run(admin: Admin) -> None:
        for place in await _places(admin.servers, cluster, broker):
            await work(admin.servers, place)
            say(f"{sentence} at {place[0]} ({place[1]})")
            changed_places.append(place)

    try:
        ask(run)
    finally:
        if not is_for_people():
            print_table(("BROKER", "ADDRESS"), changed_places)


async def _places(servers: Servers, cluster: str | None, broker: str | None) -> list[Place]:
    places = await servers.brokers(cluster)
    chosen = [place for place in places if broker in (None, place.name)]
    if not chosen:
        raise NoBroker(servers.namesrv, "broker", broker or "", [place.name for place in places])
    return [(place.name, address) for place in chosen for _, address in sorted(place.addresses.items())]


def _row(entry: AccountEntry) -> tuple[object, ...]:
    topics, groups = [", ".join(perms or ()) or None for perms in (entry.topic_perms, entry.group_perms)]
    others = entry.default_topic_perm, entry.default_group_perm
    return entry.access_key, "yes" if entry.admin else "no", *others, topics, groups, entry.white_remote_address
