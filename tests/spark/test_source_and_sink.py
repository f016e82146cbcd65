"""sparrowmq.spark.source_and_sink: what Spark asks of the data source."""

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import IntegerType, StringType, StructField, StructType

import pyspark_rocketmq
from sparrowmq.errors import ConfigError
from sparrowmq.spark.schema import COLUMNS, INTERNAL, KAFKA_COLUMNS
from sparrowmq.spark.sink.writer import BatchWriter, StreamWriter
from sparrowmq.spark.source.batch_source import BatchReader
from sparrowmq.spark.source.stream_source import StreamReader
from sparrowmq.spark.source_and_sink import RocketMQSource

BODY = StructType([StructField("body", StringType())])


def source(**given):
    return RocketMQSource({"nameServer": "127.0.0.1:9876", "topic": "T"} | given)


def test_spark_finds_it_by_name_and_by_module():
    assert RocketMQSource.name() == "rocketmq"
    assert pyspark_rocketmq.DefaultSource is RocketMQSource


def test_the_schema_follows_the_options():
    found = {field.name: field.dataType.simpleString() for field in source(includeInternal="true").schema().fields}
    assert found == COLUMNS
    assert source().schema().fieldNames() == [name for name in COLUMNS if name not in INTERNAL]
    found = {field.name: field.dataType.simpleString() for field in source(kafkaCompat="true").schema().fields}
    assert found == KAFKA_COLUMNS
    assert source(columns="body,tags").schema().fieldNames() == ["body", "tags"]
    assert source().schema().fields[0].metadata == {}


def test_a_catalogs_table_keeps_its_options_in_its_schema_but_no_secrets():
    secrets = {
        "accessKey": "me",
        "secretKey": "s3cret",
        "option.accessKey": "me",
        "option.secretKey": "s3cret",
        "tls.enable": "true",
        "tls.client.keyPassword": "s3cret",
    }
    made = source(provider="rocketmq", **secrets, **{"option.topic": "T"})
    schema = made.schema()
    assert "s3cret" not in schema.json()
    assert RocketMQSource({}).reader(schema)._options.topics == ("T",)
    assert RocketMQSource({"topic": "U"}).reader(schema)._options.topics == ("U",)
    assert RocketMQSource({}).writer(StructType(schema.fields), overwrite=False)._options.topic == "T"


def test_an_insert_that_spark_gives_no_options_says_what_to_write():
    with pytest.raises(ConfigError, match=r"INSERT INTO t WITH \(nameServer"):
        RocketMQSource({}).writer(BODY, overwrite=False)


def test_readers_and_writers_are_made_without_asking_anybody():
    assert isinstance(source().reader(BODY), BatchReader)
    assert isinstance(source().streamReader(BODY), StreamReader)
    assert isinstance(source().writer(BODY, overwrite=False), BatchWriter)
    assert isinstance(source().streamWriter(BODY, overwrite=True), StreamWriter)


def test_what_is_wrong_is_told_before_anything_runs():
    number = StructType([StructField("body", IntegerType())])
    for make in (source().reader, source().streamReader):
        with pytest.raises(ConfigError, match="column body is binary, not int"):
            make(number)
    with pytest.raises(ConfigError, match="column body is int; cast it"):
        source().streamWriter(number, overwrite=False)
    with pytest.raises(ConfigError, match=r'write \.mode\("append"\)'):
        source().writer(BODY, overwrite=True)
    with pytest.raises(ConfigError, match="did you mean nameServer"):
        RocketMQSource({"nameSrver": "a:1"}).schema()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("endingOffsets", '{"T":{"broker-a":{"0":0}}}'),
        ("endingTimestamp", "1000"),
        ("endingOffsetsByTimestamp", '{"T":{"broker-a":{"0":0}}}'),
    ],
)
def test_where_a_query_ends_is_for_batches(name, value):
    ending = source(**{name: value})
    assert isinstance(ending.reader(BODY), BatchReader)
    with pytest.raises(ConfigError, match="end a batch query, and not a stream; leave them out"):
        ending.streamReader(BODY)
