"""The messages of pops whose answer may be lost."""

from sparrowmq.broker.pop.message_groups import NO_ATTEMPT, Attempts, number_of


def test_a_message_is_of_the_last_pop_that_got_it():
    attempts = Attempts()
    attempts.take([3, 1, 2], 7)
    attempts.take([2, 5], 8)
    attempts.take([1], NO_ATTEMPT)
    assert (attempts.messages(7), attempts.messages(8)) == ([3], [2, 5])
    assert [attempts.attempt_of(offset) for offset in (1, 2, 3)] == [NO_ATTEMPT, 8, 7]


def test_an_attempt_whose_messages_are_done_is_forgotten():
    attempts = Attempts()
    attempts.take([1, 2], 7)
    for offset in (1, 2, 2):
        attempts.drop(offset)
    assert (len(attempts), attempts.messages(7)) == (0, [])


def test_a_number_is_the_same_after_a_restart():
    assert number_of("6f1d") == 8287647439885782560
    assert number_of("") == NO_ATTEMPT
    assert 0 < number_of("x" * 100_000) < 1 << 63
