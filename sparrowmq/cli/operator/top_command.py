"""`sparrowmq top`: what a cluster does now, redrawn every few seconds until ^C.

The busiest topics and the groups with the greatest lag come first. A terminal shows as many as have room; files and
programs get one look, with all.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from itertools import count as count_up
from typing import Final

import click

from sparrowmq.cli.terminal.asking import CLUSTER, HELP, ask, asking
from sparrowmq.cli.terminal.output import OUTPUT, heads, is_for_people, line, say, tables
from sparrowmq.client.admin.activity import Activity, TopicRate, activity
from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.admin.brokers import Standing
from sparrowmq.client.admin.groups import GroupLag
from sparrowmq.core.safe_text import counted
from sparrowmq.errors import NetworkError
from sparrowmq.settings.number_type import Number, Whole

_BROKERS: Final = heads("BROKER|ROLE|ADDRESS|IN TPS|OUT TPS|LAG BYTES|STATE")
_TOPICS: Final = heads("TOPIC|IN TPS|IN A DAY")
_GROUPS: Final = heads("GROUP|LAG|BEHIND S|OUT TPS")
_HOME_AND_CLEAR: Final = "\x1b[H\x1b[2J"
_FEWEST: Final = 3  # topics, and groups, however low the terminal is
_BETWEEN: Final = 7  # the first line, the heads of three tables and what is between them


@click.command(context_settings=HELP)
@asking
@OUTPUT
@CLUSTER
@click.option(
    "--every",
    "every_s",
    metavar="SECONDS",
    type=Number(min=1),
    default=5.0,
    show_default=True,
    help="From one look to the next.",
)
@click.option("--count", type=Whole(1), metavar="N", help="End after N looks; 1 if no terminal shows them.")
def top(cluster: str | None, every_s: float, count: int | None) -> None:
    """Show the busiest topics, the groups with the greatest lag, and the state of each broker, until ^C.

    IN TPS of topics is the mean of the last minute. The status is 1 if a broker was missing at the last look.
    """
    is_live = is_for_people() and sys.stdout.isatty()
    looks = count or (None if is_live else 1)

    async def run(admin: Admin) -> bool:
        for number in count_up(1):
            is_whole = await _look(admin, cluster, is_live)
            if number == looks:
                return is_whole
            await asyncio.sleep(every_s)
        raise AssertionError("it counts on")

    with suppress(KeyboardInterrupt):
        sys.exit(0 if ask(run) else 1)


async def _look(admin: Admin, cluster: str | None, is_live: bool) -> bool:
    """Show the cluster once; returns whether all brokers are in it. A terminal waits for name servers to come back."""
    try:
        found = await activity(admin.servers, cluster)
    except NetworkError as error:
        if not is_live:
            raise
        say(str(error))
        return False
    _show(found, is_live)
    return not found.missing


def _show(found: Activity, is_live: bool) -> None:
    most = _room(len(found.brokers)) if is_live else None
    if is_live:
        click.echo(_HOME_AND_CLEAR, nl=False)
    if is_for_people():
        line(_summary(found))
        click.echo()
    tables(
        brokers=(_BROKERS, [_broker(each) for each in found.brokers]),
        topics=(_TOPICS, [_topic(each) for each in found.topics[:most]]),
        groups=(_GROUPS, [_group(each) for each in found.groups[:most]]),
    )
    for broker, why in found.missing.items():
        say(f"without {broker}: {why}")


def _room(brokers: int) -> int:
    """Return how many topics, and how many groups, a terminal has room for."""
    return max(_FEWEST, (shutil.get_terminal_size().lines - brokers - _BETWEEN) // 2)


def _summary(found: Activity) -> str:
    taken = sum(each.in_tps or 0 for each in found.brokers if each.role == "master")
    given = sum(each.out_tps or 0 for each in found.brokers)
    conditions = sum(len(each.conditions) for each in found.brokers)
    parts = [
        f"{datetime.now():%H:%M:%S}",
        f"{taken:,.1f} messages/s in, {given:,.1f} out",
        f"{counted(len(found.topics), 'topic')}, {counted(len(found.groups), 'group')}",
        *([f"{len(found.missing)} brokers do not answer"] if found.missing else []),
        *([f"{conditions} conditions: see `sparrowmq doctor`"] if conditions else []),
    ]
    return "  |  ".join(parts)


def _broker(each: Standing) -> Sequence[object]:
    state = "does not answer" if each.is_silent else each.problem or " ".join(each.conditions) or "ok"
    return each.broker, each.role, each.address, each.in_tps, each.out_tps, each.behind_bytes, state


def _topic(each: TopicRate) -> Sequence[object]:
    return each.topic, round(each.per_second, 1), each.within_a_day


def _group(each: GroupLag) -> Sequence[object]:
    behind_s = each.behind_s(datetime.now().astimezone())
    return each.group, each.lag, None if behind_s is None else round(behind_s), round(each.per_second, 1)
