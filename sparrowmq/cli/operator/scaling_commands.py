"""`sparrowmq topic scale` and `topic move`: other queues for a topic, without a failed send or a hidden message."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from sparrowmq.cli.operator.shared_verbs import at_masters, tell
from sparrowmq.cli.operator.topic_commands import topic
from sparrowmq.cli.terminal.asking import ask, options, verb
from sparrowmq.cli.terminal.name_completion import BROKER, TOPIC
from sparrowmq.cli.terminal.output import table
from sparrowmq.cli.terminal.steps import Steps
from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.admin.scaling import SETTLE_S, Scaling, Waits
from sparrowmq.loop.clock import SystemClock

_HOW = options(
    click.option("--dry-run", is_flag=True, help="Only show what would be done."),
    click.option(
        "--settle",
        "settle_s",
        metavar="SECONDS",
        type=click.FloatRange(min=0),
        default=SETTLE_S,
        show_default=True,
        help="Time without a message in queues that are to go: producers look for routes every 30 s.",
    ),
    click.option(
        "--wait",
        "limit_s",
        metavar="SECONDS",
        type=click.FloatRange(min=0),
        default=3600.0,
        show_default=True,
        help="Stop after this time; the same command continues.",
    ),
)


@verb(topic)
@at_masters(TOPIC)
@click.option("-q", "--queues", type=click.IntRange(1), required=True, help="Queues on each broker.")
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
@click.option("--yes", "with_unread", is_flag=True, help="Delete messages that no group has consumed.")
@_HOW
def move(name: str, dry_run: bool, **given: Any) -> None:
    """Let another broker take the messages of the topic NAME, without a failed send or a lost message.

    Messages are not copied. The old broker is read until every group has consumed all of it, and then has the topic no
    more. After an interruption the same command continues.
    """
    wanted = _Move(**given)

    async def run(admin: Admin) -> None:
        with Steps() as steps:
            waits = Waits(wanted.settle_s, wanted.limit_s)
            scaling = Scaling(admin.servers, SystemClock(), waits, steps.tell)
            full = admin.servers.network.full_name(name)
            if not dry_run:
                await scaling.move(full, wanted.source, wanted.target, with_unread=wanted.with_unread)
                return
            await scaling.check_move(full, wanted.source, wanted.target)
            table(("BROKER", "STEP"), wanted.steps(name))

    ask(run)
    if not dry_run:
        tell("moved", name, [wanted.target])


@dataclass(frozen=True, slots=True)
class _Move:
    source: str
    target: str
    with_unread: bool
    settle_s: float
    limit_s: float

    def steps(self, name: str) -> list[tuple[str, str]]:
        return [
            (self.target, f"have topic {name}, and take its messages"),
            (self.source, "take no more messages, and be read until every group has consumed all"),
            (self.source, f"delete topic {name}"),
        ]
