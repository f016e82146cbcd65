"""Growth is what remains when the start is left out."""

import os

import pytest

from tests.client.stress.memory import HOUR_S, Memory, resident_mb


def test_a_process_that_only_warms_up_does_not_grow():
    memory = Memory()
    for second in range(0, 3600, 10):
        memory.sample("broker", second, 60.0 if second > 600 else second / 10)
        memory.sample("leaking", second, 60.0 + 5 * second / HOUR_S)
    assert memory.growth() == {"broker": pytest.approx(0), "leaking": pytest.approx(5)}
    assert memory.last()["broker"] == 60.0


def test_one_sample_says_nothing():
    memory = Memory()
    memory.sample("broker", 1.0, 50.0)
    assert memory.growth() == {"broker": 0.0}


def test_a_process_that_is_gone_has_no_size():
    assert (resident_mb(os.getpid()) or 0.0) > 5
    assert resident_mb(2**22 + 1) is None
