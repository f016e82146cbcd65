"""The command `sparrowmq pipeline`: data on its way, by Spark on this machine; each ends with one line of JSON."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from sparrowmq.errors import SparrowError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def pipeline() -> None:
    """Ready pipelines: what else would be a program around the source and the sink for Spark."""


@pipeline.command()
@click.argument("topic")
@click.option(
    "-n", "--namesrv", "name_server", metavar="ADDRESSES", envvar="NAMESRV_ADDR", required=True,
    help="Name servers: host:port;host:port; or NAMESRV_ADDR.",
)  # fmt: skip
@click.option(
    "--to", metavar="PATH", type=click.Path(path_type=Path), required=True, help="The table's folder."
)
@click.option(
    "--format", type=click.Choice(["parquet", "delta", "iceberg"]), default="parquet", show_default=True
)
@click.option(
    "--mode", type=click.Choice(["raw", "json", "schema"]), default="raw", show_default=True,
    help="Messages as they are; a column for each field of JSON bodies; or the columns of --schema.",
)  # fmt: skip
@click.option("--schema", metavar="DDL", help="For mode schema: `id bigint, name string`.")
@click.option("--once", is_flag=True, help="End when all that is there now is in the table.")
@click.option("--every", default="10 seconds", show_default=True, help="How often to look for new messages.")
@click.option(
    "-o",
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of the source (docs/spark.md).",
)
@click.option("--dry-run", is_flag=True, help="Say what would become of the first messages; write nothing.")
def table(options: tuple[str, ...], dry_run: bool, once: bool, every: str, **given: Any) -> None:
    """Keep TOPIC as a Parquet, Delta or Iceberg table.

    Bodies that do not become rows go to a table beside it, PATH.errors, with their place and the reason. Started again
    it goes on where it was; each message becomes one row, or one error, whatever failed in between.
    """
    given["options"] = dict(_pair(option) for option in options)
    try:
        pipelines = _pipelines()
        if dry_run:
            click.echo(pipelines.preview(**given))
        else:
            click.echo(pipelines.table(**given, once=once, every=every).line())
    except (SparrowError, OSError) as error:
        sys.exit(f"sparrowmq pipeline: {error}")


def _pair(option: str) -> tuple[str, str]:
    key, equals, value = option.partition("=")
    if not equals or not key:
        raise click.UsageError(f"{option!r} is no option of the source; write KEY=VALUE, as in -o tags=paid")
    return key, value


def _pipelines() -> Any:
    """Spark is loaded by whoever needs it. Raises: ConfigError; exits where it is not installed."""
    try:
        from sparrowmq.spark import pipelines
    except ImportError as error:
        sys.exit(f"sparrowmq pipeline: {error.name} is missing; pip install 'sparrowmq[server,lake]'")
    return pipelines
