from sparrowmq.console.login.login_attempts import FREE, PAUSE_S, Attempts
from sparrowmq.testing import ManualClock


async def test_after_five_wrong_attempts_an_address_waits_a_minute():
    clock = ManualClock()
    attempts = Attempts(clock)
    for _ in range(FREE):
        assert attempts.wait_s("10.0.0.1") == 0
        attempts.begin("10.0.0.1")
    assert attempts.wait_s("10.0.0.1") == PAUSE_S
    assert attempts.wait_s("10.0.0.2") == 0
    await clock.advance(PAUSE_S)
    assert attempts.wait_s("10.0.0.1") == 0
    attempts.begin("10.0.0.1")
    assert attempts.wait_s("10.0.0.1") == PAUSE_S, "one more, and it waits again"


def test_a_right_one_forgets_the_wrong_ones():
    attempts = Attempts(ManualClock())
    for _ in range(FREE):
        attempts.begin("10.0.0.1")
    attempts.succeeded("10.0.0.1")
    assert attempts.wait_s("10.0.0.1") == 0


async def test_old_ones_are_forgotten():
    clock = ManualClock()
    attempts = Attempts(clock)
    for _ in range(FREE):
        attempts.begin("10.0.0.1")
    await clock.advance(3600)
    attempts.begin("10.0.0.1")
    assert attempts.wait_s("10.0.0.1") == 0


def test_so_many_addresses_are_remembered_and_no_more():
    attempts = Attempts(ManualClock())
    for number in range(10_050):
        attempts.begin(f"address {number}")
    assert len(attempts._failed) == 10_000
