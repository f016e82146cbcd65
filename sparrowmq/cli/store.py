"""`sparrowmq store`: what can be done with a message store without its broker."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final, NamedTuple, Self, TypeAlias, TypeVar

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.resend import Key, LeftOut, Resending, ResendState, Resent, resent
from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.cli.servers.settings_sources import FILE_OPTION, SET_OPTION, merge, sources
from sparrowmq.cli.terminal.arguments import TOPIC, iso
from sparrowmq.cli.terminal.cluster_command import (
    F,
    ask,
    chosen_credentials,
    chosen_tls,
    cluster_options,
    errors_in_a_sentence,
    identity_options,
    options,
)
from sparrowmq.cli.terminal.output import (
    OUTPUT_OPTION,
    Progress,
    confirm,
    is_for_people,
    print_done,
    print_table,
    print_tables,
    say,
)
from sparrowmq.client.cluster.blocking_network import BlockingLink
from sparrowmq.client.cluster.credentials import tls_context
from sparrowmq.core.safe_text import counted
from sparrowmq.errors import BadStore, NetworkError, RemoteError, SparrowError
from sparrowmq.loop.clock import SystemClock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.messages.property_names import Property
from sparrowmq.protocol.messages.recalls import Recalls
from sparrowmq.protocol.requests.headers import ViewMessage
from sparrowmq.protocol.wire.connection import Sign
from sparrowmq.settings.argument_types import PATH, Whole
from sparrowmq.store.care import backup as backups
from sparrowmq.store.care import repair as repairs
from sparrowmq.store.care import restore as restores
from sparrowmq.store.care.backup import RestorePoints
from sparrowmq.store.care.check import verify
from sparrowmq.store.care.inspect import PieceRecord, check_piece_name, describe, read_piece
from sparrowmq.store.care.manifest import copy_problems, has_manifest, is_copy
from sparrowmq.store.care.progress import ReadDisk, WrittenDisk
from sparrowmq.store.record_repair import RepairResult
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Disk, StoreLock

T = TypeVar("T")

_ATTEMPTS: Final = 5  # to read a record of another broker's log
_RETRY_PAUSE_S: Final = 1.0
_AT_ONCE: Final = 64  # messages that are asked for, or sent, at once


def _settings_options(command: F) -> F:
    return FILE_OPTION(SET_OPTION(OUTPUT_OPTION(command)))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def store() -> None:
    """Look into a message store, check it, copy it, repair it."""


@store.command()
@click.argument("path", type=PATH)
@_settings_options
def check(path: Path, file: str | None, changes: tuple[str, ...]) -> None:
    """Verify all that is in the store at PATH, which no broker may have open.

    PATH may also be a restore point, or a folder of them: then also all files are compared with the manifest.

    Each violation is one line, printed as soon as it is found; programs get rows at the end. The exit status is 0 when
    there is none and 1 when there is one. If the broker's files are not of Java's sizes, give its settings with -c.
    """
    with errors_in_a_sentence("store check"):
        points = RestorePoints(Disk(), path)
        stores = [Path(points.path(name)) for name in points.names()] or [path]
        violations = [
            violation for folder in stores for violation in find_violations(settings_of(folder, file, changes))
        ]
    _print_for_programs(violations)
    say(f"{len(violations)} violations" if violations else f"{path} is sound")
    sys.exit(1 if violations else 0)


@store.command()
@click.argument("path", type=PATH)
@click.option("--from", "start", metavar="OFFSET", type=Whole(0), help="Where to begin: see the numbers shown.")
@click.option("--limit", metavar="N", type=Whole(1), help="How many records or entries to show.")
@OUTPUT_OPTION
def inspect(path: Path, start: int | None, limit: int | None) -> None:
    """Show what is in PATH, in words: any file of a store, or its folder.

    Of a log file each record, of a queue or index file each entry, of the store all of it in a dozen lines. The
    broker may be running.
    """
    with errors_in_a_sentence("store inspect"):
        lines = describe(path, start, limit)
        if not is_for_people():
            print_table(("LINE",), [(line,) for line in lines])
            return
        for line in lines:
            click.echo(line)


@store.command()
@click.argument("path", type=PATH)
@click.argument("to", type=PATH)
@click.option("--keep", metavar="N", type=Whole(1), help="Keep N restore points; delete older ones.")
@click.option("--check", "is_checked", is_flag=True, help="Read the files of the last point again.")
@_settings_options
def backup(
    path: Path, to: Path, keep: int | None, is_checked: bool, file: str | None, changes: tuple[str, ...]
) -> None:
    """Add a restore point of the store at PATH to the folder TO, while the broker runs or not.

    A restore point has all that was stored when this began, with topics, groups and offsets. Its name is the time. It
    appears once it is whole, and each message in it was compared with its checksums. Full files that the point before
    has already are linked, not copied; with --check they are read again first. If the broker's files are not of Java's
    sizes, give its settings with -c.
    """
    with errors_in_a_sentence("store backup"):
        settings = settings_of(path, file, changes)
        with Progress() as progress:
            disk = _progress_disk(backups.sources(settings.layout), progress)
            points = RestorePoints(disk, to)
            added = points.add(settings, SystemClock().now_ms(), keep=keep, is_checked=is_checked, watch=progress)
    if is_for_people():
        click.echo(f"{added.path} has {path} up to offset {added.end} of its log")
        click.echo(f"{added.copied_count} files were copied, {added.linked_count} are shared with the point before")
        for name in added.dropped_names:
            click.echo(f"{name} was deleted, as --keep {keep} says")
    else:
        row = (str(path), added.path, int(added.end), added.copied_count, added.linked_count)
        print_table(("STORE", "COPY", "END OFFSET", "COPIED", "LINKED"), [row])


@store.command()
@click.argument("source", type=PATH)
@click.argument("path", type=PATH)
@click.option("--point", metavar="NAME", help="The restore point; the newest one without this option.")
@click.option("--salvage", is_flag=True, help="Of a damaged copy, restore what is sound, and say what is missing.")
@_settings_options
def restore(
    source: Path, path: Path, point: str | None, salvage: bool, file: str | None, changes: tuple[str, ...]
) -> None:
    """Make a store at PATH, where none may be, of a restore point in the folder SOURCE; then start its broker.

    SOURCE may also be one restore point. The copy is verified first: each file, each record, the queues and the index.
    A damaged copy makes no store: each problem is one line, and the exit status is 1.
    """
    problems: list[str] = []
    with errors_in_a_sentence("store restore"):
        settings = _settings(path, file, changes)
        with Progress() as progress:

            def report(problem: str) -> None:
                problems.append(problem)
                progress.clear()
                click.echo(problem, err=not is_for_people())

            is_point = point is None and is_copy(Disk(), str(source))
            copy = str(source) if is_point else RestorePoints(Disk(), source).path(point)
            disk = _progress_disk([str(Path(copy, file)) for file in backups.paths(Disk(), copy)], progress)
            restores.restore(copy, settings, disk, progress, report=report, salvage=salvage)
    if is_for_people():
        click.echo(f"{path} is as {copy}" if not problems else f"{path} has what is sound in {copy}")
    else:
        print_table(("STORE", "COPY", "PROBLEMS"), [(str(path), copy, len(problems))])


@store.command()
@click.argument("path", type=PATH)
@click.option(
    "--from",
    "address",
    metavar="HOST:PORT",
    help="Take damaged records from this broker: a slave of the store's master, or the master of a slave.",
)
@identity_options
@_settings_options
def repair(path: Path, address: str | None, file: str | None, changes: tuple[str, ...]) -> None:
    """Repair the log at PATH, which no broker may have open, and bring queues and index in order.

    All of the log is read. With --from, records that are damaged, or that were fenced off before, are replaced by those
    that the other broker has at the same places. What is still damaged is fenced off: consumers pass over what was
    there. Damaged bytes are kept in the folder `set-aside`.

    The exit status is 0 when nothing is left that `check` would find.
    """
    with errors_in_a_sentence("store repair"):
        settings = settings_of(path, file, changes)
        replaced = _repair(settings, address)
        violations = find_violations(settings)
    pieces = Disk().list_folder(settings.layout.set_aside)
    _print_for_programs(violations)
    if address is not None:
        missing = "".join(f"; it has none from offset {begin} to {end}" for begin, end in replaced.remaining_damage)
        say(f"{replaced.count} records are as {address} has them{missing}")
    say(f"{path} {'is not sound' if violations else 'is sound'}; set-aside holds {len(pieces)} pieces")
    sys.exit(1 if violations else 0)


def _repair(settings: StoreSettings, address: str | None) -> RepairResult:
    with Progress() as progress:
        disk = ReadDisk(settings, progress) if progress.is_shown else Disk()
        if address is None:
            return repairs.repair(settings, disk)
        account, tls = chosen_credentials(), tls_context(chosen_tls())
        with LogCopy(address, account._signer() if account else None, tls) as copy:
            return repairs.repair(settings, disk, copy)


class LogCopy:
    """The log of the broker at an address; a lost connection is opened again. Not for several threads at once."""

    def __init__(
        self,
        address: str,
        sign: Sign | None = None,
        tls: SSLContext | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._address = address
        self._sign = sign
        self._tls = tls
        self._sleep = sleep
        self._link: BlockingLink | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._disconnect()

    def record_at(self, offset: int) -> bytes | None:
        """Return the record at an offset; None if there is none.

        Raises: NetworkError, the broker does not answer for some seconds; RemoteError, it refuses.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._ask_once(offset)
            except NetworkError:
                self._disconnect()
                self._sleep(_RETRY_PAUSE_S)
        return self._ask_once(offset)

    def _ask_once(self, offset: int) -> bytes | None:
        if self._link is None:
            self._link = BlockingLink(self._address, self._sign, self._tls)
        try:
            _, record = self._link.call(ViewMessage(offset))
        except RemoteError as error:
            if error.code == ResponseCode.SYSTEM_ERROR:  # "can not find message by the offset"
                return None
            raise
        return record

    def _disconnect(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = None


def _progress_disk(sources: list[str], progress: Progress) -> Disk:
    return WrittenDisk(sources, progress) if progress.is_shown else Disk()


def settings_of(path: Path, file: str | None, changes: tuple[str, ...]) -> StoreSettings:
    """Return the settings of the store at a path, even if the broker's file names another path.

    Raises: ConfigError, a setting is wrong; BadStore, there is no store.
    """
    settings = _settings(path, file, changes)
    if not Path(settings.layout.commit_log).is_dir():
        raise BadStore(f"there is no store at {path}: {settings.layout.commit_log} is not there")
    return settings


def _settings(path: Path, file: str | None, changes: tuple[str, ...]) -> StoreSettings:
    typed = {"storePathRootDir": str(path)}
    return merge(BrokerSettings, sources(file, {}, changes, typed)).store(0)


def find_violations(settings: StoreSettings) -> list[str]:
    """Return the violations of a store that no broker has open; people see each at once, as a check takes minutes.

    Raises: StoreLocked, a broker has it open.
    """
    disk = Disk()
    violations: list[str] = []
    lock = StoreLock(disk, settings.layout)
    try:
        with Progress() as progress:
            watch = progress if progress.is_shown else None
            of_copy = has_manifest(disk, settings.layout.root)
            for violation in (copy_problems if of_copy else verify)(settings, disk, watch):
                violations.append(violation)
                if is_for_people():
                    progress.clear()
                    click.echo(violation)
    finally:
        lock.close()
    return violations


def _print_for_programs(violations: list[str]) -> None:
    if not is_for_people():
        print_table(("VIOLATION",), [(violation,) for violation in violations])


# Resend --------------------------------------------------------------------------------------------------------------
#
#     read the pieces ── ask the cluster what it has ── table ── question ── send ── delete the pieces, with --delete
#
# Each step asks or tells before it changes something. An interrupted run can be repeated: what was sent is there then.

_Messages: TypeAlias = "Iterable[tuple[ResendPosition, Resent]]"


@dataclass(slots=True)
class _TopicCount:
    """The messages of one topic: how many the cluster lacks and has; when the first and last it lacks were stored."""

    missing: int = 0
    existing: int = 0
    first_ms: int = 0
    last_ms: int = 0

    def add(self, state: ResendState, stored_ms: int) -> None:
        self.existing += state is ResendState.THERE
        if state is ResendState.MISSING:
            self.missing += 1
            self.first_ms = min(self.first_ms or stored_ms, stored_ms)
            self.last_ms = max(self.last_ms, stored_ms)


@dataclass(slots=True)
class _Plan:
    """The positions of the messages to send, and the counts by topic."""

    positions: set[ResendPosition] = field(default_factory=set)
    topics: dict[str, _TopicCount] = field(default_factory=dict)

    @property
    def existing(self) -> int:
        return sum(count.existing for count in self.topics.values())


@store.command()
@options(cluster_options, OUTPUT_OPTION)
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
    with errors_in_a_sentence("store resend"):
        draft = Draft(files, topics)
        if not draft.readable and not delete:
            raise click.ClickException(
                f"no message in {_names(files)} can be read: {draft.damaged_bytes:,} bytes are damaged. A slave or a "
                "backup may have these messages; --delete deletes the files"
            )
        if draft.positions:
            plan, sent = ask(lambda admin: _run(admin, draft, files, delete, unchecked, dry_run, yes))
        else:
            plan, sent = _Plan(), 0
            _show(plan, draft)
            if delete and not dry_run and not yes:
                confirm(_question(0, files, delete))
        has_open = bool(draft.left_out[LeftOut.OPEN])
        is_deleted = delete and not dry_run and not has_open
        if is_deleted:
            for file in files:
                file.unlink()
    needs_files = bool(topics) or has_open
    _print_result(plan, draft, files, sent, dry_run=dry_run, is_deleted=is_deleted, needs_files=needs_files)


async def _run(
    admin: Admin, draft: Draft, files: Collection[Path], delete: bool, unchecked: bool, dry_run: bool, yes: bool
) -> tuple[_Plan, int]:
    resending = Resending(admin.servers, is_checked=not unchecked, is_dry=dry_run)
    if lacking := await resending.prepare(draft.topics):
        raise click.ClickException(
            f"nothing was sent: the cluster has no topic {', '.join(lacking)}. Create each with "
            f"`sparrowmq topic create {lacking[0]}`, or choose others with --topic"
        )
    if not unchecked and (brokers := resending.without_index()):
        raise click.ClickException(
            f"nothing was sent: {', '.join(brokers)} cannot find messages by their ids, as messageIndexEnable is "
            "false. --unchecked sends all messages, also those that are there already"
        )
    with Progress() as progress:
        plan = await _compare(resending, draft, progress)
        progress.clear()
        _show(plan, draft)
        if dry_run:
            return plan, 0
        if not yes and (plan.positions or delete):
            confirm(_question(len(plan.positions), files, delete and not draft.left_out[LeftOut.OPEN]))
        return plan, await _send_all(resending, draft.messages(plan.positions), len(plan.positions), progress)


async def _compare(resending: Resending, draft: Draft, progress: Progress) -> _Plan:
    plan, count = _Plan(), 0
    for chunk in _chunks(draft.messages(draft.positions)):
        states = await _gather([resending.state_of(message) for _, message in chunk])
        for (position, message), state in zip(chunk, states, strict=True):
            if state is ResendState.OPEN:
                draft.left_out[LeftOut.OPEN] += 1
            elif state is ResendState.MISSING:
                plan.positions.add(position)
            plan.topics.setdefault(message.topic, _TopicCount()).add(state, message.stored.store_timestamp_ms)
        count += len(chunk)
        progress("asking the cluster", count, len(draft.positions))
    return plan


async def _send_all(resending: Resending, messages: _Messages, total: int, progress: Progress) -> int:
    """Send messages, those of each queue in their order; return their number."""
    count = 0

    async def send(messages_of_queue: list[Resent]) -> None:
        nonlocal count
        for message in messages_of_queue:
            await resending.send(message)
            count += 1
            progress("sending", count, total)

    try:
        for chunk in _chunks(messages):
            by_queue = sorted((message for _, message in chunk), key=resending.queue_of)
            await _gather([send(list(group)) for _, group in groupby(by_queue, key=resending.queue_of)])
    except BaseException:
        progress.clear()
        say(f"{count:,} of {total:,} messages were sent; run the same command again to go on")
        raise
    return count


async def _gather(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of all, each in a task. Raises: the first error, which ends the others."""
    failures: list[Exception] = []
    tasks: list[asyncio.Task[T]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks += [group.create_task(coroutine) for coroutine in work]
    except* SparrowError as errors:
        failures += errors.exceptions
    if failures:  # Python 3.11.2 would put what is raised above into a group
        raise failures[0] from None
    return [task.result() for task in tasks]


def _chunks(messages: _Messages) -> Iterator[list[tuple[ResendPosition, Resent]]]:
    iterator = iter(messages)
    while chunk := list(islice(iterator, _AT_ONCE)):
        yield chunk


def _show(plan: _Plan, draft: Draft) -> None:
    """Show people what would be sent, and what would not."""
    if not is_for_people():
        return
    rows = [
        (topic, count.missing, count.existing, _time(count.first_ms), _time(count.last_ms))
        for topic, count in sorted(plan.topics.items())
    ]
    if rows:
        print_tables(topics=(("TOPIC", "SEND", "THERE ALREADY", "FIRST STORED", "LAST STORED"), rows))
    for reason, number in draft.left_out.items():
        if number:
            say(f"not sent: {number:,} {reason.value}")
    if draft.damaged:
        say(f"not sent: {draft.damaged_bytes:,} damaged bytes, in {draft.damaged:,} places")


def _time(ms: int) -> str | None:
    return iso(ms) if ms else None


def _question(count: int, files: Collection[Path], delete: bool) -> str:
    steps = [f"send {counted(count, 'message')} again"] if count else []
    if delete:
        steps.append(f"delete {_names(files)}")
    return f"{', then '.join(steps)}?"


def _print_result(
    plan: _Plan, draft: Draft, files: Collection[Path], sent: int, *, dry_run: bool, is_deleted: bool, needs_files: bool
) -> None:
    """Print what was done, and what is left to do."""
    if dry_run:
        sentence = f"would send {counted(len(plan.positions), 'message')} again; {plan.existing:,} are there already"
    else:
        sentence = f"sent {counted(sent, 'message')} again; {plan.existing:,} were there already"
        if is_deleted:
            sentence += f"\ndeleted {_names(files)}"
        elif needs_files:
            sentence += "\nkeep the files: they have other messages, too"
        else:
            sentence += f"\nthe files are not needed any more: rm {shlex.join(map(str, files))}"
    fields: dict[str, Any] = {
        "sent": sent,
        "would_send": len(plan.positions) if dry_run else 0,
        "there_already": plan.existing,
        "left_out": {reason.name.lower(): number for reason, number in draft.left_out.items() if number},
        "damaged_bytes": draft.damaged_bytes,
        "topics": [
            {"topic": topic, "send": count.missing, "there_already": count.existing}
            | {"first_stored": _time(count.first_ms), "last_stored": _time(count.last_ms)}
            for topic, count in sorted(plan.topics.items())
        ],
    }
    print_done(sentence, **fields, dry_run=dry_run, deleted=is_deleted)


def _names(files: Iterable[Path]) -> str:
    return ", ".join(map(str, files))


class ResendPosition(NamedTuple):
    """A message in a piece."""

    file: Path
    offset: int  # in the log


class Draft:
    """The messages of some pieces that can be sent, chosen before a cluster is asked: those of `topics`, or all.

    Pieces are read three times: for this choice, to ask the cluster, and to send. So no bodies are kept in memory, only
    a key and a position for each message. Raises: BadStore, a file is no piece; OSError, it cannot be read.
    """

    def __init__(self, files: Sequence[Path], topics: Collection[str] = ()) -> None:
        for file in files:
            check_piece_name(file)
        self._files = sorted(set(files), key=lambda file: file.name)
        self._topics = frozenset(topics)
        self.left_out: Counter[LeftOut] = Counter()  # records that are not sent
        self.readable = self.damaged = self.damaged_bytes = 0  # messages; damaged places, and their bytes
        self._chosen: dict[Key, tuple[ResendPosition, int]] = {}  # and the number of tries
        self._timed: dict[tuple[str, str, str | None], Key] = {}  # by topic, unique id and account
        self._recalls = Recalls()
        for file in self._files:
            for record in read_piece(file):
                self._add(file, record)
        for timer, key in self._timed.items():
            if self._recalls.include(*timer):
                del self._chosen[key]
                self.left_out[LeftOut.RECALLED] += 1
        self.positions = {position for position, _ in self._chosen.values()}

    @property
    def topics(self) -> list[str]:
        return sorted({topic for topic, *_ in self._chosen})

    def messages(self, positions: Collection[ResendPosition]) -> Iterator[tuple[ResendPosition, Resent]]:
        """Yield the messages at these positions, in the order of the log."""
        for file in self._files:
            for record in read_piece(file):
                position = ResendPosition(file, record.offset)
                if record.message is not None and position in positions:
                    message = resent(record.message)
                    if isinstance(message, Resent):
                        yield position, message

    def _add(self, file: Path, record: PieceRecord) -> None:
        if record.message is None:
            self.damaged += 1
            self.damaged_bytes += record.size
            return
        self.readable += 1
        message = resent(record.message)
        if isinstance(message, LeftOut):
            self.left_out[message] += 1
            if message is LeftOut.RECALL:
                self._recalls.add(record.message.properties)
        elif not self._topics or message.topic in self._topics:
            self._choose(ResendPosition(file, record.offset), message)

    def _choose(self, position: ResendPosition, message: Resent) -> None:
        """Choose a message, or the last of several tries of one."""
        tries = message.stored.reconsume_times
        known = self._chosen.get(message.key)
        if known is not None:
            self.left_out[LeftOut.COPY] += 1
        if known is None or known[1] < tries:
            self._chosen.pop(message.key, None)
            self._chosen[message.key] = position, tries
        if message.due_ms:
            owner = message.stored.properties.get(Property.TIMER_OWNER)
            self._timed[message.topic, message.unique_id, owner] = message.key
