"""The command `sparrowmq lake`: many topics as tables, by one program and one file of settings."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

import click

from sparrowmq.errors import SparrowError
from sparrowmq.settings.argument_types import PATH
from sparrowmq.spark.commands import shared
from sparrowmq.spark.commands.shared import Outcome

_FILE = click.argument("settings", type=PATH, metavar="FILE")
_ANSWER_LIMIT_S: Final = 10


@click.group(context_settings=shared.HELP)
def lake() -> None:
    """Keep many topics as tables, by one file of settings (docs/use/lake.md)."""


@lake.command()
@_FILE
@shared.once
@shared.prints_report
def run(settings: Path, once: bool) -> Any:
    """Keep the topics of FILE as tables, until a signal comes.

    A failed table is tried again, and the others go on. Each message becomes a row, or a reject in TABLE.errors.
    """
    shared.pipelines()
    from sparrowmq.spark.lakehouse.lake_runner import lake as keep
    from sparrowmq.spark.lakehouse.lake_settings import read_settings

    report = keep(read_settings(settings), once=once)
    if report.error is not None:
        click.echo(f"sparrowmq lake: {report.error}", err=True)
        return Outcome(report, 1)
    return report


@lake.command()
@_FILE
def check(settings: Path) -> None:
    """Say which topics FILE makes tables of, and what is wrong with it. Writes nothing, and starts no Spark."""
    shared.pipelines()
    from sparrowmq.spark.lakehouse.lake_runner import check_settings
    from sparrowmq.spark.lakehouse.lake_settings import read_settings

    try:
        lines = check_settings(read_settings(settings))
    except SparrowError as error:
        sys.exit(f"sparrowmq lake: {error}")
    for line in lines:
        click.echo(line)


@lake.command()
@_FILE
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
def status(settings: Path, as_json: bool) -> None:
    """Show the tables of the lake that runs with FILE; ends with 1 if a table fails, or if no lake answers."""
    shared.pipelines()
    from sparrowmq.spark.lakehouse.lake_settings import read_settings

    try:
        address = read_settings(settings).metrics
    except SparrowError as error:
        sys.exit(f"sparrowmq lake: {error}")
    if address is None:
        sys.exit(f'sparrowmq lake: {settings} has no address to ask; write metrics = "127.0.0.1:5560", and start again')
    try:
        with urlopen(f"http://{address}/status", timeout=_ANSWER_LIMIT_S) as answer:
            answer_body = json.load(answer)
    except (URLError, OSError, ValueError) as error:
        sys.exit(f"sparrowmq lake: no lake answers at {address}: {error}; start it by `sparrowmq lake run {settings}`")
    click.echo(json.dumps(answer_body) if as_json else "\n".join(_lines(answer_body)))
    if answer_body["error"] or any(table["error"] for table in answer_body["tables"]):
        sys.exit(1)


def _lines(status: dict[str, Any]) -> list[str]:
    tables = sorted(status["tables"], key=lambda table: (not table["error"], table["topic"]))
    width = max([5, *(len(table["topic"]) for table in tables)])
    lines = [f"{'TOPIC':{width}}  {'STATE':8}  {'ROWS':>12}  {'REJECTS':>9}  {'LAG':>10}  {'FRESHNESS':>9}  ERROR"]
    lines += [
        f"{table['topic']:{width}}  {table['state']:8}  {table['rows']:>12,}  {table['rejects']:>9,}  "
        f"{table['lag']:>10,}  {table['freshness_s']:>7,.1f} s  "
        f"{table['error'] or ('its topic was made again, so places come twice' if table['recreated'] else '')}".rstrip()
        for table in tables
    ]
    return [*([f"error: {status['error']}"] if status["error"] else []), *lines]
