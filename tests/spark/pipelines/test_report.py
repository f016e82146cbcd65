"""sparrowmq.spark.pipelines.report: the last line of a pipeline."""

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")

from sparrowmq.spark.pipelines.report import Report, watch


def test_the_report_is_one_line_of_json():
    report = Report(5, 4, 1, 2, 1.23456, {"T": {"b": {"0": 5}}})
    assert "\n" not in report.line()
    assert json.loads(report.line()) == {
        "read": 5,
        "written": 4,
        "errors": 1,
        "batches": 2,
        "seconds": 1.235,
        "offsets": {"T": {"b": {"0": 5}}},
    }


class Query:
    """A query that is interrupted while it is waited for, and then stopped."""

    lastProgress = None

    def __init__(self):
        self.is_stopped = False

    def awaitTermination(self, timeout):
        raise KeyboardInterrupt

    def stop(self):
        self.is_stopped = True


def test_control_c_ends_a_query_in_order():
    query: Any = Query()
    report = Report()
    watch(query, report)
    assert query.is_stopped
    assert (report.offsets, report.read) == ({}, 0)
