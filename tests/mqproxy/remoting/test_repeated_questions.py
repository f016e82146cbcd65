"""Questions that a client asks once for each broker."""

from sparrowmq.mqproxy import remoting_port
from sparrowmq.mqproxy.remoting_port import REPEAT_WINDOW_S, Repeats
from sparrowmq.protocol.wire.command import Command
from sparrowmq.testing import ManualClock


def asked(key, code=12):
    return Command(code=code, fields={"key": key, "topic": "orders"})


def test_of_the_questions_for_three_brokers_one_is_answered():
    questions = Repeats(ManualClock())
    assert [questions.is_repeat(asked("k"), 3) for _ in range(7)] == [False, True, True] * 2 + [False]


def test_other_questions_are_answered():
    questions = Repeats(ManualClock())
    assert [questions.is_repeat(each, 2) for each in (asked("k"), asked("l"), asked("k", 13))] == [False] * 3
    assert [questions.is_repeat(asked(key), 2) for key in "kl"] == [True, True]


async def test_a_question_of_a_second_ago_is_another_one():
    clock = ManualClock()
    questions = Repeats(clock)
    assert not questions.is_repeat(asked("k"), 2)
    await clock.advance(REPEAT_WINDOW_S)
    assert [questions.is_repeat(asked("k"), 2) for _ in range(2)] == [False, True]


def test_a_client_with_many_questions_occupies_little(monkeypatch):
    monkeypatch.setattr(remoting_port, "MAX_QUESTIONS", 10)
    questions = Repeats(ManualClock())
    assert not any(questions.is_repeat(asked(str(number)), 2) for number in range(100))
    assert len(questions._questions) == 10
    assert questions.is_repeat(asked("99"), 2)
