from sparrowmq.client.consuming.pulling import QUICK_ANSWER_S, EmptyPollBackoff


def test_pauses_grow_to_a_second_and_end_with_a_message_or_with_a_broker_that_waits():
    quick = EmptyPollBackoff()
    pauses = [quick.pause_s(False, 0.0) for _ in range(200)]
    assert pauses[:7] == [0.0] * 5 + [0.001, 0.002] and pauses == sorted(pauses) and pauses[-1] == 1.0
    assert quick.pause_s(True, 0.0) == quick.pause_s(False, 0.0) == 0.0
    assert [quick.pause_s(False, 0.0) for _ in range(5)][-1] == 0.001
    assert quick.pause_s(False, QUICK_ANSWER_S) == 0.0
