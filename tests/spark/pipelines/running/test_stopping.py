"""sparrowmq.spark.pipelines.running.session: signals while Spark is waited for."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("pyspark")

from sparrowmq.spark.pipelines.running.session import note_signals, restore_handler


def raises(_number, _frame):
    raise KeyboardInterrupt


@pytest.fixture
def handles():
    """Sets a handler for the time of a test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield signal.signal
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_would_interrupt_is_noted_and_later_ones_interrupt_again(handles, number):
    handles(number, raises)
    with note_signals() as is_stopped:
        assert not is_stopped()
        os.kill(os.getpid(), number)
        assert is_stopped()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)
    assert is_stopped()


def test_a_handler_of_somebody_else_is_called_as_ever(handles):
    got = []
    handles(signal.SIGTERM, lambda number, _frame: got.append(number))
    with note_signals() as is_stopped:
        os.kill(os.getpid(), signal.SIGTERM)
    assert got == [signal.SIGTERM]
    assert not is_stopped()


def test_what_is_left_to_the_system_stays_so_and_other_threads_get_nothing(handles):
    handles(signal.SIGTERM, signal.SIG_DFL)
    with note_signals():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with ThreadPoolExecutor(1) as thread:
        assert not thread.submit(_in_another_thread).result()


def of_an_earlier_session(_number, _frame):
    """Spark's, whose context has ended."""


of_an_earlier_session.__module__ = "pyspark.core.context"


@pytest.mark.parametrize("before", [signal.default_int_handler, of_an_earlier_session])
def test_a_session_that_begins_meanwhile_takes_no_signal_away(handles, before):
    def of_spark(_number, _frame):
        came.append("to Spark")

    came: list[str] = []
    handles(signal.SIGINT, before)
    with note_signals() as is_stopped:
        with restore_handler():
            handles(signal.SIGINT, of_spark)
        os.kill(os.getpid(), signal.SIGINT)
        assert is_stopped() and not came
    with restore_handler():
        handles(signal.SIGINT, of_spark)
    assert signal.getsignal(signal.SIGINT) is of_spark, "a notebook needs it"


def _in_another_thread():
    with note_signals() as is_stopped:
        return is_stopped()
