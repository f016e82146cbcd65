"""`sparrowmq topic`: create, change, delete and look at topics, and give them other queues or brokers."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import click

from sparrowmq.cli.terminal.arguments import BROKER, TOPIC
from sparrowmq.cli.terminal.cluster_command import (
    AGAIN,
    AT_MOST,
    EXIST_OK,
    HELP,
    add_list,
    ask,
    at_masters,
    change_all,
    check_changes,
    options,
    print_change,
    query,
    verb,
)
from sparrowmq.cli.terminal.output import Progress, Steps, confirm, table, tables
from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.admin.scaling import SETTLE_S, Scaling, WaitLimits
from sparrowmq.client.admin.topics import PERMS, TYPES
from sparrowmq.errors import StillUnread
from sparrowmq.loop.clock import SystemClock
from sparrowmq.settings.argument_types import Number, Whole

_POLL_S: Final = 1.0
_PERM = click.Choice(list(PERMS))
_COUNT = Whole(1)
_TYPED = click.option(
    "--type", "message_type", type=click.Choice(TYPES[1:]), help="The type of messages that 5.x producers may send."
)


@click.group(context_settings=HELP)
def topic() -> None:
    """Create, change, delete and look at topics."""


add_list(
    topic,
    "Retry and dead-letter topics too, and RocketMQ's own.",
    lambda admin, cluster, hidden: admin.topics(cluster, hidden=hidden),
)


@verb(topic)
@click.argument("name", type=TOPIC)
def show(name: str) -> None:
    """Show what each broker has of the topic NAME, and where its queues begin and end."""
    found = query(lambda admin: admin.topic(name))
    tables(
        brokers=(
            ("BROKER", "READ QUEUES", "WRITE QUEUES", "PERM", "ORDERED", "TYPE"),
            [
                (
                    each.broker,
                    each.read_queues,
                    each.write_queues,
                    each.perm,
                    "no" if found.order is None else "yes",
                    each.message_type,
                )
                for each in found.shares
            ],
        ),
        queues=(
            ("BROKER", "QUEUE", "MIN OFFSET", "MAX OFFSET", "LAST STORED"),
            [
                (each.queue.broker_name, each.queue.queue_id, each.min_offset, each.max_offset, each.last_stored)
                for each in found.queues
            ],
        ),
    )


@verb(topic)
@at_masters(TOPIC)
@click.option("-q", "--queues", type=_COUNT, default=8, show_default=True, help="Queues on each broker.")
@click.option("--perm", type=_PERM, default="rw", show_default=True, help="What clients may do with it.")
@click.option("--ordered", is_flag=True, help="Keys keep their queue while a broker is away: sends wait.")
@_TYPED
@EXIST_OK
def create(name: str, **settings: Any) -> None:
    """Create the topic NAME at every master of the cluster."""
    brokers = change_all(lambda admin: admin.create_topic(name, **settings), settings["cluster"], again=AGAIN)
    print_change("created", name, brokers)


@verb(topic)
@at_masters(TOPIC)
@click.option("-q", "--queues", type=_COUNT, help="Queues on each broker.")
@click.option("--read-queues", type=_COUNT, help="Queues that are consumed, if another number.")
@click.option("--write-queues", type=_COUNT, help="Queues that messages are sent to, if another number.")
@click.option("--perm", type=_PERM, help="What clients may do with it.")
@_TYPED
@click.option(
    "--wait",
    "wait_s",
    metavar="SECONDS",
    type=Number(min=0),
    default=0.0,
    help="Wait at most this long until queues that are to go are consumed.",
)
@click.option("--yes", "hide_unread", is_flag=True, help="Hide messages that were not consumed.")
def change(name: str, wait_s: float, hide_unread: bool, **settings: Any) -> None:
    """Change the topic NAME at every master that has it; what is not given stays as it is.

    Queues that are to go get no more messages at once. While they have messages that a group has not consumed, they are
    still read, and the exit status is 1.
    """
    check_changes(settings)
    changes = settings | {"hide_unread": hide_unread}
    brokers = change_all(lambda admin: _change(admin, name, wait_s, changes), settings["cluster"], topic=name)
    print_change("changed", name, brokers)


async def _change(admin: Admin, name: str, wait_s: float, settings: dict[str, Any]) -> list[str]:
    """Change a topic; try again until its queues are consumed, or the time is over."""
    end = time.monotonic() + wait_s
    with Progress() as progress:
        while True:
            try:
                return await admin.change_topic(name, **settings)
            except StillUnread as left:
                if time.monotonic() >= end:
                    raise
                progress.tell(f"{sum(left.groups.values()):,} messages are to be consumed")
                await asyncio.sleep(min(_POLL_S, max(0.0, end - time.monotonic())))


@verb(topic)
@at_masters(TOPIC)
@click.option("--yes", is_flag=True, help="Do not ask whether to delete its messages.")
def delete(name: str, cluster: str | None, yes: bool) -> None:
    """Delete the topic NAME and its messages at every master that has it."""
    if not yes:
        confirm(f"delete topic {name} with all its messages?")
    brokers = change_all(lambda admin: admin.delete_topic(name, cluster=cluster), cluster, topic=name)
    print_change("deleted", name, brokers)


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
            scaling = Scaling(admin.servers, SystemClock(), WaitLimits(**times), steps.tell)
            if not dry_run:
                return await scaling.scale(admin.servers.network.full_name(name), queues, cluster)
            counts = await scaling.counts(admin.servers.network.full_name(name), cluster)
            rows = [(broker, *before, queues) for broker, before in sorted(counts.items())]
            table(("BROKER", "READ QUEUES", "WRITE QUEUES", "QUEUES THEN"), rows)
            return []

    brokers = ask(run)
    if not dry_run:
        print_change("scaled", name, brokers)


@verb(topic)
@click.argument("name", type=TOPIC)
@click.option("--from", "source", type=BROKER, required=True, metavar="BROKER", help="The broker that has it now.")
@click.option("--to", "target", type=BROKER, required=True, metavar="BROKER", help="The broker that is to have it.")
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
            scaling = Scaling(admin.servers, SystemClock(), WaitLimits(**times), steps.tell)
            full = admin.servers.network.full_name(name)
            if dry_run:
                await scaling.check_move(full, source, target)
            else:
                await scaling.move(full, source, target, with_unread=with_unread)

    ask(run)
    if not dry_run:
        print_change("moved", name, [target])
        return
    steps = [
        (target, f"have topic {name}, and take its messages"),
        (source, "take no more messages, and be read until every group has consumed all"),
        (source, f"delete topic {name}"),
    ]
    table(("BROKER", "STEP"), steps)
