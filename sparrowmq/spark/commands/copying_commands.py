"""Topics to topics: `sparrowmq pipeline dlq-replay`, `mirror` and `dedup`."""

from __future__ import annotations

from typing import Any

import click

from sparrowmq.settings.number_type import ABOVE_ZERO
from sparrowmq.settings.path_type import PATH
from sparrowmq.spark.commands import shared

_STATE = click.option(
    "--state", metavar="PATH", type=PATH, required=True,
    help="Folder of the state for the next run; one for each pipeline.",
)  # fmt: skip
_TO_CLUSTER = click.option(
    "--to-cluster", metavar="NAME", help="Cluster in which topics are made, if there are several."
)


@click.command()
@click.argument("group")
@shared.servers()
@click.option(
    "--journal", metavar="FILE", type=PATH, required=True,
    help="File with the outcome of each message, a line of JSON; these messages are not sent again.",
)  # fmt: skip
@click.option("--tags", default="*", show_default=True, help="Only messages with these tags: a || b.")
@click.option("--where", metavar="SQL92", help="Only messages that match: \"region = 'eu' AND tries > 3\".")
@click.option("--since", metavar="TIME", help="Only dead letters since then; ISO 8601, or milliseconds.")
@click.option("--until", metavar="TIME", help="Only dead letters before then.")
@click.option("--rate", type=ABOVE_ZERO, help="Maximum messages per second.")
@shared.of_source
@shared.dry_run
@shared.ends_well
def dlq_replay(**given: Any) -> Any:
    """Send the dead letters of GROUP to it again; no other group gets them.

    A second start with the same journal continues.
    """
    return shared.pipelines().dlq_replay(**given)


@click.command()
@click.argument("topic")
@shared.servers()
@click.option("--to", metavar="ADDRESSES", required=True, help="Name servers of the other cluster.")
@click.option("--to-topic", metavar="NAME", help="Another name there; for several topics as east-{topic}.")
@_TO_CLUSTER
@_STATE
@click.option("--chained", is_flag=True, help="Copy also copies of other mirrors; never use it in both directions.")
@click.option(
    "--groups",
    metavar="NAMES",
    help="Carry the offsets of these consumer groups, too: a,b, or a regular expression.",
)
@shared.once
@shared.every
@shared.of_source
@shared.of_target
@shared.metrics
@shared.dry_run
@shared.ends_well
def mirror(**given: Any) -> Any:
    """Keep TOPIC as copies in another cluster; order, ids and born times are kept.

    TOPIC is one, a regular expression, or several of these as a,b-.*. Either cluster may be Apache's. A second start
    continues.
    """
    return shared.pipelines().mirror(**given)


@click.command()
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
@shared.of_source
@shared.of_target
@shared.metrics
@shared.dry_run
@shared.ends_well
def dedup(**given: Any) -> Any:
    """Copy TOPIC to TO_TOPIC without repeats. A second start continues.

    TOPIC is one, a regular expression, or several of these as a,b-.*. TO_TOPIC is one for all of them, or as
    {topic}-once.
    """
    return shared.pipelines().dedup(**given)
