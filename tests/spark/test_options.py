"""sparrowmq.spark.options: what users write, and what they are told when it is wrong."""

import re

import pytest

from sparrowmq.errors import ConfigError
from sparrowmq.protocol.messages.message import MessageQueue
from sparrowmq.spark.options import SinkOptions, SourceOptions, StoredOptions, null_bad_records, parse, reads_log_files

BASE = {"nameServer": "127.0.0.1:9876", "topic": "Orders"}


def source(**given):
    return parse(SourceOptions, BASE | {name.replace("__", "."): value for name, value in given.items()})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"badRecords": "null"}),
        ({"BADRECORDS": "fail"}, {"BADRECORDS": "fail"}),
        ({"badRecords": "dlq", "topic": "x"}, {"badRecords": "dlq", "topic": "x"}),
    ],
)
def test_a_pipeline_goes_on_behind_a_damaged_body_unless_its_user_says_otherwise(given, expected):
    assert null_bad_records(given) == expected


def test_the_least_that_must_be_said():
    options = source()
    assert options.name_servers == ("127.0.0.1:9876",)
    assert options.topics == ("Orders",)
    assert (options.start, options.end) == (None, None)
    assert options.fail_on_data_loss


@pytest.mark.parametrize(
    "given",
    [
        {"NAMESERVER": "a:1;b:2", "Subscribe": "x, y,x"},
        {"kafka.bootstrap.servers": "a:1,b:2", "subscribe": "x,y"},
        {"rocketmq.client.endpoints": "a:1;b:2;", "topic": "x,y"},
    ],
)
def test_names_are_read_in_any_case_and_spelling(given):
    options = parse(SourceOptions, given)
    assert options.name_servers == ("a:1", "b:2")
    assert options.topics == ("x", "y")


Q = MessageQueue("T", "broker-a", 3)


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("startingOffsets", "Earliest", "start", "earliest"),
        ("startingOffsets", '{"T":{"broker-a":{"3":-2}}}', "start", {Q: -2}),
        ("endingOffsets", '{"T":{"broker-a":{"3":17}}}', "end", {Q: 17}),
        ("startingTimestamp", "1700000000123", "start_time_ms", 1700000000123),
        ("startingTimestamp", "2023-11-14T22:13:20.123Z", "start_time_ms", 1700000000123),
        ("startingTimestamp", "2023-11-14 22:13:20.123", "start_time_ms", 1700000000123),
        ("endingTimestamp", "2023-11-14T23:13:20.123+01:00", "end_time_ms", 1700000000123),
        ("startingOffsetsByTimestamp", '{"T":{"broker-a":{"3":5}}}', "start_times_ms", {Q: 5}),
        ("maxTriggerDelay", "15m", "max_delay_ms", 900_000),
        ("maxTriggerDelay", "250", "max_delay_ms", 250),
        ("failondataloss", "FALSE", "fail_on_data_loss", False),
        ("tags", "a || b", "expression", "a || b"),
        ("kafka.group.id", "G", "group", "G"),
        ("columns", "body, keys", "columns", ("body", "keys")),
        ("includeHeaders", "false", "include_properties", False),
    ],
)
def test_values_become_what_planning_needs(name, value, field, expected):
    assert getattr(source(**{name.replace(".", "__"): value}), field) == expected


def test_what_to_read_is_said_one_way_only():
    assign = {"nameServer": "a:1", "assign": '{"T":{"broker-a":[3]}}'}
    assert parse(SourceOptions, assign).queues == {Q}
    by_pattern = parse(SourceOptions, {"nameServer": "a:1", "subscribePattern": "orders-.*"})
    assert by_pattern.topic_pattern == re.compile("orders-.*")
    for given in ({"nameServer": "a:1"}, BASE | assign, BASE | {"subscribePattern": "x"}):
        with pytest.raises(ConfigError, match="exactly one of the options topic, subscribePattern and assign"):
            parse(SourceOptions, given)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"nameServr": "a:1"}, "unknown option nameServr; did you mean nameServer?"),
        ({"maxOffsetPerTriger": "5"}, "did you mean maxOffsetsPerTrigger?"),
        ({"qqq": "5"}, "unknown option qqq; known are .*accessKey.*topic"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "Kafka's and has no meaning"),
        ({"subscribe": "U"}, "options topic and subscribe mean the same"),
        ({"nameServer": "localhost"}, r"option nameServer='localhost': write host:port"),
        ({"nameServer": ""}, "write host:port"),
        ({"topic": " , "}, "write names with commas"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss='maybe': write true or false"),
        ({"maxOffsetsPerTrigger": "0"}, "write a whole number of at least 1"),
        ({"maxOffsetsPerTrigger": "1e6"}, "write a whole number"),
        ({"pullBatchSize": "100000"}, "at most 65536"),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"maxTriggerDelay": "soon"}, "write a duration"),
        ({"startingOffsets": "begin"}, "write earliest, latest, group or JSON"),
        ({"endingOffsets": "earliest"}, "write latest or JSON"),
        (
            {"startingOffsets": '{"T":{"0":23}}'},
            r'write JSON as \{"T": \{"broker": \{"0": 23\}\}\}, or set kafkaCompat',
        ),
        (
            {"endingOffsetsByTimestamp": '{"T":{"b":{"0":1},"1":5}}'},
            "times of T name no broker; write JSON as",
        ),
        ({"startingOffsets": '{"T":{"b":5}}', "kafkaCompat": "true"}, "queue 'b' has 5; write JSON as"),
        ({"startingOffsets": '{"T":{"b":{"0":-3}}}'}, "queue '0' has -3"),
        ({"startingOffsets": '{"T":{"b":{"0":true}}}'}, "queue '0' has True"),
        ({"startingOffsets": '{"T":'}, "it is not JSON"),
        ({"startingOffsets": '{"T":5}'}, "write JSON as"),
        ({"startingOffsets": "group"}, "need the option group"),
        ({"commitOffsets": "true"}, "need the option group"),
        ({"subExpression": "UA && AA"}, r"option subExpression='UA && AA'.*; write 'UA \|\| AA' for"),
        ({"tags": "a|b"}, r"option tags='a\|b'.*; write 'a \|\| b' for"),
        ({"subExpression": "a", "filter.sql": "x > 1"}, "exclude each other"),
        ({"minPartitions": "9", "maxPartitions": "8"}, "maxPartitions=8 is below minPartitions=9"),
        ({"accessKey": "me"}, "accessKey and secretKey go together"),
        ({"proxy": "grpc"}, "not supported yet"),
        ({"proxy": "carrier pigeon"}, "write remoting or grpc"),
        ({"tls.enable": "perhaps"}, "tls.enable='perhaps'"),
        ({"pullTimeoutMs": str(2**63 - 1)}, "at most 2147483647"),
        ({"pullBatchSize": 10}, "option pullBatchSize=10 is no text; write pullBatchSize='...'"),
        ({"tags": None}, "option tags=None is no text"),
        ({"tls.client.trustCertPath": "ca.pem"}, "no effect without tls.enable=true"),
        ({"pushdown": "perhaps"}, "write true or false"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_write(given, complaint):
    with pytest.raises(ConfigError, match=complaint):
        parse(SourceOptions, BASE | given)


def test_an_error_names_an_option_as_the_documentation_does_although_spark_gives_it_in_lower_case():
    for wrong in ({"pullbatchsize": "x"}, {"kafka.group.id": "G", "consumergroup": "G"}):
        with pytest.raises(ConfigError, match=r"option pullBatchSize=|options kafka\.group\.id and consumerGroup"):
            parse(SourceOptions, BASE | wrong)
    with pytest.raises(ConfigError, match="option endingOffsets is for topics"):
        parse(StoredOptions, {"path": "/store", "topic": "T", "endingoffsets": "latest"})


def test_the_name_server_must_be_given():
    with pytest.raises(ConfigError, match=r"option nameServer is missing"):
        parse(SourceOptions, {"topic": "T"})


def test_the_other_directions_options_and_sparks_own_are_passed_over():
    shared = BASE | {
        "maxOffsetsPerTrigger": "5",
        "sendBatchRows": "7",
        "checkpointLocation": "x",
        "path": "y",
    }
    assert parse(SinkOptions, shared).batch_rows == 7
    assert parse(SourceOptions, shared).max_rows == 5


def test_files_are_meant_where_there_is_a_path_and_no_name_server():
    assert reads_log_files({"path": "/store"})
    assert not reads_log_files({"path": "/warehouse/t", "nameserver": "a:1"})
    assert not reads_log_files({"path": "/warehouse/t", "kafka.bootstrap.servers": "a:1"})
    assert not reads_log_files({})
    given = parse(StoredOptions, {"PATH": "file:///store", "topic": "a,b", "minPartitions": "4"})
    assert (given.path, given.topics, given.min_partitions) == ("/store", ("a", "b"), 4)
    assert parse(StoredOptions, {"path": "file:/store", "subscribe": "a"}).path == "/store"


@pytest.mark.parametrize(("value", "more"), [("idempotent", {}), ("exactly_once", {"brokerName": "b"})])
def test_stronger_guarantees_need_batches_that_are_repeated_as_they_were(value, more):
    given = BASE | more | {"deliveryGuarantee": value.upper()}
    assert parse(SinkOptions, given).guarantee == value
    with pytest.raises(ConfigError, match=f"{value} cannot be kept with asyncProgressTrackingEnabled=true"):
        parse(SinkOptions, given | {"asyncProgressTrackingEnabled": "true"})
    assert parse(SinkOptions, BASE | {"asyncProgressTrackingEnabled": "true"}).guarantee == "at_least_once"


def test_a_broker_decides_only_about_batches_that_are_there_once():
    assert parse(SinkOptions, BASE | {"deliveryGuarantee": "exactly_once"}).broker_name is None
    with pytest.raises(ConfigError, match="the option brokerName goes with deliveryGuarantee=exactly_once"):
        parse(SinkOptions, BASE | {"brokerName": "b"})


def test_dead_letters_need_a_topic_of_their_own():
    for given in ({}, {"dlqTopic": "T"}):
        with pytest.raises(ConfigError, match="onError=dlq needs the option dlqTopic"):
            parse(SinkOptions, {"nameServer": "a:1", "topic": "T", "onError": "dlq"} | given)
    with pytest.raises(ConfigError, match="badRecords=dlq needs the option dlqTopic"):
        source(badRecords="dlq")
    with pytest.raises(ConfigError, match="badRecords=dlq needs a broker"):
        parse(StoredOptions, {"path": "/store", "topic": "T", "badRecords": "dlq"})
    assert not source(badRecords="dlq", dlqTopic="D").fails_at_bad_records


def test_every_option_of_both_tables_has_names_of_its_own():
    for kind in (SourceOptions, StoredOptions, SinkOptions):
        spelled = [name.lower() for field in kind.__dataclass_fields__.values() for name in field.metadata["names"]]
        assert len(spelled) == len(set(spelled))


def test_secrets_are_not_shown():
    given = {
        "nameServer": "a:1",
        "topic": "T",
        "accessKey": "me",
        "secretKey": "hidden-1",
        "securityToken": "hidden-2",
        "tls.enable": "true",
        "tls.client.keyPassword": "hidden-3",
    }
    assert "hidden" not in repr(parse(SourceOptions, given)) + repr(parse(SinkOptions, given))


def test_a_least_number_of_tasks_needs_no_largest():
    assert parse(SourceOptions, {"nameServer": "a:1", "topic": "T", "minPartitions": "16"}).min_partitions == 16
