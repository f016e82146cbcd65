"""`sparrowmq message`: send messages, look for them, and send them again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack
from datetime import datetime
from itertools import groupby, islice
from math import inf
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
from click.core import ParameterSource

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.message_search import ReadableBody, readable
from sparrowmq.cli.terminal.arguments import GROUP, TOPIC, iso, parse_time
from sparrowmq.cli.terminal.cluster_command import (
    HELP,
    chosen_timeout_s,
    cluster_options,
    options,
    query,
    run_with_client,
    verb,
)
from sparrowmq.cli.terminal.output import (
    OUTPUT_OPTION,
    Progress,
    as_json,
    confirm,
    csv_row,
    is_csv,
    is_for_people,
    is_json,
    print_done,
    print_line,
    print_table,
    say,
)
from sparrowmq.client.client import Client
from sparrowmq.client.cluster.credentials import Credentials
from sparrowmq.client.consuming.received_message import ReceivedMessage
from sparrowmq.core.safe_text import counted, printable_text
from sparrowmq.errors import ConfigError, NoMessage
from sparrowmq.protocol.messages.message import Message
from sparrowmq.protocol.names import TOOLS_GROUP
from sparrowmq.settings.argument_types import ABOVE_ZERO, PATH, Whole

_MAX_CELL_LENGTH: Final = 60  # characters of a body that a table shows
_MESSAGES_AT_ONCE: Final = 500
_SentRow: TypeAlias = tuple[int, str, str, int, int]
_SENT_HEADS: Final = ("NUMBER", "ID", "BROKER", "QUEUE", "OFFSET")
_FOUND_HEADS: Final = ("ID", "TOPIC", "BROKER", "QUEUE", "OFFSET", "STORED", "TAG", "KEYS", "BODY")


def _parse_properties(_context: object, _option: object, pairs: tuple[str, ...]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise click.BadParameter(f"{pair!r} has no value; write name=value")
    return dict(pair.split("=", 1) for pair in pairs)


@click.group(context_settings=HELP)
def message() -> None:
    """Send messages, look for them, and send them again."""


# Send ---------------------------------------------------------------------------------------------------------------


@verb(message)
@click.argument("topic", type=TOPIC)
@click.argument("body", required=False)
@click.option("--file", type=click.File("rb"), help="Send this file instead; - reads standard input.")
@click.option("--lines", is_flag=True, help="Send each line as a message of its own.")
@click.option("--tag", help="A word that consumers can filter by.")
@click.option("--key", "keys", multiple=True, help="A key to find it by; may be repeated.")
@click.option(
    "--property", "properties", metavar="NAME=VALUE", multiple=True, callback=_parse_properties, help="May be repeated."
)
@click.option("--delay", help="Deliver it later: 10s, 5m, 2h.")
def send(topic: str, body: str | None, file: Any, lines: bool, **options: Any) -> None:
    """Send BODY to TOPIC, or a file, or its lines, and print where each message is stored.

    With - as BODY it sends standard input; if that is empty, nothing is sent.
    """
    if (body is None) == (file is None):
        raise click.UsageError("give a body or a --file; - reads standard input")
    if body == "-":
        body, file = None, sys.stdin.buffer
    bodies = [body.encode()] if body is not None else _bodies(file, lines)
    if options["delay"] is None:
        del options["delay"]

    async def run(mq: Client) -> list[_SentRow]:
        async def send_one(number: int, payload: bytes) -> _SentRow:
            result = await mq.send(topic, payload, timeout_s=chosen_timeout_s(), **options)
            return number, result.msg_id, result.queue.broker_name, result.queue.queue_id, result.offset

        return await _send_all(send_one, bodies, topic if lines else None)

    rows = run_with_client(run)
    if is_for_people() and lines:
        say(f"sent {counted(len(rows), 'message')} to {topic}")
    else:
        print_table(_SENT_HEADS, rows)


async def _send_all(
    send: Callable[[int, bytes], Coroutine[Any, Any, _SentRow]], bodies: Iterable[bytes], topic: str | None
) -> list[_SentRow]:
    """Send many at once; if sending lines fails, print which lines are sent."""
    rows: list[_SentRow] = []
    chunk: list[tuple[int, bytes]] = []

    async def send_and_note(number: int, body: bytes) -> None:
        rows.append(await send(number, body))

    with Progress() as progress:
        try:
            numbered_bodies = enumerate(bodies, 1)
            while chunk := list(islice(numbered_bodies, _MESSAGES_AT_ONCE)):
                tries = await asyncio.gather(*(send_and_note(*pair) for pair in chunk), return_exceptions=True)
                for error in filter(None, tries):
                    raise error
                progress.show(f"{len(rows):,} sent")
        except BaseException:
            progress.clear()
            rows.sort()
            if topic is not None and chunk:
                _print_unsent(topic, rows, chunk[-1][0])
            raise
    return sorted(rows)


def _print_unsent(topic: str, rows: list[_SentRow], last_line: int) -> None:
    if not is_for_people():
        print_table(_SENT_HEADS, rows)
    missing = sorted(set(range(1, last_line + 1)) - {row[0] for row in rows})
    runs = [list(run) for _, run in groupby(enumerate(missing), lambda pair: pair[1] - pair[0])]
    unsent_lines = ", ".join(f"{run[0][1]}-{run[-1][1]}" if len(run) > 1 else f"{run[0][1]}" for run in runs)
    say(
        f"sent {counted(len(rows), 'message')} to {topic}: "
        f"of the lines up to {last_line} all but {unsent_lines}, and none after them"
    )


def _bodies(file: Any, lines: bool) -> Iterator[bytes]:
    if not lines:
        whole = file.read()
        if not whole:
            raise click.ClickException("the input is empty, so nothing was sent")
        yield whole
        return
    for body in file:
        yield body.rstrip(b"\r\n")


# Look ---------------------------------------------------------------------------------------------------------------


@verb(message)
@click.argument("msg_id", metavar="ID")
@click.argument("topic", type=TOPIC, required=False)
@click.option("--body", "only_body", is_flag=True, help="Print the body alone, as it is.")
def show(msg_id: str, topic: str | None, only_body: bool) -> None:
    """Show all about the message ID; an id that its producer made needs its TOPIC."""
    message = query(lambda admin: admin.message(msg_id, topic))
    if only_body:
        body = readable(message.stored)
        if body.trouble is not None:
            problem = f"the body of message {message.msg_id} cannot be decompressed: {body.trouble}"
            raise click.ClickException(f"{problem}; without --body it is shown as it is stored")
        sys.stdout.buffer.write(body.content)
        return
    fields = describe(message)
    if is_for_people():
        click.echo(as_json(fields, indent=2))
    else:
        print_done("", **fields)


@verb(message)
@click.argument("topic", type=TOPIC)
@click.option("--key", help="Only those with this key.")
@click.option(
    "--since", callback=parse_time, help="Only those stored since: 2026-11-20T08:00, or 15m for 15 minutes ago."
)
@click.option("--until", callback=parse_time, help="Only those stored before, likewise.")
@click.option("--limit", type=Whole(1), default=64, show_default=True)
def find(topic: str, **criteria: Any) -> None:
    """Find messages of TOPIC by a key, or by when they were stored."""

    async def run(admin: Admin) -> list[ReceivedMessage]:
        if criteria["key"] is None and criteria["since"] is None:
            raise ConfigError("give a --key, or a time with --since")
        messages = await admin.find(topic, criteria.pop("key"), **criteria)
        if not messages:
            raise NoMessage("that fits", f"in topic {topic}")
        return messages

    print_table(_FOUND_HEADS, map(_row, query(run)))


@verb(message)
@click.argument("topic", type=TOPIC)
@click.option("--tag", help="Only those with one of these tags: A, or 'A || B'.")
@click.option("--where", help="Only those whose properties fit this SQL92 expression: 'amount > 5'.")
@click.option("--since", callback=parse_time, help="Begin with those stored since; by default only new ones.")
@click.option("--limit", type=Whole(1), help="End after this many messages.")
@click.option("--json", "wants_json", is_flag=True, help="The same as --output json: an object a line.")
def tail(
    topic: str, tag: str | None, where: str | None, since: datetime | None, limit: int | None, wants_json: bool
) -> None:
    """Print the messages of TOPIC as they come, until Ctrl-C. No group's offsets change."""

    async def run(mq: Client) -> None:
        count = 0
        if is_csv():
            click.echo(csv_row([head.lower() for head in _FOUND_HEADS]))
        async for message in _messages_as_they_come(mq, topic, tag, where, since):
            if wants_json or is_json():
                click.echo(as_json(describe(message)))
            elif is_csv():
                click.echo(csv_row(_row(message)))
            else:
                print_line(_line(message))
            count += 1
            if count == limit:
                return

    try:
        run_with_client(run)
    except KeyboardInterrupt:
        sys.exit(130)


async def _messages_as_they_come(
    mq: Client, topic: str, tag: str | None, where: str | None, since: datetime | None
) -> AsyncIterator[ReceivedMessage]:
    async with mq.pull_consumer(group=TOOLS_GROUP, start="latest") as reader:
        reader.assign(await reader.queues(topic), tag, where=where)
        if since is None:
            await reader.seek_to_end()
        else:
            await reader.seek_to_time(since)
        while True:
            for message in await reader.poll():
                yield message


# Output ------------------------------------------------------------------------------------------------------------


def describe(message: ReceivedMessage) -> dict[str, Any]:
    """Return all about a message, for JSON; a body that is no text is in hexadecimal digits."""
    stored, body = message.stored, readable(message.stored)
    text = _text(body)
    return {
        "id": message.msg_id,
        "offset_id": stored.offset_id,
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue": message.queue.queue_id,
        "offset": message.offset,
        "born": iso(stored.born_timestamp_ms),
        "born_host": stored.born_host,
        "stored": iso(stored.store_timestamp_ms),
        "store_host": stored.store_host,
        "tag": stored.tags,
        "keys": stored.keys,
        "retries": message.reconsume_times,
        "properties": stored.properties,
        **({"body": text} if text is not None else {"body_hex": body.content.hex()}),
        **({"body_trouble": body.trouble} if body.trouble is not None else {}),
    }


def _row(message: ReceivedMessage) -> tuple[object, ...]:
    stored = message.stored
    queue = message.queue
    place = message.topic, queue.broker_name, queue.queue_id, message.offset
    keys = " ".join(stored.keys) or None
    return message.msg_id, *place, iso(stored.store_timestamp_ms), stored.tags, keys, _body_preview(message)


def _line(message: ReceivedMessage) -> str:
    stored = message.stored
    marks = " ".join([*([f"tag={stored.tags}"] if stored.tags else []), *(f"key={key}" for key in stored.keys)])
    place = f"{message.queue.broker_name}:{message.queue.queue_id}:{message.offset}"
    body = readable(stored)
    text = _text(body)
    body_text = text if text is not None else f"{len(body.content)} bytes {body.content[:_MAX_CELL_LENGTH].hex()}"
    return "  ".join(filter(None, [iso(stored.store_timestamp_ms), place, marks, body_text, body.trouble]))


def _body_preview(message: ReceivedMessage) -> str:
    body = readable(message.stored)
    if body.trouble is not None:
        return f"{len(body.content)} bytes: {body.trouble}"
    if (text := printable_text(body.content)) is None:
        return f"{len(body.content)} bytes"
    return first_line(text) if is_for_people() else text


def first_line(text: str) -> str:
    """Return the beginning of the first line, for a cell of a table."""
    line = text.splitlines()[0] if text else ""
    return line if len(line) <= _MAX_CELL_LENGTH else line[: _MAX_CELL_LENGTH - 1] + "…"


def _text(body: ReadableBody) -> str | None:
    """Return the text of a body; None if it is none, or cannot be decompressed."""
    return printable_text(body.content) if body.trouble is None else None


_COPIED_AT_ONCE: Final = 200
_WAIT_S: Final = 1.0
_TARGET_OPTIONS: Final = ("to_access_key", "to_secret_key", "to_tls", "to_tls_config")


# Copy and replay ----------------------------------------------------------------------------------------------------
#
# Both take the messages that exist when they begin, queue by queue in order, and move no group. An interrupted copy
# prints how far it came; a copy that starts again from the beginning sends messages twice.

# The options that choose messages, and those of the run.
_SELECTION = options(
    cluster_options,
    OUTPUT_OPTION,
    click.option("--tag", help="Only those with one of these tags: A, or 'A || B'."),
    click.option("--where", help="Only those whose properties fit this SQL92 expression: 'amount > 5'."),
    click.option(
        "--since", callback=parse_time, help="Only those stored since: 2026-11-20T08:00, or 15m for 15 minutes ago."
    ),
    click.option("--until", callback=parse_time, help="Only those stored before, likewise."),
    click.option("--limit", type=Whole(1), help="End after this many messages."),
    click.option("--rate", type=ABOVE_ZERO, help="Maximum messages per second."),
    click.option("--yes", is_flag=True, help="Do not ask."),
    click.option("--dry-run", is_flag=True, help="Only print the number of messages."),
)


@message.command()
@_SELECTION
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
@click.option("--to-tls-config", type=PATH, metavar="FILE", help="Encrypt it as tls.client.* in this file say.")
def copy(topic: str, target: str, to: str | None, **options: Any) -> None:
    """Send messages of TOPIC to the topic TARGET, with tag, keys and properties.

    Messages of one queue go to one queue, in their order. TARGET must exist: `sparrowmq topic create`.
    """
    if topic == target and to is None:
        raise click.UsageError(f"{topic} would be copied onto itself; name another topic, or a cluster with --to")
    target_options = {name: options.pop(name) for name in _TARGET_OPTIONS}
    source_of = click.get_current_context().get_parameter_source
    if to is None and any(source_of(name) is ParameterSource.COMMANDLINE for name in target_options):
        raise click.UsageError("options for another cluster need its address: add --to")
    left_out_count = 0

    async def run(mq: Client) -> int:
        async with AsyncExitStack() as stack:
            target_client = mq
            if to is not None:
                target_client = await stack.enter_async_context(_target_client(to, **target_options))
            source_queues = sorted(queue_range.queue for queue_range in (await mq.admin.topic(topic)).queues)
            await target_client.admin.topic(target)  # asking for its queues alone might make it
            queues = sorted(await target_client.queues(target))
            if not queues:
                raise ConfigError(f"no client may write to topic {target}; give it the permission")

            async def send(messages: list[ReceivedMessage]) -> None:
                queue = queues[source_queues.index(messages[0].queue) % len(queues)]
                copies = [copy for message in messages if (copy := _copy_for(message, target)) is not None]
                nonlocal left_out_count
                left_out_count += len(messages) - len(copies)
                await target_client.send_many(copies, queue=queue, timeout_s=chosen_timeout_s())

            count = await _send_each(mq, topic, send, f"copy {{}} messages of {topic} to {target}?", **options)
            return count - left_out_count

    count = run_with_client(run)
    is_dry = options["dry_run"]
    sentence = f"{'would copy' if is_dry else 'copied'} {counted(count, 'message')} of {topic} to {target}"
    print_done(sentence, topic=topic, target=target, messages=count, dry_run=is_dry)
    if left_out_count:
        raise click.ClickException(
            f"{counted(left_out_count, 'message')} left out: no consumer can decompress the body"
        )


def _copy_for(message: ReceivedMessage, target: str) -> Message | None:
    """Return a message for the other topic; None, and a line, if its body cannot be decompressed."""
    body = readable(message.stored)
    if body.trouble is not None:
        say(f"left out the message in {message.queue} at offset {message.offset}: {body.trouble}")
        return None
    return message.stored.copy_for(target, body.content)


@message.command()
@_SELECTION
@click.argument("topic", type=TOPIC)
@click.argument("group", type=GROUP)
def replay(topic: str, group: str, **options: Any) -> None:
    """Let GROUP handle messages of TOPIC again; other groups do not get them.

    They come by the group's retries, in no particular order. To go back with all of a group, see `group reset`.
    """

    async def run(mq: Client) -> int:
        await mq.admin.group(group)

        async def send(messages: list[ReceivedMessage]) -> None:
            for message in messages:
                await mq.admin.replay(message, group)

        return await _send_each(mq, topic, send, f"let group {group} handle {{}} messages of {topic} again?", **options)

    count = run_with_client(run)
    outcome = "would be sent" if options["dry_run"] else "were sent"
    sentence = f"{counted(count, 'message')} of {topic} {outcome} to group {group} again"
    print_done(sentence, topic=topic, group=group, messages=count, dry_run=options["dry_run"])


def _target_client(
    to: str, *, to_access_key: str | None, to_secret_key: str | None, to_tls: bool, to_tls_config: Path | None
) -> Client:
    has_account = to_access_key or to_secret_key
    account = Credentials(to_access_key or "", to_secret_key or "") if has_account else None
    return Client(to, credentials=account, tls=to_tls_config or to_tls)


async def _send_each(
    mq: Client, topic: str, send: Any, question: str, *, rate: float | None, dry_run: bool, yes: bool, **criteria: Any
) -> int:
    """Send the chosen messages in batches of one queue; returns their number."""
    if not dry_run and not yes:
        total = sum([len(batch) async for batch in _batches(mq, topic, **criteria)])
        confirm(question.format(f"{total:,}"))
    count, pause_s = 0, 0.0
    with Progress() as progress:
        async for batch in _batches(mq, topic, **criteria):
            if not dry_run:
                try:
                    await asyncio.sleep(pause_s)
                    await send(batch)
                except BaseException:
                    progress.clear()
                    say(f"{count:,} were sent; the next one is in {batch[0].queue} at offset {batch[0].offset}")
                    raise
            count += len(batch)
            progress.show(f"{count:,} {'found' if dry_run else 'sent'}")
            pause_s = len(batch) / rate if rate is not None else 0.0
    return count


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
    remaining = limit
    since_ms = since.timestamp() * 1000 if since is not None else -inf
    until_ms = until.timestamp() * 1000 if until is not None else inf
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
        while remaining != 0:
            unread = {queue for queue, offset in (await reader.positions()).items() if offset < ends[queue]}
            if not unread:
                return
            messages = await reader.poll(_COPIED_AT_ONCE, _WAIT_S)
            # A queue ends at its first message that is too young.
            for message in reversed(messages):
                if message.queue in unread and message.store_timestamp_ms >= until_ms:
                    ends[message.queue] = message.offset
            chosen = [
                message
                for message in messages
                if message.store_timestamp_ms >= since_ms and message.offset < ends[message.queue]
            ][:remaining]
            for _, batch in groupby(chosen, lambda message: message.queue):
                yield list(batch)
            remaining = remaining and remaining - len(chosen)
