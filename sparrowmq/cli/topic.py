"""`sparrowmq topic`: create, change, delete and look at topics, and give them other queues or brokers."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.scaling import SETTLE_S, Scaling, WaitLimits
from sparrowmq.admin.topics import PERMS, TYPES
from sparrowmq.cli.terminal.arguments import BROKER, TOPIC
from sparrowmq.cli.terminal.cluster_command import (
    EXIST_OK_HINT,
    EXIST_OK_OPTION,
    HELP,
    WAIT_OPTION,
    add_list,
    ask,
    change_all,
    change_verb,
    check_changes,
    name_and_cluster,
    options,
    print_change,
    query,
    verb,
)
from sparrowmq.cli.terminal.output import Progress, Steps, print_table, print_tables
from sparrowmq.errors import StillUnread
from sparrowmq.loop.clock import SystemClock
from sparrowmq.settings.argument_types import Number, Whole

_POLL_S: Final = 1.0
_PERM_TYPE = click.Choice(list(PERMS))
_COUNT_TYPE = Whole(1)
_TYPE_OPTION = click.option(
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
    topic = query(lambda admin: admin.topic(name))
    ordered = "no" if topic.order is None else "yes"
    brokers = [
        (share.broker, share.read_queues, share.write_queues, share.perm, ordered, share.message_type)
        for share in topic.shares
    ]
    queues = [
        (
            queue_range.queue.broker_name,
            queue_range.queue.queue_id,
            queue_range.min_offset,
            queue_range.max_offset,
            queue_range.last_stored,
        )
        for queue_range in topic.queues
    ]
    print_tables(
        brokers=(("BROKER", "READ QUEUES", "WRITE QUEUES", "PERM", "ORDERED", "TYPE"), brokers),
        queues=(("BROKER", "QUEUE", "MIN OFFSET", "MAX OFFSET", "LAST STORED"), queues),
    )


change_verb(
    topic,
    "create",
    Admin.create_topic,
    TOPIC,
    "Create the topic NAME at every master of the cluster.",
    click.option("-q", "--queues", type=_COUNT_TYPE, default=8, show_default=True, help="Queues on each broker."),
    click.option("--perm", type=_PERM_TYPE, default="rw", show_default=True, help="What clients may do with it."),
    click.option("--ordered", is_flag=True, help="Keys keep their queue while a broker is away: sends wait."),
    _TYPE_OPTION,
    EXIST_OK_OPTION,
    past_verb="created",
    again=EXIST_OK_HINT,
)


@verb(topic)
@name_and_cluster(TOPIC)
@click.option("-q", "--queues", type=_COUNT_TYPE, help="Queues on each broker.")
@click.option("--read-queues", type=_COUNT_TYPE, help="Queues that are consumed, if another number.")
@click.option("--write-queues", type=_COUNT_TYPE, help="Queues that messages are sent to, if another number.")
@click.option("--perm", type=_PERM_TYPE, help="What clients may do with it.")
@_TYPE_OPTION
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
    end_s = time.monotonic() + wait_s
    with Progress() as progress:
        while True:
            try:
                return await admin.change_topic(name, **settings)
            except StillUnread as error:
                if time.monotonic() >= end_s:
                    raise
                progress.show(f"{sum(error.groups.values()):,} messages are to be consumed")
                await asyncio.sleep(min(_POLL_S, max(0.0, end_s - time.monotonic())))


change_verb(
    topic,
    "delete",
    Admin.delete_topic,
    TOPIC,
    "Delete the topic NAME and its messages at every master that has it.",
    click.option("--yes", is_flag=True, help="Do not ask whether to delete its messages."),
    past_verb="deleted",
    question="delete topic {} with all its messages?",
    is_of_topic=True,
)


_SCALING_OPTIONS = options(
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
    WAIT_OPTION,
)


@verb(topic)
@name_and_cluster(TOPIC)
@click.option("-q", "--queues", type=Whole(1), required=True, help="Queues on each broker.")
@_SCALING_OPTIONS
def scale(name: str, cluster: str | None, queues: int, dry_run: bool, **times: float) -> None:
    """Give the topic NAME another number of queues, without a failed send or a hidden message.

    More queues are there at once. Queues that are to go get no more messages, and go when no producer uses them and
    every group has consumed them. After an interruption the same command continues.
    """

    async def run(admin: Admin) -> list[str]:
        with Steps() as steps:
            scaling = Scaling(admin.servers, SystemClock(), WaitLimits(**times), steps.show)
            full_name = admin.servers.network.full_name(name)
            if not dry_run:
                return await scaling.scale(full_name, queues, cluster)
            counts = await scaling.counts(full_name, cluster)
            rows = [(broker, *before, queues) for broker, before in sorted(counts.items())]
            print_table(("BROKER", "READ QUEUES", "WRITE QUEUES", "QUEUES THEN"), rows)
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
@_SCALING_OPTIONS
def move(name: str, source: str, target: str, with_unread: bool, dry_run: bool, **times: float) -> None:
    """Let another broker take the messages of the topic NAME, without a failed send or a lost message.

    Messages are not copied. The old broker is read until every group has consumed all of it, and then has the topic no
    more. After an interruption the same command continues.
    """

    async def run(admin: Admin) -> None:
        with Steps() as steps:
            scaling = Scaling(admin.servers, SystemClock(), WaitLimits(**times), steps.show)
            full_name = admin.servers.network.full_name(name)
            if dry_run:
                await scaling.check_move(full_name, source, target)
            else:
                await scaling.move(full_name, source, target, with_unread=with_unread)

    ask(run)
    if not dry_run:
        print_change("moved", name, [target])
        return
    steps = [
        (target, f"have topic {name}, and take its messages"),
        (source, "take no more messages, and be read until every group has consumed all"),
        (source, f"delete topic {name}"),
    ]
    print_table(("BROKER", "STEP"), steps)
