"""sparrowmq.spark.lakehouse.lake_runner: what a file would do, without doing it."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.lakehouse.lake_runner import OWN_CATALOGS, check_settings
from sparrowmq.spark.pipelines.tables.table_settings import TableSettings, save_settings, state_folder
from sparrowmq.testing.background import BackgroundCluster
from tests.spark.lakehouse.lakes import send, settings


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory):
    with BackgroundCluster(tmp_path_factory.mktemp("broker")) as cluster:
        send(cluster.namesrv, {topic: [b"{}"] for topic in ("orders-a", "orders-b", "tmp-1")})
        yield cluster.namesrv


def test_each_topic_has_its_line_and_nothing_is_written(namesrv, tmp_path):
    tables = {"orders-.*": {"mode": "json", "format": "delta"}, "tmp-.*": {"skip": True}, "later": {}}
    lines = check_settings(settings(namesrv, tmp_path, tables))
    assert lines[0] == f"orders-a: begins delta at {tmp_path}/orders-a, mode json, partition day"
    assert '[tables."later"] fits no topic yet' in lines
    assert lines[-1] == "2 of 3 topics of users become tables; nothing was written"
    assert list(tmp_path.iterdir()) == []


def test_iceberg_tables_with_a_catalog_each_are_said(namesrv, tmp_path):
    assert OWN_CATALOGS in check_settings(settings(namesrv, tmp_path, {"orders-.*": {"format": "iceberg"}}))
    assert OWN_CATALOGS not in check_settings(settings(namesrv, tmp_path, {"orders-.*": {"format": "delta"}}))


def test_the_topics_that_a_broker_makes_for_itself_become_no_tables(namesrv, tmp_path):
    *tables, last = check_settings(settings(namesrv, tmp_path, {".*": {}}))
    assert [line.partition(":")[0] for line in tables] == ["orders-a", "orders-b", "tmp-1"]
    assert last.startswith("3 of 3 topics of users become tables")


def test_a_table_of_other_settings_is_wrong(namesrv, tmp_path):
    root = tmp_path / "orders-a"
    save_settings(state_folder(root), TableSettings("orders-a", "delta", "raw", None))
    assert f"orders-a: goes on with delta at {root}, mode raw, partition day" in check_settings(
        settings(namesrv, tmp_path, {"orders-.*": {"format": "delta"}})
    )
    with pytest.raises(ConfigError, match=r"orders-a: the table at .* was begun with format 'delta'"):
        check_settings(settings(namesrv, tmp_path, {"orders-.*": {}}))


def on_s3(namesrv, tmp_path, **more):
    section = {"to": "s3://bucket/x/{topic}", "state": f"{tmp_path}/{{topic}}", "format": "iceberg", **more}
    return settings(namesrv, tmp_path, {"orders-a": section})


def test_a_store_that_is_away_is_said_in_a_line(namesrv, tmp_path, s3, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"^orders-a: s3://bucket/x/orders-a is away: OSError"):
        check_settings(on_s3(namesrv, tmp_path))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"type": "rest", "uri": "http://127.0.0.1:1"}, "the catalog prod is away: ConnectionError"),
        (
            {"type": "sql", "uri": "postgresql+psycopg://lake:s3cret@127.0.0.1:1/c"},
            "the catalog prod is away: Oper",
        ),
        ({"type": "sql", "uri": "sqlite:////dev/null/c.db"}, "the catalog prod is away: OperationalError"),
    ],
    ids=["rest", "postgresql", "sqlite"],
)
def test_a_catalog_that_is_away_is_named_and_not_its_table(namesrv, tmp_path, s3, options, says):
    settings = on_s3(namesrv, tmp_path, catalog="prod", table="shop.{topic}", catalog_options=options)
    with pytest.raises(ConfigError, match=f"^orders-a: {says}") as raised:
        check_settings(settings)
    assert "s3cret" not in str(raised.value)


def test_a_bucket_that_is_not_there_and_a_table_on_s3_are_said(namesrv, tmp_path, s3):
    for bucket, says in (
        ("bucket", "begins delta at s3://bucket/x/orders-a"),
        ("absent", "there is no bucket absent"),
    ):
        section = {"to": f"s3://{bucket}/x/{{topic}}", "state": f"{tmp_path}/{{topic}}", "format": "delta"}
        try:
            said = check_settings(settings(namesrv, tmp_path, {"orders-a": section}))[0]
        except ConfigError as error:
            said = str(error)
        assert says in said
    assert list(tmp_path.iterdir()) == []
