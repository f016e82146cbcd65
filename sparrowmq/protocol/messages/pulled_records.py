"""Decode all records of a pull's answer in one pass, as `record.walk` and `record.decode` do one by one.

A consumer decodes every message that it gets, so each step here counts a million times.
"""

from __future__ import annotations

from sparrowmq.errors import CorruptRecord, RemoteProtocolError
from sparrowmq.kernel.records import split
from sparrowmq.protocol.messages.pulled_message import PulledMessage
from sparrowmq.protocol.messages.record import body_damage


def decode_all(records: bytes, messages: list[PulledMessage], damaged: list[CorruptRecord]) -> None:
    """Add the messages to `messages`. One whose body does not fit its CRC adds its error to `damaged` instead.

    Raises: RemoteProtocolError, the next bytes are no record. The records before were added.
    """
    offsets: list[int] = []
    problem = split(records, PulledMessage, messages, offsets)
    damaged += map(body_damage, offsets)
    if problem is not None:
        raise RemoteProtocolError(problem)
