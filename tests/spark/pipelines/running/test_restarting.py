"""sparrowmq.spark.failures: when a failed stream is started again."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JNetworkError

from sparrowmq.spark.failures import MAX_FAILURES_WITH_END, Restarts, has_session_ended

PASSING = RuntimeError("sparrowmq.errors.BrokerUnreachable: b is away")
PERMANENT = RuntimeError("sparrowmq.errors.ConfigError: x is wrong")


def test_pauses_grow_to_a_minute_until_a_batch_is_done():
    restarts = Restarts()
    assert [restarts.pause_s(PASSING, made_progress=False) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert restarts.pause_s(PASSING, made_progress=True) == 1
    assert restarts.pause_s(PASSING, made_progress=False) == 2


def test_a_stream_without_an_end_is_never_given_up_for_what_may_pass():
    restarts = Restarts()
    assert all(restarts.pause_s(PASSING, made_progress=False) for _ in range(10_000))
    assert restarts.pause_s(PERMANENT, made_progress=True) is None


def test_a_stream_with_an_end_is_given_up_after_some_failures_in_a_row():
    restarts = Restarts(MAX_FAILURES_WITH_END)
    for _ in range(3):
        pauses = [restarts.pause_s(PASSING, made_progress=number == 0) for number in range(MAX_FAILURES_WITH_END)]
        assert None not in pauses
    assert restarts.pause_s(PASSING, made_progress=False) is None


class Context:
    """As much of a session as is asked."""

    def __init__(self, answer):
        self.sparkContext: Any = self
        self._jsc = self
        self._answer = answer

    def sc(self):
        return self

    def isStopped(self):
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.mark.parametrize(
    ("answer", "ended"), [(False, False), (True, True), (Py4JNetworkError("gone"), True), (OSError(), True)]
)
def test_a_session_without_its_java_has_ended(answer, ended):
    session: Any = Context(answer)
    assert has_session_ended(session) is ended
