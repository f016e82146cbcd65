"""`sparrowmq dlq`: what groups could not handle however often it was tried, looked at and sent to them again."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any, Final

import click

from sparrowmq.cli.asking import HELP, ask, asking
from sparrowmq.cli.message import SHOWN
from sparrowmq.cli.moments import moment
from sparrowmq.cli.output import OUTPUT, is_for_people, say, table
from sparrowmq.cli.progress import Progress
from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.protocol.messages.property_names import Property

MOST: Final = 100_000
_HEADS: Final = ("ID", "TOPIC", "BROKER", "OFFSET", "TRIES", "STORED", "TAG", "BODY")


def _filters(command: Any) -> Any:
    """Gives a command the options by which dead letters are chosen."""
    for option in (
        click.option(
            "--limit", type=click.IntRange(1, MOST), default=64, show_default=True, help="The eldest so many."
        ),
        click.option("--topic", help="Those that were sent to this topic."),
        click.option("--tag", help="Those with this tag."),
        click.option(
            "--since", callback=moment, help="Given up since: 2026-11-20T08:00, or 15m for so long ago."
        ),
        click.option("--id", "ids", metavar="ID", multiple=True, help="This one; may be repeated."),
    ):
        command = option(command)
    return command


@click.group(context_settings=HELP)
def dlq() -> None:
    """Look at dead letters, and let their groups try them again."""


@dlq.command("list")
@asking
@OUTPUT
@click.argument("group")
@_filters
def list_letters(namesrv: str | None, timeout_s: float, group: str, **wanted: Any) -> None:
    """Show the dead letters of GROUP, the eldest first."""
    found = ask(namesrv, timeout_s, lambda admin: _chosen(admin, group, **wanted))
    table(_HEADS, map(_row, found))


@dlq.command()
@asking
@click.argument("group")
@_filters
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="At most so many a second.")
@click.option("--dry-run", is_flag=True, help="Only tell how many it would be.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def redrive(
    namesrv: str | None,
    timeout_s: float,
    group: str,
    rate: float | None,
    dry_run: bool,
    yes: bool,
    **wanted: Any,
) -> None:
    """Let GROUP try its dead letters again, from the first time on; other groups do not get them.

    They stay among the dead letters as well, until they are as old as the broker keeps messages: redriven twice they
    come twice. When it is interrupted it says from which time on to go on, with --since.
    """

    async def run(admin: Admin) -> int:
        letters = await _chosen(admin, group, **wanted)
        if dry_run or not letters:
            say(f"{len(letters):,} dead letters of group {group} would be sent again")
            return 0
        if not yes:
            click.confirm(f"let group {group} try {len(letters):,} dead letters again?", abort=True)
        return await _send_again(admin, group, letters, rate)

    count = ask(namesrv, timeout_s, run)
    if count:
        say(f"sent {count:,} dead letters to group {group} again")


async def _send_again(admin: Admin, group: str, letters: list[ReceivedMessage], rate: float | None) -> int:
    """One after the other, as fast as they may go; returns how many."""
    with Progress() as progress:
        for count, each in enumerate(letters, 1):
            try:
                await admin.resend(each)
            except BaseException:
                at = datetime.fromtimestamp(each.store_timestamp_ms / 1000).isoformat(timespec="milliseconds")
                progress.clear()
                say(f"{count - 1:,} of {len(letters):,} were sent; go on with --since {at}")
                raise
            progress("sending", count, len(letters))
            if rate is not None:
                await asyncio.sleep(1 / rate)
    return len(letters)


async def _chosen(
    admin: Admin,
    group: str,
    *,
    limit: int,
    topic: str | None,
    tag: str | None,
    since: datetime | None,
    ids: tuple[str, ...],
) -> list[ReceivedMessage]:
    """The dead letters that fit all that was given; the eldest `limit` of them."""
    every = topic or tag or since or ids
    since_ms = since.timestamp() * 1000 if since is not None else 0
    found = [
        each
        for each in await admin.dead_letters(group, limit=MOST if every else limit)
        if (not ids or each.msg_id in ids)
        and (topic is None or _origin(each) == topic)
        and (tag is None or each.stored.tags == tag)
        and each.store_timestamp_ms >= since_ms
    ][:limit]
    missing = set(ids) - {each.msg_id for each in found}
    if missing:
        raise click.ClickException(f"no dead letter of group {group} is {', '.join(sorted(missing))}")
    return found


def _origin(letter: ReceivedMessage) -> str | None:
    return letter.stored.properties.get(Property.RETRY_TOPIC)


def _row(letter: ReceivedMessage) -> tuple[object, ...]:
    text = letter.body.decode("utf-8", "replace")
    shown = text if not is_for_people() or len(text) <= SHOWN else text[: SHOWN - 1] + "…"
    stored = datetime.fromtimestamp(letter.store_timestamp_ms // 1000).isoformat()
    place = letter.queue.broker_name, letter.offset, letter.reconsume_times
    return letter.msg_id, _origin(letter), *place, stored, letter.stored.tags, shown.partition("\n")[0]
