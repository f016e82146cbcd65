"""`sparrowmq cluster`: the master of each broker, and the lag of each slave."""

from __future__ import annotations

import sys

import click

from sparrowmq.cli.terminal.asking import CLUSTER, HELP, ask, asking
from sparrowmq.cli.terminal.output import OUTPUT, heads, is_for_people, table
from sparrowmq.client.admin.standings import Standing

_HEADS = heads(
    "CLUSTER|BROKER|ID|ADDRESS|ROLE|MEMBER|EPOCH|IN SYNC|LOG END|"
    "LAG BYTES|LAG MESSAGES|LAG SECONDS|IN TPS|OUT TPS|VERSION|PROBLEM"
)
_KEYS = {"LAG BYTES": "behind_bytes", "LAG MESSAGES": "behind_messages", "LAG SECONDS": "behind_s"}
# People see these where there are some.
_WHERE_SOME = ("MEMBER", "EPOCH", "IN SYNC", "LAG MESSAGES", "PROBLEM")


@click.command(context_settings=HELP)
@asking
@OUTPUT
@CLUSTER
@click.option(
    "--messages", is_flag=True, help="Count the messages that slaves lack: a request for each topic."
)
def cluster(cluster: str | None, messages: bool) -> None:
    """Show the masters, the slaves in sync, the lag of each slave, and the messages per second of each broker.

    The status is 1 when a broker does not answer, or neither leads nor follows: PROBLEM says why.
    """
    found = ask(lambda admin: admin.standings(cluster, count=messages))
    rows = [_row(each) for each in found]
    shown = list(range(len(_HEADS)))
    if is_for_people():
        shown = [
            at
            for at in shown
            if _HEADS[at] not in _WHERE_SOME or any(row[at] not in (None, "") for row in rows)
        ]
    table([_HEADS[at] for at in shown], [[row[at] for at in shown] for row in rows], keys=_KEYS)
    if any(each.problem for each in found):
        sys.exit(1)


def _row(each: Standing) -> list[object]:
    in_sync = None if each.in_sync is None else ",".join(map(str, each.in_sync))
    place = each.cluster, each.broker, each.broker_id, each.address, each.role
    lag = each.behind_bytes, each.behind_messages, each.behind_s
    rates = each.in_tps, each.out_tps
    return [*place, each.member, each.epoch, in_sync, each.end, *lag, *rates, each.version, each.problem]
