"""sparrowmq.spark.lakehouse.lake_status: what people and programs see of a lake."""

from __future__ import annotations

import asyncio
import json

import pytest

pytest.importorskip("pyspark")

from sparrowmq.metrics.figures import Figures
from sparrowmq.spark.commands.lake_commands import _lines
from sparrowmq.spark.lakehouse.lake_runner import fill_report
from sparrowmq.spark.lakehouse.lake_status import declare, html, pages, status, unready_reason
from sparrowmq.spark.pipelines.running.report import Report
from sparrowmq.testing.background import BackgroundCluster
from tests.spark.lakehouse.lakes import running, send, settings
from tests.spark.lakehouse.test_rounds import has_all, numbers, until


@pytest.fixture
def namesrv(tmp_path_factory):
    with BackgroundCluster(tmp_path_factory.mktemp("broker")) as cluster:
        yield cluster.namesrv


@pytest.fixture
def lake(namesrv, tmp_path):
    """A lake with a table that is kept, with one reject, and one that fails; and its clock."""
    send(namesrv, {"good": [*numbers(3), b"-"], "bad": numbers(1)})
    (tmp_path / "bad").write_text("")
    now = [100.0]
    found = settings(namesrv, tmp_path, {"good": {"mode": "json"}, "bad": {}})
    with running(found, monotonic=lambda: now[0], say=lambda _: None) as rounds:
        until(rounds, lambda: has_all(rounds, "good")() and rounds.tables["bad"].has_failed)
        yield rounds, now


def test_the_status_has_a_row_for_each_table(lake):
    rounds, now = lake
    now[0] += 7
    found = status(rounds)
    bad, good = found["tables"]
    assert found["ready"] is True
    assert (good["state"], good["rows"], good["rejects"], good["lag"], good["freshness_s"]) == (
        "kept",
        3,
        1,
        0,
        0,
    )
    assert (bad["state"], bad["rows"], bad["lag"], bad["freshness_s"]) == ("failing", 0, 1, 7)
    assert bad["error"] and bad["failures"] >= 1


def test_files_that_were_gone_at_the_begin_are_shown_also_while_all_goes_on(lake):
    rounds, _ = lake
    rounds.tables["good"].missing_files = "readers of it fail"
    _, good = status(rounds)["tables"]
    assert (good["state"], good["error"]) == ("kept", "readers of it fail")
    assert "readers of it fail" in html(status(rounds))


def test_what_was_lost_of_a_topic_that_was_made_again_is_not_known(lake):
    rounds, _ = lake
    rounds.tables["good"].figures.recreated = 1
    found = status(rounds)
    assert (found["tables"][1]["lost"], found["tables"][1]["recreated"]) == (None, 1)
    assert "<td>not known</td><td>1</td>" in html(found)
    assert _lines(found)[2].endswith("its topic was made again, so places come twice")
    report = Report()
    fill_report(report, rounds, once=False)
    assert json.loads(report.line())["lost"] is None


def test_the_page_shows_failures_first_and_escapes_what_others_wrote(lake):
    rounds, _ = lake
    rounds.tables["bad"].error = "<script>alert(1)</script>"
    page = html(status(rounds))
    assert page.index(">bad<") < page.index(">good<")
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert "2 tables, 1 failing" in page and page.count("<meter") == 2


def answered(ask):
    async def answer():
        return await ask({})

    return asyncio.run(answer())


def test_the_pages_answer(lake):
    rounds, _ = lake
    found = {path: answered(ask) for path, ask in pages(rounds).items()}
    assert {path: answer.status for path, answer in found.items()} == {
        "/": 200,
        "/status": 200,
        "/readyz": 200,
    }
    assert json.loads(found["/status"].body)["tables"][1]["topic"] == "good"


def test_a_lake_that_has_not_asked_the_brokers_for_long_is_not_ready(lake):
    rounds, now = lake
    assert unready_reason(rounds) == ""
    now[0] += 121
    assert unready_reason(rounds).startswith("the brokers were last asked 121 s ago")
    assert answered(pages(rounds)["/readyz"]).status == 503
    rounds.checked_s = None
    assert unready_reason(rounds) == "the brokers were not asked yet"


def test_readiness_names_each_table_that_fails_and_a_lake_whose_tables_all_fail_is_not_ready(lake):
    rounds, _ = lake
    bad, good = (rounds.tables[name] for name in ("bad", "good"))
    bad.error = "no\nroom"
    assert answered(pages(rounds)["/readyz"]).body.decode() == "ok\nbad is failing: no room\n"
    good.is_deleted = True
    answer = answered(pages(rounds)["/readyz"])
    assert (answer.status, answer.body.decode()) == (503, "all tables fail\nbad is failing: no room\n")
    assert status(rounds)["ready"] is False
    bad.is_deleted = True
    assert unready_reason(rounds) == "", "there is nothing to keep"


def test_figures_are_by_topic(lake):
    rounds, now = lake
    now[0] += 5
    figures = Figures()
    declare(figures, rounds)
    assert figures.values("sparrowmq_lake_rows_total") == {("bad",): 0, ("good",): 3}
    assert figures.values("sparrowmq_lake_rejects_total")[("good",)] == 1
    assert figures.values("sparrowmq_lake_failing") == {("bad",): 1, ("good",): 0}
    assert figures.values("sparrowmq_lake_waiting") == {("bad",): 0, ("good",): 0}
    assert figures.values("sparrowmq_lake_freshness_seconds") == {("bad",): 5, ("good",): 0}
    assert figures.values("sparrowmq_lake_lag") == {("bad",): 1, ("good",): 0}
    assert figures.values("sparrowmq_lake_files") == {}
    assert figures.value("sparrowmq_lake_tables") == 2 and figures.value("sparrowmq_lake_ready") == 1
