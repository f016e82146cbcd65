"""The states of a stream, as one table (RFC 9113, section 5.1, without server push).

                     HEADERS                 END from the peer            END from us
    IDLE ──────────────────────► OPEN ─────────────────────► PEER_ENDED ─────────────► CLOSED
                                  │ END from us                                          ▲
                                  └──────────────► WE_ENDED ──── END from the peer ──────┤
                                                                 RST_STREAM from either ─┘

What is missing in the table is against the rules. The stream error for it is STREAM_CLOSED, as only a stream whose
peer has ended can get there: a frame for an idle stream is a connection error before the table is asked.
"""

from __future__ import annotations

from typing import Final

IDLE: Final = 0
OPEN: Final = 1
PEER_ENDED: Final = 2
WE_ENDED: Final = 3
CLOSED: Final = 4

GOT_HEADERS: Final = 0
GOT_DATA: Final = 1
GOT_END: Final = 2
SENT_END: Final = 3
RESET: Final = 4

NONE: Final = -1

# By state, then by event in the order above.
_NEXT: Final[tuple[tuple[int, int, int, int, int], ...]] = (
    (OPEN, NONE, NONE, NONE, NONE),  # IDLE
    (OPEN, OPEN, PEER_ENDED, WE_ENDED, CLOSED),  # OPEN; more headers are trailers
    (NONE, NONE, NONE, CLOSED, CLOSED),  # PEER_ENDED
    (WE_ENDED, WE_ENDED, CLOSED, NONE, CLOSED),  # WE_ENDED
    (NONE, NONE, NONE, NONE, CLOSED),  # CLOSED
)


def after(state: int, event: int) -> int:
    """Return the state after an event; NONE if it is not allowed in this state."""
    return _NEXT[state][event]
