"""sparrowmq.spark.failures: the cause of a failure in Spark's text."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from sparrowmq import errors
from sparrowmq.spark.failures import PERMANENT, Failure, failure_from, known_failure
from sparrowmq.spark.source import partition_ranges, row_reader

TRACE = """[STREAM_FAILED] Query [id = 5] terminated with exception: Job aborted
py4j.Py4JException: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "a.py", line 3, in write
ConnectionResetError: [Errno 104] reset by peer

During handling of the above exception, another exception occurred:

  File "b.py", line 5, in take
{last}

\tat org.apache.spark.sql.execution.Streaming(Streaming.scala:1)
"""


@pytest.mark.parametrize(
    ("last", "kind", "why", "is_permanent"),
    [
        ("sparrowmq.errors.ConfigError: x=1 is wrong", "ConfigError", "x=1 is wrong", True),
        ("sparrowmq.spark.source.partition_ranges.RowsLost: 3 are gone", "RowsLost", "3 are gone", True),
        ("sparrowmq.errors.AccessDenied: not yours", "AccessDenied", "not yours", True),
        ("sparrowmq.errors.BrokerUnreachable: b is away", "BrokerUnreachable", "b is away", False),
        ("sparrowmq.spark.source.pulls.NotReady: wait", "NotReady", "wait", False),
        ("AssertionError", "AssertionError", "AssertionError", True),
        ("TypeError: a bug", "TypeError", "TypeError: a bug", True),
        (
            "pyarrow.lib.ArrowNotImplementedError: no",
            "ArrowNotImplementedError",
            "ArrowNotImplementedError: no",
            True,
        ),
        ("OSError: [Errno 28] full", "OSError", "OSError: [Errno 28] full", False),
        (
            "deltalake.exceptions.CommitFailedError: conflict",
            "CommitFailedError",
            "CommitFailedError: conflict",
            False,
        ),
        (
            "OSError: Generic LocalFileSystem error\n \x1b[31m↳\x1b[0m Unable\n \x1b[31m↳\x1b[0m No (os error 20)",
            "OSError",
            "OSError: Generic LocalFileSystem error: Unable: No (os error 20)",
            False,
        ),
        (
            "pydantic_core.ValidationError: 1 error for Table\nlocation\n  Field required",
            "ValidationError",
            "ValidationError: 1 error for Table location Field required",
            False,
        ),
        (
            "pyspark.errors.exceptions.captured.AnalysisException: [X] no column",
            "AnalysisException",
            "AnalysisException: [X] no column",
            True,
        ),
    ],
)
def test_the_cause_is_the_end_of_the_last_traceback(last, kind, why, is_permanent):
    found = failure_from(TRACE.format(last=last))
    assert (found, found.is_permanent) == (Failure(kind, why), is_permanent)


def test_a_failure_of_java_alone_has_its_first_line_and_may_pass():
    found = failure_from("Job aborted: ExecutorLostFailure (executor 1 exited)\n\tat org.apache.spark.X(Y.scala:1)\n")
    assert found == Failure("", "Job aborted: ExecutorLostFailure (executor 1 exited)")
    assert not found.is_permanent
    assert known_failure("Job aborted") is None


def test_a_python_process_that_starts_too_late_is_a_sentence_with_the_remedy():
    found = failure_from("Python worker failed to connect back.\n=== Streaming Query ===\nIdentifier: [id = 1]\n")
    assert found.name == "SlowWorker" and not found.is_permanent
    assert found.reason.endswith("start fewer streams at once, or use a machine with more processors")


def test_each_permanent_error_exists():
    known = {name for module in (errors, row_reader, partition_ranges) for name in vars(module)}
    assert known >= PERMANENT


OF_JAVA = "Caused by: java.io.IOException: No space left on device\n\tat java.base"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            f"Task failed while writing rows to file:/data/flights.state/staged/ebb. SQLSTATE: 58030\n{OF_JAVA}",
            "/data/flights.state/staged/ebb",
        ),
        (
            f"[STREAM_FAILED] Query ended\n{OF_JAVA}",
            "the table, its progress, or the temporary files of Spark",
        ),
        (
            TRACE.format(last="OSError: [Errno 122] Disk quota exceeded: '/data/flights.state/1'"),
            "/data/flights.state/1",
        ),
        (
            "OperationalError: (sqlite3.OperationalError) database or disk is full\n[SQL: UPDATE iceberg_tables]",
            "the table, its progress, or the temporary files of Spark",
        ),
    ],
)
def test_a_full_disk_is_a_sentence_and_may_have_room_at_the_next_start(text, what):
    found = failure_from(text)
    assert found.reason == f"no room on the disk for {what}; free some"
    assert not found.is_permanent


@pytest.mark.parametrize(
    ("text", "kind", "is_permanent"),
    [
        ("terminated with exception: /s/1.tmp (Read-only file system) SQLSTATE: XXKST", "ReadOnlyDisk", True),
        (TRACE.format(last="OSError: [Errno 30] Read-only file system: '/s/1.tmp'"), "ReadOnlyDisk", True),
        ("OSError: Unable to open file /s/1.tmp: Permission denied (os error 13)", "NotPermitted", True),
        ("java.io.FileNotFoundException: /s/1.tmp (Too many open files)", "NoDescriptor", False),
    ],
)
def test_a_fault_of_the_system_is_a_sentence_with_the_path_and_the_remedy(text, kind, is_permanent):
    found = failure_from(text)
    assert (found.name, found.is_permanent) == (kind, is_permanent)
    assert " /s/1.tmp" in found.reason
    assert "start again" in found.reason
