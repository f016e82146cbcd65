"""The numbers of HTTP/2 and gRPC that the kernel and others need, and the errors of a connection, a stream and a call.

Source: RFC 9113, sections 4, 6 and 7; RFC 7541 for the table of headers.
"""

from __future__ import annotations

from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES: Final = 9
LARGEST_FRAME: Final = 16_384  # that we take, and the most that a peer takes unless its settings say more
LARGEST_WINDOW: Final = 2**31 - 1
FIRST_WINDOW: Final = 65_535  # of a connection and of a stream, until settings say otherwise

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
HAS_PRIORITY: Final = 0x20

NO_ERROR: Final = 0
PROTOCOL_ERROR: Final = 1
FLOW_CONTROL_ERROR: Final = 3
STREAM_CLOSED: Final = 5
FRAME_SIZE_ERROR: Final = 6
REFUSED_STREAM: Final = 7
CANCEL: Final = 8
COMPRESSION_ERROR: Final = 9
ENHANCE_YOUR_CALM: Final = 11

HEADER_TABLE_SIZE: Final = 1
ENABLE_PUSH: Final = 2
MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5
MAX_HEADER_LIST_SIZE: Final = 6

TABLE_BYTES: Final = 4096  # of a table of headers, unless settings say otherwise
ENTRY_BYTES: Final = 32  # that each header counts besides its name and value (RFC 7541, section 4.1)
HARD_LIST_BYTES: Final = 32 * 1024  # of one list of headers

CONNECTION_WINDOW: Final = 4 * 1024 * 1024
STREAM_BYTES: Final = 4096  # the memory of a call, with its task
REMEMBERED_RESETS: Final = 1_000  # streams that we reset; the peer may have sent frames before it knew
EARNED_BY_FRAME: Final = 4  # control frames that a frame of an answer allows: updates of two windows, and pings
READY_BYTES: Final = 512 * 1024  # of bodies in one write; more waits in the streams until that has left

# The kinds of methods: one request and one answer; streams of them; such streams that may begin with silence.
UNARY: Final = 1
STREAMING: Final = 2
SILENT: Final = 3

OK: Final = 0  # codes of grpc-status that the kernel gives
DEADLINE_EXCEEDED: Final = 4
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13


class GrpcError(Exception):
    """Ends a call with a status other than OK.

    Attributes:
        code: of `Status`.
        message: for the client's user: what is wrong and what to do.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


class ConnectionFault(Exception):
    """The peer broke a rule for the whole connection, which ends. `code` goes into GOAWAY."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


class StreamFault(Exception):
    """The peer broke a rule for one stream, which is reset. Other streams go on."""

    def __init__(self, stream_id: int, code: int, why: str) -> None:
        super().__init__(why)
        self.stream_id = stream_id
        self.code = code
        self.why = why
