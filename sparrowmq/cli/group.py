"""`sparrowmq group`: what operators do with consumer groups."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import aclosing
from datetime import datetime
from typing import Final

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.dead_letters import walk
from sparrowmq.admin.groups import QueueLag, ResetTo
from sparrowmq.admin.message_search import readable
from sparrowmq.cli.terminal.arguments import GROUP, TOPIC, parse_date
from sparrowmq.cli.terminal.cluster_command import (
    EXIST_OK_HINT,
    EXIST_OK_OPTION,
    HELP,
    add_list,
    ask,
    change_all,
    change_verb,
    query,
    verb,
)
from sparrowmq.cli.terminal.output import confirm, print_table, print_tables, say, split_heads
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.core.digits import whole_number
from sparrowmq.core.safe_text import counted
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.requests.bodies import GroupConfig
from sparrowmq.protocol.requests.client_bodies import ConsumerRunning, ConsumeStatus
from sparrowmq.protocol.requests.group_settings import text_of
from sparrowmq.settings.argument_types import Whole

_COUNT_TYPE = Whole(0)
_ORDERED_HELP: Final = "5.x consumers, and those that pop, get a queue's messages in order."
_DEFAULT_LIMIT: Final = 64  # dead letters
_MEMBER_HEADS: Final = split_heads(
    "MEMBER|ADDRESS|LANGUAGE|VERSION|TOPIC|FILTER|QUEUES|PREFETCHED|PULLED, S AGO|DONE/S|FAILED/S|MS EACH"
)


@click.group(context_settings=HELP)
def group() -> None:
    """Create, change, delete and look at consumer groups, and reset their offsets."""


add_list(group, "RocketMQ's own groups too.", lambda admin, cluster, hidden: admin.groups(cluster, hidden=hidden))


@verb(group)
@click.argument("name", type=GROUP)
def show(name: str) -> None:
    """Show how the group NAME may consume at each broker, and its online members."""
    group = query(lambda admin: admin.group(name))
    settings = [(broker, *_settings(config)) for broker, config in group.settings.items()]
    members = [(client_id, member.client_addr, member.language) for client_id, member in group.members.items()]
    print_tables(
        brokers=(
            split_heads("BROKER|MAX RETRIES|RETRY QUEUES|MAY CONSUME|MAY BROADCAST|ORDERED|RETRY PAUSES"),
            settings,
        ),
        members=(("MEMBER", "ADDRESS", "LANGUAGE"), members),
    )


def _settings(config: GroupConfig) -> tuple[object, ...]:
    switches = config.consume_enable, config.consume_broadcast_enable, config.consume_message_orderly
    states = ["yes" if is_on else "no" for is_on in switches]
    return config.retry_max_times, config.retry_queue_nums, *states, text_of(config.group_retry_policy)


change_verb(
    group,
    "create",
    Admin.create_group,
    GROUP,
    "Create the group NAME at every master of the cluster.",
    click.option(
        "--max-retries", type=_COUNT_TYPE, default=16, show_default=True, help="Failures before the dead letters."
    ),
    click.option("--retry-queues", type=_COUNT_TYPE, default=1, show_default=True, help="Queues of its retry topic."),
    click.option("--may-consume/--may-not-consume", default=True, show_default=True),
    click.option("--may-broadcast/--may-not-broadcast", default=True, show_default=True),
    click.option("--ordered/--not-ordered", default=False, show_default=True, help=_ORDERED_HELP),
    click.option("--retry-pauses", metavar="PAUSES", help="As '10s 1m 5m', or '5s..2h' for doubling."),
    EXIST_OK_OPTION,
    past_verb="created",
    again=EXIST_OK_HINT,
)


change_verb(
    group,
    "change",
    Admin.change_group,
    GROUP,
    "Change the group NAME at every master; what is not given stays as it is.",
    click.option("--max-retries", type=_COUNT_TYPE, help="Failures before the dead letters."),
    click.option("--retry-queues", type=_COUNT_TYPE, help="Queues of its retry topic."),
    click.option("--may-consume/--may-not-consume", default=None),
    click.option("--may-broadcast/--may-not-broadcast", default=None),
    click.option("--ordered/--not-ordered", default=None, help=_ORDERED_HELP),
    click.option("--retry-pauses", metavar="PAUSES", help="As '10s 1m 5m', '5s..2h', or 'levels'."),
    past_verb="changed",
)


change_verb(
    group,
    "delete",
    Admin.delete_group,
    GROUP,
    "Delete the group NAME at every master, with its offsets, retries and dead letters.",
    click.option("--yes", is_flag=True, help="Do not ask whether to delete its offsets and dead letters."),
    past_verb="deleted",
    question="delete group {} with its offsets, retries and dead letters?",
)


@verb(group)
@click.argument("name", type=GROUP)
def members(name: str) -> None:
    """Show what the online members of the group NAME report of themselves.

    For each topic: the member's queues, its prefetched messages, and the seconds since it pulled from the queue that
    waits longest. Of the last minute: messages per second that were handled and that failed, and the milliseconds of a
    call of the handler.
    """
    members = query(lambda admin: admin.members(name))
    now_ms = time.time() * 1000
    rows = [
        (member.client_id, member.address, member.language, member.version, *row)
        for member in members
        for row in (_member_rows(member.running, now_ms) if member.running is not None else [("-",) * 8])
    ]
    print_table(_MEMBER_HEADS, rows, keys={"PREFETCHED": "held"})
    for member in members:
        if member.silence is not None:
            say(f"{member.client_id} did not report: {member.silence}")


def _member_rows(running: ConsumerRunning, now_ms: float) -> Iterator[tuple[object, ...]]:
    for subscription in running.subscription_set:
        topic = subscription.topic
        states = [state for queue, state in running.mq_table.items() if queue.topic == topic]
        prefetched = sum(state.cached_msg_count for state in states)
        pull_ages_ms = [now_ms - state.last_pull_timestamp for state in states if state.last_pull_timestamp]
        pull_age = f"{max(pull_ages_ms) / 1000:.1f}" if pull_ages_ms else "-"
        status = running.status_table.get(topic, ConsumeStatus())
        rates = (status.consume_ok_tps, status.consume_failed_tps, status.consume_rt)
        yield topic, subscription.expression, len(states), prefetched, pull_age, *(f"{rate:.1f}" for rate in rates)


@verb(group)
@click.argument("name", type=GROUP)
@click.argument("topic", type=TOPIC, required=False)
def lag(name: str, topic: str | None) -> None:
    """Show how far the group NAME is in each queue of TOPIC, or of all that it consumes.

    LAG counts the messages that are not acknowledged. IN FLIGHT are those of them that consumers which pop have now.
    LAG SECONDS is the age of the message that the group handled last; 0 where no message waits.
    """
    lag = query(lambda admin: admin.lag(name, topic))
    now = datetime.now().astimezone()
    ages_s = [queue_lag.behind_s(now) for queue_lag in lag.queues]
    print_table(
        ("TOPIC", "BROKER", "QUEUE", "END", "COMMITTED", "LAG", "IN FLIGHT", "LAG SECONDS", "LAST CONSUMED"),
        map(_lag_row, lag.queues, ages_s),
        keys={"LAG SECONDS": "behind_s"},
    )
    max_age_s = max((age_s for age_s in ages_s if age_s is not None), default=0.0)
    age = f", {max_age_s:.0f} s" if lag.lag and max_age_s else ""
    in_flight = f", {lag.in_flight} of them in flight" if lag.in_flight is not None else ""
    say(f"lag: {counted(lag.lag, 'message')}{in_flight}{age}; {lag.per_second:.1f} messages per second")


def _lag_row(queue_lag: QueueLag, age_s: float | None) -> tuple[object, ...]:
    place = queue_lag.queue.topic, queue_lag.queue.broker_name, queue_lag.queue.queue_id
    counts = queue_lag.broker_offset, queue_lag.committed, queue_lag.lag, queue_lag.in_flight
    return *place, *counts, None if age_s is None else round(age_s, 1), queue_lag.last_consumed


@verb(group)
@click.argument("name", type=GROUP)
@click.argument("topic", type=TOPIC)
@click.argument("to", callback=lambda _context, _option, text: _parse_target(text))
@click.option("--dry-run", is_flag=True, help="Only show where each queue would continue.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(name: str, topic: str, to: ResetTo, dry_run: bool, yes: bool) -> None:
    """Reset the offsets of the group NAME in TOPIC to TO: "earliest", "latest", a time, or an offset.

    A time is written as 2026-11-20T08:00. Online members continue there within seconds. For an offset no
    member may be online. Times without a zone are local.
    """
    if not dry_run and not yes:
        confirm(f"reset offsets of group {name} in topic {topic} to {to}? It skips messages that wait before")
    offsets = change_all(lambda admin: admin.reset(name, topic, to, dry_run=dry_run), topic=topic)
    rows = [(queue.broker_name, queue.queue_id, offset) for queue, offset in offsets.items()]
    print_table(("BROKER", "QUEUE", "OFFSET"), rows)


@verb(group, "dead-letters")
@click.argument("name", type=GROUP)
@click.option("--resend", metavar="ID", multiple=True, help="Let the group try this one again; or `all`.")
@click.option(
    "--limit",
    type=Whole(1),
    help=f"At most this many, the oldest first. By default {_DEFAULT_LIMIT} are shown, and --resend looks at all.",
)
def dead_letters(name: str, resend: tuple[str, ...], limit: int | None) -> None:
    """Show the messages that failed every try of the group NAME, or let the group try some of them again.

    They also stay in the dead-letter queue until the broker deletes them.
    """
    if resend:
        ask(lambda admin: _resend(admin, name, set(resend), limit))
        return

    async def list_letters(admin: Admin) -> list[tuple[object, ...]]:
        letters = walk(admin.servers, name, limit=limit or _DEFAULT_LIMIT)
        return [_letter_row(letter) async for letter in letters]

    print_table(("ID", "TOPIC", "BROKER", "OFFSET", "TRIES", "STORED", "BYTES"), query(list_letters))


async def _resend(admin: Admin, name: str, ids: set[str], limit: int | None) -> None:
    missing = ids - {"all"}
    async with aclosing(walk(admin.servers, name, limit=limit)) as letters:
        async for letter in letters:
            missing.discard(letter.msg_id)
            if ids & {"all", letter.msg_id}:
                await admin.resend(letter)
                say(f"sent {letter.msg_id} to group {name} again")
    if missing:
        raise click.ClickException(f"no dead letter of group {name} is {', '.join(sorted(missing))}")


def _letter_row(letter: ReceivedMessage) -> tuple[object, ...]:
    place = letter.stored.properties.get(Property.RETRY_TOPIC, "-"), letter.queue.broker_name, letter.offset
    stored = datetime.fromtimestamp(letter.store_timestamp_ms // 1000).isoformat()
    return letter.msg_id, *place, letter.reconsume_times, stored, len(readable(letter.stored).content)


def _parse_target(text: str) -> ResetTo:
    if text in ("earliest", "latest"):
        return "earliest" if text == "earliest" else "latest"
    if (offset := whole_number(text)) is not None:
        return offset
    try:
        return parse_date(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is not a position; give earliest, latest, a time as 2026-11-20T08:00, or an offset"
        ) from None
