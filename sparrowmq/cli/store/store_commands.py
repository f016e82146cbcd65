"""`sparrowmq store`: what can be done with a message store without its broker."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.cli.servers.settings_sources import FILE_OPTION, SET_OPTION, merge, sources
from sparrowmq.cli.store.log_copy import LogCopy
from sparrowmq.cli.store.resend_command import resend
from sparrowmq.cli.terminal.asking import F, credentials_of, reporting, showing_who, tls_of
from sparrowmq.cli.terminal.output import OUTPUT, is_for_people, say, table
from sparrowmq.cli.terminal.progress_line import Progress
from sparrowmq.client.cluster.credentials import tls_context
from sparrowmq.errors import BadStore
from sparrowmq.loop.clock import SystemClock
from sparrowmq.settings.number_type import Whole
from sparrowmq.settings.path_type import PATH
from sparrowmq.store.care import backup as backups
from sparrowmq.store.care import repair as repairs
from sparrowmq.store.care import restore as restores
from sparrowmq.store.care.backup import RestorePoints
from sparrowmq.store.care.check import verify
from sparrowmq.store.care.inspect import describe
from sparrowmq.store.care.manifest import copy_problems, has_manifest, is_copy
from sparrowmq.store.care.progress import ReadDisk, WrittenDisk
from sparrowmq.store.record_repair import Replaced
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Disk, StoreLock


def _of_broker(command: F) -> F:
    """Give a command the options of a broker's settings, and --output."""
    return FILE_OPTION(SET_OPTION(OUTPUT(command)))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def store() -> None:
    """Look into a message store, check it, copy it, repair it."""


store.add_command(resend)


@store.command()
@click.argument("path", type=PATH)
@_of_broker
def check(path: Path, file: str | None, changes: tuple[str, ...]) -> None:
    """Verify all that is in the store at PATH, which no broker may have open.

    PATH may also be a restore point, or a folder of them: then also all files are compared with the manifest.

    Each violation is one line, printed as soon as it is found; programs get rows at the end. The exit status is 0 when
    there is none and 1 when there is one. If the broker's files are not of Java's sizes, give its settings with -c.
    """
    with reporting("store check"):
        points = RestorePoints(Disk(), path)
        stores = [Path(points.path(name)) for name in points.names()] or [path]
        violations = [each for one in stores for each in found(settings_of(one, file, changes))]
    _tell_programs(violations)
    say(f"{len(violations)} violations" if violations else f"{path} is sound")
    sys.exit(1 if violations else 0)


@store.command()
@click.argument("path", type=PATH)
@click.option("--from", "start", metavar="OFFSET", type=Whole(0), help="Where to begin: see the numbers shown.")
@click.option("--limit", metavar="N", type=Whole(1), help="How many records or entries to show.")
@OUTPUT
def inspect(path: Path, start: int | None, limit: int | None) -> None:
    """Show what is in PATH, in words: any file of a store, or its folder.

    Of a log file each record, of a queue or index file each entry, of the store all of it in a dozen lines. The
    broker may be running.
    """
    with reporting("store inspect"):
        lines = describe(path, start, limit)
        if not is_for_people():
            table(("LINE",), [(line,) for line in lines])
            return
        for line in lines:
            click.echo(line)


@store.command()
@click.argument("path", type=PATH)
@click.argument("to", type=PATH)
@click.option("--keep", metavar="N", type=Whole(1), help="Keep N restore points; delete older ones.")
@click.option("--check", "is_checked", is_flag=True, help="Read the files of the last point again.")
@_of_broker
def backup(
    path: Path, to: Path, keep: int | None, is_checked: bool, file: str | None, changes: tuple[str, ...]
) -> None:
    """Add a restore point of the store at PATH to the folder TO, while the broker runs or not.

    A restore point has all that was stored when this began, with topics, groups and offsets. Its name is the time. It
    appears once it is whole, and each message in it was compared with its checksums. Full files that the point before
    has already are linked, not copied; with --check they are read again first. If the broker's files are not of Java's
    sizes, give its settings with -c.
    """
    with reporting("store backup"):
        settings = settings_of(path, file, changes)
        with Progress() as progress:
            disk = _copying(backups.sources(settings.layout), progress)
            points = RestorePoints(disk, to)
            added = points.add(settings, SystemClock().now_ms(), keep=keep, is_checked=is_checked, watch=progress)
    if is_for_people():
        click.echo(f"{added.path} has {path} up to offset {added.end} of its log")
        click.echo(f"{added.copied} files were copied, {added.linked} are shared with the point before")
        for name in added.dropped:
            click.echo(f"{name} was deleted, as --keep {keep} says")
    else:
        row = (str(path), added.path, int(added.end), added.copied, added.linked)
        table(("STORE", "COPY", "END OFFSET", "COPIED", "LINKED"), [row])


@store.command()
@click.argument("source", type=PATH)
@click.argument("path", type=PATH)
@click.option("--point", metavar="NAME", help="The restore point; the newest one without this option.")
@click.option("--salvage", is_flag=True, help="Of a damaged copy, restore what is sound, and say what is missing.")
@_of_broker
def restore(
    source: Path, path: Path, point: str | None, salvage: bool, file: str | None, changes: tuple[str, ...]
) -> None:
    """Make a store at PATH, where none may be, of a restore point in the folder SOURCE; then start its broker.

    SOURCE may also be one restore point. The copy is verified first: each file, each record, the queues and the index.
    A damaged copy makes no store: each problem is one line, and the exit status is 1.
    """
    problems: list[str] = []
    with reporting("store restore"):
        settings = _settings(path, file, changes)
        with Progress() as progress:
            copy = _copy_in(source, point)
            files = [str(Path(copy, each)) for each in backups.paths(Disk(), copy)]
            disk = _copying(files, progress)
            restores.restore(copy, settings, disk, progress, tell=_telling(problems, progress), salvage=salvage)
    if is_for_people():
        click.echo(f"{path} is as {copy}" if not problems else f"{path} has what is sound in {copy}")
    else:
        table(("STORE", "COPY", "PROBLEMS"), [(str(path), copy, len(problems))])


def _copy_in(source: Path, point: str | None) -> str:
    """Return the folder of the copy to restore. Raises: BadStore."""
    if point is None and is_copy(Disk(), str(source)):
        return str(source)
    return RestorePoints(Disk(), source).path(point)


def _telling(problems: list[str], progress: Progress) -> Callable[[str], None]:
    """Return a function that notes a problem, and prints it at once for people."""

    def tell(problem: str) -> None:
        problems.append(problem)
        progress.clear()
        click.echo(problem, err=not is_for_people())

    return tell


@store.command()
@click.argument("path", type=PATH)
@click.option(
    "--from",
    "address",
    metavar="HOST:PORT",
    help="Take damaged records from this broker: a slave of the store's master, or the master of a slave.",
)
@showing_who
@_of_broker
def repair(path: Path, address: str | None, file: str | None, changes: tuple[str, ...]) -> None:
    """Repair the log at PATH, which no broker may have open, and bring queues and index in order.

    All of the log is read. With --from, records that are damaged, or that were fenced off before, are replaced by those
    that the other broker has at the same places. What is still damaged is fenced off: consumers pass over what was
    there. Damaged bytes are kept in the folder `set-aside`.

    The exit status is 0 when nothing is left that `check` would find.
    """
    with reporting("store repair"):
        settings = settings_of(path, file, changes)
        replaced = _repaired(settings, address)
        violations = found(settings)
    pieces = Disk().list_folder(settings.layout.set_aside)
    _tell_programs(violations)
    if address is not None:
        missing = "".join(f"; it has none from offset {begin} to {end}" for begin, end in replaced.left)
        say(f"{replaced.count} records are as {address} has them{missing}")
    say(f"{path} {'is not sound' if violations else 'is sound'}; set-aside holds {len(pieces)} pieces")
    sys.exit(1 if violations else 0)


def _repaired(settings: StoreSettings, address: str | None) -> Replaced:
    with Progress() as progress:
        disk = ReadDisk(settings, progress) if progress.is_shown else Disk()
        if address is None:
            return repairs.repair(settings, disk)
        who, tls = credentials_of(), tls_context(tls_of())
        with LogCopy(address, who._signer() if who else None, tls) as copy:
            return repairs.repair(settings, disk, copy)


def _copying(sources: list[str], progress: Progress) -> Disk:
    return WrittenDisk(sources, progress) if progress.is_shown else Disk()


def settings_of(path: Path, file: str | None, changes: tuple[str, ...]) -> StoreSettings:
    """Return the settings of the store at a path, even if the broker's file names another path.

    Raises:
        ConfigError: a setting is wrong.
        BadStore: there is no store.
    """
    settings = _settings(path, file, changes)
    if not Path(settings.layout.commit_log).is_dir():
        raise BadStore(f"there is no store at {path}: {settings.layout.commit_log} is not there")
    return settings


def _settings(path: Path, file: str | None, changes: tuple[str, ...]) -> StoreSettings:
    typed = {"storePathRootDir": str(path)}
    return merge(BrokerSettings, sources(file, {}, changes, typed)).store(0)


def found(settings: StoreSettings) -> list[str]:
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


def _tell_programs(violations: list[str]) -> None:
    if not is_for_people():
        table(("VIOLATION",), [(violation,) for violation in violations])
