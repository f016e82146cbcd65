"""The command `sparrowmq pipeline`: data on its way, by Spark on this machine; each ends with one line of JSON."""

from __future__ import annotations

from typing import Final

import click

from sparrowmq.spark.commands import copying_commands as topics
from sparrowmq.spark.commands import query_commands as questions
from sparrowmq.spark.commands import shared
from sparrowmq.spark.commands import table_commands as tables

COMMANDS: Final = (
    tables.table,
    tables.publish,
    tables.backfill,
    tables.compact,
    tables.redrive,
    tables.archive,
    topics.mirror,
    topics.dedup,
    topics.dlq_replay,
    questions.sql,
    questions.audit,
    questions.lag,
    questions.trace,
)


@click.group(context_settings=shared.HELP)
def pipeline() -> None:
    """Ready pipelines of Spark between topics and tables."""


for command in COMMANDS:
    pipeline.add_command(command)
