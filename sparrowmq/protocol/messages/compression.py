"""Compressed bodies: zlib, LZ4 frames and Zstandard, named by bits of the message's system flag.

    bit 0      the body is compressed
    bits 8-10  0 zlib (clients up to 4.9, Go, C++), 1 LZ4, 2 Zstandard, 3 zlib

A broker stores bodies as they arrive; consumers decompress them. A few bytes can expand to gigabytes, so the output has
a limit while it grows. Source: MessageSysFlag and CompressorFactory, Java 5.3.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Final

from sparrowmq.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from sparrowmq.protocol.messages.message import SysFlag

try:
    from zlib_ng import zlib_ng as zlib  # the same format in two thirds of the time (ADR 95)
except ImportError:  # there are no wheels for some machines
    import zlib  # type: ignore[no-redef]

ZLIB_LEVEL: Final = 5

# Any body that a producer may send (4 MiB) can be decompressed, even one of equal bytes (zlib reaches 1000:1). A larger
# one must have a plausible ratio, and at most 16 MiB, the limit of a frame.
MAX_ORDINARY_BYTES: Final = 4 << 20
MAX_RATIO: Final = 64
MAX_INFLATED_BYTES: Final = 16 << 20

Buffer = bytes | bytearray | memoryview


def compress(body: Buffer, kind: int = SysFlag.COMPRESSION_ZLIB, level: int = ZLIB_LEVEL) -> bytes:
    """Compress a body. The sender sets `COMPRESSED | kind` in the system flag.

    Raises:
        LocalProtocolError: the kind is unknown.
        ConfigError: the library for it is not installed.
    """
    if kind in (0, SysFlag.COMPRESSION_ZLIB):
        return zlib.compress(body, level)
    if kind == SysFlag.COMPRESSION_LZ4:
        return bytes(_lz4().compress(body))
    if kind == SysFlag.COMPRESSION_ZSTD:
        return bytes(_zstandard().ZstdCompressor(level).compress(body))
    raise LocalProtocolError(f"no compression is known for flag {kind:#x}; use one of SysFlag.COMPRESSION_*")


def decompress(body: Buffer, sys_flag: int, max_bytes: int = MAX_INFLATED_BYTES) -> bytes:
    """Decompress a body. Returns it as it is if the flag says that it is not compressed.

    Raises:
        RemoteProtocolError: the body is damaged, too large, or of an unknown kind.
        ConfigError: the library for it is not installed.
    """
    if not sys_flag & SysFlag.COMPRESSED:
        return bytes(body)
    limit = min(max_bytes, max(MAX_ORDINARY_BYTES, MAX_RATIO * len(body)))
    inflated = _inflated(body, sys_flag, limit)
    if len(inflated) > limit:
        raise RemoteProtocolError(f"{len(body)} compressed bytes hold more than {limit} bytes; refused")
    return inflated


def beginning(body: Buffer, sys_flag: int, size_bytes: int) -> bytes:
    """The first bytes of a body, decompressed no further.

    Raises:
        RemoteProtocolError: the body is damaged, or of an unknown kind.
        ConfigError: the library for it is not installed.
    """
    if not sys_flag & SysFlag.COMPRESSED:
        return bytes(body[:size_bytes])
    return _inflated(body, sys_flag, size_bytes)[:size_bytes]


def _inflated(body: Buffer, sys_flag: int, limit: int) -> bytes:
    """The decompressed body; more than `limit` bytes of it if it has more. Raises: RemoteProtocolError, ConfigError."""
    inflate = _INFLATE.get(sys_flag & SysFlag.COMPRESSION_MASK)
    if inflate is None:
        raise RemoteProtocolError(f"the body has an unknown compression (system flag {sys_flag:#x})")
    return inflate(body, limit)


def _inflate_zlib(body: Buffer, limit: int) -> bytes:
    return _inflate_at_once("zlib", zlib.decompressobj(), (zlib.error,), body, limit)


def _inflate_lz4(body: Buffer, limit: int) -> bytes:
    return _inflate_at_once("LZ4", _lz4().LZ4FrameDecompressor(), (RuntimeError, ValueError), bytes(body), limit)


def _inflate_at_once(kind: str, stream: Any, faults: tuple[Any, ...], body: Buffer, limit: int) -> bytes:
    try:
        inflated = bytes(stream.decompress(body, limit + 1))
    except faults as error:
        raise _damaged(kind, error) from None
    if not stream.eof and len(inflated) <= limit:
        raise _damaged(kind, "it ends too early")
    return inflated


def _inflate_zstd(body: Buffer, limit: int) -> bytes:
    zstandard = _zstandard()
    stream = zstandard.ZstdDecompressor().decompressobj()
    parts, size = [], 0
    try:
        # decompressobj has no limit of its own, and a block holds at most 128 KiB: feed it little by little.
        for start in range(0, len(body), _ZSTD_STEP):
            parts.append(stream.decompress(body[start : start + _ZSTD_STEP]))
            size += len(parts[-1])
            if size > limit or stream.eof:
                break
    except zstandard.ZstdError as error:
        raise _damaged("Zstandard", error) from None
    if not stream.eof and size <= limit:
        raise _damaged("Zstandard", "it ends too early")
    return b"".join(parts)


_ZSTD_STEP = 64
_INFLATE = {
    0: _inflate_zlib,
    SysFlag.COMPRESSION_LZ4: _inflate_lz4,
    SysFlag.COMPRESSION_ZSTD: _inflate_zstd,
    SysFlag.COMPRESSION_ZLIB: _inflate_zlib,
}


def _damaged(kind: str, reason: object) -> RemoteProtocolError:
    return RemoteProtocolError(f"the {kind} body is damaged: {reason}")


def _lz4() -> ModuleType:
    try:
        import lz4.frame
    except ImportError:
        raise ConfigError("LZ4 bodies need the package lz4: pip install 'sparrowmq[compression]'") from None
    return lz4.frame  # type: ignore[no-any-return]


def _zstandard() -> ModuleType:
    try:
        import zstandard
    except ImportError:
        raise ConfigError("Zstandard bodies need the package zstandard: pip install 'sparrowmq[compression]'") from None
    return zstandard
