"""sparrowmq.spark.pipelines.tables.encoded_shape: the settings of a table, and the columns of its batches."""

import json

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("grpc_tools")

from sparrowmq.errors import ConfigError, NetworkError
from sparrowmq.schemas.registry import PROTOBUF
from sparrowmq.spark.pipelines.tables.encoded_bodies import NO_SCHEMA_ID
from sparrowmq.spark.pipelines.tables.encoded_shape import EncodedBodies, body_settings
from sparrowmq.spark.pipelines.tables.table_settings import TableSettings
from tests.schemas.fake_registry import FakeRegistry
from tests.schemas.samples import MONEY

ONE = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
TWO = {**ONE, "fields": [*ONE["fields"], {"name": "b", "type": "string"}]}


@pytest.fixture
def registry():
    with FakeRegistry() as registry:
        yield registry


def settled(mode, **bodies):
    return TableSettings(
        "orders", "parquet", mode, None, bodies=body_settings(mode, *(bodies.get(name) for name in NAMES))
    )


NAMES = ("registry", "schema_file", "message")


def test_schemas_of_a_registry_add_columns(registry, tmp_path):
    registry.add("r", ONE)
    table = settled("avro", registry=registry.url)
    bodies = EncodedBodies(table, tmp_path / "schemas.json")
    assert bodies.shape_for_heads(0, [[(1, [], 5)], [(1, [], 2), (9, [], 1)]]).fields == {"a": "bigint"}
    registry.add("r", TWO)
    table.fields = {"a": "bigint"}
    registry.failures.append(503)
    with pytest.raises(NetworkError):
        bodies.shape_for_heads(1, [[(2, [], 1)]])
    assert bodies.shape_for_heads(1, [[(2, [], 1), (1, [], 1)]]).fields == {"a": "bigint", "b": "string"}
    assert [asked for asked in registry.asked if asked.endswith("/1")] == ["GET /schemas/ids/1"]


def test_a_schema_of_another_type_adds_no_columns(registry):
    registry.add("r", ONE)
    registry.add("m", MONEY, PROTOBUF)
    of_avro = EncodedBodies(settled("avro", registry=registry.url), None)
    assert of_avro.shape_for_heads(0, [[(1, [], 1), (2, [], 1)]]).fields == {"a": "bigint"}
    of_protobuf = EncodedBodies(settled("protobuf", registry=registry.url), None)
    found = of_protobuf.shape_for_heads(0, [[(1, [0], 1), (2, [0], 1), (2, [4], 1)]])
    assert found.fields == {"units": "bigint", "nanos": "bigint"}


def test_a_file_has_the_only_schema(tmp_path):
    file = tmp_path / "r.avsc"
    file.write_text(json.dumps(TWO))
    found = EncodedBodies(settled("avro", schema_file=file), None).shape_for_heads(0, [[(NO_SCHEMA_ID, [], 1)]])
    assert found.fields == {"a": "bigint", "b": "string"}
    file = tmp_path / "money.proto"
    file.write_text(MONEY)
    found = EncodedBodies(settled("protobuf", schema_file=file), None).shape_for_heads(0, [[(NO_SCHEMA_ID, [], 1)]])
    assert found.fields == {"units": "bigint", "nanos": "bigint"}


def test_other_modes_need_no_schema():
    assert body_settings("json", None, None, None) is None


@pytest.mark.parametrize(
    ("mode", "arguments", "complaint"),
    [
        ("json", ("http://r", None, None), "go with mode avro or protobuf only"),
        (
            "avro",
            (None, None, None),
            "mode avro needs the address of a schema registry, or the file of a schema",
        ),
        ("avro", ("http://r", "x.avsc", None), "mode avro needs the address"),
        ("avro", (None, "x.avsc", "M"), "a message goes with mode protobuf"),
        ("protobuf", ("http://r", None, "M"), "a message goes with mode protobuf"),
        ("protobuf", ("registry:8081", None, None), "is no address of a registry"),
        ("protobuf", ("http://me:secret@r", None, None), "contains an account"),
        ("avro", (None, "/nowhere.avsc", None), "the schema cannot be read"),
        ("avro", (None, __file__, None), "it is no Avro schema"),
        ("protobuf", (None, "/nowhere.proto", None), "the schema cannot be read"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(mode, arguments, complaint):
    with pytest.raises(ConfigError, match=complaint):
        body_settings(mode, *arguments)
