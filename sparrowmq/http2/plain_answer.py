"""The answer to a request that is no gRPC call: a status of HTTP, and a text for the user of a browser or curl."""

from __future__ import annotations

from sparrowmq.http2 import response_headers
from sparrowmq.http2.calls import Status
from sparrowmq.http2.exchange import Surroundings
from sparrowmq.http2.streams import Stream


class PlainAnswer:
    """Reads a request to its end without keeping it, and then answers.

    Attributes:
        changed_at, is_unfinished: as those of an `Exchange`.
    """

    def __init__(self, status: int, text: str, stream: Stream, around: Surroundings) -> None:
        self.changed_at = around.clock.monotonic()
        self.is_unfinished = True
        self._status = status
        self._text = text
        self._stream = stream
        self._around = around

    def body(self, data: bytes, is_end: bool) -> None:
        self.changed_at = self._around.clock.monotonic()
        self._around.connection.consumed(self._stream, len(data))
        if is_end:
            self.fail(Status.INTERNAL, self._text)

    def fail(self, code: int, message: str) -> None:
        output = self._around.connection.output
        output.headers(self._stream, response_headers.plain(self._status))
        output.message(self._stream, message.encode() + b"\n")
        output.end(self._stream, response_headers.trailers(code, message))

    def ended(self) -> None:
        """Nothing waits."""

    def drained(self) -> None:
        """Nothing waits."""
