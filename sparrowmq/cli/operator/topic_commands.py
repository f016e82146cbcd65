"""`sparrowmq topic`: what operators do with topics."""

from __future__ import annotations

from typing import Any

import click

from sparrowmq.cli.operator.shared_verbs import add_list, at_masters, refuse_no_change, tell
from sparrowmq.cli.terminal.asking import HELP, ask, verb
from sparrowmq.cli.terminal.output import confirm, tables
from sparrowmq.client.admin.topics import PERMS

_PERM = click.Choice(list(PERMS))
_COUNT = click.IntRange(1)


@click.group(context_settings=HELP)
def topic() -> None:
    """Create, change, delete and look at topics."""


add_list(
    topic,
    "Retry and dead-letter topics too, and RocketMQ's own.",
    lambda admin, cluster, hidden: admin.topics(cluster, hidden=hidden),
)


@verb(topic)
@click.argument("name")
def show(name: str) -> None:
    """Show what each broker has of the topic NAME, and where its queues begin and end."""
    found = ask(lambda admin: admin.topic(name))
    tables(
        brokers=(
            ("BROKER", "READ QUEUES", "WRITE QUEUES", "PERM", "ORDERED"),
            [
                (
                    each.broker,
                    each.read_queues,
                    each.write_queues,
                    each.perm,
                    "no" if found.order is None else "yes",
                )
                for each in found.shares
            ],
        ),
        queues=(
            ("BROKER", "QUEUE", "MIN OFFSET", "MAX OFFSET", "LAST STORED"),
            [
                (
                    each.queue.broker_name,
                    each.queue.queue_id,
                    each.min_offset,
                    each.max_offset,
                    each.last_stored,
                )
                for each in found.queues
            ],
        ),
    )


@verb(topic)
@at_masters
@click.option("-q", "--queues", type=_COUNT, default=8, show_default=True, help="Queues on each broker.")
@click.option("--perm", type=_PERM, default="rw", show_default=True, help="What clients may do with it.")
@click.option("--ordered", is_flag=True, help="Keys keep their queue while a broker is away: sends wait.")
def create(name: str, **given: Any) -> None:
    """Create the topic NAME at every master of the cluster."""
    brokers = ask(lambda admin: admin.create_topic(name, **given))
    tell("created", name, brokers)


@verb(topic)
@at_masters
@click.option("-q", "--queues", type=_COUNT, help="Queues on each broker.")
@click.option("--read-queues", type=_COUNT, help="Queues that are consumed, if another number.")
@click.option("--write-queues", type=_COUNT, help="Queues that messages are sent to, if another number.")
@click.option("--perm", type=_PERM, help="What clients may do with it.")
def change(name: str, **given: Any) -> None:
    """Change the topic NAME at every master that has it; what is not given stays as it is."""
    refuse_no_change(given)
    brokers = ask(lambda admin: admin.change_topic(name, **given))
    tell("changed", name, brokers)


@verb(topic)
@at_masters
@click.option("--yes", is_flag=True, help="Do not ask whether to delete its messages.")
def delete(name: str, cluster: str | None, yes: bool) -> None:
    """Delete the topic NAME and its messages at every master that has it."""
    if not yes:
        confirm(f"delete topic {name} with all its messages?")
    brokers = ask(lambda admin: admin.delete_topic(name, cluster=cluster))
    tell("deleted", name, brokers)
