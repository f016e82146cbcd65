"""`sparrowmq dlq`: show the messages of a dead-letter queue, and send them to their group again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final, TypeAlias

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.dead_letters import reason_of, sent_again, walk
from sparrowmq.admin.message_search import readable
from sparrowmq.cli.message import first_line
from sparrowmq.cli.terminal.arguments import GROUP, TOPIC, iso, parse_time
from sparrowmq.cli.terminal.cluster_command import HELP, ask, options, query, verb
from sparrowmq.cli.terminal.output import Progress, confirm, is_for_people, print_done, print_table, say
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.core.safe_text import counted
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.settings.argument_types import ABOVE_ZERO, Whole

_DEFAULT_LIMIT: Final = 64
_Letters: TypeAlias = AsyncGenerator[tuple[ReceivedMessage, int], None]
_ResumePoint: TypeAlias = tuple[int, int]  # a millisecond, and which of those that were stored in it
_HEADS: Final = ("ID", "TOPIC", "BROKER", "OFFSET", "TRIES", "STORED", "SENT AGAIN", "REASON", "TAG", "BODY")


# The options that choose dead letters.
_filters = options(
    click.option("--id", "ids", metavar="ID", multiple=True, help="Only this message; may be repeated."),
    click.option("--skip", type=Whole(0), default=0, help="Skip this many of the oldest."),
    click.option(
        "--since",
        callback=parse_time,
        help="Only those that failed since: 2026-11-20T08:00, or 15m for 15 minutes ago.",
    ),
    click.option("--tag", help="Only those with this tag."),
    click.option("--topic", type=TOPIC, help="Only those sent to this topic."),
)


@click.group(context_settings=HELP)
def dlq() -> None:
    """Look at dead letters, and let their groups try them again."""


@verb(dlq, "list")
@click.argument("group", type=GROUP)
@_filters
@click.option(
    "--limit", type=Whole(1), default=_DEFAULT_LIMIT, show_default=True, help="At most this many, the oldest first."
)
def list_letters(group: str, **filters: Any) -> None:
    """Show the dead letters of GROUP, the oldest first.

    REASON is what its consumer said. SENT AGAIN is the time at which a letter was first sent to the group again.
    """

    async def run(admin: Admin) -> list[tuple[object, ...]]:
        letters = [letter async for letter, _ in _chosen_letters(admin, group, **filters)]
        return list(map(_row, letters, await sent_again(admin.servers, letters)))

    print_table(_HEADS, query(run))


@verb(dlq)
@click.argument("group", type=GROUP)
@_filters
@click.option("--limit", type=Whole(1), help="At most this many, the oldest first; without it all.")
@click.option("--rate", type=ABOVE_ZERO, help="Maximum messages per second.")
@click.option("--dry-run", is_flag=True, help="Only show how many messages it would be.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def redrive(group: str, rate: float | None, dry_run: bool, yes: bool, **filters: Any) -> None:
    """Let GROUP try its dead letters again, from the first time on; other groups do not get them.

    They also stay in the dead-letter queue until the broker deletes them; redriven twice they come twice. If the
    command ends at a --limit or is interrupted, it prints how to continue, with --since and --skip.
    """

    async def run(admin: Admin) -> tuple[int, _ResumePoint | None]:
        total = sum([1 async for _ in _chosen_letters(admin, group, **filters)])
        if dry_run or not total:
            return total, None
        if not yes:
            confirm(f"let group {group} try {counted(total, 'dead letter')} again?")
        is_cut = total == filters["limit"]
        letters = _chosen_letters(admin, group, **filters | {"limit": total})  # and none that died meanwhile
        count, last = await _send_again(admin, letters, total, rate)
        return count, last if is_cut else None

    count, last = ask(run)
    sentence = f"sent {counted(count, 'dead letter')} to group {group} again"
    if dry_run or not count:
        sentence = f"{counted(count, 'dead letter')} of group {group} would be sent again"
    since, skip = (iso(last[0]), last[1]) if last else (None, None)
    if last:
        sentence += f"; {_how_to_continue(*last)}"
    print_done(sentence, group=group, messages=count, dry_run=dry_run, since=since, skip=skip)


async def _send_again(
    admin: Admin, letters: _Letters, total: int, rate: float | None
) -> tuple[int, _ResumePoint | None]:
    """Send one after the other at the rate; returns the number, and the place of the last one."""
    last: _ResumePoint | None = None
    count = 0
    with Progress() as progress:
        try:
            async for letter, nth in letters:
                if rate is not None and count:
                    await asyncio.sleep(1 / rate)
                await admin.resend(letter)
                last = letter.store_timestamp_ms, nth
                count += 1
                progress("sending", count, total)
        except BaseException:
            progress.clear()
            say(f"{count:,} of {total:,} were sent; {_how_to_continue(*last) if last else 'begin again'}")
            raise
    return count, last


def _how_to_continue(store_timestamp_ms: int, nth: int) -> str:
    return f"go on with --since {iso(store_timestamp_ms)} --skip {nth}"


async def _chosen_letters(
    admin: Admin,
    group: str,
    *,
    limit: int | None,
    skip: int,
    topic: str | None,
    tag: str | None,
    since: datetime | None,
    ids: tuple[str, ...],
) -> _Letters:
    """Yield the dead letters that fit, the oldest first, each with its number among those of its millisecond."""
    since_ms = round(since.timestamp() * 1000) if since is not None else 0
    missing = set(ids)
    count = stored_ms = nth = 0
    async with aclosing(walk(admin.servers, group, since_ms)) as letters:
        async for letter in letters:
            is_chosen = (
                (not ids or letter.msg_id in ids)
                and (topic is None or _origin(letter) == topic)
                and (tag is None or letter.stored.tags == tag)
            )
            if not is_chosen:
                continue
            missing.discard(letter.msg_id)
            nth = nth + 1 if letter.store_timestamp_ms == stored_ms else 1
            stored_ms = letter.store_timestamp_ms
            count += 1
            if count > skip:
                yield letter, nth
            if limit is not None and count == skip + limit:
                break
    if missing:
        raise click.ClickException(f"no dead letter of group {group} is {', '.join(sorted(missing))}")


def _origin(letter: ReceivedMessage) -> str | None:
    return letter.stored.properties.get(Property.RETRY_TOPIC)


def _row(letter: ReceivedMessage, sent_again: datetime | None) -> tuple[object, ...]:
    body = readable(letter.stored)
    text = body.content.decode("utf-8", "replace") if body.trouble is None else body.trouble
    place = letter.queue.broker_name, letter.offset, letter.reconsume_times
    stored = datetime.fromtimestamp(letter.store_timestamp_ms // 1000).isoformat()
    again_text = sent_again.replace(tzinfo=None).isoformat(timespec="seconds") if sent_again is not None else None
    reason = reason_of(letter)
    if is_for_people():
        reason, text = reason and first_line(reason), first_line(text)
    return letter.msg_id, _origin(letter), *place, stored, again_text, reason, letter.stored.tags, text
