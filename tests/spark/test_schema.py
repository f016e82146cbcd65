"""sparrowmq.spark.schema: the table's columns."""

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.spark.options import SourceOptions, parse
from sparrowmq.spark.schema import COLUMNS, INTERNAL, KAFKA_COLUMNS, check_columns, columns


def options(**given):
    return parse(SourceOptions, {"nameServer": "a:1", "topic": "T"} | given)


def test_the_table_has_all_columns_unless_told_otherwise():
    assert columns(options(includeInternal="true")) == COLUMNS


def test_bookkeeping_is_there_only_when_it_is_asked_for():
    usual = columns(options())
    assert list(usual) == [name for name in COLUMNS if name not in INTERNAL]
    assert columns(options(columns="storeHost,body")) == {"storeHost": "string", "body": "binary"}
    assert columns(options(kafkaCompat="true")) == KAFKA_COLUMNS
    assert "properties" not in columns(options(includeProperties="false"))
    assert "headers" not in columns(options(includeHeaders="false", kafkaCompat="true"))
    assert columns(options(bodyType="string"))["body"] == "string"
    assert columns(options(bodyType="string", kafkaCompat="true"))["value"] == "string"
    assert columns(options(columns="BODY,queueid")) == {"body": "binary", "queueId": "int"}


@pytest.mark.parametrize(
    "asked",
    [
        [("body", "binary"), ("QUEUEOFFSET", "bigint")],
        [("body", "string")],
        list(COLUMNS.items()),
    ],
)
def test_a_users_schema_may_take_a_part(asked):
    check_columns(asked, options())


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ([("bdoy", "binary")], "there is no column bdoy; there are topic, brokerName"),
        ([("queueId", "bigint")], "column queueId is int, not bigint: write `queueId int`"),
        ([("key", "binary")], "there is no column key"),
    ],
)
def test_a_users_schema_that_does_not_fit_is_refused(asked, complaint):
    with pytest.raises(ConfigError, match=complaint):
        check_columns(asked, options())
    with pytest.raises(ConfigError, match="there is no column bdoy"):
        columns(options(columns="bdoy"))
