"""Questions to topics: `sparrowmq pipeline sql`, `audit`, `lag` and `trace`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from sparrowmq.settings.number_type import ABOVE_ZERO, Whole
from sparrowmq.settings.path_type import PATH
from sparrowmq.spark.commands import shared
from sparrowmq.spark.commands.ending import Ended
from sparrowmq.spark.commands.rows import FORMS, as_table


@click.command()
@click.argument("query")
@shared.servers(required=False)
@click.option(
    "--store", metavar="PATH", type=PATH,
    help="Read the log files of a store, or of a copy of one, instead of asking brokers.",
)  # fmt: skip
@click.option("--since", metavar="TIME", help="Only messages stored then or later; ISO 8601, or milliseconds.")
@click.option("--at", metavar="TIME", help="As of then: only messages stored before.")
@click.option("--form", type=click.Choice(list(FORMS)), default="table", show_default=True, help="Format of the rows.")
@click.option("--to", metavar="PATH", help="Write the rows as Parquet files into this folder instead.")
@shared.of_source
@shared.dry_run
@shared.ends_well
def sql(name_server: str | None, form: str, to: str | None, dry_run: bool, **given: Any) -> Any:
    """Ask topics in SQL: sparrowmq pipeline sql 'select tags, count(*) from orders group by tags'

    Each table in QUERY is a topic; put names with - or % in `backquotes`. Bodies are text, so that
    get_json_object(body, '$.id') is a field of JSON. docs/use/spark.md lists the columns.
    """
    answer = shared.pipelines().sql(name_server=None if given["store"] else name_server, **given)
    _tell_what_is_read(answer, form)
    if dry_run:
        for field in answer.rows.schema:
            click.echo(f"{field.name}: {field.dataType.simpleString()}")
        return answer.report
    if to is not None:
        answer.save(to)
    else:
        FORMS[form](answer.rows.columns, answer.each())
    return answer.report


@click.command()
@click.argument("left")
@click.argument("right", required=False)
@shared.servers(required=False)
@click.option("--by", default="msgId", show_default=True, help="SQL expression that is the same for equal rows.")
@click.option("--right-by", metavar="SQL", help="The expression for the right side, if it differs there.")
@click.option("--topic", metavar="NAME", help="Topic of a store, if the other side is no topic.")
@click.option("--to", metavar="PATH", type=PATH, help="Folder for the findings, as Parquet files.")
@shared.of_source
@shared.dry_run
@shared.ends_well
def audit(**given: Any) -> Ended:
    """Find lost and doubled messages and gaps between LEFT and RIGHT, or in LEFT alone.

    A side is topic:NAME, store:PATH, table:PATH, parquet:PATH, csv:PATH or json:PATH. Exits with 1 if it finds
    something.
    """
    found = shared.pipelines().audit(**given)
    return Ended(found, 1 if found.errors else 0)


@click.command()
@click.argument("groups", nargs=-1)
@shared.servers()
@click.option(
    "--every", "every_s", type=ABOVE_ZERO, default=10.0, show_default=True, help="Seconds between two rounds."
)
@click.option("--rounds", type=Whole(1), default=1, show_default=True, help="Number of rounds.")
@click.option("--forever", is_flag=True, help="Run until Control-C.")
@click.option("--above", type=Whole(0), help="Exit with 1 if a lag is above this at the end.")
@click.option("--to", metavar="FILE", help="Add each line to this file, as JSON.")
@shared.of_source
@shared.dry_run
@shared.ends_well
def lag(forever: bool, dry_run: bool, **given: Any) -> Ended:
    """Show the lag of GROUPS, or of all groups."""
    if dry_run:
        given |= {"rounds": 1, "to": None}
    rounds = None if forever and not dry_run else given.pop("rounds")
    report = shared.pipelines().lag(**{**given, "rounds": rounds}, show=_show_lags)
    return Ended(report, 1 if report.errors else 0)


def _show_lags(lags: list[Any]) -> None:
    rows = [asdict(each) for each in lags]
    names = ["group", "topic", "behind", "behind_s", "per_second"]
    heads = ["group", "topic", "lag", "lag_seconds", "per_second"]
    as_table(heads, ([row[name] for name in names] for row in rows))


@click.command()
@shared.servers()
@click.option("--topic", metavar="NAME", default="RMQ_SYS_TRACE_TOPIC", show_default=True, help="The trace topic.")
@click.option("--since", metavar="TIME", help="Only reports stored then or later; ISO 8601, or milliseconds.")
@click.option("--until", metavar="TIME", help="Only reports stored before.")
@click.option(
    "--form",
    type=click.Choice(list(FORMS)),
    default="table",
    show_default=True,
    help="Format of the lines.",
)
@click.option("--to", metavar="PATH", help="Write the single reports as Parquet files into this folder, too.")
@shared.of_source
@shared.dry_run
@shared.ends_well
def trace(form: str, dry_run: bool, **given: Any) -> Any:
    """Show latencies from message traces: of sends, of deliveries, and of handlers, by topic and group."""
    if dry_run:
        given["to"] = None
    answer = shared.pipelines().trace(**given)
    _tell_what_is_read(answer, form)
    if not dry_run:
        FORMS[form](answer.rows.columns, answer.each())
    return answer.report


def _tell_what_is_read(answer: Any, form: str) -> None:
    """To people; spark-submit puts what a program says on stderr into stdout, where other programs want rows alone."""
    from sparrowmq.spark.register import is_submitted

    if form == "table" or not is_submitted():
        for described in answer.views.values():
            click.echo(f"reads {described}", err=True)
