"""sparrowmq.spark.pipelines.sql: the tables and columns of a query, as Spark's plans have them."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import ParseException

from sparrowmq.spark.pipelines.sql import count_scans, needed_columns, tables_in, takes_columns_by_name

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def view(topic):
    """A topic with a message, known to the session as `t`."""
    topic.send(0, 1)
    topic.spark.read.format("rocketmq").options(**topic.options).load().createOrReplaceTempView("t")
    yield topic
    topic.spark.catalog.dropTempView("t")


@pytest.mark.parametrize(
    ("query", "needed", "count"),
    [
        ("select count(*) from t", set(), 1),
        ("select count(*) from t cross join (select 1 from t limit 3)", set(), 2),
        ("select TAGS from t where QUEUEID = 0", {"tags", "queueId"}, 1),
        ("select tags, count(*) from t group by tags order by 2", {"tags"}, 1),
        ("select keys from t order by storeTimestamp limit 3", {"keys", "storeTimestamp"}, 1),
        ("select (select max(flag) from t) m, tags from t", {"flag", "tags"}, 2),
        ("select a.tags from t a join t b on a.msgId = b.msgId", {"tags", "msgId"}, 2),
        ("select tags from t where exists (select 1 from t u where u.keys = t.keys)", {"tags", "keys"}, 2),
        ("select tags from t union all select keys from t", {"tags", "keys"}, 2),
        ("with a as (select * from t where flag = 1) select tags from a", {"tags", "flag"}, 1),
        (
            "select row_number() over (partition by queueId order by queueOffset) from t",
            {"queueId", "queueOffset"},
            1,
        ),
        ("select * from t", None, 1),
        ("select * from t union all select * from t", None, 2),
        ("select to_json(struct(*)) from t", None, 1),
    ],
)
def test_the_columns_of_a_topic_that_a_query_needs(view, query, needed, count):
    rows = view.spark.sql(query)
    found = needed_columns(rows)[view.name]
    everything = set(view.spark.table("t").columns)
    assert (everything if found is None else found) == (everything if needed is None else needed)
    assert count_scans(rows) == count


def test_the_tables_of_a_query_are_named_as_it_spells_them(spark):
    query = "with w as (select * from orders) select (select count(*) from `a-b`) from w join Orders using (msgId)"
    assert tables_in(spark, query) == {"orders", "Orders", "a-b", "w"}
    with pytest.raises(ParseException):
        tables_in(spark, "selekt")


@pytest.mark.parametrize(
    ("query", "by_name"),
    [
        ("select tags, count(*), COUNT ( * ) from t", True),
        ("select * from t", False),
        ("select count(*), a.* from t a", False),
        ("select size(array(*)) from t", False),
        ("select 1 from t a natural join t b", False),
        ("select tags from (table t union all table t)", False),
        ("from t |> select tags", False),
    ],
)
def test_a_query_whose_columns_count_by_number_or_order_is_left_alone(query, by_name):
    assert takes_columns_by_name(query) is by_name
