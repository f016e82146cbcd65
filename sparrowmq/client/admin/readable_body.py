"""The body of a message for an operator, who also sees a body that no consumer can decompress.

A producer may call any bytes compressed: a cut stream, one of another kind, or one that expands to gigabytes. One such
message must not hide the others of its topic.
"""

from __future__ import annotations

from typing import NamedTuple

from sparrowmq.errors import ConfigError, RemoteProtocolError
from sparrowmq.protocol.messages import compression
from sparrowmq.protocol.messages.message import StoredMessage


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
    try:
        return ReadableBody(compression.decompress(stored.body, stored.sys_flag))
    except (RemoteProtocolError, ConfigError) as error:
        return ReadableBody(stored.body, str(error))
