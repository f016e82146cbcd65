"""The body of a message for an operator, who also sees a body that no consumer can decompress.

A producer may call any bytes compressed: a cut stream, one of another kind, or one that expands to gigabytes. One such
message must not hide the others of its topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from sparrowmq.errors import ConfigError, RemoteProtocolError
from sparrowmq.protocol.messages import compression
from sparrowmq.protocol.messages.message import StoredMessage, SysFlag


class ReadableBody(NamedTuple):
    """A body, as far as it can be read.

    Attributes:
        content: the body as it was sent, or as it is stored if there is a trouble.
        trouble: the reason why it cannot be decompressed.
    """

    content: bytes
    trouble: str | None = None


def readable(stored: StoredMessage) -> ReadableBody:
    """Return the body of a message; it is decompressed again with each call, so that nothing large is kept."""
    return _tried(stored, lambda: compression.decompress(stored.body, stored.sys_flag))


def beginning(stored: StoredMessage, size_bytes: int) -> ReadableBody:
    """Return the first bytes of a body, which costs no more for a body that expands to megabytes."""
    return _tried(stored, lambda: compression.beginning(stored.body, stored.sys_flag, size_bytes))


async def read_aside(stored: StoredMessage) -> ReadableBody:
    """Return the body of a message without stopping the event loop: 4 KB may become 4 MiB, which take 10 ms."""
    is_packed = stored.sys_flag & SysFlag.COMPRESSED
    return await asyncio.to_thread(readable, stored) if is_packed else readable(stored)


def _tried(stored: StoredMessage, read: Callable[[], bytes]) -> ReadableBody:
    try:
        return ReadableBody(read())
    except (RemoteProtocolError, ConfigError) as error:
        return ReadableBody(stored.body, str(error))
