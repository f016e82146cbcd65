"""Time limits of calls."""

from sparrowmq.http2.deadlines import STEP_S, Deadlines
from sparrowmq.testing import ManualClock
from tests.turns import Turns


class Call:
    def __init__(self):
        self.is_over = False

    def time_is_over(self):
        self.is_over = True


async def test_a_call_ends_at_its_limit_or_one_step_later():
    clock = ManualClock()
    deadlines, calls = Deadlines(clock), [Call() for _ in range(3)]
    for number, call in enumerate(calls):
        deadlines.add(call, 1 + number * STEP_S)
    await clock.advance(0.99)
    assert not any(call.is_over for call in calls)
    await clock.advance(0.02 + STEP_S)
    assert [call.is_over for call in calls] == [True, False, False]
    await clock.advance(2 * STEP_S)
    assert all(call.is_over for call in calls) and len(deadlines) == 0


async def test_a_call_that_has_ended_is_forgotten():
    clock = ManualClock()
    deadlines, call = Deadlines(clock), Call()
    deadlines.drop(call, deadlines.add(call, 1))
    await clock.advance(2)
    assert not call.is_over
    deadlines.drop(call, 20)  # a step that is over


async def test_long_limits_of_ended_calls_leave_nothing():
    """A client may give each call another limit of years."""
    clock = ManualClock()
    deadlines, kept = Deadlines(clock), Call()
    deadlines.add(kept, 1e9)
    for number in range(10_000):
        call = Call()
        deadlines.drop(call, deadlines.add(call, 1000 + number))
    assert len(deadlines) == 1
    deadlines.drop(kept, deadlines.add(kept, 1))
    assert len(deadlines) == 2


async def test_thousands_of_calls_with_one_limit_end_in_several_turns_of_the_loop():
    clock = ManualClock()
    deadlines, turns = Deadlines(clock), Turns()

    class Noted(Call):
        def time_is_over(self):
            super().time_is_over()
            turns.note()

    calls = [Noted() for _ in range(1000)]
    steps = {deadlines.add(call, 1) for call in calls}
    deadlines.drop(calls[-1], *steps)
    await clock.advance(2)
    assert [call.is_over for call in calls] == [True] * 999 + [False]
    assert turns.most_in_one <= 64 and len(deadlines) == 0
