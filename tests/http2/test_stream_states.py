"""The state table of a stream."""

from __future__ import annotations

import pytest

from sparrowmq.http2 import stream_states as states


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([states.GOT_HEADERS], states.OPEN),
        ([states.GOT_HEADERS, states.GOT_DATA, states.GOT_END], states.PEER_ENDED),
        ([states.GOT_HEADERS, states.GOT_END, states.SENT_END], states.CLOSED),
        ([states.GOT_HEADERS, states.SENT_END], states.WE_ENDED),
        ([states.GOT_HEADERS, states.SENT_END, states.GOT_DATA, states.GOT_END], states.CLOSED),
        ([states.GOT_HEADERS, states.RESET], states.CLOSED),
    ],
)
def test_a_stream_passes_through_its_states(events, expected):
    state = states.IDLE
    for event in events:
        state = states.after(state, event)
    assert state == expected


@pytest.mark.parametrize(
    ("state", "event"),
    [
        (states.IDLE, states.GOT_DATA),
        (states.IDLE, states.RESET),
        (states.PEER_ENDED, states.GOT_DATA),
        (states.PEER_ENDED, states.GOT_HEADERS),
        (states.PEER_ENDED, states.GOT_END),
        (states.WE_ENDED, states.SENT_END),
        (states.CLOSED, states.GOT_DATA),
        (states.CLOSED, states.SENT_END),
    ],
)
def test_what_is_against_the_rules_has_no_state(state, event):
    assert states.after(state, event) == states.NONE
