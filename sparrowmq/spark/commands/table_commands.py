"""Topics and tables: `sparrowmq pipeline table`, `publish`, `backfill`, `redrive`, `compact` and `archive`."""

from __future__ import annotations

from typing import Any

import click

from sparrowmq.errors import ConfigError
from sparrowmq.settings.number_type import Whole
from sparrowmq.settings.path_type import PATH
from sparrowmq.spark.commands import shared

_FORMAT = click.option(
    "--format", type=click.Choice(["parquet", "delta", "iceberg"]), default="parquet", show_default=True
)
_BROKER = click.option("--broker", metavar="NAME", help="Name of the broker of the store; the files do not contain it.")


@click.command()
@click.argument("topic")
@shared.servers()
@click.option("--to", metavar="PATH", required=True, help="The table's folder, or its address: s3://bucket/orders.")
@_FORMAT
@click.option(
    "--mode", type=click.Choice(["raw", "json", "schema", "avro", "protobuf"]), default="raw", show_default=True,
    help="Messages as they are; a column for each field of JSON, Avro or Protobuf bodies; or the columns of --schema.",
)  # fmt: skip
@click.option("--schema", metavar="DDL", help="For mode schema: `id bigint, name string`.")
@click.option("--registry", metavar="URL", help="Schema registry of the bodies, for modes avro and protobuf.")
@click.option("--schema-file", metavar="FILE", type=PATH, help="Instead of a registry: a .avsc, .proto or .desc file.")
@click.option("--message", metavar="NAME", help="Message of the bodies, if the .proto or .desc file has several.")
@click.option(
    "--partition", metavar="FIELDS", default="day", show_default=True,
    help="How the table is divided: fields and transforms, as `country, bucket(16, id)`, or none.",
)  # fmt: skip
@click.option(
    "--type-changes", type=click.Choice(["widen", "any"]), default="widen", show_default=True,
    help="For mode json: numbers become wider numbers only, or also text.",
)  # fmt: skip
@shared.in_catalog
@shared.once
@shared.every
@shared.of_source
@shared.metrics
@shared.dry_run
@shared.ends_well
def table(dry_run: bool, once: bool, every: str, metrics: str | None, insecure: bool, **given: Any) -> Any:
    """Keep TOPIC as a Parquet, Delta or Iceberg table.

    Bodies that do not become rows go to a table beside it, PATH.errors, with their place and the reason. A second start
    continues. Each message becomes one row, or one error, also after failures.
    """
    pipelines = shared.pipelines()
    given["catalog"] = shared.catalog_of(given)
    if dry_run:
        click.echo(pipelines.preview(**given))
        return pipelines.Report(read=None)
    return pipelines.table(**given, once=once, every=every, metrics=metrics, insecure=insecure)


@click.command()
@click.argument("table")
@click.argument("topic")
@shared.servers()
@click.option("--where", metavar="SQL", help="Only rows that match: \"_day = '2026-01-31'\".")
@click.option("--to-cluster", metavar="NAME", help="Cluster in which the topic is made, if there are several.")
@shared.of_sink
@shared.of_table
@shared.dry_run
@shared.ends_well
def publish(**given: Any) -> Any:
    """Send the rows of TABLE, which the pipeline `table` made, to TOPIC, with their ids and in their order.

    Messages that are there already are not sent again.
    """
    return shared.pipelines().publish(**given)


@click.command()
@click.argument("table")
@click.option("--store", metavar="PATH", type=PATH, required=True, help="A store, or a copy of one.")
@_BROKER
@shared.of_source
@shared.of_table
@shared.dry_run
@shared.ends_well
def backfill(**given: Any) -> Any:
    """Add older messages to TABLE, which the pipeline `table` has begun, from the files of a stored log."""
    pipelines = shared.pipelines()
    from sparrowmq.spark.pipelines.tables.table_settings import begun, place_of

    settled = begun(place_of(given["table"], given["state"], given["catalog_options"]))
    if settled is not None and "," in settled.topic:
        raise ConfigError(
            f"{given['table']} is of several topics, {settled.topic}; stored logs are read topic by topic"
        )
    return pipelines.backfill(**given)


@click.command()
@click.argument("topic")
@shared.servers(required=False)
@click.option("--to", metavar="PATH", required=True, help="The archive's folder, or its address.")
@click.option("--store", metavar="PATH", type=PATH, help="Take the full files of a stored log instead.")
@_BROKER
@_FORMAT
@click.option(
    "--once/--forever",
    default=True,
    show_default=True,
    help="End when all messages that are there are archived.",
)
@click.option("--every", default="1 minute", show_default=True, help="Time between looks for new messages.")
@shared.of_source
@shared.metrics
@shared.in_catalog
@shared.dry_run
@shared.ends_well
def archive(name_server: str | None, **given: Any) -> Any:
    """Add the new messages of TOPIC to an archive; sparrowmq.spark.pipelines.archived reads both, archive and topic."""
    servers = None if given["store"] else name_server
    pipelines, given["catalog"] = shared.pipelines(), shared.catalog_of(given)
    return pipelines.archive(name_server=servers, **given)


@click.command()
@click.argument("table", type=PATH)
@shared.dry_run
@shared.ends_well
def redrive(**given: Any) -> Any:
    """Try the errors of TABLE again, after its columns have become wider; those that fit become rows.

    Errors that do not fit stay, with the reason of now. In the report, `read` are the errors that were tried, `written`
    those that became rows, and `errors` those that stay.
    """
    return shared.pipelines().redrive(**given)


@click.command()
@click.argument("table")
@click.option("--keep-days", type=Whole(1), help="Remove days that are older than this.")
@click.option("--all-days", is_flag=True, help="Also today's files.")
@click.option("--file-size", default="256MiB", show_default=True, help="About the size of new files: 64MiB to 512MiB.")
@shared.of_table
@shared.dry_run
@shared.ends_well
def compact(**given: Any) -> Any:
    """Merge the small files of TABLE, which the pipeline `table` made; `read` and `written` count files."""
    return shared.pipelines().compact(**given)
