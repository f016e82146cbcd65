"""`sparrowmq cluster`: the master of each broker, the lag of each slave, and which member of a group leads.

sparrowmq cluster                               the table; so does `sparrowmq cluster show`
sparrowmq cluster health                        one word, for cron
sparrowmq cluster transfer -b NAME [--to N]     another member leads, without a failed send
sparrowmq cluster elect -b NAME [--member N]    an operator's decision where no member can be elected
"""

from __future__ import annotations

import sys

import click

from sparrowmq.cli.terminal.asking import CLUSTER, EXPECT, HELP, UsualVerb, ask, look, verb
from sparrowmq.cli.terminal.name_completion import BROKER
from sparrowmq.cli.terminal.output import confirm, done, heads, is_for_people, say, table
from sparrowmq.cli.terminal.plain_terminal import shown
from sparrowmq.client.admin.findings import Health, Verdict, health_of
from sparrowmq.client.admin.standings import Standing
from sparrowmq.settings.number_type import Whole

_HEADS = heads(
    "CLUSTER|BROKER|ID|ADDRESS|ROLE|MEMBER|EPOCH|IN SYNC|LOG EPOCH|LOG END|"
    "LAG BYTES|LAG MESSAGES|LAG SECONDS|IN TPS|OUT TPS|VERSION|PROTOCOL|PROBLEM"
)
_KEYS = {"LAG BYTES": "behind_bytes", "LAG MESSAGES": "behind_messages", "LAG SECONDS": "behind_s"}
# People see these where there are some.
_WHERE_SOME = ("MEMBER", "EPOCH", "IN SYNC", "LOG EPOCH", "LAG MESSAGES", "PROBLEM")


_BROKER = click.option(
    "-b", "--broker", type=BROKER, required=True, metavar="NAME", help="The brokerName of the group."
)


@click.group(cls=UsualVerb, verb="show", context_settings=HELP)
def cluster() -> None:
    """Show the brokers of a cluster, or decide which member of a replicated group leads.

    Options without a command are those of `show`.
    """


@verb(cluster)
@CLUSTER
@click.option(
    "--messages", is_flag=True, help="Count the messages that slaves lack: a request for each topic."
)
def show(cluster: str | None, messages: bool) -> None:
    """Show the masters, the slaves in sync, the lag of each slave, and the messages per second of each broker.

    The status is 1 when a broker does not answer, or neither leads nor follows: PROBLEM says why.
    """
    found = look(lambda admin: admin.standings(cluster, count=messages))
    rows = [_row(each) for each in found]
    places = list(range(len(_HEADS)))
    if is_for_people():
        places = [
            at
            for at in places
            if _HEADS[at] not in _WHERE_SOME or any(row[at] not in (None, "") for row in rows)
        ]
    table([_HEADS[at] for at in places], [[row[at] for at in places] for row in rows], keys=_KEYS)
    if any(each.problem for each in found):
        sys.exit(1)


@verb(cluster)
@EXPECT
def health(expected: tuple[str, ...]) -> None:
    """Print healthy, degraded or down, and on stderr what is wrong. The status is 0 only if it is healthy.

    Degraded: something is wrong, as `sparrowmq doctor` says with the remedy. Down: no name server answers, or no broker
    takes messages.
    """
    findings = ask(lambda admin: admin.examine(expected=expected))
    found = health_of(findings)
    wrong = [each.what for each in findings if each.verdict is Verdict.WRONG]
    if is_for_people():
        say(found.value)
        for what in wrong:
            click.echo(shown(what), err=True)
    else:
        done("", health=found.value, wrong=wrong)
    sys.exit(0 if found is Health.HEALTHY else 1)


@verb(cluster)
@_BROKER
@click.option("--to", "member", type=Whole(1), metavar="N", help="That member's brokerId.")
def transfer(broker: str, member: int | None) -> None:
    """Let another member that is in sync lead: member N, or the one that has most.

    The master takes no messages until the other member leads, about two seconds. Clients of SparrowMQ wait and try
    again, so no send fails.
    """
    chosen = ask(lambda admin: admin.hand_over(broker, member))
    done(f"{broker}: member {chosen} leads next", broker=broker, member=chosen)


@verb(cluster)
@_BROKER
@click.option("--member", type=Whole(1), metavar="N", help="Its brokerId. Default: that which has most.")
@click.option("--force", is_flag=True, help="Give up what only lost members in sync have. Asks first.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def elect(broker: str, member: int | None, force: bool, yes: bool) -> None:
    """Let a member lead with its log where no member can be elected.

    Needed if etcd has lost its data, and with --force if all members in sync are lost for good. The member that has
    most is that of the highest LOG EPOCH, and of these that of the highest LOG END of `sparrowmq cluster`. Members that
    have more than the new master do not follow it. The command ends when the member leads, or says why it does not.
    """
    if force and not yes:
        confirm("Messages that the new master lacks are lost to consumers. Continue?")
    chosen = ask(lambda admin: admin.elect(broker, member, force=force))
    done(f"{broker}: member {chosen} leads", broker=broker, member=chosen)


def _row(each: Standing) -> list[object]:
    in_sync = None if each.in_sync is None else ",".join(map(str, each.in_sync))
    if each.inherited is not None and is_for_people():
        in_sync = f"({','.join(map(str, each.inherited))})"
    place = each.cluster, each.broker, each.broker_id, each.address, each.role
    log = each.log_epoch, each.end
    lag = each.behind_bytes, each.behind_messages, each.behind_s
    rates = each.in_tps, each.out_tps
    versions = each.version, each.protocol
    return [*place, each.member, each.epoch, in_sync, *log, *lag, *rates, *versions, each.problem]
