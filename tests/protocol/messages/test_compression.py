"""Compressed bodies: each kind in both directions, damage, and bombs."""

import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from sparrowmq.protocol.messages.compression import (
    MAX_INFLATED_BYTES,
    MAX_ORDINARY_BYTES,
    beginning,
    compress,
    decompress,
)
from sparrowmq.protocol.messages.message import SysFlag

KINDS = [0, SysFlag.COMPRESSION_ZLIB, SysFlag.COMPRESSION_LZ4, SysFlag.COMPRESSION_ZSTD]


@pytest.mark.parametrize("kind", KINDS)
@given(body=st.binary(max_size=2000))
def test_a_body_comes_back(kind: int, body: bytes) -> None:
    assert decompress(memoryview(compress(body, kind)), SysFlag.COMPRESSED | kind) == body


def test_a_plain_body_is_left_alone() -> None:
    assert decompress(b"plain", SysFlag.COMPRESSION_LZ4) == b"plain"
    assert beginning(b"plain", 0, 3) == b"pla"


@pytest.mark.parametrize("kind", KINDS)
def test_the_beginning_of_a_body_is_read_however_large_the_body_is(kind: int) -> None:
    packed = compress(bytes(64 << 20), kind), SysFlag.COMPRESSED | kind
    with pytest.raises(RemoteProtocolError, match="refused"):
        decompress(*packed)
    assert beginning(*packed, 500) == bytes(500)
    assert beginning(compress(b"short", kind), SysFlag.COMPRESSED | kind, 500) == b"short"
    with pytest.raises(RemoteProtocolError, match="damaged"):
        beginning(b"nonsense", SysFlag.COMPRESSED | kind, 500)


def test_the_body_of_an_old_client_is_zlib_without_a_kind() -> None:
    assert decompress(zlib.compress(b"x" * 20_000), 1) == b"x" * 20_000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.covers("S-PROD-11")
def test_the_largest_ordinary_body_inflates_however_well_it_packs(kind: int) -> None:
    body = bytes(MAX_ORDINARY_BYTES)
    assert decompress(compress(body, kind), SysFlag.COMPRESSED | kind) == body


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_is_refused(kind: int) -> None:
    bomb = compress(bytes(4 * MAX_INFLATED_BYTES), kind, 1)
    with pytest.raises(RemoteProtocolError, match="hold more than"):
        decompress(bomb, SysFlag.COMPRESSED | kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_limit_is_exact(kind: int) -> None:
    packed = compress(b"ab" * 500, kind)
    assert len(decompress(packed, SysFlag.COMPRESSED | kind, 1000)) == 1000
    with pytest.raises(RemoteProtocolError):
        decompress(packed, SysFlag.COMPRESSED | kind, 999)


@pytest.mark.parametrize("kind", KINDS)
def test_a_torn_or_wrong_body_is_refused(kind: int) -> None:
    packed = compress(bytes(range(256)) * 40, kind)
    for broken in (packed[:-5], packed[:7], b"", b"no compressed bytes at all"):
        with pytest.raises(RemoteProtocolError, match="damaged"):
            decompress(broken, SysFlag.COMPRESSED | kind)


def test_an_unknown_kind_is_refused_both_ways() -> None:
    with pytest.raises(RemoteProtocolError, match="unknown compression"):
        decompress(b"x", SysFlag.COMPRESSED | 0x500)
    with pytest.raises(LocalProtocolError, match="0x500"):
        compress(b"x", 0x500)


@pytest.mark.parametrize(("module", "kind"), [("lz4.frame", 0x100), ("zstandard", 0x200)])
def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, module: str, kind: int) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=r"sparrowmq\[compression\]"):
        compress(b"x", kind)
    with pytest.raises(ConfigError, match="pip install"):
        decompress(b"x", SysFlag.COMPRESSED | kind)
