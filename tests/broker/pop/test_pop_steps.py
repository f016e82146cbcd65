"""Steps of pop consumption, as records have them."""

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparrowmq.broker.pop.pop_steps import (
    AckStep,
    AnyStep,
    Changed,
    Dropped,
    PopStep,
    RestartStep,
    Restored,
    decoded,
    encoded,
    runs_of,
)
from sparrowmq.errors import RemoteProtocolError

STEPS: list[AnyStep] = [
    RestartStep("t", "g", 0, 7),
    PopStep("t", "g", 0, [7, 3, 12, 1], 13, 1000, 2000, 77, 1),
    Changed("t", "g", 0, 8, 1500, 2500, 78),
    AckStep("t", "g", 0, [7, 1]),
    Restored("t", "g", 0, 1, (1 << 64) - 1, bytes(1536)),
    PopStep("t", "g", 0, [7, 3], 13, 1000, 2000, 77, 1, (1 << 63) - 1),
    Restored("t", "g", 0, 1, 3, bytes(1536), [0, 5, 1, (1 << 63) - 1]),
    Dropped("t", "g", 0),
]


def test_steps_come_back_from_records():
    assert [step for piece in encoded(STEPS) for step in decoded(piece)] == STEPS


def test_steps_of_brokers_that_had_no_attempts_are_read():
    taken = msgspec.msgpack.encode([0, "t", "g", 0, [7, 3], 10, 1000, 2000, 77, 1])
    restored = msgspec.msgpack.encode([4, "t", "g", 0, 1, 3, b"cells"])
    assert list(decoded([taken, restored])) == [
        PopStep("t", "g", 0, [7, 3], 10, 1000, 2000, 77, 1),
        Restored("t", "g", 0, 1, 3, b"cells"),
    ]


def test_many_steps_take_several_records():
    pieces = list(encoded([STEPS[4]] * 300))
    assert len(pieces) > 1 and sum(map(len, pieces)) == 300
    assert all(sum(map(len, piece)) < 140_000 for piece in pieces)


def test_what_is_no_step_is_refused():
    with pytest.raises(RemoteProtocolError, match="cannot be read"):
        list(decoded([b"\x93\x09\x01\x02"]))


@given(st.lists(st.integers(0, 20)))
@example([0, 0, 2])
def test_runs_have_the_same_offsets_and_each_once(offsets):
    runs = runs_of(sorted(offsets))
    found = [
        offset for begin, count in zip(runs[::2], runs[1::2], strict=True) for offset in range(begin, begin + count)
    ]
    assert found == sorted(set(offsets))
