"""sparrowmq.schemas.protobuf: what compiles, and what is found in it."""

import base64
from pathlib import Path

import pytest

pytest.importorskip("grpc_tools")

from google.protobuf import descriptor_pb2, type_pb2

from sparrowmq.errors import ConfigError, InvalidSchema
from sparrowmq.schemas.protobuf import ProtobufFile, compile_file, compile_schema, indexes_of
from sparrowmq.schemas.registry import AVRO, PROTOBUF, Schema
from tests.schemas.samples import MONEY, SHOP


@pytest.fixture(scope="module")
def shop():
    return compile_schema(Schema(PROTOBUF, SHOP, (("shop/money.proto", MONEY),)))


def test_messages_are_found_by_index_and_by_name(shop):
    file = ProtobufFile(shop)
    assert file.message_at((0,)).full_name == "shop.Order"
    assert file.message_at((1,)) is file.message_named("Other") is file.message_named("shop.Other")
    line = file.message_named("Order.Line")
    assert file.message_at(indexes_of(line)) is line
    for wrong in [(2,), (0, 9), (1, 0), (-1,), (), (0, 0)]:  # 0.0 is an entry of the map
        with pytest.raises(InvalidSchema):
            file.message_at(wrong)
    with pytest.raises(ConfigError, match=r"it has shop\.Order, shop\.Order\.Line, shop\.Other"):
        file.message_named(None)
    with pytest.raises(ConfigError, match="name one message"):
        file.message_named("Nothing")


def test_a_file_is_compiled_beside_what_it_imports(tmp_path, shop):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "money.proto").write_text(MONEY)
    (tmp_path / "order.proto").write_text(SHOP)
    (tmp_path / "order.desc").write_bytes(shop)
    for name in ("order.proto", "order.desc"):
        assert ProtobufFile(compile_file(tmp_path / name)).message_named("Other").full_name == "shop.Other"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.proto", b"message {"),
        ("a.proto", b"\xff"),
        ("a.desc", b"\xff\xff"),
        ("a.desc", b""),
        ("a.proto", None),
    ],
)
def test_a_file_that_is_no_schema_is_named(tmp_path, name, content):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=str(tmp_path / name)):
        compile_file(tmp_path / name)


def test_descriptors_in_base64_need_no_compiler():
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="p", dependency=["b.proto"])
    file.message_type.add(name="A").field.add(name="b", number=1, type=11, label=1, type_name=".p.B")
    other = descriptor_pb2.FileDescriptorProto(name="x", package="p")
    other.message_type.add(name="B")
    texts = [base64.b64encode(each.SerializeToString()).decode() for each in (file, other)]
    found = ProtobufFile(compile_schema(Schema(PROTOBUF, texts[0], (("b.proto", texts[1]),))))
    assert found.message_named(None).fields_by_name["b"].message_type.full_name == "p.B"
    with pytest.raises(InvalidSchema, match="register all as text"):
        compile_schema(Schema(PROTOBUF, texts[0], (("b.proto", MONEY),)))


def test_well_known_files_are_known_in_base64():
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", dependency=["google/protobuf/timestamp.proto"])
    file.message_type.add(name="A")
    text = base64.b64encode(file.SerializeToString()).decode()
    assert ProtobufFile(compile_schema(Schema(PROTOBUF, text))).message_named(None).full_name == "A"


@pytest.mark.parametrize(
    ("text", "references", "why"),
    [
        ("message {", (), "it is no Protobuf schema"),
        ('import "gone.proto";', (), r"gone\.proto"),
        ("", (), "it has no message 0"),
        (MONEY, (("/etc/x.proto", MONEY),), "is no relative path"),
        (MONEY, (("../x.proto", MONEY),), "is no relative path"),
        (MONEY, (("a\0b", MONEY),), "cannot be the name of a file"),
        ("x" * (5 << 20), (), "more than 4 MiB"),
    ],
)
def test_a_schema_that_does_not_compile_says_why(text, references, why):
    with pytest.raises(InvalidSchema, match=why):
        ProtobufFile(compile_schema(Schema(PROTOBUF, text, references))).message_at((0,))


def test_references_do_not_write_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(InvalidSchema):
        compile_schema(Schema(PROTOBUF, MONEY, (("a/../../evil.proto", MONEY),)))
    assert list(Path(tmp_path).rglob("*")) == []


def test_another_type_of_schema_is_refused():
    with pytest.raises(InvalidSchema, match="of the type AVRO, not PROTOBUF"):
        compile_schema(Schema(AVRO, "{}"))


def test_the_path_of_a_message_is_that_of_another_client():
    assert indexes_of(type_pb2.Option.DESCRIPTOR) == (4,)
    assert indexes_of(descriptor_pb2.DescriptorProto.ExtensionRange.DESCRIPTOR) == (2, 0)
