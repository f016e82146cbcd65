"""The command `sparrowmq pipeline`: data on its way, by Spark on this machine; each ends with one line of JSON."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import date
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from sparrowmq.errors import ConfigError
from sparrowmq.settings.argument_types import ABOVE_ZERO, PATH, Whole
from sparrowmq.spark.commands import shared
from sparrowmq.spark.commands.shared import Outcome

if TYPE_CHECKING:
    from pyspark.sql import Row


_MAX_WIDTH: Final = 60
_ROWS_MEASURED: Final = 100  # rows that decide how wide the columns are
_FORMAT = click.option(
    "--format", type=click.Choice(["parquet", "delta", "iceberg"]), default="parquet", show_default=True
)
_BROKER = click.option("--broker", metavar="NAME", help="Name of the broker of the store; the files do not contain it.")
_STATE = click.option(
    "--state", metavar="PATH", type=PATH, required=True,
    help="Folder of the state for the next run; one for each pipeline."
)  # fmt: skip
_TO_CLUSTER = click.option(
    "--to-cluster", metavar="NAME", help="Cluster in which topics are made, if there are several."
)


def as_table(names: list[str], rows: Iterator[Iterable[Any]]) -> None:
    first = [_cells(row) for row in islice(rows, _ROWS_MEASURED)]
    widths = [min(_MAX_WIDTH, max(map(len, column))) for column in zip(names, *first, strict=True)]
    for cells in (names, *first):
        _print_line(cells, widths)
    for row in rows:
        _print_line(_cells(row), widths)


def as_csv(names: list[str], rows: Iterator[Row]) -> None:
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(names)
    out.writerows(["" if value is None else _text(value) for value in row] for row in rows)


def as_json(names: list[str], rows: Iterator[Row]) -> None:
    for row in rows:
        click.echo(json.dumps(_json_value(row.asDict(recursive=True)), default=str, ensure_ascii=False))


def _print_line(cells: Iterable[str], widths: list[int]) -> None:
    click.echo("  ".join(map(str.ljust, cells, widths)).rstrip())


def _cells(row: Iterable[Any]) -> list[str]:
    texts = ("-" if value is None else _text(value) for value in row)
    return [text if len(text) <= _MAX_WIDTH else f"{text[: _MAX_WIDTH - 3]}..." for text in texts]


def _text(value: Any) -> str:
    plain = _json_value(value)
    return json.dumps(plain, default=str, ensure_ascii=False) if isinstance(plain, dict | list) else str(plain)


def _json_value(value: Any) -> Any:
    match value:
        case dict():
            return {str(name): _json_value(item) for name, item in value.items()}
        case list():
            return [_json_value(item) for item in value]
        case bytes() | bytearray():
            return value.decode(errors="replace")
        case date():
            return value.isoformat()
    return value


FORMS: Final[Mapping[str, Callable[[list[str], Iterator[Row]], None]]] = {
    "table": as_table,
    "csv": as_csv,
    "json": as_json,
}


@click.group(context_settings=shared.HELP)
def pipeline() -> None:
    """Ready pipelines of Spark between topics and tables."""


@pipeline.command()
@click.argument("topic")
@shared.servers()
@click.option("--to", metavar="PATH", required=True, help="The table's folder, or its address: s3://bucket/orders.")
@_FORMAT
@click.option(
    "--mode", type=click.Choice(["raw", "json", "schema", "avro", "protobuf"]), default="raw", show_default=True,
    help="Messages as they are; a column for each field of JSON, Avro or Protobuf bodies; or the columns of --schema."
)  # fmt: skip
@click.option("--schema", metavar="DDL", help="For mode schema: `id bigint, name string`.")
@click.option("--registry", metavar="URL", help="Schema registry of the bodies, for modes avro and protobuf.")
@click.option("--schema-file", metavar="FILE", type=PATH, help="Instead of a registry: a .avsc, .proto or .desc file.")
@click.option("--message", metavar="NAME", help="Message of the bodies, if the .proto or .desc file has several.")
@click.option(
    "--partition", metavar="FIELDS", default="day", show_default=True,
    help="How the table is divided: fields and transforms, as `country, bucket(16, id)`, or none."
)  # fmt: skip
@click.option(
    "--type-changes", type=click.Choice(["widen", "any"]), default="widen", show_default=True,
    help="For mode json: numbers become wider numbers only, or also text."
)  # fmt: skip
@shared.catalog_table_options
@shared.once
@shared.every
@shared.source_options
@shared.metrics
@shared.dry_run
@shared.prints_report
def table(dry_run: bool, once: bool, every: str, metrics: str | None, insecure: bool, **arguments: Any) -> Any:
    """Keep TOPIC as a Parquet, Delta or Iceberg table.

    Bodies that do not become rows go to a table beside it, PATH.errors, with their place and the reason. A second start
    continues. Each message becomes one row, or one error, also after failures.
    """
    pipelines = shared.pipelines()
    arguments["catalog"] = shared.catalog_from(arguments)
    if dry_run:
        click.echo(pipelines.preview(**arguments))
        return pipelines.Report(read=None)
    return pipelines.table(**arguments, once=once, every=every, metrics=metrics, insecure=insecure)


@pipeline.command()
@click.argument("table")
@click.argument("topic")
@shared.servers()
@click.option("--where", metavar="SQL", help="Only rows that match: \"_day = '2026-01-31'\".")
@click.option("--to-cluster", metavar="NAME", help="Cluster in which the topic is made, if there are several.")
@shared.sink_options
@shared.table_options
@shared.dry_run
@shared.prints_report
def publish(**arguments: Any) -> Any:
    """Send the rows of TABLE, made by the pipeline `table`, to TOPIC, with their ids and in their order, each once."""
    return shared.pipelines().publish(**arguments)


@pipeline.command()
@click.argument("table")
@click.option("--store", metavar="PATH", type=PATH, required=True, help="A store, or a copy of one.")
@_BROKER
@shared.source_options
@shared.table_options
@shared.dry_run
@shared.prints_report
def backfill(**arguments: Any) -> Any:
    """Add older messages to TABLE, which the pipeline `table` has begun, from the files of a stored log."""
    pipelines = shared.pipelines()
    from sparrowmq.spark.pipelines.tables.table_settings import load_settings, locate_table

    settings = load_settings(locate_table(arguments["table"], arguments["state"], arguments["catalog_options"]))
    if settings is not None and "," in settings.topic:
        raise ConfigError(
            f"{arguments['table']} is of several topics, {settings.topic}; stored logs are read topic by topic"
        )
    return pipelines.backfill(**arguments)


@pipeline.command()
@click.argument("table")
@click.option("--keep-days", type=Whole(1), help="Remove days that are older than this.")
@click.option("--all-days", is_flag=True, help="Also today's files.")
@click.option("--file-size", default="256MiB", show_default=True, help="About the size of new files: 64MiB to 512MiB.")
@shared.table_options
@shared.dry_run
@shared.prints_report
def compact(**arguments: Any) -> Any:
    """Merge the small files of TABLE, which the pipeline `table` made; `read` and `written` count files."""
    return shared.pipelines().compact(**arguments)


@pipeline.command()
@click.argument("table", type=PATH)
@shared.dry_run
@shared.prints_report
def redrive(**arguments: Any) -> Any:
    """Try the errors of TABLE again, after its columns have become wider; those that fit become rows.

    Errors that do not fit stay, with the reason of now. In the report, `read` are the errors that were tried, `written`
    those that became rows, and `errors` those that stay.
    """
    return shared.pipelines().redrive(**arguments)


@pipeline.command()
@click.argument("topic")
@shared.servers(required=False)
@click.option("--to", metavar="PATH", required=True, help="The archive's folder, or its address.")
@click.option("--store", metavar="PATH", type=PATH, help="Take the full files of a stored log instead.")
@_BROKER
@_FORMAT
@click.option(
    "--once/--forever", default=True, show_default=True, help="End when all messages that are there are archived."
)
@click.option("--every", default="1 minute", show_default=True, help="Time between looks for new messages.")
@shared.source_options
@shared.metrics
@shared.catalog_table_options
@shared.dry_run
@shared.prints_report
def archive(name_server: str | None, **arguments: Any) -> Any:
    """Add the new messages of TOPIC to an archive; sparrowmq.spark.pipelines.archived reads both, archive and topic."""
    servers = None if arguments["store"] else name_server
    pipelines, arguments["catalog"] = shared.pipelines(), shared.catalog_from(arguments)
    return pipelines.archive(name_server=servers, **arguments)


@pipeline.command()
@click.argument("topic")
@shared.servers()
@click.option("--to", metavar="ADDRESSES", required=True, help="Name servers of the other cluster.")
@click.option("--to-topic", metavar="NAME", help="Another name there; for several topics as east-{topic}.")
@_TO_CLUSTER
@_STATE
@click.option("--chained", is_flag=True, help="Copy also copies of other mirrors; never use it in both directions.")
@click.option(
    "--groups", metavar="NAMES", help="Carry the offsets of these consumer groups, too: a,b, or a regular expression."
)
@shared.once
@shared.every
@shared.source_options
@shared.target_options
@shared.metrics
@shared.dry_run
@shared.prints_report
def mirror(**arguments: Any) -> Any:
    """Keep TOPIC as copies in another cluster; order, ids and born times are kept.

    TOPIC is one, a regular expression, or several of these as a,b-.*. Either cluster may be Apache's. A second start
    continues.
    """
    return shared.pipelines().mirror(**arguments)


@pipeline.command()
@click.argument("topic")
@click.argument("to_topic")
@shared.servers()
@click.option("--by", default="msgId", show_default=True, help="SQL expression that is the same for repeats.")
@click.option("--window", default="7d", show_default=True, help="Time for which a key is remembered.")
@click.option("--to", metavar="ADDRESSES", help="Name servers of another cluster.")
@_TO_CLUSTER
@_STATE
@shared.once
@shared.every
@shared.source_options
@shared.target_options
@shared.metrics
@shared.dry_run
@shared.prints_report
def dedup(**arguments: Any) -> Any:
    """Copy TOPIC to TO_TOPIC without repeats. A second start continues.

    TOPIC is one, a regular expression, or several of these as a,b-.*. TO_TOPIC is one for all of them, or as
    {topic}-once.
    """
    return shared.pipelines().dedup(**arguments)


@pipeline.command()
@click.argument("group")
@shared.servers()
@click.option(
    "--journal", metavar="FILE", type=PATH, required=True,
    help="File with the outcome of each message, a line of JSON; these messages are not sent again."
)  # fmt: skip
@click.option("--tags", default="*", show_default=True, help="Only messages with these tags: a || b.")
@click.option("--where", metavar="SQL92", help="Only messages that match: \"region = 'eu' AND tries > 3\".")
@click.option("--since", metavar="TIME", help="Only dead letters since then; ISO 8601, or milliseconds.")
@click.option("--until", metavar="TIME", help="Only dead letters before then.")
@click.option("--rate", type=ABOVE_ZERO, help="Maximum messages per second.")
@shared.source_options
@shared.dry_run
@shared.prints_report
def dlq_replay(**arguments: Any) -> Any:
    """Send the dead letters of GROUP to it alone again. A second start with the same journal continues."""
    return shared.pipelines().dlq_replay(**arguments)


@pipeline.command()
@click.argument("query")
@shared.servers(required=False)
@click.option(
    "--store", metavar="PATH", type=PATH,
    help="Read the log files of a store, or of a copy of one, instead of asking brokers."
)  # fmt: skip
@click.option("--since", metavar="TIME", help="Only messages stored then or later; ISO 8601, or milliseconds.")
@click.option("--at", metavar="TIME", help="As of then: only messages stored before.")
@click.option("--form", type=click.Choice(list(FORMS)), default="table", show_default=True, help="Format of the rows.")
@click.option("--to", metavar="PATH", help="Write the rows as Parquet files into this folder instead.")
@shared.source_options
@shared.dry_run
@shared.prints_report
def sql(name_server: str | None, form: str, to: str | None, dry_run: bool, **arguments: Any) -> Any:
    """Ask topics in SQL: sparrowmq pipeline sql 'select tags, count(*) from orders group by tags'

    Each table in QUERY is a topic; put names with - or % in `backquotes`. Bodies are text, so that
    get_json_object(body, '$.id') is a field of JSON. docs/use/spark.md lists the columns.
    """
    answer = shared.pipelines().sql(name_server=None if arguments["store"] else name_server, **arguments)
    _show_views(answer, form)
    if dry_run:
        for field in answer.rows.schema:
            click.echo(f"{field.name}: {field.dataType.simpleString()}")
        return answer.report
    if to is not None:
        answer.save(to)
    else:
        FORMS[form](answer.rows.columns, answer.each())
    return answer.report


@pipeline.command()
@click.argument("left")
@click.argument("right", required=False)
@shared.servers(required=False)
@click.option("--by", default="msgId", show_default=True, help="SQL expression that is the same for equal rows.")
@click.option("--right-by", metavar="SQL", help="The expression for the right side, if it differs there.")
@click.option("--topic", metavar="NAME", help="Topic of a store, if the other side is no topic.")
@click.option("--to", metavar="PATH", type=PATH, help="Folder for the findings, as Parquet files.")
@shared.source_options
@shared.dry_run
@shared.prints_report
def audit(**arguments: Any) -> Outcome:
    """Find lost and doubled messages and gaps between LEFT and RIGHT, or in LEFT alone.

    A side is topic:NAME, store:PATH, table:PATH, parquet:PATH, csv:PATH or json:PATH. Exits with 1 if it finds
    something.
    """
    findings = shared.pipelines().audit(**arguments)
    return Outcome(findings, 1 if findings.errors else 0)


@pipeline.command()
@click.argument("groups", nargs=-1)
@shared.servers()
@click.option(
    "--every", "every_s", type=ABOVE_ZERO, default=10.0, show_default=True, help="Seconds between two rounds."
)
@click.option("--rounds", type=Whole(1), default=1, show_default=True, help="Number of rounds.")
@click.option("--forever", is_flag=True, help="Run until Control-C.")
@click.option("--above", type=Whole(0), help="Exit with 1 if a lag is above this at the end.")
@click.option("--to", metavar="FILE", help="Add each line to this file, as JSON.")
@shared.source_options
@shared.dry_run
@shared.prints_report
def lag(forever: bool, dry_run: bool, **arguments: Any) -> Outcome:
    """Show the lag of GROUPS, or of all groups."""
    if dry_run:
        arguments |= {"rounds": 1, "to": None}
    rounds = None if forever and not dry_run else arguments.pop("rounds")
    report = shared.pipelines().lag(**{**arguments, "rounds": rounds}, show=_show_lags)
    return Outcome(report, 1 if report.errors else 0)


def _show_lags(lags: list[Any]) -> None:
    rows = [asdict(lag_line) for lag_line in lags]
    names = ["group", "topic", "behind", "behind_s", "per_second"]
    heads = ["group", "topic", "lag", "lag_seconds", "per_second"]
    as_table(heads, ([row[name] for name in names] for row in rows))


@pipeline.command()
@shared.servers()
@click.option("--topic", metavar="NAME", default="RMQ_SYS_TRACE_TOPIC", show_default=True, help="The trace topic.")
@click.option("--since", metavar="TIME", help="Only reports stored then or later; ISO 8601, or milliseconds.")
@click.option("--until", metavar="TIME", help="Only reports stored before.")
@click.option("--form", type=click.Choice(list(FORMS)), default="table", show_default=True, help="Format of the lines.")
@click.option("--to", metavar="PATH", help="Write the single reports as Parquet files into this folder, too.")
@shared.source_options
@shared.dry_run
@shared.prints_report
def trace(form: str, dry_run: bool, **arguments: Any) -> Any:
    """Show latencies from message traces: of sends, of deliveries, and of handlers, by topic and group."""
    if dry_run:
        arguments["to"] = None
    answer = shared.pipelines().trace(**arguments)
    _show_views(answer, form)
    if not dry_run:
        FORMS[form](answer.rows.columns, answer.each())
    return answer.report


def _show_views(answer: Any, form: str) -> None:
    """To people; spark-submit puts what a program says on stderr into stdout, where other programs want rows alone."""
    from sparrowmq.spark.register import is_submitted

    if form == "table" or not is_submitted():
        for described in answer.views.values():
            click.echo(f"reads {described}", err=True)


if __name__ == "__main__":  # the program that `sparrowmq spark submit` gives to spark-submit
    pipeline(prog_name="sparrowmq pipeline")
