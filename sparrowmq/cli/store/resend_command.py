"""`sparrowmq store resend`: send the messages of pieces in `set-aside` to their topics again.

    read the pieces ── ask the cluster what it has ── table ── question ── send ── delete the pieces, with --delete

Each step asks or tells before it changes something. An interrupted run can be repeated: what was sent is there then.
"""

from __future__ import annotations

import asyncio
import shlex
from collections import Counter
from collections.abc import Collection, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import click

from sparrowmq.cli.terminal.asking import ask, asking, options, reporting
from sparrowmq.cli.terminal.name_completion import TOPIC
from sparrowmq.cli.terminal.output import OUTPUT, confirm, done, is_for_people, say, tables
from sparrowmq.cli.terminal.progress_line import Progress
from sparrowmq.cli.terminal.time_arguments import iso
from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.admin.resend import Key, LeftOut, Resending, Resent, Standing, resent
from sparrowmq.core.safe_text import counted
from sparrowmq.errors import SparrowError
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.messages.recalls import Recalls
from sparrowmq.settings.path_type import PATH
from sparrowmq.store.care.inspect import PieceRecord, check_piece_name, read_piece

T = TypeVar("T")

_AT_ONCE: Final = 64
_Messages: TypeAlias = "Iterable[tuple[Place, Resent]]"


@dataclass(slots=True)
class _OfTopic:
    """The messages of one topic: how many are missing and there; when the first and last missing ones were stored."""

    missing: int = 0
    there: int = 0
    first_ms: int = 0
    last_ms: int = 0

    def add(self, standing: Standing, stored_ms: int) -> None:
        self.there += standing is Standing.THERE
        if standing is Standing.MISSING:
            self.missing += 1
            self.first_ms = min(self.first_ms or stored_ms, stored_ms)
            self.last_ms = max(self.last_ms, stored_ms)


@dataclass(slots=True)
class _Plan:
    """The places of the messages to send, and the counts by topic."""

    places: set[Place] = field(default_factory=set)
    topics: dict[str, _OfTopic] = field(default_factory=dict)

    @property
    def there(self) -> int:
        return sum(each.there for each in self.topics.values())


@click.command()
@options(asking, OUTPUT)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=PATH)
@click.option("--topic", "topics", type=TOPIC, multiple=True, help="Only messages of this topic; may be repeated.")
@click.option("--delete", is_flag=True, help="Then delete the files: this ends the condition that names them.")
@click.option("--unchecked", is_flag=True, help="Send also what may be in the cluster already: consumers get it twice.")
@click.option("--dry-run", is_flag=True, help="Only show what would be sent.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def resend(
    files: tuple[Path, ...], topics: tuple[str, ...], delete: bool, unchecked: bool, dry_run: bool, yes: bool
) -> None:
    """Send the messages in FILEs, which are in the folder set-aside of a store, to their topics again.

    Such messages left the log when another broker became the master, or when a start cut damage off. Messages that the
    cluster has already are left out, by their unique ids; so this can be run again after it was interrupted. Damaged
    bytes are passed over. Half messages, and the broker's own records, are not sent. The broker may run.
    """
    if delete and topics:
        raise click.UsageError("--delete would delete messages of other topics, too; leave out --topic")
    with reporting("store resend"):
        draft = Draft(files, topics)
        if not draft.sound and not delete:
            raise click.ClickException(
                f"no message in {_names(files)} can be read: {draft.damaged_bytes:,} bytes are damaged. A slave or a "
                "backup may have these messages; --delete deletes the files"
            )
        if draft.places:
            plan, sent = ask(lambda admin: _run(admin, draft, files, delete, unchecked, dry_run, yes))
        else:
            plan, sent = _Plan(), 0
            _show(plan, draft)
            if delete and not dry_run and not yes:
                confirm(_question(0, files, delete))
        is_open = bool(draft.left_out[LeftOut.OPEN])
        is_deleted = delete and not dry_run and not is_open
        if is_deleted:
            for file in files:
                file.unlink()
    _tell(plan, draft, files, sent, dry_run=dry_run, is_deleted=is_deleted, is_part=bool(topics) or is_open)


async def _run(
    admin: Admin,
    draft: Draft,
    files: Collection[Path],
    delete: bool,
    unchecked: bool,
    dry_run: bool,
    yes: bool,
) -> tuple[_Plan, int]:
    resending = Resending(admin.servers, is_checked=not unchecked, is_dry=dry_run)
    if lacking := await resending.prepare(draft.topics):
        raise click.ClickException(
            f"nothing was sent: the cluster has no topic {', '.join(lacking)}. Create each with "
            f"`sparrowmq topic create {lacking[0]}`, or choose others with --topic"
        )
    if not unchecked and (blind := resending.without_index()):
        raise click.ClickException(
            f"nothing was sent: {', '.join(blind)} cannot find messages by their ids, as messageIndexEnable is false. "
            "--unchecked sends all messages, also those that are there already"
        )
    with Progress() as progress:
        plan = await _compared(resending, draft, progress)
        progress.clear()
        _show(plan, draft)
        if dry_run:
            return plan, 0
        if not yes and (plan.places or delete):
            confirm(_question(len(plan.places), files, delete and not draft.left_out[LeftOut.OPEN]))
        return plan, await _send_all(resending, draft.messages(plan.places), len(plan.places), progress)


async def _compared(resending: Resending, draft: Draft, progress: Progress) -> _Plan:
    """Ask the cluster for each message."""
    plan, count = _Plan(), 0
    for chunk in _chunks(draft.messages(draft.places)):
        answers = await _together([resending.standing(message) for _, message in chunk])
        for (place, message), standing in zip(chunk, answers, strict=True):
            if standing is Standing.OPEN:
                draft.left_out[LeftOut.OPEN] += 1
            elif standing is Standing.MISSING:
                plan.places.add(place)
            of_topic = plan.topics.setdefault(message.topic, _OfTopic())
            of_topic.add(standing, message.stored.store_timestamp_ms)
        count += len(chunk)
        progress("asking the cluster", count, len(draft.places))
    return plan


async def _send_all(resending: Resending, messages: _Messages, total: int, progress: Progress) -> int:
    """Send messages, those of each queue in their order; return their number."""
    sent = 0

    async def send(few: list[Resent]) -> None:
        nonlocal sent
        for each in few:
            await resending.send(each)
            sent += 1
            progress("sending", sent, total)

    try:
        for chunk in _chunks(messages):
            by_queue = sorted((each for _, each in chunk), key=resending.queue_of)
            await _together([send(list(few)) for _, few in groupby(by_queue, key=resending.queue_of)])
    except BaseException:
        progress.clear()
        say(f"{sent:,} of {total:,} messages were sent; run the same command again to go on")
        raise
    return sent


async def _together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of all, each in a task. Raises: the first error, which ends the others."""
    failures: list[Exception] = []
    begun: list[asyncio.Task[T]] = []
    try:
        async with asyncio.TaskGroup() as tasks:
            begun += [tasks.create_task(each) for each in work]
    except* SparrowError as group:
        failures += group.exceptions
    if failures:  # Python 3.11.2 would put what is raised above into a group
        raise failures[0] from None
    return [each.result() for each in begun]


def _chunks(messages: _Messages) -> Iterator[list[tuple[Place, Resent]]]:
    rest = iter(messages)
    while chunk := list(islice(rest, _AT_ONCE)):
        yield chunk


def _show(plan: _Plan, draft: Draft) -> None:
    """Show people what would be sent, and what would not."""
    if not is_for_people():
        return
    rows = [
        (topic, each.missing, each.there, _time(each.first_ms), _time(each.last_ms))
        for topic, each in sorted(plan.topics.items())
    ]
    if rows:
        tables(topics=(("TOPIC", "SEND", "THERE ALREADY", "FIRST STORED", "LAST STORED"), rows))
    for why, count in draft.left_out.items():
        if count:
            say(f"not sent: {count:,} {why.value}")
    if draft.damaged:
        say(f"not sent: {draft.damaged_bytes:,} damaged bytes, in {draft.damaged:,} places")


def _time(ms: int) -> str | None:
    return iso(ms) if ms else None


def _question(count: int, files: Collection[Path], delete: bool) -> str:
    steps = [f"send {counted(count, 'message')} again"] if count else []
    if delete:
        steps.append(f"delete {_names(files)}")
    return f"{', then '.join(steps)}?"


def _tell(
    plan: _Plan,
    draft: Draft,
    files: Collection[Path],
    sent: int,
    *,
    dry_run: bool,
    is_deleted: bool,
    is_part: bool,
) -> None:
    """Print what was done, and what is left to do."""
    if dry_run:
        sentence = f"would send {counted(len(plan.places), 'message')} again; {plan.there:,} are there already"
    else:
        sentence = f"sent {counted(sent, 'message')} again; {plan.there:,} were there already"
        if is_deleted:
            sentence += f"\ndeleted {_names(files)}"
        elif is_part:
            sentence += "\nkeep the files: they have other messages, too"
        else:
            sentence += f"\nthe files are not needed any more: rm {shlex.join(map(str, files))}"
    told: dict[str, Any] = {
        "sent": sent,
        "would_send": len(plan.places) if dry_run else 0,
        "there_already": plan.there,
        "left_out": {why.name.lower(): count for why, count in draft.left_out.items() if count},
        "damaged_bytes": draft.damaged_bytes,
        "topics": [
            {"topic": topic, "send": each.missing, "there_already": each.there}
            | {"first_stored": _time(each.first_ms), "last_stored": _time(each.last_ms)}
            for topic, each in sorted(plan.topics.items())
        ],
    }
    done(sentence, **told, dry_run=dry_run, deleted=is_deleted)


def _names(files: Iterable[Path]) -> str:
    return ", ".join(map(str, files))


# The choice of messages in pieces of a log that `sparrowmq store resend` sends, before a cluster is asked.
#
# Pieces are read three times: for this choice, to ask the cluster, and to send. So no bodies are kept in memory, only a
# key and a place for each message.


class Place(NamedTuple):
    """A message in a piece."""

    file: Path
    offset: int  # in the log


class Draft:
    """The messages of some pieces that can be sent.

    Args:
        files: the pieces, in any order.
        topics: take only messages of these topics; without topics all.
    Attributes:
        left_out: the number of records that are not sent, by the reason.
        sound: the number of all messages that can be read.
        damaged: the number of damaged places.
        damaged_bytes: the size of all of them together.
    Raises:
        BadStore: a file is no piece; OSError, it cannot be read.
    """

    def __init__(self, files: Sequence[Path], topics: Collection[str] = ()) -> None:
        for file in files:
            check_piece_name(file)
        self._files = sorted(set(files), key=lambda file: file.name)
        self._only = frozenset(topics)
        self.left_out: Counter[LeftOut] = Counter()
        self.sound = self.damaged = self.damaged_bytes = 0
        self._chosen: dict[Key, tuple[Place, int]] = {}  # and the number of tries
        self._timed: dict[tuple[str, str, str | None], Key] = {}  # by topic, unique id and account
        self._recalls = Recalls()
        for file in self._files:
            for each in read_piece(file):
                self._take(file, each)
        for named, key in self._timed.items():
            if self._recalls.include(*named):
                del self._chosen[key]
                self.left_out[LeftOut.RECALLED] += 1
        self.places = {place for place, _ in self._chosen.values()}

    @property
    def topics(self) -> list[str]:
        """The topics of the chosen messages."""
        return sorted({topic for topic, *_ in self._chosen})

    def messages(self, places: Collection[Place]) -> Iterator[tuple[Place, Resent]]:
        """Yield the messages at these places, in the order of the log."""
        for file in self._files:
            for each in read_piece(file):
                place = Place(file, each.offset)
                if each.message is not None and place in places:
                    message = resent(each.message)
                    if isinstance(message, Resent):
                        yield place, message

    def _take(self, file: Path, found: PieceRecord) -> None:
        if found.message is None:
            self.damaged += 1
            self.damaged_bytes += found.size
            return
        self.sound += 1
        message = resent(found.message)
        if isinstance(message, LeftOut):
            self.left_out[message] += 1
            if message is LeftOut.RECALL:
                self._recalls.add(found.message.properties)
        elif not self._only or message.topic in self._only:
            self._choose(Place(file, found.offset), message)

    def _choose(self, place: Place, message: Resent) -> None:
        """Choose a message, or the last of several tries of one."""
        tries = message.stored.reconsume_times
        before = self._chosen.get(message.key)
        if before is not None:
            self.left_out[LeftOut.COPY] += 1
        if before is None or before[1] < tries:
            self._chosen.pop(message.key, None)
            self._chosen[message.key] = place, tries
        if message.due_ms:
            owner = message.stored.properties.get(Property.TIMER_OWNER)
            self._timed[message.topic, message.unique_id, owner] = message.key
