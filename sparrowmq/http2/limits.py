"""The limits of the server: what one peer, and all peers together, may occupy or ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The limits of one server.

    Attributes:
        connections: above this number the oldest connection without a call ends, or else the new one.
        backlog: the most connections that wait to be accepted.
        streams: calls of one connection that may run at the same time. More are refused, and gRPC clients wait.
        header_list_bytes: names, values, and 32 bytes for each header of a request; larger ones get status 431.
        header_block_bytes: of one request's compressed headers, in all its frames; more ends the connection.
            Few clients send more, as they know `header_list_bytes`.
        message_bytes: of one request message, also after decompression.
        occupied_bytes: of all connections' open calls: their headers, their messages until these are handled, and the
            answers that peers have not read. Above that, the connection with most of them is ended.
        unsent_bytes: of one connection's answers. Above that it gets no new calls.
        control_frames, control_frames_per_s: frames that cost work and bring no call (pings, settings, resets, empty
            frames): so many at once, and so many a second. More end the connection.
        opening_s: the time for TLS, the first bytes and the first settings.
        partial_s: an unfinished frame or header block that does not grow for this time ends its connection; an
            unfinished message, or the first one of a call that may not be silent, ends its call.
        unread_s: a peer that leaves answers unread for this time is disconnected.
        ping_after_s: a peer without a byte for this time is asked by PING; without an answer it is disconnected.
        idle_s: a connection without calls and without a byte for this time is ended.
    """

    connections: int = 4_000
    backlog: int = 1024
    streams: int = 1_000
    header_list_bytes: int = 16 * 1024
    header_block_bytes: int = 16 * 1024
    message_bytes: int = 16 * 1024 * 1024
    occupied_bytes: int = 256 * 1024 * 1024
    unsent_bytes: int = 32 * 1024 * 1024
    control_frames: int = 2_000
    control_frames_per_s: float = 500.0
    opening_s: float = 10.0
    partial_s: float = 30.0
    unread_s: float = 30.0
    ping_after_s: float = 60.0
    idle_s: float = 600.0

    @property
    def of_connection(self) -> tuple[float, ...]:
        """The limits that a connection of the kernel keeps, in the order of its constructor."""
        return (
            self.streams,
            self.header_list_bytes,
            self.header_block_bytes,
            self.message_bytes,
            self.unsent_bytes,
            self.control_frames,
            self.control_frames_per_s,
        )
