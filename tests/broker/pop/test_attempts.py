"""The messages of pops whose answer may be lost."""

from sparrowmq.broker.pop.message_groups import NO_ATTEMPT, number_of
from sparrowmq.broker.pop.pop_queue import PopQueue
from sparrowmq.broker.pop.pop_steps import AckStep, Changed, PopStep


def popped(queue, runs, attempt, token):
    queue.apply(PopStep("t", "g", 0, runs, 8, 1, 2, token, 1, attempt))


def test_a_message_is_of_the_last_pop_that_got_it():
    queue = PopQueue("t", "g", 0, 0)
    popped(queue, [1, 3], 7, 1000)
    popped(queue, [2, 1, 5, 1], 8, 1001)
    popped(queue, [1, 1], NO_ATTEMPT, 1002)
    assert (queue.of_attempt(7), queue.of_attempt(8)) == ([3], [2, 5])


def test_a_message_whose_time_is_changed_is_of_no_attempt():
    queue = PopQueue("t", "g", 0, 0)
    popped(queue, [1, 2], 7, 1000)
    queue.apply(Changed("t", "g", 0, 1, 3, 4, 1001))
    assert queue.of_attempt(7) == [2]


def test_an_attempt_whose_messages_are_done_is_forgotten():
    queue = PopQueue("t", "g", 0, 0)
    for attempt in range(1, 1000):
        popped(queue, [attempt, 1], attempt, 1000 + attempt)
        queue.apply(AckStep("t", "g", 0, [attempt, 1]))
        assert queue.of_attempt(attempt) == []
    assert len(queue.attempts) < 100


def test_a_number_is_the_same_after_a_restart():
    assert number_of("6f1d") == 8287647439885782560
    assert number_of("") == NO_ATTEMPT
    assert 0 < number_of("x" * 100_000) < 1 << 63
