"""The activity of a cluster, and its problems: `sparrowmq doctor`, `top`, `connection` and `bundle`.

doctor        problems, the check that found each, and the command that solves it
top           the busiest topics and the groups with the greatest lag, redrawn every few seconds until ^C
connection    the clients that are online
bundle        logs, settings, routes, metrics and stacks of all servers in one file, for a search later
"""

from __future__ import annotations

import asyncio
import io
import os
import resource
import shutil
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import count as count_up
from pathlib import Path
from typing import Final

import click

from sparrowmq import kernel
from sparrowmq.admin.activity import Activity, OnlineClient, activity, online_clients
from sparrowmq.admin.admin import Admin
from sparrowmq.admin.brokers import Standing
from sparrowmq.admin.bundle import Bundle
from sparrowmq.admin.findings import Finding, Verdict
from sparrowmq.admin.groups import GroupLag
from sparrowmq.cli.terminal.arguments import GROUP, TOPIC
from sparrowmq.cli.terminal.cluster_command import (
    CLUSTER_OPTION,
    EXPECT_OPTION,
    HELP,
    ask,
    chosen_credentials,
    cluster_options,
    query,
    verb,
)
from sparrowmq.cli.terminal.output import (
    OUTPUT_OPTION,
    is_for_people,
    print_done,
    print_line,
    print_table,
    print_tables,
    say,
    split_heads,
)
from sparrowmq.cli.terminal.plain_terminal import shown
from sparrowmq.core.safe_text import counted
from sparrowmq.errors import NetworkError
from sparrowmq.settings.argument_types import Number, Whole, WrittenPath
from sparrowmq.version import VERSION

_SIGNS: Final = {Verdict.OK: "ok", Verdict.WARNING: "warning", Verdict.WRONG: "WRONG"}
_COLOURS: Final = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.WRONG: "red"}
_EFFECT_SIGN: Final = "effect"  # of what is wrong above
_MIN_OPEN_FILES: Final = 4096
_BROKER_HEADS: Final = split_heads("BROKER|ROLE|ADDRESS|IN TPS|OUT TPS|LAG BYTES|STATE")
_TOPIC_HEADS: Final = split_heads("TOPIC|IN TPS|IN A DAY")
_GROUP_HEADS: Final = split_heads("GROUP|LAG|BEHIND S|OUT TPS")
_HOME_AND_CLEAR: Final = "\x1b[H\x1b[2J"
_MIN_ROWS: Final = 3  # topics, and groups, however low the terminal is
_OTHER_LINES: Final = 7  # the first line, the heads of three tables and what is between them
_CLIENT_HEADS: Final = split_heads("ROLE|GROUP|CLIENT|LANGUAGE|VERSION|CONNECTIONS")
_OWNER_ONLY: Final = 0o600


@click.command("doctor", context_settings=HELP)
@cluster_options
@click.option("--topic", type=TOPIC, metavar="NAME", help="Also check this topic.")
@click.option("--group", type=GROUP, metavar="NAME", help="Also check this consumer group.")
@EXPECT_OPTION
@OUTPUT_OPTION
@click.option("-v", "--verbose", is_flag=True, help="Also show each check, and what is well.")
def doctor(topic: str | None, group: str | None, expected: tuple[str, ...], verbose: bool) -> None:
    """Look for what is wrong with a cluster, and say how to fix it; programs get what is well, too."""
    findings = [*_check_this_machine(), *ask(lambda admin: admin.examine(topic, group, expected))]
    if is_for_people():
        _print_findings(findings, verbose)
    else:
        rows = [
            (finding.verdict.value, finding.what, finding.check, finding.mend, finding.cause) for finding in findings
        ]
        print_table(("VERDICT", "WHAT", "CHECK", "MEND", "CAUSE"), rows)
    sys.exit(1 if any(finding.verdict is Verdict.WRONG for finding in findings) else 0)


def _check_this_machine() -> list[Finding]:
    return [_check_open_files(), _check_kernel()]


def _check_open_files() -> Finding:
    files, check = resource.getrlimit(resource.RLIMIT_NOFILE)[1], "ulimit -Hn of this shell"
    if files != resource.RLIM_INFINITY and files < _MIN_OPEN_FILES:
        mend = "ulimit -n 65536, or LimitNOFILE=65536 in a systemd unit, before a broker starts here"
        return Finding(Verdict.WARNING, f"a broker started here may open {files} files only", check, mend)
    return Finding(Verdict.OK, "as many files may be open as a broker needs", check)


def _check_kernel() -> Finding:
    check = "sparrowmq version"
    if kernel.is_compiled():
        return Finding(Verdict.OK, "the kernel of a broker started here is compiled", check)
    mend = "install a C compiler and Python's headers (Debian, Ubuntu: gcc, python3-dev), then sparrowmq again"
    return Finding(Verdict.WARNING, "the kernel of a broker started here is plain Python, a tenth as fast", check, mend)


def _print_findings(findings: list[Finding], verbose: bool) -> None:
    counts = Counter[Verdict | None]()  # None for effects
    for finding in findings:
        is_effect = bool(finding.cause) and finding.verdict is not Verdict.OK
        counts[None if is_effect else finding.verdict] += 1
        if finding.verdict is Verdict.OK and not verbose:
            continue
        word = _EFFECT_SIGN if is_effect else _SIGNS[finding.verdict]
        sign = click.style(f"{word:8}", fg=_COLOURS[finding.verdict], bold=not is_effect)
        click.echo(f"{sign} {finding.what}")
        if verbose:
            click.echo(f"         check: {finding.check}")
        if finding.mend and (verbose or not is_effect):
            click.echo(f"         fix:   {finding.mend}")
    effects = f", {counts[None]} effects" if counts[None] else ""
    wrong, warnings, well = counts[Verdict.WRONG], counts[Verdict.WARNING], counts[Verdict.OK]
    click.echo(f"{wrong} wrong, {warnings} warnings{effects}, {well} things are well")


@click.command(context_settings=HELP)
@cluster_options
@OUTPUT_OPTION
@CLUSTER_OPTION
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
            is_whole = await _refresh(admin, cluster, is_live)
            if number == looks:
                return is_whole
            await asyncio.sleep(every_s)
        raise AssertionError("it counts without end")

    with suppress(KeyboardInterrupt):
        sys.exit(0 if ask(run) else 1)


async def _refresh(admin: Admin, cluster: str | None, is_live: bool) -> bool:
    """Show the cluster once; returns whether all brokers are in it. A terminal waits for name servers to come back."""
    try:
        state = await activity(admin.servers, cluster)
    except NetworkError as error:
        if not is_live:
            raise
        say(str(error))
        return False
    _print_state(state, is_live)
    return not state.missing


def _print_state(state: Activity, is_live: bool) -> None:
    limit = _max_rows(len(state.brokers)) if is_live else None
    if is_live:
        click.echo(_HOME_AND_CLEAR, nl=False)
    if is_for_people():
        print_line(_summary(state))
        click.echo()
    topics = [(topic.topic, round(topic.per_second, 1), topic.within_a_day) for topic in state.topics[:limit]]
    print_tables(
        brokers=(_BROKER_HEADS, [_broker_row(standing) for standing in state.brokers]),
        topics=(_TOPIC_HEADS, topics),
        groups=(_GROUP_HEADS, [_group_row(group) for group in state.groups[:limit]]),
    )
    for broker, error in state.missing.items():
        say(f"without {broker}: {error}")


def _max_rows(brokers: int) -> int:
    """Return how many topics, and how many groups, a terminal has room for."""
    return max(_MIN_ROWS, (shutil.get_terminal_size().lines - brokers - _OTHER_LINES) // 2)


def _summary(state: Activity) -> str:
    in_tps = sum(standing.in_tps or 0 for standing in state.brokers if standing.role == "master")
    out_tps = sum(standing.out_tps or 0 for standing in state.brokers)
    conditions = sum(len(standing.conditions) for standing in state.brokers)
    parts = [
        f"{datetime.now():%H:%M:%S}",
        f"{in_tps:,.1f} messages/s in, {out_tps:,.1f} out",
        f"{counted(len(state.topics), 'topic')}, {counted(len(state.groups), 'group')}",
        *([f"{len(state.missing)} brokers do not answer"] if state.missing else []),
        *([f"{conditions} conditions: see `sparrowmq doctor`"] if conditions else []),
    ]
    return "  |  ".join(parts)


def _broker_row(standing: Standing) -> Sequence[object]:
    state = "does not answer" if standing.is_silent else standing.problem or " ".join(standing.conditions) or "ok"
    figures = standing.in_tps, standing.out_tps, standing.behind_bytes
    return standing.broker, standing.role, standing.address, *figures, state


def _group_row(group: GroupLag) -> Sequence[object]:
    behind_s = group.behind_s(datetime.now().astimezone())
    return group.group, group.lag, None if behind_s is None else round(behind_s), round(group.per_second, 1)


@click.group(context_settings=HELP)
def connection() -> None:
    """Show the clients that are online."""


@verb(connection, "list")
@CLUSTER_OPTION
@click.option("--group", type=GROUP, metavar="GROUP", help="Only the clients of this consumer or producer group.")
def list_connections(cluster: str | None, group: str | None) -> None:
    """Show each online consumer and producer: its group, client id, language, version and connections.

    Clients of SparrowMQ are producers in the group CLIENT_INNER_PRODUCER, too. The status is 1 if a broker does not
    answer.
    """

    async def run(admin: Admin) -> list[OnlineClient]:
        clients, failures = await online_clients(admin.servers, cluster)
        if admin.servers.missing is not None:
            admin.servers.missing.update(failures)
        return clients

    clients = query(run)
    print_table(_CLIENT_HEADS, [_client_row(client) for client in clients if group is None or client.group == group])


def _client_row(client: OnlineClient) -> list[object]:
    places = [f"{broker}={address}" for broker, address in sorted(client.addresses.items())]
    shown = " ".join(places) if is_for_people() else dict(client.addresses)
    return [client.role, client.group, client.client_id, client.language, client.version, shown]


@click.command("bundle", context_settings=HELP)
@cluster_options
@OUTPUT_OPTION
@click.argument("file", required=False, type=WrittenPath(dir_okay=False))
def bundle(file: Path | None) -> None:
    """Write logs, settings, routes, metrics and stacks of all servers into FILE, a .tar.gz, within 30 seconds.

    Secrets are removed. Messages are not in it; names of topics, groups and clients, and addresses are. Servers that do
    not answer are named on stderr and in MISSING.txt, and the status is 1. With access control it takes an
    administrator's account.
    """
    folder = f"sparrowmq-bundle-{time.strftime('%Y%m%d-%H%M%S')}"
    path = file or Path(f"{folder}.tar.gz")

    async def run(admin: Admin) -> Bundle:
        credentials = chosen_credentials()
        secrets = [credentials.secret_key] if credentials is not None else []
        bundle = Bundle(admin.servers, secrets, lambda: int(time.time() * 1000))
        await bundle.gather()
        return bundle

    bundle = ask(run)
    for name, reason in sorted(bundle.missing.items()):
        click.echo(f"sparrowmq bundle: without {name}: {shown(reason)}", err=True)
    try:
        _write(path, folder, bundle.texts)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from None
    count = len(bundle.texts)
    print_done(f"{count} texts are in {path}", file=str(path), texts=count, missing=sorted(bundle.missing))
    sys.exit(1 if bundle.missing else 0)


def _write(path: Path, folder: str, texts: Mapping[str, str]) -> None:
    """Write the file, which only its owner can read. Raises: OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ONLY)
    with os.fdopen(descriptor, "wb") as out, tarfile.open(fileobj=out, mode="w:gz") as archive:
        os.fchmod(descriptor, _OWNER_ONLY)
        for name, text in {"VERSION.txt": f"sparrowmq {VERSION}\n", **texts}.items():
            content = text.encode(errors="replace")
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size, member.mtime, member.mode = len(content), int(time.time()), _OWNER_ONLY
            archive.addfile(member, io.BytesIO(content))
