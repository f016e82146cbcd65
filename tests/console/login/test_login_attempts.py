import pytest

from sparrowmq.console.login import (
    LINE_STEP_S,
    MAX_FAILURES_BEFORE_LINE,
    MAX_FAILURES_OF_PLACE,
    MAX_LINE_S,
    PAUSE_S,
    AttemptResult,
    Attempts,
    network_of,
)
from sparrowmq.testing import ManualClock

AT_ONCE = AttemptResult(0.0)


def begin(attempts, times, address="10.0.0.1", name="boss", browser=""):
    return [attempts.begin(address, name, browser) for _ in range(times)]


async def test_after_five_wrong_attempts_an_account_waits_a_minute_at_an_address():
    clock = ManualClock()
    attempts = Attempts(clock)
    assert begin(attempts, MAX_FAILURES_OF_PLACE) == [AT_ONCE] * MAX_FAILURES_OF_PLACE
    assert begin(attempts, 1) == [AttemptResult(PAUSE_S, is_refused=True)]
    await clock.advance(PAUSE_S)
    assert begin(attempts, 1) == [AT_ONCE]
    assert begin(attempts, 1) == [AttemptResult(PAUSE_S, is_refused=True)], "one more, and it waits again"


def test_others_behind_the_address_and_the_account_elsewhere_are_not_paused():
    attempts = Attempts(ManualClock())
    begin(attempts, MAX_FAILURES_OF_PLACE)
    assert begin(attempts, 1, name="olga") == [AT_ONCE]
    assert begin(attempts, 1, address="10.0.0.2") == [AT_ONCE]


def test_a_browser_that_the_account_has_used_has_attempts_of_its_own():
    attempts = Attempts(ManualClock())
    begin(attempts, 3 * MAX_FAILURES_BEFORE_LINE)
    for number in range(3 * MAX_FAILURES_BEFORE_LINE):
        begin(attempts, 1, address=f"10.0.1.{number}")
    assert begin(attempts, MAX_FAILURES_OF_PLACE, browser="known") == [AT_ONCE] * MAX_FAILURES_OF_PLACE
    assert begin(attempts, 1, browser="known") == [AttemptResult(PAUSE_S, is_refused=True)]


async def test_attempts_at_an_account_from_many_addresses_stand_in_line():
    clock = ManualClock()
    attempts = Attempts(clock)
    turns = [begin(attempts, 1, address=f"10.0.0.{number}")[0] for number in range(MAX_FAILURES_BEFORE_LINE + 15)]
    assert turns[:MAX_FAILURES_BEFORE_LINE] == [AT_ONCE] * MAX_FAILURES_BEFORE_LINE
    waits = [each.wait_s for each in turns[MAX_FAILURES_BEFORE_LINE:] if not each.is_refused]
    assert waits == [LINE_STEP_S * number for number in range(1, int(MAX_LINE_S / LINE_STEP_S) + 1)]
    assert turns[-1].is_refused
    await clock.advance(MAX_LINE_S)
    assert not begin(attempts, 1, address="10.9.9.9")[0].is_refused, "the line moves on"


def test_attempts_at_many_accounts_from_one_address_stand_in_line():
    attempts = Attempts(ManualClock())
    turns = [begin(attempts, 1, name=f"user-{number}")[0] for number in range(MAX_FAILURES_BEFORE_LINE + 15)]
    assert turns[:MAX_FAILURES_BEFORE_LINE] == [AT_ONCE] * MAX_FAILURES_BEFORE_LINE
    assert turns[MAX_FAILURES_BEFORE_LINE].wait_s == LINE_STEP_S and turns[-1].is_refused
    assert begin(attempts, 1, address="10.0.0.2", name="user-1") == [AT_ONCE]


def test_a_right_one_forgets_the_wrong_ones_of_its_place_and_counts_nowhere():
    attempts = Attempts(ManualClock())
    for _ in range(3 * MAX_FAILURES_BEFORE_LINE):
        assert begin(attempts, 1) == [AT_ONCE]
        attempts.succeeded("10.0.0.1", "boss")
    begin(attempts, MAX_FAILURES_OF_PLACE, browser="known")
    attempts.succeeded("10.0.0.1", "boss", "known")
    assert begin(attempts, 1, browser="known") == [AT_ONCE]


async def test_old_ones_are_forgotten():
    clock = ManualClock()
    attempts = Attempts(clock)
    begin(attempts, MAX_FAILURES_OF_PLACE)
    await clock.advance(3600)
    assert begin(attempts, MAX_FAILURES_OF_PLACE) == [AT_ONCE] * MAX_FAILURES_OF_PLACE


def test_so_many_are_remembered_and_no_more():
    attempts = Attempts(ManualClock())
    for number in range(4000):
        begin(attempts, 1, address=f"address {number}", name=f"name {number}")
    assert len(attempts._failures) == 10_000


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8::1:2:3:4", "2001:db8::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("", ""),
        ("unknown", "unknown"),
    ],
)
def test_a_visitor_with_ipv6_is_a_network(address, network):
    assert network_of(address) == network
