"""`sparrowmq connection`: the clients that are online, with what they are and where they come from."""

from __future__ import annotations

import click

from sparrowmq.cli.terminal.asking import CLUSTER, HELP, look, verb
from sparrowmq.cli.terminal.name_completion import GROUP
from sparrowmq.cli.terminal.output import heads, is_for_people, table
from sparrowmq.client.admin.activity import OnlineClient, online_clients
from sparrowmq.client.admin.admin import Admin

_HEADS = heads("ROLE|GROUP|CLIENT|LANGUAGE|VERSION|CONNECTIONS")


@click.group(context_settings=HELP)
def connection() -> None:
    """Show the clients that are online."""


@verb(connection, "list")
@CLUSTER
@click.option("--group", type=GROUP, metavar="GROUP", help="Only the clients of this consumer or producer group.")
def list_connections(cluster: str | None, group: str | None) -> None:
    """Show each online consumer and producer: its group, client id, language, version and connections.

    Clients of SparrowMQ are producers in the group CLIENT_INNER_PRODUCER, too. The status is 1 if a broker does not
    answer.
    """

    async def run(admin: Admin) -> list[OnlineClient]:
        found, failures = await online_clients(admin.servers, cluster)
        if admin.servers.missing is not None:
            admin.servers.missing.update(failures)
        return found

    found = look(run)
    table(_HEADS, [_row(each) for each in found if group is None or each.group == group])


def _row(each: OnlineClient) -> list[object]:
    places = [f"{broker}={address}" for broker, address in sorted(each.addresses.items())]
    shown = " ".join(places) if is_for_people() else dict(each.addresses)
    return [each.role, each.group, each.client_id, each.language, each.version, shown]
