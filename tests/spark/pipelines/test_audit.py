"""sparrowmq.spark.pipelines.audit: loss, doubles and gaps are found, and nothing else."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")


from sparrowmq.protocol.messages.batch import BatchPart
from sparrowmq.spark.pipelines import audit, table

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def look(topic):
    def look(left, right=None, **given):
        given = {"spark": topic.spark, "say": lambda _: None} | given
        return audit(left, right, name_server=topic.options["nameServer"], **given)

    return look


def counts(found):
    return found.missing, found.unexpected, found.doubled, found.gaps


def ledger(path, *ids):
    path.write_text("id\n" + "".join(f"id-{number}\n" for number in ids))
    return f"csv:{path}"


@pytest.mark.slow
def test_a_topic_is_compared_with_the_ledger_of_who_sent_to_it(topic, look, tmp_path):
    topic.send(0, 10)
    topic._send([BatchPart(b"again", b"UNIQ_KEY\x01id-3\x02")])
    topic.wait_for(11)
    sent = ledger(tmp_path / "sent.csv", *range(1, 13))
    found = look(sent, f"topic:{topic.name}", by="id", right_by="msgId", to=tmp_path / "found")
    assert counts(found) == (3, 1, 1, 0)
    assert (found.read, found.errors) == (23, 5)
    rows = topic.spark.read.parquet(str(tmp_path / "found")).collect()
    assert sorted((row.finding, row.key, row.queueOffset is None) for row in rows) == [
        *(("doubled", "id-3", False), ("doubled", "id-3", False)),
        *(("missing", f"id-{number}", True) for number in (10, 11, 12)),
        ("unexpected", "id-0", False),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["parquet", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("delta", "iceberg"))]
)
def test_a_topic_and_its_table_are_the_same_until_rows_are_gone(topic, look, tmp_path, kind):
    topic.send(0, 100)
    where = {"name_server": topic.options["nameServer"], "spark": topic.spark, "say": lambda _: None}
    table(topic.name, tmp_path / "t", format=kind, once=True, **where)
    sides = f"topic:{topic.name}", f"table:{tmp_path / 't'}"
    assert look(*sides).errors == 0
    topic.send(100, 5)
    assert counts(look(*sides)) == (5, 0, 0, 0)


@pytest.mark.slow
def test_fields_of_bodies_named_as_places_or_with_points_do_not_hide_where_rows_are(topic, look, tmp_path):
    topic.send_bodies([b'{"id":1,"TOPIC":"x","msgId":"same","queueOffset":7,"a.b":1,"c`d":2}'] * 8)
    where = {"name_server": topic.options["nameServer"], "spark": topic.spark, "say": lambda _: None}
    table(topic.name, tmp_path / "t", mode="json", once=True, **where)
    assert counts(look(f"topic:{topic.name}", f"table:{tmp_path / 't'}")) == (0, 0, 0, 0)


@pytest.mark.slow
def test_gaps_are_offsets_between_others_that_have_no_row(topic, look, folder, tmp_path):
    topic.send(0, 40)
    assert counts(look(f"topic:{topic.name}")) == (0, 0, 0, 0)
    rows = topic.read().selectExpr("struct(*) as _mq", "date'2026-01-01' as _day").where("_mq.queueOffset != 4")
    rows.write.partitionBy("_day").parquet(str(tmp_path / "holes"))
    assert look(f"table:{tmp_path / 'holes'}", by="_mq.msgId").gaps == topic.read().where("queueOffset = 4").count()
    assert look(f"topic:{topic.name}", f"store:{folder / 'broker-0'}").missing == 0
