import zlib

import pytest

from sparrowmq.admin.message_search import beginning, read_aside, readable
from sparrowmq.protocol.messages import record
from sparrowmq.protocol.messages.message import SysFlag
from tests.records import encoded


@pytest.mark.parametrize(
    ("body", "flag", "content", "trouble"),
    [
        (b"plain", 0, b"plain", None),
        (zlib.compress(b"packed"), SysFlag.COMPRESSED, b"packed", None),
        (b"wrong", SysFlag.COMPRESSED, b"wrong", "the zlib body is damaged"),
        (zlib.compress(b"\0" * (17 << 20)), SysFlag.COMPRESSED, None, "hold more than 4194304 bytes"),
        (b"x", SysFlag.COMPRESSED | 0x400, b"x", "unknown compression"),
    ],
)
def test_a_body_that_cannot_be_decompressed_is_as_it_is_stored_with_the_reason(body, flag, content, trouble):
    found = readable(record.decode(encoded(body=body, sys_flag=flag)))
    assert found.content == (body if content is None else content)
    assert (found.trouble is None) == (trouble is None) and (trouble or "") in (found.trouble or "")


async def test_a_body_is_read_aside_or_only_its_beginning() -> None:
    packed = record.decode(encoded(body=zlib.compress(b"packed" * 1000), sys_flag=SysFlag.COMPRESSED))
    assert await read_aside(packed) == (b"packed" * 1000, None)
    assert beginning(packed, 9) == (b"packedpac", None)
    damaged = record.decode(encoded(body=b"wrong", sys_flag=SysFlag.COMPRESSED))
    assert await read_aside(damaged) == beginning(damaged, 1) == readable(damaged)
