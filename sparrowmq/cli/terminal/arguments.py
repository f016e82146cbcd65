"""Types of arguments of commands that ask a cluster: names of its topics, groups and brokers, and times.

The shell completes names with Tab:

    topic show or<Tab>  ->  the topics of the cluster that the rest of the line names, which begin with "or"

A cluster that does not answer within two seconds completes nothing: errors do not belong into a line that is typed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from datetime import datetime, timedelta
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from sparrowmq.cli.terminal import contexts
from sparrowmq.errors import SparrowError

ReadNames = Callable[[Any], Coroutine[Any, Any, Iterable[str]]]
_LIMIT_S: Final = 2.0
ADMIN: Final = "sparrowmq.admin"  # in a context of click: makes an admin of the cluster that the line names
AGES: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class NameOf(click.types.StringParamType):
    """The name of a thing; `read_names` asks an admin for all names."""

    def __init__(self, read_names: ReadNames) -> None:
        self._read_names = read_names

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        async def ask() -> Iterable[str]:
            async with asyncio.timeout(_LIMIT_S), ctx.meta[ADMIN]() as admin:
                admin.servers.missing = {}
                return await self._read_names(admin)

        try:
            with ctx.scope(cleanup=False):
                names = asyncio.run(ask())
        except (SparrowError, OSError, TimeoutError):
            return []
        return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


class ContextName(click.types.StringParamType):
    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            names = contexts.load().by_name
        except SparrowError:
            return []
        return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]


async def _brokers(admin: Any) -> Iterable[str]:
    return {place.name for place in await admin.brokers()}


async def _clusters(admin: Any) -> Iterable[str]:
    return {place.cluster for place in await admin.brokers()}


TOPIC: Final = NameOf(lambda admin: admin.topics())
GROUP: Final = NameOf(lambda admin: admin.groups())
BROKER: Final = NameOf(_brokers)
CLUSTER_NAME: Final = NameOf(_clusters)
CONTEXT: Final = ContextName()


def parse_time(_context: object, _option: object, text: str | None) -> datetime | None:
    """Parse a time: 2026-11-20T08:00, or an age such as 90s, 15m, 2h, 3d. Raises: BadParameter."""
    if text is None:
        return None
    try:
        if text[-1:] in AGES and text.isascii() and text[:-1].replace(".", "", 1).isdigit():
            return datetime.now().astimezone() - timedelta(**{AGES[text[-1]]: float(text[:-1])})
        return parse_date(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is not a time; give 2026-11-20T08:00, or 15m for 15 minutes ago") from None


def parse_date(text: str) -> datetime:
    """Parse a time that exists on this machine. Raises: ValueError, OverflowError."""
    moment = datetime.fromisoformat(text)
    moment.timestamp()  # the first and the last days of the calendar have none in some zones
    return moment


def iso(timestamp_ms: int) -> str:
    """Return a time as `parse_time` reads it, to the millisecond."""
    return datetime.fromtimestamp(timestamp_ms / 1000).astimezone().isoformat(timespec="milliseconds")
