"""sparrowmq.spark.pipelines.audit: where the sides of an audit lie."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from sparrowmq.errors import ConfigError
from sparrowmq.spark.pipelines import audit
from sparrowmq.spark.pipelines.audit import AuditInput

pytestmark = pytest.mark.timeout(240)


def test_a_side_is_a_kind_and_a_place():
    assert AuditInput.parse("csv:a:b") == AuditInput("csv", "a:b")
    assert str(AuditInput.parse("topic:orders")) == "topic:orders"
    assert [AuditInput.parse(f"{kind}:x").has_places for kind in ("topic", "store", "table", "json")] == [
        *(True, True, True),
        False,
    ]


@pytest.mark.parametrize(
    ("left", "given", "complaint"),
    [
        ("csv:LEDGER", {"by": "concat(id, uuid())"}, "a different result each time, so it cannot be the key of csv"),
        ("orders", {}, "'orders' is no side; write topic:..."),
        ("csv:LEDGER", {"by": "nothing"}, "its columns are id"),
        ("store:/tmp", {}, "store:/tmp needs `topic`"),
        ("table:/nowhere", {}, "has no rows"),
        ("csv:/nowhere", {}, "csv:/nowhere cannot be read: .PATH_NOT_FOUND"),
    ],
)
def test_what_cannot_be_read_is_told(spark, tmp_path, left, given, complaint):
    (tmp_path / "ledger").write_text("id\n1\n")
    with pytest.raises(ConfigError, match=complaint):
        audit(left.replace("LEDGER", str(tmp_path / "ledger")), spark=spark, **given)


def test_a_file_is_looked_for_where_the_program_is_and_not_where_spark_was_started(spark, tmp_path, monkeypatch):
    (tmp_path / "ledger").write_text("id\n1\n2\n")
    monkeypatch.chdir(tmp_path)
    assert audit("csv:ledger", by="id", spark=spark).read == 2


@pytest.mark.slow
def test_what_reaches_brokers_is_not_asked_of_a_store(topic, folder):
    topic.send(0, 3)
    account = {"accessKey": "me", "secretKey": "mine"}
    found = audit(f"store:{folder / 'broker-0'}", topic=topic.name, options=account, spark=topic.spark)
    assert found.read == 3
