"""sparrowmq.spark.lakehouse.lake_runner: a lake with Spark, in all formats; and the rules of its end."""

from __future__ import annotations

import json
import urllib.request
from contextlib import ExitStack
from functools import partial

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from py4j.protocol import Py4JNetworkError

from sparrowmq.client import blocking_client as sync
from sparrowmq.errors import ConfigError
from sparrowmq.spark.lakehouse.lake_runner import fill_report, is_done, lake, run_until_end
from sparrowmq.spark.pipelines import table
from sparrowmq.spark.pipelines.running.report import Report
from sparrowmq.testing.background import BackgroundCluster
from tests.interop.servers import OurBroker, topic_fields
from tests.interop.wire import Wire
from tests.spark.lakehouse.lakes import PlainWorkers, place, running, send, settings
from tests.spark.lakehouse.test_rounds import numbers
from tests.spark.pipelines.lake import tables

timeout = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory):
    with BackgroundCluster(tmp_path_factory.mktemp("broker")) as cluster:
        yield cluster.namesrv


def rows_of(kind, path):
    of_errors = path.name.endswith(".errors")
    state = path.with_name(path.name.removesuffix(".errors") + ".state")
    return sorted(tables.rows_of(kind, path, state / "errors" if of_errors else state), key=place)


SECTIONS = {
    "s-raw": {"format": "parquet"},
    "s-json": {"format": "delta", "mode": "json"},
    "s-ice": {"format": "iceberg", "mode": "json"},
    "s-schema": {"format": "delta", "mode": "schema", "schema": "id bigint"},
    "s-.*": {"format": "parquet", "mode": "json"},
}


@pytest.mark.slow
@timeout
def test_topics_become_tables_of_all_formats_and_go_on_after_a_restart(spark, namesrv, tmp_path):
    topics = ("s-raw", "s-json", "s-ice", "s-schema", "s-more")
    bodies = [*numbers(40), b"bad"]
    send(namesrv, dict.fromkeys(topics, bodies))
    (tmp_path / "s-more").write_text("in the way")
    found = settings(namesrv, tmp_path, SECTIONS, metrics="127.0.0.1:0")
    said: list[str] = []
    report = lake(found, once=True, spark=spark, say=said.append)
    assert (report.read, report.written, report.errors) == (4 * 41, 41 + 3 * 40, 3)
    assert "1 tables are not up to date; s-more: " in str(report.error)
    (tmp_path / "s-more").unlink()
    send(namesrv, {"s-new": [b'{"x":1}'], "s-json": [b'{"id":99,"extra":true}']})
    report = lake(found, once=True, spark=spark, say=said.append)
    assert report.error is None and report.read == 41 + 1 + 1
    assert report.lost == 0 and sum(report.offsets["s-ice"]["broker-0"].values()) == 41
    kinds = {
        "s-raw": "parquet",
        "s-json": "delta",
        "s-ice": "iceberg",
        "s-schema": "delta",
        "s-more": "parquet",
    }
    for topic, kind in kinds.items():
        rows = rows_of(kind, tmp_path / topic)
        errors = [] if topic == "s-raw" else rows_of(kind, tmp_path / f"{topic}.errors")
        assert [row["body"] for row in errors] == ([] if topic == "s-raw" else [b"bad"])
        assert len({place(row) for row in rows + errors}) == len(rows + errors) == 41 + (topic == "s-json")
    assert [row["id"] for row in rows_of("delta", tmp_path / "s-json") if row["extra"]] == [99]


@pytest.mark.slow
@timeout
@pytest.mark.parametrize("mode", [pytest.param("raw", marks=pytest.mark.nightly), "json"])
def test_the_rows_are_those_of_the_pipeline_whose_table_can_be_taken_over(spark, namesrv, tmp_path, mode):
    topic = f"same-{mode}"
    send(namesrv, {topic: [*numbers(20), b'{"id":20,"list":[1,2],"real":0.5}', b"bad"]})
    by_pipeline = tmp_path / "pipeline" / topic
    by_pipeline.parent.mkdir()

    def pipeline():
        return table(
            topic, by_pipeline, name_server=namesrv, format="delta", mode=mode, once=True, spark=spark,
            say=lambda _: None,
        )  # fmt: skip

    def lake_in(folder):
        return lake(
            settings(namesrv, tmp_path / folder, {topic: {"mode": mode, "format": "delta"}}),
            once=True, spark=spark, say=lambda _: None,
        )  # fmt: skip

    pipeline()
    lake_in("lake")
    assert rows_of("delta", by_pipeline) == rows_of("delta", tmp_path / "lake" / topic)
    send(namesrv, {topic: [b'{"id":21}']})
    assert lake_in("pipeline").written == 1
    assert len(rows_of("delta", by_pipeline)) == 23 - (mode == "json")
    for number, run in ((22, pipeline), (23, lambda: lake_in("pipeline")), (24, pipeline)):
        send(namesrv, {topic: [b'{"id":%d}' % number]})
        assert run().written == 1
    assert len(rows_of("delta", by_pipeline)) == 26 - (mode == "json")


@timeout
@pytest.mark.slow
def test_a_schema_that_is_none_ends_the_start(spark, namesrv, tmp_path):
    found = settings(namesrv, tmp_path, {"x": {"mode": "schema", "schema": "id biggest"}})
    with pytest.raises(ConfigError, match="is no schema"):
        lake(found, once=True, spark=spark, say=lambda _: None)


def test_a_run_with_an_end_ends_when_all_is_done_and_says_what_is_not(namesrv, tmp_path):
    send(namesrv, {"end-a": numbers(3), "end-b": numbers(3)})
    (tmp_path / "end-b").write_text("")
    found = settings(namesrv, tmp_path, {"end-.*": {}}, every="1s")
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    with running(found, monotonic=lambda: now[0], say=lambda _: None) as rounds:
        run_until_end(rounds, lambda: False, lambda: False, once=True, sleep=sleep)
        report = Report()
        fill_report(report, rounds, once=True)
        assert rounds.tables["end-a"].is_complete and rounds.tables["end-b"].failures_in_a_row == 5
    assert report.written == 3 and str(report.error).startswith("1 tables are not up to date; end-b: ")
    assert report.restarts == 5


def test_a_run_without_brokers_ends_with_the_reason(tmp_path):
    with running(settings("127.0.0.1:9", tmp_path, {".*": {}}), say=lambda _: None) as rounds:
        rounds.network._retry_policy = type(rounds.network._retry_policy)(0)
        run_until_end(rounds, lambda: False, lambda: False, once=True)
        report = Report()
        fill_report(report, rounds, once=True)
    assert is_done(rounds) and "127.0.0.1:9" in str(report.error)


def test_a_run_that_finds_no_topic_does_not_end_well(namesrv, tmp_path):
    with running(settings(namesrv, tmp_path, {"absent-.*": {}}), say=lambda _: None) as rounds:
        run_until_end(rounds, lambda: False, lambda: False, once=True)
        report = Report()
        fill_report(report, rounds, once=True)
    assert "no topic of the cluster fits a section of the file" in str(report.error)


def test_a_run_does_not_end_well_while_all_brokers_are_away(tmp_path):
    with BackgroundCluster(tmp_path / "brokers", brokers=0) as cluster:
        found = settings(cluster.namesrv, tmp_path, {".*": {}})
        with running(found, say=lambda _: None) as rounds:
            run_until_end(rounds, lambda: False, lambda: False, once=True)
            report = Report()
            fill_report(report, rounds, once=True)
    assert "no name server knows a broker now" in str(report.error)


@pytest.mark.slow
def test_a_run_names_the_brokers_whose_messages_it_lacks(namesrv, tmp_path):
    """One topic is at two brokers, and one at the broker that goes away, also as an earlier run knows it."""
    at = partial(OurBroker, namesrv, tmp_path / "store", {"brokerName": "away", "brokerClusterName": "c"})
    now, back = [0.0], ExitStack()

    def sleep(seconds):
        now[0] += seconds

    def start(seconds):
        sleep(seconds)
        while returning:
            back.enter_context(returning.pop())

    def run(sleep=sleep, tables="away-.*"):
        found = settings(namesrv, tmp_path, {tables: {}})
        with running(found, monotonic=lambda: now[0], say=lambda _: None) as rounds:
            run_until_end(rounds, lambda: False, lambda: False, once=True, sleep=sleep)
            report = Report()
            fill_report(report, rounds, once=True)
            assert report.error is None
            return report.written, report.away

    with at() as broker:
        with Wire(broker.port) as wire:
            assert all(wire.ask(17, topic_fields(topic)).code == 0 for topic in ("away-both", "away-one"))
        with sync.connect(namesrv) as mq:
            mq.admin.create_topic("away-both", queues=1, cluster="DefaultCluster")
        send(namesrv, {"away-both": numbers(6), "away-one": numbers(2)})
        assert run() == (8, [])
        send(namesrv, {"away-one": numbers(2)})
    send(namesrv, {"away-both": numbers(3)})
    assert run() == (3, ["away"])
    assert run(tables="away-one") == (0, ["away"]), "no name server lists this topic now"
    returning = [at(broker.port)]
    with back:
        assert run(start) == (2, []), "it is waited for a little"


def test_a_run_ends_at_a_signal_after_its_round(namesrv, tmp_path):
    send(namesrv, {"signal-a": numbers(50)})
    workers = PlainWorkers()
    found = settings(namesrv, tmp_path, {"signal-.*": {}}, rows_per_round=10)
    with running(found, workers, say=lambda _: None) as rounds:
        run_until_end(rounds, lambda: bool(workers.done), lambda: False, once=False)
        table = rounds.tables["signal-a"]
        assert 0 < table.figures.rows < 50 and table.figures.batches == 1


def test_an_idle_lake_ends_at_once_when_java_has_ended_and_says_so(namesrv, tmp_path):
    send(namesrv, {"java-a": numbers(3)})
    now, asked = [0.0], iter([False, False])

    def sleep(seconds):
        now[0] += seconds

    found = settings(namesrv, tmp_path, {"java-.*": {}}, every="1s")
    with running(found, monotonic=lambda: now[0], say=lambda _: None) as rounds:
        why = run_until_end(rounds, lambda: now[0] > 60, lambda: next(asked, True), once=False, sleep=sleep)
    assert "the Java process of Spark has ended" in str(why)


@pytest.mark.parametrize("signalled", [False, True])
def test_a_signal_that_ended_java_in_the_middle_of_a_round_is_no_failure(namesrv, tmp_path, signalled):
    send(namesrv, {"gone-a": numbers(3)})
    over, stopped = [False], [False]

    def die(_part):
        over[0] = True
        raise Py4JNetworkError("refused")

    def sleep(_seconds):
        stopped[0] = signalled

    found = settings(namesrv, tmp_path, {"gone-.*": {}})
    with running(found, PlainWorkers(die), say=lambda _: None) as rounds:
        why = run_until_end(rounds, lambda: stopped[0], lambda: over[0], once=False, sleep=sleep)
    assert (why is None) == signalled


def test_the_pages_are_at_the_address_of_the_metrics(namesrv, tmp_path):
    from sparrowmq.spark.exposed import exposed
    from sparrowmq.spark.lakehouse.lake_status import declare, pages

    with running(settings(namesrv, tmp_path, {"absent": {}}), say=lambda _: None) as rounds:
        rounds.run_round()
        with exposed("127.0.0.1:0", lambda figures: declare(figures, rounds), pages(rounds)) as address:
            found = json.load(urllib.request.urlopen(f"http://{address}/status", timeout=10))
            assert found == {"ready": True, "error": "", "tables": []}
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
                assert b"sparrowmq_lake_tables" in answer.read()
