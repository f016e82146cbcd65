"""sparrowmq.spark.source.stream_source: what Spark 4.2 brought, or the same."""

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from sparrowmq.spark.source import stream_source as limits

WITHOUT = """
import sys
import pyspark.sql.datasource
sys.modules["pyspark.sql.streaming.datasource"] = None
from sparrowmq.spark.source.stream_source import *
from sparrowmq.spark import source_and_sink as source
assert not HAS_LIMITS
assert (ReadMaxRows(5).max_rows, ReadMaxBytes(6).max_bytes) == (5, 6)
assert isinstance(ReadAllAvailable(), ReadLimit)
given = {"nameServer": "a:1", "topic": "T"}
found = source.RocketMQSource(given)
print(type(found.streamReader(found.schema())).__name__)
"""


def test_limits_are_told_apart():
    assert limits.ReadMaxRows(5).max_rows == 5
    assert not isinstance(limits.ReadMaxRows(5), limits.ReadMaxBytes)


def test_a_spark_without_limits_gets_a_reader_that_needs_none():
    command = [sys.executable, "-c", WITHOUT]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60).stdout == "UnlimitedStreamReader\n"
