"""sparrowmq.schemas.wire_format: values to bodies and back, by the schemas of a registry."""

import io

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")

import fastavro
from google.protobuf import descriptor_pb2, message_factory, type_pb2

from sparrowmq.errors import InvalidBody, InvalidSchema, NetworkError
from sparrowmq.schemas import Access, Registry
from sparrowmq.schemas.protobuf import ProtobufFile, ProtobufReader, compile_schema
from sparrowmq.schemas.registry import PROTOBUF, Schema
from tests.schemas.fake_registry import FakeRegistry
from tests.schemas.samples import MONEY, OPTION_BODY, ORDER, ORDER_BODY, ORDER_VALUE, RANGE_BODY, SHOP


@pytest.fixture
def server():
    with FakeRegistry() as server:
        yield server


@pytest.fixture
def registry(server):
    return Registry(server.url, Access())


def test_avro_bodies_are_those_of_another_client(registry):
    codec = registry.avro("orders-value", ORDER)
    assert codec.encode(ORDER_VALUE) == ORDER_BODY
    assert codec.decode(ORDER_BODY) == ORDER_VALUE


def test_a_body_is_read_with_the_schema_that_it_was_written_with(registry):
    one = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    two = {**one, "fields": [*one["fields"], {"name": "b", "type": "string", "default": "?"}]}
    old, new = registry.avro("r", one), registry.avro("r", two)
    assert new.decode(old.encode({"a": 1})) == {"a": 1}
    assert old.decode(new.encode({"a": 1})) == {"a": 1, "b": "?"}


def test_a_schema_can_be_looked_up_only(registry, server):
    with pytest.raises(InvalidSchema):
        registry.avro("r", ORDER, registers=False)
    assert registry.avro("r", ORDER).schema_id == registry.avro("r", ORDER, registers=False).schema_id
    assert len(server.schemas) == 1


@pytest.mark.parametrize("value", [{"id": 1}, {"id": "x"}, 5, None, {**ORDER_VALUE, "more": 1}])
def test_a_value_that_does_not_fit_is_refused(registry, value):
    with pytest.raises(InvalidBody, match="the value does not fit the schema"):
        registry.avro("orders-value", ORDER).encode(value)


def test_what_cannot_be_decoded_says_why(registry, server):
    codec = registry.avro("orders-value", ORDER)
    for body in (b"", b"{}", ORDER_BODY[:20]):
        with pytest.raises(InvalidBody):
            codec.decode(body)
    with pytest.raises(InvalidSchema):
        codec.decode(b"\0\0\0\0\x09x")
    server.stop()
    with pytest.raises(NetworkError):
        codec.decode(b"\0\0\0\0\x08x")
    assert codec.decode(ORDER_BODY) == ORDER_VALUE


def test_a_schema_that_is_none_is_refused_before_the_registry_is_asked(registry, server):
    with pytest.raises(InvalidSchema):
        registry.avro("r", "{}")
    assert server.asked == []


def test_protobuf_bodies_are_those_of_another_client(registry, server):
    server.add("other", '"int"')
    codec = registry.protobuf("opt-value", type_pb2.Option)
    option = type_pb2.Option(name="color")
    option.value.type_url, option.value.value = "t/x", b"\1"
    assert codec.schema_id == 2
    assert codec.encode(option) == OPTION_BODY
    assert codec.decode(OPTION_BODY) == option
    nested = registry.protobuf("nested-value", descriptor_pb2.DescriptorProto.ExtensionRange)
    assert nested.encode(descriptor_pb2.DescriptorProto.ExtensionRange(start=5, end=9)) == RANGE_BODY
    for body, why in [
        (RANGE_BODY, r"message \(2, 0\) of its file, not of \(4,\)"),
        (OPTION_BODY[:-1], "is no google"),
    ]:
        with pytest.raises(InvalidBody, match=why):
            codec.decode(body)


def test_a_message_that_lacks_a_required_field_is_refused(registry):
    codec = registry.protobuf("n", descriptor_pb2.UninterpretedOption.NamePart)
    with pytest.raises(InvalidBody, match="the message is incomplete"):
        codec.encode(descriptor_pb2.UninterpretedOption.NamePart())


def test_imported_files_are_registered_under_their_names(registry, server):
    file = ProtobufFile(compile_schema(Schema(PROTOBUF, SHOP, (("shop/money.proto", MONEY),))))
    order = message_factory.GetMessageClass(file.message_named("Order"))
    codec = registry.protobuf("orders-value", order)
    assert set(server.subjects) == {"orders-value", "shop/money.proto"}
    again = ProtobufFile(compile_schema(registry.schema(codec.schema_id)))
    assert ProtobufReader(again.message_at((0,))).read(order(id=3).SerializeToString())["id"] == 3


def test_the_library_that_writes_is_read_by_another_one(registry):
    body = registry.avro("orders-value", ORDER).encode(ORDER_VALUE)
    assert fastavro.schemaless_reader(io.BytesIO(body[5:]), fastavro.parse_schema(ORDER)) == ORDER_VALUE
