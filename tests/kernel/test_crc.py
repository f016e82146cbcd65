import zlib

from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.kernel.crc import crc32


@given(st.binary(max_size=5000), st.integers(0, 0xFFFFFFFF))
def test_it_is_the_crc_of_zlib(content: bytes, start: int) -> None:
    assert crc32(content) == zlib.crc32(content)
    assert crc32(memoryview(content), start) == zlib.crc32(content, start)
