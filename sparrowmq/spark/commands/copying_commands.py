"""Topics to topics: `sparrowmq pipeline dlq-replay`, `mirror` and `dedup`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sparrowmq.spark.commands import shared

_STATE = click.option(
    "--state", metavar="PATH", type=click.Path(path_type=Path), required=True,
    help="A folder for what the next run has to know; one for each pipeline.",
)  # fmt: skip
_TO_CLUSTER = click.option("--to-cluster", metavar="NAME", help="Where topics are made, if it has several.")
_TO_OPTION = click.option(
    "--to-option", "to_options", multiple=True, metavar="KEY=VALUE", callback=shared.pairs,
    help="An option of the sink (docs/use/spark.md), as accessKey=...",
)  # fmt: skip


@click.command()
@click.argument("group")
@shared.servers()
@click.option(
    "--journal", metavar="FILE", type=click.Path(path_type=Path), required=True,
    help="What became of each message, a line of JSON; what it names is not sent again.",
)  # fmt: skip
@click.option("--tags", default="*", show_default=True, help="Only these: a || b.")
@click.option("--where", metavar="SQL92", help="Only what this is true of: \"region = 'eu' AND tries > 3\".")
@click.option("--since", metavar="TIME", help="Only dead since then; ISO 8601, or milliseconds.")
@click.option("--until", metavar="TIME", help="Only dead before then.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Maximum messages per second.")
@shared.of_source
@shared.dry_run
@shared.ends_well
def dlq_replay(**given: Any) -> Any:
    """Send the dead letters of GROUP to it again; no other group gets them.

    Started again with its journal it goes on where it was.
    """
    return shared.pipelines().dlq_replay(**given)


@click.command()
@click.argument("topic")
@shared.servers()
@click.option("--to", metavar="ADDRESSES", required=True, help="Name servers of the other cluster.")
@click.option("--to-topic", metavar="NAME", help="Another name there.")
@_TO_CLUSTER
@_STATE
@click.option(
    "--chained", is_flag=True, help="Copy also what a mirror has brought; never in both directions."
)
@shared.once
@shared.every
@shared.of_source
@_TO_OPTION
@shared.metrics
@shared.dry_run
@shared.ends_well
def mirror(**given: Any) -> Any:
    """Keep TOPIC, or several as a,b, as copies in another cluster; order, ids and born times are kept.

    Either cluster may be Apache's. Started again it goes on where it was.
    """
    return shared.pipelines().mirror(**given)


@click.command()
@click.argument("topic")
@click.argument("to_topic")
@shared.servers()
@click.option(
    "--by", default="msgId", show_default=True, help="An SQL expression: what repeats have the same."
)
@click.option("--window", default="7d", show_default=True, help="For how long a key is remembered.")
@click.option("--to", metavar="ADDRESSES", help="Name servers of another cluster.")
@_TO_CLUSTER
@_STATE
@shared.once
@shared.every
@shared.of_source
@_TO_OPTION
@shared.metrics
@shared.dry_run
@shared.ends_well
def dedup(**given: Any) -> Any:
    """Copy TOPIC to TO_TOPIC without its repeats. Started again it goes on where it was."""
    return shared.pipelines().dedup(**given)
