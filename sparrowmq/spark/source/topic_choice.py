"""Which topics and tags a query means, whether brokers are asked or files are read."""

from __future__ import annotations

import re

import pyarrow as pa

from sparrowmq.protocol.names import group_of, is_system_topic
from sparrowmq.protocol.subscription import ALL, parse_tags


def is_meant(pattern: re.Pattern[str], topic: str) -> bool:
    """Whether the option subscribePattern means a topic: system, retry and dead-letter topics have to be named."""
    return bool(pattern.fullmatch(topic)) and not is_system_topic(topic) and group_of(topic) is None


def tags_of(expression: str) -> pa.Array | None:
    """The tags that the option subExpression names; None for all."""
    return None if expression == ALL else pa.array(sorted(parse_tags(expression)), pa.string())
