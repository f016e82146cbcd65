"""`./run fuzz --beside` measures an innocent client while attackers are at work, or many clients join a group."""

import re

import pytest

from tests.fuzz.beside import Beside, beside


@pytest.mark.slow
def test_a_client_sends_while_attackers_are_at_work(capsys):
    broken = beside(1, 0.03, attackers=2)
    alone, attacked = capsys.readouterr().out.splitlines()
    assert re.match(r"alone: \d+ sends beside 0 attacks: p50 [\d.]+, p99 ", alone)
    assert int(re.findall(r"([\d,]+) attacks", attacked)[0]) > 0
    assert "0 failed" in attacked and not any("failed" in each for each in broken)


@pytest.mark.slow
def test_a_client_sends_while_a_crowd_joins_a_group(capsys):
    broken = beside(1, 0.05, members=50)
    _alone, crowded = capsys.readouterr().out.splitlines()
    assert "50 members" in crowded and "beside 50 joins" in crowded  # all of them have joined
    assert "0 failed" in crowded and not any("failed" in each for each in broken)


def test_percentiles_are_those_of_the_durations():
    assert str(Beside([0.001] * 985 + [0.05] * 15, 0, 7)) == (
        "1,000 sends beside 7 attacks: p50 1.0, p99 50.0, p99.9 50.0, longest 50 ms; 0 failed"
    )
