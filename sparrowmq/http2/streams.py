"""One stream of a connection: its state, its windows, and the output that waits for the peer's window."""

from __future__ import annotations

from typing import Any

from sparrowmq.http2 import stream_states as states
from sparrowmq.http2.frames import FIRST_WINDOW


class Stream:
    """A request and its answer.

    Attributes:
        state: of `stream_states`.
        call: the receiver's own object for the stream.
        receive_window: the bytes that the peer may still send.
        held_bytes: received and not `consumed` yet.
        kept_bytes: other memory of the request: the stream itself, its headers, its messages that grew.
        send_window: the bytes that the peer takes; negative after its settings made windows smaller.
        pending: output that waits.
        end_block: the trailers behind the output; None before the end.
        body_bytes: the announced rest of the body; -1 if nothing is announced.
    """

    __slots__ = (
        "body_bytes",
        "call",
        "end_block",
        "held_bytes",
        "kept_bytes",
        "pending",
        "receive_window",
        "send_window",
        "state",
        "stream_id",
    )

    def __init__(self, stream_id: int, send_window: int) -> None:
        self.stream_id = stream_id
        self.state = states.IDLE
        self.call: Any = None
        self.receive_window = FIRST_WINDOW
        self.held_bytes = 0
        self.kept_bytes = 0
        self.send_window = send_window
        self.pending = bytearray()
        self.end_block: bytes | None = None
        self.body_bytes = -1

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent or received."""
        return self.state == states.CLOSED

    @property
    def has_peer_ended(self) -> bool:
        return self.state in (states.PEER_ENDED, states.CLOSED)
