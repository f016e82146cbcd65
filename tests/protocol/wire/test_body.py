"""The rules that all bodies share."""

import msgspec
import pytest

from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.wire.body import Body


class Sample(Body):
    some_table: dict[int, str] = msgspec.field(default_factory=dict)
    group_name: str = ""
    remark: str | None = None


def test_a_body_is_written_in_the_order_of_names_without_what_is_none() -> None:
    sample = Sample({1: "b", 0: "a"}, "g")
    assert sample.encode() == b'{"groupName":"g","someTable":{"1":"b","0":"a"}}'
    assert sample.encode(bare_integers=True) == b'{"groupName":"g","someTable":{1:"b",0:"a"}}'


@pytest.mark.parametrize(
    "raw",
    [b'{"someTable":{0:"a"},"groupName":"g","later":[1]}', b'{"someTable":{"0":"a"},"groupName":"g"}\n'],
)
def test_a_body_is_read_from_any_dialect(raw: bytes) -> None:
    assert Sample.decode(memoryview(raw)) == Sample({0: "a"}, "g")


def test_what_is_absent_or_null_has_its_ordinary_value() -> None:
    assert Sample.decode(b'{"someTable":null,"groupName":null}') == Sample.decode(b"{}") == Sample()


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"someTable":1}', b"\x00"])
def test_what_is_no_such_body_is_refused(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        Sample.decode(raw)
