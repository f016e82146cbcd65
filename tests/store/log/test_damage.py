"""Where behind damage a record may begin."""

import struct

from sparrowmq.kernel.record_layout import MAGIC_V1, MAGIC_V2
from sparrowmq.store.log import damage
from sparrowmq.store.log.damage import record_places

BEGIN = 1 << 32


def head(place: int, magic: int = MAGIC_V1) -> bytes:
    return struct.pack(">iiiiiqqi", 100, magic, 0, 0, 0, 7, BEGIN + place, 0)


def places(content: bytes, position: int = 0) -> list[int]:
    def read(at: int, size: int) -> bytes:
        return content[at : at + size]

    return list(record_places(read, BEGIN, position, len(content)))


def test_a_head_counts_only_where_it_says_that_it_lies():
    content = b"x" * 10 + head(10) + b"y" * 7 + head(57, MAGIC_V2) + head(10) + b"z" * 100
    assert places(content) == [10, 57]
    assert places(content, 11) == [57]


def test_a_head_on_the_seam_of_two_reads_is_found(monkeypatch):
    monkeypatch.setattr(damage, "_CHUNK_BYTES", 64)
    for place in range(40, 90):
        content = (b"x" * place + head(place)).ljust(256, b"x")
        assert places(content) == [place]


def test_a_head_that_the_end_cuts_is_none():
    assert places((b"x" * 10 + head(10))[:45]) == []
    assert places(b"") == places(b"\xda\xa3\x20\xa7") == []
