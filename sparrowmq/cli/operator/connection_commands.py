"""`sparrowmq connection`: the clients that are online, with what they are and where they come from."""

from __future__ import annotations

import sys

import click

from sparrowmq.cli.terminal.asking import CLUSTER, HELP, ask, verb
from sparrowmq.cli.terminal.output import heads, is_for_people, say, table
from sparrowmq.client.admin.connections import OnlineClient, online_clients

_HEADS = heads("ROLE|GROUP|CLIENT|LANGUAGE|VERSION|CONNECTIONS")


@click.group(context_settings=HELP)
def connection() -> None:
    """Show the clients that are online."""


@verb(connection, "list")
@CLUSTER
@click.option("--group", metavar="GROUP", help="Only the clients of this consumer or producer group.")
def list_connections(cluster: str | None, group: str | None) -> None:
    """Show each online consumer and producer: its group, client id, language, version and connections.

    Clients of SparrowMQ are producers in the group CLIENT_INNER_PRODUCER, too. The status is 1 if a broker does not
    answer.
    """
    found, failures = ask(lambda admin: online_clients(admin.servers, cluster))
    table(_HEADS, [_row(each) for each in found if group is None or each.group == group])
    for broker, error in failures.items():
        say(f"without {broker}: {error}")
    sys.exit(1 if failures else 0)


def _row(each: OnlineClient) -> list[object]:
    places = [f"{broker}={address}" for broker, address in sorted(each.addresses.items())]
    shown = " ".join(places) if is_for_people() else dict(each.addresses)
    return [each.role, each.group, each.client_id, each.language, each.version, shown]
