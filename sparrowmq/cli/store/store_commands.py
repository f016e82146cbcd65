"""`sparrowmq store`: what can be done with a message store without its broker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from sparrowmq.broker.broker_settings import BrokerSettings
from sparrowmq.cli.servers.settings_sources import FILE_OPTION, SET_OPTION, merge, sources
from sparrowmq.cli.store.log_copy import LogCopy
from sparrowmq.cli.terminal.asking import F, credentials_of, showing_who, tls_of
from sparrowmq.cli.terminal.output import OUTPUT, is_for_people, say, table
from sparrowmq.cli.terminal.progress_line import Progress
from sparrowmq.client.cluster.credentials import tls_context
from sparrowmq.errors import BadStore, ConfigError, SparrowError
from sparrowmq.store.care import backup as backups
from sparrowmq.store.care import repair as repairs
from sparrowmq.store.care.check import verify
from sparrowmq.store.care.inspect import describe
from sparrowmq.store.locks import StoreLock
from sparrowmq.store.progress_vfs import ReadDisk, WrittenDisk
from sparrowmq.store.replacing import Replaced
from sparrowmq.store.store_settings import StoreSettings
from sparrowmq.store.vfs import Disk


def _of_broker(command: F) -> F:
    """Give a command the options of a broker's settings, and --output."""
    return FILE_OPTION(SET_OPTION(OUTPUT(command)))


@contextmanager
def _reporting(verb: str) -> Iterator[None]:
    """End the program with one sentence for an error inside the `with`."""
    try:
        yield
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        raise
    except (SparrowError, OSError) as error:
        click.echo(f"store {verb}: {error}", err=True)
        sys.exit(2 if isinstance(error, ConfigError) else 1)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def store() -> None:
    """Look into a message store, check it, copy it, repair it."""


@store.command()
@click.argument("path", type=click.Path(path_type=Path))
@_of_broker
def check(path: Path, file: str | None, changes: tuple[str, ...]) -> None:
    """Verify all that is in the store at PATH, which no broker may have open.

    Each violation is one line, printed as soon as it is found; programs get rows at the end. The exit status is 0 when
    there is none and 1 when there is one. If the broker's files are not of Java's sizes, give its settings with -c.
    """
    with _reporting("check"):
        violations = found(settings_of(path, file, changes))
    _tell_programs(violations)
    say(f"{len(violations)} violations" if violations else f"{path} is sound")
    sys.exit(1 if violations else 0)


@store.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--from", "start", metavar="OFFSET", type=click.IntRange(0), help="Where to begin: see the numbers shown."
)
@click.option("--limit", metavar="N", type=click.IntRange(1), help="How many records or entries to show.")
@OUTPUT
def inspect(path: Path, start: int | None, limit: int | None) -> None:
    """Show what is in PATH, in words: any file of a store, or its folder.

    Of a log file each record, of a queue or index file each entry, of the store all of it in a dozen lines. The
    broker may be running.
    """
    with _reporting("inspect"):
        lines = describe(path, start, limit)
        if not is_for_people():
            table(("LINE",), [(line,) for line in lines])
            return
        for line in lines:
            click.echo(line)


@store.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("to", type=click.Path(path_type=Path))
@_of_broker
def backup(path: Path, to: Path, file: str | None, changes: tuple[str, ...]) -> None:
    """Copy the store at PATH to the folder TO, while its broker runs or not.

    The copy has all that was stored when this began, and is a store in order, with topics, groups and offsets. TO
    appears once it is whole, and each of its messages was compared with its checksums; what an attempt that was killed
    left beside it goes with the next one. If the broker's files are not of Java's sizes, give its settings with -c.
    """
    with _reporting("backup"):
        settings = settings_of(path, file, changes)
        with Progress() as progress:
            end = backups.backup(settings, to, _copying(backups.sources(settings.layout), progress), progress)
    if is_for_people():
        click.echo(f"{to} has {path} up to offset {end} of its log")
    else:
        table(("STORE", "COPY", "END OFFSET"), [(str(path), str(to), int(end))])


@store.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("path", type=click.Path(path_type=Path))
@_of_broker
def restore(source: Path, path: Path, file: str | None, changes: tuple[str, ...]) -> None:
    """Make a store at PATH, where none may be, of the copy at SOURCE that `backup` made; then start its broker."""
    with _reporting("restore"):
        settings = _settings(path, file, changes)
        with Progress() as progress:
            backups.restore(source, settings, _copying([str(source)], progress))
    if is_for_people():
        click.echo(f"{path} is as {source}")
    else:
        table(("STORE", "COPY"), [(str(path), str(source))])


@store.command()
@click.argument("path", type=click.Path(path_type=Path))
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
    with _reporting("repair"):
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
        with LogCopy(address, who.signer() if who else None, tls) as copy:
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

    Raises:
        StoreLocked: a broker has it open.
    """
    disk = Disk()
    violations: list[str] = []
    lock = StoreLock(disk, settings.layout)
    try:
        with Progress() as progress:
            for violation in verify(settings, disk, progress if progress.is_shown else None):
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
