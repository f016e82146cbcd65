"""The rules that all bodies share."""

import re
from contextlib import suppress
from pathlib import Path
from time import thread_time

import msgspec
import pytest

import sparrowmq
from sparrowmq.errors import RemoteProtocolError
from sparrowmq.protocol.wire import json
from sparrowmq.protocol.wire.body import REQUEST_BYTES, Body


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


def test_the_body_of_a_request_has_a_limit() -> None:
    assert Sample.of_request(b'{"groupName":"%b"}' % (b"g" * 100_000)).group_name == "g" * 100_000
    with pytest.raises(RemoteProtocolError, match="takes 524304 bytes, and this request may have 524288"):
        Sample.of_request(b'{"groupName":"%b"}' % (b"g" * REQUEST_BYTES))


def test_a_small_request_may_be_in_a_dialect() -> None:
    assert Sample.of_request(b'{"someTable":{0:"a"},"groupName":null}') == Sample({0: "a"})


@pytest.mark.parametrize("raw", [b"[" * 20_000, b'{"someTable":{' + b'0:"a",' * 9000, b'{"a":[' + b"[]," * 9000])
def test_a_large_request_is_never_read_by_the_slow_reader(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(json, "_Reader")
    with pytest.raises(RemoteProtocolError, match="no Sample in standard JSON"):
        Sample.of_request(raw)


@pytest.mark.parametrize("raw", [b"{a:" + b" " * 8000 + b"1}", b'{a:"' + b'\\"' * 4000 + b"\\"])
def test_no_request_in_a_dialect_takes_quadratic_time(raw: bytes) -> None:
    begin = thread_time()
    with suppress(RemoteProtocolError):
        Sample.of_request(raw)
    assert thread_time() - begin < 0.1  # it was 0.4 s


def test_servers_read_requests_within_the_limits() -> None:
    """`decode` is for answers and files: it has no limit, and its slow reader takes 0.3 us a byte."""
    package = Path(sparrowmq.__file__).parent
    files = [*package.glob("broker/handlers/*.py"), *package.glob("namesrv/*.py"), *package.glob("auth/*.py")]
    without_limit = re.compile(r"(?<!RegisterBrokerBody)(?<!json)\.(decode|parse)\(body\)")
    found = [file.name for file in files if without_limit.search(file.read_text())]
    assert len(files) > 20 and found == []
