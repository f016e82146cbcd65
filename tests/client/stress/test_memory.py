"""Growth is what remains when the start of the run, and the starts of processes, are left out."""

import os

import pytest

from tests.client.stress.memory import HOUR_S, Memory, Sample, weigh


def test_a_process_that_only_warms_up_does_not_grow():
    memory = Memory()
    for second in range(0, 3600, 10):
        memory.add("broker", Sample(second, second, 60.0 if second > 600 else second / 10))
        memory.add("leaking", Sample(second, second, 60.0 + 5 * second / HOUR_S))
    assert memory.growth() == {"broker": pytest.approx(0), "leaking": pytest.approx(5)}
    assert memory.last()["broker"] == 60.0


def test_lives_that_end_at_different_ages_are_compared_by_age():
    """Later lives are longer here, so later samples are larger, but none is larger than an earlier one of its age."""
    memory = Memory()
    at_s = 0
    for life_s in range(20, 400, 20):
        for age_s in range(0, life_s, 5):
            size_mb = 50.0 + int(age_s).bit_length()
            memory.add("broker", Sample(at_s + age_s, age_s, size_mb))
            memory.add("leaking", Sample(at_s + age_s, age_s, size_mb + 5 * (at_s + age_s) / HOUR_S))
        at_s += life_s
    assert memory.growth() == {"broker": pytest.approx(0), "leaking": pytest.approx(5)}


def test_one_sample_says_nothing():
    memory = Memory()
    memory.add("broker", Sample(1.0, 1.0, 50.0))
    assert memory.growth() == {"broker": 0.0}


def test_a_process_has_a_size_and_an_age_until_it_is_gone():
    sample = weigh(os.getpid())
    assert sample is not None
    assert sample.size_mb > 5
    assert 0 < sample.age_s < 24 * HOUR_S
    assert weigh(2**22 + 1) is None
