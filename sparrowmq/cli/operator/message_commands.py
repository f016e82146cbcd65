"""`sparrowmq message`: send messages, look for them, and send them again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from datetime import datetime
from itertools import groupby
from typing import Any, Final, TypeAlias

import click

from sparrowmq.cli.operator.copy_commands import copy, replay
from sparrowmq.cli.terminal.asking import HELP, connected, look, timeout_s_of, verb
from sparrowmq.cli.terminal.name_completion import TOPIC
from sparrowmq.cli.terminal.output import (
    as_json,
    csv_row,
    done,
    is_csv,
    is_for_people,
    is_json,
    line,
    say,
    table,
)
from sparrowmq.cli.terminal.progress_line import Progress
from sparrowmq.cli.terminal.time_arguments import iso, moment
from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.admin.readable_body import ReadableBody, readable
from sparrowmq.client.client import Client
from sparrowmq.client.consuming.received import ReceivedMessage
from sparrowmq.core.safe_text import counted
from sparrowmq.errors import ConfigError, NoMessage
from sparrowmq.protocol.names import TOOLS_GROUP
from sparrowmq.settings.number_type import Whole

SHOWN: Final = 60  # characters of a body that a table shows
AT_ONCE: Final = 500
_Sent: TypeAlias = tuple[int, str, str, int, int]
_SENT: Final = ("NUMBER", "ID", "BROKER", "QUEUE", "OFFSET")
_FOUND: Final = ("ID", "TOPIC", "BROKER", "QUEUE", "OFFSET", "STORED", "TAG", "KEYS", "BODY")


def _property(_context: object, _option: object, pairs: tuple[str, ...]) -> dict[str, str]:
    wrong = [pair for pair in pairs if "=" not in pair]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} has no value; write name=value")
    return dict(pair.split("=", 1) for pair in pairs)


@click.group(context_settings=HELP)
def message() -> None:
    """Send messages, look for them, and send them again."""


message.add_command(copy)
message.add_command(replay)


# Send ---------------------------------------------------------------------------------------------------------------


@verb(message)
@click.argument("topic", type=TOPIC)
@click.argument("body", required=False)
@click.option("--file", type=click.File("rb"), help="Send this file instead; - reads standard input.")
@click.option("--lines", is_flag=True, help="Send each line as a message of its own.")
@click.option("--tag", help="A word that consumers can filter by.")
@click.option("--key", "keys", multiple=True, help="A key to find it by; may be repeated.")
@click.option(
    "--property",
    "properties",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_property,
    help="May be repeated.",
)
@click.option("--delay", help="Deliver it later: 10s, 5m, 2h.")
def send(
    topic: str,
    body: str | None,
    file: Any,
    lines: bool,
    **options: Any,
) -> None:
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

    async def run(mq: Client) -> list[_Sent]:
        async def one(number: int, each: bytes) -> _Sent:
            sent = await mq.send(topic, each, timeout_s=timeout_s_of(), **options)
            return number, sent.msg_id, sent.queue.broker_name, sent.queue.queue_id, sent.offset

        return await _send_all(one, bodies, topic if lines else None)

    rows = connected(run)
    if is_for_people() and lines:
        say(f"sent {counted(len(rows), 'message')} to {topic}")
    else:
        table(_SENT, rows)


async def _send_all(
    send: Callable[[int, bytes], Coroutine[Any, Any, _Sent]], bodies: Iterable[bytes], topic: str | None
) -> list[_Sent]:
    """Send many at once; if sending lines fails, print which lines are sent."""
    rows: list[_Sent] = []
    chunk: list[tuple[int, bytes]] = []

    async def one(number: int, body: bytes) -> None:
        rows.append(await send(number, body))

    with Progress() as progress:
        try:
            for chunk in _chunks(enumerate(bodies, 1)):
                tries = await asyncio.gather(*(one(*each) for each in chunk), return_exceptions=True)
                for error in filter(None, tries):
                    raise error
                progress.tell(f"{len(rows):,} sent")
        except BaseException:
            progress.clear()
            rows.sort()
            if topic is not None and chunk:
                _tell_rest(topic, rows, chunk[-1][0])
            raise
    return sorted(rows)


def _tell_rest(topic: str, rows: list[_Sent], last: int) -> None:
    if not is_for_people():
        table(_SENT, rows)
    missing = sorted(set(range(1, last + 1)) - {row[0] for row in rows})
    spans = [
        [number for _, number in group]
        for _, group in groupby(enumerate(missing), lambda each: each[1] - each[0])
    ]
    told = ", ".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else f"{span[0]}" for span in spans)
    say(
        f"sent {counted(len(rows), 'message')} to {topic}: "
        f"of the lines up to {last} all but {told}, and none after them"
    )


def _bodies(file: Any, lines: bool) -> Iterator[bytes]:
    if not lines:
        whole = file.read()
        if not whole:
            raise click.ClickException("the input is empty, so nothing was sent")
        yield whole
        return
    for each in file:
        yield each.rstrip(b"\r\n")


def _chunks(items: Iterator[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    chunk: list[tuple[int, bytes]] = []
    for each in items:
        chunk.append(each)
        if len(chunk) == AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


# Look ---------------------------------------------------------------------------------------------------------------


@verb(message)
@click.argument("msg_id", metavar="ID")
@click.argument("topic", type=TOPIC, required=False)
@click.option("--body", "only_body", is_flag=True, help="Print the body alone, as it is.")
def show(msg_id: str, topic: str | None, only_body: bool) -> None:
    """Show all about the message ID; an id that its producer made needs its TOPIC."""
    found = look(lambda admin: admin.message(msg_id, topic))
    if only_body:
        sys.stdout.buffer.write(_whole(found))
        return
    fields = described(found)
    if is_for_people():
        click.echo(as_json(fields, indent=2))
    else:
        done("", **fields)


@verb(message)
@click.argument("topic", type=TOPIC)
@click.option("--key", help="Only those with this key.")
@click.option(
    "--since", callback=moment, help="Only those stored since: 2026-11-20T08:00, or 15m for 15 minutes ago."
)
@click.option("--until", callback=moment, help="Only those stored before, likewise.")
@click.option("--limit", type=Whole(1), default=64, show_default=True)
def find(topic: str, **wanted: Any) -> None:
    """Find messages of TOPIC by a key, or by when they were stored."""
    found = look(lambda admin: _find(admin, topic, wanted))
    table(_FOUND, map(_row, found))


async def _find(admin: Admin, topic: str, wanted: dict[str, Any]) -> list[ReceivedMessage]:
    if wanted["key"] is None and wanted["since"] is None:
        raise ConfigError("give a --key, or a time with --since")
    found = await admin.find(topic, wanted.pop("key"), **wanted)
    if not found:
        raise NoMessage("that fits", f"in topic {topic}")
    return found


@verb(message)
@click.argument("topic", type=TOPIC)
@click.option("--tag", help="Only those with one of these tags: A, or 'A || B'.")
@click.option("--where", help="Only those whose properties fit this SQL92 expression: 'amount > 5'.")
@click.option("--since", callback=moment, help="Begin with those stored since; by default only new ones.")
@click.option("--limit", type=Whole(1), help="End after this many messages.")
@click.option("--json", "wants_json", is_flag=True, help="The same as --output json: an object a line.")
def tail(
    topic: str,
    tag: str | None,
    where: str | None,
    since: datetime | None,
    limit: int | None,
    wants_json: bool,
) -> None:
    """Print the messages of TOPIC as they come, until Ctrl-C. No group's offsets change."""

    async def run(mq: Client) -> None:
        count = 0
        if is_csv():
            click.echo(csv_row([head.lower() for head in _FOUND]))
        async for each in _arriving(mq, topic, tag, where, since):
            if wants_json or is_json():
                click.echo(as_json(described(each)))
            elif is_csv():
                click.echo(csv_row(_row(each)))
            else:
                line(_line(each))
            count += 1
            if count == limit:
                return

    try:
        connected(run)
    except KeyboardInterrupt:
        sys.exit(130)


async def _arriving(
    mq: Client, topic: str, tag: str | None, where: str | None, since: datetime | None
) -> AsyncIterator[ReceivedMessage]:
    async with mq.pull_consumer(group=TOOLS_GROUP, start="latest") as reader:
        reader.assign(await reader.queues(topic), tag, where=where)
        if since is None:
            await reader.seek_to_end()
        else:
            await reader.seek_to_time(since)
        while True:
            for each in await reader.poll():
                yield each


# Output ------------------------------------------------------------------------------------------------------------


def described(found: ReceivedMessage) -> dict[str, Any]:
    """Return all about a message, for JSON; a body that is no text is in hexadecimal digits."""
    stored, body = found.stored, readable(found.stored)
    text = _text(body)
    return {
        "id": found.msg_id,
        "offset_id": stored.offset_id,
        "topic": found.topic,
        "broker": found.queue.broker_name,
        "queue": found.queue.queue_id,
        "offset": found.offset,
        "born": iso(stored.born_timestamp_ms),
        "born_host": stored.born_host,
        "stored": iso(stored.store_timestamp_ms),
        "store_host": stored.store_host,
        "tag": stored.tags,
        "keys": stored.keys,
        "retries": found.reconsume_times,
        "properties": stored.properties,
        **({"body": text} if text is not None else {"body_hex": body.content.hex()}),
        **({"body_trouble": body.trouble} if body.trouble is not None else {}),
    }


def _row(found: ReceivedMessage) -> tuple[object, ...]:
    stored = found.stored
    queue = found.queue
    place = found.topic, queue.broker_name, queue.queue_id, found.offset
    keys = " ".join(stored.keys) or None
    return found.msg_id, *place, iso(stored.store_timestamp_ms), stored.tags, keys, _beginning(found)


def _line(found: ReceivedMessage) -> str:
    stored = found.stored
    marks = " ".join(
        [*([f"tag={stored.tags}"] if stored.tags else []), *(f"key={key}" for key in stored.keys)]
    )
    place = f"{found.queue.broker_name}:{found.queue.queue_id}:{found.offset}"
    body = readable(stored)
    text = _text(body)
    said = text if text is not None else f"{len(body.content)} bytes {body.content[:SHOWN].hex()}"
    return "  ".join(filter(None, [iso(stored.store_timestamp_ms), place, marks, said, body.trouble]))


def _beginning(found: ReceivedMessage) -> str:
    body = readable(found.stored)
    text = _text(body)
    if body.trouble is not None:
        return f"{len(body.content)} bytes: {body.trouble}"
    shown = f"{len(body.content)} bytes" if text is None else text.splitlines()[0] if text else ""
    if not is_for_people() and text is not None:
        return text
    return shown if len(shown) <= SHOWN else shown[: SHOWN - 1] + "…"


def _whole(found: ReceivedMessage) -> bytes:
    """Return the body as it was sent. Raises: ClickException."""
    body = readable(found.stored)
    if body.trouble is not None:
        why = f"the body of message {found.msg_id} cannot be decompressed: {body.trouble}"
        raise click.ClickException(f"{why}; without --body it is shown as it is stored")
    return body.content


def _text(body: ReadableBody) -> str | None:
    """Return the text of a body; None if it is none, or cannot be decompressed."""
    if body.trouble is not None:
        return None
    try:
        text = body.content.decode()
    except UnicodeDecodeError:
        return None
    return text if text.replace("\n", "").replace("\t", "").replace("\r", "").isprintable() else None
