"""`sparrowmq message copy` and `replay`: send messages of a topic again, to a topic or to one group.

Both take the messages that exist when they begin, queue by queue in order, and move no group. An interrupted copy
prints how far it came; if you start it again from the beginning, messages are sent twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from sparrowmq.cli.terminal.asking import asking, connected, options, timeout_s_of
from sparrowmq.cli.terminal.name_completion import GROUP, TOPIC
from sparrowmq.cli.terminal.output import OUTPUT, confirm, done, say
from sparrowmq.cli.terminal.progress_line import Progress
from sparrowmq.cli.terminal.time_arguments import moment
from sparrowmq.client.admin.readable_body import readable
from sparrowmq.client.client import Client
from sparrowmq.client.cluster.credentials import Credentials
from sparrowmq.client.consuming.pull_consumer import PullConsumer
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.core.safe_text import counted
from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import Message, MessageQueue
from sparrowmq.protocol.names import TOOLS_GROUP
from sparrowmq.settings.number_type import ABOVE_ZERO, Whole
from sparrowmq.settings.path_type import PATH

AT_ONCE: Final = 200
_WAIT_S: Final = 1.0
_HOW_TO: Final = ("to_access_key", "to_secret_key", "to_tls", "to_tls_config")


# The options that choose messages, and those of the run.
_chosen = options(
    asking,
    OUTPUT,
    click.option("--tag", help="Only those with one of these tags: A, or 'A || B'."),
    click.option("--where", help="Only those whose properties fit this SQL92 expression: 'amount > 5'."),
    click.option(
        "--since",
        callback=moment,
        help="Only those stored since: 2026-11-20T08:00, or 15m for 15 minutes ago.",
    ),
    click.option("--until", callback=moment, help="Only those stored before, likewise."),
    click.option("--limit", type=Whole(1), help="End after this many messages."),
    click.option("--rate", type=ABOVE_ZERO, help="Maximum messages per second."),
    click.option("--yes", is_flag=True, help="Do not ask."),
    click.option("--dry-run", is_flag=True, help="Only print the number of messages."),
)


@click.command()
@_chosen
@click.argument("topic", type=TOPIC)
@click.argument("target", type=TOPIC)
@click.option("--to", metavar="ADDRESSES", help="Name servers of another cluster that has TARGET.")
@click.option(
    "--to-access-key",
    metavar="KEY",
    envvar="SPARROWMQ_TO_ACCESS_KEY",
    help="Sign as this account there; --access-key is for here. Or SPARROWMQ_TO_ACCESS_KEY.",
)
@click.option(
    "--to-secret-key",
    metavar="KEY",
    envvar="SPARROWMQ_TO_SECRET_KEY",
    help="Its secret key; better in SPARROWMQ_TO_SECRET_KEY, as others see command lines.",
)
@click.option("--to-tls", is_flag=True, help="Encrypt what goes there.")
@click.option(
    "--to-tls-config",
    type=PATH,
    metavar="FILE",
    help="Encrypt it as tls.client.* in this file say.",
)
def copy(topic: str, target: str, to: str | None, **given: Any) -> None:
    """Send messages of TOPIC to the topic TARGET, with tag, keys and properties.

    Messages of one queue go to one queue, in their order. TARGET must exist: `sparrowmq topic create`.
    """
    if topic == target and to is None:
        raise click.UsageError(
            f"{topic} would be copied onto itself; name another topic, or a cluster with --to"
        )
    how = {name: given.pop(name) for name in _HOW_TO}
    if to is None and any(_is_typed(name) for name in how):
        raise click.UsageError("how to speak to another cluster is said, and not which one: add --to")

    left_out = 0

    async def run(mq: Client) -> int:
        async with AsyncExitStack() as stack:
            there = mq
            if to is not None:
                there = await stack.enter_async_context(_client_of(to, **how))
            places = sorted(each.queue for each in (await mq.admin.topic(topic)).queues)
            await there.admin.topic(target)  # asking for its queues alone might make it
            queues = sorted(await there.queues(target))
            if not queues:
                raise ConfigError(f"no client may write to topic {target}; give it the permission")

            async def send(messages: list[ReceivedMessage]) -> None:
                queue = queues[places.index(messages[0].queue) % len(queues)]
                copies = [copy for each in messages if (copy := _copied(each, target)) is not None]
                nonlocal left_out
                left_out += len(messages) - len(copies)
                await there.send_many(copies, queue=queue, timeout_s=timeout_s_of())

            found = await _each(mq, topic, send, f"copy {{}} messages of {topic} to {target}?", **given)
            return found - left_out

    count = connected(run)
    is_dry = given["dry_run"]
    sentence = f"{'would copy' if is_dry else 'copied'} {counted(count, 'message')} of {topic} to {target}"
    done(sentence, topic=topic, target=target, messages=count, dry_run=is_dry)
    if left_out:
        raise click.ClickException(
            f"{counted(left_out, 'message')} left out: no consumer can decompress the body"
        )


def _copied(message: ReceivedMessage, target: str) -> Message | None:
    """Return a message for the other topic; None, and a line, if its body cannot be decompressed."""
    body = readable(message.stored)
    if body.trouble is not None:
        say(f"left out the message in {message.queue} at offset {message.offset}: {body.trouble}")
        return None
    return message.stored.copy_for(target, body.content)


@click.command()
@_chosen
@click.argument("topic", type=TOPIC)
@click.argument("group", type=GROUP)
def replay(topic: str, group: str, **given: Any) -> None:
    """Let GROUP handle messages of TOPIC again; other groups do not get them.

    They come by the group's retries, in no particular order. To go back with all of a group, see `group reset`.
    """

    async def run(mq: Client) -> int:
        await mq.admin.group(group)

        async def send(messages: list[ReceivedMessage]) -> None:
            for each in messages:
                await mq.admin.replay(each, group)

        return await _each(
            mq, topic, send, f"let group {group} handle {{}} messages of {topic} again?", **given
        )

    count = connected(run)
    said = "would be sent" if given["dry_run"] else "were sent"
    sentence = f"{counted(count, 'message')} of {topic} {said} to group {group} again"
    done(sentence, topic=topic, group=group, messages=count, dry_run=given["dry_run"])


def _client_of(
    to: str,
    *,
    to_access_key: str | None,
    to_secret_key: str | None,
    to_tls: bool,
    to_tls_config: Path | None,
) -> Client:
    """A client of the other cluster. Raises: ConfigError, one of the two keys is missing."""
    signs = to_access_key or to_secret_key
    account = Credentials(to_access_key or "", to_secret_key or "") if signs else None
    return Client(to, credentials=account, tls=to_tls_config or to_tls)


def _is_typed(option: str) -> bool:
    """Return whether an option is on the command line, and not only in the environment."""
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE


async def _each(
    mq: Client,
    topic: str,
    send: Any,
    question: str,
    *,
    rate: float | None,
    dry_run: bool,
    yes: bool,
    **wanted: Any,
) -> int:
    """Send the chosen messages in batches of one queue; returns their number."""
    if not dry_run and not yes:
        total = sum([len(batch) async for batch in _batches(mq, topic, **wanted)])
        confirm(question.format(f"{total:,}"))
    count, pause_s = 0, 0.0
    with Progress() as progress:
        async for batch in _batches(mq, topic, **wanted):
            if not dry_run:
                await _send(send, batch, pause_s, count, progress)
            count += len(batch)
            progress.tell(f"{count:,} {'found' if dry_run else 'sent'}")
            pause_s = len(batch) / rate if rate is not None else 0.0
    return count


async def _send(
    send: Any, batch: list[ReceivedMessage], pause_s: float, count: int, progress: Progress
) -> None:
    """Send a batch after a pause; if that fails, print its first offset."""
    try:
        await asyncio.sleep(pause_s)
        await send(batch)
    except BaseException:
        first = batch[0]
        progress.clear()
        say(f"{count:,} were sent; the next one is in {first.queue} at offset {first.offset}")
        raise


async def _batches(
    mq: Client,
    topic: str,
    *,
    tag: str | None,
    where: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int | None,
) -> AsyncIterator[list[ReceivedMessage]]:
    """Yield the chosen messages that exist now, in batches of one queue."""
    left = limit
    async with mq.pull_consumer(group=TOOLS_GROUP, start="earliest") as reader:
        queues = await reader.queues(topic)
        if not queues:
            raise ConfigError(f"no client may read topic {topic}; give it the permission")
        reader.assign(queues, tag, where=where)
        await reader.seek_to_end()
        ends = await reader.positions()
        if since is None:
            await reader.seek_to_beginning()
        else:
            await reader.seek_to_time(since)
        while left != 0 and (open_queues := await _unread(reader, ends)):
            found = await reader.poll(AT_ONCE, _WAIT_S)
            ends |= {each.queue: each.offset for each in reversed(found) if _is_at(each, until, open_queues)}
            inside = [each for each in found if _fits(each, since, ends)][:left]
            for _, batch in groupby(inside, lambda each: each.queue):
                yield list(batch)
            left = left and left - len(inside)


async def _unread(reader: PullConsumer, ends: Mapping[MessageQueue, int]) -> set[MessageQueue]:
    """Return the queues that are not read up to their ends."""
    return {queue for queue, at in (await reader.positions()).items() if at < ends[queue]}


def _is_at(found: ReceivedMessage, until: datetime | None, queues: set[MessageQueue]) -> bool:
    """Return whether a message is the first of its queue that is too young."""
    return (
        until is not None and found.queue in queues and found.store_timestamp_ms >= until.timestamp() * 1000
    )


def _fits(found: ReceivedMessage, since: datetime | None, ends: Mapping[MessageQueue, int]) -> bool:
    is_old = since is not None and found.store_timestamp_ms < since.timestamp() * 1000
    return not is_old and found.offset < ends[found.queue]
