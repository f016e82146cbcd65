"""sparrowmq.spark.pipelines.running.report: the last line of a pipeline."""

import json
from typing import Any

import pytest

pytest.importorskip("pyspark")


from sparrowmq.loop.slices import at_once
from sparrowmq.metrics.figures import Figures
from sparrowmq.metrics.metrics_page import page
from sparrowmq.metrics.series_limit import series_of
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.pipelines.running.report import Report

SOURCE = {"nameServer": "h:1", "topic": "T"}


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
        "lost": None,
        "bad": None,
    }


def offset(end):
    return json.dumps({"v": 1, "topics": {"T": {"b": {"0": end}}}})


class Ended:
    """A query of which Spark tells these batches: number, start, end."""

    def __init__(self, *batches, latest=0):
        self.recentProgress = [
            {
                "batchId": number,
                "sources": [
                    {
                        "startOffset": None if start is None else offset(start),
                        "endOffset": offset(end),
                        "latestOffset": offset(max(latest, end)),
                    }
                ],
            }
            for number, start, end in batches
        ]


def seen(options, rows, query: Any):
    report = Report()
    report.count_losses(parse(SourceOptions, SOURCE | options))
    for number, (count, bad) in enumerate(rows):
        report.add_batch(number, count, bad)
    for _ in range(2):  # of a batch that was seen before nothing is counted again
        report.note_progress(query)
    return report


@pytest.mark.parametrize(
    ("options", "lost", "bad"),
    [
        ({"failOnDataLoss": "false"}, 7, 2),
        ({"failOnDataLoss": "false", "badRecords": "dlq", "dlqTopic": "D"}, 7, 2),
        ({"badRecords": "dlq", "dlqTopic": "D"}, 0, 9),
        ({"tags": "paid"}, None, None),
        ({"filter.sql": "a = 1"}, None, None),
    ],
)
def test_offsets_without_a_message_are_lost_unless_a_filter_passed_over_them(options, lost, bad):
    query = Ended((0, None, 10), (1, 10, 20), (2, 20, 25))
    report = seen(options, [(4, 1), (6, 0), (2, 1)], query)
    assert (report.read, report.lost, report.bad) == (12, lost, bad)
    assert json.loads(report.line())["lost"] == lost


def test_a_batch_that_the_table_had_already_has_lost_nothing():
    assert seen({}, [(10, 0)], Ended((0, 0, 10), (1, 10, 20))).lost == 0


def test_what_was_lost_is_not_known_after_a_topic_was_made_again():
    query = Ended((0, 0, 10), (1, 10, 4), (2, 4, 9))
    for number, progress in enumerate(query.recentProgress):
        for name in ("startOffset", "endOffset"):
            known = 7 if number == 0 or (number == 1 and name == "startOffset") else 8
            offsets = {**json.loads(progress["sources"][0][name]), "incarnations": {"T": {"a": known}}}
            progress["sources"][0][name] = json.dumps(offsets)
    report = seen({"failOnDataLoss": "false"}, [(8, 0), (4, 0), (5, 0)], query)
    assert json.loads(report.line())["lost"] is None


def test_prometheus_gets_all_of_it_by_kafkas_names():
    report = seen({"failOnDataLoss": "false"}, [(3, 1)], Ended((0, 0, 5), latest=12))
    figures = Figures()
    report.declare_metrics(figures, "table orders")
    said = at_once(page(series_of(figures, {}, 200))).body.decode()
    for line in (
        'maxOffsetsBehindLatest{query="table orders"} 7.0',
        'sparrowmq_spark_rows_lost_total{query="table orders"} 2.0',
        'sparrowmq_spark_rows_bad_total{query="table orders"} 1.0',
        'sparrowmq_pipeline_read_total{query="table orders"} 3.0',
    ):
        assert line in said.splitlines()


def test_a_batch_that_comes_again_after_a_failure_is_counted_once():
    report = Report()
    report.count_losses(parse(SourceOptions, SOURCE))
    report.add_batch(0, 10, 1)
    report.add_batch(1, 20, 2)
    report.add_batch(1, 20, 2)
    assert (report.read, report.bad) == (30, 3)
