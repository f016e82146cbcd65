"""sparrowmq.spark.pipelines.running.span: a run with an end names the brokers whose messages it lacks."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark")

from sparrowmq.spark.pipelines import table
from sparrowmq.spark.pipelines.running.span import current_ends, unread_brokers, unread_notice
from sparrowmq.spark.source.partition_ranges import Offsets, to_json
from tests.spark import test_outage

land = test_outage.land


def plan(checkpoint, batch, ends, **changed):
    """Let a stream have planned a batch up to these ends, but to others at some brokers."""
    offsets = Offsets({queue: changed.get(queue.broker_name, end) for queue, end in ends.items()}, ends.incarnations)
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(to_json(offsets))}\n")


@pytest.mark.slow
def test_a_broker_is_named_only_if_the_run_lacks_its_messages(land, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    land.send("a", 4)
    land.send("b", 4)
    begin = current_ends(land.options, str(checkpoint))
    assert not begin.away and sum(begin.present.values()) == 8
    assert unread_brokers(land.options, str(checkpoint), begin) == [], "of a stream without a batch nothing is known"
    plan(checkpoint, 0, begin.present, b=1)
    assert unread_brokers(land.options, str(checkpoint), begin) == ["b"], (
        "it was away when its messages were to be read"
    )
    plan(checkpoint, 1, begin.present)
    assert unread_brokers(land.options, str(checkpoint), begin) == []
    land.brokers["b"].kill()
    begin = current_ends(land.options, str(checkpoint))
    assert begin.away == {"b"}
    assert unread_brokers(land.options, str(checkpoint), begin) == ["b"]
    land.start_broker("b")
    test_outage.forget()
    assert unread_brokers(land.options, str(checkpoint), begin) == [], "it came back, and has nothing else"
    land.send("b", 2)
    assert unread_brokers(land.options, str(checkpoint), begin) == ["b"]
    other = {part: known + 1 for part, known in begin.present.incarnations.items()}
    assert other.keys() == {(test_outage.TOPIC, "a")}
    plan(checkpoint, 2, Offsets(begin.present, other), a=0)
    assert "a" not in unread_brokers(land.options, str(checkpoint), begin), "the offsets are those of another topic"


def test_the_sentence_has_the_remedy():
    assert unread_notice(["b", "a"]).startswith(
        "this run lacks messages of a, b, which did not answer; run it again when"
    )


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_table_is_filled_from_the_other_brokers_and_the_report_names_the_one_that_is_away(land, spark, tmp_path):
    def run():
        report = table(
            test_outage.TOPIC, tmp_path / "t", name_server=land.options["nameServer"], once=True, spark=spark,
            say=said.append, options={"retries": "1", "retryIntervalMs": "100"},
        )  # fmt: skip
        return report.written, json.loads(report.line()).get("away")

    said: list[str] = []
    for name in land.sent:
        land.send(name, 5)
    assert run() == (10, None)
    land.send("a", 3)
    land.send("b", 4)
    land.brokers["b"].kill()
    assert run() == (3, ["b"])
    assert "this run lacks messages of b" in said[-1]
    land.start_broker("b")
    assert run() == (4, None)
