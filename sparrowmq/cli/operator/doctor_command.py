"""`sparrowmq doctor`: problems of a cluster, the check that found each, and the command that solves it.

exit    0 nothing is wrong, though there may be warnings; 1 something is; 2 the command line is wrong
"""

from __future__ import annotations

import resource
import sys
from typing import Final

import click

from sparrowmq.cli.terminal.asking import EXPECT, HELP, ask, asking
from sparrowmq.cli.terminal.name_completion import GROUP, TOPIC
from sparrowmq.cli.terminal.output import OUTPUT, is_for_people, table
from sparrowmq.client.admin.findings import Finding, Verdict

_SIGNS: Final = {Verdict.OK: "ok", Verdict.WARNING: "warning", Verdict.WRONG: "WRONG"}
_COLOURS: Final = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.WRONG: "red"}
_EFFECT: Final = "effect"  # of what is wrong above
_FEWEST_FILES: Final = 4096


@click.command("doctor", context_settings=HELP)
@asking
@click.option("--topic", type=TOPIC, metavar="NAME", help="Also check this topic.")
@click.option("--group", type=GROUP, metavar="NAME", help="Also check this consumer group.")
@EXPECT
@OUTPUT
@click.option("-v", "--verbose", is_flag=True, help="Also show each check, and what is well.")
def doctor(topic: str | None, group: str | None, expected: tuple[str, ...], verbose: bool) -> None:
    """Look for what is wrong with a cluster, and say how to fix it; programs get what is well, too."""
    findings = [*_here(), *ask(lambda admin: admin.examine(topic, group, expected))]
    if is_for_people():
        _tell(findings, verbose)
    else:
        rows = [(each.verdict.value, each.what, each.check, each.mend, each.cause) for each in findings]
        table(("VERDICT", "WHAT", "CHECK", "MEND", "CAUSE"), rows)
    sys.exit(1 if any(each.verdict is Verdict.WRONG for each in findings) else 0)


def _here() -> list[Finding]:
    files, check = resource.getrlimit(resource.RLIMIT_NOFILE)[1], "ulimit -Hn of this shell"
    if files != resource.RLIM_INFINITY and files < _FEWEST_FILES:
        mend = "ulimit -n 65536, or LimitNOFILE=65536 in a systemd unit, before a broker starts here"
        return [Finding(Verdict.WARNING, f"a broker started here may open {files} files only", check, mend)]
    return [Finding(Verdict.OK, "as many files may be open as a broker needs", check)]


def _tell(findings: list[Finding], verbose: bool) -> None:
    for each in findings:
        if each.verdict is Verdict.OK and not verbose:
            continue
        is_effect = bool(each.cause) and each.verdict is not Verdict.OK
        word = _EFFECT if is_effect else _SIGNS[each.verdict]
        sign = click.style(f"{word:8}", fg=_COLOURS[each.verdict], bold=not is_effect)
        click.echo(f"{sign} {each.what}")
        if verbose:
            click.echo(f"         check: {each.check}")
        if each.mend and (verbose or not is_effect):
            click.echo(f"         fix:   {each.mend}")
    click.echo(_sum(findings))


def _sum(findings: list[Finding]) -> str:
    counts = {
        verdict: sum(each.verdict is verdict and (each.verdict is Verdict.OK or not each.cause) for each in findings)
        for verdict in Verdict
    }
    effects = len(findings) - sum(counts.values())
    more = f", {effects} effects" if effects else ""
    wrong, warnings, well = counts[Verdict.WRONG], counts[Verdict.WARNING], counts[Verdict.OK]
    return f"{wrong} wrong, {warnings} warnings{more}, {well} things are well"
