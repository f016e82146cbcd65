"""`sparrowmq topic scale` and `topic move`: other queues for a topic, without a failed send or a hidden message."""

from __future__ import annotations

import click

from sparrowmq.cli.operator.shared_verbs import AT_MOST, at_masters, tell
from sparrowmq.cli.operator.topic_commands import topic
from sparrowmq.cli.terminal.asking import ask, options, verb
from sparrowmq.cli.terminal.name_completion import BROKER, TOPIC
from sparrowmq.cli.terminal.output import table
from sparrowmq.cli.terminal.progress_line import Steps
from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.admin.scaling import SETTLE_S, Scaling, Waits
from sparrowmq.loop.clock import SystemClock
from sparrowmq.settings.number_type import Number, Whole

_HOW = options(
    click.option("--dry-run", is_flag=True, help="Only show what would be done."),
    click.option(
        "--settle",
        "settle_s",
        metavar="SECONDS",
        type=Number(min=0),
        default=SETTLE_S,
        show_default=True,
        help="Time without a message in queues that are to go: producers look for routes every 30 s.",
    ),
    AT_MOST,
)


@verb(topic)
@at_masters(TOPIC)
@click.option("-q", "--queues", type=Whole(1), required=True, help="Queues on each broker.")
@_HOW
def scale(name: str, cluster: str | None, queues: int, dry_run: bool, **times: float) -> None:
    """Give the topic NAME another number of queues, without a failed send or a hidden message.

    More queues are there at once. Queues that are to go get no more messages, and go when no producer uses them and
    every group has consumed them. After an interruption the same command continues.
    """

    async def run(admin: Admin) -> list[str]:
        with Steps() as steps:
            scaling = Scaling(admin.servers, SystemClock(), Waits(**times), steps.tell)
            if not dry_run:
                return await scaling.scale(admin.servers.network.full_name(name), queues, cluster)
            counts = await scaling.counts(admin.servers.network.full_name(name), cluster)
            rows = [(broker, *before, queues) for broker, before in sorted(counts.items())]
            table(("BROKER", "READ QUEUES", "WRITE QUEUES", "QUEUES THEN"), rows)
            return []

    brokers = ask(run)
    if not dry_run:
        tell("scaled", name, brokers)


@verb(topic)
@click.argument("name", type=TOPIC)
@click.option(
    "--from", "source", type=BROKER, required=True, metavar="BROKER", help="The broker that has it now."
)
@click.option(
    "--to", "target", type=BROKER, required=True, metavar="BROKER", help="The broker that is to have it."
)
@click.option(
    "--yes",
    "with_unread",
    is_flag=True,
    help="Delete messages of queues that no group has consumed, and wait for no delayed ones.",
)
@_HOW
def move(name: str, source: str, target: str, with_unread: bool, dry_run: bool, **times: float) -> None:
    """Let another broker take the messages of the topic NAME, without a failed send or a lost message.

    Messages are not copied. The old broker is read until every group has consumed all of it, and then has the topic no
    more. After an interruption the same command continues.
    """

    async def run(admin: Admin) -> None:
        with Steps() as steps:
            scaling = Scaling(admin.servers, SystemClock(), Waits(**times), steps.tell)
            full = admin.servers.network.full_name(name)
            if dry_run:
                await scaling.check_move(full, source, target)
            else:
                await scaling.move(full, source, target, with_unread=with_unread)

    ask(run)
    if not dry_run:
        tell("moved", name, [target])
        return
    steps = [
        (target, f"have topic {name}, and take its messages"),
        (source, "take no more messages, and be read until every group has consumed all"),
        (source, f"delete topic {name}"),
    ]
    table(("BROKER", "STEP"), steps)
